"""Starts the child that samples NVML, before anything else is imported: it takes its time."""

from __future__ import annotations

import sys
from pathlib import Path

from gpusetup.system.processes import Lines

INSIDE = Path(__file__).resolve().parent.parent / "child_scripts"
HOLD_BACK, SCRIPT = (str(INSIDE / name) for name in ("hold_back.py", "read_nvml.py"))


def start_nvml(interval: float, count: int = 0) -> Lines:
    """`child_scripts/read_nvml.py` in our own interpreter; `count` 0: until it is ended."""
    return Lines((sys.executable, "-I", HOLD_BACK, SCRIPT, f"{interval:g}", str(count)))
