"""How a rank of a sweep measures what it computes, where cores and moments differ."""

from __future__ import annotations

import importlib
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpusetup
from gpusetup.fleet.sweep.judge import compute_scores
from gpusetup.fleet.sweep.values import Result, Round

sys.path.insert(0, str(Path(gpusetup.__file__).resolve().parent / "child_scripts"))
exchange: Any = importlib.import_module("exchange")
del sys.path[0]

TWO_CORES = {0: 1.0, 5: 1.85}
"""Seconds of a product; beside a virtual machine's second core a neighbour is busy."""


class Host:
    """Cores, and a process that stands on one until it is moved; no time passes."""

    def __init__(self, cores: dict[int, float], monkeypatch: pytest.MonkeyPatch) -> None:
        self.cores, self.allowed, self.slower = cores, set(cores), 1.0
        self.visited: list[int] = []
        self.disturbs: Callable[[], float] = lambda: 1.0
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(cores), raising=False)
        monkeypatch.setattr(os, "sched_setaffinity", self.move, raising=False)
        monkeypatch.setattr(exchange, "timed", self.timed)
        monkeypatch.setattr(exchange.time, "sleep", lambda seconds: None)

    def move(self, pid: int, cores: set[int]) -> None:
        self.allowed = set(cores)

    def timed(self, torch: Any, device: str, run: Any, count: int) -> list[float]:
        self.visited.append(min(self.allowed))
        return [self.cores[min(self.allowed)] * self.slower * self.disturbs()] * count

    def rate(self, slower: float = 1.0, stands_on: int = 0) -> float:
        self.slower, self.allowed = slower, {stands_on}
        return 1.0 / float(exchange.usual(list(exchange.bursts(None, None))))


def test_a_rank_computes_on_each_core_in_turn_and_is_left_where_it_may_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = Host(TWO_CORES, monkeypatch)
    host.rate()
    assert host.visited.count(0) == host.visited.count(5) == exchange.CPU_BURSTS // 2
    assert host.allowed == {0, 5}


def test_bursts_of_an_interrupted_rank_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    host, draw = Host({3: 1.0}, monkeypatch), random.Random(1)
    plain = host.rate()
    host.disturbs = lambda: 40.0 if draw.random() < 0.15 else 1.0
    assert host.rate() == pytest.approx(plain)


@pytest.mark.parametrize("slow", [None, 0, 4, 7])
def test_a_rank_of_half_the_speed_is_told_on_cores_of_two_speeds_and_no_other(
    monkeypatch: pytest.MonkeyPatch, slow: int | None
) -> None:
    host, draw = Host(TWO_CORES, monkeypatch), random.Random(slow)
    host.disturbs = lambda: draw.choice((1.0, 1.0, 1.6))  # both threads of a core are busy
    ranks = tuple(range(8))
    rounds = [
        Result(
            round=Round(number=number, kind="compute", turn=number, ranks=ranks),
            computed={
                rank: host.rate(2.0 if rank == slow else 1.0, 5 if rank < 5 else 0)
                for rank in ranks
            },
        )
        for number in range(5)
    ]
    assert compute_scores(rounds, ranks, 0.2).slow == (() if slow is None else (slow,))


def test_where_cores_cannot_be_asked_it_computes_where_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    monkeypatch.setattr(exchange, "timed", lambda *words: [0.5])
    monkeypatch.setattr(exchange.time, "sleep", lambda seconds: None)
    assert list(exchange.bursts(None, None)) == [0.5] * exchange.CPU_BURSTS
