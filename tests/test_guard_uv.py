"""A plain `uv pip install` under the guard: real uv, real shells, what people type in them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import uv
from installing import TORCH, Said, World, needs_linux

from gpusetup import cli

pytestmark = needs_linux
HELD = f"torch=={TORCH}+cpu"
Guard = Callable[..., Said]
UV = str(uv.find_uv_bin())


def made(world: World, venv: Path) -> None:
    """An environment with torch in it."""
    argv = (UV, "venv", "--quiet", "--python", sys.executable, str(venv))
    subprocess.run(argv, check=True, capture_output=True)
    world.fill(venv, world.add_torch("cpu", requires=()))
    world.add_default("torch", "2.99.0")
    world.add_default("wants-another", "1.0", requires=("torch==2.99.0",))
    world.add_default("wants-any", "1.0", requires=("torch>=2",))


@pytest.fixture
def guard(capsys: pytest.CaptureFixture[str]) -> Guard:
    def guarded(venv: Path, *words: str) -> Said:
        capsys.readouterr()
        code = cli.main(["guard", "--python", str(venv), *words])
        said = capsys.readouterr()
        return Said(exit=code, out=said.out, err=said.err)

    return guarded


def unasked(world: World, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, **world.environment}
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        environ.pop(name, None)
    argv = (UV, "pip", "install", *words)
    return subprocess.run(
        argv, env=environ, cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.fixture
def folder(world: World) -> Path:
    folder = world.folder / "work"
    folder.mkdir()
    made(world, folder / ".venv")
    return folder


def test_in_the_folder_of_a_dot_venv_a_plain_uv_is_held_back(
    world: World, guard: Guard, folder: Path
) -> None:
    venv = folder / ".venv"
    assert str(folder / "uv.toml") in guard(venv).out and not (folder / "uv.toml").exists()
    assert guard(venv, "--write").exit == 0
    (folder / "below").mkdir()
    for where in (folder, folder / "below"):
        held = unasked(world, where, "wants-another")
        assert held.returncode != 0 and HELD in held.stderr, held.stderr
    assert unasked(world, folder, "wants-any").returncode == 0
    assert guard(venv, "--write", "--json").answer["state"] == "unchanged"
    assert guard(venv, "--undo").exit == 0
    assert not (folder / "uv.toml").exists()
    assert unasked(world, folder, "wants-another").returncode == 0


@pytest.mark.parametrize("name", ["uv.toml", "pyproject.toml"])
def test_other_settings_of_uv_are_not_hidden(guard: Guard, folder: Path, name: str) -> None:
    (folder.parent / name).write_text("# mine\n")
    assert guard(folder / ".venv", "--write").exit == 0
    assert not (folder / "uv.toml").exists()
