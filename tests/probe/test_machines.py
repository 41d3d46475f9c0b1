"""Every tape of `tests/machines/` is played to the readers; those that ship, byte for byte."""

from __future__ import annotations

from pathlib import Path

from each_row import each
from machines_named import ABOUT, FOLDERS, NAMED, played
from tapes import ReplaySystem, Tape

from gpusetup.probe.machine import read_machine
from gpusetup.probe.snapshot_files import example_machines, machine_named


@each("name", example_machines())
def test_an_example_machine_is_what_its_tape_plays(name: str) -> None:
    assert played(NAMED[name]) == machine_named(name)


@each("folder", FOLDERS)
def test_every_machine_says_what_it_is_and_is_kept_once(folder: Path) -> None:
    about = ABOUT[folder]
    assert about["origin"] in ("recorded", "composed")
    assert about["source"] and about["what"]
    assert len([folder / name for name in ("tape.json", "snapshot.json")
                if (folder / name).exists()]) == 1  # fmt: skip


def test_what_a_tape_does_not_hold_is_unknown_and_never_a_crash() -> None:
    for family in ("linux", "windows", "macos"):
        snapshot = read_machine(ReplaySystem(Tape(family=family)))
        assert snapshot.os.family == family
        assert snapshot.gpus in (None, ())
        assert snapshot.torch.version is None
