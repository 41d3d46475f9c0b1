"""Sends gpusetup's own requests to an index: for a size, and for a page of torch's index."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpusetup.errors import Unreached
from gpusetup.model.logins import split_login, without_logins

if TYPE_CHECKING:
    from requests import Response
    from requests import Session as Session

Login = tuple[str, str]
"""A user and a password."""
TIMEOUTS = (5.0, 10.0)
"""Timeouts in seconds, for connecting and between two parts of a response."""
MOST_LETTERS = 200
"""How much of the reason is shown why a host was not reached; it may quote a server."""


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
        # After a redirect to another host, `requests` no longer sends the password.
        with (session or requests).request(
            method,
            url,
            auth=own_login or login,
            timeout=TIMEOUTS,
            stream=method != "HEAD",
            verify=certificates,
            allow_redirects=True,
        ) as answer:
            yield answer
    except (OSError, HTTPError, ValueError) as problem:
        reason = without_logins(str(problem))[:MOST_LETTERS]
        raise Unreached(f"{shown} cannot be reached: {reason}") from problem


def new_session() -> Session:
    """A session for several requests: to make a connection anew takes longer than to ask."""
    import requests

    return requests.Session()
