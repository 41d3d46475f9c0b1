"""The environment of a tool: `uv tool` builds it from its receipt, whatever was installed since.

`uv tool upgrade` puts back what the receipt names (https://docs.astral.sh/uv/concepts/tools/), so a
torch that is to stay must be named there, which only `uv tool install` does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpusetup import named_file
from gpusetup.errors import BadInput
from gpusetup.install.settings.uv_config import parse_toml
from gpusetup.model.shell import own_line

RECEIPT = "uv-receipt.toml"
MOST_BYTES = 1 << 18
MOST_NEEDS = 100
FAMILY = ("torch", "torchvision", "torchaudio")


def tool_note(prefix: Path, pins: Mapping[str, str]) -> tuple[str, ...]:
    """What is to be known of a tool's environment, with the command that keeps `pins` in it; empty
    for any other environment."""
    try:
        text = named_file.read(prefix / RECEIPT, MOST_BYTES).decode("utf-8", "replace")
    except (OSError, BadInput):
        return ()
    argv = tool_command(text, pins)
    way = f"`{own_line(*argv)}` keeps it" if argv else f"its words stand in {RECEIPT}"
    return (
        f"{prefix} is a tool's environment: `uv tool upgrade` puts back what its receipt names; "
        f"{way}",
    )


def tool_command(text: str, pins: Mapping[str, str]) -> tuple[str, ...] | None:
    """`uv tool install` with what a receipt names and the pins; None where the receipt names what
    no word of a command says (an address, a folder), or nothing.

    >>> text = '[tool]\\nrequirements = [{ name = "comfy-cli" }, { name = "six" }]\\n'
    >>> " ".join(tool_command(text, {"torch": "2.13.0+cu130"}) or ())
    'uv tool install --torch-backend cu130 --with six --with torch==2.13.0+cu130 comfy-cli'
    """
    try:
        tool = parse_toml(text).get("tool")
    except (ValueError, RecursionError):
        return None
    rows = tool.get("requirements") if isinstance(tool, dict) else None
    if not isinstance(tool, dict) or not isinstance(rows, list) or not 0 < len(rows) <= MOST_NEEDS:
        return None
    words = [word(row) for row in rows]
    if None in words:
        return None
    python = tool.get("python")
    if isinstance(python, str) and re.fullmatch(r"[\w.@+-]{1,60}", python):
        chosen: tuple[str, ...] = ("--python", python)
    else:
        chosen = ()
    label = pins.get("torch", "").partition("+")[2]
    is_backend = re.fullmatch(r"cpu|cu\d{2,4}|xpu|rocm[\d.]+", label)
    backend = ("--torch-backend", label) if is_backend else ()
    others = [w for w in words[1:] if w and _name(w) not in pins]
    exact = [f"{name}=={version}" for name, version in pins.items() if name in FAMILY]
    withs = (part for one in (*others, *exact) for part in ("--with", one))
    return ("uv", "tool", "install", *chosen, *backend, *withs, words[0] or "")


def _name(requirement: str) -> str:
    return re.split(r"[\[=<>!~;]", requirement, maxsplit=1)[0]


def word(row: Any) -> str | None:
    """A requirement of a receipt as one word.

    >>> word({"name": "a", "extras": ["b"], "specifier": ">=1"}), word({"name": "a", "git": "x"})
    ('a[b]>=1', None)
    """
    if not isinstance(row, dict) or not set(row) <= {"name", "extras", "specifier"}:
        return None
    extras = row.get("extras", [])
    if not isinstance(extras, list) or not all(isinstance(one, str) for one in extras):
        return None
    said = f"{row.get('name', '')}{f'[{chr(44).join(extras)}]' if extras else ''}"
    said += str(row.get("specifier", ""))
    return said if re.fullmatch(r"[A-Za-z0-9][\w.\[\],<>=!~*+-]{0,300}", said) else None
