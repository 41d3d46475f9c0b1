"""What a project's files ask for, read in every form that projects use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpusetup.cli import main

LAPTOP = "rtx3050-laptop"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any], str]:
    """The exit code, the document and the messages of `install --dry-run` for the laptop, for
    which no index is asked."""
    code = main(["install", *words, "--dry-run", "--from", LAPTOP, "--json"])
    printed = capsys.readouterr()
    return code, json.loads(printed.out or "{}"), printed.err + printed.out


REQUIREMENTS = """\
# for training
--extra-index-url https://download.pytorch.org/whl/cu124
-r more.txt
-c limits.txt
torch>=2.5,<2.10 ; sys_platform == "win32"
torch==2.1.2 ; sys_platform == "linux"
torchvision
nvidia-cudnn-cu12==9.1.0.70
git+https://github.com/example/tool@v1#egg=tool
-e .
@@@ nonsense
rich \\
"""
FORMS = {
    "requirements.txt": {
        "requirements__txt": REQUIREMENTS,
        "more__txt": "tqdm\n",
        "limits__txt": "torch<2.9\n",
    },
    "pyproject.toml": {
        "pyproject__toml": '[project]\nname = "x"\nversion = "0"\nrequires-python = ">=3.9"\n'
        'dependencies = ["torch>=2.5,<2.10", "torchvision"]\n'
    },
    "setup.cfg": {
        "setup__cfg": "[options]\npython_requires = >=3.8\ninstall_requires =\n    torch<2.10\n"
    },
    "setup.py": {
        "setup__py": "from setuptools import setup\nneeds = ['torch<2.10', 'rich']\n"
        "setup(name='x', install_requires=needs, python_requires='>=3.8')\n"
    },
    "environment.yml": {
        "environment__yml": "dependencies:\n- python=3.11\n- pytorch=2.5.1\n"
        "- pytorch-cuda=12.4\n- pip:\n  - rich\n"
    },
    "Dockerfile": {
        "Dockerfile": "ARG TORCH=2.5.1\nFROM python:3.11\nRUN apt-get update && \\\n"
        "    pip install torch==${TORCH}+cu124 --index-url https://download.pytorch.org/whl/cu124\n"
    },
    "uv.lock": {
        "uv__lock": '[[package]]\nname = "torch"\nversion = "2.5.1"\n'
        'source = { registry = "https://download.pytorch.org/whl/cu124" }\n'
    },
}


@pytest.mark.parametrize("name", FORMS)
def test_the_torch_is_inside_the_bounds_of_every_form(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(folder, **FORMS[name])
    code, answer, said = asked(capsys, "-r", name)
    assert code == 0, said
    torch = answer["after"]["torch"]
    assert torch.startswith(("2.5", "2.6", "2.7", "2.8", "2.9"))
    # The laptop's CPU build does not stay, and a named CUDA is kept if a build of it fits.
    assert "+cu" in torch
    if "cu124" in "".join(FORMS[name].values()) or "12.4" in "".join(FORMS[name].values()):
        assert torch.endswith("+cu124")


def test_what_is_not_read_is_named_once_and_ends_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(folder, **FORMS["requirements.txt"])
    code, answer, _ = asked(capsys, "-r", "requirements.txt")
    notes = "\n".join(answer["notes"])
    assert code == 0
    assert notes.count("@@@ nonsense") == 1 and "line 11" in notes
    # The last line counts, although it ends in a backslash.
    assert any("rich" in " ".join(step["argv"]) for step in answer["steps"])
    assert "git+https://github.com/example/tool@v1" in notes and "-e ." in notes
    assert "nvidia-cudnn-cu12==9.1.0.70" in notes
    assert not any("nvidia-cudnn" in " ".join(step["argv"]) for step in answer["steps"])


def test_a_pin_that_the_card_cannot_run_is_refused_with_the_nearest(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(folder, requirements__txt="torch==2.1.2+cu118\n")
    words = ("--gpu", "RTX 5090", "--driver", "581.29", "--os", "windows", "--python", "3.11")
    assert main(["resolve", "-r", "requirements.txt", *words]) == 1
    said = capsys.readouterr().err
    first = said.splitlines()[0]
    assert "requirements.txt, line 1" in first and "2.1.2" in first and "12.0" in first
    assert "torch 2.7.0 from cu128" in said


def test_a_python_outside_the_projects_range_is_named_with_the_one_that_works(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = '[project]\nname = "x"\nversion = "0"\nrequires-python = "<3.11"\n'
    written(folder, pyproject__toml=f'{text}dependencies = ["torch>=2.2"]\n')
    code, _, said = asked(capsys, "-r", "pyproject.toml")
    assert code == 1
    assert "needs Python <3.11" in said and "uv venv --python 3.10" in said


def test_an_index_of_the_file_is_named_without_its_login(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(folder, requirements__txt="--index-url https://me:secret@i.example/simple\ntorch\n")
    _, answer, said = asked(capsys, "-r", "requirements.txt")
    assert "i.example" in "".join(answer["notes"]) and "secret" not in said
    assert main(["install", "-r", "absent.txt", "--dry-run", "--from", LAPTOP]) == 2
    (folder / "binary.txt").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    assert main(["install", "-r", "binary.txt", "--dry-run", "--from", LAPTOP]) in (0, 2)


HOSTILE = {
    "requirements.txt": [
        "-r requirements.txt\n",
        "[" * 9000,
        "a" * 200_000,
        "-r a\0b\n",
    ],
    "pyproject.toml": ["project = 3", "[project]\ndependencies = 5", "a = " + "[" * 5000],
    "environment.yml": ["a: &a [*a]", "- 1", "dependencies: {x: 1}", "{" * 5000],
    "setup.py": ["def", "(" * 5000, "setup(install_requires=[1, None, x])", "\0"],
    "setup.cfg": ["[options", "no section"],
    "Dockerfile": ["RUN pip install 'torch", "FROM\n" * 9, "RUN " + "\\\n" * 9000],
    "uv.lock": [
        "[[package]]\nname = 3",
        "package = 1",
        '[[package]]\nname = ["torch"]\nversion = "1"\nsource = 3\nwheels = {a = nan}',
    ],
    "pylock.toml": [
        '[[packages]]\nname = "torch"\nversion = "2.6"\nindex = [1]\nmarker = 2020-01-01'
    ],
}


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in HOSTILE.items() for text in texts]
)
def test_a_strangers_file_gets_an_answer_or_one_error(
    name: str, text: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / name).write_text(text, encoding="utf-8")
    assert main(["install", "-r", name, "--dry-run", "--from", LAPTOP]) in (0, 1, 2)
    assert main(["doctor", "--from", LAPTOP]) == 1  # its CPU build, whatever the folder has
    assert "gpusetup itself failed" not in capsys.readouterr().err


def test_an_image_with_a_torch_of_its_own_keeps_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(folder, Dockerfile="FROM nvcr.io/nvidia/pytorch:24.01-py3\nRUN pip install rich\n")
    code, _, said = asked(capsys, "-r", "Dockerfile")
    assert code == 1 and "nvcr.io/nvidia/pytorch:24.01-py3 has its own torch" in said
    assert "pip install rich" in said


@pytest.mark.parametrize(
    ("torch", "code", "word"),
    [("2.9.1", 0, "2.9.1"), ("2.9.1+cu128", 0, "2.9.1+cu128"), ("2.7.1", 1, "requirements.txt")],
)
def test_a_named_torch_counts_inside_the_bounds_of_the_file(
    torch: str, code: int, word: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(folder, requirements__txt="torch>=2.8,<2.10\n")
    got, _, said = asked(capsys, "-r", "requirements.txt", "--torch", torch)
    assert got == code and word in said
