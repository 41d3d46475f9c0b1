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


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


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
