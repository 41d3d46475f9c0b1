"""What Windows makes of the folder that an installation changes."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.errors import Blocked
from gpusetup.model.machine import Snapshot

MOST = 260
"""Characters of a path, where long paths are not switched on (Microsoft, Maximum Path Length)."""
INSIDE = 138
"""Those from `\\Lib` on of torch 2.13's longest file that a program opens (its RECORD)."""


def is_base(machine: Snapshot) -> bool:
    """Whether the target is Windows' own Python. On Linux such a one says itself who manages it."""
    return machine.os.family == "windows" and machine.python.manager == "system"


def refuse_unnamed_base(machine: Snapshot, way: str) -> None:
    """`Blocked` where nobody named that as the target: gpusetup merely runs in it."""
    if is_base(machine) and machine.python.chosen_by == "self":
        raise Blocked(
            f"{machine.python.prefix} is the system's own Python, not an environment",
            hint=f"use your own environment: `{way}`; `--python` names this one",
        )


def notes_of_place(machine: Snapshot) -> Iterator[str]:
    """What a person should know of it before it is changed."""
    prefix = machine.python.prefix or ""
    if machine.os.family == "windows" and len(prefix) + INSIDE > MOST:
        yield (
            f"paths in {prefix} will be longer than {MOST} characters, which Windows opens only "
            "where long paths are switched on: take a shorter folder"
        )
    if is_base(machine):
        yield f"{prefix} is no environment: this changes the system's own Python"
