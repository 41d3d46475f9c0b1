"""Sends gpusetup's own requests to an index: for a size, and for a page of torch's index."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from gpusetup.errors import Unreached
from gpusetup.model.logins import split_login, without_logins

if TYPE_CHECKING:
    from requests import Response
    from requests import Session as Session

Login = tuple[str, str]
"""A user and a password."""
TIMEOUTS = (5.0, 10.0)
"""Timeouts in seconds, for connecting and between two parts of a response."""
MOST_REDIRECTS = 5
"""The maximum number of redirects. An index needs one or two: for a slash at the end, and to the
host of a file."""
MOST_BYTES = 32 << 20
"""The maximum size of a page. torch's page with all wheels, for every backend since 2016, has a few
megabytes."""
WHOLE_SECONDS = 30.0
"""The time limit in seconds for a whole page, in case a server sends it very slowly."""


@contextmanager
def answered(
    url: str,
    *,
    login: Login | None = None,
    method: str = "GET",
    session: Session | None = None,
) -> Iterator[Response]:
    """A context manager that sends a request and yields the response, whose body has not been read
    yet. The URL may contain a login, which counts more than `login`. A `session` keeps its
    connections for further requests. Proxies and .netrc count as for every program that uses
    `requests`.

    Raises `Unreached` if there is no response, or if its body breaks off inside the block.
    """
    import requests
    from urllib3.exceptions import HTTPError

    url, own_login = split_login(url)
    shown = without_logins(url)
    # uv reads this variable too. `requests` itself reads REQUESTS_CA_BUNDLE.
    certificates = os.environ.get("SSL_CERT_FILE") or True
    try:
        first_host = urlsplit(url).netloc
        for _ in range(MOST_REDIRECTS):
            # Only the index gets the password, not the host where it keeps its files.
            is_first = urlsplit(url).netloc == first_host
            with (session or requests).request(
                method,
                url,
                auth=own_login or login if is_first else None,
                timeout=TIMEOUTS,
                stream=method != "HEAD",
                verify=certificates,
                allow_redirects=False,
            ) as answer:
                target = answer.headers.get("Location") if answer.is_redirect else None
                if target is None:
                    yield answer
                    return
            url = urljoin(url, target)
        raise Unreached(f"{shown} redirects in a circle", hint="nothing was changed")
    except (OSError, HTTPError, ValueError) as problem:
        reason = why_unreached(problem, urlsplit(shown).hostname or shown)
        raise Unreached(f"{shown} cannot be reached: {reason}") from problem


def new_session() -> Session:
    """A session for several requests: to make a connection anew takes longer than to ask."""
    import requests

    return requests.Session()


def text_of(answer: Response) -> str:
    """The body of a response as text. Raises Unreached if it is too large or too slow."""
    deadline, shown = time.monotonic() + WHOLE_SECONDS, without_logins(answer.url)
    body = bytearray()
    for part in answer.iter_content(1 << 16):
        body += part
        if len(body) > MOST_BYTES:
            raise Unreached(f"{shown} is larger than {MOST_BYTES >> 20} MiB: it was not read")
        if time.monotonic() > deadline:
            raise Unreached(f"{shown} was not read within {WHOLE_SECONDS:g} s")
    return body.decode("utf-8", errors="replace")


def why_unreached(problem: Exception, host: str) -> str:
    """A short reason why nothing could be read from a host."""
    import requests

    text = without_logins(str(problem))
    if isinstance(problem, requests.Timeout):
        return f"{host} gave no answer within {TIMEOUTS[1]:g} s"
    if "resolve" in text or "getaddrinfo" in text:
        return f"could not resolve host {host}"
    if isinstance(problem, requests.exceptions.SSLError):
        return f"the certificate of {host} is not trusted here"
    if isinstance(problem, requests.exceptions.ProxyError):
        return "the proxy did not let it through"
    if "refused" in text:
        return f"{host} refused the connection"
    return (text.partition("(Caused by")[2].strip(" )") or text)[:200]
