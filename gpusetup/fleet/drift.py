"""What one machine has otherwise than most machines of its kind: its facts, and its measured rates.

Of rates the middle is the median, the spread the median distance from it (MAD), scaled to a normal
distribution's standard deviation: half of the values may be wild without moving either. A value is
an outlier if it is slower than the middle by more spreads than a healthy fleet shows once in a
hundred looks, and by a share that matters.
Sources: the scaling and the efficiency of the MAD, Rousseeuw and Croux, Alternatives to the Median
Absolute Deviation, 1993; quantiles of Student's t, Abramowitz and Stegun 26.7.5.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist, median

from gpusetup.fleet.facts import severity_of, value_of
from gpusetup.fleet.nodes import Drift, Node, Rate
from gpusetup.model.finding import Severity

LEAST_NODES = 3
"""Nodes that must tell a fact before most of them can be right."""
Kind = tuple[str, ...]
"""What makes machines comparable: the models of their GPUs."""


def drifts(nodes: Iterable[Node]) -> dict[str, list[Drift]]:
    """Each node's differences from most nodes of its kind."""
    by_kind: dict[Kind, list[Node]] = defaultdict(list)
    for node in nodes:
        if node.facts:
            by_kind[node.kind].append(node)
    compared_kinds: dict[Kind, list[Node]] = defaultdict(list)
    sizes = {kind: len(alike) for kind, alike in by_kind.items()}
    for kind, reference in compared_with(sizes).items():
        compared_kinds[reference] += by_kind[kind]
    found: dict[str, list[Drift]] = defaultdict(list)
    for kind, nodes_of_kind in compared_kinds.items():
        for name in sorted({name for node in by_kind[kind] for name in node.facts}):
            values = (value_of(name, node.facts) for node in by_kind[kind])
            counts = Counter(value for value in values if value is not None)
            majority, total = majority_of(counts), counts.total()
            for node in nodes_of_kind:
                value = value_of(name, node.facts)
                if majority and value and value != majority:
                    drift = Drift(
                        field=name,
                        value=value,
                        majority=majority,
                        severity=severity_of(name),
                        nodes=counts[majority],
                        of=total,
                    )
                    found[node.name].append(drift)
    return found


def compared_with(sizes: Mapping[Kind, int]) -> dict[Kind, Kind]:
    """Each kind of machine -> the kind that it is compared with: its own, however few they are.
    A node with one GPU of another model among the usual ones is compared with those that have only
    the usual; nodes whose GPUs are not seen are no kind if others have some."""

    def reference(kind: Kind) -> Kind:
        if len(kind) == 1 or (kind and sizes[kind] >= LEAST_NODES):
            return kind
        candidates = (one for one in sizes if {*one} <= {*kind} or not kind)
        return max(candidates, key=lambda one: (bool(one), sizes[one], one))

    return {kind: reference(kind) for kind in sizes}


def majority_of(counts: Counter[str]) -> str | None:
    """The value that more than half of those have who tell one.

    >>> majority_of(Counter({"580": 3, "570": 1})), majority_of(Counter({"580": 2, "570": 2}))
    ('580', None)
    """
    total = counts.total()
    value, most = counts.most_common(1)[0]
    return value if total >= LEAST_NODES and most * 2 > total else None


FALSE_ALARMS = 0.01
"""The chance that a healthy fleet with normally spread rates shows one outlier of a check."""
TO_SIGMA = 1.4826
"""The median distance times this is the standard deviation of a normal distribution."""
EFFICIENCY = 0.37
"""So much of a sample does the median distance use: its own error is that of fewer values."""
LEAST_SPREAD = 0.005
"""Of the middle: rates that agree better than a measurement can are not finer than this."""
LEAST_LOSS = 0.05
"""Nobody exchanges a device that is slower by a smaller share."""
LEAST_VALUES = 5


RATES = "rates."
"""How the names of rates begin among the fields in which nodes differ."""


def outliers(nodes: Iterable[Node]) -> dict[str, list[Drift]]:
    """Node -> its rates that are too slow among those of the same check, model and unit."""
    rates_of: dict[tuple[str, str, str], list[tuple[str, Rate]]] = defaultdict(list)
    for node in nodes:
        for rate in node.rates:
            rates_of[rate.check, rate.model, rate.unit].append((node.name, rate))
    found: dict[str, list[Drift]] = defaultdict(list)
    for rates in rates_of.values():
        values, count = [rate.value for _, rate in rates], len(rates)
        least = least_healthy(values, LEAST_LOSS) if count >= LEAST_VALUES else 0.0
        for name, rate in rates:
            if rate.value < least:
                middle = median(values)
                half = rate.value < middle / 2
                found[name].append(
                    Drift(
                        field=f"{RATES}{rate.check}",
                        value=f"{rate.value:.4g} {rate.unit} on {rate.device}",
                        majority=f"{middle:.4g} {rate.unit}",
                        severity=Severity.ERROR if half else Severity.WARNING,
                        nodes=count,
                        of=count,
                    )
                )
    return found


def least_healthy(values: Sequence[float], loss: float) -> float:
    """The slowest rate that a healthy device among these may have; slower than the middle by at
    least this loss.

    >>> round(least_healthy([100, 101, 99, 100, 102, 98, 50], 0.05), 1)
    81.6
    """
    middle = median(values)
    spread = TO_SIGMA * median(abs(value - middle) for value in values)
    spread = max(spread, LEAST_SPREAD * middle)
    return max(0.0, min(middle - spreads(len(values)) * spread, middle * (1 - loss)))


def spreads(count: int) -> float:
    """How many spreads below the middle the slowest of so many healthy values may be.

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
