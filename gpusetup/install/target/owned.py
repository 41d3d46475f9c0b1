"""What belongs to an installed distribution: what its RECORD lists.

What keeps no such list (an egg, `setup.py develop`, conda's own) could not be put back and is not
changed.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpusetup.errors import Blocked
from gpusetup.install.switching.files import files_below
from gpusetup.install.target.layout import Distribution, Layout, distributions

LIST_BYTES = 64 << 20
"""More than that no list of files has; torch's has 1.5 MB."""


def files_of(one: Distribution, layout: Layout) -> frozenset[str]:
    """The paths that it lists, inside the target's folders, and its metadata folder; `Blocked`
    where it keeps no such list."""
    roots = layout.roots
    listed = (path for path in _listed(one, layout) if any(_below(path, root) for root in roots))
    return frozenset((*files_below(one.info), *listed))


def _listed(one: Distribution, layout: Layout) -> Iterator[str]:
    path, base = Path(one.info, "RECORD"), os.path.dirname(one.info)
    try:
        names = _names(path)
    except (OSError, csv.Error) as problem:
        raise _no_list(one, layout, path.name, "is missing", str(problem)) from problem
    if not names:
        raise _no_list(one, layout, path.name, "is empty", "no file is listed")
    return (os.path.normpath(os.path.join(base, name)) for name in names)


def _names(path: Path) -> list[str]:
    """The first column; bytes that are no UTF-8 are the bytes of the path."""
    with path.open("rb") as file:
        text = os.fsdecode(file.read(LIST_BYTES)).replace("\0", "\ufffd")
    return [row[0] for row in csv.reader(text.splitlines()) if row and row[0]]


def _no_list(one: Distribution, layout: Layout, name: str, how: str, why: str) -> Blocked:
    return Blocked(
        f"{one.name} {one.version} in {layout.prefix} keeps no list of its files "
        f"({name} {how}), so it could not be put back.",
        hint="remove it with the tool that installed it, or use another environment: `--venv "
        f"DIR` ({why})",
    )


def files_of_all(names: Iterable[str], layout: Layout) -> tuple[tuple[Distribution, ...], set[str]]:
    """Every distribution of these names, two of one name both, and what belongs to them.

    One that keeps no list of its files is let go with its metadata folder alone where another of
    its name keeps one: it is what a broken removal left.
    """
    gone = tuple(one for one in distributions(layout) if one.name in set(names))
    files: set[str] = set()
    listed: set[str] = set()
    refused: list[tuple[Distribution, Blocked]] = []
    for one in gone:
        try:
            files |= files_of(one, layout)
            listed.add(one.name)
        except Blocked as problem:
            refused.append((one, problem))
    for one, why in refused:
        if one.name not in listed:
            raise why
        files.update(files_below(one.info))
    return gone, files


def _below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip(os.sep) + os.sep)
