"""The guard: a constraints file and settings that keep pip and uv from replacing torch.

An environment gets a constraints file that pins torch and the packages built for it, and files that
make pip and uv read it. The guard only writes new files or its own. If other files need a change,
it tells the user which lines to add. `--undo` removes the guard's own files.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from packaging.version import Version

from gpusetup import named_file
from gpusetup.catalog.companion_table import companion_table
from gpusetup.errors import Blocked, Unsatisfiable
from gpusetup.install.switching.files import write_safely
from gpusetup.install.target import PYTHON_IN
from gpusetup.model.builds import FAMILY
from gpusetup.model.frozen import Frozen
from gpusetup.system.processes import run
from gpusetup.system.refusals import blocked_by_files
from gpusetup.uv.program import GUARD_FILE

CONSTRAINTS = GUARD_FILE
PIP_FILE = "pip.ini" if os.name == "nt" else "pip.conf"
PIP_SECONDS = 30.0
MOST_BYTES = 1 << 18
"""The maximum size of a file that is compared."""
MARK = "# gpusetup guard"
"""The start of the lines that mark what the guard wrote."""
State = Literal["shown", "written", "unchanged", "restored"]


class GuardFile(Frozen):
    """A file that the guard writes, with its complete text."""

    path: str
    text: str


class GuardAnswer(Frozen):
    schema: Literal["gpusetup.guard/1"] = "gpusetup.guard/1"
    state: State
    target: str
    pins: Mapping[str, str] = {}
    """Maps each guarded package to its exact version; empty after `--undo`."""
    files: tuple[GuardFile, ...] = ()
    """The files that are missing or outdated, or that were written."""
    uv: str | None = None
    """The line that makes `uv pip` read the constraints in the current shell."""
    notes: tuple[str, ...] = ()


# --- the guarded packages -------------------------------------------------------------------------


def guarded(installed: Mapping[str, str]) -> dict[str, str]:
    """Maps the installed torch and the packages built for it to their exact versions, torch first.

    Raises Unsatisfiable if torch is not installed. A package whose version is invalid cannot be
    pinned, so it is left out.

    >>> guarded({"numpy": "2.0", "torchvision": "0.28.0+cpu", "torch": "2.13.0+cpu"})
    {'torch': '2.13.0+cpu', 'torchvision': '0.28.0+cpu'}
    """
    pins: dict[str, str] = {}
    for name in sorted(installed, key=lambda name: (name != "torch", name)):
        if name not in FAMILY and companion_table().project(name) is None:
            continue
        try:
            # The name of a metadata folder has `_` instead of `+` before the local label.
            version = Version(installed[name].replace("_", "."))
        except ValueError:
            continue
        pins[name] = str(version)
    if "torch" not in pins:
        raise Unsatisfiable(
            "This environment has no torch to guard",
            hint="install it first: `gpusetup install`",
        )
    return pins


def constraints_of_pip(prefix: Path) -> list[str]:
    """The constraints files that the environment's pip reads now, as pip itself lists them; empty
    without pip."""
    command = (str(prefix / PYTHON_IN), "-m", "pip", "config", "list")
    # pip prints `install.constraint='a.txt'`, quoted as Python does.
    lines = run(command, timeout=PIP_SECONDS).stdout.splitlines()
    named = dict(line.split("=", 1) for line in lines if "=" in line)
    # pip's own order: its settings for one command count more than those for all.
    for key in (":env:.constraint", "install.constraint", "global.constraint"):
        with suppress(ValueError, SyntaxError):
            if key in named:
                return str(ast.literal_eval(named[key])).split()
    return []


def named_in_lists(path: Path) -> str:
    """A path in the form that pip's and uv's space-separated lists need: as a URL if it contains a
    space."""
    has_space = len(str(path).split()) > 1
    return path.as_uri() if has_space else str(path)


# --- writing and removing the files ---------------------------------------------------------------


def planned(
    prefix: Path, pins: Mapping[str, str], when: str
) -> tuple[tuple[GuardFile, ...], tuple[str, ...]]:
    """The guard's files that are missing or outdated in an environment (the constraints file, and
    pip's configuration), and notes on files that the user must change.

    Each note says what to write into such a file. If its lines are already there, there is no note.
    """
    files: list[GuardFile] = []
    notes: list[str] = []
    ours = named_in_lists(prefix / CONSTRAINTS)
    # The setting in pip's file overrides the same setting in its other files, so also name their
    # constraints here.
    others = [file for file in constraints_of_pip(prefix) if file != ours]
    of_pip = ("[install]", f"constraint = {' '.join((*others, ours))}")
    exact = tuple(f"{name}=={version}" for name, version in pins.items())
    for path, rows in ((prefix / CONSTRAINTS, exact), (prefix / PIP_FILE, of_pip)):
        text = "\n".join((f"{MARK}, {when}: from here", *rows, f"{MARK}: to here", ""))
        before = _text_of(path)
        if before is None or is_guard(before):
            # The first line contains the date, which does not count as a difference.
            if (before or "").partition("\n")[2] != text.partition("\n")[2]:
                files.append(GuardFile(path=str(path), text=text))
        elif not all(row in before for row in rows):
            notes.append(f"{path} is yours and stays; write this into it: {' '.join(rows)}")
    return tuple(files), tuple(notes)


def _text_of(path: Path) -> str | None:
    """The text of a regular file; None if it does not exist. Raises Blocked for a link or an
    unreadable file."""
    if path.is_symlink():
        raise Blocked(
            f"{path} is a symbolic link", hint="nothing was changed; look at the file first"
        )
    try:
        return named_file.read(path, MOST_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise Blocked(f"{path} cannot be read: {problem.strerror}") from problem


def is_guard(text: str) -> bool:
    """Whether the guard wrote this text, and no other lines were added."""
    _, _, last_line = text.rstrip().rpartition("\n")
    return text.startswith(MARK) and last_line == f"{MARK}: to here"


def write(files: Iterable[GuardFile]) -> None:
    for file in files:
        hint = "run it as the owner of the file; `gpusetup guard --undo` takes back the rest"
        with blocked_by_files(f"{file.path} cannot be written", hint):
            write_safely(Path(file.path), file.text)


def undo(prefix: Path) -> tuple[str, ...]:
    """Remove the guard's files and return their paths. pip's configuration goes first, because it
    names the constraints file."""
    files = (prefix / PIP_FILE, prefix / CONSTRAINTS)
    ours = [path for path in files if not path.is_symlink() and is_guard(_text_of(path) or "")]
    for path in ours:
        with blocked_by_files(f"{path} cannot be removed", "`gpusetup guard --undo` again goes on"):
            path.unlink()
    return tuple(map(str, ours))
