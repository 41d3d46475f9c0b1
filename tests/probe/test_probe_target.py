"""Which interpreter is the target, and why."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tapes import system

from gpusetup.errors import BadInput, Blocked
from gpusetup.probe.target import choose_target
from gpusetup.system.system import System

OWN = {
    "executable": "/opt/own/bin/python",
    "prefix": "/opt/own",
    "base_prefix": "/usr",
    "python": "3.12.3",
    "site_packages": "/opt/own/lib/python3.12/site-packages",
    "path": ["/opt/own/lib/python3.12/site-packages"],
    "cwd": "/proj",
    "bits": 64,
}
OWN_FILES = {"/opt/own/bin/python": "", "/opt/own/pyvenv.cfg": "home = /usr/bin\nuv = 0.9.7\n"}
ENV = {"/venv/bin/python": "", "/venv/pyvenv.cfg": "home = /usr/bin\nversion = 3.11.9\n"}
CONDA = {"/conda/bin/python": "", "/conda/conda-meta/python-3.10.14-h955_0_cpython.json": "{}"}
LOCAL = {"/proj/.venv/bin/python": "", "/proj/.venv/pyvenv.cfg": "home = /usr/bin\n"}
ALL = {**OWN_FILES, **ENV, **CONDA, **LOCAL}
ACTIVE = {"VIRTUAL_ENV": "/venv", "CONDA_PREFIX": "/conda"}


@pytest.mark.parametrize(
    ("named", "environ", "files", "chosen_by", "python"),
    [
        ("/venv/bin/python", {"CONDA_PREFIX": "/conda"}, ALL, "--python", "/venv/bin/python"),
        ("/venv", {}, ALL, "--python", "/venv/bin/python"),
        (None, ACTIVE, ALL, "VIRTUAL_ENV", "/venv/bin/python"),
        (None, {"CONDA_PREFIX": "/conda"}, ALL, "CONDA_PREFIX", "/conda/bin/python"),
        (None, {}, ALL, ".venv", "/proj/.venv/bin/python"),
        (None, {}, OWN_FILES, "self", "/opt/own/bin/python"),
        (None, {"VIRTUAL_ENV": "/gone"}, ALL, ".venv", "/proj/.venv/bin/python"),
    ],
)
def test_the_contracts_order(
    named: str | None, environ: dict[str, str], files: dict[str, str], chosen_by: str, python: str
) -> None:
    target = choose_target(system(files, facts=OWN, environ=environ), named)
    assert (target.record.chosen_by, target.python) == (chosen_by, python)


@pytest.mark.parametrize(
    ("files", "prefix", "tool"),
    [
        ({"/h/pipx/venvs/gpusetup/pipx_metadata.json": "{}"}, "/h/pipx/venvs/gpusetup", "pipx"),
        ({"/h/uv/tools/gpusetup/uv-receipt.toml": ""}, "/h/uv/tools/gpusetup", "uv tool"),
        ({}, "/home/u/.cache/uv/archive-v0/Xy12", "uv tool"),
    ],
)
def test_a_tool_environment_is_no_target(files: dict[str, str], prefix: str, tool: str) -> None:
    facts = {**OWN, "prefix": prefix, "executable": f"{prefix}/bin/python"}
    with pytest.raises(Blocked) as problem:
        choose_target(system(files, facts=facts))
    assert tool in problem.value.message and prefix in problem.value.message
    assert problem.value.hint is not None and "--python" in problem.value.hint


def test_a_named_interpreter_that_is_none_is_a_wrong_question() -> None:
    there, gone = "not a Python interpreter", "is not there"
    for named, said in (("/nowhere/python", gone), ("pyton", gone), ("/proj", there)):
        with pytest.raises(BadInput, match=said) as problem:
            choose_target(system({**OWN_FILES, "/proj/": ""}, facts=OWN), named)
        assert "`.venv/bin/python`" in str(problem.value.hint)
    with pytest.raises(BadInput, match=gone) as problem:
        choose_target(system({}, facts=OWN, family="windows"), "C:\\nowhere\\python.exe")
    assert r"`.venv\Scripts\python.exe`" in str(problem.value.hint)


@pytest.mark.parametrize("named", ["C:\\env", "C:/env", "C:/env\\"])
def test_on_windows_the_interpreter_lies_in_scripts_or_in_the_folder(named: str) -> None:
    files = {"C:\\env\\Scripts\\python.exe": "", "C:\\env\\pyvenv.cfg": "home = C:\\Python\n"}
    conda = {"D:\\conda\\python.exe": "", "D:\\conda\\conda-meta\\python-3.12.4-h_0.json": "{}"}
    machine = system(
        {**files, **conda, "C:\\w\\own\\Scripts\\python.exe": "", "C:\\w\\own\\pyvenv.cfg": ""},
        family="windows",
        facts={"cwd": "C:\\w"},
        environ={"VIRTUAL_ENV": named},
    )
    target = choose_target(machine)
    assert (target.python, target.prefix) == ("C:\\env\\Scripts\\python.exe", "C:\\env")
    assert target.record.site_packages == "C:\\env\\Lib\\site-packages"
    for named in ("C:own", "own", "\\w\\own", "C:\\w\\own"):
        assert choose_target(machine, named).prefix == "C:\\w\\own"
    other = choose_target(machine, "D:\\conda")
    assert (other.python, other.prefix) == ("D:\\conda\\python.exe", "D:\\conda")


def test_a_real_environment_is_asked_and_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    venv = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    target = choose_target(System(), str(venv))
    assert target.problem is None
    assert target.record.version == ".".join(map(str, sys.version_info[:3]))
    assert target.prefix == str(venv)
    assert target.import_path == (target.record.site_packages,)
    assert str(venv) in (target.record.site_packages or "")
    python = target.record
    assert (python.manager, python.has_pip, python.externally_managed) == ("venv", False, False)
    assert python.site_writable is True


def test_a_broken_interpreter_is_a_problem_and_no_crash(tmp_path: Path) -> None:
    broken = tmp_path / "env" / "bin" / "python"
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/bin/sh\nexit 7\n")
    broken.chmod(0o755)
    (tmp_path / "env" / "pyvenv.cfg").write_text("home = /usr/bin\nversion_info = 3.9.1.final.0\n")
    target = choose_target(System(), str(tmp_path / "env"))
    assert target.problem is not None and "exit 7" in target.problem
    assert target.record.version == "3.9.1"
