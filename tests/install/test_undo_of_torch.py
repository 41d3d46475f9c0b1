"""`--undo` belongs to torch: it restores the previous family whatever else was installed since."""

from __future__ import annotations

from pathlib import Path

import pytest
from installing import (
    TORCH,
    WANTED,
    Install,
    World,
    killed_in,
    needs_linux,
    site_of,
    versions_in,
)

pytestmark = needs_linux
OLD = "2.0.0+cpu"
UNDO = ("--undo", "--yes")
WITHOUT_TORCH = ("--yes", "--no-verify")


@pytest.fixture
def world(world: World) -> World:
    world.add_torch("cpu")
    world.add_default("extra", "1.0", requires=("torch",))
    return world


@pytest.fixture
def venv(world: World) -> Path:
    """An environment with an older torch and an older dependency of it."""
    venv = world.venv()
    old = world.wheel("torch", OLD, files={"torch/__init__.py": "", "torch/old.py": ""})
    files = {"filelock/__init__.py": "old", "filelock/gone.py": "old"}
    world.fill(venv, old, world.wheel("filelock", "3.0.0", files=files))
    return venv


def test_a_dependency_that_was_updated_since_stays_and_torch_comes_back(
    world: World, venv: Path, install: Install
) -> None:
    assert install("--python", str(venv), *WANTED, "filelock>=3.20").exit == 0
    assert versions_in(venv)["filelock"] == "3.20.0"
    files = {"filelock/__init__.py": "newest", "filelock/fresh.py": "newest"}
    world.fill(venv, world.wheel("filelock", "9.0", files=files))
    there = {path.name: path.read_text() for path in site_of(venv).glob("filelock/*.py")}
    said = install("--python", str(venv), *UNDO)
    assert said.exit == 0, said.err
    found = versions_in(venv)
    assert (found["torch"], found["filelock"]) == (OLD, "9.0")
    assert (site_of(venv) / "torch/old.py").exists()
    now = {path.name: path.read_text() for path in site_of(venv).glob("filelock/*.py")}
    assert now == there, "no file of the older release lies among those of the newer one"


def test_without_an_installation_to_undo_the_hint_says_how_conda_returns(
    venv: Path, install: Install
) -> None:
    answer = install("--python", str(venv), *UNDO)
    assert answer.exit == 3 and "There is nothing to undo" in answer.err
    hint = " ".join(answer.err.partition("hint: ")[2].split())
    assert "`conda install --revision N` returns to revision N" in hint


def test_installing_a_package_keeps_the_way_back_to_the_older_torch(
    world: World, venv: Path, install: Install
) -> None:
    assert install("--python", str(venv), *WANTED).exit == 0
    second = install("--python", str(venv), "extra", *WITHOUT_TORCH)
    assert second.exit == 0, second.err
    assert f"(restores torch {OLD})" in " ".join(second.out.split())
    said = install("--python", str(venv), *UNDO)
    assert said.exit == 0, said.err
    assert versions_in(venv)["torch"] == OLD
    assert versions_in(venv)["extra"] == "1.0"
    assert f"torch {OLD}" in said.out and "no torch" not in said.out


def test_a_second_torch_replaces_the_way_back(world: World, venv: Path, install: Install) -> None:
    other = "2.6.0" if TORCH != "2.6.0" else "2.7.0"
    world.add_torch("cpu", other)
    assert install("--python", str(venv), *WANTED).exit == 0
    words = ("--torch", other, "--backend", "cpu", *WITHOUT_TORCH)
    assert install("--python", str(venv), *words).exit == 0
    assert install("--python", str(venv), *UNDO).exit == 0
    assert versions_in(venv)["torch"] == f"{TORCH}+cpu"


@pytest.mark.parametrize("phase", ["staging", "moving", "installing", "verifying"])
def test_the_undo_of_an_interrupted_installation_says_which_torch_is_there(
    venv: Path, install: Install, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    killed_in(phase, venv, install, monkeypatch)
    said = install("--python", str(venv), *UNDO)
    assert said.exit == 0, said.err
    assert versions_in(venv)["torch"] == OLD
    assert f"torch {OLD}" in said.out and "no torch" not in said.out


def test_a_companion_that_came_since_goes_with_its_torch(
    world: World, venv: Path, install: Install
) -> None:
    from gpusetup.catalog.file import load_catalog

    release = next(one for one in load_catalog().releases if one.torch == TORCH)
    companion = world.wheel(
        "torchvision", f"{release.torchvision}+cpu", requires=(f"torch=={TORCH}",)
    )
    world.index.add("whl/cpu", companion)
    assert install("--python", str(venv), *WANTED).exit == 0
    second = install("--python", str(venv), "torchvision", *WITHOUT_TORCH)
    assert second.exit == 0 and "torchvision" in versions_in(venv), second.err
    said = install("--python", str(venv), *UNDO)
    assert said.exit == 0, said.err
    assert versions_in(venv)["torch"] == OLD
    assert "torchvision" not in versions_in(venv)
