"""Sends gpusetup's own requests to an index: for a size, for a page of torch's index, and for the
wheels of `--download`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from gpusetup.errors import Unreached
from gpusetup.model.logins import without_logins

if TYPE_CHECKING:
    from requests import Response

MOST_REDIRECTS = 5
"""The maximum number of redirects. An index needs one or two: for a slash at the end, and to the
host of a file."""
SYSTEM_STORES = (
    *("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"),
    *("/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"),
)
"""The files in which Linux distributions keep their trusted certificates."""


@contextmanager
def answered(
    url: str,
    *,
    login: tuple[str, str] | None = None,
    timeouts: tuple[float, float],
    method: str = "GET",
) -> Iterator[Response]:
    """A context manager that sends a request and yields the response, whose body has not been read
    yet. Proxies and .netrc count as for every program that uses `requests`.

    Raises `Unreached` for a URL that nothing can be asked of, and RequestException if there is no
    response.
    """
    import requests

    host = _host(url)
    for _ in range(MOST_REDIRECTS):
        answer = requests.request(
            method,
            url,
            # Only the index gets the password, not the host where it keeps its files.
            auth=login if _host(url) == host else None,
            timeout=timeouts,
            stream=True,
            verify=certificates(),
            allow_redirects=False,
        )
        target = answer.headers.get("Location") if answer.is_redirect else None
        if target is None:
            with answer:
                yield answer
            return
        answer.close()
        try:
            url = urljoin(url, target)
        except ValueError:
            # A bracket that is not closed.
            break
    raise Unreached(
        f"{without_logins(url)} redirects in a circle, or to no URL", hint="nothing was changed"
    )


def _host(url: str) -> str:
    try:
        return urlsplit(url).netloc.rpartition("@")[2]
    except ValueError:
        return ""


def certificates() -> str | bool:
    """The certificate file for the `requests` library; True if it should use its own file."""
    for path in (os.environ.get("REQUESTS_CA_BUNDLE"), os.environ.get("SSL_CERT_FILE")):
        if path and Path(path).exists():
            return path
    return next((path for path in SYSTEM_STORES if Path(path).exists()), True)
