"""What the person types to start gpusetup: its name if their shell finds it, else its file."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

NAME = "gpusetup"
OF_ANOTHER_MACHINE = ("--from", "--report")
"""Options whose answer is for another machine, where the name is all we know."""
TYPED = {NAME: NAME}


def set_program(words: Sequence[str]) -> None:
    """Remember how this process was started, if its name alone would not start it again."""
    from shutil import which

    from gpusetup.model.shell import shell_line

    started, found = sys.argv[0], which(NAME)
    if found and os.path.exists(started) and os.path.samefile(found, started):  # noqa: PTH110, PTH121
        return
    if not any(one.startswith(OF_ANOTHER_MACHINE) for one in words):
        by_module = (sys.executable, "-m", NAME)
        argv = by_module if started.endswith("__main__.py") else (started,)
        TYPED[NAME] = shell_line(argv, "windows" if os.name == "nt" else "linux")


def as_typed(line: str) -> str:
    """A line of an answer, with gpusetup as this person starts it."""
    first, space, rest = line.partition(" ")
    return f"{TYPED[NAME]}{space}{rest}" if first == NAME else line
