"""The journal that an interrupted installation leaves in the environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpusetup.model.machine import Event, Snapshot
from gpusetup.model.shell import shell_line
from gpusetup.probe.target import TargetPython
from gpusetup.readings.paths import join, parent
from gpusetup.system.own_cache import MAKING, own_path
from gpusetup.system.system import System, exists, list_or_empty, read_or_none

JOURNAL = (".gpusetup", "journal.json")
"""Where `install` keeps the journal of its current change, relative to the target's prefix."""
CHOSEN_BY_USER = ("--python", "VIRTUAL_ENV", "CONDA_PREFIX")
"""The choices of the target with which the user named or activated an environment."""


def interrupted(prefix: str, family: str | None, *, half_made: bool = False) -> tuple[str, str]:
    """What happened to this environment, and a clause with the command that finishes it.

    `half_made` means that the environment itself is unfinished, so that it has no interpreter yet.
    """
    option = "--venv" if half_made else "--python"
    line = shell_line(("gpusetup", "install", option, prefix), family)
    return f"An installation into {prefix} was interrupted", f"`{line}` ends it first"


def interruptions(machine: Snapshot) -> tuple[str, ...]:
    """A sentence for each interrupted installation, with the command that finishes it."""
    sentences = []
    for event in machine.events:
        if event.kind == "install-unfinished":
            prefix = event.values.get("prefix") or "the environment"
            half_made = "half_made" in event.values
            problem, command = interrupted(prefix, machine.os.family, half_made=half_made)
            sentences.append(f"{problem}; {command}.")
    return tuple(sentences)


def unfinished_events(system: System, target: TargetPython | None) -> Iterator[Event]:
    """An event for each interrupted installation, whose journal is left.

    The journal is in the target, or in an unfinished environment in the working folder.
    """
    is_named = target is not None and target.record.chosen_by in CHOSEN_BY_USER
    if target is not None and exists(system, join(target.prefix, *JOURNAL)):
        yield _unfinished(target.prefix, {})
    # Look for unfinished environments only if the user neither named nor activated an environment.
    elif not is_named:
        for prefix in _half_made(system):
            if exists(system, join(prefix, *JOURNAL)):
                yield _unfinished(prefix, {"half_made": "yes"})


def _unfinished(prefix: str, more_values: Mapping[str, str]) -> Event:
    path = join(prefix, *JOURNAL)
    values = {"path": path, "prefix": prefix, **more_values}
    return Event(kind="install-unfinished", values=values, source="journal", text=path)


def _half_made(system: System) -> Iterator[str]:
    """The environments in the working folder that `install --venv` did not finish.

    Such a folder is not an environment yet, so no search for an interpreter finds it. But gpusetup
    has a note of it in its own cache.
    """
    cwd = system.facts().get("cwd") or ""
    # Most folders contain none. Then skip the import of platformdirs, which finds our cache.
    if any(exists(system, join(cwd, name, *JOURNAL)) for name in list_or_empty(system, cwd)):
        notes = str(own_path(MAKING))
        for name in list_or_empty(system, notes):
            prefix = (read_or_none(system, join(notes, name)) or "").strip()
            if cwd and parent(prefix) == cwd:
                yield prefix
