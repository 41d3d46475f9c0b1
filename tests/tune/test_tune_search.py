"""The batch search on simulated devices, and its rules.

On a device, every phase of a step needs a fixed part and a part for each sample, the highest phase
counts, and memory is taken in blocks. What is read is off by up to 1.5 %, another value at every
step. All is drawn from a seed.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable

import pytest
from each_row import each
from hypothesis import given
from hypothesis import strategies as some

from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.units import GIB, MIB
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

SMALLEST, LARGEST = 7, 7192
PHASES = ("forward", "backward", "optimizer")
CAPACITIES_GIB = (4, 8, 12, 24, 48, 80, 141)


class Device(Frozen):
    """A device with a model on it."""

    capacity: int
    static: int
    each: dict[str, float]
    """The bytes that a sample takes in each phase."""

    def need(self, batch: int) -> dict[str, int]:
        sizes = {phase: self.static + self.each[phase] * batch for phase in PHASES}
        return {phase: math.ceil(size / (2 * MIB)) * 2 * MIB for phase, size in sizes.items()}

    def trial(self, batch: int, draw: random.Random) -> Trial:
        """What the allocator's counters say of some steps."""
        need = self.need(batch)
        if max(need.values()) > self.capacity:
            return Trial(batch=batch, status="oom")

        def read(size: int) -> int:
            return round(size * statistics.mean(1 + draw.uniform(-0.015, 0.015) for _ in range(12)))

        phases = {phase: read(size) for phase, size in need.items()}
        return Trial(
            batch=batch,
            status="ok",
            peak_bytes=min(max(phases.values()), self.capacity),
            static_bytes=read(self.static),
            phases=phases,
        )


def device_of(draw: random.Random, goal: int) -> Device:
    """A device that holds about `goal` samples."""
    capacity = draw.choice(CAPACITIES_GIB) * GIB
    static = round(draw.uniform(0.02, 0.6) * capacity)
    steepest = (capacity - static) / (goal + draw.random())
    each = {"forward": steepest, "backward": steepest * draw.uniform(0.3, 1.0), "optimizer": 0.0}
    return Device(capacity=capacity, static=static, each=each)


def search(probe: Callable[[int], Trial], goal: Goal) -> list[Trial]:
    done: list[Trial] = []
    while not code_fails(done) and (batch := next_batch(done, goal)) is not None:
        done.append(probe(batch))
    return done


def test_on_simulated_devices_few_trials_find_nearly_the_largest_and_nothing_unsafe() -> None:
    """The promise: few trials, nearly the largest size, next to never a second failure."""
    draw, parts, tried, failed = random.Random(11), list[float](), list[int](), list[int]()
    for index in range(208):
        # The true maxima are spread evenly by size.
        device = device_of(draw, round(SMALLEST * (LARGEST / SMALLEST) ** (index / 207)))
        goal = Goal(limit_bytes=device.capacity)
        trials = search(lambda batch, of=device: of.trial(batch, draw), goal)  # type: ignore[misc]
        found = largest_that_ran(trials, goal) or 0
        assert found in [one.batch for one in trials if one.status == "ok"]
        maximum = found
        while max(device.need(maximum + 1).values()) <= device.capacity:
            maximum += 1
        parts.append(found / maximum)
        assert parts[-1] >= 0.93 or maximum - found <= 1
        tried.append(len(trials))
        failed.append(sum(one.status == "oom" for one in trials))
    assert statistics.mean(tried) <= 4.7 and max(tried) <= 14
    assert statistics.mean(parts) >= 0.987 and max(parts) <= 1
    assert sum(many <= 1 for many in failed) >= 0.95 * len(failed)


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
@pytest.mark.parametrize("fails_from", [20, 500])
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


SPEEDS = {2: 100.0, 4: 200.0, 16: 600.0, 32: 960.0, **dict.fromkeys((64, 128, 256, 512), 1e3)}
SPEEDS[8] = 150.0  # something disturbed it


@each(
    "start, largest, tried, found",
    [
        (2, None, [2, 4, 8, 16, 32, 64, 128], 32),  # more would bring nothing
        (2, 64, [2, 4, 8, 16, 32, 64], 32),
        (128, None, [128, 256, 512], 128),
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
