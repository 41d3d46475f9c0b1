"""The path that a `file:` address names, as the system writes it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote, unquote_to_bytes, urlsplit


def path_of(url: str, *, windows: bool) -> str:
    r"""The path in `file:///...`, the reverse of `Path.as_uri`.

    >>> path_of("file:///a%20b/x.whl", windows=False), path_of("file:///a:/x", windows=False)
    ('/a b/x.whl', '/a:/x')
    >>> print(path_of("file:///Z:/a%20b/x.whl", windows=True))
    Z:\a b\x.whl
    >>> print(path_of("file://server/share/x.whl", windows=True))
    \\server\share\x.whl
    """
    parts = urlsplit(url)
    if not windows:
        return os.fsdecode(unquote_to_bytes(parts.path))
    host = f"//{parts.netloc}" if parts.netloc not in ("", "localhost") else ""
    path = re.sub(r"^/+(?=[A-Za-z]:)", "", host + unquote(parts.path))
    return path.replace("/", "\\")


def local_path(url: str) -> Path:
    """The path that an address names on this system."""
    return Path(path_of(url, windows=os.name == "nt"))
