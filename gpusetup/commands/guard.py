"""`gpusetup guard`: keeps installers from replacing torch and the packages that need it.

An environment gets a constraints file that pins torch and the packages built for it, and files that
make pip and uv read it. The guard only writes new files or its own. If other files need a change,
it tells the user which lines to add. `--undo` removes the guard's own files.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from packaging.version import Version

from gpusetup import named_file
from gpusetup.catalog.companion_table import companion_table
from gpusetup.commands.common import PYTHON, shared
from gpusetup.commands.question import CommandQuestion, switch
from gpusetup.commands.reply import Reply
from gpusetup.commands.reply import answer as reply
from gpusetup.errors import Blocked, Unsatisfiable
from gpusetup.install.switching.change import now
from gpusetup.install.switching.files import write_safely
from gpusetup.install.target import PYTHON_IN, check_target, distributions, layout_of, versions
from gpusetup.model.builds import FAMILY
from gpusetup.model.frozen import Frozen
from gpusetup.model.shell import own_setting
from gpusetup.probe.target import choose_target
from gpusetup.render.console import Console
from gpusetup.render.screen import (
    GREEN,
    OK,
    Screen,
    ScreenLine,
    command,
    facts,
    notes,
    section,
    verdict,
)
from gpusetup.system.processes import run as run_program
from gpusetup.system.refusals import blocked_by_files
from gpusetup.system.system import System
from gpusetup.uv.program import GUARD_FILE

SUMMARY = """Prevents pip and uv from replacing torch and the packages that need it. It
writes a constraints file, so that an installation fails if it would replace one of them. Without
`--write`, it only shows the file; `--undo` removes it."""

EXAMPLES = (
    "gpusetup guard",
    "gpusetup guard --write",
    "gpusetup guard --undo",
)
PIP_FILE = "pip.ini" if os.name == "nt" else "pip.conf"
PIP_SECONDS = 30.0
"""The time limit in seconds for pip, which lists its settings within a second."""
MOST_BYTES = 1 << 18
"""The maximum size of a file that is compared."""
MARK = "# gpusetup guard"
"""The start of the lines that mark what the guard wrote."""
State = Literal["shown", "written", "unchanged", "restored"]


class GuardQuestion(CommandQuestion):
    """Whether to show, write or remove the guard, and in which environment."""

    write: bool = switch(
        "write the constraints file and pip's setting into the environment", one_of="what"
    )
    undo: bool = switch("remove the files that the guard wrote", one_of="what")
    python: str | None = shared(PYTHON)


QUESTION = GuardQuestion


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


def run(question: GuardQuestion, out: Console) -> Reply:
    state: State = "unchanged"
    layout = layout_of(choose_target(System(), question.python).python)
    prefix = Path(layout.prefix)
    if question.write or question.undo:
        check_target(layout)
    if question.undo:
        files = _removed(prefix)
        state = "restored" if files else state
        answer = GuardAnswer(state=state, target=str(prefix), files=files)
        return reply(answer, guard_screen)
    pins = guarded(versions(distributions(layout)))
    files, notes = planned(prefix, pins, now())
    for file in files if question.write else ():
        hint = "run it as the owner of the file; `gpusetup guard --undo` takes back the rest"
        with blocked_by_files(f"{file.path} cannot be written", hint):
            write_safely(Path(file.path), file.text)
    if files:
        state = "written" if question.write else "shown"
    answer = GuardAnswer(
        state=state,
        target=str(prefix),
        pins=pins,
        files=files,
        uv=own_setting("UV_CONSTRAINT", named_in_lists(prefix / GUARD_FILE)),
        notes=notes,
    )
    return reply(answer, guard_screen)


def guard_screen(answer: GuardAnswer) -> Screen:
    """The screen for a guard's answer: the lines to add to each file, or the files that were
    written or removed."""
    pins = ", ".join(f"{name} {version}" for name, version in answer.pins.items())
    present_files = "the guard already" if pins else "no file of the guard"
    paths = ", ".join(file.path for file in answer.files)
    ends = {
        "written": ("Guarded", f": {pins} in {answer.target}"),
        "restored": ("Removed", f": {paths}"),
        "unchanged": ("Nothing to do", f": {answer.target} has {present_files}"),
    }
    if answer.state in ends:
        return Screen((verdict(OK, *ends[answer.state]), *notes(answer.notes)))
    lines: list[str] = [*facts({"environment": answer.target, "guarded": pins})]
    for file in answer.files:
        # Leave out the first and the last line, which only mark where the guard's lines begin and
        # end.
        added_lines = file.text.splitlines()[1:-1]
        rows = [ScreenLine("  ", (f"+ {line}", GREEN), whole=True) for line in added_lines]
        lines += section(file.path, rows)
    if answer.uv:
        lines += section("`uv pip` reads only UV_CONSTRAINT", [command(answer.uv)])
    next_step = section(
        "Nothing was changed. To write these lines", [command("gpusetup guard --write")]
    )
    return Screen((*lines, *notes(answer.notes), *next_step))


# --- the guarded packages, and the files ----------------------------------------------------------


def guarded(installed: Mapping[str, str]) -> dict[str, str]:
    """Maps the installed torch and the packages built for it to their exact versions, torch first.

    Raises Unsatisfiable if torch is not installed. A package whose version is invalid cannot be
    pinned, so it is left out.

    >>> guarded({"numpy": "2.0", "torchvision": "0.28.0+cpu", "torch": "2.13.0+cpu"})
    {'torch': '2.13.0+cpu', 'torchvision': '0.28.0+cpu'}
    """
    pins: dict[str, str] = {}
    for name in sorted(installed, key=lambda name: (name != "torch", name)):
        if name in FAMILY or companion_table().project(name) is not None:
            with suppress(ValueError):
                # The name of a metadata folder has `_` instead of `+` before the local label.
                pins[name] = str(Version(installed[name].replace("_", ".")))
    if "torch" not in pins:
        raise Unsatisfiable(
            "This environment has no torch to guard",
            hint="install it first: `gpusetup install`",
        )
    return pins


def planned(
    prefix: Path, pins: Mapping[str, str], when: str
) -> tuple[tuple[GuardFile, ...], tuple[str, ...]]:
    """The guard's files that are missing or outdated in an environment (the constraints file, and
    pip's configuration), and notes on files that the user must change.

    Each note says what to write into such a file. If its lines are already there, there is no note.
    """
    files: list[GuardFile] = []
    notes: list[str] = []
    ours = named_in_lists(prefix / GUARD_FILE)
    # The setting in pip's file overrides the same setting in its other files, so also name their
    # constraints here.
    others = [file for file in _constraints_of_pip(prefix) if file != ours]
    of_pip = ("[install]", f"constraint = {' '.join((*others, ours))}")
    exact = tuple(f"{name}=={version}" for name, version in pins.items())
    for path, rows in ((prefix / GUARD_FILE, exact), (prefix / PIP_FILE, of_pip)):
        text = "\n".join((f"{MARK}, {when}: from here", *rows, f"{MARK}: to here", ""))
        before = _text_of(path)
        if before is None or _is_ours(before):
            # The first line contains the date, which does not count as a difference.
            if (before or "").partition("\n")[2] != text.partition("\n")[2]:
                files.append(GuardFile(path=str(path), text=text))
        elif not all(row in before for row in rows):
            notes.append(f"{path} is yours and stays; write this into it: {' '.join(rows)}")
    return tuple(files), tuple(notes)


def _constraints_of_pip(prefix: Path) -> list[str]:
    """The constraints files that the environment's pip reads now, as pip itself lists them; empty
    without pip."""
    words = (str(prefix / PYTHON_IN), "-m", "pip", "config", "list")
    # pip prints `install.constraint='a.txt'`, quoted as Python does.
    lines = run_program(words, timeout=PIP_SECONDS).stdout.splitlines()
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
    return path.as_uri() if len(str(path).split()) > 1 else str(path)


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


def _is_ours(text: str) -> bool:
    """Whether the guard wrote this text, and no other lines were added."""
    _, _, last_line = text.rstrip().rpartition("\n")
    return text.startswith(MARK) and last_line == f"{MARK}: to here"


def _removed(prefix: Path) -> tuple[GuardFile, ...]:
    """The guard's files, after removing them. pip's configuration goes first, because it names the
    constraints file."""
    files = (prefix / PIP_FILE, prefix / GUARD_FILE)
    ours = [path for path in files if not path.is_symlink() and _is_ours(_text_of(path) or "")]
    for path in ours:
        with blocked_by_files(f"{path} cannot be removed", "`gpusetup guard --undo` again goes on"):
            path.unlink()
    return tuple(GuardFile(path=str(path), text="") for path in ours)
