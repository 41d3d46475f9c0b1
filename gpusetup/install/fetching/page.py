"""One project's page of an index: the JSON form (PEP 691) and the HTML form (PEP 503).

A page is written by strangers: it is read in linear time, and a row that cannot be a wheel's is
passed over, whatever stands in it.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urldefrag, urljoin, urlsplit

from gpusetup.install.fetching.wheels import TORCH_INDEX, Wheel, file_name, parsed_name

ACCEPT = (
    "application/vnd.pypi.simple.v1+json, "
    "application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
)
"""JSON first: it tells sizes."""
LONGEST_LINK = 8192
LARGEST = 1 << 40
"""Bytes; what is said to be larger is no wheel's size."""
EMPTY_PAGE = 2000
"""An index page without links is short; a longer one is a log-in or error page, in characters."""


def parse_page(url: str, media_type: str, text: str) -> tuple[Wheel, ...]:
    """The wheels that a page lists, relative links resolved; raises ValueError where it is no page.

    >>> page = '<html><a href="x-1.0-py3-none-any.whl#sha256=ab">x</a></html>'
    >>> [(w.name, w.version, w.sha256) for w in parse_page("http://i/whl/x/", "text/html", page)]
    [('x', '1.0', 'ab')]
    """
    found = (_wheel(url, row) for row in rows_of(url, media_type, text))
    return tuple(wheel for wheel in found if wheel is not None)


def rows_of(url: str, media_type: str, text: str) -> list[dict[str, Any]]:
    """What a page says of each of its files, whatever they are; ValueError where it is no page."""
    return _json_rows(text) if "json" in media_type.lower() else _html_rows(url, text)


def file_row(page_url: str, row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Name, address and digest of a file, whatever it is; None where it leads to none, or is
    withdrawn."""
    named = row.get("filename")
    link = _link(page_url, row.get("url"))
    if link is None or row.get("yanked"):
        return None
    url, _, mark = link.partition("#")
    name = named if isinstance(named, str) and named else file_name(url)
    return {"filename": name, "url": url, "sha256": _sha256(row.get("hashes"), mark)}


def _wheel(page_url: str, row: Mapping[str, Any]) -> Wheel | None:
    file = file_row(page_url, row)
    parsed = parsed_name(file["filename"]) if file else None
    if file is None or parsed is None:
        return None
    metadata = row.get("core-metadata", row.get("data-dist-info-metadata"))
    return Wheel(
        name=parsed[0],
        version=parsed[1],
        **file,
        size_bytes=_size(row.get("size")),
        source=TORCH_INDEX,
        metadata_url=f"{urldefrag(file['url']).url}.metadata" if metadata else None,
    )


def _link(page_url: str, link: Any) -> str | None:
    """Where a link leads; None where it leads to no file of such an index."""
    if not isinstance(link, str) or not 0 < len(link) <= LONGEST_LINK:
        return None
    try:
        found = urljoin(page_url, link)
        there, here = urlsplit(found), urlsplit(page_url)
        there.port  # noqa: B018  raises for what is no number
    except ValueError:
        return None
    same = there.scheme == here.scheme
    return found if same or (there.scheme in ("http", "https") and here.scheme != "file") else None


def _sha256(hashes: Any, mark: str) -> str | None:
    """The digest that a row names; whether it is one is asked when the wheel is wanted."""
    said = hashes.get("sha256") if isinstance(hashes, dict) else None
    said = said or dict([mark.partition("=")[::2]]).get("sha256")
    return str(said)[:100] if said else None


def _size(size: Any) -> int | None:
    """A size that can be one.

    >>> _size(12), _size(True), _size(-1), _size("12"), _size(1e30)
    (12, None, None, None, None)
    """
    is_one = isinstance(size, int) and not isinstance(size, bool) and 0 < size < LARGEST
    return size if is_one else None


def _json_rows(text: str) -> list[dict[str, Any]]:
    try:
        page = json.loads(text)
    except RecursionError as problem:
        raise ValueError("it is nested too deeply") from problem
    files = page.get("files") if isinstance(page, dict) else None
    if not isinstance(files, list):
        raise ValueError("the page lists no files")
    rows = [row for row in files if isinstance(row, dict) and isinstance(row.get("url"), str)]
    if files and not rows:
        raise ValueError("the page lists no files, but something else")
    return rows


# --- the HTML form -------------------------------------------------------------------------------

TAG = re.compile(r"<(!--|/?[a-zA-Z][a-zA-Z0-9]*)")
INSIDE = re.compile(r"""(?:[^<>"']+|"[^"]*"|'[^']*'){0,400}""")
"""What stands in a tag. It always matches, and what it matched is not looked at again; a tag of
more pieces is none."""
ATTRIBUTE = re.compile(r"""([^\s"'<>/=]+)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s"'<>]+))?""")
PAGE_TAGS = ("html", "body", "a")
ASKING_TAGS = ("form", "input")
"""What a log-in page has, and an index page that lists nothing has not."""


def _html_rows(page_url: str, text: str) -> list[dict[str, Any]]:
    base, is_page, asks = page_url, False, False
    rows: list[dict[str, Any]] = []
    for tag, inside in _tags(text):
        is_page, asks = is_page or tag in PAGE_TAGS, asks or tag in ASKING_TAGS
        if tag == "base" and not rows:
            base = _link(page_url, _attributes(inside).get("href")) or page_url
        elif tag == "a":
            given = _attributes(inside)
            rows.append({**given, "url": _link(base, given.get("href")), **_flags(given)})
    rows = [row for row in rows if row["url"]]
    if text.strip() and not is_page:
        raise ValueError("the page is no HTML")
    foreign = rows and not any(".whl" in row["url"] or ".tar" in row["url"] for row in rows)
    if foreign or (not rows and (asks or len(text) > EMPTY_PAGE)):
        raise ValueError("the page is a web page, but lists no packages")
    return rows


def _flags(given: Mapping[str, str]) -> dict[str, Any]:
    metadata = "data-dist-info-metadata" in given or "data-core-metadata" in given
    return {"core-metadata": metadata, "yanked": "data-yanked" in given, "filename": None}


def _tags(text: str) -> Iterator[tuple[str, str]]:
    """Every start tag with what stands in it, each character looked at once or twice."""
    at = 0
    while found := TAG.search(text, at):
        if found[1] == "!--":
            end = text.find("-->", found.end())
            if end < 0:
                return
            at = end + 3
            continue
        inside = INSIDE.match(text, found.end())
        assert inside is not None, "it matches what is empty too"
        at = inside.end()
        if text[at : at + 1] == ">" and not found[1].startswith("/"):
            yield found[1].lower(), inside[0]


def _attributes(inside: str) -> dict[str, str]:
    """The attributes of a tag, the first of a name; entities resolved.

    >>> _attributes(' HREF="x&amp;y" data-yanked rel=nofollow')
    {'href': 'x&y', 'data-yanked': '', 'rel': 'nofollow'}
    """
    found: dict[str, str] = {}
    for name, value in ATTRIBUTE.findall(inside):
        bare = value[1:-1] if value[:1] in ("'", '"') else value
        if len(bare) <= LONGEST_LINK:
            found.setdefault(name.lower(), _unescaped(bare))
    return found


def _unescaped(text: str) -> str:
    try:
        return html.unescape(text)
    except (ValueError, OverflowError):  # a character by a number of thousands of digits
        return text
