"""One project's page of an index, asked for and read as HTML (PEP 503), which every index has.

A page is written by strangers: it is bounded in size and in time, and a link that cannot be a
wheel's is passed over, whatever it holds.
"""

from __future__ import annotations

import html
import os
import re
import time
from urllib.parse import urldefrag, urljoin

from gpusetup.errors import Unreached
from gpusetup.install.credentials import without_credentials, without_logins
from gpusetup.install.fetching.wheels import TORCH_INDEX, Wheel, file_name, parsed_name
from gpusetup.install.settings.environment import certificates

MISSING = (403, 404, 410)
"""What an index answers that has no such thing."""
TIMEOUTS = (5.0, 6.0)
"""Seconds for the connection, and for each part of the answer."""
PAGE_SECONDS = 30.0
PAGE_BYTES = 64 << 20
LINK = re.compile(r"<a\s([^<>]{1,16384})>", re.IGNORECASE)
HREF = re.compile(r"""\bhref\s*=\s*("[^"]*"|'[^']*'|[^\s"'>]+)""", re.IGNORECASE)


def ask_page(url: str) -> tuple[Wheel, ...]:
    """The wheels that a page lists and has not yanked; `Unreached` if the index could not be
    asked."""
    import requests

    shown = without_credentials(url)
    until, body = time.monotonic() + PAGE_SECONDS, bytearray()
    ask = {"Accept": "application/vnd.pypi.simple.v1+html, text/html;q=0.9"}
    verify = certificates(os.environ)
    try:
        with requests.get(url, headers=ask, timeout=TIMEOUTS, stream=True, verify=verify) as answer:
            if answer.status_code in MISSING:
                return ()
            answer.raise_for_status()
            for part in answer.iter_content(1 << 16):
                body += part
                if len(body) > PAGE_BYTES or time.monotonic() > until:
                    raise _unreached(f"{shown}: no index page is as long as this one")
    except requests.RequestException as problem:
        raise _unreached(f"{shown}: {without_logins(str(problem))}") from problem
    text = body.decode("utf-8", "replace")
    links = LINK.findall(text)
    named = (HREF.search(inside) for inside in links if "data-yanked" not in inside)
    urls = (urljoin(answer.url, html.unescape(one[1].strip("\"'"))) for one in named if one)
    return tuple(wheel for url in urls if (wheel := _wheel(*urldefrag(url))))


def _wheel(url: str, mark: str) -> Wheel | None:
    named = parsed_name(file_name(url))
    if named is None or not url.startswith(("http://", "https://")):
        return None
    digest = re.search(r"[0-9a-fA-F]{64}", mark)
    return Wheel(
        name=named[0],
        version=named[1],
        filename=file_name(url),
        url=url,
        sha256=digest[0] if digest else None,
        source=TORCH_INDEX,
    )


def _unreached(said: str) -> Unreached:
    return Unreached(
        said,
        hint="nothing was changed; try again later, check the network (proxy, certificates), or "
        "name a mirror: `--index URL`",
    )
