"""conda is run as the recipe says. A recording stand-in is the conda here, no real one."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from installing import (
    Install,
    World,
    enter,
    needs_linux,
    new_world,
    same_place,
    versions_in,
    with_a_gpu,
)

from gpusetup.install.switching.lock import locked

ROOT = str(Path(__file__).resolve().parent.parent)

pytestmark = needs_linux

STAND_IN = """#!{python}
import json, os, pathlib, sys, time
words = sys.argv[1:]
prefix = pathlib.Path(words[words.index("--prefix") + 1])
listed = pathlib.Path(words[words.index("--file") + 1]).read_text() if "--file" in words else None
with open({log!r}, "a") as file:
    file.write(json.dumps([words, listed]) + chr(10))
if "broken" in {name!r}:
    sys.exit("PackagesNotFoundError: the packages are not available")
if "--dry-run" in words:
    print("  zlib  1.3 -> 1.3.1" + chr(10) + "  + pytorch-gpu 2.5.1 https://me:secret@c/p")
    sys.exit()
if "slow" in {name!r}:
    pathlib.Path({log!r} + ".began").touch()
    time.sleep(float(os.environ.get("SLOW_SECONDS", "0")))
site = next(prefix.glob("lib/*/site-packages"))
next(site.glob("torch-*")).rename(site / "torch-2.5.1.dist-info")
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with same_place(tmp_path) as place, new_world(place) as world:
        enter(world, monkeypatch)
        with_a_gpu(monkeypatch)
        monkeypatch.setenv("PATH", f"{place / 'bin'}:/usr/bin:/bin")
        for name in ("CONDA_EXE", "MAMBA_EXE"):
            monkeypatch.delenv(name, raising=False)
        yield world


@pytest.fixture
def environment(world: World) -> Path:
    """An environment that looks like conda's."""
    venv = world.venv()
    meta = venv / "conda-meta"
    meta.mkdir()
    url = "https://c/t/secret/conda-forge/linux-64/zlib-1.3-0.conda"
    former = {"name": "zlib", "version": "1.3", "url": url, "md5": "ab"}
    (meta / "zlib-1.3-0.json").write_text(json.dumps(former))
    (meta / "history").write_text("==> 2026-01-01 10:00:00 <==\n+zlib-1.3-0\n")
    world.fill(venv, world.wheel("torch", "2.0.0"))
    next(venv.glob("lib/*/site-packages/torch-*/INSTALLER")).write_text("conda")
    return venv


def program(world: World, name: str, kind: str = "") -> Path:
    path = world.folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    log = str(world.folder / "asked.jsonl")
    path.write_text(STAND_IN.format(python=sys.executable, log=log, name=kind))
    path.chmod(0o755)
    return path


def asked(world: World) -> list[list[Any]]:
    lines = (world.folder / "asked.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


WORDS = ("--torch", "2.5.1")


@pytest.mark.parametrize("name", ["conda", "mamba", "micromamba"])
@pytest.mark.one_in(3)
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
    assert said.answer["after"] == {"torch": "2.5.1"}
    (planning, _), (words, listed) = asked(world)
    assert planning == [*words, "--dry-run"]
    assert [str(path), *words] == said.answer["steps"][0]["argv"]
    assert words[:4] == ["install", "--yes", "--prefix", str(environment)]
    assert listed is None


def test_the_versions_that_conda_would_move_stand_before_the_question(
    world: World,
    install: Install,
    environment: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program(world, "conda")
    target = ("--python", str(environment / "bin/python"))
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    said = install(*WORDS, *target)
    assert said.exit == 1, said.err
    assert said.err.count("Proceed? [y/N]") == 1
    shown = said.err.partition("Proceed?")[0]
    assert "zlib 1.3 -> 1.3.1" in " ".join(shown.split()) and "secret" not in shown
    assert versions_in(environment)["torch"] == "2.0.0"


class Terminal(io.StringIO):
    """What somebody types."""

    def isatty(self) -> bool:
        return True


def test_a_failed_proof_names_the_command_that_lists_what_conda_goes_back_to(
    world: World, install: Install, environment: Path
) -> None:
    program(world, "conda")
    said = install(*WORDS, "--python", str(environment / "bin/python"), "--yes")
    assert said.exit == 1, said.err
    assert "failed" in said.out + said.err
    assert f"conda list --prefix {environment} --revisions" in " ".join(said.out.split())
    assert len(asked(world)) == 1


def installed(install: Install, environment: Path, *words: str) -> tuple[str, str]:
    target = ("--python", str(environment / "bin/python"))
    said = install(*WORDS, *target, "--yes", "--no-verify", *words)
    assert said.exit == 0, said.err
    return target


def test_undo_names_condas_own_command_and_runs_nothing(
    world: World, install: Install, environment: Path
) -> None:
    program(world, "conda")
    target = installed(install, environment)
    said = install("--undo", *target, "--yes")
    assert said.exit == 3
    assert "`conda list --revisions`" in " ".join(said.err.split())
    assert len(asked(world)) == 1


def test_conda_goes_on_without_us_and_the_next_one_waits_for_it(
    world: World, environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(world, "conda", "slow")
    monkeypatch.setenv("SLOW_SECONDS", "2")
    words = ("install", *WORDS, "--backend", "cpu", "--yes", "--no-verify")
    target = ("--python", str(environment / "bin/python"))
    ours = subprocess.Popen(
        [sys.executable, "-m", "gpusetup", *words, *target],
        env={**os.environ, "PYTHONPATH": ROOT},
    )
    began = world.folder / "asked.jsonl.began"
    try:
        while not began.exists():
            assert ours.poll() is None
            time.sleep(0.02)
    finally:
        ours.kill()
        ours.wait()
    assert versions_in(environment)["torch"] == "2.0.0"
    with locked(environment / ".gpusetup"):
        assert versions_in(environment)["torch"] == "2.5.1"


def test_a_conda_that_fails_is_a_tool_that_failed(
    world: World, install: Install, environment: Path
) -> None:
    program(world, "conda", "broken")
    said = install(*WORDS, "--python", str(environment / "bin/python"), "--yes")
    assert said.exit == 4
    assert "PackagesNotFoundError" in said.err
