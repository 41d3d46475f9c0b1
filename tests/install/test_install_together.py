"""`install PACKAGE…`: torch comes with what is to stand on it: one plan, one switch, one undo."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from installing import (
    Install,
    World,
    enter,
    installer,
    needs_linux,
    new_world,
    state_of,
    versions_in,
    with_a_gpu,
)

pytestmark = needs_linux
YES = ("--yes", "--no-verify")


@pytest.fixture(scope="module")
def shelves(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with new_world(tmp_path_factory.mktemp("coming")) as found:
        _fill(found)
        yield found


def _fill(world: World) -> None:
    """Torch on its own index for two CUDAs; a server that pins one, of which an old release pins
    nothing."""

    def add(name: str, version: str, *requires: str, on: str = "2026-10-01") -> None:
        wheel = world.add_default(name, version, requires=requires)
        world.index.uploaded[wheel.name] = f"{on}T00:00:00Z"

    for torch, backend in (
        ("2.15.0", "cu130"),
        ("2.13.0", "cu130"),
        ("2.9.1", "cu130"),
        ("2.9.0", "cu130"),
        ("2.8.0", "cu126"),
        ("2.8.0", "cu129"),
        ("2.8.0", "cu128"),
    ):
        world.add_torch(backend, torch)
        for name, version in COMPANIONS[torch].items():
            wheel = world.wheel(name, f"{version}+{backend}", requires=(f"torch=={torch}",))
            world.index.add(f"whl/{backend}", wheel)
    for torch, there in COMPANIONS.items():
        add("torchvision", there["torchvision"], f"torch=={torch}")
    for name in ("filelock", "typing-extensions", "sympy", "networkx", "jinja2", "fsspec"):
        add(name, "9.0")
    add("numpy", "2.4")
    add("pillow", "12.0")
    add("server", "3.0", "torch==2.13.0", "torchvision")
    add("server", "0.1", "torch>=2", on="2023-10-01")
    add("plain", "1.0", "torch>=2")
    add("onnxruntime-gpu", "1.31.1")
    add("onnxruntime-gpu", "1.26.0")
    add("decoder", "1.0", "onnxruntime-gpu")


COMPANIONS = {
    "2.15.0": {"torchvision": "0.30.0"},
    "2.13.0": {"torchvision": "0.28.0"},
    "2.9.1": {"torchvision": "0.24.1"},
    "2.9.0": {"torchvision": "0.24.0"},
    "2.8.0": {"torchvision": "0.23.0"},
}


@pytest.fixture
def world(shelves: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    enter(shelves, monkeypatch)
    monkeypatch.setenv("GPUSETUP_CACHE", str(shelves.folder / "kept"))
    with_a_gpu(monkeypatch)
    return shelves


@pytest.fixture
def install(world: World, capsys: pytest.CaptureFixture[str]) -> Install:
    return installer(world, capsys)


@pytest.fixture
def venv(world: World) -> Iterator[Path]:
    path = world.venv()
    yield path
    shutil.rmtree(path)


def test_torch_comes_as_the_package_takes_it_and_one_undo_takes_all_back(
    install: Install, venv: Path
) -> None:
    before = state_of(venv)
    said = install("server", "plain", "--python", str(venv), *YES, "--json")
    assert said.exit == 0, said.err
    held = versions_in(venv)
    assert held["torch"] == "2.13.0+cu130"
    assert held["torchvision"] == "0.28.0+cu130", "what the server requires is of torch's index"
    assert (held["server"], held["plain"]) == ("3.0", "1.0")
    assert "server" in said.answer["why"] and "torch==2.13.0" in said.answer["why"]
    assert install("--undo", "--python", str(venv), "--yes").exit == 0
    assert state_of(venv) == before


def test_the_plan_shows_the_whole_set_and_changes_nothing(install: Install, venv: Path) -> None:
    before = state_of(venv)
    said = install("server", "--python", str(venv), "--dry-run")
    assert said.exit == 0, said.err
    for line in ("torch 2.13.0+cu130", "torchvision 0.28.0+cu130", "server 3.0"):
        assert line in said.out, line
    assert "torch 2.13.0 is not the newest: Because server" in said.out
    assert "--upgrade" not in said.out
    assert state_of(venv) == before


def test_beside_a_torch_that_stays_only_what_is_built_for_its_cuda_comes(
    world: World, install: Install
) -> None:
    venv = world.venv()
    on_it = ("--python", str(venv), "--no-verify")
    assert install("--torch", "2.8.0", "--backend", "cu126", *on_it, "--yes").exit == 0
    for word in ("onnxruntime-gpu", "decoder"):
        said = install(word, *on_it, "--dry-run", "--json")
        assert said.exit == 0, said.err
        assert said.answer["after"]["onnxruntime-gpu"] == "1.26.0"
        assert "torch" not in said.answer["after"]
    named = install("onnxruntime-gpu==1.31.1", *on_it, "--dry-run", "--json")
    assert named.answer["after"]["torch"] == "2.9.0+cu130", named.err
    shutil.rmtree(venv)
