"""An installation of gpusetup's own that was interrupted and is not ended yet."""

from __future__ import annotations

from gpusetup.model.machine import Event, Snapshot
from gpusetup.model.shell import shell_line
from gpusetup.probe.target import Target
from gpusetup.readings.paths import join
from gpusetup.system.system import System, exists

JOURNAL = (".gpusetup", "journal.json")
"""Where `install` keeps the journal of what it is doing, in the target's prefix."""


def interrupted(prefix: str) -> str:
    return f"An installation into {prefix} was interrupted"


def ended_by(prefix: str, family: str | None) -> str:
    """The command that ends what was interrupted."""
    argv = ("gpusetup", "install", "--python", prefix)
    return f"`{shell_line(argv, family)}` ends it first"


def unfinished(machine: Snapshot) -> tuple[str, ...]:
    """A sentence for each installation that was interrupted on the machine, with what ends it."""
    found = (one.values for one in machine.events if one.kind == "install-unfinished")
    return tuple(
        f"{interrupted(prefix)}; {ended_by(prefix, machine.os.family)}."
        for values in found
        if (prefix := values.get("prefix", "the environment"))
    )


def unfinished_install(system: System, target: Target | None) -> tuple[Event, ...]:
    """The journal that an installation left behind."""
    path = join(target.prefix, *JOURNAL) if target else ""
    if target is None or not exists(system, path):
        return ()
    values = {"path": path, "prefix": target.prefix}
    return (Event(kind="install-unfinished", values=values, source="journal", text=path),)
