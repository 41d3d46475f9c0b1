"""The real CPU wheel of torch from an index of our own, by real uv and real pip, verified.

The wheels are fetched once by `pip download` into the temporary folder, and kept there.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from installing import Install, World, needs_linux, versions_in

pytestmark = [needs_linux, pytest.mark.slow]

TORCH = "2.13.0"
SHELF = Path(tempfile.gettempdir(), "gpusetup-test-wheels", f"{sys.implementation.cache_tag}")
WANTED = ("--backend", "cpu", "--torch", TORCH, "--yes", "--json")


def fetched(name: str, *words: str) -> list[Path]:
    """The wheels of `pip download`, fetched unless an earlier run has done it to the end."""
    folder = SHELF / name
    done = folder / "done"
    if not done.exists():
        argv = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:"]
        subprocess.run([*argv, "--dest", str(folder), *words], check=True)
        done.touch()
    return sorted(folder.glob("*.whl"))


@pytest.mark.skipif(sys.version_info >= (3, 15), reason="torch 2.13.0 has no such wheel")
def test_the_real_torch_is_installed_and_verified(world: World, install: Install) -> None:
    (torch,) = fetched("torch", f"torch=={TORCH}", "--no-deps")
    if "+cpu" not in torch.name:
        pytest.skip("this index has no CPU build of torch under a local version")
    world.index.add("whl/cpu", torch)
    for wheel in fetched("rest", str(torch)):
        if not wheel.name.startswith("torch-"):
            world.index.add("simple", wheel)
    venv = world.folder / "real env"
    said = install("--venv", str(venv), *WANTED)
    assert said.exit == 0, said.err + said.out
    assert said.answer["state"] == "installed"
    assert said.answer["verdict"]["verdict"] == "passed"
    assert said.answer["verdict"]["torch"] == f"{TORCH}+cpu"
    assert versions_in(venv)["torch"] == f"{TORCH}+cpu"
    again = install("--python", str(venv / "bin/python"), *WANTED)
    assert (again.exit, again.answer["state"]) == (0, "unchanged"), again.err
