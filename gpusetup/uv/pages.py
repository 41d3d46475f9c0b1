"""Sends gpusetup's own requests to an index, following redirects only to allowed hosts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from gpusetup.errors import Unreached
from gpusetup.uv.certificates import certificates
from gpusetup.uv.hosts import AllowedHosts, host_of

if TYPE_CHECKING:
    from requests import Response

MOST_REDIRECTS = 5
"""The maximum number of redirects. An index needs one or two: for a slash at the end, and to the
host of a file."""
Login = tuple[str, str]


@contextmanager
def answered(
    url: str,
    allowed: AllowedHosts,
    *,
    login: Login | None = None,
    headers: Mapping[str, str] = {},
    timeouts: tuple[float, float],
    method: str = "GET",
) -> Iterator[Response]:
    """A context manager that sends a request and yields the response, whose body has not been read
    yet.

    Raises `Unreached` if a redirect leads to a host that the user was not shown, and
    RequestException if there is no response.
    """
    import requests

    first_host = host_of(url)
    options: dict[str, Any] = {
        "headers": headers,
        "timeout": timeouts,
        "stream": True,
        "verify": certificates(),
        # Each redirect is checked here, before its host is contacted.
        "allow_redirects": False,
    }
    for _ in range(MOST_REDIRECTS):
        allowed.require(url)
        # Only the index gets the password, not the host where it keeps its files.
        login_here = login if host_of(url) == first_host else None
        answer = requests.request(method, url, auth=login_here, **options)
        target = answer.headers.get("Location") if answer.is_redirect else None
        if target is None:
            with answer:
                yield answer
            return
        answer.close()
        url = urljoin(url, target)
    raise Unreached(f"{host_of(url)} redirects in a circle", hint="nothing was changed")
