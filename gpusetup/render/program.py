"""What the person types to start gpusetup: its name if their shell finds it, else its file."""

from __future__ import annotations

import os
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
    return f"{TYPED.get(first, first)}{space}{rest}"
