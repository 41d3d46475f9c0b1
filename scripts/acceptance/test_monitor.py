"""monitor on workloads of known kind: its verdict, its figures next to dmon's, its cost."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from acceptance.conftest import Work
from acceptance.processes import end, started

UTILISATION_POINTS = 15.0
"""How far the mean may be from dmon's; the two sample at other moments."""
COST_PERCENT = 5.0
LOADS = str(Path(__file__).with_name("loads.py"))
REHEARSED = ("input-starved", "launch-bound")
KINDS = (*REHEARSED, "memory-bound", "memory-tight", "good", "idle")
pairs: list[tuple[float, float]] = []
"""Utilisation by monitor and by dmon."""


def dmon_mean(text: str) -> float | None:
    """
    >>> dmon_mean("# gpu    pwr  gtemp  sm  mem\\n# Idx  W  C  %  %\\n 0  100  40  80  10\\n")
    80.0
    """
    lines = [line.split() for line in text.splitlines() if line.strip()]
    place = lines[0].index("sm") - 1 if lines else 0
    values = [float(row[place]) for row in lines if row[0] != "#" and row[place].isdigit()]
    return sum(values) / len(values) if values else None


@pytest.mark.claim("monitor-verdicts")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.whole] * (n not in REHEARSED)) for n in KINDS]
)
def test_the_verdict_is_the_kind_of_the_workload(work: Work, name: str) -> None:
    seconds = 3 if work.short else 6
    command = (sys.executable, LOADS, name, str(seconds), work.device)
    smi = shutil.which("nvidia-smi") or "true"
    beside = started((smi, "dmon", "-i", "0", "-s", "pu", "-c", "6"), stdout=subprocess.PIPE)
    try:
        said = work.gpusetup("monitor", "--json", "--interval", "0.5", "--", *command)
        theirs = dmon_mean(beside.communicate(timeout=20)[0].decode())
    finally:
        end(beside)
    gpu = (said.document.get("gpus") or [{}])[0]
    mean, verdict = (gpu.get("utilization_percent") or {}).get("mean"), said.document.get("verdict")
    row = {"workload": name, "verdict": verdict, "utilization_percent": mean}
    work.row("workloads", dmon_utilization_percent=theirs, **row)
    if mean is not None and theirs is not None:
        pairs.append((mean, theirs))
    if verdict is None:
        pytest.skip(said.problem)
    work.found(f"{name}: {verdict}")
    assert verdict == name


@pytest.mark.claim("monitor-figures")
def test_the_figures_are_those_of_dmon(work: Work) -> None:
    if not pairs:
        pytest.skip("dmon or monitor gave no figure")
    ours, theirs = max(pairs, key=lambda pair: abs(pair[0] - pair[1]))
    work.found(f"farthest: {ours:.0f} %, dmon {theirs:.0f} %")
    assert abs(ours - theirs) <= UTILISATION_POINTS


@pytest.mark.claim("monitor-cost")
def test_monitor_costs_little(work: Work) -> None:
    """Its processor time over its own seconds, less its start."""
    short, long = (spent(work, seconds) for seconds in (2, 6))
    percent = 100 * max(0.0, long - short) / 4
    work.row("cost", percent_of_a_core=round(percent, 2), start_cpu_seconds=round(short, 2))
    work.found(f"{percent:.1f} % of a core")
    assert percent < COST_PERCENT


def spent(work: Work, seconds: int) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = work.gpusetup("monitor", str(seconds), "--json")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if '"sample"' not in said.stdout:
        pytest.skip(said.problem)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
