"""conda is run as the recipe says. A recording stand-in is the conda here, no real one."""

from __future__ import annotations

import json
import os
import sys
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
    with_a_gpu,
)

from gpusetup.install.by_conda import conda_program

pytestmark = needs_linux

STAND_IN = """#!{python}
import json, pathlib, sys
words = sys.argv[1:]
prefix = pathlib.Path(words[words.index("--prefix") + 1])
listed = pathlib.Path(words[words.index("--file") + 1]).read_text() if "--file" in words else None
with open({log!r}, "a") as file:
    file.write(json.dumps([words, listed]) + chr(10))
if "broken" in {name!r}:
    sys.exit("PackagesNotFoundError: the packages are not available")
if listed is None:
    record = {{"name": "pytorch-gpu", "version": "2.5.1", "build": "cuda126", "url": "https://c/p"}}
    (prefix / "conda-meta" / "pytorch-gpu.json").write_text(json.dumps(record))
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with new_world(tmp_path) as world:
        enter(world, monkeypatch)
        with_a_gpu(monkeypatch)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
        for name in ("CONDA_EXE", "MAMBA_EXE"):
            monkeypatch.delenv(name, raising=False)
        yield world


@pytest.fixture
def install(world: World, capsys: pytest.CaptureFixture[str]) -> Install:
    return installer(world, capsys)


@pytest.fixture
def environment(world: World) -> Path:
    """An environment that looks like conda's."""
    venv = world.venv()
    meta = venv / "conda-meta"
    meta.mkdir()
    former = {"name": "zlib", "version": "1.3", "url": "https://c/zlib-1.3-0.conda", "md5": "ab"}
    (meta / "zlib-1.3-0.json").write_text(json.dumps(former))
    return venv


def program(world: World, name: str) -> Path:
    path = world.folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    log = str(world.folder / "asked.jsonl")
    path.write_text(STAND_IN.format(python=sys.executable, log=log, name=name))
    path.chmod(0o755)
    return path


def asked(world: World) -> list[list[object]]:
    lines = (world.folder / "asked.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


WORDS = ("--installer", "conda", "--torch", "2.5.1")


@pytest.mark.parametrize("name", ["conda", "mamba", "micromamba"])
def test_the_recipe_is_run_as_it_was_shown(
    world: World, install: Install, environment: Path, name: str
) -> None:
    path = program(world, name)
    target = ("--python", str(environment / "bin/python"))
    shown = install(*WORDS, *target, "--dry-run", "--json")
    assert shown.exit == 0, shown.err
    said = install(*WORDS, *target, "--yes", "--no-verify", "--json")
    assert said.exit == 0, said.err
    assert [s["argv"] for s in said.answer["steps"]] == [s["argv"] for s in shown.answer["steps"]]
    assert said.answer["after"] == {"pytorch-gpu": "2.5.1 cuda126"}
    ((words, listed),) = asked(world)
    assert [str(path), *words] == said.answer["steps"][0]["argv"]  # type: ignore[misc]
    assert words[:4] == ["install", "--yes", "--prefix", str(environment)]  # type: ignore[index]
    assert listed is None


def test_a_failed_proof_asks_for_the_former_packages(
    world: World, install: Install, environment: Path
) -> None:
    program(world, "conda")
    target = ("--python", str(environment / "bin/python"))
    said = install(*WORDS, *target, "--yes", "--json")
    assert (said.exit, said.answer["state"]) == (1, "restored"), said.err
    _, (words, listed) = asked(world)
    assert "--file" in words  # type: ignore[operator]
    assert listed == "@EXPLICIT\nhttps://c/zlib-1.3-0.conda#ab\n"


def test_a_conda_that_fails_is_a_tool_that_failed(
    world: World, install: Install, environment: Path
) -> None:
    program(world, "broken").rename(world.folder / "bin/conda")
    said = install(*WORDS, "--python", str(environment / "bin/python"), "--yes")
    assert said.exit == 4
    assert "PackagesNotFoundError" in said.err


def test_without_conda_the_recipe_is_still_shown(
    world: World, install: Install, environment: Path
) -> None:
    target = ("--python", str(environment / "bin/python"))
    assert install(*WORDS, *target, "--dry-run").out.count("conda install") == 1
    said = install(*WORDS, *target, "--yes")
    assert said.exit == 3
    assert "Neither conda nor mamba nor micromamba" in said.err


def test_a_target_that_is_no_conda_environment(world: World, install: Install) -> None:
    said = install(*WORDS, "--python", str(world.venv()), "--yes")
    assert said.exit == 3
    assert "is no conda environment" in said.err


def test_an_active_condas_own_program_comes_first(tmp_path: Path) -> None:
    own = tmp_path / "own-conda"
    own.touch()
    assert conda_program({"CONDA_EXE": str(own), "PATH": os.defpath}) == str(own)
    assert conda_program({"CONDA_EXE": str(tmp_path / "gone"), "PATH": str(tmp_path)}) is None
