"""What keeps a server from answering, in words: statuses, waits, what a connection failed of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from gpusetup.install.fetching import limits
from gpusetup.install.fetching.wheels import size_text

if TYPE_CHECKING:
    import requests

PASSING = (429, 500, 502, 503, 504)
"""What is worth another try."""
DAY_SECONDS = 86400
LONGEST = 160


def cause_of(problem: requests.RequestException) -> str:
    """One line for what `requests` raised."""
    import requests

    text = str(problem)
    if isinstance(problem, requests.exceptions.SSLError):
        return next(words for mark, words in TLS if mark in text) + unusable_settings()
    if text.startswith(NO_ANSWER):
        return text
    for kind, words in (
        (requests.exceptions.ProxyError, "the proxy does not let it through"),
        (requests.ConnectTimeout, f"cannot be reached within {limits.LIMITS[0]:g} s"),
        (requests.Timeout, f"says nothing for {limits.LIMITS[1]:g} s"),
        (requests.TooManyRedirects, "redirects in a loop"),
        (requests.exceptions.InvalidSchema, "leads to what is no web address"),
        (requests.exceptions.MissingSchema, "leads to what is no web address"),
        (requests.exceptions.InvalidURL, "leads to what is no web address"),
    ):
        if isinstance(problem, kind):
            return words
    return known_cause(text) or f"the connection failed ({innermost(problem)})"


NO_ANSWER = "gives no answer within"


def known_cause(text: str) -> str | None:
    """What a connection's own words mean.

    >>> known_cause("NewConnectionError('[Errno 111] Connection refused')")
    'the connection is refused'
    """
    return next((words for mark, words in SAID if mark in text), None)


def innermost(problem: BaseException) -> str:
    """The first cause of all, without the URL: what is asked for may be a secret.

    >>> innermost(ValueError(OSError(101, "Network is unreachable")))
    '[Errno 101] Network is unreachable'
    """
    inner = getattr(problem, "reason", None) or next(iter(problem.args[::-1]), None)
    if isinstance(inner, BaseException) and inner is not problem:
        return innermost(inner)
    text = re.sub(r"\w+://\S+", "...", " ".join(str(problem).split()))
    return (text.rpartition(">: ")[2] or type(problem).__name__)[:LONGEST]


def unusable_settings() -> str:
    """What settings name certificates that cannot be read, to be said where TLS fails."""
    from gpusetup.install.settings.trust import trust

    return "".join(f"; {problem}" for problem in trust().problems)


TLS = (
    ("not yet valid", "its TLS certificate is not valid yet: is this machine's clock right?"),
    ("has expired", "its TLS certificate has expired, unless this machine's clock is wrong"),
    ("ostname mismatch", "its TLS certificate is for another host"),
    ("IP address mismatch", "its TLS certificate is for another host"),
    ("certificate", "its TLS certificate is not trusted (REQUESTS_CA_BUNDLE names your own)"),
    ("", "no TLS connection can be made (is it http, or a proxy in between?)"),
)
"""What the text of a TLS error holds -> the cause in words; first match."""

SAID = (
    ("connect timeout", "cannot be reached in time"),
    ("Read timed out", "says nothing for too long"),
    ("Name or service not known", "the name of the host cannot be resolved"),
    ("No address associated", "the name of the host cannot be resolved"),
    ("name resolution", "the name of the host cannot be resolved"),
    ("getaddrinfo failed", "the name of the host cannot be resolved"),
    ("Connection refused", "the connection is refused"),
    ("Connection reset", "the connection is reset"),
    ("Network is unreachable", "the network is unreachable"),
    ("No route to host", "there is no route to the host"),
    ("Remote end closed", "hangs up without an answer"),
    ("BadStatusLine", "does not speak HTTP"),
    ("LineTooLong", "sends headers without end"),
    ("got more than", "sends headers without end"),
    ("connection broke", "the connection breaks again and again"),
    ("IncompleteRead", "the connection breaks again and again"),
    ("InvalidChunkLength", "the connection breaks again and again"),
    ("failed to decode", "what came is not packed as it says"),
)
"""What the text of a connection error holds -> the cause in words."""


def is_timeout(problem: requests.RequestException) -> bool:
    import requests

    return isinstance(problem, requests.Timeout) or "timed out" in str(problem)


def may_pass(problem: requests.RequestException) -> bool:
    import requests

    lasting = (requests.exceptions.SSLError, requests.TooManyRedirects, requests.Timeout)
    return isinstance(problem, requests.ConnectionError) and not isinstance(problem, lasting)


def too_slow(least_bytes: int, seconds: float) -> str:
    """A server that drips.

    >>> too_slow(65536, 30.0)
    'comes too slowly: less than 64.0 KiB in 30 s'
    """
    return f"comes too slowly: less than {size_text(least_bytes)} in {seconds:g} s"


def status_words(status: int, reason: str | None, headers: Mapping[str, str]) -> str:
    """What a server answered, and when it wants to be asked again.

    >>> status_words(503, "Service Unavailable", {"Retry-After": "120"})
    'answers 503 Service Unavailable, try again after 120 s'
    >>> status_words(429, "Too Many Requests", {"Retry-After": "9" * 99})
    'answers 429 Too Many Requests, try again after more than a day'
    """
    words = "".join(c for c in reason or "" if c.isprintable())[:60]
    wait = retry_after(headers)
    said = f"answers {status} {words}".strip()
    if not wait:
        return said
    after = "more than a day" if wait > DAY_SECONDS else f"{wait:.0f} s"
    return f"{said}, try again after {after}"


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """The seconds that `Retry-After` asks for, as a number or as a date; None for neither.

    >>> then = datetime(2026, 1, 1, tzinfo=timezone.utc)
    >>> retry_after({"Retry-After": "Thu, 01 Jan 2026 00:01:30 GMT"}, then)
    90.0
    >>> retry_after({"Retry-After": "7"}), retry_after({"Retry-After": "soon"})
    (7.0, None)
    """
    text = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"[0-9]+(\.[0-9]*)?", text):
        return float(text[:12])
    try:
        when = parsedate_to_datetime(text[:80])
        aware = when if when.tzinfo else when.replace(tzinfo=timezone.utc)
        return max(0.0, (aware - (now or datetime.now(timezone.utc))).total_seconds())
    except (TypeError, ValueError, IndexError, OverflowError):
        return None


def content_length(headers: Mapping[str, str]) -> int | None:
    """What a server says of a body's length; None where it says nothing that can be.

    >>> content_length({"Content-Length": "12"}), content_length({"Content-Length": "-1"})
    (12, None)
    """
    text = headers.get("Content-Length", "")
    return int(text) if re.fullmatch(r"[0-9]{1,15}", text) else None
