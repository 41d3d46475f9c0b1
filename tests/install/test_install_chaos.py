"""The short form of `scripts/chaos_install.py`: killed anywhere, an environment is old or new."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from installing import needs_linux

pytestmark = [needs_linux, pytest.mark.slow]

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/chaos_install.py"


def test_killed_anywhere_an_environment_is_the_former_or_the_new_one() -> None:
    """Each scenario, each way to be killed; the recovery killed too."""
    argv = (sys.executable, str(SCRIPT), "--kills", "16", "--recoveries", "4")
    said = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr
    rows = [json.loads(line) for line in said.stdout.splitlines() if line.startswith("{")]
    assert {row["state"] for row in rows} == {"former", "new"}
    assert {row["whom"] for row in rows} == {"parent", "child", "group", "itself"}
