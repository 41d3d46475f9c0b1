"""The environment to change: where it is, its folders, and the distributions in it.

A distribution's files are those in its RECORD. A package without such a list (an egg, `setup.py
develop`, conda's own) could not be restored, so it is not changed.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from packaging.utils import canonicalize_name

from gpusetup.errors import Blocked, GpuSetupError, UsageError
from gpusetup.install.switching.files import files_below
from gpusetup.install.switching.journal import STORE
from gpusetup.model.builds import FAMILY
from gpusetup.model.codec import from_plain
from gpusetup.model.frozen import Frozen, replace
from gpusetup.probe.target import ask_python, choose_target
from gpusetup.system.system import System

LIBRARIES = ("site-packages", "dist-packages")
"""The names of the folders in which Pythons keep packages; Debian's own has the second."""
PYTHON_IN = Path("Scripts/python.exe" if os.name == "nt" else "bin/python")
"""The interpreter's place in an environment."""
ANSWER_SECONDS = 30.0
"""The time limit in seconds for an interpreter's answer, which a slow network disk delays."""


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

    @property
    def libraries(self) -> tuple[str, ...]:
        """The folders from which packages are imported: one, or two if compiled ones are apart."""
        return tuple(dict.fromkeys((self.purelib, self.platlib)))

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders in which a distribution's files may be."""
        return (*self.libraries, self.scripts, self.data)


class Target(Frozen):
    """The environment to install into: one that exists, or one to create with a base Python."""

    layout: Layout
    """The target's folders; those of the base interpreter if the environment must be created."""
    venv: str | None = None
    """The folder of the environment to create; None if it exists."""

    @property
    def prefix(self) -> str:
        return self.venv or self.layout.prefix

    @property
    def python(self) -> str:
        """The path of the interpreter into whose environment packages are installed."""
        return str(Path(self.venv, PYTHON_IN)) if self.venv else self.layout.python

    @property
    def installed(self) -> dict[str, str]:
        """Maps each installed package to its version; empty if the environment must be created."""
        return {} if self.venv else versions(distributions(self.layout))


def must_create_venv(folder: str) -> bool:
    """Whether the environment of `--venv DIR` must be created. Raises UsageError if DIR is a file,
    or a folder with files that is no environment."""
    path = Path(folder)
    if (path / "pyvenv.cfg").is_file():
        return False
    # A folder that only contains gpusetup's store was left by a killed run.
    is_free = path.is_dir() and all(entry.name == STORE for entry in path.iterdir())
    if path.exists() and not is_free:
        raise UsageError(
            f"`--venv {folder}` already exists, but is not an environment",
            hint="use a new or empty folder, or an environment",
        )
    return True


def layout_of(python: str) -> Layout:
    """The folders into which a Python interpreter installs. The interpreter is run to find them.
    Raises Blocked if it does not run."""
    answer = ask_python(System(), python, timeout=ANSWER_SECONDS)
    if "problem" in answer:
        raise Blocked(
            f"{python} does not run: {answer['problem']}",
            hint="choose another interpreter with `--python PATH`",
        )
    # In the child's answer, `python` is the version, but in a Layout it is the interpreter's path.
    facts = {**answer, "python": python, "version": answer["python"]}
    layout = from_plain(facts, Layout, what=f"the answer of {python}")
    # A change refuses a path behind a link, such as those below Fedora's `lib64`.
    return replace(
        layout,
        purelib=real_below(layout.prefix, layout.purelib),
        platlib=real_below(layout.prefix, layout.platlib),
        scripts=real_below(layout.prefix, layout.scripts),
        data=real_below(layout.prefix, layout.data),
    )


def layout_of_folder(folder: Path) -> Layout:
    """The folders of an environment, even of one whose interpreter was deleted or does not start:
    to restore its packages, their files only have to be found.

    Without the interpreter's answer, a folder named like a library counts as one, wherever Pythons
    keep it (`lib/python3.11/site-packages`, `Lib\\site-packages`).
    """
    with suppress(GpuSetupError):
        return layout_of(choose_target(System(), str(folder)).python)
    prefix = str(folder)
    # `lib` is sorted before `lib64`, which only holds compiled packages.
    posix = sorted(folder.glob("lib*/python3*/*-packages"))
    paths = [*posix, *sorted(folder.glob("Lib/*-packages"))]
    real_paths = [real_below(prefix, str(path)) for path in paths if path.name in LIBRARIES]
    # `lib64` may be a link to `lib`, so that the same library is listed twice. Without any library,
    # nothing is installed, and the prefix takes its place.
    libraries = list(dict.fromkeys(real_paths)) or [prefix]
    python = folder / PYTHON_IN
    return Layout(
        python=str(python),
        version="",
        prefix=prefix,
        purelib=libraries[0],
        platlib=libraries[-1],
        scripts=str(python.parent),
        data=prefix,
    )


def real_below(prefix: str, folder: str) -> str:
    """The path of a folder with its links resolved, as long as it stays below the prefix:
    `PREFIX/lib` for Fedora's `PREFIX/lib64`, which is a link to it. The prefix itself keeps its
    name, and a folder whose link leads out of the environment is returned unchanged."""
    real_folder, real_prefix = os.path.realpath(folder), os.path.realpath(prefix)
    if not real_folder.startswith(f"{real_prefix}{os.sep}"):
        return folder
    return prefix + real_folder[len(real_prefix) :]


INFO = re.compile(r"([^-]+)-(.+?)(?:-py[\d.]+.*)?\.(?:(?:dist|egg)-info|egg)")
"""The name of a metadata folder: project and version, and for an egg also the Python version."""
MOST_LIST_BYTES = 64 << 20
"""The maximum size of a list of files; torch's has 1.5 MB."""


class Distribution(Frozen):
    """An installed distribution: its name, version and metadata folder."""

    name: str
    version: str
    info: str


def distributions(layout: Layout) -> tuple[Distribution, ...]:
    """All distributions in the environment's library folders, by their metadata folders' names."""
    installed: list[Distribution] = []
    for library in layout.libraries:
        entries: list[str] = []
        # A library folder that does not exist yet contains nothing.
        with suppress(OSError):
            entries = sorted(os.listdir(library))
        for match in filter(None, map(INFO.fullmatch, entries)):
            name, version = match.groups()
            info = os.path.join(library, match[0])
            package = Distribution(name=canonicalize_name(name), version=version, info=info)
            installed.append(package)
    return tuple(installed)


def versions(installed: Iterable[Distribution]) -> dict[str, str]:
    """Maps the name of each distribution to its version."""
    return {package.name: package.version for package in installed}


def family_of(installed: Mapping[str, str]) -> dict[str, str]:
    """The versions of torch and its companions among these packages."""
    return {name: installed[name] for name in FAMILY if name in installed}


def files_of_all(names: Iterable[str], layout: Layout) -> tuple[tuple[Distribution, ...], set[str]]:
    """The distributions with these names, and all their files. Raises Blocked if one has no list of
    its files.

    If a distribution has no list but another one with the same name has, it is the rest of a failed
    removal. Then only its metadata folder counts as its files.
    """
    named = set(names)
    packages = tuple(package for package in distributions(layout) if package.name in named)
    lists = {package: files_listed(package, layout) for package in packages}
    names_with_list = {package.name for package, paths in lists.items() if paths}
    files: set[str] = set()
    for package, paths in lists.items():
        if package.name not in names_with_list:
            raise Blocked(
                f"{package.name} {package.version} in {layout.prefix} has no list of its files "
                "(RECORD), so gpusetup could not restore it.",
                hint="remove it with the tool that installed it, or use another environment: "
                "`--venv DIR`",
            )
        files |= paths.union(files_below(package.info))
    return packages, files


def files_listed(package: Distribution, layout: Layout) -> set[str]:
    """A distribution's files in the environment's folders, by its RECORD; empty without one."""
    library = os.path.dirname(package.info)
    roots = tuple(f"{root.rstrip(os.sep)}{os.sep}" for root in layout.roots)
    try:
        rows = record_rows(os.path.join(package.info, "RECORD"))
    except (OSError, csv.Error):
        return set()
    paths = (os.path.normpath(os.path.join(library, row[0])) for row in rows)
    # A list may name files anywhere on the system, but only the environment's own may be changed.
    return {path for path in paths if path.startswith(roots)}


def record_rows(path: str) -> list[list[str]]:
    """The non-empty rows of a RECORD file."""
    with open(path, "rb") as file:
        raw = file.read(MOST_LIST_BYTES)
    # Python's CSV reader rejects NUL, which no path contains.
    text = os.fsdecode(raw).replace("\0", "\ufffd")
    return [row for row in csv.reader(text.splitlines()) if row and row[0]]
