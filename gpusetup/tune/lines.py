"""The lines along which memory grows with the batch, and where they cross the limit. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gpusetup.model.frozen import Frozen, replace

if TYPE_CHECKING:
    from gpusetup.tune.trial import Goal, Trial

NOISE = 0.015
"""How far one reading of a peak may be off, where the readings do not show it themselves."""
NOISE_FLOOR = 0.002


class Room(Frozen):
    """Between which sizes the largest one lies, as far as the lines tell."""

    low: float
    middle: float
    high: float


def room_above(
    good: Sequence[Trial],
    goal: Goal,
    over: Sequence[Trial] = (),
    *,
    wary: bool = False,
    bold: bool = False,
) -> Room:
    """Where the lines through the trials that ran cross the limit: the first one counts.

    `over`: trials that ran as well, above the limit; between both nothing has to be guessed.
    `wary`: a size has failed that the lines may have promised; the steepest is believed.
    `bold`: the flattest is, since one sample more counts for much.
    """
    points = phase_points((*over, *good))
    rooms = [crossing(one, error(good), goal.limit_bytes, wary, bold) for one in points]
    return Room(
        low=min(room.low for room in rooms),
        middle=min(room.middle for room in rooms),
        high=min(room.high for room in rooms),
    )


def phase_points(ran: Sequence[Trial]) -> Iterator[list[tuple[int, int]]]:
    """For each phase (or the whole step where no phases were read): its (batch, bytes)."""
    names = sorted(set.intersection(*(set(trial.phases) for trial in ran)))
    for name in names:
        yield _grounded(ran, [(trial.batch, trial.phases[name]) for trial in ran])
    if not names:
        yield _grounded(ran, [(trial.batch, trial.peak_bytes or 0) for trial in ran])


def _grounded(good: Sequence[Trial], points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """One trial alone is no line: what stands without a batch is its other end."""
    static = good[0].static_bytes
    return [(0, static or 0), *points] if len(points) == 1 else points


def crossing(
    points: Sequence[tuple[int, int]],
    error: float,
    limit: int,
    wary: bool = False,
    bold: bool = False,
) -> Room:
    """Where the line through the last point and the best other one, above it if any, crosses.

    >>> crossing([(0, 100), (10, 200)], 0.0, 1000)
    Room(low=90.0, middle=90.0, high=inf)
    """
    others = [one for one in points[:-1] if one[0] > points[-1][0]] or points[:-1]
    rooms = [_through(one, points[-1], error, limit) for one in others]
    best = min(rooms, key=lambda room: room.high - room.low)
    if points[0][0] == 0:  # grounded: what a phase holds without a batch may be more than static
        return replace(best, high=math.inf)
    if bold:
        return max(rooms, key=lambda room: room.middle)
    if wary:
        low, middle = min(room.low for room in rooms), min(room.middle for room in rooms)
        return Room(low=low, middle=middle, high=max(low, min(room.high for room in rooms)))
    low, high = max(room.low for room in rooms), min(room.high for room in rooms)
    if low > high:  # no one line goes through them all: a step lies between
        return best
    return Room(low=low, middle=min(max(best.middle, low), high), high=high)


def _through(first: tuple[int, int], last: tuple[int, int], error: float, limit: int) -> Room:
    """With both readings off by `error` in the worse, no and the better direction."""
    wide, rise = last[0] - first[0], last[1] - first[1]
    off = error * (last[1] + first[1])
    flat, middle, steep = sorted((rise + sign * off) / wide for sign in (-1, 0, 1))
    left = limit - last[1]
    return Room(
        low=last[0] + _over(left - error * last[1], steep),
        middle=last[0] + _over(left, middle),
        high=last[0] + _over(left + error * last[1], flat),
    )


def _over(left: float, slope: float) -> float:
    """How many samples go into what is left; a line that does not rise never crosses."""
    return left / slope if slope > 0 else math.inf if left > 0 else 0.0


def error(trials: Sequence[Trial]) -> float:
    """How far the mean of a trial's readings may be off, as a part of it.

    2.5 standard deviations of the mean of `readings` values spread evenly over +-noise.
    """
    seen = [trial.noise for trial in trials if trial.noise is not None and trial.readings > 1]
    noise = max((NOISE_FLOOR, *(one * 1.25 for one in seen))) if seen else NOISE
    readings = min(trial.readings for trial in trials)
    return min(noise, noise * 2.5 / math.sqrt(3 * readings))
