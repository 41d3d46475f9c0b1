"""`install` changes as little as cures: what stays, what is refused, what comes along, and why."""

from __future__ import annotations

from pathlib import Path

import pytest
from installing import (
    FIRST,
    TORCH,
    Install,
    World,
    impatient,
    needs_linux,
    state_of,
    versions_in,
    with_a_gpu,
)
from machines_named import machine_named, there

from gpusetup import cli
from gpusetup.catalog.file import load_catalog

YES = ("--yes", "--no-verify")
ACCELERATED = ("cu130", "rocm6.4", "xpu")
LAPTOP = machine_named("rtx3050-laptop")


@pytest.fixture
def world(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    impatient(monkeypatch)
    return world


def holding(world: World, backend: str, *others: Path, version: str = TORCH) -> Path:
    """An environment with a torch of this backend and what it needs."""
    torch = world.add_torch(backend, version)
    world.fill(venv := world.venv(), torch, *others)
    return venv


# --- an accelerator build on a machine without its GPU -------------------------------------------


@needs_linux
@pytest.mark.parametrize("backend", ACCELERATED)
@pytest.mark.one_in(3)
def test_without_a_request_it_stays_and_the_three_reasons_are_named(
    world: World, install: Install, backend: str
) -> None:
    before = state_of(venv := holding(world, backend))
    for words in ((), ("--upgrade",), ("torch",)):
        said = install("--python", str(venv), *words, *YES)
        assert said.exit == 1
        assert "was left as it is" in said.err
        assert "image on a machine without its GPU" in said.err
        assert "--backend cpu" in said.err
        assert "driver is missing" in said.err
        assert "gpusetup doctor" in said.err
    assert "+cpu" not in said.err and "whl/cpu" not in said.err
    assert state_of(venv) == before
    assert not world.index.asked


# --- an image for another host -------------------------------------------------------------------


@needs_linux
def test_an_empty_image_says_which_backend_it_chose_and_why(world: World, install: Install) -> None:
    world.add_torch("cpu", load_catalog().releases[-1].torch)
    said = install("--venv", "env", "--dry-run")
    assert said.exit == 0, said.err
    assert "cpu, because no NVIDIA GPU was found here" in said.out
    assert "--gpu NAME" in said.out


@needs_linux
def test_an_image_is_made_for_the_host_that_is_named(world: World, install: Install) -> None:
    world.add_torch("cu118", "2.7.1")
    host = ("--gpu", "T4", "--driver", "470.256.02")
    said = install("--venv", "env", *host, *YES, "--json")
    assert said.exit == 0, said.err
    assert said.answer["after"]["torch"] == "2.7.1+cu118"
    assert install("--python", "env", *host, *YES, "--json").answer["state"] == "unchanged"


# --- what serves, what is wrong ------------------------------------------------------------------


@needs_linux
def test_torch_that_serves_is_unchanged_and_upgrade_takes_the_newest(
    world: World, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_a_gpu(monkeypatch)
    venv = holding(world, FIRST)
    said = install("--python", str(venv), *YES, "--json")
    assert (said.exit, said.answer["state"]) == (0, "unchanged"), said.err
    newest = said.answer["newest"]
    assert newest["torch"] != TORCH
    assert newest["command"].endswith(f"--upgrade --index {world.index.index_root}")
    assert not world.index.asked
    world.add_torch(newest["backend"], newest["torch"])
    said = install("--python", str(venv), "--upgrade", *YES)
    assert said.exit == 0, said.err
    assert versions_in(venv)["torch"] == f"{newest['torch']}+{newest['backend']}"


@needs_linux
def test_a_wrong_build_becomes_the_same_version(
    world: World, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_a_gpu(monkeypatch)
    venv = holding(world, "cpu")
    world.add_torch(FIRST)
    said = install("--python", str(venv), *YES)
    assert said.exit == 0, said.err
    assert "the same version" in said.err
    assert versions_in(venv)["torch"] == f"{TORCH}+{FIRST}"


@needs_linux
def test_what_pins_torch_is_asked_for_anew(world: World, install: Install) -> None:
    pins = world.wheel("xformers", "0.0.1", requires=(f"torch=={TORCH}",))
    venv = holding(world, "cpu", pins)
    as_from_an_index(venv)
    world.add_torch("cpu", "2.6.0")
    world.add_default("xformers", "0.0.2", requires=("torch==2.6.0",))
    said = install("--python", str(venv), "--torch", "2.6.0", *YES)
    assert said.exit == 0, said.err
    assert versions_in(venv)["xformers"] == "0.0.2"


def as_from_an_index(venv: Path) -> None:
    """The environment without the notes that its wheels came from files."""
    for note in venv.glob("lib/python*/site-packages/*.dist-info/direct_url.json"):
        note.unlink()
        record = note.parent / "RECORD"
        lines = record.read_text().splitlines()
        record.write_text("\n".join(x for x in lines if "direct_url.json" not in x) + "\n")


# --- where the trouble is elsewhere --------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("hidden-gpu", "cuda-visible-devices-hidden"),
        ("container-no-gpu", "container-no-gpu"),
        ("no-driver", "driver-missing"),
    ],
)
def test_trouble_elsewhere_comes_first_and_nothing_is_changed(
    name: str, cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["install", "--dry-run", "--from", there(name)]) == 1
    said = capsys.readouterr()
    assert said.out == "" and f"({cause})" in said.err
    assert "Installing torch would not fix that, so torch " in said.err
    assert cli.main(["install", "--dry-run", "--from", there(name), "--upgrade"]) == 0
    said = capsys.readouterr()
    assert said.err.startswith("First: ") and f"({cause})" in said.err
    assert "Commands" in said.out


# --- replays keep the guards ---------------------------------------------------------------------


def test_a_broken_install_is_installed_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["install", "--dry-run", "--from", there("half-installed")]) == 0
    text = capsys.readouterr().out
    assert "files are missing" in text
    assert "--reinstall-package=torch " in text


# --- what a package requires, what is beside torch -----------------------------------------------


# --- a build for AMD or Intel: what only torch's own index has comes from there -------------------

BUILDS = (("rocm7.2", "triton-rocm"), ("xpu", "triton-xpu"))


def fill(world: World, backend: str, triton: str) -> None:
    """torch on its index with the Triton that only this index has; the default index has a
    placeholder under the same name, as the public one does."""
    needs = ("filelock", "typing-extensions>=4.8", f"{triton}==3.8.0")
    world.add_torch(backend, "2.13.0", requires=needs)
    world.index.add(f"whl/{backend}", world.wheel(triton, "3.8.0"))
    world.add_default(triton, "0.0.1")


@needs_linux
@pytest.mark.parametrize(("backend", "triton"), BUILDS)
def test_the_triton_of_a_maker_comes_from_torchs_index(
    world: World, install: Install, backend: str, triton: str
) -> None:
    fill(world, backend, triton)
    words = ("torch", "--torch", "2.13.0", "--backend", backend, "--yes", "--no-verify")
    said = install("--venv", str(world.folder / "new"), *words, "--json")
    assert said.exit == 0, said.err
    assert said.answer["after"][triton] == "3.8.0"
    assert said.answer["after"]["filelock"] == "3.20.0"


def test_conda_changes_what_conda_installed_so_its_command_is_named(
    world: World, install: Install
) -> None:
    venv = world.venv()
    (venv / "conda-meta").mkdir()
    world.fill(venv, world.wheel("torch", "2.0.0", files={"torch/__init__.py": ""}))
    next(venv.glob("lib/*/site-packages/torch-*/INSTALLER")).write_text("conda")
    before = state_of(venv)
    said = install("--torch", "2.5.1", "--python", str(venv / "bin/python"), "--yes")
    assert (said.exit, state_of(venv)) == (3, before), said.err
    assert "`gpusetup resolve --installer conda --torch 2.5.1`" in said.err
