#!/usr/bin/env python3
"""Check the built documentation: links lead somewhere, and nothing is fetched from elsewhere.

mkdocs build --strict --site-dir DIR && python scripts/check_site.py DIR

mkdocs checks the links of Markdown; here the pages are read as a browser gets them.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""What a browser fetches by itself."""
FROM_STYLE = re.compile(r"(?:@import\s*|url\()\s*['\"]?((?:https?:)?//[^'\")\s]+)")


class Page(HTMLParser):
    """The anchors of a page, the addresses it links to, and those that it makes a browser fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if (address := given.get(FETCHED.get(tag, ""))) and given.get("rel") != "canonical":
            self.fetched.append(address)


def faults(folder: Path) -> Iterator[str]:
    """What is wrong in a built site, a line each."""
    files = sorted(folder.rglob("*.html"))
    if not files:
        yield f"{folder}: no page"
    pages = {file.resolve(): Page(file.read_text(encoding="utf-8")) for file in files}
    for file, page in pages.items():
        name = file.relative_to(folder.resolve())
        yield from (f"{name}: fetches {a}" for a in page.fetched if urlsplit(a).netloc)
        lost = [link for link in page.links if not leads(file, link, pages, folder.resolve())]
        yield from (f"{name}: {link} leads nowhere" for link in lost)
    for style in sorted(folder.rglob("*.css")):
        found = FROM_STYLE.findall(style.read_text(encoding="utf-8"))
        yield from (f"{style.relative_to(folder)}: fetches {address}" for address in found)


def leads(file: Path, link: str, pages: dict[Path, Page], root: Path) -> bool:
    """Whether a link leads to a file of the site, and to a place in it; others are not asked."""
    address = urlsplit(link)
    if address.scheme or address.netloc:
        return True
    start = root if address.path.startswith("/") else file.parent
    target = (start / unquote(address.path).lstrip("/")).resolve() if address.path else file
    target = target / "index.html" if target.is_dir() else target
    place = unquote(address.fragment)
    if target not in pages:
        return target.is_file()
    return not place or place in pages[target].anchors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("site", type=Path, metavar="DIR", help="the built site")
    found = list(faults(parser.parse_args().site))
    print("\n".join(found) or "the site's links lead somewhere, and it fetches only its own files")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
