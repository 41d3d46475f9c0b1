"""Every machine of `tests/machines` by its folder and by its short name; eight ship as examples.

A folder holds a tape or a snapshot, never both: what a tape plays is its snapshot, and a machine
that ships has its snapshot in the package.
"""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path

from tapes import ReplaySystem, Tape

from gpusetup.model.codec import from_json
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot
from gpusetup.probe.machine import read_machine
from gpusetup.probe.snapshot_files import MACHINES as SHIPPED
from gpusetup.probe.snapshot_files import dump_snapshot, load_snapshot

MACHINES = Path(__file__).resolve().parents[1] / "machines"
ABOUT = {file.parent: json.loads(file.read_text()) for file in MACHINES.glob("*/machine.json")}
FOLDERS = tuple(sorted(ABOUT))
NAMED = {str(about["example"]): folder for folder, about in ABOUT.items() if about["example"]}


def played(folder: Path) -> Snapshot:
    """What the readers make of a folder's tape."""
    tape = from_json((folder / "tape.json").read_bytes(), Tape, what=str(folder))
    return replace(read_machine(ReplaySystem(tape)), origin=ABOUT[folder]["origin"])


@cache
def file_of(folder: Path) -> Path:
    """A file with the snapshot of a machine: as it ships, as it is kept, or as its tape plays."""
    shipped = SHIPPED / f"{ABOUT[folder]['example']}.json"
    kept = next((file for file in (shipped, folder / "snapshot.json") if file.exists()), None)
    if kept is None:
        kept = Path(_place().name) / f"{folder.name}.json"
        kept.write_text(dump_snapshot(played(folder)), encoding="utf-8")
    return kept


@cache
def _place() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


@cache
def snapshot_of(folder: Path) -> Snapshot:
    return load_snapshot(file_of(folder))


def snapshots() -> dict[str, Snapshot]:
    """Every machine by its folder's name."""
    return {folder.name: snapshot_of(folder) for folder in FOLDERS}


def example_machines() -> tuple[str, ...]:
    """Their short names."""
    return tuple(sorted(NAMED))


def there(name: str) -> str:
    """What `--from` takes for a machine that may not ship."""
    return str(file_of(NAMED[name]))


def machine_named(name: str) -> Snapshot:
    return snapshot_of(NAMED[name])
