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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from statistics import NormalDist, median, median_low

from gpusetup.fleet.facts import severity_of, value_of
from gpusetup.fleet.history import moment
from gpusetup.fleet.nodes import Drift, Node, Rate
from gpusetup.model.finding import Severity

LEAST_NODES = 3
"""Nodes that must tell a fact before most of them can be right."""
Kind = tuple[str, ...]
"""What makes machines comparable: the models of their GPUs."""


def drifts(nodes: Iterable[Node]) -> dict[str, list[Drift]]:
    """Each node's differences from most nodes of its kind, by the node's name."""
    by_kind: dict[Kind, list[Node]] = defaultdict(list)
    for node in nodes:
        if node.facts:
            by_kind[node.kind].append(node)
    sizes = {kind: len(members) for kind, members in by_kind.items()}
    compared_nodes: dict[Kind, list[Node]] = defaultdict(list)
    for kind, reference in compared_with(sizes).items():
        compared_nodes[reference] += by_kind[kind]
    differences: dict[str, list[Drift]] = defaultdict(list)
    for kind, nodes_of_kind in compared_nodes.items():
        # Nodes of other kinds that are compared with this one do not vote on what is usual.
        voters = by_kind[kind]
        fields: set[str] = set()
        for voter in voters:
            fields.update(voter.facts)
        for field in sorted(fields):
            for node_name, drift in _drifts_in(field, voters, nodes_of_kind):
                differences[node_name].append(drift)
    return differences


def _drifts_in(
    field: str, voters: Iterable[Node], nodes: Iterable[Node]
) -> Iterator[tuple[str, Drift]]:
    """The nodes whose value of one fact is not that of most voters, each with the difference."""
    values = (value_of(field, node.facts) for node in voters)
    counts = Counter(value for value in values if value is not None)
    majority = majority_of(counts)
    if majority is None:
        return
    for node in nodes:
        value = value_of(field, node.facts)
        if value and value != majority:
            drift = Drift(
                field=field,
                value=value,
                majority=majority,
                severity=severity_of(field),
                nodes=counts[majority],
                of=counts.total(),
            )
            yield node.name, drift


def compared_with(sizes: Mapping[Kind, int]) -> dict[Kind, Kind]:
    """Each kind of machine -> the kind that it is compared with: its own, however few they are.

    A node with one GPU of another model among the usual ones is compared with those that have only
    the usual; nodes whose GPUs are not seen are no kind if others have some.
    """

    def reference(kind: Kind) -> Kind:
        has_one_model = len(kind) == 1
        is_common_mixture = bool(kind) and sizes[kind] >= LEAST_NODES
        if has_one_model or is_common_mixture:
            return kind
        models = set(kind)
        candidates = [other for other in sizes if not kind or models.issuperset(other)]
        # A kind with GPUs before one without; then the largest; the name makes it reproducible.
        return max(candidates, key=lambda other: (bool(other), sizes[other], other))

    return {kind: reference(kind) for kind in sizes}


KIND = "node.kind"
"""The field of a node whose GPUs no other node has."""


def uncompared(nodes: Iterable[Node]) -> dict[Kind, list[str]]:
    """The kinds that have too few nodes to be compared -> the names of these nodes."""
    by_kind: dict[Kind, list[str]] = defaultdict(list)
    for node in nodes:
        if node.facts:
            by_kind[node.kind].append(node.name)
    sizes = {kind: len(names) for kind, names in by_kind.items()}
    references = compared_with(sizes)
    return {
        kind: names
        for kind, names in by_kind.items()
        if references[kind] == kind and len(names) < LEAST_NODES
    }


def lone_kinds(nodes: Sequence[Node]) -> dict[str, Drift]:
    """Nodes that are the only ones of their kind, if another kind has several.

    Such a node is compared with nobody, so a wrong GPU or a driver that reports half of them would
    pass unseen. In a fleet of single machines this is no surprise, and nothing is said.
    """
    counts = Counter(node.kind for node in nodes if node.facts and node.kind)
    if not counts:
        return {}
    usual_kind, usual_count = counts.most_common(1)[0]
    if usual_count < LEAST_NODES:
        return {}
    lone: dict[str, Drift] = {}
    for kind, names in uncompared(nodes).items():
        if len(names) == 1 and kind:
            lone[names[0]] = Drift(
                field=KIND,
                value=", ".join(kind),
                majority=", ".join(usual_kind),
                severity=Severity.WARNING,
                nodes=usual_count,
                of=counts.total(),
            )
    return lone


TAKEN_AT = "record.taken_at"
"""The field of a record that is older than the others."""
LEAST_AGE = timedelta(hours=6)
"""A `fleet run` on a busy cluster, or a round by hand, may take hours; records of one morning are
of one age."""
AGE_SPREADS = 5
"""Records that a timer spreads over a day lie within 2 of these spreads, which are the scaled
median distances: 5 leave room for a day on which the timer was late."""


def old_records(nodes: Iterable[Node]) -> dict[str, Drift]:
    """Nodes whose record is much older than most: it may not show what the node is like now."""
    taken: dict[str, datetime] = {}
    for node in nodes:
        time = moment(node.taken_at)
        if time is not None:
            taken[node.name] = time
    if len(taken) < LEAST_NODES:
        return {}
    middle = median_low(taken.values())
    distances = [abs(time - middle) for time in taken.values()]
    spread = TO_SIGMA * median_low(distances)
    oldest_usual_age = max(LEAST_AGE, AGE_SPREADS * spread)
    old: dict[str, Drift] = {}
    for name, time in taken.items():
        if middle - time > oldest_usual_age:
            old[name] = Drift(
                field=TAKEN_AT,
                value=f"{time:%Y-%m-%d %H:%M} UTC, {_span(middle - time)} before most others",
                majority=f"{middle:%Y-%m-%d %H:%M} UTC",
                severity=Severity.WARNING,
                nodes=len(taken),
                of=len(taken),
            )
    return old


def _span(time: timedelta) -> str:
    """A time in days or hours.

    >>> _span(timedelta(days=1, hours=7)), _span(timedelta(days=30))
    ('31 hours', '30 days')
    """
    hours = round(time.total_seconds() / 3600)
    # Below three days the hours matter.
    return f"{hours} hours" if hours < 72 else f"{hours // 24} days"


def majority_of(counts: Counter[str]) -> str | None:
    """The value that more than half of those have who tell one.

    >>> majority_of(Counter({"580": 3, "570": 1})), majority_of(Counter({"580": 2, "570": 2}))
    ('580', None)
    """
    total = counts.total()
    if total < LEAST_NODES:
        return None
    value, most = counts.most_common(1)[0]
    return value if most * 2 > total else None


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
    groups: dict[tuple[str, str, str], list[tuple[str, Rate]]] = defaultdict(list)
    for node in nodes:
        for rate in node.rates:
            groups[rate.check, rate.model, rate.unit].append((node.name, rate))
    slow_rates: dict[str, list[Drift]] = defaultdict(list)
    for rates in groups.values():
        if len(rates) < LEAST_VALUES:
            continue
        values = [rate.value for _, rate in rates]
        least = least_healthy(values, LEAST_LOSS)
        middle = median(values)
        for name, rate in rates:
            if rate.value >= least:
                continue
            is_below_half = rate.value < middle / 2
            drift = Drift(
                field=f"{RATES}{rate.check}",
                value=f"{rate.value:.4g} {rate.unit} on {rate.device}",
                majority=f"{middle:.4g} {rate.unit}",
                severity=Severity.ERROR if is_below_half else Severity.WARNING,
                nodes=len(rates),
                of=len(rates),
            )
            slow_rates[name].append(drift)
    return slow_rates


def least_healthy(values: Sequence[float], loss: float) -> float:
    """The slowest rate that a healthy device among these may have; slower than the middle by at
    least this loss.

    >>> round(least_healthy([100, 101, 99, 100, 102, 98, 50], 0.05), 1)
    81.6
    """
    middle = median(values)
    distances = [abs(value - middle) for value in values]
    measured_spread = TO_SIGMA * median(distances)
    spread = max(measured_spread, LEAST_SPREAD * middle)
    # Both must say so: further from the others than chance, and by a loss that matters.
    by_spread = middle - spreads(len(values)) * spread
    by_loss = middle * (1 - loss)
    least = min(by_spread, by_loss)
    return max(0.0, least)


def spreads(count: int) -> float:
    """How many spreads below the middle the slowest of so many healthy values may be.

    A quantile of Student's t, for the spread is estimated from these values themselves.

    >>> round(spreads(64), 1), round(spreads(8000), 1)
    (4.2, 4.7)
    """
    # The normal quantile; then Student's t as a series in 1 / degrees of freedom (26.7.5).
    z = -NormalDist().inv_cdf(FALSE_ALARMS / count)
    freedom = EFFICIENCY * (count - 1)
    first_order = (z**3 + z) / 4
    second_order = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third_order = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first_order / freedom + second_order / freedom**2 + third_order / freedom**3
