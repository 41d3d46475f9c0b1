"""One project's page of an index: the JSON form (PEP 691) and the HTML form (PEP 503)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urldefrag, urljoin

from gpusetup.install.wheels import TORCH_INDEX, Wheel, file_name, parsed_name

ACCEPT = (
    "application/vnd.pypi.simple.v1+json, "
    "application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
)
"""JSON first: it tells sizes."""


def parse_page(url: str, media_type: str, text: str) -> tuple[Wheel, ...]:
    """The wheels that a page lists, relative links resolved; raises ValueError where it is no page.

    >>> page = '<html><a href="x-1.0-py3-none-any.whl#sha256=ab">x</a></html>'
    >>> [(w.name, w.version, w.sha256) for w in parse_page("http://i/whl/x/", "text/html", page)]
    [('x', '1.0', 'ab')]
    """
    rows = _json_rows(text) if "json" in media_type else _html_rows(text)
    found = (_wheel(url, row) for row in rows)
    return tuple(wheel for wheel in found if wheel is not None)


def _wheel(page_url: str, row: Mapping[str, Any]) -> Wheel | None:
    url, _, mark = urljoin(page_url, row["url"]).partition("#")
    name = row.get("filename") or file_name(url)
    parsed = parsed_name(name)
    if parsed is None or row.get("yanked"):
        return None
    sha256 = row.get("hashes", {}).get("sha256") or dict([mark.partition("=")[::2]]).get("sha256")
    return Wheel(
        name=parsed[0],
        version=parsed[1],
        filename=name,
        url=url,
        sha256=sha256,
        size_bytes=row.get("size"),
        source=TORCH_INDEX,
        metadata_url=f"{urldefrag(url).url}.metadata" if row.get("core-metadata") else None,
    )


def _json_rows(text: str) -> list[dict[str, Any]]:
    try:
        page = json.loads(text)
        return [row for row in page["files"] if row["url"]]
    except (KeyError, TypeError) as problem:
        raise ValueError("the page lists no files") from problem


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.rows: list[dict[str, Any]] = []
        self.is_page = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.is_page = self.is_page or tag in ("html", "body", "a")
        given = dict(attrs)
        if tag == "a" and given.get("href"):
            metadata = "data-dist-info-metadata" in given or "data-core-metadata" in given
            yanked = "data-yanked" in given
            self.rows.append({"url": given["href"], "core-metadata": metadata, "yanked": yanked})


def _html_rows(text: str) -> list[dict[str, Any]]:
    links = _Links()
    links.feed(text)
    links.close()
    if text.strip() and not links.is_page:
        raise ValueError("the page is no HTML")
    foreign = links.rows and not any(
        ".whl" in row["url"] or ".tar" in row["url"] for row in links.rows
    )
    if foreign or (not links.rows and len(text) > EMPTY_PAGE):
        raise ValueError("the page is a web page, but lists no packages")
    return links.rows


EMPTY_PAGE = 2000
"""An index page without links is short; a longer one is a log-in or error page, in characters."""
