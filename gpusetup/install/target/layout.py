"""What lies where in a target: its folders, its distributions and their files.

Reads names only; nothing is imported and nothing is changed here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from packaging.utils import canonicalize_name

from gpusetup.model.frozen import Frozen


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


def covering_entries(paths: Iterable[str], roots: Iterable[str]) -> tuple[str, ...]:
    """The fewest entries that hold exactly these files: whole folders where they are all of it.

    Bytecode belongs to its source. The roots themselves are never among them. Files that are not
    there are left out.
    """
    wanted = frozenset(paths)
    folders = frozenset(_folders_above(wanted))
    found: set[str] = set()
    kept = frozenset(roots)
    for root in sorted(kept, key=len, reverse=True):
        found.update(_covered(root, wanted, folders, kept)[1])
    return tuple(sorted(found))


def _folders_above(paths: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for path in paths:
        while (path := os.path.dirname(path)) not in found:
            found.add(path)
    return found


def _covered(
    folder: str, wanted: frozenset[str], folders: frozenset[str], kept: frozenset[str]
) -> tuple[bool, list[str]]:
    """Whether everything in a folder is wanted, and the entries of it that are."""
    whole, moves = True, []
    for entry in _entries(folder):
        path = entry.path
        if path in kept:
            whole = False
        elif entry.is_dir(follow_symlinks=False) and path not in wanted:
            all_of_it, parts = (
                _bytecode(path, wanted)
                if entry.name == "__pycache__"
                else (_covered(path, wanted, folders, kept) if path in folders else (False, []))
            )
            moves += [path] if all_of_it else parts
            whole = whole and all_of_it
        elif path in wanted:
            moves.append(path)
        else:
            whole = False
    return whole and bool(moves), moves


def _bytecode(folder: str, wanted: frozenset[str]) -> tuple[bool, list[str]]:
    parent = Path(folder).parent
    names = [entry.name for entry in _entries(folder)]
    mine = [
        name
        for name in names
        if str(Path(folder, name)) in wanted or str(parent / f"{name.split('.')[0]}.py") in wanted
    ]
    return bool(names) and len(mine) == len(names), [str(Path(folder, name)) for name in mine]


def new_entries(paths: Iterable[str]) -> tuple[str, ...]:
    """For files that will be made: the topmost entry of each that is not there yet."""
    there: dict[str, bool] = {}
    tops: dict[str, str] = {}
    found = set()
    for path in paths:
        folder = os.path.dirname(path)
        if folder not in tops:
            tops[folder] = _topmost_missing(folder, there)
        found.add(tops[folder] or path)
    return tuple(sorted(found))


def _topmost_missing(folder: str, there: dict[str, bool]) -> str:
    """The topmost of a folder and those above it that is not there; "" where all are."""
    top = ""
    while not _is_there(folder, there):
        top, folder = folder, os.path.dirname(folder)
    return top


def those_there(paths: Iterable[str]) -> set[str]:
    """The paths of these that exist; one look for all that lie in a folder that does not."""
    there: dict[str, bool] = {}
    return {p for p in paths if _is_there(os.path.dirname(p), there) and os.path.lexists(p)}


def _is_there(folder: str, known: dict[str, bool]) -> bool:
    if folder not in known:
        known[folder] = os.path.lexists(folder)
    return known[folder]


def requirers(
    installed: Iterable[Distribution], changes: Mapping[str, str], layout: Layout
) -> tuple[tuple[str, str, str], ...]:
    """What is installed and would no longer find what it requires: (name, version, requirement)."""
    broken = []
    for one in installed:
        if one.name in changes:
            continue
        for need in _needs(one):
            if need_breaks(need, changes, markers_of(layout)):
                broken.append((one.name, one.version, need))
    return tuple(broken)


def markers_of(layout: Layout) -> dict[str, str]:
    """What markers ask about the target's interpreter; its machine is ours. No extra is chosen."""
    return {
        "extra": "",
        "python_version": ".".join(layout.version.split(".")[:2]),
        "python_full_version": layout.version,
        "implementation_name": layout.implementation,
        "implementation_version": layout.version,
    }


def need_breaks(need: str, changes: Mapping[str, str], environment: Mapping[str, str]) -> bool:
    """Whether a requirement names something that changes to a version it does not take.

    >>> need_breaks("torch==2.5.1", {"torch": "2.13.0+cpu"}, {})
    True
    >>> need_breaks("torch>=2", {"torch": "2.13.0+cpu"}, {})
    False
    >>> old = "torch==2.5.1; python_version < '3.9'"
    >>> need_breaks(old, {"torch": "2.13.0+cpu"}, {"python_version": "3.8"})
    True
    """
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        asked = Requirement(need)
    except InvalidRequirement:
        return False
    version = changes.get(canonicalize_name(asked.name))
    if version is None or (
        asked.marker and not asked.marker.evaluate({"extra": "", **environment})
    ):
        return False
    return not asked.specifier.contains(version, prereleases=True)


def _needs(one: Distribution) -> Iterator[str]:
    try:
        text = Path(one.info, "METADATA").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.partition("\n\n")[0].splitlines():
        if line.startswith("Requires-Dist:"):
            yield line.partition(":")[2].strip()


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []
