"""Finds the environment for an installation, which may not exist yet."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from gpusetup.errors import Blocked, GpuSetupError, UsageError
from gpusetup.install.switching.journal import STORE
from gpusetup.install.target.layout import (
    LIBRARIES,
    Layout,
    distributions,
    real_below,
    versions,
)
from gpusetup.model.builds import FAMILY
from gpusetup.model.codec import from_plain
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.shell import own_line
from gpusetup.probe.target import ask_python, choose_target
from gpusetup.system.refusals import blocked_by_files
from gpusetup.system.system import System

NEW_ENVIRONMENT = "gpusetup install --venv .venv"


class Target(Frozen):
    """The environment to install into: an existing one, or one to be created with a base
    interpreter."""

    layout: Layout
    """The folders of the target. If the environment does not exist yet, these are the base
    interpreter's."""
    venv: str | None = None

    @property
    def python(self) -> str:
        """The path of the interpreter into whose environment packages are installed."""
        if self.venv is None:
            return self.layout.python
        place = ("Scripts", "python.exe") if os.name == "nt" else ("bin", "python")
        return str(Path(self.venv, *place))

    @property
    def installed(self) -> dict[str, str]:
        """Maps each installed package to its version; empty if the environment does not exist
        yet."""
        if self.venv:
            return {}
        return versions(distributions(self.layout))


def require_possible_folder(folder: str) -> None:
    """Raise `Blocked` for a path at which there is no environment and none can be created."""
    path = Path(folder)
    with blocked_by_files(f"{folder} can be no environment", POSSIBLE):
        try:
            path.stat()
        except FileNotFoundError:
            # The path is free for a new folder, unless it is a broken link.
            if path.is_symlink():
                raise


POSSIBLE = "nothing was changed; name another folder: `--venv DIR`"


def must_create_venv(folder: str) -> bool:
    """Whether the environment of `--venv DIR` must be created. Raises UsageError if DIR exists but
    is not an environment."""
    path = Path(folder)
    if (path / "pyvenv.cfg").is_file():
        return False
    if not path.exists():
        return True
    # A folder that only contains gpusetup's store was left by a killed run.
    is_free = path.is_dir() and all(entry.name == STORE for entry in path.iterdir())
    if not is_free:
        raise UsageError(
            f"`--venv {folder}` exists already, but is not an environment",
            hint="name an empty or a new folder, or an environment",
        )
    return True


def layout_of(python: str) -> Layout:
    """The folders into which a Python interpreter installs. The interpreter is run to find them.
    Raises Blocked if it does not run."""
    answer = ask_python(System(), python, timeout=30)
    if "problem" in answer:
        raise Blocked(
            f"{python} does not run: {answer['problem']}",
            hint="name another interpreter with `--python PATH`",
        )
    # In the child's answer, `python` is the version, but in a Layout it is the interpreter's path.
    facts = {**answer, "python": python, "version": answer["python"]}
    layout = from_plain(facts, Layout, what=f"the answer of {python}")
    names = ("purelib", "platlib", "scripts", "data")
    real = {name: real_below(layout.prefix, getattr(layout, name)) for name in names}
    return replace(layout, **real)


def layout_of_folder(folder: Path) -> Layout:
    """The folders of an environment. If its interpreter does not start, they are those in which its
    system keeps packages, so that an environment with a broken Python can still be restored."""
    try:
        return layout_of(choose_target(System(), str(folder)).python)
    except GpuSetupError:
        pass
    prefix = str(folder)
    found = [
        real_below(prefix, str(path))
        for pattern in ("lib*/python3*/*-packages", "Lib/*-packages")
        for path in sorted(folder.glob(pattern))
        if path.name in LIBRARIES
    ]
    libraries = list(dict.fromkeys(found)) or [prefix]
    is_windows = os.name == "nt"
    return Layout(
        python=str(folder / ("Scripts/python.exe" if is_windows else "bin/python")),
        version="",
        prefix=prefix,
        purelib=libraries[0],
        platlib=libraries[-1],
        scripts=str(folder / ("Scripts" if is_windows else "bin")),
        data=prefix,
    )


def check_target(layout: Layout, command: str = NEW_ENVIRONMENT) -> None:
    """Raise Blocked if an environment must not be changed or cannot be written. The hint names
    `command`, which creates another one."""
    hint = f"use your own environment: `{command}`"
    if layout.externally_managed:
        raise Blocked(
            f"The Python of {layout.prefix} is managed by the operating system "
            f"({layout.externally_managed})",
            hint=hint,
        )
    for folder in (*layout.libraries, layout.scripts, layout.prefix):
        # A missing folder will be created in the prefix.
        is_writable = os.access(folder, os.W_OK) or not Path(folder).exists()
        if not is_writable:
            raise Blocked(
                f"{folder} cannot be written by this user, or is read-only",
                hint=hint,
            )


def read_target(python: str | None, venv: str | None) -> Target:
    """The environment of an interpreter, or the one that will be created from this interpreter in
    the folder `venv`."""
    if python is None:
        raise UsageError("The target has no interpreter", hint="name one with `--python PATH`")
    folder = venv or python
    shown = folder.encode(errors="backslashreplace").decode()
    if shown != folder:
        raise Blocked(
            f"The name of {shown} is not UTF-8, and uv supports no such folder",
            hint="nothing was changed; name an environment elsewhere: `--venv DIR`",
        )
    layout = layout_of(python)
    # A new environment would have the same Python implementation, so `--venv` does not help with
    # PyPy, for example.
    if layout.implementation != "cpython":
        raise Blocked(
            f"{python} is {layout.implementation}; torch has wheels for CPython only",
            hint="name a CPython with `--python PATH`",
        )
    return Target(layout=layout, venv=venv)


def check_importable(layout: Layout, family: Iterable[str]) -> None:
    """Raise Blocked if Python would never import newly installed packages, because a folder earlier
    in the import path contains them too."""
    for folder in layout.ahead:
        hiding = [name for name in family if Path(folder, name, "__init__.py").is_file()]
        if hiding:
            python = own_line(layout.python, "-m", "pip", "uninstall", *hiding)
            raise Blocked(
                f"{folder} holds a {hiding[0]} that {layout.python} imports before any of "
                f"{layout.prefix}: Python would not find the new packages",
                hint=f"nothing was changed; remove that folder from PYTHONPATH, or if it is your "
                f"own site-packages: `{python}`, or set PYTHONNOUSERSITE=1, then run this again",
            )


def family_of(installed: Mapping[str, str]) -> dict[str, str]:
    """The versions of torch and its companions among these packages."""
    return {name: installed[name] for name in FAMILY if name in installed}


def family_in(folder: Path) -> dict[str, str]:
    """The versions of torch and its companions in an environment; empty if it has none or cannot be
    read."""
    return family_of(versions(distributions(layout_of_folder(folder))))
