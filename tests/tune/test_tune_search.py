"""The batch search on simulated devices, and its rules."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from functools import partial

import pytest
from each_row import each
from hypothesis import given
from hypothesis import strategies as some
from simulated_devices import devices

from gpusetup.model.frozen import replace
from gpusetup.model.units import GIB
from gpusetup.tune.search import (
    Goal,
    Trial,
    code_fails,
    fastest,
    largest_that_ran,
    next_batch,
    next_for_speed,
    stopped,
)


def search(probe: Callable[[int], Trial], goal: Goal, *trials: Trial) -> list[Trial]:
    done = [*trials]
    while not code_fails(done) and (batch := next_batch(done, goal)) is not None:
        done.append(probe(batch))
    return done


def check(seed: int, count: int, hard: bool) -> None:
    """The promise: few trials, nearly the largest size, next to never a second failure."""
    parts, tried, failed = list[float](), list[int](), list[int]()
    for number, device in enumerate(devices(seed, count, hard=hard)):
        draw, goal = random.Random(seed + number), Goal(limit_bytes=device.capacity_bytes)
        trials = search(partial(device.trial, draw=draw), goal)
        found = largest_that_ran(trials, goal)
        assert found in [one.batch for one in trials if one.status == "ok"]
        parts.append((found or 0) / device.maximum())
        assert parts[-1] >= 0.93 or device.maximum() - (found or 0) <= 1
        tried.append(len(trials))
        failed.append(sum(one.status == "oom" for one in trials))
    assert statistics.mean(tried) <= 4.7
    assert max(tried) <= 14
    assert max(parts) <= 1
    assert statistics.mean(parts) >= 0.987
    assert sum(many <= 1 for many in failed) >= 0.95 * count


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize(
    "seed", [11, *(pytest.param(n, marks=pytest.mark.slow) for n in range(12, 25))]
)
def test_on_simulated_devices_few_trials_find_nearly_the_largest_and_nothing_unsafe(
    seed: int, hard: bool
) -> None:
    check(seed, 208, hard)


def straight(static: int, each: int, limit: int, batch: int) -> Trial:
    peak = static + each * batch
    if peak > limit:
        return Trial(batch=batch, status="oom")
    return Trial(batch=batch, status="ok", peak_bytes=peak, static_bytes=static)


@given(
    static=some.integers(0, 40 * GIB),
    each=some.integers(1 << 12, 30 * GIB),
    limit=some.integers(GIB, 80 * GIB),
    largest=some.one_of(some.none(), some.integers(1, 4096)),
)
def test_only_a_size_that_ran_is_answered_and_none_is_tried_twice(
    static: int, each: int, limit: int, largest: int | None
) -> None:
    goal = Goal(limit_bytes=limit, largest=largest)
    trials = search(lambda batch: straight(static, each, limit, batch), goal)
    sizes = [trial.batch for trial in trials]
    assert len(set(sizes)) == len(sizes) <= goal.trials
    assert all(size <= (largest or size) for size in sizes)
    found = largest_that_ran(trials, goal)
    assert found is None or found in [one.batch for one in trials if one.status == "ok"]


@pytest.mark.parametrize("detail", ["RuntimeError: index out of range", "no answer in 300 s"])
@pytest.mark.parametrize("fails_from", [20, 61, 500])
def test_an_error_above_a_size_that_ran_bounds_the_search(fails_from: int, detail: str) -> None:
    goal = Goal(limit_bytes=100 * GIB)

    def probe(batch: int) -> Trial:
        if batch >= fails_from:
            return Trial(batch=batch, status="error", detail=detail)
        return straight(GIB, GIB // 16, 200 * GIB, batch)

    trials = search(probe, goal)
    found = largest_that_ran(trials, goal)
    assert found is not None and 0.95 * (fails_from - 1) <= found < fails_from
    assert len(trials) <= 14 and detail in (stopped(trials, goal) or "")


def test_max_is_tried_itself_where_memory_is_no_limit() -> None:
    goal = Goal(limit_bytes=80 * GIB, largest=24)
    trials = search(lambda batch: straight(GIB, 1, 80 * GIB, batch), goal)
    assert [trial.batch for trial in trials] == [2, 24]


SPEEDS = {2: 100.0, 8: 400.0, 16: 600.0, 32: 960.0, **dict.fromkeys((64, 128, 512, 1024), 1e3)}
SPEEDS[256] = 300.0  # something disturbed it


@each(
    "start, largest, tried, found",
    [
        (2, None, [2, 8, 32, 128, 256, 16], 32),  # more would bring nothing
        (2, 64, [2, 8, 32, 64, 16], 32),
        (128, None, [128, 512, 1024, 64, 32, 16], 32),
    ],
)
def test_the_way_to_the_fastest_ends_at_the_knee_however_much_memory_there_is(
    start: int, largest: int | None, tried: list[int], found: int
) -> None:
    goal, trials = Goal(limit_bytes=80 * GIB, start=start, largest=largest), list[Trial]()
    while (batch := next_for_speed(trials, goal)) is not None:
        ran = straight(GIB, 1 << 10, 80 * GIB, batch)
        trials.append(replace(ran, samples_per_second=SPEEDS[batch]))
    assert [trial.batch for trial in trials] == tried
    assert fastest(trials, goal) == found
