"""The smallest edit that is right in a project, and what doctor says in its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpusetup.cli import main

T4 = ("--gpu", "T4", "--driver", "535.183.01")
BLACKWELL = ("--gpu", "RTX 5090", "--driver", "581.29")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def edit(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any], str]:
    code = main(["install", "--project", *words, "--json"])
    printed = capsys.readouterr()
    return code, json.loads(printed.out or "{}"), printed.err


def steps(answer: dict[str, Any]) -> list[str]:
    return [" ".join(step["argv"]) for step in answer["steps"]]


EXTRAS = """\
[project]
name = "x"
version = "0"
requires-python = ">=3.10"

[project.optional-dependencies]
cpu = ["torch>=2.5.1"]
cu124 = ["torch>=2.5.1,<2.7"]
cu130 = ["torch>=2.9.1"]

[[tool.uv.index]]
name = "a"
url = "https://download.pytorch.org/whl/cu124"
explicit = true

[[tool.uv.index]]
name = "b"
url = "https://download.pytorch.org/whl/cu130"
explicit = true

[tool.uv.sources]
torch = [{ index = "a", extra = "cu124" }, { index = "b", extra = "cu130" }]
"""
SOURCE = """\
[project]
name = "x"
version = "0"
requires-python = ">=3.10"
dependencies = ["torch~=2.9.0"]

[[tool.uv.index]]
name = "wheels"
url = "https://download.pytorch.org/whl/cu130"
explicit = true

[tool.uv.sources]
torch = { index = "wheels" }
"""


@pytest.mark.parametrize(("card", "extra"), [(T4, "cu124"), (BLACKWELL, "cu130")])
def test_the_extra_that_fits_the_card_is_one_command(
    card: tuple[str, ...], extra: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "pyproject.toml").write_text(EXTRAS, encoding="utf-8")
    code, answer, said = edit(capsys, *card)
    assert (code, steps(answer), answer["lines"]) == (0, [f"uv sync --extra {extra}"], []), said


def test_an_index_that_the_driver_cannot_run_is_replaced_in_its_place(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "pyproject.toml").write_text(SOURCE, encoding="utf-8")
    code, answer, _ = edit(capsys, *T4)
    assert code == 0 and steps(answer) == ["uv sync"]
    assert 'name = "wheels"' in answer["lines"] and "[tool.uv.sources]" not in answer["lines"]
    assert any("/whl/cu12" in line for line in answer["lines"])
    assert "replace its table" in " ".join(answer["notes"])
    code, answer, _ = edit(capsys, *BLACKWELL)
    assert (code, steps(answer), answer["lines"]) == (0, ["uv sync"], [])
    # Triton for AMD's GPUs is only on AMD's index, so uv may use that one for every package.
    code, answer, _ = edit(capsys, "--from", "amd")
    assert any("/whl/rocm" in line for line in answer["lines"])
    assert 'name = "wheels"' in answer["lines"] and "explicit = true" not in answer["lines"]


def test_a_companion_of_the_default_index_with_the_same_cuda_needs_no_source(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = SOURCE.replace('"torch~=2.9.0"', '"torch~=2.8.0", "torchvision~=0.23.0"')
    rows = (
        '[{ index = "wheels", marker = "sys_platform != \'darwin\'" },'
        ' { index = "cpu", marker = "sys_platform == \'darwin\'" }]'
    )
    text = text.replace("cu130", "cu128").replace('{ index = "wheels" }', rows)
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    code, answer, _ = edit(capsys, *T4)
    assert (code, steps(answer), answer["lines"]) == (0, ["uv sync"], [])
    main(["install", "-r", "pyproject.toml", "--dry-run", "--from", "rtx3050-laptop"])
    assert "why          it is within the version bounds" in capsys.readouterr().out


def test_the_bounds_of_a_project_stay_and_its_oldest_python_counts(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = SOURCE.partition("[[")[0].replace(">=3.10", ">=3.9").replace("~=2.9.0", ">=2.6,<2.10")
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    code, answer, _ = edit(capsys, *BLACKWELL)
    # torch 2.9 has no wheels for Python 3.9.
    assert code == 0 and answer["after"]["torch"].startswith("2.8.0+cu12")
    assert steps(answer) == ["uv sync"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("setup.py", "from setuptools import setup\nsetup(install_requires=['torch<2.9'])\n"),
        ("requirements.txt", "torch<2.9\n"),
    ],
)
def test_without_a_project_table_torch_comes_first_and_by_pips_way(
    name: str, text: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "pyproject.toml").write_text("[tool.black]\nline-length = 100\n", encoding="utf-8")
    (folder / name).write_text(text, encoding="utf-8")
    code, answer, said = edit(capsys, "--from", "rtx3050-laptop")
    assert code == 0, said
    assert not any(step.startswith(("uv add", "uv sync")) for step in steps(answer))
    assert "+cu" in answer["after"]["torch"]
    assert "[project]" in " ".join(answer["notes"])


def test_a_project_of_poetry_gets_a_source_of_poetry(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = '[tool.poetry]\nname = "x"\n[tool.poetry.dependencies]\npython = "^3.10"\n'
    (folder / "pyproject.toml").write_text(f'{text}torch = "^2.6"\n', encoding="utf-8")
    code, answer, said = edit(capsys, *T4)
    assert code == 0, said
    assert "[[tool.poetry.source]]" in answer["lines"] and steps(answer)[0] == "poetry lock"
    # What a marker keeps for another system does not decide here.
    wheel = "https://download.pytorch.org/whl/cu118/torch-2.3.0%2Bcu118-cp311-cp311-win_amd64.whl"
    elsewhere = f"{{url = '{wheel}', markers = \"sys_platform == 'win32'\"}}"
    (folder / "pyproject.toml").write_text(f"{text}torch = [{elsewhere}, '^2.6']\n")
    assert edit(capsys, *T4)[1]["lines"] == answer["lines"]
    # Without torch in the file, Poetry adds it, before what may need it.
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    _, new, _ = edit(capsys, "timm", *T4)
    assert new["lines"] == answer["lines"]
    first, second = steps(new)
    assert first.startswith("poetry add --source pytorch-cu") and "torch==" in first
    assert second == "poetry add timm"


def test_doctor_begins_with_what_the_folder_asks_for_and_installs_that(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "requirements.txt").write_text("torch==2.6.0+cu124\n", encoding="utf-8")
    main(["doctor", "--from", "rtx3050-laptop", "--json"])
    answer = json.loads(capsys.readouterr().out)
    project, fix = answer["project"], answer["findings"][0]["fix"]
    assert project["meets"] is False
    assert "2.5.1+cpu" in project["sentence"]
    assert "gpusetup install -r requirements.txt" in project["sentence"]
    assert "torch 2.6.0 from cu124" in fix["text"]
    assert fix["commands"][0].endswith("-r requirements.txt")
    main(["doctor", "--from", "rtx3050-laptop"])
    first, *rest = capsys.readouterr().out.splitlines()
    assert "requirements.txt asks for torch==2.6.0+cu124" in first
    assert not any("torch 2.15" in line for line in rest if "newest" not in line)


def test_an_environment_without_torch_names_those_that_have_one(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "other/lib/python3.11/site-packages/torch-2.5.1+cpu.dist-info").mkdir(parents=True)
    (folder / ".conda").mkdir()
    (folder / ".conda/environments.txt").write_text(f"{folder / 'other'}\n", encoding="utf-8")
    empty = folder / "empty"
    (empty / "bin").mkdir(parents=True)
    (empty / "lib/python3.11/site-packages").mkdir(parents=True)
    import sys

    (empty / "bin/python").symlink_to(sys.executable)
    (empty / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).parent}\n", encoding="utf-8")
    monkeypatch.setenv("VIRTUAL_ENV", str(empty))
    monkeypatch.setenv("HOME", str(folder))
    main(["doctor", "--json"])
    answer = json.loads(capsys.readouterr().out)
    found = [(one["prefix"], one["torch"]) for one in answer["other_environments"]]
    assert (str(folder / "other"), "2.5.1+cpu") in found
