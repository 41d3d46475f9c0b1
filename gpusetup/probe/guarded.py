"""The set that stood in the target when it was guarded, or installed by us."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.model.machine import Event
from gpusetup.probe.target import Target
from gpusetup.readings.paths import join
from gpusetup.system.system import System, read_or_none

CONSTRAINTS = "gpusetup-constraints.txt"
"""Where `guard --write` puts the constraints, in the target's prefix."""
MOST_CHARACTERS = 1 << 16
MOST_PINS = 100


def guarded_set(system: System, target: Target | None) -> tuple[Event, ...]:
    """What the guard's file pins, and since when; nothing of a file that pins no torch."""
    if target is None:
        return ()
    text = read_or_none(system, join(target.prefix, CONSTRAINTS))
    pins = pins_in(text or "")
    if not any(pin.startswith("torch==") for pin in pins):
        return ()
    dated = re.search(r"\A# gpusetup guard, (\d{4}-\d\d-\d\d)T", text or "")
    values = {"pins": " ".join(pins), **({"when": dated[1]} if dated else {})}
    return (Event(kind="guarded-set", values=values, source=CONSTRAINTS, text=values["pins"]),)


def pins_in(text: str) -> tuple[str, ...]:
    """The exact pins of a constraints file, as packaging writes them; other lines count nothing.

    >>> pins_in("# a\\nTorch == 2.13.0+cu130\\nnumpy<3\\n-r /etc/passwd\\ntorch @ file:///x\\n")
    ('torch==2.13.0+cu130',)
    """
    lines = text[:MOST_CHARACTERS].splitlines()
    return tuple(pin for line in lines[: 2 * MOST_PINS] for pin in _pin(line))[:MOST_PINS]


def _pin(line: str) -> Iterator[str]:
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name
    from packaging.version import InvalidVersion, Version

    if "==" not in line or line.lstrip().startswith("#") or len(line) > 200:
        return
    try:
        found = Requirement(line)
        clauses = [(one.operator, Version(one.version)) for one in found.specifier]
    except (InvalidRequirement, InvalidVersion):
        return
    if found.url is None and found.marker is None and [op for op, _ in clauses] == ["=="]:
        yield f"{canonicalize_name(found.name)}=={clauses[0][1]}"
