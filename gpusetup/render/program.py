"""What the person types to start gpusetup and uv: the name if their shell finds it, else through
this Python."""

from __future__ import annotations

import sys
from collections.abc import Sequence

OF_ANOTHER_MACHINE = ("--from", "--report", "--os")
"""Options whose answer is for another machine, where the name is all we know."""
TYPED: dict[str, str] = {}
"""A program of an answer -> what starts it here; empty where the answer is for elsewhere."""


def set_program(words: Sequence[str]) -> None:
    """Remember what a person's shell does not find."""
    from shutil import which

    from gpusetup.model.shell import own_line

    if not any(one.startswith(OF_ANOTHER_MACHINE) for one in words):
        lacking = (name for name in ("gpusetup", "uv") if not which(name))
        TYPED.update({name: own_line(sys.executable, "-m", name) for name in lacking})


def as_typed(line: str) -> str:
    """A line of an answer, with gpusetup and uv as this person starts them."""
    first, space, rest = line.partition(" ")
    return f"{TYPED.get(first, first)}{space}{rest}"
