"""`gpusetup guard`: real pip and real uv on the indexes of the tests, which it holds back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import uv
from installing import TORCH, Said, World, needs_linux, run_uv, state_of, versions_in

from gpusetup import cli
from gpusetup.install.guard import CONSTRAINTS, PIP, RECORD
from gpusetup.install.project_undo import record_of

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


def test_nothing_is_changed_without_write(venv: Path, guard: Guard) -> None:
    before = state_of(venv)
    said = guard()
    assert said.exit == 0 and HELD in said.out and "numpy" not in said.out
    assert f"export UV_CONSTRAINT={venv / CONSTRAINTS}" in said.out
    assert "gpusetup guard --write" in said.out
    assert state_of(venv) == before


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


@pytest.mark.parametrize(
    "former",
    [
        b"[global]\nindex-url = http://127.0.0.1:9/simple\n",
        b"\xef\xbb\xbf# ours \xff\r\n[install]\r\nno-cache-dir = true\r\n\r\n[list]\r\nformat=json",
        b"[install]\n  constraint = a.txt\n     b.txt\n# end\n[global]\nconstraint: c.txt\n",
        b"[global]\nconstraint = c.txt\n",
    ],
)
@pytest.mark.one_in(2)
def test_every_byte_of_a_former_configuration_stays_and_comes_back(
    venv: Path, guard: Guard, former: bytes
) -> None:
    config = venv / PIP
    config.write_bytes(former)
    config.chmod(0o640)
    assert guard("--write").exit == 0
    now = config.read_bytes()
    assert all(line in now for line in former.splitlines())
    for named in (b"a.txt", b"c.txt"):
        assert (named in former) == (named in now)
    once = state_of(venv)
    assert guard("--write", "--json").answer["state"] == "unchanged"
    assert state_of(venv) == once
    assert guard("--undo").exit == 0
    assert config.read_bytes() == former and config.stat().st_mode & 0o777 == 0o640
    assert not (venv / CONSTRAINTS).exists() and not (venv / RECORD).exists()


@pytest.mark.slow
def test_a_former_constraint_counts_on(world: World, venv: Path, guard: Guard) -> None:
    world.add_default("small", "2.0")
    world.add_default("small", "1.0")
    former = world.folder / "former.txt"
    former.write_text("small==1.0\n")
    (venv / PIP).write_text(f"[global]\nconstraint = {former}\n")
    guard("--write")
    assert pip(world, venv, "small").returncode == 0
    assert versions_in(venv)["small"] == "1.0"
    assert pip(world, venv, "wants-another").returncode != 0


@pytest.mark.parametrize(
    "former",
    [
        b"constraint = a\n",
        b"[install\n",
        b"[install]\nconstraint\n",
        b"[a]\n[a]\n",
        b"[a]\n" * 99999,
    ],
)
@pytest.mark.one_in(5)
def test_a_configuration_that_pip_cannot_read_is_left_alone(
    venv: Path, guard: Guard, former: bytes
) -> None:
    (venv / PIP).write_bytes(former)
    before = state_of(venv)
    said = guard("--write")
    assert said.exit in (2, 3) and str(venv / PIP) in said.err
    assert state_of(venv) == before


def test_a_link_and_a_pipe_are_not_followed(venv: Path, guard: Guard, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("[a]\n")
    for make in (lambda path: path.symlink_to(elsewhere), os.mkfifo):
        for name in (PIP, CONSTRAINTS):
            make(venv / name)
            assert guard("--write").exit == 3
            (venv / name).unlink()
    assert elsewhere.read_text() == "[a]\n" and not (venv / RECORD).exists()


def test_undo_leaves_what_somebody_changed_since(venv: Path, guard: Guard) -> None:
    guard("--write")
    with (venv / PIP).open("a") as file:
        file.write("[list]\nformat = json\n")
    before = state_of(venv)
    said = guard("--undo")
    assert said.exit == 3 and "was changed after" in said.err
    assert state_of(venv) == before


@pytest.mark.parametrize(
    "record",
    [
        "[]",
        "{",
        '{"schema": "gpusetup.guard-undo/1", "files": {"../../home": {"before": null}}}',
        '{"schema": "gpusetup.guard-undo/1", "files": {"pip.conf": {"before": 7}}}',
        '{"schema": "gpusetup.guard-undo/1", "files": {"pip.conf": {"before": "?"}}}',
    ],
)
@pytest.mark.one_in(10)
def test_a_record_of_somebody_else_changes_nothing(venv: Path, guard: Guard, record: str) -> None:
    (venv / RECORD).write_text(record)
    before = state_of(venv)
    for words in (("--undo",), ("--write",)):
        assert guard(*words).exit == 2
        assert state_of(venv) == before


def test_a_write_that_is_refused_blocks(
    venv: Path, guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_words: object, **_more: object) -> int:
        raise PermissionError(30, "Read-only file system")

    before = state_of(venv)
    with monkeypatch.context() as patched:
        patched.setattr("gpusetup.install.guard.new_file", refused)
        said = guard("--write")
    assert said.exit == 3 and "Read-only file system" in said.err
    assert state_of(venv) == before


def test_without_torch_the_answer_is_no(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["guard", "--python", str(world.venv()), "--write"]) == 1
    assert "gpusetup install" in capsys.readouterr().err


@pytest.mark.slow
def test_a_folder_with_a_space_is_guarded_too(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    venv = world.venv("my env")
    world.fill(venv, world.add_torch("cpu", requires=()))
    world.add_default("torch", "2.99.0")
    assert cli.main(["guard", "--python", str(venv), "--write", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert "my%20env" in answer["settings"]["pip"]
    line = answer["settings"]["uv"].removeprefix("export UV_CONSTRAINT=").strip("'")
    said = uv_pip(world, venv, "torch==2.99.0", UV_CONSTRAINT=line)
    assert said.returncode != 0 and HELD in said.stderr, said.stderr
    python = (sys.executable, "-m", "pip", "--python", str(venv), "install", "torch==2.99.0")
    refused = asked(world, *python)
    assert refused.returncode != 0 and "constraint" in refused.stdout + refused.stderr


def changed(venv: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    cli.main(["doctor", "--python", str(venv), "--json"])
    rows = json.loads(capsys.readouterr().out)["findings"]
    return [row for row in rows if row["id"] == "guarded-set-changed"]


def test_doctor_names_what_was_replaced_all_the_same(
    world: World, venv: Path, guard: Guard, capsys: pytest.CaptureFixture[str]
) -> None:
    guard("--write")
    assert not changed(venv, capsys)
    run_uv(world, "pip", "install", "-q", "--python", str(venv / "bin/python"), "torch==2.99.0")
    (row,) = changed(venv, capsys)
    day = datetime.now(timezone.utc).date().isoformat()
    was = f"torch was {TORCH}+cpu when it was guarded on {day}, it is 2.99.0 now"
    assert row["title"].startswith(was)
    assert f"--torch {TORCH} --backend cpu" in row["fix"]["commands"][0]
    (venv / CONSTRAINTS).write_bytes(b"torch==\x1b[31m\ntorch==1 ; rm -rf /\n" + b"(" * 200000)
    assert not changed(venv, capsys)


def test_doctor_says_from_the_receipt_what_pip_replaced(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    venv = world.venv_with_pip()
    world.add_torch("cpu", requires=())
    world.add_default("torch", "2.99.0")
    world.add_default("wants-another", "1.0", requires=("torch==2.99.0",))
    install = ("install", "--index", world.index.index_root, "--yes", "--no-verify")
    assert cli.main([*install, "--python", str(venv), "--torch", TORCH, "--backend", "cpu"]) == 0

    assert not changed(venv, capsys)
    assert pip(world, venv, "wants-another").returncode == 0
    (row,) = changed(venv, capsys)
    day = datetime.now(timezone.utc).date().isoformat()
    was = f"torch was {TORCH}+cpu when it was installed on {day}"
    assert row["title"] == f"{was}, it is 2.99.0 now"
    assert f"--torch {TORCH} --backend cpu" in row["fix"]["commands"][0]
    (venv / ".gpusetup" / "receipt.json").write_text("[" * 9999)
    assert not changed(venv, capsys)


# --- conda, and projects --------------------------------------------------------------------------


def test_what_conda_installed_is_pinned_with_its_build_and_given_free_again(
    venv: Path, guard: Guard
) -> None:
    meta = venv / "conda-meta"
    meta.mkdir()
    for name in ("pytorch-2.5.1-py3.11_cuda12.4_cudnn9_0", "numpy-2.0.0-h1", "x y-1-2"):
        (meta / f"{name}.json").write_text("{}")
    pinned = meta / "pinned"
    pinned.write_bytes(b"numpy <2\r\n# ours")
    before = state_of(venv)
    assert guard("--write").exit == 0
    text = pinned.read_bytes().decode()
    assert text.startswith("numpy <2\r\n# ours\n")
    assert "pytorch ==2.5.1 py3.11_cuda12.4_cudnn9_0\n" in text
    assert "numpy ==" not in text
    assert guard("--write", "--json").answer["state"] == "unchanged"
    assert guard("--undo").exit == 0
    assert state_of(venv) == before


PROJECT = """\
[project]
name = "x"
version = "0"
requires-python = ">=3.9"
dependencies = ["wants-another"]  # all of it

[tool.uv]
constraint-dependencies = [
    "numpy<3",  # ours
    "torch==1.0",
]
"""


def test_a_projects_constraints_make_uv_refuse_another_torch(
    world: World, venv: Path, guard: Guard
) -> None:
    project = world.folder / "project"
    project.mkdir()
    file = project / "pyproject.toml"
    file.write_text(PROJECT.replace('    "torch==1.0",\n', ""))
    lock = (str(uv.find_uv_bin()), "lock", "--directory", str(project), "--python", sys.executable)
    assert asked(world, *lock).returncode == 0, "without a guard it takes the other torch"
    file.write_text(PROJECT)
    shown = guard("--project", str(file))
    assert shown.exit == 0 and f'+    "torch=={TORCH}",' in shown.out
    assert "names no index for torch" in shown.out
    assert file.read_text() == PROJECT
    assert guard("--project", str(file), "--write").exit == 0
    text = file.read_text()
    assert '"numpy<3",  # ours' in text and '"torch==1.0"' not in text and "# all of it" in text
    refused = asked(world, *lock)
    assert refused.returncode != 0 and f"torch=={TORCH}" in refused.stderr, refused.stderr
    assert guard("--project", str(file), "--json").answer["state"] == "unchanged"


@pytest.mark.parametrize(
    ("line", "exit"),
    [
        ("torch==2.15.0", 1),
        ("torch>=2.99; sys_platform == 'win32'", 1),
        (f"torch=={TORCH}+cu124", 0),
        ("torch>=2", 0),
        ("numpy==1.0", 0),
    ],
)
@pytest.mark.parametrize("table", ["dependencies = [{}]", "optional-dependencies.gpu = [{}]"])
def test_no_constraint_is_proposed_that_contradicts_the_project(
    guard: Guard, world: World, line: str, exit: int, table: str
) -> None:
    file = world.folder / "pyproject.toml"
    file.write_text('[project]\nname = "x"\nversion = "0"\n' + table.format(f'"{line}"'))
    said = guard("--project", str(file))
    assert said.exit == exit
    assert not exit or (
        line.partition(";")[0] in said.err and "constraint-dependencies" not in said.out
    )


def test_an_override_that_counts_more_is_named(guard: Guard, world: World) -> None:
    file = world.folder / "pyproject.toml"
    head = '[project]\nname = "x"\nversion = "0"\n[tool.uv]\n'
    file.write_text(head + 'override-dependencies = ["torch==2.99.0"]\n')
    assert "counts more than the constraint" in guard("--project", str(file)).out
    undone = guard("--project", str(file), "--undo")
    assert undone.exit == 0 and "has no guard" in undone.out


def test_a_project_comes_back_byte_for_byte_and_what_changed_since_stays(
    guard: Guard, world: World
) -> None:
    file = world.folder / "pyproject.toml"
    before = '[project]\r\nname = "x"\r\nversion = "0" # mine\r\n'
    file.write_text(before, newline="")
    for _ in range(2):
        assert guard("--project", str(file), "--write").exit == 0
    assert file.read_bytes() != before.encode()
    assert guard("--project", str(file), "--undo").exit == 0
    assert file.read_bytes() == before.encode()
    assert [one.name for one in world.folder.glob("*undo*")] == []
    assert guard("--project", str(file), "--write").exit == 0
    file.write_text(file.read_text() + "# more\n")
    assert guard("--project", str(file), "--undo").exit == 3
    assert file.read_text().endswith("# more\n")
    record_of(file).write_text('{"schema": "x"}')
    assert guard("--project", str(file), "--undo").exit == 2


def test_a_set_that_does_not_go_together_is_not_kept(
    guard: Guard, world: World, venv: Path
) -> None:
    world.fill(venv, world.wheel("torchvision", "0.28.0+cpu"))
    refused = guard("--write")
    assert refused.exit == 1 and "torchvision 0.28.0+cpu does not go with torch" in refused.err
    assert not (venv / "gpusetup-constraints.txt").exists()
