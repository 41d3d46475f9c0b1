"""One project's page of an index, asked for and read: JSON (PEP 691) or HTML (PEP 503).

A page is written by strangers: it is bounded in size and in time, and a row that cannot be a
wheel's is passed over, whatever it holds.
"""

from __future__ import annotations

import html
import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from itertools import product
from typing import TYPE_CHECKING, Any
from urllib.parse import urldefrag, urljoin

from gpusetup.errors import Unreached
from gpusetup.install.credentials import without_credentials, without_logins
from gpusetup.install.fetching.wheels import TORCH_INDEX, Wheel, file_name, parsed_name
from gpusetup.install.settings.environment import certificates

if TYPE_CHECKING:
    import requests

ACCEPT = (
    "application/vnd.pypi.simple.v1+json, "
    "application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
)
"""JSON first: it tells sizes."""
MISSING = (403, 404, 410)
"""What an index answers that has no such thing."""
TIMEOUTS = (5.0, 6.0)
"""Seconds for the connection, and for each part of the answer."""
PAGE_SECONDS = 30.0
PAGE_BYTES = 64 << 20
EMPTY_PAGE = 2000
"""An index page without links is short; a longer one is a log-in or error page, in characters."""
LINK = re.compile(r"<a\s([^<>]{1,16384})>", re.IGNORECASE)
ATTRIBUTE = re.compile(r"""([\w-]+)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s"'>]+))?""")
SHA256 = re.compile(r"[0-9a-fA-F]{64}")


def ask_page(url: str) -> tuple[Wheel, ...] | str:
    """The wheels that a page lists, or why there are none; `Unreached` where the index could not
    be asked or answered no index page."""
    found = tuple(wheel for row in read_page(url) if (wheel := _wheel(row)) is not None)
    return found or f"{without_credentials(url)} lists no wheels"


def read_page(url: str) -> list[dict[str, Any]]:
    """What a page says of each of its files, with whole addresses; nothing where there is no such
    page. `Unreached` as above."""
    import requests

    shown = without_credentials(url)
    try:
        answer = requests.get(
            url,
            headers={"Accept": ACCEPT},
            timeout=TIMEOUTS,
            stream=True,
            verify=certificates(os.environ),
        )
        with answer:
            if answer.status_code in MISSING:
                return []
            answer.raise_for_status()
            text = _body(answer)
        kind = answer.headers.get("Content-Type", "").lower()
        rows = _json_rows(text) if "json" in kind else list(_html_rows(text))
        return [{**row, "url": urljoin(answer.url, row["url"])} for row in rows]
    except requests.RequestException as problem:
        raise _unreached(f"{shown}: {without_logins(_innermost(problem))}") from problem
    except ValueError as problem:
        raise _unreached(f"{shown}: this is no index page: {problem}") from problem


def require_pages(names: Iterable[str], indexes: Iterable[str]) -> None:
    """`Unreached` where an index answers for a project what is no index page, such as a log-in page
    of a proxy: then uv's "no" is none."""
    for index, name in product(indexes, names):
        if index.startswith("http"):
            try:
                read_page(f"{index.rstrip('/')}/{name}/")
            except Unreached as problem:
                if not isinstance(problem.__cause__, OSError):  # it answered
                    raise


def _unreached(said: str) -> Unreached:
    return Unreached(
        said,
        hint="nothing was changed; try again later, check the network (proxy, certificates), or "
        "name a mirror: `--index URL`",
    )


def _innermost(problem: BaseException) -> str:
    """The first cause of all."""
    inner = getattr(problem, "reason", None) or next(iter(problem.args[::-1]), None)
    if isinstance(inner, BaseException) and inner is not problem:
        return _innermost(inner)
    return " ".join(str(problem).split())[:300] or type(problem).__name__


def _body(answer: requests.Response) -> str:
    """The text of an answer; ValueError where it is too long, in bytes or in time."""
    until, body = time.monotonic() + PAGE_SECONDS, bytearray()
    for part in answer.iter_content(1 << 16):
        body += part
        if len(body) > PAGE_BYTES or time.monotonic() > until:
            raise ValueError(f"it is longer than {PAGE_BYTES >> 20} MiB or {PAGE_SECONDS:g} s")
    return body.decode("utf-8", "replace")


def _json_rows(text: str) -> list[dict[str, Any]]:
    try:
        page = json.loads(text)
    except RecursionError as problem:
        raise ValueError("it is nested too deeply") from problem
    files = page.get("files") if isinstance(page, dict) else None
    if not isinstance(files, list):
        raise ValueError("the page lists no files")
    return [row for row in files if isinstance(row, dict) and isinstance(row.get("url"), str)]


def _html_rows(text: str) -> Iterator[dict[str, Any]]:
    links = LINK.findall(text)
    if not links and (len(text) > EMPTY_PAGE or (text.strip() and "<" not in text)):
        raise ValueError("the page lists no packages")
    for inside in links:
        given = {name.lower(): value.strip("\"'") for name, value in ATTRIBUTE.findall(inside)}
        if link := html.unescape(given.get("href", "")):
            yield {**given, "url": link, "yanked": "data-yanked" in given}


def _wheel(row: dict[str, Any]) -> Wheel | None:
    url, mark = urldefrag(row["url"])
    named = row.get("filename")
    name = named if isinstance(named, str) and named else file_name(url)
    parsed = parsed_name(name)
    if parsed is None or row.get("yanked") or not url.startswith(("http://", "https://")):
        return None
    hashes, size = row.get("hashes"), row.get("size")
    said = hashes.get("sha256") if isinstance(hashes, dict) else None
    found = SHA256.search(str(said or mark))
    return Wheel(
        name=parsed[0],
        version=parsed[1],
        filename=name,
        url=url,
        sha256=found[0] if found else None,
        size_bytes=size if isinstance(size, int) and size > 0 else None,
        source=TORCH_INDEX,
    )
