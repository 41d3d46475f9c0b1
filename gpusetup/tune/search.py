"""Finds the largest batch that fits, or the fastest one, with few trials. Pure functions.

A trial runs one batch size in a child process. `next_batch` looks at the trials so far and returns
the size to try next, or None when the result is certain. In each phase (forward, backward,
optimizer), memory grows linearly with the batch size, and the highest line counts. Two trials give
the lines, the third jumps to just below the limit, and the last one confirms the result. The result
is always a size that really ran.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

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
    readings: int = 1
    """The number of steps whose memory was read."""
    noise: float | None = None
    """Half the range of the readings, as a share of their mean."""
    loss: float | None = None
    """The loss after the last step; null if it is not finite."""
    losses: tuple[float | None, ...] = ()
    """The losses of the first steps. All trials start from the same weights and see the same
    samples."""
    reserved_bytes: int | None = None
    """The memory that torch's allocator had reserved on the GPU, including the gaps between its
    blocks."""
    workers: int | None = None
    """The number of workers of the loader for the timed steps; null if these used a single
    batch."""
    dataset_length: int | None = None
    """The number of samples in an epoch; null if the code returned no data set with a length."""


class Goal(Frozen):
    """What a batch search aims for, and its limits."""

    limit_bytes: int
    """The memory that may be used: the capacity minus a margin."""
    start: int = FIRST
    largest: int | None = None
    """The largest size to try (`--max`); None means no limit."""
    trials: int = 14
    ends: float | None = None
    """The time (`time.monotonic`) at which the search must end; None means no time limit."""


# --- what the trials show -------------------------------------------------------------------------


def fits(trial: Trial, goal: Goal) -> bool:
    """Whether a trial ran and its peak memory stayed within the limit."""
    if trial.status != "ok":
        return False
    return (trial.peak_bytes or 0) <= goal.limit_bytes


def sizes_that_fit(trials: Sequence[Trial], goal: Goal) -> list[int]:
    """The batch sizes that ran within the limit, in the order of the trials."""
    sizes = []
    for trial in trials:
        if fits(trial, goal):
            sizes.append(trial.batch)
    return sizes


def largest_that_ran(trials: Sequence[Trial], goal: Goal) -> int | None:
    """The largest batch size that ran within the limit; None if none did.

    >>> largest_that_ran([Trial(batch=8, status="ok", peak_bytes=5), Trial(batch=9, status="oom")],
    ...        Goal(limit_bytes=10))
    8
    """
    sizes = sizes_that_fit(trials, goal)
    # Only sizes that really ran can be the result.
    return max(sizes, default=None)


def code_fails(trials: Sequence[Trial]) -> bool:
    """Whether the code itself fails: no batch size ran, and a trial failed with an error other than
    memory or time.

    If a smaller size ran, an error only limits the search, as running out of memory does.
    """
    if any(trial.status == "ok" for trial in trials):
        return False
    for trial in trials:
        detail = trial.detail or ""
        # A trial that exceeded its time does not count, because the code may only be slow.
        is_late = detail.startswith("no answer in")
        if trial.status == "error" and not is_late:
            return True
    return False


LONGEST_ERROR = 160
"""The maximum number of characters of a trial's error in the answer."""


def stopped(trials: Sequence[Trial], goal: Goal) -> str | None:
    """Why the smallest failed size above the result failed, as part of a sentence; None if no
    larger size failed.

    >>> stopped([Trial(batch=8, status="ok"), Trial(batch=9, status="error", detail="x: y")],
    ...         Goal(limit_bytes=10))
    'batch 9 failed: x: y'
    """
    answer = largest_that_ran(trials, goal) or 0
    larger = [trial for trial in trials if trial.batch > answer and not fits(trial, goal)]
    if not larger:
        return None
    next_larger = min(larger, key=lambda trial: trial.batch)
    # Join the lines of the error.
    error_words = (next_larger.detail or "").split()
    error = " ".join(error_words)[:LONGEST_ERROR]
    reasons = {
        "ok": "is above the limit",
        "oom": "ran out of memory",
        "error": f"failed: {error}",
    }
    reason = reasons[next_larger.status]
    return f"batch {next_larger.batch} {reason}"


# --- memory as lines over the batch size ----------------------------------------------------------

NOISE = 0.015
"""The largest relative error that the search assumes for a peak reading."""
NOISE_FLOOR = 0.002
"""The smallest relative error that the search assumes."""
NOISE_HEADROOM = 1.25
"""The range of a few readings is smaller than the range of many would be, so the search multiplies
it by this factor."""
DEVIATIONS = 2.5
"""The number of standard deviations by which a mean reading may be off."""


class MemoryLine(NamedTuple):
    """The peak memory of one phase as a straight line over the batch size, given by a point and a
    slope."""

    batch: int
    bytes_at_batch: float
    bytes_per_sample: float

    def largest_batch_below(self, limit_bytes: float) -> float:
        """The batch size at which the line reaches the memory limit; infinite if it never does.

        A line that does not rise never reaches the limit (infinite), or is already above it; the
        result is then the batch size of the line's known point.

        >>> MemoryLine(batch=10, bytes_at_batch=200, bytes_per_sample=10).largest_batch_below(1000)
        90.0
        """
        free_bytes = limit_bytes - self.bytes_at_batch
        if self.bytes_per_sample > 0:
            more_samples = free_bytes / self.bytes_per_sample
            return self.batch + more_samples
        # A line that does not rise never reaches the limit, or is already above it.
        if free_bytes > 0:
            return math.inf
        return self.batch


class PhaseReading(NamedTuple):
    """The peak memory of one phase in one trial."""

    batch: int
    peak_bytes: int

    def line_to(self, last: PhaseReading, error: float) -> MemoryLine:
        """The line through two readings, assuming that this one is too high by the relative `error`
        and `last` too low by the same.

        With a negative error, this reading is too low and `last` too high.
        """
        # One reading is too high and the other too low, so the errors add up.
        doubt_bytes = error * (last.peak_bytes + self.peak_bytes)
        rise = last.peak_bytes - self.peak_bytes + doubt_bytes
        bytes_at_last = last.peak_bytes * (1 + error)
        samples_between = last.batch - self.batch
        return MemoryLine(
            batch=last.batch,
            bytes_at_batch=bytes_at_last,
            bytes_per_sample=rise / samples_between,
        )


class Crossing(NamedTuple):
    """The batch size at which memory reaches the limit, as an estimate with bounds."""

    earliest: float
    """The batch size if every reading is wrong in the unfavourable direction."""
    expected: float
    latest: float
    """The batch size if every reading is wrong in the favourable direction; infinite after a single
    trial."""


def crossing_of(ran: Sequence[Trial], limit_bytes: int) -> Crossing:
    """The smallest batch size at which the memory line of any phase reaches the limit.

    `trials` ends with the largest trial that ran within the limit, and each line goes through that
    trial.
    """
    error = error_of_mean(ran)
    phases_of_trials = [set(trial.phases) for trial in ran]
    shared_phases = set.intersection(*phases_of_trials)
    crossings = []
    # Without phases use one line, for the peak of the whole step.
    for phase in shared_phases or {""}:
        *others, last = readings_of(phase, ran)
        crossing = phase_crossing(others, last, error, limit_bytes)
        crossings.append(crossing)
    latest = min(crossing.latest for crossing in crossings)
    # With a single trial the line starts at the memory without a batch, which is too low, so there
    # is no upper bound.
    if len(ran) == 1:
        latest = math.inf
    return Crossing(
        earliest=min(crossing.earliest for crossing in crossings),
        expected=min(crossing.expected for crossing in crossings),
        latest=latest,
    )


def error_of_mean(ran: Sequence[Trial]) -> float:
    """The possible error of a trial's mean reading, relative to the mean."""
    noise = max(trial.noise or 0.0 for trial in ran)
    range_of_many = NOISE_HEADROOM * noise
    half_range = max(NOISE_FLOOR, range_of_many)
    fewest_readings = min(trial.readings for trial in ran)
    # If readings are uniformly distributed over +-noise, their standard deviation is noise /
    # sqrt(3).
    error = half_range * DEVIATIONS / math.sqrt(3 * fewest_readings)
    return min(NOISE, error)


def readings_of(phase: str, ran: Sequence[Trial]) -> list[PhaseReading]:
    """Each trial's reading in a phase; if there is only one trial, also its memory without a batch,
    at batch 0."""
    readings = []
    for trial in ran:
        whole_step = trial.peak_bytes or 0
        peak_bytes = trial.phases.get(phase, whole_step)
        reading = PhaseReading(trial.batch, peak_bytes)
        readings.append(reading)
    if len(ran) == 1:
        # A line needs two points, so use the memory without a batch as the second one.
        static_bytes = ran[0].static_bytes or 0
        readings.insert(0, PhaseReading(0, static_bytes))
    return readings


def phase_crossing(
    others: Sequence[PhaseReading], last: PhaseReading, error: float, limit_bytes: int
) -> Crossing:
    """Where a phase reaches the limit: the estimate with the narrowest bounds among lines through
    the last reading and another one."""
    # Prefer a reading above the limit, because the crossing then lies between two readings, which
    # is more reliable than extrapolating.
    beyond_limit = [reading for reading in others if reading.batch > last.batch]
    crossings = []
    for reading in beyond_limit or others:
        steep_line = reading.line_to(last, error)
        expected_line = reading.line_to(last, 0.0)
        flat_line = reading.line_to(last, -error)
        steep = steep_line.largest_batch_below(limit_bytes)
        flat = flat_line.largest_batch_below(limit_bytes)
        crossing = Crossing(
            # Which line crosses earlier depends on which reading is at the larger batch size.
            earliest=min(steep, flat),
            expected=expected_line.largest_batch_below(limit_bytes),
            latest=max(steep, flat),
        )
        crossings.append(crossing)
    return min(crossings, key=lambda crossing: crossing.latest - crossing.earliest)


# --- the largest batch ----------------------------------------------------------------------------

FAR = 0.86
"""If the largest run is below this share of the expected limit, the next size jumps to just below
the limit."""
AIM = 0.985
"""The share of the way to the limit that a jump covers. The rest is room for workspaces, and for
kinks where another phase takes over."""
AFTER_FAILURE = 0.55
"""After a failure, the next size covers only this share of the way to the size that failed."""
SETTLED = 0.035
"""After a failure, the result may be this share below the size that failed, or below the limit of
the lines, because a second failure costs more than it can gain."""
TOLERANCE = 0.025
"""Without a failure, the result may be this share below the largest possible size."""
NEAR = 0.12
"""After a failure, the smallest size that would end the search is tried if it is at most this share
above the largest that ran."""
BEND = 0.15
"""The error of a line, in samples; it matters if only a few samples fit."""
FURTHEST = 128
"""The next size is at most this many times the largest that ran."""
SHRINK = 8
"""If no size has run yet, the next size is this many times smaller than the smallest that
failed."""
UNBOUNDED = 1 << 40


def next_batch(trials: Sequence[Trial], goal: Goal) -> int | None:
    """The batch size to try next; None if the result is certain or no trials are left."""
    fitting = [trial for trial in trials if fits(trial, goal)]
    failing = [trial for trial in trials if not fits(trial, goal)]
    smallest_failing = min((trial.batch for trial in failing), default=UNBOUNDED)
    largest_wanted = goal.largest or UNBOUNDED
    ceiling = min(largest_wanted, smallest_failing - 1)
    if len(trials) >= goal.trials or ceiling < 1:
        return None
    if not fitting and not failing:
        return min(goal.start, ceiling)
    if not fitting:
        return max(1, smallest_failing // SHRINK)

    fitting.sort(key=lambda trial: trial.batch)
    largest_run = fitting[-1].batch
    # A size that ran above the limit gives another point for the lines, but a size that crashed
    # does not.
    above_limit = [trial for trial in failing if trial.status == "ok"]
    crossing = crossing_of([*above_limit, *fitting], goal.limit_bytes)
    if failing and not above_limit:
        return after_crash(largest_run, ceiling, crossing)

    latest = crossing.latest
    # If only a few samples fit, one more is a large step, and the lines are not that exact.
    is_handful = latest * SETTLED < 1
    if is_handful and not failing:
        latest += BEND
    largest_possible = math.floor(min(latest, ceiling))
    good_enough = math.ceil((1 - TOLERANCE) * largest_possible)
    if largest_run >= min(largest_possible, good_enough):
        return None
    bounds = Bounds(largest_run, largest_possible, ceiling, good_enough)
    target = target_below(crossing, bounds)
    return clamped(target, largest_run, largest_possible)


class Bounds(NamedTuple):
    """The bounds for the next batch size."""

    largest_run: int
    largest_possible: int
    ceiling: int
    """The largest size that may be tried: `--max`, or one less than the smallest size that
    failed."""
    good_enough: int
    """The smallest size that would be close enough to the limit to end the search."""


def target_below(crossing: Crossing, bounds: Bounds) -> float:
    """The size to try next, given where the memory lines reach the limit."""
    largest_run = bounds.largest_run
    furthest = largest_run * FURTHEST
    # The ceiling is below the point at which memory runs out, so try the largest possible size.
    if crossing.earliest >= bounds.ceiling:
        return min(bounds.largest_possible, furthest)
    # The line of a single trial starts too low, so do not go as far as it suggests.
    if math.isinf(crossing.latest):
        reach = math.sqrt(crossing.earliest * crossing.expected)
        way = min(reach, furthest) - largest_run
        return largest_run + way * AIM
    # Stay below the crossing of the steepest possible line.
    if largest_run < FAR * crossing.expected:
        way = min(crossing.earliest, furthest) - largest_run
        return largest_run + way * AIM
    # Try the size that would end the search, unless it is likely to fail.
    return min(crossing.expected, bounds.good_enough)


def after_crash(largest_run: int, ceiling: int, crossing: Crossing) -> int | None:
    """The size to try next after a larger one crashed; None if the largest that ran is close
    enough."""
    most = min(crossing.latest, ceiling)
    largest_possible = math.floor(most)
    good_enough = math.ceil((1 - TOLERANCE) * largest_possible)
    settles = math.ceil((1 - SETTLED) * most)
    if largest_run >= min(largest_possible, good_enough, settles):
        return None
    target: float = settles
    # Go less far if the size that would end the search is likely to crash, because a second crash
    # costs more than the last few samples are worth.
    largest_likely = min((1 + NEAR) * largest_run, crossing.expected)
    if settles > largest_likely:
        reach = min(crossing.earliest, ceiling + 1)
        way = reach - largest_run
        target = largest_run + way * AFTER_FAILURE
    return clamped(target, largest_run, largest_possible)


def clamped(target: float, largest_run: int, largest_possible: int) -> int:
    """The target rounded down, but above the largest size that ran and at most the largest possible
    one."""
    size = math.floor(target)
    # The next size must be larger than the largest that ran, because running the same size again
    # would show nothing new.
    least = largest_run + 1
    return min(max(size, least), largest_possible)


# --- the fastest batch ----------------------------------------------------------------------------

KNEE = 0.95
"""A size is fast enough if it reaches this share of the highest measured speed."""
CLIMB = 4
"""In the search for speed, the next size is at most this many times the largest that ran."""
SLOW_CLIMB = 2
"""Once a larger size was not faster, the next size is at most this many times the largest that ran.
"""
BEYOND = 2
"""The number of larger sizes that must bring no gain before the search stops going up; a single one
may have been disturbed by other programs."""


def next_for_speed(trials: Sequence[Trial], goal: Goal) -> int | None:
    """The batch size to try next in the search for speed: larger sizes until two bring no gain,
    then half of the best size; None at the end.

    On the way up it never exceeds the size that the search for the largest batch would try next.
    """
    fitting = sizes_that_fit(trials, goal)
    largest_run = max(fitting, default=0)
    knee = fastest(trials, goal) or 0
    larger = next_batch(trials, goal)
    sizes_above_knee = [size for size in fitting if size > knee]
    if larger is not None and len(sizes_above_knee) < BEYOND:
        # Until a size has run, take the size that the search for the largest batch would try.
        if not fitting:
            return larger
        climb = CLIMB if largest_run == knee else SLOW_CLIMB
        return min(larger, climb * largest_run)

    half = (knee or largest_run) // 2
    tried = {trial.batch for trial in trials}
    if half < 1 or half in tried or len(trials) >= goal.trials:
        return None
    # If a size between half of the best and the best was slower than the best, half of the best is
    # slower too.
    has_slower_between = any(half <= size < knee for size in fitting)
    return None if has_slower_between else half


def fastest(trials: Sequence[Trial], goal: Goal, *, busy: float | None = None) -> int | None:
    """The smallest batch with nearly the best speed; with `busy`, the smallest that keeps the GPU
    busy for this percentage of the time. None if none ran.

    >>> run = lambda batch, speed: Trial(batch=batch, status="ok", samples_per_second=speed)
    >>> fastest([run(8, 50.0), run(16, 97.0), run(32, 100.0)], Goal(limit_bytes=1))
    16
    """
    timed = [trial for trial in trials if fits(trial, goal) and trial.samples_per_second]
    speeds = [trial.samples_per_second or 0.0 for trial in timed]
    highest_speed = max(speeds, default=0.0)
    fast_enough = KNEE * highest_speed
    at_knee = []
    keeps_busy = []
    for trial, speed in zip(timed, speeds, strict=True):
        if speed >= fast_enough:
            at_knee.append(trial.batch)
        # Without NVML the utilisation is unknown.
        utilization = trial.utilization_percent or 0.0
        if busy and utilization >= busy:
            keeps_busy.append(trial.batch)
    return min(keeps_busy or at_knee, default=None)
