"""The verdicts on real runs: six short workloads on an H100, whose kind is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from recorded_monitor import FIRST_RUN, SECOND_RUN, WORKLOADS, recording

from gpusetup import cli


def replayed(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert cli.main(["monitor", "--replay", str(path), "--json"]) == 0
    summary: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return summary


@pytest.mark.parametrize("run", [FIRST_RUN, SECOND_RUN])
@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_real_run_is_judged_by_what_happened_in_it(
    workload: str, run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = replayed(recording(workload, tmp_path, run), capsys)
    assert summary["verdict"] == workload, summary["evidence"]


@pytest.mark.parametrize("workload", WORKLOADS[:-1])
def test_the_start_of_the_program_is_told_apart(
    workload: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = replayed(recording(workload, tmp_path), capsys)
    assert any("with less work than later, are not counted" in note for note in summary["notes"])
    lowest = summary["gpus"][0]["utilization_percent"]["mean"]
    assert lowest > 30, "the figures begin with the first work"


def test_a_gpu_whose_counter_tells_nothing_is_judged_by_its_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The GPU computed for 50 ms of each 200: its own counter told 0 %, its process 25 %."""
    summary = replayed(recording("input-starved", tmp_path, SECOND_RUN), capsys)
    assert "GPU 0 worked 21 % of the time" in summary["evidence"]
    assert summary["next"]["id"] == "load-with-workers"
