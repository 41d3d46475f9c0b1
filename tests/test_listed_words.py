"""Requirements that files list, as words; what a stranger wrote into them breaks nothing."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusetup.cli import main
from gpusetup.errors import BadInput, GpuSetupError, UsageError
from gpusetup.install.listed_words import lines_of, script_words, words_of_file, words_of_files

PROJECT = """\
[project]
name = "x"
dependencies = ["vllm", "torch>=2.9"]
[project.optional-dependencies]
fast = ["flash-attn"]
"""
SCRIPT = """\
# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "torchvision",
# ]
# ///
import torch
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    return tmp_path


def test_a_project_has_its_requirements_and_extras(project: Path) -> None:
    found = words_of_files((), (f"{project}[fast]",))
    assert found.words == ("vllm", "torch>=2.9", "flash-attn")
    assert f"uv pip install --no-deps -e '{project}[fast]'" in found.notes[0]
    assert words_of_file(project / "pyproject.toml").words == ("vllm", "torch>=2.9")


def test_what_a_project_has_not_is_a_wrong_question(project: Path) -> None:
    with pytest.raises(UsageError, match="no extra 'slow'"):
        words_of_files((), (f"{project}[slow]",))


def test_a_script_says_what_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    assert words_of_file(path).words == ("torchvision",)
    for text in ("import torch\n", SCRIPT * 2):
        with pytest.raises(BadInput, match="`# /// script` block"):
            script_words(path, text)


def test_a_list_keeps_its_order_and_says_what_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "base.in").write_text("numpy>=2 --hash=sha256:ab\n")
    path = tmp_path / "requirements.txt"
    path.write_text("--index-url https://me:secret@i.example\n-r base.in\ntorch \\\n ==2.9.1\n")
    found = words_of_file(path)
    assert [" ".join(word.split()) for word in found.words] == ["numpy>=2", "torch ==2.9.1"]
    assert "is not taken" in found.notes[0] and "secret" not in found.notes[0]
    for line in ("-e .", "-c limits.txt", "--constraint=x"):
        path.write_text(line + "\n")
        with pytest.raises(UsageError, match="is a"):
            words_of_file(path)


def test_files_that_name_one_another_end(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("-r a.txt\n")
    with pytest.raises(BadInput, match="more than 5 deep"):
        words_of_file(path)


@pytest.mark.parametrize("command", ["resolve", "install"])
def test_what_cannot_be_read_is_told(command: str, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(b"\x89PNG\r\n\x1a\n")
    assert main([command, "-r", str(tmp_path / "x.txt")]) == BadInput.exit_code
    assert main([command, "-r", str(tmp_path / "absent.txt")]) == BadInput.exit_code


@given(st.text(max_size=200))
def test_any_text_is_lines_or_refused(text: str) -> None:
    assert all(line.strip() and not line.startswith("#") for line in lines_of(text))
    with contextlib.suppress(GpuSetupError):
        script_words(Path("x.py"), text)


@pytest.mark.parametrize(
    "text", ["einops==0.8 --hash=sha256:00\n", "--require-hashes\neinops==0.8\n"]
)
def test_hashes_are_no_words_that_an_installation_drops(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text(text)
    assert words_of_file(file).hashed == str(file)
    assert main(["install", "-r", str(file), "--venv", str(tmp_path / "env"), "--yes"]) == 2
    assert "names hashes" in capsys.readouterr().err
    assert not (tmp_path / "env").exists()
