"""The files that gpusetup stores in the environment.

They are the journal of an interrupted installation and the receipt of the last one.
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
        if event.kind == "install-unfinished":
            prefix = event.values.get("prefix") or "the environment"
            half_made = "half_made" in event.values
            command = how_to_end(prefix, machine.os.family, half_made=half_made)
            sentences.append(f"{interruption(prefix)}; {command}.")
    return tuple(sentences)


def unfinished_events(system: System, target: TargetPython | None) -> Iterator[Event]:
    """An event for each interrupted installation, whose journal is left.

    The journal is in the target, or in an unfinished environment in the working folder.
    """
    found: dict[str, dict[str, str]] = {}
    if target is not None and exists(system, join(target.prefix, *JOURNAL)):
        found = {target.prefix: {}}
    # Look for unfinished environments only if the user neither named nor activated an environment.
    elif target is None or target.chosen_by not in ("--python", "VIRTUAL_ENV", "CONDA_PREFIX"):
        found = {prefix: {"half_made": "yes"} for prefix in half_made_environments(system)}
    for prefix, more in found.items():
        path = join(prefix, *JOURNAL)
        if exists(system, path):
            values = {"path": path, "prefix": prefix, **more}
            yield Event(kind="install-unfinished", values=values, source="journal", text=path)


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


RECEIPT = (".gpusetup", "receipt.json")
MOST_CHARACTERS = 1 << 18
"""The maximum length of a receipt, in characters. A longer file is not gpusetup's."""

DATE = re.compile(r"(\d{4}-\d\d-\d\d)T")
VERSION = re.compile(r"[\w.+!-]{1,99}")


class _Receipt(Frozen):
    """The fields of an installation's receipt that show what was installed."""

    installed_at: str = ""
    after: Mapping[str, str] = {}
    verdict: Mapping[str, object] | None = None


def receipt_events(system: System, target: TargetPython | None) -> Iterator[Event]:
    """An event with the versions of torch and its companions that gpusetup installed, and with the
    date if it is known. Anybody may have written the receipt, so what is no version is ignored."""
    if target is None:
        return
    text = read_or_none(system, join(target.prefix, *RECEIPT)) or "{}"
    try:
        receipt = from_json(text[:MOST_CHARACTERS], _Receipt, what="the receipt")
    except BadInput:
        return
    installed = {name: receipt.after[name] for name in FAMILY if name in receipt.after}
    pins = [f"{name}=={of}" for name, of in installed.items() if VERSION.fullmatch(of)]
    if "torch" in installed and pins:
        passed = receipt.verdict is not None and receipt.verdict.get("verdict") == "passed"
        # `how` says where the versions come from: installed and tested, or installed.
        values = {"pins": " ".join(pins), "how": "proven" if passed else "installed"}
        if date := DATE.match(receipt.installed_at):
            values["when"] = date[1]
        yield Event(kind="guarded-set", values=values, source=RECEIPT[-1], text=values["pins"])
