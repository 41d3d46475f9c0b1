"""What Windows makes of the folder that an installation changes."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.errors import Blocked
from gpusetup.model.machine import Snapshot


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
    if is_base(machine):
        yield f"{machine.python.prefix} is no environment: this changes the system's own Python"
