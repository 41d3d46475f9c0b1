"""Decides whether one setting is really faster than another, or whether the difference is noise.
Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from gpusetup.tune.search import Trial

Verdict = Literal["gain", "no gain", "open"]
LEAST_GAIN = 1.03
"""The smallest speed-up that counts as a gain: less than 3 % is not worth the trouble."""
CONFIRMED_RUNS = 2
"""The number of runs that both settings need before a gain counts, because other programs may
disturb a single run."""
ENOUGH_RUNS = 3
"""With this many runs, the differences between runs are enough to judge the noise. If two settings
are equally fast, all three runs of the first are faster than all three of the second in one of
twenty cases."""
MOST_RUNS = 5
"""The maximum number of runs of a setting to find out whether it is faster than another one."""
FIRST_SECONDS = 0.5
"""The time in seconds for which steps are timed in a setting's first run."""
LONGEST_SECONDS = 2.0
"""The maximum time in seconds for which steps are timed in later runs."""
TABLE_SECONDS = 120.0
"""After this many seconds for the whole table, each comparison ends as soon as both settings have
run twice."""
MOST_SECONDS = 30.0
"""After this many seconds for one comparison, it ends as soon as both settings have run twice."""


def timed_seconds(runs: int) -> float:
    """The seconds for which the next run of a setting times its steps; later runs are longer.

    >>> [timed_seconds(runs) for runs in range(4)]
    [0.5, 1.0, 2.0, 2.0]
    """
    doubled: float = FIRST_SECONDS * 2**runs
    return min(doubled, LONGEST_SECONDS)


def middle_half(runs: Sequence[Trial]) -> list[Trial]:
    """The runs sorted by speed, slowest first; of four or more, only the middle half."""
    ordered = sorted(runs, key=lambda run: run.samples_per_second or 0.0)
    # With three runs or fewer, all count.
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
        # `slowest` and `highest` only include the runs that count (`middle_half`).
        distance = self.highest - self.slowest
        return 100 * distance / self.middle


def speed_range(runs: Sequence[Trial]) -> SpeedRange | None:
    """The range of speeds over several runs; None if a run timed only one step.

    With one or two runs, the differences between runs say little, so the spread of the steps within
    each run counts too.

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
        # Half of the spread lies on each side.
        half = spread / 200 if are_few else 0.0
        slowest.append(speed * (1 - half))
        highest.append(speed * (1 + half))
    middle_run = counted[len(counted) // 2]
    middle = middle_run.samples_per_second or 0.0
    return SpeedRange(min(slowest), middle, max(highest))


def compare(after: Sequence[Trial], before: Sequence[Trial]) -> Verdict:
    """Whether one setting is faster than another, judged by several runs of both: `gain`, `no
    gain`, or `open` if noise hides the answer.

    The result is `gain` if all runs of `after` are faster than all runs of `before`, and the middle
    run of `after` is faster than the fastest of `before` by `LEAST_GAIN`. The result is `no gain`
    if even the fastest run of `after` does not beat the slowest of `before` by that factor, or if
    the middle run of `after` is slower. A gain, and a slower middle run, only count if both have
    `CONFIRMED_RUNS` runs.

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
    # Both settings need several runs, because another program may have disturbed a single run.
    fewest_runs = min(len(after), len(before))
    is_confirmed = fewest_runs >= CONFIRMED_RUNS
    if is_confirmed and speed.middle < speed_before.middle:
        return "no gain"
    is_apart = speed.slowest > speed_before.highest
    least_middle = LEAST_GAIN * speed_before.highest
    is_worth_it = speed.middle >= least_middle
    is_gain = is_apart and is_worth_it and is_confirmed
    return "gain" if is_gain else "open"
