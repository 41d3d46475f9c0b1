"""The set that stood in the target when it was guarded, or installed by us."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

from gpusetup.model.machine import Event
from gpusetup.probe.target import Target
from gpusetup.readings.packages import INSTALLERS
from gpusetup.readings.paths import join
from gpusetup.system.system import System, list_or_empty, read_or_none

CONSTRAINTS = "gpusetup-constraints.txt"
"""Where `guard --write` puts the constraints, in the target's prefix."""
MOST_CHARACTERS = 1 << 16
MOST_PINS = 100


def guarded_set(system: System, target: Target | None) -> tuple[Event, ...]:
    """What the guard's file pins, else what our last installation brought, and since when; nothing
    where neither names a torch. Of a torch that is another now: who put it there, when and with
    what."""
    if target is None:
        return ()
    text = read_or_none(system, join(target.prefix, CONSTRAINTS)) or ""
    dated = re.search(r"\A# gpusetup guard, (\d{4}-\d\d-\d\d)T", text)
    found = (pins_in(text), dated[1] if dated else "", "guarded", CONSTRAINTS)
    tool, named = _tool(system, target)
    if not _names_torch(found[0]):
        found = _received(system, target)
    if not _names_torch(found[0]):
        found = (named, "", "named", TOOL_RECEIPT)
    pins, when, how, source = found
    if not _names_torch(pins):
        return ()
    values = {"pins": " ".join(pins), "how": how, "when": when, "tool": tool}
    values = {key: value for key, value in values.items() if value}
    values |= replaced(system, target, pins)
    return (Event(kind="guarded-set", values=values, source=source, text=values["pins"]),)


def _names_torch(pins: tuple[str, ...]) -> bool:
    return any(pin.startswith("torch==") for pin in pins)


def _tool(system: System, target: Target) -> tuple[str, tuple[str, ...]]:
    """The tool whose environment the target is, and the versions that its receipt names; ("", ())
    for any other environment."""
    from gpusetup.configs.toml_text import read_toml
    from gpusetup.errors import BadInput

    text = read_or_none(system, join(target.prefix, TOOL_RECEIPT)) or ""
    rows: dict[object, dict[object, str]] = {}
    try:
        for one in read_toml(text[: 4 * MOST_CHARACTERS], TOOL_RECEIPT) if text else ():
            if one.path[:2] == ("tool", "requirements") and len(one.path) == 4:
                rows.setdefault(one.path[2], {})[one.path[3]] = one.text
    except BadInput:
        return "", ()
    names = [row.get("name", "") for row in rows.values()]
    lines = (f"{row.get('name', '')}{row.get('specifier', '')}" for row in rows.values())
    tool = names[0] if names and re.fullmatch(r"[A-Za-z0-9][\w.-]{0,100}", names[0]) else ""
    return tool, pins_in("\n".join(lines)) if tool else ()


def _received(system: System, target: Target) -> tuple[tuple[str, ...], str, str, str]:
    """What the receipt in the target says of torch and its companions; anybody may have written
    it: what is no pin counts nothing."""
    import json

    text = read_or_none(system, join(target.prefix, *RECEIPT)) or ""
    try:
        said = json.loads(text[: 4 * MOST_CHARACTERS]) if text else {}
        after = said.get("after", {})
        lines = "\n".join(f"{name}=={after[name]}" for name in FAMILY if name in after)
        day = re.match(r"\d{4}-\d\d-\d\d(?=T)", str(said.get("installed_at", "")))
        proven = (said.get("verdict") or {}).get("verdict") == "passed"
    except (ValueError, TypeError, AttributeError, RecursionError):
        return (), "", "", ""
    how = "proven" if proven else "installed"
    return pins_in(lines), day[0] if day else "", how, "receipt.json"


FAMILY = ("torch", "torchvision", "torchaudio")
RECEIPT = (".gpusetup", "receipt.json")
TOOL_RECEIPT = "uv-receipt.toml"
"""What `uv tool` was asked for, in the prefix of the tool's environment."""
TOGETHER_SECONDS = 300.0
"""Metadata that is written within so long came by one command."""
MOST_NAMED = 3
BROUGHT = ("pip", "setuptools", "wheel")
"""What comes with a new environment: it replaces nothing."""


def replaced(system: System, target: Target, pins: tuple[str, ...]) -> dict[str, str]:
    """Who put another torch there (`by`), on which day (`on`), asked for what (`with`); empty where
    it is the same, or nothing tells."""
    site = target.site_packages
    names = list_or_empty(system, site) if site else ()
    torch = [name for name in names if re.fullmatch(r"torch-[\w.!+]+\.dist-info", name)]
    pinned = next(pin.partition("==")[2] for pin in pins if pin.startswith("torch=="))
    if not site or len(torch) != 1 or torch[0] == f"torch-{pinned}.dist-info":
        return {}
    at = _written(system, join(site, torch[0]))
    if at is None:
        return {}
    asked = [
        name.removesuffix(".dist-info").partition("-")[0].replace("_", "-")
        for name in names
        if name.endswith(".dist-info")
        and name != torch[0]
        and "REQUESTED" in list_or_empty(system, join(site, name))
        and abs((_written(system, join(site, name)) or 0) - at) <= TOGETHER_SECONDS
    ]
    by = (read_or_none(system, join(site, torch[0], "INSTALLER")) or "")[:20].strip()
    day = time.strftime("%Y-%m-%d", time.gmtime(at))
    found = {"on": day, "by": by if by in INSTALLERS else ""}
    named = [name for name in asked if re.fullmatch(r"[A-Za-z0-9.-]{1,60}", name)]
    plain = [name for name in named if name.lower() not in BROUGHT]
    found["with"] = " ".join(plain[:MOST_NAMED])
    return {key: value for key, value in found.items() if value}


def _written(system: System, folder: str) -> float | None:
    """When a distribution's metadata was written."""
    try:
        return system.stat(join(folder, "RECORD")).mtime
    except OSError:
        return None


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
