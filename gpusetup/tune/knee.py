"""The fastest size: the smallest one at the knee of samples a second. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gpusetup.tune.search import fitting, next_batch, on_grid
from gpusetup.tune.trial import Goal, Trial

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
    good = sorted(fitting(trials, goal), key=lambda trial: trial.batch)
    largest, knee = good[-1].batch if good else 0, fastest(trials, goal) or 0
    if sum(trial.batch > knee for trial in good) < BEYOND:
        larger = next_batch(trials, goal)
        if larger is not None:
            times = CLIMB if largest == knee else 2
            return min(larger, on_grid(times * largest, goal)) if good else larger
    half = on_grid((knee or largest) // 2, goal)
    slower = [trial.batch for trial in good if trial.batch < knee]
    tried = half in {trial.batch for trial in trials} or len(trials) >= goal.trials
    return None if half < 1 or tried or max(slower, default=0) >= half else half


def fastest(
    trials: Sequence[Trial], goal: Goal, *, part: float = KNEE, busy: float | None = None
) -> int | None:
    """The smallest size at the knee of samples a second, or, where NVML tells of one, the
    smallest that keeps the GPU `busy` percent of the time.

    >>> run = lambda batch, speed: Trial(batch=batch, status="ok", samples_per_second=speed)
    >>> fastest([run(8, 50.0), run(16, 97.0), run(32, 100.0)], Goal(limit_bytes=1))
    16
    """
    timed = [trial for trial in fitting(trials, goal) if trial.samples_per_second]
    if not timed:
        return None
    enough = [t.batch for t in timed if busy and (t.utilization_percent or 0) >= busy]
    if enough:
        return min(enough)
    most = max(trial.samples_per_second or 0.0 for trial in timed)
    return min(t.batch for t in timed if (t.samples_per_second or 0.0) >= part * most)
