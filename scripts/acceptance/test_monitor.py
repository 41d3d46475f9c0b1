"""monitor on workloads of known kind: its verdict and its cost."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import pytest

from acceptance.conftest import Work

MOST_PERCENT_OF_A_CORE = 5.0
LOADS = str(Path(__file__).with_name("loads.py"))
KINDS = ("input-starved", "launch-bound", "memory-bound", "memory-tight", "good", "idle")


@pytest.mark.card
@pytest.mark.parametrize("name", KINDS)
def test_the_verdict_is_the_kind_of_the_workload(work: Work, name: str) -> None:
    command = (sys.executable, LOADS, name, "6")
    said = work.gpusetup("monitor", "--json", "--interval", "0.5", "--", *command)
    verdict = said.document.get("verdict")
    if verdict is None:
        pytest.skip(said.problem)
    work.found(f"{name}: {verdict}")
    assert verdict == name


def test_monitor_costs_little(work: Work) -> None:
    """Its processor time over its own seconds, without that of its start."""
    short, long = (spent(work, seconds) for seconds in (2, 6))
    percent = 100 * max(0.0, long - short) / 4
    work.found(f"{percent:.1f} % of a core")
    assert percent < MOST_PERCENT_OF_A_CORE


def spent(work: Work, seconds: int) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = work.gpusetup("monitor", str(seconds), "--json")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if '"sample"' not in said.stdout:
        pytest.skip(said.problem)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
