"""Asks servers, within limits: nothing that one sends, or does not send, keeps us longer.

Every answer begins within `ANSWER_SECONDS`, names and redirects included, and every body comes at
a lowest rate and ends within a total limit. A server that drips is given up as one that is silent.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from http.client import HTTPException
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies

from gpusetup.errors import Unreached
from gpusetup.install.credentials import without_credentials
from gpusetup.install.fetching import limits
from gpusetup.install.fetching.causes import (
    PASSING,
    cause_of,
    may_pass,
    retry_after,
    status_words,
    too_slow,
)
from gpusetup.install.fetching.wheel_cache import blocked
from gpusetup.install.fetching.wheels import size_text
from gpusetup.install.settings.pip_config import pip_settings
from gpusetup.model.frozen import Frozen

if TYPE_CHECKING:
    import requests

T = TypeVar("T")

UNFORESEEN = (OSError, ValueError, LookupError, HTTPException)
"""What the libraries below `requests` let through for an answer that nobody should give."""

ANSWER_SECONDS = 12.0
"""How long it may take until a body begins: the name, the connection, redirects, headers."""
PAUSES = (0.5, 2.0)
"""Between the tries of what may be a passing fault."""
CHUNK = 1 << 16
"""Bytes; what has come of a chunk is lost where the connection breaks."""
MISSING = (403, 404, 410)
"""What an index answers that has no such thing."""
FINE = (200, 203, 206)
NOTHING_LEFT = 416
LOGIN = (401, 407)
"""What an index or a proxy answers that wants to know who asks."""
ENCODINGS = ("", "identity", "gzip", "x-gzip", "deflate")
"""How a body may be packed: what every Python can unpack."""
CHARSETS = ("utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1", "latin-1", "windows-1252")


class Pace(Frozen):
    """How fast a body has to come."""

    window_seconds: float
    least_bytes: int
    """In each such window."""
    total_seconds: float
    most_bytes: int | None = None


PAGE = Pace(window_seconds=8.0, least_bytes=CHUNK, total_seconds=30.0, most_bytes=64 << 20)
FILE = Pace(window_seconds=30.0, least_bytes=CHUNK, total_seconds=6 * 3600.0)
"""A wheel of 3 GB comes within 6 hours at 150 kB a second."""


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


class Web:
    """One session; proxies and netrc come from the environment, certificates from `trust`."""

    def __init__(
        self,
        log: Callable[[str], None] = lambda _: None,
        logins: Mapping[str, tuple[str, str]] | None = None,
    ) -> None:
        self._log = log
        self._logins = logins or {}
        self._guard = Lock()
        self._made: requests.Session | None = None
        self._pip_proxy: str | None = None

    def _session(self) -> requests.Session:
        """Made when it is needed: certificates are read then."""
        import requests

        from gpusetup.install.settings.trust import trusting

        with self._guard:
            if self._made is None:
                session = trusting(requests.Session(), self._log)
                session.headers["User-Agent"] = "gpusetup"
                session.headers["Accept-Encoding"] = "gzip, deflate"
                session.hooks["response"].append(_without_body)
                self._pip_proxy = pip_settings(os.environ, Path.home()).get("proxy")
                self._made = session
        return self._made

    def ask(self, method: str, url: str, headers: Mapping[str, str]) -> requests.Response:
        """One request, as far as its headers. Raises RequestException."""
        import requests

        session = self._session()
        call = partial(
            session.request,
            method,
            url,
            headers=dict(headers),
            stream=True,
            timeout=limits.LIMITS,
            allow_redirects=True,
            auth=self._login(url),
            verify=session.verify,
            proxies=self._proxies(url),
        )
        try:
            return within(ANSWER_SECONDS, call)
        except requests.RequestException:
            raise
        except UNFORESEEN as problem:
            raise requests.exceptions.InvalidURL(
                "a server leads to what is no address"
            ) from problem

    def _proxies(self, url: str) -> dict[str, str]:
        """pip's `proxy`, where no variable names one and `NO_PROXY` does not leave the host out."""
        from requests.utils import should_bypass_proxies

        if not self._pip_proxy or should_bypass_proxies(url, no_proxy=None):
            return {}
        return {"http": self._pip_proxy, "https": self._pip_proxy, **getproxies()}

    def _login(self, url: str) -> tuple[str, str] | None:
        """What the user's settings say for a host; None leaves it to the URL and netrc."""
        parts = urlsplit(url)
        return None if "@" in parts.netloc else self._logins.get(parts.netloc)

    def answer(
        self, url: str, headers: Mapping[str, str], also: tuple[int, ...] = ()
    ) -> requests.Response:
        """An answer that is right, says "no such thing", or has a status of `also`; `Blocked` for
        everything else."""
        import requests

        for pause in (*PAUSES, None):
            try:
                answer = self.ask("GET", url, headers)
            except requests.RequestException as problem:
                self._log(f"GET {without_credentials(url)}: {type(problem).__name__}")
                if pause is None or not may_pass(problem):
                    raise blocked(url, cause_of(problem)) from problem
            else:
                self._log(f"GET {without_credentials(url)}: {answer.status_code}")
                if answer.status_code in (*FINE, *MISSING, *also):
                    return answer
                wait = self._to_wait(url, answer, pause is None)
                pause = max(pause or 0.0, wait)
            time.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _to_wait(self, url: str, answer: requests.Response, is_last: bool) -> float:
        """How many seconds a server wants to be left alone; `Blocked` where that is no use."""
        answer.close()
        if answer.status_code in LOGIN:
            raise NeedsLogin(*login_needed(url, answer.status_code))
        wait = retry_after(answer.headers) or 0.0
        if is_last or answer.status_code not in PASSING or wait > max(PAUSES):
            raise blocked(url, status_words(answer.status_code, answer.reason, answer.headers))
        return wait


def page_text(url: str, answer: requests.Response) -> str:
    """A page's text, within limits of time and size: a trickle or a flood is no index page."""
    refuse_packing(url, answer.headers)
    found = b"".join(pieces(url, answer, PAGE))
    named = (answer.encoding or "").lower()
    of_text = "charset" in answer.headers.get("Content-Type", "").lower()
    return found.decode(named if of_text and named in CHARSETS else "utf-8", "replace")


def refuse_packing(url: str, headers: Mapping[str, str]) -> None:
    """`Blocked` where a body is packed in a way that was not asked for, or more than once."""
    packed = headers.get("Content-Encoding", "").strip().lower()
    if packed not in ENCODINGS:
        raise blocked(url, f"comes packed as {packed[:40]!r}, which was not asked for")


def pieces(url: str, answer: requests.Response, pace: Pace) -> Iterator[bytes]:
    """A body as it comes; `Blocked` where it is too slow or too long."""
    import requests

    came, watch = 0, _Watch(answer, pace)
    with watch:
        try:
            for chunk in answer.iter_content(CHUNK):
                came += len(chunk)
                watch.note(came)
                if pace.most_bytes is not None and came > pace.most_bytes:
                    raise blocked(url, f"is longer than {size_text(pace.most_bytes)}")
                yield chunk
        except (requests.RequestException, AttributeError, *UNFORESEEN) as problem:
            if not watch.problem and isinstance(problem, requests.RequestException):
                raise
            if not watch.problem:
                raise requests.exceptions.ChunkedEncodingError("connection broke") from problem
    if watch.problem:
        raise blocked(url, watch.problem)


class _Watch:
    """Ends a body from outside where it comes too slowly: whoever reads it may wait for a byte."""

    def __init__(self, answer: requests.Response, pace: Pace) -> None:
        self.problem = ""
        self._answer, self._pace = answer, pace
        self._began = time.monotonic()
        self._mark = (self._began, 0)
        self._ended = Event()

    def __enter__(self) -> None:
        Thread(target=self._watch, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def note(self, came: int) -> None:
        """So much has come in all."""
        if came - self._mark[1] >= self._pace.least_bytes:
            self._mark = (time.monotonic(), came)

    def _watch(self) -> None:
        pace = self._pace
        while not self._ended.wait(min(0.5, pace.window_seconds / 4)):
            now = time.monotonic()
            if now - self._mark[0] > pace.window_seconds:
                self._stop(too_slow(pace.least_bytes, pace.window_seconds))
            elif now - self._began > pace.total_seconds:
                self._stop(f"does not end within {pace.total_seconds:g} s")

    def _stop(self, problem: str) -> None:
        self.problem = problem
        self._ended.set()
        with contextlib.suppress(Exception):  # it may end by itself at this very moment
            self._answer.raw.shutdown()


def within(seconds: float, call: Callable[[], T]) -> T:
    """What a call gives or raises; `requests.Timeout` where it takes longer. It goes on by itself
    then, and nobody listens."""
    import requests

    told: SimpleQueue[tuple[T | None, BaseException | None]] = SimpleQueue()
    given_up = Event()

    def work() -> None:
        try:
            found = call()
        except BaseException as problem:  # raised again where it is waited for
            told.put((None, problem))
            return
        told.put((found, None))
        if given_up.is_set() and isinstance(found, requests.Response):
            found.close()

    Thread(target=work, daemon=True).start()
    try:
        found, problem = told.get(timeout=seconds)
    except Empty:
        given_up.set()
        late = requests.Timeout(f"gives no answer within {seconds:g} s")
        raise late from None
    if problem is not None:
        raise problem
    return found  # type: ignore[return-value]


def _without_body(answer: requests.Response, *_: Any, **__: Any) -> requests.Response:
    """A redirect's body is not read: it may be of any length."""
    if answer.is_redirect:
        answer.raw.close()
    return answer
