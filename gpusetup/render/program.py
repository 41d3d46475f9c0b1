"""What the person types to start gpusetup: its name if their shell finds it, else its file."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

NAME, UV = "gpusetup", "uv"
OF_ANOTHER_MACHINE = ("--from", "--report", "--os")
"""Options whose answer is for another machine, where the name is all we know."""
TYPED: dict[str, str] = {}
"""A program of an answer -> what starts it here; empty where the answer is for elsewhere."""


def set_program(words: Sequence[str]) -> None:
    """Remember how this process was started, if its name alone would not start it again, and where
    its uv lies, if the person's shell finds none."""
    from shutil import which

    from gpusetup.model.shell import own_line

    if any(one.startswith(OF_ANOTHER_MACHINE) for one in words):
        return
    started, found = sys.argv[0], which(NAME)
    there = found and os.path.exists(started) and os.path.samefile(found, started)  # noqa: PTH110, PTH121
    argv = (sys.executable, "-m", NAME) if started.endswith("__main__.py") else (started,)
    TYPED[NAME] = NAME if there else own_line(*argv)
    own = os.path.dirname(sys.executable)  # noqa: PTH120
    beside = which(UV, path=f"{own}{os.pathsep}{own}{os.sep}Scripts")
    if beside and not which(UV):
        TYPED[UV] = own_line(os.path.splitext(beside)[0])  # noqa: PTH122


def as_typed(line: str) -> str:
    """A line of an answer, with gpusetup and uv as this person starts them."""
    first, space, rest = line.partition(" ")
    typed = f"{TYPED.get(first, first)}{space}{rest}"
    return _begun_in(os.getcwd(), typed) if typed[:3] == '& "' else typed  # noqa: PTH109


def _begun_in(folder: str, line: str) -> str:
    """A line of PowerShell whose program lies below the folder that one is in: cmd takes it too.

    >>> _begun_in("C:/my env", '& "C:\\\\my env\\\\.venv\\\\python.exe" -m pip')
    '.venv\\\\python.exe -m pip'
    """
    from pathlib import PureWindowsPath

    from gpusetup.model.shell import A_COMMAND

    found = re.match(r'& "([^"]+)"', line)
    if found is None or not PureWindowsPath(found[1]).is_relative_to(folder):
        return line
    near = str(PureWindowsPath(found[1]).relative_to(folder))
    named = near if "\\" in near else f".\\{near}"
    return f"{named}{line[found.end() :]}" if re.fullmatch(A_COMMAND, named) else line
