"""The environment of a tool: `uv tool` builds it from its receipt, whatever was installed since.

`uv tool upgrade` puts back what the receipt names (https://docs.astral.sh/uv/concepts/tools/), so a
torch that is to stay must be named there, which only `uv tool install` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

RECEIPT = "uv-receipt.toml"
FAMILY = ("torch", "torchvision", "torchaudio")


def tool_note(prefix: Path, pins: Mapping[str, str]) -> tuple[str, ...]:
    """What is to be known of a tool's environment; empty for any other environment."""
    if not (prefix / RECEIPT).is_file():
        return ()
    words = " ".join(f"--with {name}=={pins[name]}" for name in FAMILY if name in pins)
    label = pins.get("torch", "").partition("+")[2]
    backend = f"--torch-backend {label} " if label else ""
    return (
        f"{prefix} is a tool's environment: `uv tool upgrade` puts back what its receipt names. To "
        f"keep it, give `uv tool install` {backend}{words} besides all that {RECEIPT} names",
    )
