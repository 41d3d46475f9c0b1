"""monitor on workloads of known kind: its verdict, its figures next to nvidia-smi's, its cost."""

from __future__ import annotations

import contextlib
import json
import resource
import sys
import threading
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from acceptance.conftest import Work
from acceptance.processes import run

UTILISATION_POINTS = 15.0
"""How far the mean may be from nvidia-smi's of the same moments."""
SAME_MOMENT_SECONDS = 0.6
"""Two samples that are no further apart are compared; monitor takes one each half second."""
COST_PERCENT = 5.0
LOADS = str(Path(__file__).with_name("loads.py"))
REHEARSED = ("input-starved", "launch-bound")
KINDS = (*REHEARSED, "memory-bound", "memory-tight", "good", "idle")
SMI = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "--id=0")
pairs: list[tuple[float, float]] = []
"""Mean utilisation by monitor and by nvidia-smi, a workload each."""
Readings = list[tuple[float, float]]
"""(seconds since 1970, percent)."""


@contextlib.contextmanager
def smi_beside() -> Iterator[Readings]:
    """What nvidia-smi says of the GPU's utilisation meanwhile, once a second."""
    readings: Readings = []
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            percent = run(SMI, 10).stdout.strip()
            if percent.isdigit():
                readings.append((datetime.now(timezone.utc).timestamp(), float(percent)))
            over.wait(1.0)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield readings
    finally:
        over.set()
        reader.join()


def of_monitor(text: str) -> Readings:
    """The utilisation of the first GPU in each sample that monitor printed."""
    readings: Readings = []
    for line in text.splitlines():
        sample: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
        gpus = sample.get("gpus") or [{}]
        percent = gpus[0].get("utilization_percent")
        if sample.get("kind") == "sample" and percent is not None:
            at = datetime.fromisoformat(sample["at"].replace("Z", "+00:00"))
            readings.append((at.timestamp(), percent))
    return readings


def in_the_same_moments(ours: Readings, theirs: Readings) -> tuple[float, float] | None:
    """The means of both over the moments that both read; None if there are none.

    >>> in_the_same_moments([(1.0, 50.0), (2.0, 70.0), (9.0, 0.0)], [(1.1, 52.0), (2.1, 68.0)])
    (60.0, 60.0)
    """
    mine, other = [], []
    for at, percent in theirs:
        nearest = min(ours, key=lambda reading: abs(reading[0] - at), default=None)
        if nearest is not None and abs(nearest[0] - at) <= SAME_MOMENT_SECONDS:
            mine.append(nearest[1])
            other.append(percent)
    return (sum(mine) / len(mine), sum(other) / len(other)) if mine else None


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.card] * (n not in REHEARSED)) for n in KINDS]
)
def test_the_verdict_is_the_kind_of_the_workload(work: Work, name: str) -> None:
    seconds = 6 if work.on_card else 3
    command = (sys.executable, LOADS, name, str(seconds), work.device)
    with smi_beside() as theirs:
        said = work.gpusetup("monitor", "--json", "--interval", "0.5", "--", *command)
    verdict = said.document.get("verdict")
    both = in_the_same_moments(of_monitor(said.stdout), theirs)
    if both:
        pairs.append(both)
    if verdict is None:
        pytest.skip(said.problem)
    work.found(f"{name}: {verdict}")
    assert verdict == name


def test_the_figures_are_those_of_nvidia_smi(work: Work) -> None:
    if not pairs:
        pytest.skip("nvidia-smi or monitor gave no figure")
    ours, theirs = max(pairs, key=lambda pair: abs(pair[0] - pair[1]))
    work.found(f"farthest: {ours:.0f} %, nvidia-smi {theirs:.0f} %")
    assert abs(ours - theirs) <= UTILISATION_POINTS


def test_monitor_costs_little(work: Work) -> None:
    """Its processor time over its own seconds, less its start."""
    short, long = (spent(work, seconds) for seconds in (2, 6))
    percent = 100 * max(0.0, long - short) / 4
    work.found(f"{percent:.1f} % of a core")
    assert percent < COST_PERCENT


def spent(work: Work, seconds: int) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = work.gpusetup("monitor", str(seconds), "--json")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if '"sample"' not in said.stdout:
        pytest.skip(said.problem)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
