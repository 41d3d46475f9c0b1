"""What lies in the way of an installation, or what it costs, is said before anything is changed."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from installing import (
    TORCH,
    WANTED,
    Install,
    World,
    killed_in,
    needs_linux,
    site_of,
    state_of,
)

from gpusetup import cli
from gpusetup.install import job
from gpusetup.install.switching import unpack
from gpusetup.model.frozen import replace
from gpusetup.system.processes import Output

pytestmark = needs_linux


@pytest.fixture
def world(world: World) -> World:
    world.add_torch("cpu")
    return world


def may_mount() -> bool:
    tried = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    return tried.returncode == 0


@pytest.mark.skipif(shutil.which("unshare") is None or not may_mount(), reason="may not mount")
def test_a_mount_inside_torch_is_named_and_nothing_is_changed(
    world: World, install: Install
) -> None:
    venv = world.venv("env")
    world.add_torch("cu124" if TORCH == "2.5.1" else "cu128")
    assert install("--python", str(venv), *WANTED).exit == 0
    before = state_of(venv)
    inside = site_of(venv) / "torch/lib"
    words = ["--torch", TORCH, "--backend", "cu124" if TORCH == "2.5.1" else "cu128"]
    words += ["--yes", "--no-verify", "--index", world.index.index_root, "--python", str(venv)]
    line = 'mount --bind "$1" "$1" && shift && exec "$0" -m gpusetup install "$@"'
    argv = ["unshare", "-m", "sh", "-c", line, sys.executable, str(inside), *words]
    said = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert said.returncode == 3, said.stderr
    assert "it is a separate mount" in said.stderr
    assert "the previous state was restored" in said.stderr
    assert state_of(venv) == before


@pytest.mark.parametrize("phase", ["making", "staging", "installing"])
def test_doctor_names_an_environment_that_is_half_made(
    world: World,
    install: Install,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    phase: str,
) -> None:
    venv = Path.cwd() / "new"
    if phase != "staging":
        killed_in(phase, venv, install, monkeypatch, target="--venv")
    else:
        killed_in("moving", venv, install, monkeypatch, target="--venv")
    capsys.readouterr()
    cli.main(["doctor"])
    said = " ".join(capsys.readouterr().out.split())
    assert f"An installation into {venv} was interrupted" in said
    assert f"gpusetup install --venv {venv}" in said
    done = install("--venv", str(venv), *WANTED)
    assert done.exit == 0, done.err
    cli.main(["doctor"])
    assert "was interrupted" not in capsys.readouterr().out


def test_a_full_disk_is_met_with_the_cache_that_uv_fills(
    world: World, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_the_disk(monkeypatch)
    said = install("--venv", "env", *WANTED)
    assert said.exit == 3, said.err
    assert "cache clean` empties uv's cache" in " ".join(said.err.split())


def fill_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """uv ends as it does where no room is left."""

    def run_step(*words: Any, **options: Any) -> Output:
        text = f"error: Failed to write `x`\n  cause: {os.strerror(errno.ENOSPC)} (os error 28)"
        return replace(job.run_step(*words, **options), exit=2, stderr=text)

    monkeypatch.setattr(unpack, "run_step", run_step)


PROJECTS = {
    "a lock": ("uv.lock", "version = 1\n", True),
    "a project of uv": ("pyproject.toml", '[project]\nname = "a"\n[tool.uv]\n', True),
    "another project": ("pyproject.toml", '[project]\nname = "a"\n', False),
    "no TOML": ("pyproject.toml", "[[[", False),
}


@pytest.mark.parametrize("name", PROJECTS)
def test_in_a_project_of_uv_the_plan_says_what_uv_sync_would_remove(
    world: World, install: Install, name: str
) -> None:
    file, text, is_said = PROJECTS[name]
    Path(file).write_text(text)
    said = install("--venv", ".venv", *WANTED, "--dry-run")
    assert said.exit == 0, said.err
    shown = " ".join(said.out.split())
    assert ("the next `uv sync` there removes" in shown) == is_said
    assert ("gpusetup install --project" in shown) == is_said
