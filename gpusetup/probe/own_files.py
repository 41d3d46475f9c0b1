"""The files that gpusetup stores in the environment.

They are the journal of an interrupted installation, the receipt of the last one, and the
constraints of `guard`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpusetup.errors import BadInput
from gpusetup.model.builds import FAMILY
from gpusetup.model.codec import from_json
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Event, Snapshot
from gpusetup.model.shell import shell_line
from gpusetup.probe.target import TargetPython
from gpusetup.readings.packages import normalised
from gpusetup.readings.paths import join, parent
from gpusetup.system.own_cache import MAKING, own_path
from gpusetup.system.system import System, exists, list_or_empty, read_or_none

JOURNAL = (".gpusetup", "journal.json")
"""Where `install` keeps the journal of its current change, relative to the target's prefix."""


def interruption(prefix: str) -> str:
    """The sentence which says that an installation into this environment was interrupted."""
    return f"An installation into {prefix} was interrupted"


def how_to_end(prefix: str, family: str | None, *, half_made: bool = False) -> str:
    """A clause with the command that finishes an interrupted installation.

    `half_made` means that the environment itself is unfinished, so that it has no interpreter yet.
    """
    option = "--venv" if half_made else "--python"
    line = shell_line(("gpusetup", "install", option, prefix), family)
    return f"`{line}` ends it first"


def interruptions(machine: Snapshot) -> tuple[str, ...]:
    """A sentence for each interrupted installation on the machine, with the command that finishes
    it."""
    sentences = []
    for event in machine.events:
        if event.kind != "install-unfinished":
            continue
        prefix = event.values.get("prefix") or "the environment"
        half_made = "half_made" in event.values
        command = how_to_end(prefix, machine.os.family, half_made=half_made)
        sentences.append(f"{interruption(prefix)}; {command}.")
    return tuple(sentences)


def unfinished_events(system: System, target: TargetPython | None) -> Iterator[Event]:
    """An event for each interrupted installation.

    The journal is in the target, or in an unfinished environment in the working folder.
    """
    if target is not None and exists(system, join(target.prefix, *JOURNAL)):
        yield _unfinished(target.prefix)
        return
    # Look for unfinished environments only if the user neither named nor activated an environment.
    if target is not None and target.chosen_by in ("--python", "VIRTUAL_ENV", "CONDA_PREFIX"):
        return
    for prefix in half_made_environments(system):
        if exists(system, join(prefix, *JOURNAL)):
            yield _unfinished(prefix, half_made="yes")


def _unfinished(prefix: str, **more_values: str) -> Event:
    """The event for an interrupted installation in this environment, of which the journal is
    left."""
    path = join(prefix, *JOURNAL)
    values = {"path": path, "prefix": prefix}
    values.update(more_values)
    return Event(kind="install-unfinished", values=values, source="journal", text=path)


def half_made_environments(system: System) -> Iterator[str]:
    """The environments in the working folder that `install --venv` began to create but did not
    finish.

    Such a folder is not an environment yet, so no search for an interpreter finds it. But gpusetup
    has a note of it in its own cache.
    """
    working_folder = system.facts().get("cwd") or ""
    # Most folders contain no such environment. In that case, skip the import of platformdirs, which
    # finds our cache.
    folders = list_or_empty(system, working_folder)
    if not any(exists(system, join(working_folder, name, *JOURNAL)) for name in folders):
        return
    notes = str(own_path(MAKING))
    for name in list_or_empty(system, notes):
        prefix = (read_or_none(system, join(notes, name)) or "").strip()
        if working_folder and parent(prefix) == working_folder:
            yield prefix


CONSTRAINTS = "gpusetup-constraints.txt"
"""Where `guard --write` puts the constraints, relative to the target's prefix."""
RECEIPT = (".gpusetup", "receipt.json")
MOST_CHARACTERS = 1 << 16
"""The maximum length of a constraints file, in characters. A longer file is not gpusetup's."""
MOST_PINS = 100
DATE = re.compile(r"(?:# gpusetup guard, )?(\d{4}-\d\d-\d\d)T")
"""The date in the first line of the guard's file or in a receipt."""


class _Receipt(Frozen):
    """The fields of an installation's receipt that show what was installed."""

    installed_at: str = ""
    after: Mapping[str, str] = {}
    verdict: Mapping[str, object] | None = None


def guard_events(system: System, target: TargetPython | None) -> Iterator[Event]:
    """An event with the versions that `guard` pins or, without a guard, the versions that gpusetup
    installed, and with their date if it is known.

    There is no event if neither source names a torch. Anybody may have written these files, so
    lines that are not pins are ignored.
    """
    if target is None:
        return
    guard_text = _text_in(system, target, CONSTRAINTS)
    guarded = pins_in(guard_text)
    if _names_torch(guarded):
        yield _guard_event(CONSTRAINTS, guarded, "guarded", guard_text)
        return

    receipt = _receipt_in(system, target)
    installed = _installed_pins(receipt)
    if _names_torch(installed):
        passed = receipt.verdict is not None and receipt.verdict.get("verdict") == "passed"
        how = "proven" if passed else "installed"
        yield _guard_event(RECEIPT[-1], installed, how, receipt.installed_at)


def _text_in(system: System, target: TargetPython, *file: str) -> str:
    """The text of a file in the target's folder; empty if it cannot be read."""
    text = read_or_none(system, join(target.prefix, *file)) or ""
    # A receipt contains more than the versions, so allow more characters.
    return text[: 4 * MOST_CHARACTERS]


def _receipt_in(system: System, target: TargetPython) -> _Receipt:
    """The receipt of gpusetup's last installation; an empty one if there is none or it cannot be
    read."""
    text = _text_in(system, target, *RECEIPT)
    try:
        return from_json(text or "{}", _Receipt, what="the receipt")
    except BadInput:
        return _Receipt()


def _installed_pins(receipt: _Receipt) -> tuple[str, ...]:
    """The versions of torch, torchvision and torchaudio in a receipt, as pins."""
    lines = []
    for package in FAMILY:
        if package in receipt.after:
            lines.append(f"{package}=={receipt.after[package]}")
    return pins_in("\n".join(lines))


def _names_torch(pins: tuple[str, ...]) -> bool:
    """Whether torch itself is among the pins."""
    names = [pin.partition("==")[0] for pin in pins]
    return "torch" in names


def _guard_event(source: str, pins: tuple[str, ...], how: str, dated_text: str) -> Event:
    """The event for a set of pins. `how` says where they come from: `guarded` (by `guard`),
    `proven` (installed and tested) or `installed`."""
    text = " ".join(pins)
    values = {"pins": text, "how": how}
    date = DATE.match(dated_text)
    if date is not None:
        values["when"] = date[1]
    return Event(kind="guarded-set", values=values, source=source, text=text)


PIN = re.compile(
    r"(?m)^[ \t]*"
    # A name with or without extras, such as `jax[cuda13]`.
    r"([A-Za-z0-9][\w.-]{0,99})(?:\[[^\]\n]*\])?"
    r"[ \t]*==[ \t]*"
    r"([\w.+!-]{1,99})[ \t]*$"
)
"""A line with an exact version, such as `torch == 2.13.0+cu130`."""


def pins_in(text: str) -> tuple[str, ...]:
    """The exact pins in a constraints file; all other lines are ignored.

    >>> pins_in("# a\\nTorch == 2.13.0+cu130\\nnumpy<3\\n-r /etc/passwd\\ntorch @ file:///x\\n")
    ('torch==2.13.0+cu130',)
    """
    rows = PIN.findall(text[:MOST_CHARACTERS])
    pins = []
    for name, version in rows[:MOST_PINS]:
        pins.append(f"{normalised(name)}=={version}")
    return tuple(pins)
