"""The set that stood in the target when it was guarded, or installed by us."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping

from gpusetup.errors import BadInput
from gpusetup.model.codec import from_json
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Event
from gpusetup.probe.target import Target
from gpusetup.readings.packages import INSTALLERS, normalised
from gpusetup.readings.paths import join
from gpusetup.system.system import System, list_or_empty, read_or_none

CONSTRAINTS = "gpusetup-constraints.txt"
"""Where `guard --write` puts the constraints, in the target's prefix."""
RECEIPT = (".gpusetup", "receipt.json")
TOOL_RECEIPT = "uv-receipt.toml"
"""What `uv tool` was asked for, in the prefix of the tool's environment."""
MOST_CHARACTERS = 1 << 16
MOST_PINS = 100


def guarded_set(system: System, target: Target | None) -> Iterator[Event]:
    """What the guard's file pins, else what our last installation brought, and since when; nothing
    where neither names a torch. Of a torch that is another now: who put it there, when and with
    what."""
    if target is None:
        return
    guard, receipt, receipt_of_tool = (
        (read_or_none(system, join(target.prefix, *file)) or "")[: 4 * MOST_CHARACTERS]
        for file in ((CONSTRAINTS,), RECEIPT, (TOOL_RECEIPT,))
    )
    dated = re.match(r"# gpusetup guard, (\d{4}-\d\d-\d\d)T", guard)
    asked = receipt_of_tool.partition("requirements = ")[2].partition("]\n")[0]
    rows = re.findall(r'name = "([A-Za-z0-9][\w.-]{0,100})"(?:[^}]*specifier = "([^"]*))?', asked)
    named = pins_in("\n".join(map("".join, rows)))
    for pins, when, how, source in (
        (pins_in(guard), dated[1] if dated else "", "guarded", CONSTRAINTS),
        _received(receipt),
        (named, "", "named", TOOL_RECEIPT),
    ):
        torch = next((pin for pin in pins if pin.startswith("torch==")), None)
        if torch is None:
            continue
        values = {"pins": " ".join(pins), "how": how, "when": when}
        values |= {"tool": rows[0][0] if rows else "", **_replaced(system, target, torch)}
        values = {key: value for key, value in values.items() if value}
        yield Event(kind="guarded-set", values=values, source=source, text=values["pins"])
        return


class _Receipt(Frozen):
    installed_at: str = ""
    after: Mapping[str, str] = {}
    verdict: Mapping[str, object] | None = None


def _received(text: str) -> tuple[tuple[str, ...], str, str, str]:
    """What the receipt in the target says of torch and its companions; anybody may have written
    it: what is no pin counts nothing."""
    try:
        said = from_json(text or "{}", _Receipt, what="the receipt")
    except BadInput:
        said = _Receipt()
    family = (name for name in ("torch", "torchvision", "torchaudio") if name in said.after)
    lines = "\n".join(f"{name}=={said.after[name]}" for name in family)
    day = re.match(r"\d{4}-\d\d-\d\d(?=T)", said.installed_at)
    proven = (said.verdict or {}).get("verdict") == "passed"
    how = "proven" if proven else "installed"
    return pins_in(lines), day[0] if day else "", how, RECEIPT[-1]


TOGETHER_SECONDS = 300.0
"""Metadata that is written within so long came by one command."""
MOST_NAMED = 3
BROUGHT = ("pip", "setuptools", "wheel")
"""What comes with a new environment: it replaces nothing."""


def _replaced(system: System, target: Target, pin: str) -> dict[str, str]:
    """Who put another torch there (`by`), on which day (`on`), asked for what (`with`); empty where
    it is the same, or nothing tells."""
    site = target.site_packages or ""
    names = [name for name in list_or_empty(system, site) if name.endswith(".dist-info")]
    torch = [name for name in names if name.startswith("torch-")]
    at = _written(system, join(site, torch[0])) if len(torch) == 1 else None
    if at is None or torch[0] == f"{pin.replace('==', '-')}.dist-info":
        return {}
    beside = []
    for info in names:
        name, folder = info.partition("-")[0].replace("_", "-"), join(site, info)
        plain = re.fullmatch(r"[A-Za-z0-9.-]{1,60}", name) and name.lower() not in BROUGHT
        asked = plain and info != torch[0] and "REQUESTED" in list_or_empty(system, folder)
        if asked and abs((_written(system, folder) or 0) - at) <= TOGETHER_SECONDS:
            beside.append(name)
    by = (read_or_none(system, join(site, torch[0], "INSTALLER")) or "").strip()
    day = time.strftime("%Y-%m-%d", time.gmtime(at))
    by = by if by in INSTALLERS else ""
    return {"on": day, "by": by, "with": " ".join(beside[:MOST_NAMED])}


def _written(system: System, folder: str) -> float | None:
    """When a distribution's metadata was written."""
    try:
        return system.stat(join(folder, "RECORD")).mtime
    except OSError:
        return None


def pins_in(text: str) -> tuple[str, ...]:
    """The exact pins of a constraints file; other lines count nothing.

    >>> pins_in("# a\\nTorch == 2.13.0+cu130\\nnumpy<3\\n-r /etc/passwd\\ntorch @ file:///x\\n")
    ('torch==2.13.0+cu130',)
    """
    name, version = r"([A-Za-z0-9][\w.-]{0,99})(?:\[[^\]\n]*\])?", r"([\w.+!-]{1,99})"
    row = rf"(?m)^[ \t]*{name}[ \t]*==[ \t]*{version}[ \t]*$"
    found = re.findall(row, text[:MOST_CHARACTERS])[:MOST_PINS]
    return tuple(f"{normalised(name)}=={version}" for name, version in found)
