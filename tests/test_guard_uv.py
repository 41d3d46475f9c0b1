"""A plain `uv pip install` under the guard: real uv, real shells, what people type in them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import uv
from installing import TORCH, Said, World, needs_linux, run_uv, state_of, versions_in

from gpusetup import cli
from gpusetup.install.guard import CONSTRAINTS, RECORD
from gpusetup.install.settings.activation import SCRIPTS, with_uv_constraint, without_ours
from gpusetup.install.settings.conda_state import with_variable
from gpusetup.install.settings.environment import asking_environment

pytestmark = needs_linux
HELD = f"torch=={TORCH}+cpu"
Guard = Callable[..., Said]
UV = str(uv.find_uv_bin())
SHELLS = {
    "bash": "set -eu; . {}/activate",
    "dash": "set -eu; . {}/activate",
    "zsh": ". {}/activate",
    "fish": "source {}/activate.fish",
    "tcsh": "set prompt = x; source {}/activate.csh",
}
MAKERS = ("venv", "uv", "virtualenv")
QUICK = {("bash", "uv"), ("zsh", "venv"), ("fish", "venv"), ("tcsh", "uv")}
PAIRS = [
    pytest.param(shell, maker, marks=() if (shell, maker) in QUICK else pytest.mark.slow)
    for shell in SHELLS
    for maker in MAKERS
]


def made(world: World, maker: str, venv: Path) -> None:
    """An environment with torch in it, as one of three programs makes it."""
    rows = {
        "venv": (sys.executable, "-m", "venv", "--without-pip", str(venv)),
        "uv": (UV, "venv", "--quiet", "--python", sys.executable, str(venv)),
        "virtualenv": (sys.executable, "-m", "virtualenv", "-q", "--no-seed", str(venv)),
    }
    if maker == "virtualenv":
        pytest.importorskip("virtualenv")
    subprocess.run(rows[maker], check=True, capture_output=True)
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


def typed(world: World, shell: str, text: str, **more: str) -> subprocess.CompletedProcess[str]:
    """What a shell says that was started without its own files."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    argv = {"zsh": ("zsh", "-f"), "fish": ("fish", "--no-config"), "tcsh": ("tcsh", "-f")}
    environ = {**os.environ, **world.environment, **more}
    environ["PATH"] = f"{Path(UV).parent}{os.pathsep}{environ['PATH']}"
    folder = world.folder / "elsewhere"
    folder.mkdir(exist_ok=True)
    return subprocess.run(
        argv.get(shell, (shell,)),
        env=environ,
        cwd=folder,
        input=text.replace("; ", "\n") + "\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def quoted(path: Path) -> str:
    return str(path).replace(" ", "\\ ")


@pytest.mark.parametrize(("shell", "maker"), PAIRS)
@pytest.mark.one_in(4)
def test_in_an_activated_environment_uv_is_held_back_and_elsewhere_it_is_not(
    world: World, guard: Guard, shell: str, maker: str
) -> None:
    venv = world.folder / ("my env" if shell in ("bash", "fish") else "env")
    made(world, maker, venv)
    before = state_of(venv)
    assert guard(venv, "--write").exit == 0
    active = SHELLS[shell].format(quoted(venv / "bin"))
    held = typed(world, shell, f"{active}; uv pip install wants-another")
    assert held.returncode != 0 and HELD in held.stderr, held.stdout + held.stderr
    assert versions_in(venv)["torch"] == f"{TORCH}+cpu"
    fine = typed(world, shell, f"{active}; uv pip install wants-any")
    assert fine.returncode == 0, fine.stderr
    said = typed(world, shell, f"{active}; deactivate; printenv UV_CONSTRAINT; true")
    assert said.stdout.strip() == "", said.stdout
    again = f"{active}; {active}; printenv UV_CONSTRAINT; deactivate; printenv UV_CONSTRAINT; true"
    said = typed(world, shell, again, UV_CONSTRAINT="/dev/null")
    first, last = said.stdout.splitlines()
    assert first.split()[0].endswith(CONSTRAINTS) and first.split()[1:] == ["/dev/null"]
    assert last == "/dev/null"
    run_uv(world, "pip", "uninstall", "-q", "--python", str(venv / "bin/python"), "wants-any")
    assert guard(venv, "--undo").exit == 0
    assert state_of(venv) == before
    free = typed(world, shell, f"{active}; uv pip install wants-another")
    assert free.returncode == 0 and versions_in(venv)["torch"] == "2.99.0", free.stderr


def test_from_one_guarded_environment_to_another_the_second_counts(
    world: World, guard: Guard
) -> None:
    made(world, "uv", world.folder / "one")
    shutil.copytree(world.folder / "one", world.folder / "two", symlinks=True)
    moved = world.folder / "two/bin/activate"
    moved.write_text(moved.read_text().replace(f"{world.folder}/one", f"{world.folder}/two"))
    for name in ("one", "two"):
        assert guard(world.folder / name, "--write").exit == 0
    first, second = (world.folder / name / "bin/activate" for name in ("one", "two"))
    said = typed(world, "bash", f". {first}; . {second}; echo $UV_CONSTRAINT; deactivate; env")
    assert said.stdout.splitlines()[0] == str(world.folder / "two" / CONSTRAINTS)
    assert "UV_CONSTRAINT" not in said.stdout.partition("\n")[2]


def test_a_constraints_file_that_is_gone_hinders_nobody(world: World, guard: Guard) -> None:
    venv = world.folder / "env"
    made(world, "uv", venv)
    guard(venv, "--write")
    (venv / CONSTRAINTS).unlink()
    for shell in ("bash", "fish"):
        active = SHELLS[shell].format(venv / "bin")
        assert typed(world, shell, f"{active}; uv pip install wants-any").returncode == 0


# --- without activating ---------------------------------------------------------------------------


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
    made(world, "uv", folder / ".venv")
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


def test_undo_takes_only_our_lines_out_of_a_script_that_changed_since(
    world: World, guard: Guard, folder: Path
) -> None:
    venv, script = folder / ".venv", folder / ".venv/bin/activate"
    before = script.read_text()
    guard(venv, "--write")
    script.write_text(script.read_text() + "export MINE=1\n")
    (venv / "bin/activate.fish").unlink()
    assert guard(venv, "--undo").exit == 0
    assert script.read_text() == before + "export MINE=1\n"
    assert not (venv / "bin/activate.fish").exists()


def test_a_link_in_place_of_a_script_is_left_alone(
    world: World, guard: Guard, folder: Path
) -> None:
    script, elsewhere = folder / ".venv/bin/activate", folder / "elsewhere"
    script.rename(elsewhere)
    script.symlink_to(elsewhere)
    before = elsewhere.read_bytes()
    assert guard(folder / ".venv", "--write").exit == 0
    assert elsewhere.read_bytes() == before and script.is_symlink()


def test_a_record_of_somebody_else_writes_nothing_beside_the_environment(
    guard: Guard, folder: Path
) -> None:
    rows = {"../uv.toml": {"before": "bWluZQ==", "after": "0"}}
    record = {"schema": "gpusetup.guard-undo/1", "files": rows}
    (folder / ".venv" / RECORD).write_text(json.dumps(record))
    assert guard(folder / ".venv", "--undo").exit == 2
    assert not (folder / "uv.toml").exists()


# --- the pure parts -------------------------------------------------------------------------------

WINDOWS = {
    "Activate.ps1": "function global:deactivate ([switch]$NonDestructive) {\r\n}\r\n$Env:A = 1\r\n",
    "activate.bat": "@echo off\r\nset VIRTUAL_ENV=C:\\env\r\n:END\r\n",
    "deactivate.bat": "@echo off\r\nset VIRTUAL_ENV=\r\n:END\r\n",
}


@pytest.mark.parametrize("name", sorted(WINDOWS))
def test_a_script_of_windows_keeps_its_lines_and_their_ends(name: str) -> None:
    raw = WINDOWS[name].encode()
    file = Path("/100% 'mine'/c.txt")
    once = with_uv_constraint(name, raw, file, str(file))
    assert once is not None and once.count(b"\n") == once.count(b"\r\n")
    assert with_uv_constraint(name, once, file, str(file)) == once
    assert without_ours(name, once.decode()) == WINDOWS[name]
    text = once.decode()
    if name == "Activate.ps1":
        assert "'/100% ''mine''/c.txt'" in text and "$global:_OLD_UV_CONSTRAINT" in text
    elif name == "activate.bat":
        assert "@if exist \"/100%% 'mine'/c.txt\"" in text
    signed = raw + b"# SIG # Begin signature block\r\n"
    assert with_uv_constraint(name, signed, file, str(file)) is None


def test_a_script_that_is_not_known_and_a_path_with_a_line_end_are_left_alone() -> None:
    for name in set(SCRIPTS) - {"activate.bat", "deactivate.bat"}:
        assert with_uv_constraint(name, b"echo hello\n", Path("/c.txt"), "/c.txt") is None
    known = b"deactivate () {\n}\n"
    assert with_uv_constraint("activate", known, Path("/a\n/c.txt"), "/c.txt") is None


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
