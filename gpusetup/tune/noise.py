"""Decides whether one setting is really faster than another, or whether the difference is noise.
Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from gpusetup.tune.search import Trial

Verdict = Literal["gain", "no gain", "open"]
LEAST_GAIN = 1.03
"""A step that gains less than 3 % is not worth its trouble."""
CONFIRMED_RUNS = 2
"""Runs of both settings before a gain counts: other programs come and go between two runs."""
ENOUGH_RUNS = 3
"""From so many runs on their own speeds tell the noise. If two settings are equally fast, all three
runs of one are above all three of the other in one case of twenty."""
MOST_RUNS = 5
"""Runs of a setting, at most, to find out whether it is faster than another one."""
FIRST_SECONDS = 0.5
"""How long steps are timed in the first run of a setting."""
LONGEST_SECONDS = 2.0
"""How long steps are timed in a later run, at most."""
TABLE_SECONDS = 120.0
"""After this time each comparison of a table ends as soon as both settings ran twice."""
MOST_SECONDS = 30.0
"""After this time a single comparison ends as soon as both settings ran twice."""


def timed_seconds(runs: int) -> float:
    """The seconds that the next run of a setting times its steps; later runs are longer.

    >>> [timed_seconds(runs) for runs in range(4)]
    [0.5, 1.0, 2.0, 2.0]
    """
    doubled: float = FIRST_SECONDS * 2**runs
    return min(doubled, LONGEST_SECONDS)


def middle_half(runs: Sequence[Trial]) -> list[Trial]:
    """The runs sorted by speed, slowest first; of four or more, only the middle half."""
    ordered = sorted(runs, key=lambda run: run.samples_per_second or 0.0)
    # Of three runs or fewer all count.
    quarter = len(ordered) // 4
    end = len(ordered) - quarter
    return ordered[quarter:end]


class SpeedRange(NamedTuple):
    """The speed of one setting over several runs, in samples per second."""

    slowest: float
    middle: float
    highest: float

    @property
    def spread_percent(self) -> float:
        """The difference between the fastest and the slowest run, in percent of the middle one."""
        # The slowest and the fastest of those that count.
        distance = self.highest - self.slowest
        return 100 * distance / self.middle


def speed_range(runs: Sequence[Trial]) -> SpeedRange | None:
    """The range of speeds over several runs; None if a run timed only one step.

    One or two runs say little of each other, so the range of the steps within them counts too.

    >>> def run(speed):
    ...     return Trial(batch=8, status="ok", samples_per_second=speed, spread_percent=2.0)
    >>> quiet, disturbed = run(100.0), run(50.0)
    >>> speed_range([quiet, disturbed])
    SpeedRange(slowest=49.5, middle=100.0, highest=101.0)
    >>> speed_range([quiet, quiet, quiet, disturbed])
    SpeedRange(slowest=100.0, middle=100.0, highest=100.0)
    """
    counted = middle_half(runs)
    are_few = len(runs) < ENOUGH_RUNS
    slowest = []
    highest = []
    for run in counted:
        speed, spread = run.samples_per_second, run.spread_percent
        if speed is None or spread is None:
            return None
        # The spread goes to both sides.
        half = spread / 200 if are_few else 0.0
        slowest.append(speed * (1 - half))
        highest.append(speed * (1 + half))
    middle_run = counted[len(counted) // 2]
    middle = middle_run.samples_per_second or 0.0
    return SpeedRange(min(slowest), middle, max(highest))


def compare(after: Sequence[Trial], before: Sequence[Trial]) -> Verdict:
    """Whether one setting is faster than another, judged by several runs of both: `gain`, `no
    gain`, or `open` if noise hides the answer.

    It is a gain if all its runs are faster than all runs of the other, and its middle run is faster
    than the fastest run of the other by `LEAST_GAIN`. It is no gain if even its fastest run is not
    faster by that than the slowest run of the other, or if its middle run is slower. A gain, and a
    middle run that is slower, count only from `CONFIRMED_RUNS` runs of both.

    >>> def runs(speed, spread=0.0):
    ...     trial = Trial(batch=8, status="ok", samples_per_second=speed, spread_percent=spread)
    ...     return [trial, trial]
    >>> compare(runs(104.0), runs(100.0)), compare(runs(102.0), runs(100.0))
    ('gain', 'no gain')
    >>> compare(runs(104.0, spread=10.0), runs(100.0)), compare(runs(104.0)[:1], runs(100.0))
    ('open', 'open')
    """
    speed, speed_before = speed_range(after), speed_range(before)
    if speed is None or speed_before is None:
        return "no gain"
    least_best = LEAST_GAIN * speed_before.slowest
    if speed.highest < least_best:
        return "no gain"
    # Several runs of both: one run alone may have been disturbed.
    fewest_runs = min(len(after), len(before))
    is_confirmed = fewest_runs >= CONFIRMED_RUNS
    if is_confirmed and speed.middle < speed_before.middle:
        return "no gain"
    is_apart = speed.slowest > speed_before.highest
    least_middle = LEAST_GAIN * speed_before.highest
    is_worth_it = speed.middle >= least_middle
    is_gain = is_apart and is_worth_it and is_confirmed
    return "gain" if is_gain else "open"
