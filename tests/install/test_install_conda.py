"""conda changes an environment whose torch it has installed. A stand-in is the conda here."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from installing import (
    Install,
    World,
    enter,
    needs_linux,
    new_world,
    same_place,
    state_of,
    versions_in,
    with_a_gpu,
)

ROOT = str(Path(__file__).resolve().parents[2])

pytestmark = needs_linux

STAND_IN = """#!{python}
import json, os, pathlib, sys, time
words, what = sys.argv[1:], os.environ.get("CONDA_IS")
print(json.dumps(words), file=open({log!r}, "a"))
if what in ("broken", "idle"):
    sys.exit({{"broken": "the packages are not available"}}.get(what))
if "--dry-run" in words:
    print("  zlib  1.3 -> 1.3.1" + chr(10) + "  + pytorch-gpu 2.5.1 https://me:secret@c/p")
    sys.exit()
time.sleep(2 * (what == "slow"))
prefix = pathlib.Path(words[words.index("--prefix") + 1])
site = next(prefix.glob("lib/*/site-packages"))
next(site.glob("torch-*")).rename(site / "torch-2.5.1.dist-info")
(site / "torch" / "version.py").write_text("__version__ = '2.5.1'; cuda = '12.4'")
"""
WORDS = ("--torch", "2.5.1")


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
    (venv / "conda-meta").mkdir()
    world.fill(venv, world.wheel("torch", "2.0.0", files={"torch/__init__.py": ""}))
    next(venv.glob("lib/*/site-packages/torch-*/INSTALLER")).write_text("conda")
    return venv


def program(world: World, name: str = "conda") -> Path:
    path = world.folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    log = str(world.folder / "asked.jsonl")
    path.write_text(STAND_IN.format(python=sys.executable, log=log))
    path.chmod(0o755)
    return path


def asked(world: World) -> list[list[str]]:
    lines = (world.folder / "asked.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def target(environment: Path) -> tuple[str, str]:
    return ("--python", str(environment / "bin/python"))


@pytest.mark.parametrize("name", ["conda", "mamba", "micromamba"])
@pytest.mark.one_in(3)
def test_the_command_that_is_shown_is_run_and_its_way_back_is_named(
    world: World, install: Install, environment: Path, name: str
) -> None:
    path = program(world, name)
    shown = install(*WORDS, *target(environment), "--dry-run", "--json")
    assert shown.exit == 0, shown.err
    assert not (world.folder / "asked.jsonl").exists()
    said = install(*WORDS, *target(environment), "--yes", "--no-verify")
    assert said.exit == 0, said.err
    (words,) = asked(world)
    assert [str(path), *words] == shown.answer["steps"][0]["argv"]
    assert words[:4] == ["install", "--yes", "--prefix", str(environment)]
    assert "torch 2.5.1" in said.out
    assert f"conda install --prefix {environment} --revision N`" in " ".join(said.out.split())


class Terminal(io.StringIO):
    """What somebody types."""

    def isatty(self) -> bool:
        return True


def test_what_conda_would_move_stands_before_the_question(
    world: World, install: Install, environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(world)
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    before = state_of(environment)
    said = install(*WORDS, *target(environment))
    assert (said.exit, state_of(environment)) == (1, before), said.err
    shown, _, _ = said.err.partition("Proceed? [y/N]")
    assert "zlib 1.3 -> 1.3.1" in " ".join(shown.split()) and "secret" not in shown


@pytest.mark.parametrize("missing", ["conda", "the right to write"])
def test_where_conda_cannot_be_run_its_command_is_named(
    world: World,
    install: Install,
    environment: Path,
    missing: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if missing != "conda":
        program(world)
        held, usual = str(environment / "conda-meta"), os.access
        monkeypatch.setattr(os, "access", lambda at, mode: str(at) != held and usual(at, mode))
    before = state_of(environment)
    said = install(*WORDS, *target(environment), "--yes")
    assert (said.exit, state_of(environment)) == (3, before), said.err
    assert f"install --yes --prefix {environment} " in said.err
    assert "gpusetup verify --python" in said.err
    as_json = install(*WORDS, *target(environment), "--yes", "--json")
    assert as_json.answer["schema"] == "gpusetup.error/1"


@pytest.mark.parametrize(
    ("what", "word", "code", "told"),
    [
        ("broken", "--yes", 4, "the packages are not available"),
        ("idle", "--no-verify", 1, "did not install the requested torch"),
        ("whole", "--yes", 1, "Installed, but it fails its test"),
    ],
)
def test_a_conda_that_fails_or_changes_nothing_or_not_enough_is_a_no(
    world: World,
    install: Install,
    environment: Path,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    word: str,
    code: int,
    told: str,
) -> None:
    program(world)
    monkeypatch.setenv("CONDA_IS", what)
    said = install(*WORDS, *target(environment), "--yes", word)
    assert said.exit == code, said.err
    assert told in said.out + said.err
    assert what != "whole" or "--revision N`" in said.out
    assert what != "idle" or "torch 2.0.0" in said.out


def test_conda_goes_on_without_us_and_the_next_one_waits_for_it(
    world: World, install: Install, environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(world)
    words = ("install", *WORDS, *target(environment), "--backend", "cpu", "--yes", "--no-verify")
    ours = subprocess.Popen(
        [sys.executable, "-m", "gpusetup", *words],
        env={**os.environ, "PYTHONPATH": ROOT, "CONDA_IS": "slow"},
    )
    try:
        while not (world.folder / "asked.jsonl").exists():
            assert ours.poll() is None
            time.sleep(0.02)
    finally:
        ours.kill()
        ours.wait()
    assert versions_in(environment)["torch"] == "2.0.0"
    said = install(*words[1:])
    assert said.exit == 0, said.err
    assert "The installer of an earlier run" in said.err
    assert versions_in(environment)["torch"] == "2.5.1"
