"""Every folder of `tests/machines/` is played to the readers and compared with its snapshot."""

from __future__ import annotations

import json
from pathlib import Path

from each_row import each

from gpusetup.model.codec import from_json, to_json
from gpusetup.model.frozen import replace
from gpusetup.probe.machine import read_machine
from gpusetup.probe.saved import dump_snapshot, example_machines, load_snapshot, machine_named
from gpusetup.system.system import LiveSystem
from gpusetup.system.tape import RecordingSystem, ReplaySystem, Tape

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = sorted(path.parent for path in (ROOT / "tests" / "machines").glob("*/tape.json"))


def tape_of(folder: Path) -> Tape:
    return from_json((folder / "tape.json").read_bytes(), Tape, what=str(folder))


@each("folder", FOLDERS)
def test_a_machine_is_read_from_its_tape_as_expected(folder: Path, same_as_file) -> None:  # type: ignore[no-untyped-def]
    about = json.loads((folder / "machine.json").read_text())
    snapshot = replace(read_machine(ReplaySystem(tape_of(folder))), origin=about["origin"])
    same_as_file(dump_snapshot(snapshot), folder / "snapshot.json")


@each("folder", FOLDERS)
def test_every_machine_says_what_it_is_and_from_what_source(folder: Path) -> None:
    about = json.loads((folder / "machine.json").read_text())
    assert about["origin"] in ("recorded", "composed")
    assert about["source"] and about["what"]


def test_there_are_at_least_24_machines_and_the_laptop_is_the_first_example() -> None:
    assert len(FOLDERS) >= 24
    assert example_machines()[0] == "rtx3050-laptop"


@each("name", example_machines())
def test_every_example_machine_is_the_snapshot_of_one_of_the_folders(name: str) -> None:
    named = [f for f in FOLDERS if json.loads((f / "machine.json").read_text())["example"] == name]
    assert len(named) == 1
    assert machine_named(name) == load_snapshot(named[0] / "snapshot.json")


def test_the_laptop_is_as_the_contract_describes_it() -> None:
    laptop = machine_named("rtx3050-laptop")
    assert (laptop.os.name, laptop.driver.version, laptop.driver.cuda) == (
        "Windows 11",
        "581.29",
        "13.0",
    )
    assert laptop.gpus is not None
    assert laptop.gpus[0].name == "NVIDIA GeForce RTX 3050 Laptop GPU"
    assert laptop.gpus[0].memory_total_bytes == 4 << 30
    assert laptop.torch.backend == "cpu"
    assert (laptop.python.version or "").startswith("3.11")


def test_a_tool_environment_leaves_python_unknown_and_says_why() -> None:
    folder = next(folder for folder in FOLDERS if folder.name.endswith("pipx"))
    snapshot = read_machine(ReplaySystem(tape_of(folder)))
    assert snapshot.python.executable is None
    assert snapshot.torch.installed is None
    problem = next(r.problem for r in snapshot.readings if r.source == "target")
    assert problem is not None and "pipx" in problem


def test_a_recording_of_this_machine_plays_back_as_the_same_snapshot() -> None:
    recorder = RecordingSystem(LiveSystem())
    live = read_machine(recorder)
    tape = from_json(to_json(recorder.tape), Tape, what="the tape")
    assert read_machine(ReplaySystem(tape)) == live


def test_what_a_tape_does_not_hold_is_unknown_and_never_a_crash() -> None:
    for family in ("linux", "windows", "macos"):
        snapshot = read_machine(ReplaySystem(Tape(family=family)))
        assert snapshot.os.family == family
        assert snapshot.gpus in (None, ())
        assert snapshot.torch.version is None
