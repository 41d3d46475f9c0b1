"""uv's answers of any length, mirrors that lack a release, and an undo without a Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from installing import TORCH, WANTED, Install, World, needs_linux, versions_in

pytestmark = needs_linux

LONG = {
    "an extra": f"filelock[{'a' * 20_000}]>=99",
    "a chain of dots": f"filelock[a{'.a' * 10_000}]>=99",
    "a version": "filelock>=" + "1" * 5_000,
    "a list of versions": "filelock" + ",".join(f"!=1.{number}" for number in range(4_000)),
}


@pytest.mark.parametrize("word", LONG)
def test_a_message_of_any_length_ends_with_short_lines(
    world: World, install: Install, word: str
) -> None:
    world.add_torch("cpu")
    world.add_default("mine", "1.0", requires=(LONG[word], "missing"))
    said = install("--venv", "env", *WANTED, "mine")
    assert said.exit in (1, 3) and not Path("env").exists()
    assert max(map(len, said.err.split("\n"))) < 1_000


@pytest.mark.parametrize("bounds", [f">={TORCH}", f">={TORCH},<3", "<3"])
def test_a_range_gets_the_newest_torch_that_the_mirror_has(
    world: World, install: Install, bounds: str
) -> None:
    world.add_torch("cpu")
    words = ("--torch", bounds, "--backend", "cpu", "--yes", "--no-verify")
    said = install("--venv", "env", *words)
    assert said.exit == 0, said.err
    assert versions_in(Path("env"))["torch"] == f"{TORCH}+cpu"


def test_undo_needs_no_python_that_starts(world: World, install: Install) -> None:
    world.fill(venv := world.venv(), world.wheel("torch", "2.0.0+cpu"))
    world.add_torch("cpu")
    assert install("--python", str(venv), *WANTED).exit == 0
    for python in (venv / "bin").glob("python*"):
        python.unlink()
    said = install("--undo", "--venv", str(venv), "--yes")
    assert said.exit == 0, said.err
    assert versions_in(venv)["torch"] == "2.0.0+cpu"


def test_what_a_file_asks_for_beyond_the_index_is_a_note_of_the_answer(
    world: World, install: Install
) -> None:
    world.add_torch("cpu")
    Path("requirements.txt").write_text("filelock\nmine @ git+https://git.example/mine.git\n")
    said = install("--venv", "env", *WANTED, "-r", "requirements.txt", "--dry-run", "--json")
    assert said.exit == 0, said.err
    assert any("git.example" in note for note in said.answer["notes"])
