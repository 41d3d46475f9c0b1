"""Wheels as plain values."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from gpusetup.model.frozen import Frozen

if TYPE_CHECKING:
    from packaging.tags import Tag

TORCH_INDEX = "torch index"
DEFAULT_INDEX = "default index"


class Wheel(Frozen):
    """One file to fetch."""

    name: str
    """The project's name."""
    version: str
    filename: str
    url: str
    sha256: str | None = None
    """What the index says; None where it says nothing."""
    size_bytes: int | None = None
    source: str = DEFAULT_INDEX


def wheel_at(url: str, **more: Any) -> Wheel | None:
    """The wheel of an address; None where its name is no wheel's."""
    filename = file_name(url)
    if (named := parsed_name(filename)) is None:
        return None
    return Wheel(name=named[0], version=named[1], filename=filename, url=url, **more)


def parsed_name(filename: str) -> tuple[str, str, frozenset[Tag]] | None:
    """A wheel's project, version and tags; None where the name is no wheel's.

    >>> parsed_name("torch-2.13.0+cpu-cp311-cp311-win_amd64.whl")[:2]
    ('torch', '2.13.0+cpu')
    >>> parsed_name("torch-1.0-py3-none-any.x/../../evil.whl")
    """
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename
    from packaging.version import InvalidVersion

    if not WHEEL_NAME.fullmatch(filename):
        return None  # a name becomes one in our folders, and that of a lock
    try:
        name, version, _, tags = parse_wheel_filename(filename)
    except (InvalidWheelFilename, InvalidVersion):
        return None
    return name, str(version), tags


WHEEL_NAME = re.compile(r"[A-Za-z0-9][\w.!+-]{0,250}\.whl")
"""A name that is a file's and no path."""


def file_name(url: str) -> str:
    """The last part of a URL, decoded.

    >>> file_name("https://x/whl/cpu/torch-2.13.0%2Bcpu-cp311-cp311-win_amd64.whl#sha256=ab")
    'torch-2.13.0+cpu-cp311-cp311-win_amd64.whl'
    """
    return unquote(urlsplit(url).path.rpartition("/")[2])


def unhashed(wheels: Iterable[Wheel]) -> tuple[str, ...]:
    """What is to be said of wheels whose index names no hash.

    >>> unhashed([Wheel(name="x", version="1", filename="", url="https://i/x")])
    ('No sha256 at the index for x: the file is only as trusted as the connection',)
    """
    names = [one.name for one in wheels if not one.sha256 and not one.url.startswith("file:")]
    if not names:
        return ()
    said = f"No sha256 at the index for {', '.join(names)}"
    return (f"{said}: the file is only as trusted as the connection",)


def size_text(count: int | float) -> str:
    """A size as people read it.

    >>> size_text(191_794_682), size_text(812)
    ('182.9 MiB', '812 B')
    """
    for unit in ("B", "KiB", "MiB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"
