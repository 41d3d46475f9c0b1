"""Wheels as plain values: which file of an index page fits a target, and what a lock names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from gpusetup.model.frozen import Frozen

if TYPE_CHECKING:
    from packaging.tags import Tag

    from gpusetup.install.target.layout import Layout

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
    metadata_url: str | None = None
    """Where its METADATA can be had without the rest (PEP 658)."""


def target_tags(layout: Layout) -> tuple[str, ...]:
    """The wheel tags of an interpreter on this machine, best first."""
    major, minor = (int(part) for part in layout.version.split(".")[:2])
    return _tags(major, minor, layout.free_threaded)


@lru_cache
def _tags(major: int, minor: int, free_threaded: bool) -> tuple[str, ...]:
    from packaging.tags import compatible_tags, cpython_tags, platform_tags

    version = (major, minor)
    abi = f"cp{major}{minor}{'t' if free_threaded else ''}"
    platforms = list(platform_tags())
    own = cpython_tags(version, abis=[abi], platforms=platforms)
    return tuple(map(str, (*own, *compatible_tags(version, f"cp{major}{minor}", platforms))))


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


def best(wheels: Iterable[Wheel], version: str | None, tags: Sequence[str]) -> Wheel | None:
    """The wheel of a version that serves the best of the tags, the first of several with one name
    (a folder and an index may both have it); None where none does."""
    rank = {tag: place for place, tag in enumerate(tags)}
    fitting: list[tuple[int, str, int, Wheel]] = []
    for wheel in wheels:
        named = parsed_name(wheel.filename)
        if named is None or version not in (None, named[1]):
            continue
        places = [rank[str(tag)] for tag in named[2] if str(tag) in rank]
        if places:
            fitting.append((min(places), wheel.filename, len(fitting), wheel))
    return min(fitting)[-1] if fitting else None


def locked(lock: Mapping[str, Any], tags: Sequence[str], skip: Iterable[str]) -> tuple[Wheel, ...]:
    """The wheels that a `pylock.toml` names for a target, apart from the projects to skip.

    Raises ValueError naming a project that has no wheel for the target.
    """
    left_out = set(skip)
    found = []
    for package in lock.get("packages", ()):
        if package["name"] in left_out:
            continue
        wheels = [_of_lock(package, row) for row in package.get("wheels", ())]
        wheel = best(wheels, None, tags)
        if wheel is None:
            raise ValueError(f"{package['name']} {package.get('version', '')}".strip())
        found.append(wheel)
    return tuple(found)


def _of_lock(package: Mapping[str, Any], row: Mapping[str, Any]) -> Wheel:
    url = row.get("url") or Path(row["path"]).absolute().as_uri()
    return Wheel(
        name=package["name"],
        version=package["version"],
        filename=row.get("name") or file_name(url),
        url=url,
        sha256=row.get("hashes", {}).get("sha256"),
        size_bytes=row.get("size"),
    )


def file_name(url: str) -> str:
    """The last part of a URL, decoded.

    >>> file_name("https://x/whl/cpu/torch-2.13.0%2Bcpu-cp311-cp311-win_amd64.whl#sha256=ab")
    'torch-2.13.0+cpu-cp311-cp311-win_amd64.whl'
    """
    return unquote(urlsplit(url).path.rpartition("/")[2])


def unhashed(wheels: Iterable[Wheel]) -> tuple[str, ...]:
    """What is to be said of wheels whose index names no hash.

    >>> unhashed([Wheel(name="x", version="1", filename="", url="https://i/x")])
    ('No sha256 at the index for x: what comes is as trusted as the connection is',)
    """
    names = [one.name for one in wheels if not one.sha256 and not one.url.startswith("file:")]
    if not names:
        return ()
    said = f"No sha256 at the index for {', '.join(names)}"
    return (f"{said}: what comes is as trusted as the connection is",)


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
