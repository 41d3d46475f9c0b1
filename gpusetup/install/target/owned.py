"""What belongs to an installed distribution: what its RECORD lists.

What keeps no such list (an egg, `setup.py develop`, conda's own) could not be put back and is not
changed.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable

from gpusetup.errors import Blocked
from gpusetup.install.switching.files import files_below
from gpusetup.install.target.layout import Distribution, Layout, distributions

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
