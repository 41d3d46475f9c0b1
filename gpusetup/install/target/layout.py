"""The folders of an environment, the distributions in it, and their files.

A distribution's files are those in its RECORD. A package without such a list (an egg, `setup.py
develop`, conda's own) could not be restored, so it is not changed.
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
"""The names of the folders in which Pythons keep packages; Debian's own has the second. They stay
even if they are empty."""


def real_below(prefix: str, folder: str) -> str:
    """The real path of a folder if it is inside the prefix, such as `lib` for Fedora's link
    `lib64`. Otherwise the folder is returned unchanged."""
    real_folder = os.path.realpath(folder)
    real_prefix = os.path.realpath(prefix)
    if not real_folder.startswith(f"{real_prefix}{os.sep}"):
        return folder
    return prefix + real_folder[len(real_prefix) :]


class Layout(Frozen):
    """The folders into which an interpreter installs, as absolute paths."""

    python: str
    """The interpreter's path, as the user calls it."""
    version: str
    """The Python version, such as `3.11.7`."""
    prefix: str
    purelib: str
    platlib: str
    scripts: str
    data: str
    implementation: str = "cpython"
    free_threaded: bool = False
    externally_managed: str | None = None
    """The marker file which says that the operating system manages this Python; None in an
    environment."""
    ahead: tuple[str, ...] = ()
    """The folders that Python searches before the libraries, such as PYTHONPATH's and the user's
    site-packages."""

    @property
    def libraries(self) -> tuple[str, ...]:
        """The folders from which packages are imported: one, or two if compiled packages have a
        separate folder."""
        if self.purelib == self.platlib:
            return (self.purelib,)
        return (self.purelib, self.platlib)

    @property
    def roots(self) -> tuple[str, ...]:
        """The environment's base folders, which are never removed."""
        return (*self.libraries, self.scripts, self.data)


class Distribution(Frozen):
    """An installed distribution: its name, version and metadata folder."""

    name: str
    version: str
    info: str


def distributions(layout: Layout) -> tuple[Distribution, ...]:
    """All distributions in the environment's own library folders."""
    installed: list[Distribution] = []
    for library in layout.libraries:
        installed += distributions_in(library)
    return tuple(installed)


def distributions_in(library: str) -> Iterator[Distribution]:
    """Yields the distributions in one library folder, according to the names of their metadata
    folders."""
    try:
        entries = sorted(os.listdir(library))
    except OSError:
        # A library folder that does not exist yet contains nothing.
        return
    for entry in entries:
        path = os.path.join(library, entry)
        described = INFO.fullmatch(entry)
        if described:
            name, version = canonicalize_name(described[1]), described[2]
            yield Distribution(name=name, version=version, info=path)
        # The file that `setup.py develop` leaves contains no version.
        elif entry.endswith(".egg-link"):
            name = canonicalize_name(entry.removesuffix(".egg-link"))
            yield Distribution(name=name, version="0", info=path)


INFO = re.compile(r"([^-]+)-(.+?)(?:-py[\d.]+.*)?\.(?:(?:dist|egg)-info|egg)")
"""The name of a metadata folder: project and version, and for an egg also the Python version."""


def versions(installed: Iterable[Distribution]) -> dict[str, str]:
    """Maps the name of each distribution to its version."""
    return {package.name: package.version for package in installed}


# --- the files of a distribution ------------------------------------------------------------------

MOST_LIST_BYTES = 64 << 20
"""The maximum size of a list of files; torch's has 1.5 MB."""


def record_rows(path: str) -> list[list[str]]:
    """The non-empty rows of a RECORD file."""
    with open(path, "rb") as file:
        raw = file.read(MOST_LIST_BYTES)
    # Python's CSV reader rejects NUL, which no path contains.
    text = os.fsdecode(raw).replace("\0", "\ufffd")
    rows = csv.reader(text.splitlines())
    return [row for row in rows if row and row[0]]


def files_of_all(names: Iterable[str], layout: Layout) -> tuple[tuple[Distribution, ...], set[str]]:
    """The distributions with these names, and all their files. Raises Blocked if one has no list of
    its files.

    If a distribution has no list but another one with the same name has, it is the rest of a failed
    removal. Then only its metadata folder counts as its files.
    """
    wanted_names = set(names)
    leaving = tuple(package for package in distributions(layout) if package.name in wanted_names)
    lists = {package: files_listed(package, layout) for package in leaving}
    names_with_list = {package.name for package, paths in lists.items() if paths}
    files: set[str] = set()
    for package, paths in lists.items():
        if package.name not in names_with_list:
            raise Blocked(
                f"{package.name} {package.version} in {layout.prefix} keeps no list of its files "
                "(RECORD), so it could not be put back.",
                hint="remove it with the tool that installed it, or use another environment: "
                "`--venv DIR`",
            )
        files |= paths.union(files_below(package.info))
    return leaving, files


def files_listed(package: Distribution, layout: Layout) -> set[str]:
    """The files that a distribution's RECORD lists inside the environment's folders; empty if it
    has none."""
    library = os.path.dirname(package.info)
    roots = tuple(f"{root.rstrip(os.sep)}{os.sep}" for root in layout.roots)
    try:
        rows = record_rows(os.path.join(package.info, "RECORD"))
    except (OSError, csv.Error):
        return set()
    paths: set[str] = set()
    for row in rows:
        path = os.path.normpath(os.path.join(library, row[0]))
        # A list may name files anywhere on the system, but only the environment's own may be
        # changed.
        if path.startswith(roots):
            paths.add(path)
    return paths
