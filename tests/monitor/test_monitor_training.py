"""The monitor from inside a training."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import standin
from standin import A100

HERE = Path(__file__).resolve().parents[1]
BUSY = {**A100, "utilization": 97, "memory_used": 30 << 30, "throttle": 0, "power_mw": 320000,
        "utilization_memory": 40, "clock_sm": 1400, "clock_sm_max": 1410}  # fmt: skip
Training = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Training:
    """Run a script beside a stand-in driver."""

    def at(script: str, *, gpus: Any = (BUSY,), **environment: str) -> Any:
        monkeypatch.setenv("PYTHONPATH", str(HERE.parent))
        standin.install(monkeypatch, tmp_path, standin.state(gpus))
        text = textwrap.dedent(script)
        return subprocess.run(
            [sys.executable, "-c", text], capture_output=True, text=True, cwd=tmp_path,
            env={**os.environ, **environment}, timeout=300, check=False,
        )  # fmt: skip

    return at


LOOP = """
    import time
    from gpusetup.monitor import TrainingMonitor
    with TrainingMonitor("run.jsonl", interval=0.1) as monitor:
        until = time.monotonic() + {seconds}
        while time.monotonic() < until:
            {work}
        {end}
    print(monitor.summary.verdict, monitor.summary.evidence, monitor.problem, sep=" | ")
"""
COMPUTES = {"work": "sum(range(1000))", "seconds": 3}
RESTS = {"work": "time.sleep(0.05)", "seconds": 3}
ENDS_AT_ONCE = {"work": "time.sleep(0.05)", "seconds": 0.2}


def test_a_plain_loop_has_its_record_and_its_verdict(training: Training, tmp_path: Path) -> None:
    # On a busy machine the first answer of the driver's child takes some seconds.
    done = training(LOOP.format(end="pass", **COMPUTES | {"seconds": 8}))
    assert re.fullmatch(r"good \| .+ \| None\n", done.stdout), done.stderr
    told = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text("utf-8").splitlines()]
    assert told[-1]["kind"] == "summary" and told[-1]["command"][1] == "-c"
    trees = [one["tree"] for one in told[:-1]]
    assert trees[0] is None, "the first sample is the baseline"
    busiest = max(tree["busiest_cpu_percent"] for tree in trees[1:])
    assert busiest > 5, "a loop gets its share of a core, however many others want it"


def test_a_training_that_dies_leaves_a_whole_record(training: Training, tmp_path: Path) -> None:
    done = training(LOOP.format(end="import os; os._exit(7)", **RESTS))
    assert done.returncode == 7
    record = tmp_path / "run.jsonl"
    for _ in range(100):
        if record.read_text("utf-8").rstrip().endswith("}") and '"kind":"summary"' in (
            record.read_text("utf-8").replace(": ", ":")
        ):
            break
        subprocess.run(["sleep", "0.1"], check=True)
    assert json.loads(record.read_text("utf-8").splitlines()[-1])["kind"] == "summary"


def test_memory_that_was_full_when_the_training_failed_is_the_verdict(training: Training) -> None:
    script = """
        import time
        from gpusetup.monitor import TrainingMonitor
        monitor = TrainingMonitor("run.jsonl", interval=0.1)
        try:
            with monitor:
                time.sleep(2.5)
                raise RuntimeError("CUDA out of memory")
        except RuntimeError:
            print(monitor.summary.verdict, monitor.summary.exit)
    """
    full = {**BUSY, "memory_used": int((40 << 30) * 0.993)}
    assert training(script, gpus=(full,)).stdout == "memory-tight 1\n"


def test_a_training_goes_on_where_nothing_can_be_watched(training: Training) -> None:
    script = LOOP.format(end="print('trained')", **RESTS).replace("run.jsonl", "/nowhere/run.jsonl")
    done = training(script)
    _, told = done.stdout.splitlines()
    verdict, evidence, problem = told.split(" | ")
    assert (verdict, evidence) == ("None", problem) and done.returncode == 0
    assert problem.startswith("Cannot write /nowhere/run.jsonl")
    assert "gpusetup does not watch this training" in done.stderr


def test_the_second_rank_starts_nothing(training: Training, tmp_path: Path) -> None:
    done = training(LOOP.format(end="pass", **ENDS_AT_ONCE), LOCAL_RANK="1")
    assert done.stdout == "None | the first rank on this machine watches all of them | None\n"
    assert not (tmp_path / "run.jsonl").exists()
