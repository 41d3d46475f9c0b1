"""An installation of gpusetup's own that was interrupted and is not ended yet."""

from __future__ import annotations

from gpusetup.errors import BadInput
from gpusetup.model.codec import from_json
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Event, Snapshot
from gpusetup.model.shell import shell_line
from gpusetup.probe.target import Target
from gpusetup.readings.paths import join
from gpusetup.system.system import System, read_or_none

JOURNAL = (".gpusetup", "journal.json")
"""Where `install` keeps the journal of what it is doing, in the target's prefix."""


WHILE = {
    "making": "the environment was being made",
    "staging": "the new files were being unpacked next to it",
    "moving": "the previous files were being moved aside",
    "installing": "the new files were being installed",
    "verifying": "the new state was being verified",
    "keeping": "the new state was being kept",
}
"""What happened in each phase of a journal."""


def interrupted(prefix: str, phase: str) -> str:
    """What was interrupted, and while what.

    >>> interrupted("/e", "moving")
    'An installation into /e was interrupted while the previous files were being moved aside'
    """
    during = f" while {WHILE[phase]}" if phase in WHILE else ""
    return f"An installation into {prefix} was interrupted{during}"


def ended_by(prefix: str, family: str | None) -> str:
    """The command that ends what was interrupted."""
    argv = ("gpusetup", "install", "--python", prefix)
    return f"`{shell_line(argv, family)}` ends it first"


def unfinished(machine: Snapshot) -> tuple[str, ...]:
    """A sentence for each installation that was interrupted on the machine, with what ends it."""
    found = (one.values for one in machine.events if one.kind == "install-unfinished")
    return tuple(
        f"{interrupted(prefix, values.get('phase', ''))}; {ended_by(prefix, machine.os.family)}."
        for values in found
        if (prefix := values.get("prefix", "the environment"))
    )


def unfinished_install(system: System, target: Target | None) -> tuple[Event, ...]:
    """The journal that an installation left behind: in which phase it stopped."""
    if target is None:
        return ()
    path = join(target.prefix, *JOURNAL)
    text = read_or_none(system, path)
    if text is None:
        return ()
    try:
        phase = from_json(text, _Journal, what=path).phase
    except BadInput:  # one that cannot be read is unfinished all the same
        phase = "unknown"
    values = {"path": path, "prefix": target.prefix, "phase": phase}
    said = f"{path}: stopped while {phase}"
    return (Event(kind="install-unfinished", values=values, source="journal", text=said),)


class _Journal(Frozen):
    phase: str = "unknown"
