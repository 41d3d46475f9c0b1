"""monitor on eight workloads of known kind: its verdict, its figures beside dmon's, its cost."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acceptance.conftest import Work, unknown
from acceptance.processes import end

START_SECONDS = 3.0
"""What monitor and a workload take until the first was seen."""
UTILISATION_POINTS, POWER_PART = 15.0, 0.15
"""How far the mean may be from dmon's; the two sample at other moments."""
COST_PERCENT = 5.0
LOADS = str(Path(__file__).with_name("loads.py"))
RIGHT = {
    "input-starved": ("input-starved",),
    "launch-bound": ("launch-bound",),
    "memory-bound": ("memory-bound",),
    "memory-tight": ("memory-tight",),
    "good": ("good",),
    "idle": ("idle",),
    "bursts": ("input-starved", "bursty", "good"),
    "power": ("good", "throttled"),
}
"""Workload -> the verdicts that are right."""
REHEARSED = ("input-starved", "launch-bound")
rows: list[dict[str, Any]] = []


@contextlib.contextmanager
def dmon() -> Iterator[dict[str, float]]:
    """Means of `nvidia-smi dmon` meanwhile, once it ended; to a terminal it holds no line back."""
    means: dict[str, float] = {}
    ours, its = os.openpty()
    argv = ("nvidia-smi", "dmon", "-i", "0", "-s", "pu")
    child = None
    with contextlib.suppress(OSError):
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=its, stderr=its)
    os.close(its)
    try:
        yield means
    finally:
        if child:
            end(child)
        text = b""
        with contextlib.suppress(OSError):  # a terminal tells the end by an error
            while piece := os.read(ours, 1 << 16):
                text += piece
        os.close(ours)
        means |= means_of(text.decode(errors="replace"))


def means_of(text: str) -> dict[str, float]:
    """
    >>> means_of("# gpu    pwr  gtemp  sm  mem\\n# Idx  W  C  %  %\\n 0  100  40  80  10\\n")
    {'power_watts': 100.0, 'utilization_percent': 80.0}
    """
    lines = text.splitlines()
    head = next((line.lstrip("# ").split() for line in lines if line.startswith("# gpu")), [])
    cells = [line.split() for line in lines if line.strip() and not line.startswith("#")]
    found = {}
    for column, name in (("pwr", "power_watts"), ("sm", "utilization_percent")):
        place = head.index(column) if column in head else len(head)
        values = [float(row[place]) for row in cells if len(row) > place and row[place].isdigit()]
        if values:
            found[name] = round(sum(values) / len(values), 1)
    return found


@pytest.mark.claim("monitor-verdicts")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.whole] * (n not in REHEARSED)) for n in RIGHT]
)
def test_the_verdict_is_the_kind_of_the_workload(work: Work, name: str) -> None:
    there = work.left() / work.waiting - START_SECONDS
    seconds = 1.0 if work.short else min(6.0, max(3.0, there))
    command = (sys.executable, LOADS, name, str(seconds), work.device)
    with dmon() as theirs:
        said = work.gpusetup("monitor", "--json", "--interval", "0.5", "--", *command, limit=60)
    gpu = (said.document.get("gpus") or [{}])[0]
    means = {
        key: (gpu.get(key) or {}).get("mean") for key in ("utilization_percent", "power_watts")
    }
    verdict = said.document.get("verdict")
    row = {"workload": name, "verdict": verdict, "right": " or ".join(RIGHT[name]), **means}
    rows.append({**row, **{f"dmon_{key}": value for key, value in theirs.items()}})
    work.row("workloads", **rows[-1])
    if verdict is None:
        unknown(said.problem)
    work.found(f"{name}: {verdict}")
    assert verdict in RIGHT[name]


@pytest.mark.claim("monitor-figures")
def test_the_figures_are_those_of_dmon(work: Work) -> None:
    told = "utilization_percent", "dmon_utilization_percent"
    pairs = [row for row in rows if None not in (row.get(told[0]), row.get(told[1]))]
    if not pairs:
        unknown("dmon or monitor gave no figure")
    far = max(pairs, key=lambda row: abs(row[told[0]] - row[told[1]]))
    work.found(f"farthest: {far[told[0]]:.0f} %, dmon {far[told[1]]:.0f} % ({far['workload']})")
    assert abs(far[told[0]] - far[told[1]]) <= UTILISATION_POINTS
    for row in pairs:
        ours, other = row["power_watts"], row.get("dmon_power_watts")
        assert ours is None or not other or abs(ours / other - 1) <= POWER_PART, row["workload"]


@pytest.mark.claim("monitor-cost")
def test_monitor_costs_little(work: Work) -> None:
    """Its processor time over its own seconds, less its start."""
    seconds = (2, 4 if work.short else 6)
    short, long = (spent(work, each) for each in seconds)
    percent = 100 * max(0.0, long - short) / (seconds[1] - seconds[0])
    work.row("cost", percent_of_a_core=round(percent, 2), start_cpu_seconds=round(short, 2))
    work.found(f"{percent:.1f} % of a core")
    assert percent < COST_PERCENT


def spent(work: Work, seconds: int) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = work.gpusetup("monitor", str(seconds), "--json", limit=seconds + 20)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if '"sample"' not in said.stdout:
        unknown(said.problem)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
