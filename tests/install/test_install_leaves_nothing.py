"""What cannot be done is said in a sentence, before anything changes, and leaves nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from installing import WANTED, Install, Said, World, needs_linux, site_of, state_of

pytestmark = needs_linux


@pytest.fixture
def world(world: World) -> World:
    world.add_torch("cpu")
    return world


def everything_in(folder: Path) -> list[str]:
    """Every entry below a folder, hidden ones and locks too."""
    return sorted(str(path) for path in folder.rglob("*"))


def check_refused(said: Said, sentence: str) -> None:
    assert said.exit in (2, 3), (said.out, said.err)
    assert sentence in said.err
    assert "gpusetup itself failed" not in said.err


# --- the undo -------------------------------------------------------------------------------------


@pytest.fixture
def venv(world: World, install: Install) -> Path:
    """An environment with an undo of its last installation."""
    venv = world.venv()
    world.fill(venv, world.wheel("torch", "2.0.0"))
    said = install("--venv", str(venv), *WANTED)
    assert said.exit == 0, said.err
    return venv


def test_an_undo_whose_kept_files_are_gone(venv: Path, install: Install) -> None:
    kept = next((venv / ".gpusetup").glob("former-*"))
    shutil.rmtree(kept)
    before = state_of(venv)
    said = install("--venv", str(venv), "--undo", "--yes")
    check_refused(said, f"The files kept for the undo have changed: {kept} is gone")
    assert state_of(venv) == before


def test_a_file_comes_back_where_the_new_release_had_a_folder(
    world: World, install: Install
) -> None:
    venv = world.venv()
    older = {"torch/__init__.py": "", "torch/part": "a file"}
    world.fill(venv, world.wheel("torch", "2.0.0", files=older))
    world.add_torch("cpu", "2.4.1", files={"torch/part/deep/one.txt": "in a folder"})
    before = state_of(venv)
    words = ("--torch", "2.4.1", "--backend", "cpu", "--yes", "--no-verify")
    said = install("--venv", str(venv), *words)
    assert said.exit == 0, said.err
    assert (site_of(venv) / "torch/part/deep/one.txt").is_file()
    said = install("--venv", str(venv), "--undo", "--yes")
    assert said.exit == 0, said.err
    assert state_of(venv) == before


# --- the target -----------------------------------------------------------------------------------

IMPOSSIBLE = {
    "a link to itself": "loop",
    "a link to nothing": "dangling",
    "a long name": "n" * 256,
    "below a file": "file/env",
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
@pytest.mark.parametrize("words", [WANTED, (*WANTED, "--dry-run"), ("--undo", "--yes")])
@pytest.mark.one_in(4)
def test_a_path_at_which_no_environment_can_be(
    world: World, install: Install, name: str, words: tuple[str, ...]
) -> None:
    home = world.folder / "home"
    (home / "loop").symlink_to("loop")
    (home / "dangling").symlink_to("nowhere")
    (home / "file").touch()
    before = everything_in(home)
    said = install("--venv", str(home / IMPOSSIBLE[name]), *words)
    check_refused(said, "can be no environment")
    assert said.exit == 3 and "nothing was changed" in said.err
    assert everything_in(home) == before


@pytest.mark.parametrize("answer", ["{}", "null", '{"python": 3}', '{"prefix": "/", "path": 5}'])
@pytest.mark.parametrize("words", [(), ("--dry-run",)])
@pytest.mark.one_in(2)
def test_an_interpreter_that_answers_something_else(
    world: World, install: Install, answer: str, words: tuple[str, ...]
) -> None:
    venv = world.venv()
    python = venv / "bin/python"
    python.unlink()
    python.write_text(f"#!/bin/sh\necho '{answer}'\n")
    python.chmod(0o755)
    before = state_of(venv)
    said = install("--venv", str(venv), *WANTED, *words)
    check_refused(said, f"{python} does not run: ")
    assert state_of(venv) == before


# --- before anything begins -----------------------------------------------------------------------


@pytest.mark.parametrize("output", ["no/such/folder.json", "a-folder", "file/below"])
def test_an_output_that_cannot_be_written_is_found_before_the_installation(
    world: World, install: Install, output: str
) -> None:
    home = world.folder / "home"
    (home / "a-folder").mkdir()
    (home / "file").touch()
    before = everything_in(home)
    venv = home / "env"
    said = install("--venv", str(venv), *WANTED, "--json", "--output", str(home / output))
    assert said.exit == 3, (said.out, said.err)
    assert "Cannot write" in said.out + said.err
    assert everything_in(home) == before


def test_a_dry_run_that_fails_leaves_no_lock(world: World, install: Install) -> None:
    venv = world.venv()
    info = site_of(venv) / "filelock-3.0.dist-info"
    info.mkdir()
    (info / "RECORD").touch()
    (venv / ".lock").unlink(missing_ok=True)
    before = everything_in(venv)
    said = install("--venv", str(venv), *WANTED, "--dry-run")
    assert said.exit == 3, said.err
    assert everything_in(venv) == before
