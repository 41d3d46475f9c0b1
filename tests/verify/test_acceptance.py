"""`pytest scripts/acceptance` without a GPU: its limits, and what it writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from acceptance.processes import run as run_limited

ROOT = Path(__file__).resolve().parents[2]


def run(out: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment}
    tests = "scripts/acceptance/test_readings.py"
    argv = (sys.executable, "-m", "pytest", tests, "--out", str(out), "--device", "cpu")
    return subprocess.run(argv, capture_output=True, text=True, timeout=300, env=env, cwd=ROOT)


def test_a_torch_that_is_not_usable_ends_the_run_at_once(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise RuntimeError('CUDA error: no kernel\\nwith DSA')")
    done = run(tmp_path / "out", PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert "nothing was measured: torch is not usable:" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_result_is_kept_and_no_run_overwrites_it(tmp_path: Path) -> None:
    assert run(tmp_path, HOSTNAME="crunchbox17", USER="zebulon").returncode == 0
    evidence = json.loads((tmp_path / "evidence.json").read_text())
    assert [test["outcome"] for test in evidence["tests"]] == ["skipped"]
    again = run(tmp_path)
    assert again.returncode == 2 and "from an earlier run" in again.stderr


def test_a_program_is_killed_at_its_limit_with_what_it_started() -> None:
    started = "import subprocess; subprocess.run(('sleep', '99'), start_new_session=True)"
    assert run_limited((sys.executable, "-c", started), 1).exit is None
