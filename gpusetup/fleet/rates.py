"""Which measured rate is not like the others: a robust statistic, its false alarms stated.

The middle is the median, the spread the median distance from it (MAD), scaled to a normal
distribution's standard deviation: half of the values may be wild without moving either. A value is
an outlier where it is slower than the middle by more spreads than a healthy fleet shows once in a
hundred looks, and by a share that matters.
Sources: the scaling and the efficiency of the MAD, Rousseeuw and Croux, Alternatives to the Median
Absolute Deviation, 1993; quantiles of Student's t, Abramowitz and Stegun 26.7.5.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import NormalDist, median

from gpusetup.fleet.nodes import Node, Rate
from gpusetup.model.frozen import Frozen

FALSE_ALARMS = 0.01
"""The chance that a healthy fleet with normally spread rates shows one outlier of a check."""
TO_SIGMA = 1.4826
"""The median distance times this is the standard deviation of a normal distribution."""
EFFICIENCY = 0.37
"""So much of a sample does the median distance use: its own error is that of fewer values."""
LEAST_SPREAD = 0.005
"""Of the middle: rates that agree better than a measurement can are not finer than this."""
LEAST_LOSS = 0.05
"""A device that is slower by a smaller share is none that anybody would exchange."""
LEAST_VALUES = 5


class Outlier(Frozen):
    """A device that is slower than the others of its model in one check."""

    node: str
    rate: Rate
    middle: float
    limit: float
    """What it would have to reach."""
    of: int
    """How many devices were compared."""


def outliers(nodes: Iterable[Node]) -> tuple[Outlier, ...]:
    """Every rate that is too slow among those of the same check, model and unit."""
    alike: dict[tuple[str, str, str], list[tuple[str, Rate]]] = defaultdict(list)
    for node in nodes:
        for rate in node.rates:
            alike[rate.check, rate.model, rate.unit].append((node.name, rate))
    return tuple(one for rates in alike.values() for one in _slow(rates))


def _slow(rates: Sequence[tuple[str, Rate]]) -> Iterable[Outlier]:
    if len(rates) < LEAST_VALUES:
        return
    values = [rate.value for _, rate in rates]
    middle, limit = median(values), least_healthy(values)
    for name, rate in rates:
        if rate.value < limit:
            yield Outlier(node=name, rate=rate, middle=middle, limit=limit, of=len(rates))


def least_healthy(values: Sequence[float]) -> float:
    """The slowest rate that a healthy device among these may have.

    >>> round(least_healthy([100, 101, 99, 100, 102, 98, 50]), 1)
    81.6
    """
    middle = median(values)
    spread = TO_SIGMA * median(abs(value - middle) for value in values)
    spread = max(spread, LEAST_SPREAD * middle)
    return min(middle - spreads(len(values)) * spread, middle * (1 - LEAST_LOSS))


def spreads(count: int) -> float:
    """How many spreads below the middle the slowest of so many healthy values may lie.

    A quantile of Student's t, for the spread is estimated from these values themselves.

    >>> round(spreads(64), 1), round(spreads(8000), 1)
    (4.2, 4.7)
    """
    z = -NormalDist().inv_cdf(FALSE_ALARMS / count)
    freedom = EFFICIENCY * (count - 1)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))
