"""Every machine of `tests/machines` by its short name; eight of them ship as examples."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from gpusetup.model.machine import Snapshot
from gpusetup.probe.saved import FIRST, load_snapshot

MACHINES = Path(__file__).resolve().parent / "machines"


@cache
def _files() -> dict[str, Path]:
    named = {json.loads(f.read_text())["example"]: f for f in MACHINES.glob("*/machine.json")}
    return {name: named[name].with_name("snapshot.json") for name in named if name}


def example_machines() -> tuple[str, ...]:
    """Their names, the laptop's first."""
    return tuple(sorted(_files(), key=lambda name: (name != FIRST, name)))


def there(name: str) -> str:
    """What `--from` takes for a machine that may not ship."""
    return str(_files()[name])


def machine_named(name: str) -> Snapshot:
    return load_snapshot(there(name))
