"""Fetches from an index: pages, metadata, wheels; checks them.

A wheel is complete and its hash is right before it gets its name in the wheelhouse. A broken
connection is taken up again where it broke.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING

from gpusetup.errors import Blocked, Unreached
from gpusetup.install.credentials import without_credentials
from gpusetup.install.fetching import web
from gpusetup.install.fetching.causes import cause_of, content_length, is_timeout
from gpusetup.install.fetching.file_url import local_path
from gpusetup.install.fetching.ranged import (
    UNREADABLE,
    RangedFile,
    difference,
    goes_on,
    is_encoded,
    metadata_in,
)
from gpusetup.install.fetching.web import (
    CHUNK,
    MISSING,
    NOTHING_LEFT,
    NeedsLogin,
    Web,
    page_text,
    pieces,
    refuse_packing,
)
from gpusetup.install.fetching.wheel_cache import (
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
    note_kept,
    size_of,
    touch_note,
)
from gpusetup.install.fetching.wheels import Wheel
from gpusetup.install.switching.files import no_link
from gpusetup.install.switching.lock import file_lock
from gpusetup.system.refused import refused

if TYPE_CHECKING:
    import requests

__all__ = ["Fetcher", "NeedsLogin", "Progress"]
PARTIAL = 206
SHA256 = re.compile(r"[0-9a-fA-F]{64}")

Progress = Callable[[Wheel, int], None]
"""Called with the bytes that have come since the last call."""


class Fetcher:
    """Pages and wheels of an index; at the end of its block nothing is fetched any more."""

    def __init__(
        self,
        log: Callable[[str], None] = lambda _: None,
        logins: Mapping[str, tuple[str, str]] | None = None,
    ) -> None:
        self._web = Web(log, logins)
        self._log = log
        self.stopped = Event()
        """Once set, whatever is being fetched ends soon: something else failed, or Ctrl-C."""
        self._guard = Lock()
        self._locks: dict[str, Lock] = {}
        self.planned_by: dict[str, str] = {}
        """A wheel's file name -> what its page gave as its METADATA, if the plan goes by that."""

    def __enter__(self) -> Fetcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()

    def text(self, url: str, accept: str = "*/*") -> tuple[str, str, str] | None:
        """A page's own URL, where it was redirected to, its media type and its text; None where
        the server says that there is none."""
        import requests

        answer = self._web.answer(url, {"Accept": accept})
        try:
            if answer.status_code in MISSING:
                return None
            media_type = answer.headers.get("Content-Type", "")
            return answer.url, media_type, page_text(url, answer)
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
            answer = self._web.ask("HEAD", url, {"Accept-Encoding": "identity"})
        except requests.RequestException:
            return None
        answer.close()
        return content_length(answer.headers) if answer.ok else None

    def metadata_inside(self, url: str) -> str | None:
        """The METADATA of a wheel by a few requests for parts of it; None where that fails."""
        import requests

        if url.startswith("file:"):
            return None

        def part(span: str) -> tuple[bytes, int] | None:
            headers = {"Range": f"bytes={span}", "Accept-Encoding": "identity"}
            with self._web.ask("GET", url, headers) as answer:
                if answer.status_code != PARTIAL or is_encoded(answer.headers):
                    return None
                total = answer.headers.get("Content-Range", "").rpartition("/")[2]
                if not re.fullmatch(r"[0-9]{1,15}", total):
                    return None
                return b"".join(pieces(url, answer, web.PAGE)), int(total)

        try:
            file = RangedFile.opened(part)
            return metadata_in(file) if file else None
        except (requests.RequestException, Blocked, *UNREADABLE) as problem:
            self._log(f"METADATA of {without_credentials(url)}: {type(problem).__name__}")
            return None

    def wheel(self, wheel: Wheel, cache: Path, progress: Progress = lambda _w, _n: None) -> Path:
        """The wheel in the cache, fetched unless it is there already, and checked."""
        with self._lock_of(wheel.filename):
            path = self._wheel(wheel, cache, progress)
        planned_by = self.planned_by.get(wheel.filename)
        try:
            differs = difference(planned_by, metadata_in(path)) if planned_by else None
        except UNREADABLE:  # which is told where it is unpacked
            differs = None
        if differs:
            raise Unreached(
                f"{without_credentials(wheel.url)}: the METADATA in the wheel is not what its page "
                f"gave: {differs}",
                hint="nothing was changed; tell who runs the index; run this again to go by what "
                "is in the wheel, or name a mirror: `--index-root URL`",
            )
        return path

    def _lock_of(self, filename: str) -> Lock:
        with self._guard:
            return self._locks.setdefault(filename, Lock())

    def _wheel(self, wheel: Wheel, cache: Path, progress: Progress) -> Path:
        if wheel.sha256 and not SHA256.fullmatch(wheel.sha256):
            raise blocked(wheel.url, f"its index names no proper sha256: {wheel.sha256[:20]!r}")
        path = cache / wheel.filename
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

        failures, until = 0, time.monotonic() + web.FILE.total_seconds
        most = size_of(part)
        while True:
            try:
                self._more(wheel, part, progress)
            except requests.RequestException as problem:
                got_on = size_of(part) >= most + CHUNK and time.monotonic() < until
                failures = 1 if got_on else failures + 1
                most = max(most, size_of(part))
                if failures > len(web.PAUSES) or (failures > 1 and is_timeout(problem)):
                    raise blocked(wheel.url, cause_of(problem)) from problem
                self._log(f"{wheel.filename}: {problem}; going on at byte {size_of(part)}")
                if self.stopped.wait(web.PAUSES[failures - 1]):
                    raise blocked(wheel.url, "was stopped") from problem
            else:
                return

    def _more(self, wheel: Wheel, part: Path, progress: Progress) -> None:
        import requests

        mark = kept_mark(part)
        had = size_of(part) if mark or wheel.sha256 else 0
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={had}-"} if had else {})
        if had and mark:
            headers["If-Range"] = mark
        answer = self._web.answer(wheel.url, headers, also=(NOTHING_LEFT,) if had else ())
        try:
            if answer.status_code in MISSING:
                raise blocked(wheel.url, f"answers {answer.status_code} although its page names it")
            if answer.status_code == NOTHING_LEFT:
                return
            resumed = answer.status_code == PARTIAL
            if resumed and not goes_on(answer.headers, had, mark):
                part.unlink(missing_ok=True)
                progress(wheel, -had)
                raise requests.ConnectionError("another part came than was asked for")
            if not resumed:
                progress(wheel, -had)
                keep_mark(part, answer.headers)
            refuse_packing(wheel.url, answer.headers)
            self._write(answer, part, "ab" if resumed else "wb", wheel, progress)
        except requests.RequestException:
            if is_encoded(answer.headers):  # where it broke cannot be counted
                progress(wheel, -size_of(part))
                part.unlink(missing_ok=True)
            raise
        finally:
            answer.close()
        length = None if is_encoded(answer.headers) else content_length(answer.headers)
        if length is not None and size_of(part) < length + (had if resumed else 0):
            raise requests.ConnectionError(f"the connection broke at byte {size_of(part)}")

    def _write(
        self, answer: requests.Response, part: Path, mode: str, wheel: Wheel, progress: Progress
    ) -> None:
        import requests

        try:
            with open(part, mode, opener=no_link) as file:
                for chunk in pieces(wheel.url, answer, web.FILE):
                    file.write(chunk)
                    progress(wheel, len(chunk))
                    if self.stopped.is_set():
                        raise blocked(wheel.url, "was stopped")
        except requests.RequestException:  # an OSError too, but not of the disk
            raise
        except OSError as problem:
            hint = "nothing was changed; make room there, or set XDG_CACHE_HOME to a larger disk"
            raise refused(problem, f"{part} cannot be written", hint) from problem
