"""Fetches from an index: pages, metadata, wheels; checks them; says what went wrong and where.

A wheel is complete and its hash is right before it gets its name in the wheelhouse. A broken
connection is taken up again where it broke.
"""

from __future__ import annotations

import time
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gpusetup.errors import Blocked, Unreached
from gpusetup.install.house import (
    blocked,
    check,
    check_here,
    copy_here,
    digest_of,
    is_here,
    is_kept,
    is_whole,
    keep_mark,
    kept_mark,
    local_path,
    no_link,
    note_kept,
    size_of,
    touch_note,
)
from gpusetup.install.lock import file_lock
from gpusetup.install.ranged import RangedFile, goes_on, is_encoded, metadata_in
from gpusetup.install.wheels import Wheel, in_words, without_credentials

if TYPE_CHECKING:
    import requests

CONNECT_SECONDS = 5.0
SILENCE_SECONDS = 6.0
"""How long a server may say nothing."""
LIMITS = (CONNECT_SECONDS, SILENCE_SECONDS)
PAGE_SECONDS = 8.0
PAGE_BYTES = 64 << 20
PAUSES = (0.5, 2.0)
"""Between the tries of what may be a passing fault."""
CHUNK = 1 << 16
"""Bytes; what has come of a chunk is lost where the connection breaks."""
MISSING = (403, 404, 410)
"""What an index answers that has no such thing."""
PASSING = (429, 500, 502, 503, 504)
"""What is worth another try."""
PARTIAL, NOTHING_LEFT = 206, 416
LOGIN = (401, 407)
"""What an index or a proxy answers that wants to know who asks."""

Progress = Callable[[Wheel, int], None]
"""Called with the bytes that have come since the last call."""


class NeedsLogin(Unreached):
    """An index wants credentials that we do not have; pip and its keyring may."""


def login_needed(url: str, status: int) -> tuple[str, str]:
    """Message and hint."""
    host = urlsplit(url).hostname
    who = f"the proxy before {host}" if status == 407 else str(host)
    return (
        f"{without_credentials(url)}: {who} wants a user name and a password ({status})",
        f"nothing was changed; put them into ~/.netrc for {host}, or into the URL of the index "
        "(they are never printed or stored)",
    )


class Fetcher:
    """One session; proxies, certificates and netrc come from the environment."""

    def __init__(
        self,
        log: Callable[[str], None] = lambda _: None,
        logins: Mapping[str, tuple[str, str]] | None = None,
    ) -> None:
        import requests

        self._logins = logins or {}
        self._session = requests.Session()
        self._session.headers["User-Agent"] = "gpusetup"
        self._log = log
        self.stopped = Event()
        """Once set, whatever is being fetched ends soon: something else failed, or Ctrl-C."""
        self._guard = Lock()
        self._locks: dict[str, Lock] = {}

    def text(self, url: str, accept: str = "*/*") -> tuple[str, str, str] | None:
        """A page's own URL, where it was redirected to, its media type and its text; None where
        the server says that there is none."""
        import requests

        answer = self._answer(url, {"Accept": accept})
        try:
            if answer.status_code in MISSING:
                return None
            media_type = answer.headers.get("Content-Type", "")
            return answer.url, media_type, _page_text(url, answer)
        except requests.RequestException as problem:
            raise blocked(url, cause_of(problem)) from problem
        finally:
            answer.close()

    def size(self, url: str) -> int | None:
        """The size of a file in bytes, by HEAD; None where the server does not tell."""
        import requests

        if url.startswith("file:"):
            return size_of(local_path(url))
        try:
            answer = self._session.head(
                url, allow_redirects=True, timeout=LIMITS, auth=self._login(url)
            )
        except requests.RequestException:
            return None
        length = answer.headers.get("Content-Length", "")
        return int(length) if answer.ok and length.isdigit() else None

    def metadata_inside(self, url: str) -> str | None:
        """The METADATA of a wheel by a few requests for parts of it; None where that fails."""
        import requests

        if url.startswith("file:"):
            return None

        def part(span: str) -> tuple[bytes, int] | None:
            headers = {"Range": f"bytes={span}", "Accept-Encoding": "identity"}
            answer = self._session.get(
                url, headers=headers, timeout=LIMITS, stream=True, auth=self._login(url)
            )
            with answer:
                if answer.status_code != PARTIAL:
                    return None
                total = answer.headers.get("Content-Range", "").rpartition("/")[2]
                return (answer.content, int(total)) if total.isdigit() else None

        try:
            file = RangedFile.opened(part)
            return metadata_in(file) if file else None
        except (requests.RequestException, OSError, zipfile.BadZipFile, StopIteration) as problem:
            self._log(f"METADATA of {without_credentials(url)}: {problem}")
            return None

    def _login(self, url: str) -> tuple[str, str] | None:
        """What the user's settings say for a host; None leaves it to the URL and netrc."""
        parts = urlsplit(url)
        return None if "@" in parts.netloc else self._logins.get(parts.netloc)

    def wheel(self, wheel: Wheel, house: Path, progress: Progress = lambda _w, _n: None) -> Path:
        """The wheel in the wheelhouse, fetched unless it is there already, and checked."""
        with self._lock_of(wheel.filename):
            return self._wheel(wheel, house, progress)

    def early(self, wheels: Iterable[Wheel], house: Path) -> None:
        """Begin to fetch beside what else is going on; what goes wrong is met again by `wheel`."""
        for wheel in wheels:
            Thread(target=self._early, args=(wheel, house), daemon=True).start()

    def _early(self, wheel: Wheel, house: Path) -> None:
        try:
            house.mkdir(parents=True, exist_ok=True)
            self.wheel(wheel, house)
        except (Blocked, OSError) as problem:
            self._log(f"{wheel.filename}, fetched early: {problem}")

    def _lock_of(self, filename: str) -> Lock:
        with self._guard:
            return self._locks.setdefault(filename, Lock())

    def _wheel(self, wheel: Wheel, house: Path, progress: Progress) -> Path:
        path = house / wheel.filename
        if is_here(wheel, path):
            check_here(wheel, path)
            return path
        with file_lock(path):
            return self._fetched(wheel, path, progress)

    def _fetched(self, wheel: Wheel, path: Path, progress: Progress) -> Path:
        if is_kept(wheel, path):
            if is_whole(wheel, path):
                self._log(f"kept: {path}")
                touch_note(path)
                return path
            self._log(f"damaged: {path}; again")
        part = path.with_name(f"{path.name}.part")
        digest = self._whole(wheel, part, progress)
        part.replace(path)
        note_kept(wheel, path, digest)
        return path

    def _whole(self, wheel: Wheel, part: Path, progress: Progress) -> str:
        """Fetch and check; the digest. What was taken up from an earlier run and is wrong then may
        be two files in one: it is fetched once more, from its beginning."""
        if wheel.url.startswith("file:"):
            copy_here(local_path(wheel.url), part)
            taken_up = False
        else:
            taken_up = size_of(part) > 0
            self._download(wheel, part, progress)
        digest = digest_of(part)
        try:
            check(wheel, part, digest)
        except Blocked as problem:
            if not taken_up:
                raise
            self._log(f"{wheel.filename}: {problem.message}; again from the beginning")
            return self._whole(wheel, part, progress)
        return digest

    def _download(self, wheel: Wheel, part: Path, progress: Progress) -> None:
        """Take the file up where it broke, until it is whole or no progress is made."""
        import requests

        failures = 0
        while True:
            had = size_of(part)
            try:
                self._more(wheel, part, progress)
            except requests.RequestException as problem:
                failures = 1 if size_of(part) > had else failures + 1
                if failures > len(PAUSES) or (failures > 1 and is_timeout(problem)):
                    raise blocked(wheel.url, cause_of(problem)) from problem
                self._log(f"{wheel.filename}: {problem}; going on at byte {size_of(part)}")
                time.sleep(PAUSES[failures - 1])
            else:
                return

    def _more(self, wheel: Wheel, part: Path, progress: Progress) -> None:
        import requests

        mark = kept_mark(part)
        had = size_of(part) if mark or wheel.sha256 else 0
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={had}-"} if had else {})
        if had and mark:
            headers["If-Range"] = mark
        answer = self._answer(wheel.url, headers)
        try:
            if answer.status_code in MISSING:
                raise blocked(wheel.url, f"answers {answer.status_code} although its page names it")
            if answer.status_code == NOTHING_LEFT:
                return
            resumed = answer.status_code == PARTIAL
            if resumed and not goes_on(answer.headers, had, mark):
                part.unlink()
                progress(wheel, -had)
                raise requests.ConnectionError("another part came than was asked for")
            if not resumed:
                progress(wheel, -had)
                keep_mark(part, answer.headers)
            self._write(answer, part, "ab" if resumed else "wb", wheel, progress)
        except requests.RequestException:
            if is_encoded(answer.headers):  # where it broke cannot be counted
                progress(wheel, -size_of(part))
                part.unlink(missing_ok=True)
            raise
        finally:
            answer.close()
        length = "" if is_encoded(answer.headers) else answer.headers.get("Content-Length", "")
        if length.isdigit() and size_of(part) < int(length) + (had if resumed else 0):
            raise requests.ConnectionError(f"the connection broke at byte {size_of(part)}")

    def _write(
        self, answer: requests.Response, part: Path, mode: str, wheel: Wheel, progress: Progress
    ) -> None:
        import requests

        try:
            with open(part, mode, opener=no_link) as file:
                for chunk in answer.iter_content(CHUNK):
                    file.write(chunk)
                    progress(wheel, len(chunk))
                    if self.stopped.is_set():
                        raise blocked(wheel.url, "was stopped")
        except requests.RequestException:  # an OSError too, but not of the disk
            raise
        except OSError as problem:
            raise Blocked(
                f"{part} cannot be written: {problem.strerror or problem}",
                hint="nothing was changed; make room there, or set XDG_CACHE_HOME to a larger disk",
            ) from problem

    def _answer(self, url: str, headers: dict[str, str]) -> requests.Response:
        """An answer that is right or says "no such thing"; `Blocked` for everything else."""
        import requests

        for pause in (*PAUSES, None):
            try:
                answer = self._session.get(
                    url, headers=headers, stream=True, timeout=LIMITS, auth=self._login(url)
                )
            except requests.RequestException as problem:
                self._log(f"GET {without_credentials(url)}: {type(problem).__name__}")
                if pause is None or not _may_pass(problem):
                    raise blocked(url, cause_of(problem)) from problem
            else:
                self._log(f"GET {without_credentials(url)}: {answer.status_code}")
                if answer.status_code in LOGIN:
                    answer.close()
                    raise NeedsLogin(*login_needed(url, answer.status_code))
                if answer.ok or answer.status_code in (*MISSING, NOTHING_LEFT):
                    return answer
                wait = _retry_after(answer)
                answer.close()
                if pause is None or answer.status_code not in PASSING or wait > max(PAUSES):
                    raise blocked(url, _status(answer))
                pause = max(pause, wait)
            time.sleep(pause)
        raise AssertionError("the last try returns or raises")


def _page_text(url: str, answer: requests.Response) -> str:
    """A page's text, within limits of time and size: a trickle or a flood is no index page."""
    until = time.monotonic() + PAGE_SECONDS
    found = bytearray()
    for chunk in answer.iter_content(CHUNK):
        found += chunk
        if time.monotonic() > until:
            raise blocked(url, f"does not end within {PAGE_SECONDS:g} s")
        if len(found) > PAGE_BYTES:
            raise blocked(url, f"is longer than {in_words(PAGE_BYTES)}")
    return found.decode(answer.encoding or "utf-8", "replace")


# --- what went wrong -----------------------------------------------------------------------------


def cause_of(problem: requests.RequestException) -> str:
    """One line for what `requests` raised."""
    import requests

    text = str(problem)
    if isinstance(problem, requests.exceptions.SSLError):
        return next(words for mark, words in TLS if mark in text)
    for kind, words in (
        (requests.exceptions.ProxyError, "the proxy does not let it through"),
        (requests.ConnectTimeout, f"cannot be reached within {LIMITS[0]:g} s"),
        (requests.Timeout, f"says nothing for {LIMITS[1]:g} s"),
        (requests.TooManyRedirects, "redirects in a loop"),
    ):
        if isinstance(problem, kind):
            return words
    return next((words for mark, words in SAID if mark in text), f"the connection failed ({text})")


TLS = (
    ("not yet valid", "its TLS certificate is not valid yet: is this machine's clock right?"),
    ("has expired", "its TLS certificate has expired, unless this machine's clock is wrong"),
    ("ostname mismatch", "its TLS certificate is for another host"),
    ("certificate", "its TLS certificate is not trusted (REQUESTS_CA_BUNDLE names your own)"),
    ("", "no TLS connection can be made (is it http, or a proxy in between?)"),
)
"""What the text of a TLS error holds -> the cause in words; first match."""

SAID = (
    ("connect timeout", f"cannot be reached within {CONNECT_SECONDS:g} s"),
    ("Read timed out", f"says nothing for {SILENCE_SECONDS:g} s"),
    ("Name or service not known", "the name of the host cannot be resolved"),
    ("name resolution", "the name of the host cannot be resolved"),
    ("getaddrinfo failed", "the name of the host cannot be resolved"),
    ("Connection refused", "the connection is refused"),
    ("Connection reset", "the connection is reset"),
    ("connection broke", "the connection breaks again and again"),
    ("IncompleteRead", "the connection breaks again and again"),
)
"""What the text of a connection error holds -> the cause in words."""


def is_timeout(problem: requests.RequestException) -> bool:
    import requests

    return isinstance(problem, requests.Timeout) or "timed out" in str(problem)


def _may_pass(problem: requests.RequestException) -> bool:
    import requests

    lasting = (requests.exceptions.SSLError, requests.TooManyRedirects, requests.Timeout)
    return isinstance(problem, requests.ConnectionError) and not isinstance(problem, lasting)


def _status(answer: requests.Response) -> str:
    said = f"answers {answer.status_code} {answer.reason or ''}".strip()
    wait = answer.headers.get("Retry-After")
    return f"{said}, try again after {wait} s" if wait and wait.isdigit() else said


def _retry_after(answer: requests.Response) -> float:
    wait = answer.headers.get("Retry-After", "")
    return float(wait) if wait.isdigit() else 0.0
