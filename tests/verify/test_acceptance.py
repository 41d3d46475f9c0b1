"""`scripts/gpu_acceptance.py` without a GPU: its limits, and what it writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "gpu_acceptance.py"


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment}
    argv = (sys.executable, str(SCRIPT), *words)
    return subprocess.run(argv, capture_output=True, text=True, timeout=300, env=env)


def test_a_torch_that_is_not_usable_ends_the_run_at_once(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise RuntimeError('CUDA error: no kernel\\nwith DSA')")
    done = run("--out", str(tmp_path / "out"), PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith("nothing was measured: torch is not usable:")
    assert not (tmp_path / "out").exists()


def test_a_part_is_killed_at_its_limit_and_the_next_one_runs(tmp_path: Path) -> None:
    words = ("--device", "cpu", "--out", str(tmp_path), "--parts", "verify", "tune")
    done = run(*words, "--time", "0.01", HOSTNAME="crunchbox17", USER="zebulon")
    assert done.returncode == 1
    evidence = json.loads((tmp_path / "evidence.json").read_text())
    assert [part["status"] for part in evidence["parts"]] == ["killed at its limit"] * 2
    again = run(*words)
    assert again.returncode == 2 and "from an earlier run" in again.stderr
