"""The path that a `file:` address names, as the system writes it."""

from __future__ import annotations

import ntpath
import os
import re
from pathlib import Path
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from gpusetup.errors import UsageError


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


def whole_path(folder: str, *, windows: bool = os.name == "nt") -> str:
    r"""A folder's path as an address can name it: from the root, and without `..`.

    >>> print(whole_path(r"\\?\C:\a\..\b", windows=True), whole_path("/a/../b/", windows=False))
    C:\b /b
    >>> print(whole_path(r"\\?\UNC\server\share", windows=True))
    \\server\share
    """
    if not windows:
        return os.path.realpath(folder)
    plain = re.sub(r"^\\\\\?\\(?:UNC(\\)|(?=\w:))", r"\1\1", folder)  # for more than 260 letters
    if plain.startswith(r"\\?"):
        raise UsageError(
            f"{folder} has no address, and an installer takes one",
            hint=r"name the folder by its drive (`C:\wheels`) or its share (`\\server\wheels`)",
        )
    return ntpath.abspath(plain)
