"""A plain `uv pip install` under the guard: real uv, real shells, what people type in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import uv
from installing import TORCH, Said, World, needs_linux

from gpusetup import cli
from gpusetup.install.guard import CONSTRAINTS, RECORD
from gpusetup.install.settings.conda_state import with_variable
from gpusetup.install.settings.environment import asking_environment

pytestmark = needs_linux
HELD = f"torch=={TORCH}+cpu"
Guard = Callable[..., Said]
UV = str(uv.find_uv_bin())


def made(world: World, venv: Path) -> None:
    """An environment with torch in it."""
    argv = (UV, "venv", "--quiet", "--python", sys.executable, str(venv))
    subprocess.run(argv, check=True, capture_output=True)
    world.fill(venv, world.add_torch("cpu", requires=()))
    world.add_default("torch", "2.99.0")
    world.add_default("wants-another", "1.0", requires=("torch==2.99.0",))
    world.add_default("wants-any", "1.0", requires=("torch>=2",))


@pytest.fixture
def guard(capsys: pytest.CaptureFixture[str]) -> Guard:
    def guarded(venv: Path, *words: str) -> Said:
        capsys.readouterr()
        code = cli.main(["guard", "--python", str(venv), *words])
        said = capsys.readouterr()
        return Said(exit=code, out=said.out, err=said.err)

    return guarded


def unasked(world: World, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, **world.environment}
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        environ.pop(name, None)
    argv = (UV, "pip", "install", *words)
    return subprocess.run(
        argv, env=environ, cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.fixture
def folder(world: World) -> Path:
    folder = world.folder / "work"
    folder.mkdir()
    made(world, folder / ".venv")
    return folder


def test_in_the_folder_of_a_dot_venv_a_plain_uv_is_held_back(
    world: World, guard: Guard, folder: Path
) -> None:
    venv = folder / ".venv"
    assert str(folder / "uv.toml") in guard(venv).out and not (folder / "uv.toml").exists()
    assert guard(venv, "--write").exit == 0
    (folder / "below").mkdir()
    for where in (folder, folder / "below"):
        held = unasked(world, where, "wants-another")
        assert held.returncode != 0 and HELD in held.stderr, held.stderr
    assert unasked(world, folder, "wants-any").returncode == 0
    assert guard(venv, "--write", "--json").answer["state"] == "unchanged"
    assert guard(venv, "--undo").exit == 0
    assert not (folder / "uv.toml").exists() and not (venv / RECORD).exists()
    assert unasked(world, folder, "wants-another").returncode == 0


def test_what_it_does_not_reach_is_said_and_doctor_finds_it(
    world: World, guard: Guard, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    venv = folder / ".venv"
    said = guard(venv, "--write").err
    assert "from elsewhere" in said and "reads neither" in said
    gone = unasked(world, world.folder, "--python", str(venv / "bin/python"), "wants-another")
    assert gone.returncode == 0
    capsys.readouterr()
    cli.main(["doctor", "--python", str(venv), "--json"])
    found = [row["id"] for row in json.loads(capsys.readouterr().out)["findings"]]
    assert "guarded-set-changed" in found


@pytest.mark.parametrize("name", ["uv.toml", "pyproject.toml"])
def test_settings_that_are_there_are_pointed_at_and_guarded_when_asked(
    world: World, guard: Guard, folder: Path, name: str
) -> None:
    own = '[project]\nname = "x"\nversion = "0"\n' if name == "pyproject.toml" else "# mine\n"
    (folder / name).write_text(own)
    said = guard(folder / ".venv", "--write")
    way = f"gpusetup guard --project {folder / name} --write"
    assert way in said.err and (folder / name).read_text() == own
    assert unasked(world, folder, "wants-another", "--dry-run").returncode == 0
    assert guard(folder / ".venv", "--project", str(folder / name), "--write").exit == 0
    held = unasked(world, folder, "wants-another")
    assert held.returncode != 0 and f"torch=={TORCH}" in held.stderr, held.stderr
    assert guard(folder / ".venv", "--project", str(folder / name), "--undo").exit == 0
    assert (folder / name).read_text() == own


def test_a_uv_toml_hides_the_constraints_of_the_project_beside_it(
    world: World, guard: Guard, folder: Path
) -> None:
    (folder / "uv.toml").write_text("")
    (folder / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "0"\n')
    said = guard(folder / ".venv", "--project", str(folder / "pyproject.toml"))
    assert f"--project {folder / 'uv.toml'} --write" in said.out


def test_no_uv_toml_is_put_above_somebodys_home_or_below_others_settings(
    world: World, guard: Guard, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Path, "home", lambda: folder)
        assert str(folder / "uv.toml") not in guard(folder / ".venv").out
    (world.folder / "uv.toml").write_text("")
    said = guard(folder / ".venv").out
    assert str(folder / "uv.toml") not in said and str(world.folder / "uv.toml") in said


def test_a_record_of_somebody_else_writes_nothing_beside_the_environment(
    guard: Guard, folder: Path
) -> None:
    rows = {"../uv.toml": {"before": "bWluZQ==", "after": "0"}}
    record = {"schema": "gpusetup.guard-undo/1", "files": rows}
    (folder / ".venv" / RECORD).write_text(json.dumps(record))
    assert guard(folder / ".venv", "--undo").exit == 2
    assert not (folder / "uv.toml").exists()


# --- the pure parts -------------------------------------------------------------------------------


def test_our_own_commands_are_not_held_back_by_the_guard(tmp_path: Path) -> None:
    environ = {"UV_CONSTRAINT": f"/a/{CONSTRAINTS} file:///my%20env/{CONSTRAINTS} mine.txt"}
    assert asking_environment(environ, tmp_path)["UV_CONSTRAINT"] == "mine.txt"
    environ = {"UV_CONSTRAINT": f"/a/{CONSTRAINTS}"}
    assert "UV_CONSTRAINT" not in asking_environment(environ, tmp_path)


def test_condas_own_activation_sets_the_variable_in_every_shell(tmp_path: Path) -> None:
    rattler = pytest.importorskip("rattler.shell")
    (tmp_path / "conda-meta").mkdir()
    state = tmp_path / "conda-meta" / "state"
    former = b'{"version": 1, "env_vars": {"MINE": "1", "UV_CONSTRAINT": "/b.txt"}}'
    now = with_variable(former, "/o.txt")
    assert now is not None
    state.write_bytes(now)
    for shell in (rattler.Shell.bash, rattler.Shell.fish, rattler.Shell.powershell):
        script = rattler.activate(tmp_path, rattler.ActivationVariables(), shell).script
        assert "/o.txt /b.txt" in script and "MINE" in script
    assert with_variable(now, "/o.txt") == now
    for strange in (b"[]", b"{", b'{"env_vars": 7}', b'{"env_vars": {"UV_CONSTRAINT": 7}}'):
        assert with_variable(strange, "/o.txt") is None
