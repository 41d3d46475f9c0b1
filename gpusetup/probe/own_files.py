"""What gpusetup itself left in the target: the journal of an installation that was interrupted, the
receipt of the last one, and the constraints of `guard`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpusetup.errors import BadInput
from gpusetup.model.builds import FAMILY
from gpusetup.model.codec import from_json
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Event, Snapshot
from gpusetup.model.shell import shell_line
from gpusetup.probe.target import Target
from gpusetup.readings.packages import normalised
from gpusetup.readings.paths import join, parent
from gpusetup.system.own_cache import MAKING, own_path
from gpusetup.system.system import System, exists, list_or_empty, read_or_none

JOURNAL = (".gpusetup", "journal.json")
"""Where `install` keeps the journal of what it is doing, in the target's prefix."""


def interruption(prefix: str) -> str:
    return f"An installation into {prefix} was interrupted"


def how_to_end(prefix: str, family: str | None, *, half_made: bool = False) -> str:
    """The command that ends what was interrupted; `half_made`: the environment is not done."""
    option = "--venv" if half_made else "--python"
    argv = ("gpusetup", "install", option, prefix)
    return f"`{shell_line(argv, family)}` ends it first"


def interruptions(machine: Snapshot) -> tuple[str, ...]:
    """A sentence for each installation that was interrupted on the machine, with what ends it."""
    sentences: list[str] = []
    for event in machine.events:
        if event.kind != "install-unfinished":
            continue
        prefix = event.values.get("prefix") or "the environment"
        half_made = "half_made" in event.values
        way_on = how_to_end(prefix, machine.os.family, half_made=half_made)
        sentences.append(f"{interruption(prefix)}; {way_on}.")
    return tuple(sentences)


def unfinished_events(system: System, target: Target | None) -> Iterator[Event]:
    """The journals that installations left behind: in the target, and in environments that were
    only half made in the working folder."""
    if target is not None and exists(system, join(target.prefix, *JOURNAL)):
        yield _unfinished(target.prefix)
        return
    # Somebody who names or activates an environment does not mean one that was never finished.
    if target is not None and target.chosen_by in ("--python", "VIRTUAL_ENV", "CONDA_PREFIX"):
        return
    for prefix in half_made_environments(system):
        if exists(system, join(prefix, *JOURNAL)):
            yield _unfinished(prefix, half_made="yes")


def _unfinished(prefix: str, **more: str) -> Event:
    """The event of a journal in an environment."""
    path = join(prefix, *JOURNAL)
    values = {"path": path, "prefix": prefix, **more}
    return Event(kind="install-unfinished", values=values, source="journal", text=path)


def half_made_environments(system: System) -> Iterator[str]:
    """The environments of the working folder that `install --venv` began to make.

    Such a folder is no environment yet, so that no search for an interpreter finds it; our note of
    it, in our own cache, names it.
    """
    notes = str(own_path(MAKING))
    working_folder = system.facts().get("cwd") or ""
    for name in list_or_empty(system, notes):
        prefix = (read_or_none(system, join(notes, name)) or "").strip()
        if working_folder and parent(prefix) == working_folder:
            yield prefix


CONSTRAINTS = "gpusetup-constraints.txt"
"""Where `guard --write` puts the constraints, in the target's prefix."""
RECEIPT = (".gpusetup", "receipt.json")
MOST_CHARACTERS = 1 << 16
MOST_PINS = 100


class _Receipt(Frozen):
    installed_at: str = ""
    after: Mapping[str, str] = {}
    verdict: Mapping[str, object] | None = None


def guard_events(system: System, target: Target | None) -> Iterator[Event]:
    """What the guard's file pins, else what our last installation brought, and since when; nothing
    where neither names a torch. Anybody may have written them: what is no pin counts nothing."""
    if target is None:
        return
    guard, receipt = (
        (read_or_none(system, join(target.prefix, *file)) or "")[: 4 * MOST_CHARACTERS]
        for file in ((CONSTRAINTS,), RECEIPT)
    )
    try:
        last = from_json(receipt or "{}", _Receipt, what="the receipt")
    except BadInput:
        last = _Receipt()
    family = (name for name in FAMILY if name in last.after)
    installed = "\n".join(f"{name}=={last.after[name]}" for name in family)
    proven = (last.verdict or {}).get("verdict") == "passed"
    for source, pins, dated_text, how in (
        (CONSTRAINTS, pins_in(guard), guard, "guarded"),
        (RECEIPT[-1], pins_in(installed), last.installed_at, "proven" if proven else "installed"),
    ):
        if any(pin.startswith("torch==") for pin in pins):
            values = {"pins": " ".join(pins), "how": how}
            if date := re.match(r"(?:# gpusetup guard, )?(\d{4}-\d\d-\d\d)T", dated_text):
                values["when"] = date[1]
            yield Event(kind="guarded-set", values=values, source=source, text=values["pins"])
            return


def pins_in(text: str) -> tuple[str, ...]:
    """The exact pins of a constraints file; other lines count nothing.

    >>> pins_in("# a\\nTorch == 2.13.0+cu130\\nnumpy<3\\n-r /etc/passwd\\ntorch @ file:///x\\n")
    ('torch==2.13.0+cu130',)
    """
    name, version = r"([A-Za-z0-9][\w.-]{0,99})(?:\[[^\]\n]*\])?", r"([\w.+!-]{1,99})"
    row = rf"(?m)^[ \t]*{name}[ \t]*==[ \t]*{version}[ \t]*$"
    found = re.findall(row, text[:MOST_CHARACTERS])[:MOST_PINS]
    return tuple(f"{normalised(name)}=={version}" for name, version in found)
