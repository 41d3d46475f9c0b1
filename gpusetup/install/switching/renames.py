"""Plans the renames that move unpacked files into place, whole folders at once if nothing exists
there yet.

torch has 15,000 files in 1,100 folders. Renaming each file, and creating and removing each folder,
would take longer than uv needs to unpack them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from gpusetup.install.target.layout import LIBRARIES


def renames_of(coming: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields each path to rename, with its new path; `coming` maps each unpacked file to its
    place."""
    files_of_packages: dict[str, list[str]] = {}
    single_files: list[str] = []
    for source in coming:
        folder = _package_folder(source)
        if folder is None:
            single_files.append(source)
        else:
            files_of_packages.setdefault(folder, []).append(source)
    for folder, sources in files_of_packages.items():
        place = _place_of_whole(folder, sources, coming)
        if place is None:
            single_files += sources
        else:
            yield folder, place
    for source in single_files:
        yield source, coming[source]


def _package_folder(source: str) -> str | None:
    """The package folder directly below the library folder that contains a file; None if the file
    is not in such a folder."""
    for library in LIBRARIES:
        start = source.find(f"{os.sep}{library}{os.sep}")
        if start >= 0:
            begin_of_name = start + len(library) + 2
            end_of_name = source.find(os.sep, begin_of_name)
            return source[:end_of_name] if end_of_name > 0 else None
    return None


def _place_of_whole(folder: str, sources: Iterable[str], coming: Mapping[str, str]) -> str | None:
    """The path to which a whole folder can be renamed; None if its files must be renamed one by
    one."""
    places: set[str] = set()
    parents = {folder}
    for source in sources:
        below = source[len(folder) :]
        # A folder can only be renamed as a whole if each file has the same path below it in both
        # places.
        if not coming[source].endswith(below):
            return None
        places.add(coming[source][: -len(below)])
        parent = os.path.dirname(source)
        while parent not in parents:
            parents.add(parent)
            parent = os.path.dirname(parent)
    if len(places) != 1:
        return None
    place = places.pop()
    if os.path.lexists(place):
        return None
    # An empty folder or an unlisted file would be moved along, but never be removed again.
    for path, folders, files in os.walk(folder):
        if any(os.path.join(path, name) not in parents for name in folders):
            return None
        if any(os.path.join(path, name) not in coming for name in files):
            return None
    return place
