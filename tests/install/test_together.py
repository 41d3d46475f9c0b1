"""`resolve PACKAGE…` and `install PACKAGE…` against an index of our own, by the real uv: which set
is taken, and why; it comes by one plan, one switch and one undo."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from installing import (
    Install,
    Said,
    World,
    enter,
    installer,
    needs_linux,
    new_world,
    state_of,
    versions_in,
    with_a_gpu,
)

from gpusetup.cli import main
from gpusetup.model.machine import Snapshot
from gpusetup.probe.machine import read_machine
from gpusetup.system.system import System

A100 = ("--gpu", "A100 80GB", "--driver", "580.95.05", "--os", "linux", "--machine", "x86_64")
THERE = (*A100, "--python", "3.12", "--glibc", "2.35")
Ask = Callable[..., Said]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with new_world(tmp_path_factory.mktemp("together")) as found:
        _fill(found)
        yield found


def _fill(world: World) -> None:
    """Releases of several torches, and packages that want one, another, or any of them."""

    def add(name: str, version: str, *requires: str, on: str = "2026-10-01") -> None:
        wheel = world.add_default(name, version, requires=requires)
        world.index.uploaded[wheel.name] = f"{on}T00:00:00Z"

    for torch in ("2.15.0", "2.14.1", "2.13.0", "2.12.1", "2.9.1", "2.5.0"):
        for backend in ("cu124", "cu126", "cu130", "cpu"):
            wheel = world.wheel("torch", f"{torch}+{backend}")
            world.index.add(f"whl/{backend}", wheel)
    for name in ("filelock", "typing-extensions", "numpy", "pillow"):
        add(name, "9.0")
    add("server", "3.0", "torch==2.13.0")
    add("server", "0.1", "torch", on="2023-10-01")
    add("kernels", "2.0", "torch==2.14.1")
    add("kernels", "1.9", "torch==2.13.0", on="2026-08-01")
    add("torchcodec", "0.17.0")
    add("torchcodec", "0.13.0", on="2026-07-01")
    add("framesift", "2.0", "torch>=2", "torchvision")
    add("onnxruntime-gpu", "1.31.1")
    add("onnxruntime-gpu", "1.26.0")
    add("inference", "1.0", "onnxruntime-gpu")
    for torch, vision in (("2.15.0", "0.29.2"), ("2.14.1", "0.29.1")):
        needs = (f"torch=={torch}",)
        add("torchvision", vision, *needs)
        for backend in ("cu126", "cu130") if torch == "2.14.1" else ("cu130",):
            wheel = world.wheel("torchvision", f"{vision}+{backend}", requires=needs)
            world.index.add(f"whl/{backend}", wheel)
    source = world.folder / "wordfold-1.0.9.tar.gz"
    source.write_bytes(b"not read: nothing is built to answer a question")
    world.index.add("simple", source)
    add("folded", "1.0", "wordfold")


@cache
def this_machine(**asked: Any) -> Snapshot:
    """Read once: of what is asked for here nothing is this machine's."""
    return read_machine(System(), **asked)


@pytest.fixture
def ask(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    def read_once(_: Any, *, notify: Any, **asked: Any) -> Snapshot:
        return this_machine(**asked)

    enter(world, monkeypatch)
    monkeypatch.setattr("gpusetup.probe.machine.read_machine", read_once)
    monkeypatch.setenv("GPUSETUP_INDEX", world.index.index_root)

    def asked(*words: str) -> Said:
        capsys.readouterr()
        code = main(["resolve", *THERE, *words])
        said = capsys.readouterr()
        return Said(exit=code, out=said.out, err=said.err)

    return asked


def versions(said: Said) -> dict[str, Any]:
    return {row["name"]: row["version"] for row in said.answer["packages"]}


def test_a_package_constrains_torch_and_not_the_reverse(ask: Ask) -> None:
    said = ask("server", "--json")
    assert said.exit == 0, said.err
    assert said.answer["torch"] == "2.13.0"
    assert versions(said) == {"torch": "2.13.0+cu130", "server": "3.0"}
    (why,) = said.answer["notes"]
    assert "2.13.0 is not the newest: Because server>=3.0 depends on torch==2.13.0 and " in why
    assert "you require torch" not in why
    assert "querying " in said.err


def test_a_wheel_of_the_default_index_is_built_as_torch_is_there(ask: Ask) -> None:
    """torchcodec's links libcudart.so.13 and libtorch_cuda.so: beside a CPU torch it fails."""
    assert ask("torchcodec", "--json").answer["notes"] == []
    said = ask("torchcodec==0.17.0", "--backend", "cpu")
    assert said.exit == 1 and "but this is a cpu torch" in said.err
    assert "`pip install --no-deps torchcodec --index-url " in said.err and "/whl/cpu`" in said.err
    older = ask("torchcodec", "--backend", "cu126", "--json")
    assert (older.exit, versions(older)["torch"]) == (0, "2.14.1+cu126"), older.err
    assert versions(older)["torchcodec"] == "0.13.0", "the newest that links no CUDA"


OLD_DRIVER = ("--gpu", "T4", "--driver", "535.183.01")


def test_what_its_driver_cannot_load_is_taken_in_an_older_release(ask: Ask, world: World) -> None:
    """A T4 whose driver serves CUDA 12; the newest wheels link libcudart.so.13."""
    world.add_default("decoder", "2.0", requires=("torchcodec>=0.17",))
    world.add_default("decoder", "1.0", requires=("torchcodec",))
    said = ask("onnxruntime-gpu", *OLD_DRIVER, "--json")
    assert (said.exit, versions(said)["onnxruntime-gpu"]) == (0, "1.26.0"), said.err
    assert said.answer["torch"] == "2.14.1" and said.answer["notes"] == []
    beside = ask("decoder", *OLD_DRIVER, "--json")
    assert (beside.exit, versions(beside)["torchcodec"]) == (0, "0.13.0"), beside.err
    named = ask("decoder==2.0", *OLD_DRIVER)
    assert (named.exit, named.out) == (1, "")
    assert "torchcodec 0.17.0 is built for CUDA 13, but torch for CUDA 12" in named.err


def test_a_member_that_a_package_brings_is_of_torchs_index(ask: Ask) -> None:
    """torchvision 0.29.2 is only on the default index and on that for CUDA 13."""
    said = ask("framesift", *OLD_DRIVER, "--json")
    assert said.exit == 0, said.err
    assert versions(said)["torchvision"] == "0.29.1+cu126"
    first, *_ = said.answer["commands"]["uv"]
    assert "torchvision==0.29.1+cu126" in first


def test_what_has_no_wheel_is_left_out_and_named(ask: Ask) -> None:
    said = ask("framesift", "wordfold==1.0.9", "folded", "--json")
    assert said.exit == 0, said.err
    assert "framesift" in versions(said) and "wordfold" not in versions(said)
    (note,) = [note for note in said.answer["notes"] if "from source" in note]
    assert "wordfold" in note and "folded" in note and "`uv pip install " in note
    alone = ask("wordfold")
    assert alone.exit == 1
    assert "No torch for this machine" not in alone.err
    assert "No wheel for this machine: wordfold" in alone.err


# --- installed together ---------------------------------------------------------------------------


@pytest.fixture
def install(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Install:
    enter(world, monkeypatch)
    with_a_gpu(monkeypatch)
    return installer(world, capsys)


@pytest.fixture
def venv(world: World) -> Iterator[Path]:
    path = world.venv()
    yield path
    shutil.rmtree(path)


@needs_linux
def test_torch_comes_as_the_package_takes_it_and_one_undo_takes_all_back(
    install: Install, venv: Path
) -> None:
    before = state_of(venv)
    words = ("kernels", "framesift", "--python", str(venv))
    shown = install(*words, "--dry-run")
    assert shown.exit == 0, shown.err
    for line in ("torch 2.14.1+cu130", "torchvision 0.29.1+cu130", "kernels 2.0"):
        assert line in shown.out, line
    assert "torch 2.14.1 is not the newest: Because " in shown.out
    assert "--upgrade" not in shown.out and state_of(venv) == before
    said = install(*words, "--yes", "--no-verify", "--json")
    assert said.exit == 0, said.err
    held = versions_in(venv)
    assert (held["torch"], held["torchvision"]) == ("2.14.1+cu130", "0.29.1+cu130")
    assert (held["kernels"], held["framesift"]) == ("2.0", "2.0")
    assert "kernels" in said.answer["why"] and "torch==2.14.1" in said.answer["why"]
    assert install("--undo", "--python", str(venv), "--yes").exit == 0
    assert state_of(venv) == before
