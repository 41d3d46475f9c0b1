"""Finds the largest batch that fits, or the fastest one, with few trials. Pure functions.

A trial runs one batch size in a child process. `next_batch` looks at the trials so far and returns
the size to try next, or None when the result is certain. Memory grows nearly linearly with the
batch size, so two trials give the line, the third jumps to just below the limit, and the last one
confirms the result. The result is always a size that really ran.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from gpusetup.model.frozen import Frozen

FIRST = 2
"""The first batch size if none is given. It is small because some models fit only a few samples."""


class Trial(Frozen):
    """The result of running one batch size in a child process."""

    batch: int
    status: Literal["ok", "oom", "error"]
    peak_bytes: int | None = None
    """The peak memory over all steps that counts against the limit: on a GPU the memory allocated
    by torch, on the CPU the resident memory."""
    samples_per_second: float | None = None
    spread_percent: float | None = None
    """The spread of the middle half of the step times; null if only one step was timed."""
    utilization_percent: float | None = None
    detail: str | None = None
    static_bytes: int | None = None
    """The memory in use before a batch arrives: parameters, gradients and optimizer states."""
    phases: Mapping[str, int] = {}
    """Phase -> its peak memory in bytes, as the mean of the readings."""
    loss: float | None = None
    """The loss after the last step; null if it is not finite."""
    losses: tuple[float | None, ...] = ()
    """The losses of the first steps. All trials start from the same weights and see the same
    samples."""
    workers: int | None = None
    """The number of workers of the loader for the timed steps; null if these used a single
    batch."""
    dataset_length: int | None = None
    """The number of samples in an epoch; null if the code returned no data set with a length."""


class Goal(Frozen):
    """The limits of a batch search."""

    limit_bytes: int
    """The memory that may be used: the capacity minus a margin."""
    start: int = FIRST
    largest: int | None = None
    """The largest size to try (`--max`); None means no limit."""
    trials: int = 14
    """The most trials; the usual search needs four or five, so more mean a disturbed machine."""


def fits(trial: Trial, goal: Goal) -> bool:
    """Whether a trial ran and its peak memory stayed within the limit."""
    return trial.status == "ok" and (trial.peak_bytes or 0) <= goal.limit_bytes


def largest_that_ran(trials: Sequence[Trial], goal: Goal) -> int | None:
    """The largest batch size that ran within the limit; None if none did.

    >>> largest_that_ran([Trial(batch=8, status="ok", peak_bytes=5), Trial(batch=9, status="oom")],
    ...        Goal(limit_bytes=10))
    8
    """
    return max((trial.batch for trial in trials if fits(trial, goal)), default=None)


def code_fails(trials: Sequence[Trial]) -> bool:
    """Whether the code itself fails: no batch size ran, and a trial failed with an error.

    If a smaller size ran, an error only limits the search, as running out of memory does.
    """
    statuses = {trial.status for trial in trials}
    return "error" in statuses and "ok" not in statuses


# --- the largest batch ----------------------------------------------------------------------------

JUMPS = (0.7, 0.96)
"""To which share of the expected limit the first two jumps go. The line of the first starts at the
memory without a batch, which is too low. The second stays below the limit, because readings differ
by up to 1.5 % from step to step, and another phase or a larger workspace may take over."""
NEAR_LIMIT = 0.985
"""To which share later jumps go: a size this close to the expected limit that ran or failed ends
the search."""
TOLERANCE = 0.03
"""The result may be this share below the largest possible size."""
FURTHEST = 128
"""The next size is at most this many times the largest that ran."""
SHRINK = 8
"""If no size has run yet, the next size is this many times smaller than the smallest that
failed."""
UNBOUNDED = 1 << 40
"""A batch size above all that a search can reach."""


def next_batch(trials: Sequence[Trial], goal: Goal) -> int | None:
    """The batch size to try next; None if the result is certain enough or no trials are left.

    The constants were chosen on simulated devices with workspaces, bends, fragmented memory and
    noisy readings: 4.3 trials find 99 % of the largest size, and one search in a hundred fails
    twice.
    """
    fitting = sorted((t for t in trials if fits(t, goal)), key=lambda trial: trial.batch)
    failing = [trial.batch for trial in trials if not fits(trial, goal)]
    ceiling = min(goal.largest or UNBOUNDED, min(failing, default=UNBOUNDED) - 1)
    if len(trials) >= goal.trials or ceiling < 1:
        return None
    if not fitting:
        return max(1, min(failing) // SHRINK) if failing else min(goal.start, ceiling)

    largest_run = fitting[-1].batch
    limit = batch_at_limit(fitting, goal.limit_bytes)
    largest_possible = min(limit, ceiling)
    is_close = largest_run >= (1 - TOLERANCE) * largest_possible
    if is_close or largest_run >= math.floor(largest_possible):
        return None
    if failing:
        halfway = (largest_run + ceiling + 1) / 2
        target = min(NEAR_LIMIT * limit, halfway)
    elif limit >= ceiling / NEAR_LIMIT:
        # Memory is no limit below the largest size that is wanted.
        target = ceiling
    elif len(fitting) == 1:
        target = largest_run + JUMPS[0] * (limit - largest_run)
    else:
        target = (JUMPS[1] if len(fitting) == 2 else NEAR_LIMIT) * limit
    # The same size again would show nothing new.
    size = max(math.floor(min(target, FURTHEST * largest_run)), largest_run + 1)
    return min(size, math.floor(largest_possible))


def batch_at_limit(ran: Sequence[Trial], limit_bytes: int) -> float:
    """The batch size at which the peak of a step reaches the limit; infinite if it does not grow.

    `ran` is sorted by batch. The memory is a line through its smallest and its largest size; with a
    single size, a line from the memory without a batch.

    >>> static = Trial(batch=10, status="ok", static_bytes=100, peak_bytes=200)
    >>> batch_at_limit([static], 1000)
    90.0
    """
    first, last = ran[0], ran[-1]
    batch_before, peak_before = 0, first.static_bytes or 0
    if len(ran) > 1:
        batch_before, peak_before = first.batch, first.peak_bytes or 0
    peak = last.peak_bytes or 0
    bytes_per_sample = (peak - peak_before) / (last.batch - batch_before)
    if bytes_per_sample <= 0:
        return math.inf
    return last.batch + (limit_bytes - peak) / bytes_per_sample


# --- the fastest batch ----------------------------------------------------------------------------

KNEE = 0.95
"""A size is fast enough if it reaches this share of the highest measured speed."""
CLIMB = 2
"""In the search for speed, the next size is at most this many times the largest that ran, because
the answer is the smallest size that is fast."""
BEYOND = 2
"""The number of larger sizes that must bring no gain before the search stops going up; a single one
may have been disturbed by other programs."""


def next_for_speed(trials: Sequence[Trial], goal: Goal) -> int | None:
    """The batch size to try next in the search for speed: larger sizes until two bring no gain, but
    none that the search for the largest batch would not try; None at the end."""
    fitting = [trial.batch for trial in trials if fits(trial, goal)]
    knee = fastest(trials, goal) or 0
    larger = next_batch(trials, goal)
    if larger is None or sum(size > knee for size in fitting) >= BEYOND:
        return None
    # Until a size has run, take the size that the search for the largest batch would try.
    return min(larger, CLIMB * max(fitting)) if fitting else larger


def fastest(trials: Sequence[Trial], goal: Goal, *, busy: float | None = None) -> int | None:
    """The smallest batch with nearly the best speed; with `busy`, the smallest that keeps the GPU
    busy for this percentage of the time. None if none ran.

    >>> run = lambda batch, speed: Trial(batch=batch, status="ok", samples_per_second=speed)
    >>> fastest([run(8, 50.0), run(16, 97.0), run(32, 100.0)], Goal(limit_bytes=1))
    16
    """
    timed = [
        (trial, trial.samples_per_second)
        for trial in trials
        if fits(trial, goal) and trial.samples_per_second
    ]
    fast_enough = KNEE * max((speed for _, speed in timed), default=0.0)
    at_knee = [trial.batch for trial, speed in timed if speed >= fast_enough]
    # Without NVML the utilisation is unknown.
    keeps_busy = [
        trial.batch for trial, _ in timed if busy and (trial.utilization_percent or 0.0) >= busy
    ]
    return min(keeps_busy or at_knee, default=None)
