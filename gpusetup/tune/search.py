"""The largest batch that fits, or the fastest, found in few trials. Pure.

A trial is one batch size that really ran (or did not) in a child; `next_batch` looks at the trials
so far and names the next size, or None when the answer stands. Memory grows along one straight line
per phase (forward, backward, optimizer), and the highest line counts. Two trials give the lines,
the third jumps to just below the limit, the last one proves. Only a size that ran is ever answered.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from gpusetup.model.frozen import Frozen

FIRST = 2
"""The first size, where none is named: what holds only a handful runs out of memory at more."""


class Trial(Frozen):
    """One batch size that was tried in a child of its own."""

    batch: int
    status: Literal["ok", "oom", "error"]
    peak_bytes: int | None = None
    """The most that counted against the limit in any step: on a GPU what torch had allocated, on
    the CPU what was resident."""
    samples_per_second: float | None = None
    spread_percent: float | None = None
    """How far the middle half of the steps lies apart; null if one was timed."""
    utilization_percent: float | None = None
    detail: str | None = None
    static_bytes: int | None = None
    """What stands before a batch arrives: parameters, gradients, the optimizer's states."""
    phases: Mapping[str, int] = {}
    """Phase -> its peak in bytes, the mean of the readings."""
    readings: int = 1
    """How many steps were read."""
    noise: float | None = None
    """Half the range of the readings, as a part of their mean."""
    loss: float | None = None
    """After the last step; null if it is no finite number."""


class Goal(Frozen):
    """What is looked for."""

    limit_bytes: int
    """The memory that may be used: capacity less the margin."""
    start: int = FIRST
    largest: int | None = None
    """No size above this one is tried (`--max`)."""
    trials: int = 14
    ends: float | None = None
    """The time (`time.monotonic`) at which the search is to be over; None: whenever it is."""


# --- what the trials say ------------------------------------------------------------------------


def fits(trial: Trial, goal: Goal) -> bool:
    """Whether it ran and stayed within the limit."""
    return trial.status == "ok" and (trial.peak_bytes or 0) <= goal.limit_bytes


def largest_that_ran(trials: Sequence[Trial], goal: Goal) -> int | None:
    """The largest size that ran within the limit; None if none did.

    >>> largest_that_ran([Trial(batch=8, status="ok", peak_bytes=5), Trial(batch=9, status="oom")],
    ...        Goal(limit_bytes=10))
    8
    """
    return max((trial.batch for trial in trials if fits(trial, goal)), default=None)


def code_fails(trials: Sequence[Trial]) -> bool:
    """Whether the code itself fails: an error where nothing ran yet, other than by its time limit.

    An error above a size that ran bounds the search, as running out of memory does.
    """
    ran = any(trial.status == "ok" for trial in trials)
    errors = [trial.detail or "" for trial in trials if trial.status == "error"]
    return not ran and any(not one.startswith("no answer in") for one in errors)


def stopped(trials: Sequence[Trial], goal: Goal) -> str | None:
    """What stopped the next larger size than the answer; None if nothing did.

    >>> stopped([Trial(batch=8, status="ok"), Trial(batch=9, status="error", detail="x: y")],
    ...         Goal(limit_bytes=10))
    'batch 9 failed: x: y'
    """
    best = largest_that_ran(trials, goal) or 0
    larger = [one for one in trials if one.batch > best and not fits(one, goal)]
    one = min(larger, key=lambda trial: trial.batch, default=None)
    if one is None:
        return None
    failed = f"failed: {' '.join((one.detail or '').split())[:160]}"
    words = {"ok": "is above the limit", "oom": "ran out of memory", "error": failed}
    return f"batch {one.batch} {words[one.status]}"


# --- the lines of memory ------------------------------------------------------------------------

NOISE, NOISE_FLOOR = 0.015, 0.002
"""How far one reading of a peak may be off: at most, and at least."""
Room = tuple[float, float, float]
"""Where a line crosses the limit, with both of its readings off in the worse, no and the better
direction."""


def room_above(ran: Sequence[Trial], limit: int) -> Room:
    """Between which sizes the largest one lies: the line of one phase that crosses the limit first.

    The last trial is the largest that ran within the limit; each line goes through it.
    """
    last = ran[-1]
    noise = max(NOISE_FLOOR, *(1.25 * (one.noise or 0) for one in ran))
    # 2.5 standard deviations of the mean of readings that spread evenly over +-noise
    error = min(NOISE, noise * 2.5 / math.sqrt(3 * min(one.readings for one in ran)))
    rooms = []
    for phase in set.intersection(*(set(one.phases) for one in ran)) or {""}:
        points = [(one.batch, one.phases.get(phase, one.peak_bytes or 0)) for one in ran]
        if len(ran) == 1:  # no line: what stands without a batch is its other end
            points.insert(0, (0, last.static_bytes or 0))
        *smaller, last_point = points
        smaller = [one for one in smaller if one[0] > last_point[0]] or smaller
        lines = [_through(one, last_point, error, limit) for one in smaller]
        rooms.append(min(lines, key=lambda line: line[2] - line[0]))
    low, middle, high = map(min, zip(*rooms, strict=True))
    return low, middle, high if len(ran) > 1 else math.inf


def _through(first: tuple[int, int], last: tuple[int, int], error: float, limit: int) -> Room:
    """
    >>> _through((0, 100), (10, 200), 0.0, 1000)
    (90.0, 90.0, 90.0)
    """

    def crossing(sign: int) -> float:
        room = limit - last[1] * (1 + sign * error)
        slope = last[1] - first[1] + sign * error * (last[1] + first[1])
        distance = room * (last[0] - first[0]) / slope if slope else math.inf
        return last[0] + (
            distance if slope / (last[0] - first[0]) > 0 else math.inf if room > 0 else 0
        )

    low, middle, high = (crossing(sign) for sign in (1, 0, -1))
    return min(low, high), middle, max(low, high)


# --- the largest --------------------------------------------------------------------------------

FAR = 0.86
"""Below this part of the limit a trial is for learning; the next one jumps."""
AIM = 0.985
"""Where the jump lands at most: workspaces and kinks between phases have room above it."""
AFTER_FAILURE = 0.55
"""After a failure only this part of the way to the size that failed is gone."""
SETTLED = 0.035
"""After a failure the answer may lie this far below that size, or below where the lines end: a
second failure costs more than it can bring."""
TOLERANCE = 0.025
"""Without a failure the answer may lie this far below the largest size that is possible."""
NEAR = 0.12
"""The smallest size that settles the search is tried if it is at most this share above one that
ran."""
BEND = 0.15
"""Samples that a line may be off if the answer is a handful."""
FURTHEST = 128
"""No size is tried that is more than this many times one that ran."""
UNBOUNDED = 1 << 40


def next_batch(trials: Sequence[Trial], goal: Goal) -> int | None:
    """The size to try next; None when the answer stands or the trials are used up."""
    fitting = sorted((one for one in trials if fits(one, goal)), key=lambda one: one.batch)
    above_limit = [one for one in trials if one.status == "ok" and not fits(one, goal)]
    smallest_failed = min((one.batch for one in trials if not fits(one, goal)), default=None)
    ceiling = min(goal.largest or UNBOUNDED, (smallest_failed or UNBOUNDED) - 1)
    if len(trials) >= goal.trials or ceiling < 1:
        return None
    if not fitting:
        return min(goal.start, ceiling) if smallest_failed is None else max(1, smallest_failed // 8)
    largest_run, crashed = fitting[-1].batch, smallest_failed is not None and not above_limit
    low, middle, high = room_above([*above_limit, *fitting], goal.limit_bytes)
    bend = BEND if smallest_failed is None and high * SETTLED < 1 else 0
    largest_possible = math.floor(min(high + bend, ceiling))
    within_tolerance = math.ceil((1 - TOLERANCE) * largest_possible)
    acceptable = math.ceil((1 - SETTLED) * min(ceiling, high))
    if largest_run >= min(largest_possible, within_tolerance) or (
        crashed and largest_run >= acceptable
    ):
        return None
    if crashed and acceptable <= min((1 + NEAR) * largest_run, middle):
        target: float = acceptable
    elif crashed:
        target = largest_run + (min(low, ceiling + 1) - largest_run) * AFTER_FAILURE
    elif low >= ceiling:  # memory is no limit: `largest` is
        target = min(largest_possible, largest_run * FURTHEST)
    elif math.isinf(high) or largest_run < FAR * middle:
        # below even the steepest line that the readings allow; one trial's line starts too low
        reach = math.sqrt(low * middle) if math.isinf(high) else low
        target = largest_run + (min(reach, largest_run * FURTHEST) - largest_run) * AIM
    else:  # the size that settles it if it runs, unless it would likely not run
        target = min(middle, within_tolerance)
    return min(max(math.floor(target), largest_run + 1), largest_possible)


# --- the fastest --------------------------------------------------------------------------------

KNEE = 0.95
"""A size is fast enough when it reaches this part of the most samples a second that was seen."""
CLIMB = 4
"""The next size is at most so many times the largest that ran."""
BEYOND = 2
"""So many sizes above the knee bring nothing: one alone may have been disturbed."""


def next_for_speed(trials: Sequence[Trial], goal: Goal) -> int | None:
    """Larger ones, until two bring nothing; then halves, as long as they are at the knee.

    Memory bounds the way up: no size is tried that the search for the largest would not try.
    """
    fitting = [one.batch for one in trials if fits(one, goal)]
    highest, knee = max(fitting, default=0), fastest(trials, goal) or 0
    larger = next_batch(trials, goal)
    if larger is not None and sum(one > knee for one in fitting) < BEYOND:
        times = CLIMB if highest == knee else 2
        return min(larger, times * highest) if fitting else larger
    half = (knee or highest) // 2
    is_tried = half in {one.batch for one in trials} or len(trials) >= goal.trials
    return None if half < 1 or is_tried or any(half <= one < knee for one in fitting) else half


def fastest(trials: Sequence[Trial], goal: Goal, *, busy: float | None = None) -> int | None:
    """The smallest size at the knee of samples a second, or, where NVML tells of one, the
    smallest that keeps the GPU `busy` percent of the time.

    >>> run = lambda batch, speed: Trial(batch=batch, status="ok", samples_per_second=speed)
    >>> fastest([run(8, 50.0), run(16, 97.0), run(32, 100.0)], Goal(limit_bytes=1))
    16
    """
    ran = [one for one in trials if fits(one, goal) and one.samples_per_second]
    least = KNEE * max((one.samples_per_second or 0.0 for one in ran), default=0.0)
    enough = [one.batch for one in ran if busy and (one.utilization_percent or 0.0) >= busy]
    knee = [one.batch for one in ran if (one.samples_per_second or 0.0) >= least]
    return min(enough or knee, default=None)
