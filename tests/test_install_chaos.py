"""The short form of `scripts/chaos_install.py`: killed anywhere, an environment is old or new."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from installing import needs_linux

pytestmark = [needs_linux, pytest.mark.slow]

SCRIPT = Path(__file__).resolve().parent.parent / "scripts/chaos_install.py"


def test_killed_anywhere_an_environment_is_the_former_or_the_new_one(tmp_path: Path) -> None:
    """Each scenario, each way to be killed; the recovery killed too; a stopped run goes on."""
    words = [sys.executable, str(SCRIPT), "--real", "0", "--folder", str(tmp_path)]
    for kills in ("4", "16"):
        said = subprocess.run(
            [*words, "--kills", kills, "--recoveries", "4"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert said.returncode == 0, said.stdout + said.stderr
    rows = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [row["number"] for row in rows] == list(range(16))
    assert {row["state"] for row in rows} == {"former", "new"}
    assert {row["how"] for row in rows} == {"step", "phase", "time"}
