"""What gpusetup itself left in the target: the journal of an installation that was interrupted, the
receipt of the last one, and the constraints of `guard`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpusetup.errors import BadInput
from gpusetup.model.codec import from_json
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Event, Snapshot
from gpusetup.model.shell import shell_line
from gpusetup.probe.target import Target
from gpusetup.readings.packages import normalised
from gpusetup.readings.paths import join
from gpusetup.system.system import System, exists, read_or_none

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


CONSTRAINTS = "gpusetup-constraints.txt"
"""Where `guard --write` puts the constraints, in the target's prefix."""
RECEIPT = (".gpusetup", "receipt.json")
MOST_CHARACTERS = 1 << 16
MOST_PINS = 100


class _Receipt(Frozen):
    installed_at: str = ""
    after: Mapping[str, str] = {}
    verdict: Mapping[str, object] | None = None


def guarded_set(system: System, target: Target | None) -> Iterator[Event]:
    """What the guard's file pins, else what our last installation brought, and since when; nothing
    where neither names a torch. Anybody may have written them: what is no pin counts nothing."""
    if target is None:
        return
    guard, receipt = (
        (read_or_none(system, join(target.prefix, *file)) or "")[: 4 * MOST_CHARACTERS]
        for file in ((CONSTRAINTS,), RECEIPT)
    )
    try:
        said = from_json(receipt or "{}", _Receipt, what="the receipt")
    except BadInput:
        said = _Receipt()
    family = (name for name in ("torch", "torchvision", "torchaudio") if name in said.after)
    brought = "\n".join(f"{name}=={said.after[name]}" for name in family)
    proven = (said.verdict or {}).get("verdict") == "passed"
    for source, pins, written, how in (
        (CONSTRAINTS, pins_in(guard), guard, "guarded"),
        (RECEIPT[-1], pins_in(brought), said.installed_at, "proven" if proven else "installed"),
    ):
        if any(pin.startswith("torch==") for pin in pins):
            values = {"pins": " ".join(pins), "how": how}
            if dated := re.match(r"(?:# gpusetup guard, )?(\d{4}-\d\d-\d\d)T", written):
                values["when"] = dated[1]
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
