"""Turns of work and rest whose lengths vary, as of a training that waits for its batches: no chance
cluster of rests is an evaluation."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from each_row import each
from replayed import csv, judge_in, verdict_and_step

Said = pytest.CaptureFixture[str]
COLUMNS = (
    "name, utilization.gpu [%], power.draw [W], power.limit [W], memory.used [MiB], "
    "memory.total [MiB]"
)
Lengths = tuple[int, int]


def log(uses: list[int]) -> str:
    """A log of an RTX 3090 with this utilisation second by second."""
    rows = []
    for use in uses:
        row = f"NVIDIA GeForce RTX 3090, {use} %, {105 + 2 * use}, 350, 17000 MiB, 24576 MiB"
        rows.append([row])
    return csv(COLUMNS, rows)


def turns(random: Random, work: Lengths, rest: Lengths, *, seconds: int = 300) -> list[int]:
    """Work and rest in turns, each as long as chance draws from its bounds (seconds)."""
    uses: list[int] = []
    while len(uses) < seconds:
        for _ in range(random.randint(*work)):
            uses.append(min(100, round(random.gauss(94, 3))))
        uses += [0] * random.randint(*rest)
    return uses[:seconds]


@each(
    "work, rest",
    [
        ((1, 2), (1, 2)),
        ((2, 4), (2, 4)),
        ((1, 3), (2, 4)),
        # Several batches are loaded ahead and used up together, or each takes long to load.
        ((8, 14), (5, 12)),
        ((1, 1), (2, 6)),
    ],
)
def test_turns_of_uneven_length_wait_for_data(
    work: Lengths, rest: Lengths, tmp_path: Path, capsys: Said
) -> None:
    judged = judge_in(tmp_path, capsys)
    for seed in range(6):
        summary = judged(log(turns(Random(seed), work, rest)))
        assert verdict_and_step(summary) == "input-starved/turns feed-the-gpu", summary["evidence"]


def test_rests_of_uneven_distance_are_no_evaluation(tmp_path: Path, capsys: Said) -> None:
    uses: list[int] = []
    for seconds_of_work in (30, 80, 35, 90, 30, 85, 40, 75):
        uses += [97] * seconds_of_work + [0] * 16
    summary = judge_in(tmp_path, capsys)(log(uses))
    assert "evaluation" not in summary["evidence"]


def test_a_phase_between_work_that_varies_is_no_evaluation(tmp_path: Path, capsys: Said) -> None:
    work = [97, 40, 99, 97, 35, 98, 96, 97, 30, 99]
    summary = judge_in(tmp_path, capsys)(log((work * 8 + [20] * 20) * 5))
    assert "evaluation" not in summary["evidence"]
