"""`gpusetup guard`: real pip and real uv on the indexes of the tests, which it holds back."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import uv
from installing import TORCH, Install, Said, World, needs_linux, state_of, versions_in

from gpusetup import cli
from gpusetup.uv.program import GUARD_FILE as CONSTRAINTS

pytestmark = needs_linux
Guard = Callable[..., Said]
HELD = f"torch=={TORCH}+cpu"


@pytest.fixture
def venv(world: World) -> Path:
    """An environment with pip and torch; the index has a newer torch and who wants it."""
    venv = world.venv_with_pip()
    torch = world.add_torch("cpu", requires=())
    vision = world.wheel("torchvision", "0.20.1+cpu")
    world.fill(venv, torch, vision, world.wheel("numpy", "2.0.0"))
    world.add_default("torch", "2.99.0")
    world.add_default("wants-another", "1.0", requires=("torch==2.99.0",))
    world.add_default("wants-any", "1.0", requires=("torch>=2",))
    return venv


@pytest.fixture
def guard(venv: Path, capsys: pytest.CaptureFixture[str]) -> Guard:
    def guarded(*words: str) -> Said:
        capsys.readouterr()
        code = cli.main(["guard", "--python", str(venv), *words])
        said = capsys.readouterr()
        return Said(exit=code, out=said.out, err=said.err)

    return guarded


def asked(world: World, *argv: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A program with the world's variables; pip reads its configuration files."""
    environ = {**os.environ, **world.environment, **more}
    environ.pop("PIP_CONFIG_FILE")
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)


def pip(world: World, venv: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return asked(world, str(venv / "bin/python"), "-m", "pip", "install", *words)


def uv_pip(world: World, venv: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    python = ("--python", str(venv / "bin/python"))
    return asked(world, str(uv.find_uv_bin()), "pip", "install", *python, *words, **more)


def test_pip_and_uv_fail_by_the_constraint_instead_of_replacing_torch(
    world: World, venv: Path, guard: Guard
) -> None:
    written = guard("--write", "--json")
    assert written.exit == 0 and written.answer["state"] == "written"
    assert written.answer["pins"] == {"torch": f"{TORCH}+cpu", "torchvision": "0.20.1+cpu"}
    before = state_of(venv)
    for said in (
        pip(world, venv, "wants-another"),
        uv_pip(world, venv, "wants-another", UV_CONSTRAINT=str(venv / CONSTRAINTS)),
    ):
        told = said.stdout + said.stderr
        assert said.returncode != 0 and HELD in told and "wants-another" in told, told
        assert state_of(venv) == before
    assert pip(world, venv, "wants-any").returncode == 0
    assert versions_in(venv)["torch"] == f"{TORCH}+cpu"


@pytest.mark.slow
def test_a_former_constraint_counts_on(
    world: World, venv: Path, guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_CONFIG_FILE")
    world.add_default("small", "2.0")
    world.add_default("small", "1.0")
    former = world.folder / "former.txt"
    former.write_text("small==1.0\n")
    users = world.folder / "home/.config/pip/pip.conf"
    users.parent.mkdir(parents=True)
    users.write_text(f"[global]\nconstraint = {former}\n")
    guard("--write")
    assert pip(world, venv, "small").returncode == 0
    assert versions_in(venv)["small"] == "1.0"
    assert pip(world, venv, "wants-another").returncode != 0


def test_without_torch_the_answer_is_no(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["guard", "--python", str(world.venv()), "--write"]) == 1
    assert "gpusetup install" in capsys.readouterr().err


# --- files of somebody else -----------------------------------------------------------------------


def test_nothing_is_changed_without_write_and_undo_takes_back_what_it_wrote(
    venv: Path, guard: Guard
) -> None:
    before = state_of(venv)
    shown = guard()
    assert shown.exit == 0 and HELD in shown.out and "numpy" not in shown.out
    assert f"export UV_CONSTRAINT={venv / CONSTRAINTS}" in shown.out
    assert "gpusetup guard --write" in shown.out
    assert state_of(venv) == before
    assert guard("--write").exit == 0
    once = state_of(venv)
    assert guard("--write", "--json").answer["state"] == "unchanged"
    assert state_of(venv) == once
    assert guard("--undo").exit == 0 and state_of(venv) == before
    assert guard("--undo", "--json").answer["state"] == "unchanged"


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("pip.conf", b"[install]\nconstraint = a.txt\n     b.txt\n", "constraint = a.txt b.txt"),
        ("gpusetup-constraints.txt", b"numpy<2\n", HELD),
    ],
)
def test_a_file_of_somebody_else_stays_and_the_lines_for_it_are_shown(
    venv: Path,
    guard: Guard,
    name: str,
    content: bytes,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PIP_CONFIG_FILE")
    (venv / name).write_bytes(content)
    said = guard("--write")
    assert said.exit == 0 and (venv / name).read_bytes() == content
    told = " ".join(said.out.split())
    assert f"{venv / name} is yours and stays; write this into it:" in told and line in told
    assert guard("--undo").exit == 0 and (venv / name).read_bytes() == content


def test_nothing_is_written_through_a_link(venv: Path, guard: Guard, tmp_path: Path) -> None:
    name = "pip.conf"
    (tmp_path / "elsewhere").write_text("[a]\n")
    (venv / name).symlink_to(tmp_path / "elsewhere")
    before = state_of(venv)
    said = guard("--write")
    assert said.exit == 3 and f"{venv / name} is a symbolic link" in said.err
    assert state_of(venv) == before


def test_our_own_commands_are_not_held_back_by_the_guard(
    world: World, venv: Path, guard: Guard, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard("--write")
    monkeypatch.setenv("UV_CONSTRAINT", str(venv / CONSTRAINTS))
    world.add_torch("cu118", requires=())
    world.index.add("whl/cu118", world.wheel("torchvision", "0.20.1+cu118"))
    wanted = ("--torch", TORCH, "--backend", "cu118", "--yes", "--no-verify")
    said = install("--python", str(venv), *wanted)
    assert said.exit == 0, said.err
    assert versions_in(venv)["torch"] == f"{TORCH}+cu118"
