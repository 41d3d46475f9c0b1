"""What lies where in a target: its folders, its distributions and their files.

To a distribution belongs what its RECORD lists. What keeps no such list (an egg, `setup.py
develop`, conda's own) could not be put back and is not changed.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable, Iterator

from packaging.utils import canonicalize_name

from gpusetup.errors import Blocked
from gpusetup.install.switching.files import files_below
from gpusetup.model.frozen import Frozen

LIBRARIES = ("site-packages", "dist-packages")
"""Folders that stay if they are empty."""


def real_below(prefix: str, folder: str) -> str:
    """A folder below the prefix by its real name, where a link in the environment leads to it:
    Fedora's and RHEL's Python says `lib64` where compiled packages go, which is a link to `lib`."""
    real, root = os.path.realpath(folder), os.path.realpath(prefix)
    return prefix + real[len(root) :] if real.startswith(root + os.sep) else folder


class Layout(Frozen):
    """The folders that an interpreter installs to, absolute."""

    python: str
    """The interpreter's path, as it is called."""
    version: str
    """`3.11.7`."""
    prefix: str
    purelib: str
    platlib: str
    scripts: str
    data: str
    implementation: str = "cpython"
    free_threaded: bool = False
    externally_managed: str | None = None
    """The marker file that says so, where the target is no environment."""
    ahead: tuple[str, ...] = ()
    """The folders that an import looks in before the libraries: PYTHONPATH's, the user's site."""

    @property
    def libraries(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.purelib, self.platlib)))

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders that stay whatever is installed or removed."""
        return (*self.libraries, self.scripts, self.data)


class Distribution(Frozen):
    """An installed distribution: its name, its version and its metadata folder."""

    name: str
    version: str
    info: str


def distributions(layout: Layout) -> tuple[Distribution, ...]:
    """Everything installed in the target's own folders, by the names of the metadata folders."""
    return tuple(one for library in layout.libraries for one in distributions_in(library))


def distributions_in(library: str) -> Iterator[Distribution]:
    """What is installed in one folder."""
    for entry in sorted(_names(library)):
        if match := INFO.fullmatch(entry):
            path = os.path.join(library, entry)
            yield Distribution(name=canonicalize_name(match[1]), version=match[2], info=path)
        elif entry.endswith(".egg-link"):
            name = canonicalize_name(entry.removesuffix(".egg-link"))
            yield Distribution(name=name, version="0", info=os.path.join(library, entry))


INFO = re.compile(r"([^-]+)-(.+?)(?:-py[\d.]+.*)?\.(?:(?:dist|egg)-info|egg)")


def versions(installed: Iterable[Distribution]) -> dict[str, str]:
    """Name -> version of what is installed."""
    return {one.name: one.version for one in installed}


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


# --- the files of a distribution ------------------------------------------------------------------

LIST_BYTES = 64 << 20
"""More than that no list of files has; torch's has 1.5 MB."""


def record_rows(path: str) -> list[list[str]]:
    """The rows of a RECORD; bytes that are no UTF-8 are the bytes of a path."""
    with open(path, "rb") as file:
        text = os.fsdecode(file.read(LIST_BYTES)).replace("\0", "\ufffd")
    return [row for row in csv.reader(text.splitlines()) if row and row[0]]


def files_of_all(names: Iterable[str], layout: Layout) -> tuple[tuple[Distribution, ...], set[str]]:
    """Every distribution of these names, two of one name both, and what belongs to them; `Blocked`
    if one keeps no list of its files.

    Where another of its name keeps one, it is let go with its metadata folder alone: it is what a
    broken removal left.
    """
    gone = tuple(one for one in distributions(layout) if one.name in set(names))
    lists = {one: _listed(one, layout) for one in gone}
    listed = {one.name for one, paths in lists.items() if paths}
    files: set[str] = set()
    for one, paths in lists.items():
        if one.name not in listed:
            raise Blocked(
                f"{one.name} {one.version} in {layout.prefix} keeps no list of its files (RECORD), "
                "so it could not be put back.",
                hint="remove it with the tool that installed it, or use another environment: "
                "`--venv DIR`",
            )
        files |= paths.union(files_below(one.info))
    return gone, files


def _listed(one: Distribution, layout: Layout) -> set[str]:
    """The paths that it lists, inside the target's folders."""
    base = os.path.dirname(one.info)
    roots = tuple(f"{root.rstrip(os.sep)}{os.sep}" for root in layout.roots)
    try:
        rows = record_rows(os.path.join(one.info, "RECORD"))
    except (OSError, csv.Error):
        return set()
    paths = {os.path.normpath(os.path.join(base, row[0])) for row in rows}
    return {path for path in paths if path.startswith(roots)}
