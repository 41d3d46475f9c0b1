#!/usr/bin/env python3
"""Check that the built documentation fetches nothing from elsewhere.

mkdocs build --strict --site-dir DIR && python scripts/check_site.py DIR

mkdocs itself checks the links and their anchors; here the pages are read as a browser gets them.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?((?:https?:)?//[^"'>\s]+)"""
    r"""|<link\b(?![^>]*\bcanonical\b)[^>]*\bhref=["']?((?:https?:)?//[^"'>\s]+)"""
    r"""|(?:@import\s*|url\()\s*['"]?((?:https?:)?//[^'")\s]+)"""
)
"""What a browser fetches by itself."""


def main(site: str) -> int:
    files = [file for file in sorted(Path(site).rglob("*")) if file.suffix in (".html", ".css")]
    found = [
        f"{file}: fetches {''.join(address)}"
        for file in files
        for address in FETCHED.findall(file.read_text(encoding="utf-8"))
    ]
    print("\n".join(found) or f"{len(files)} files fetch only what is theirs")
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
