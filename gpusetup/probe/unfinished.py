"""An installation of gpusetup's own that was interrupted and is not ended yet."""

from __future__ import annotations

from gpusetup.model.machine import Event
from gpusetup.probe.target import Target
from gpusetup.readings.paths import join
from gpusetup.system.system import System

JOURNAL = (".gpusetup", "journal.json")
"""Where `install` keeps the journal of what it is doing, in the target's prefix."""


def unfinished_install(system: System, target: Target | None) -> tuple[Event, ...]:
    """The journal that an installation left behind: in which phase it stopped."""
    if target is None:
        return ()
    path = join(join(target.prefix, JOURNAL[0]), JOURNAL[1])
    try:
        text = system.read(path)
    except OSError:
        return ()
    values = {"path": path, "prefix": target.prefix, "phase": phase_in(text)}
    said = f"{path}: stopped while {values['phase']}"
    return (Event(kind="install-unfinished", values=values, source="journal", text=said),)


def phase_in(text: str) -> str:
    """The phase that a journal names; one that cannot be read is unfinished all the same.

    >>> phase_in('{"phase": "moving"}'), phase_in("[]")
    ('moving', 'unknown')
    """
    import json

    try:
        journal = json.loads(text)
    except (ValueError, RecursionError):
        return "unknown"
    return str(journal.get("phase", "unknown")) if isinstance(journal, dict) else "unknown"
