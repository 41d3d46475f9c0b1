"""The real CPU wheel of torch from an index of our own, by real uv and real pip, verified.

The wheels are fetched once by `pip download` into the temporary folder, and kept there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from installing import World, bare_environment, needs_linux, new_world, versions_in

pytestmark = [needs_linux, pytest.mark.slow]

TORCH = "2.13.0"
SHELF = Path(tempfile.gettempdir(), "gpusetup-test-wheels", f"{sys.implementation.cache_tag}")
ROOT = Path(__file__).resolve().parents[2]


def fetched(name: str, *words: str) -> list[Path]:
    """The wheels of `pip download`, fetched unless an earlier run has done it to the end."""
    folder = SHELF / name
    done = folder / "done"
    if not done.exists():
        argv = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:"]
        subprocess.run([*argv, "--dest", str(folder), *words], check=True)
        done.touch()
    return sorted(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def wheels() -> dict[str, list[Path]]:
    if sys.version_info >= (3, 15):
        pytest.skip("torch 2.13.0 has no wheel for this Python")
    torch = fetched("torch", f"torch=={TORCH}", "--no-deps")
    # pip and its companions are what a new environment is seeded with.
    rest = fetched("rest-and-pip", str(torch[0]), "pip", "setuptools", "wheel")
    return {"torch": torch, "rest": [w for w in rest if not w.name.startswith("torch-")]}


@pytest.fixture
def world(tmp_path: Path, wheels: dict[str, list[Path]]) -> Iterator[World]:
    with new_world(tmp_path) as world:
        (torch,) = wheels["torch"]
        if "+cpu" not in torch.name:
            pytest.skip("this index has no CPU build of torch under a local version")
        world.index.add("whl/cpu", torch)
        for wheel in wheels["rest"]:
            world.index.add("simple", wheel)
        world.environment = bare_environment(tmp_path, world.index.simple)
        yield world


def gpusetup(world: World, *words: str) -> subprocess.CompletedProcess[str]:
    """The program itself, with none of pip's and uv's variables but the world's."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("UV_", "PIP_", "GPUSETUP_"))
        and name not in ("VIRTUAL_ENV", "CONDA_PREFIX")
    }
    return subprocess.run(
        [sys.executable, "-m", "gpusetup", "install", *words],
        env={**kept, **world.environment, "PYTHONPATH": str(ROOT)},
        cwd=world.folder / "home",
        capture_output=True,
        text=True,
        check=False,
    )


WANTED = ("--backend", "cpu", "--torch", TORCH, "--yes", "--json")


def test_the_real_torch_is_installed_and_verified(world: World) -> None:
    venv = world.folder / "real env"
    root = ("--index", world.index.index_root)
    said = gpusetup(world, "--venv", str(venv), *root, *WANTED)
    assert said.returncode == 0, said.stderr + said.stdout
    answer = json.loads(said.stdout)
    assert answer["state"] == "installed"
    assert answer["verdict"]["verdict"] == "passed"
    assert answer["verdict"]["torch"] == f"{TORCH}+cpu"
    assert versions_in(venv)["torch"] == f"{TORCH}+cpu"

    again = gpusetup(world, "--python", str(venv / "bin/python"), *root, *WANTED)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["state"] == "unchanged"
