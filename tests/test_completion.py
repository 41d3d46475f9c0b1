"""Completion scripts: each parses in its shell, and knows commands, options, values and files.

bash and fish are asked as a person asks them, zsh and tcsh read their script, where they are
installed. PowerShell never ran.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpusetup.cli import main

ASKED = (
    ("gpusetup d", "doctor"),
    ("gpusetup doctor --fr", "--from"),
    ("gpusetup resolve --format ", "requirements"),
    ("gpusetup completion ", "powershell"),
    ("gpusetup doctor --report rep", "report.txt"),
    ("gpusetup install --venv fol", "folder/"),
    ("gpusetup fleet show fol", "folder/"),
)
"""A line up to the cursor, and one of the words that complete it."""

BASH = """
source "$1"
COMP_LINE=$2; COMP_POINT=${#2}
read -ra COMP_WORDS <<< "$2"
[[ $2 == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
compopt() { :; }
_shtab_gpusetup gpusetup "${COMP_WORDS[COMP_CWORD]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "fish"])
@pytest.mark.parametrize(("line", "word"), ASKED)
def test_a_line_is_completed(
    shell: str, line: str, word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here")
    (tmp_path / "report.txt").touch()
    (tmp_path / "folder").mkdir()
    assert word.rstrip("/") in completions(shell, line, tmp_path, script(shell, capsys))


def completions(shell: str, line: str, folder: Path, text: str) -> list[str]:
    """The words that a shell offers after a line, without their descriptions."""
    place = folder / "completion"
    place.write_text(text, encoding="utf-8")
    ask = {
        "bash": ["bash", "-c", BASH, "bash", str(place), line],
        "fish": ["fish", "-c", f"source '{place}'; complete -C'{line}'"],
    }
    done = subprocess.run(
        ask[shell],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert not done.stderr
    return [word.partition("\t")[0].rstrip("/") for word in done.stdout.splitlines()]


CHECKED = {
    "zsh": "zsh -n '{0}'",
    "tcsh": "tcsh -f -c \"source '{0}'; complete gpusetup\" | grep -q doctor",
}


@pytest.mark.parametrize("shell", CHECKED)
def test_a_script_is_read_by_its_shell(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here")
    place = tmp_path / "completion"
    place.write_text(script(shell, capsys), encoding="utf-8")
    done = subprocess.run(
        ["sh", "-c", CHECKED[shell].format(place)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
