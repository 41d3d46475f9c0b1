"""Finds the facts and measured speeds in which a machine differs from most machines of its kind.

Measured speeds are compared with their median. Their spread is the median distance from it (MAD),
scaled to a normal distribution's standard deviation; even if nearly half of the values are
outliers, neither median nor MAD changes much. A value is an outlier if it is slower than the median
by a relevant share, and by so many spreads that a healthy fleet shows such a value in only one of a
hundred checks. Sources: for the MAD's scaling and efficiency, Rousseeuw and Croux, Alternatives to
the Median Absolute Deviation, 1993; for quantiles of Student's t, Abramowitz and Stegun 26.7.5.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from statistics import NormalDist, median, median_low

from gpusetup.fleet.facts import is_compared, severity_of, value_of
from gpusetup.fleet.history import moment
from gpusetup.fleet.nodes import Drift, FactSplit, Node, Rate
from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen

LEAST_NODES = 3
"""How many nodes must report a fact before a majority means anything."""
Kind = tuple[str, ...]
"""A kind of machines that can be compared with each other: the model that most of their GPUs have.
"""


class FactDifferences(Frozen):
    """The facts in which nodes differ from the majority of their kind, and the facts that have no
    majority."""

    drifts: Mapping[str, Sequence[Drift]]
    """Maps each node to its differences from the majority."""
    splits: tuple[FactSplit, ...]


def fact_differences(nodes: Iterable[Node]) -> FactDifferences:
    """Compare each node's facts with those of all nodes of the same kind."""
    by_kind: dict[Kind, list[Node]] = defaultdict(list)
    for node in nodes:
        if node.facts:
            by_kind[node.kind].append(node)
    sizes = {kind: len(members) for kind, members in by_kind.items()}
    references = compared_with(sizes)
    compared_nodes: dict[Kind, list[Node]] = defaultdict(list)
    for kind, reference in references.items():
        compared_nodes[reference] += by_kind[kind]
    drifts: dict[str, list[Drift]] = defaultdict(list)
    splits: list[FactSplit] = []
    for kind, nodes_of_kind in compared_nodes.items():
        # Nodes of other kinds that are compared with this kind have no vote on its usual values.
        voters = by_kind[kind]
        fields: set[str] = set()
        for voter in voters:
            fields.update(voter.facts)
        for field in sorted(filter(is_compared, fields)):
            values = _values_of(field, voters)
            counts = Counter(values.values())
            majority = majority_of(counts)
            if majority is not None:
                for node_name, drift in _drifts_in(field, majority, counts, nodes_of_kind):
                    drifts[node_name].append(drift)
            elif counts.total() >= LEAST_NODES:
                splits.append(_split_of(field, kind, values))
    return FactDifferences(drifts=drifts, splits=tuple(splits))


def _values_of(field: str, nodes: Iterable[Node]) -> dict[str, str]:
    """Maps each node to its value of one fact; nodes whose records do not contain the fact are left
    out."""
    values = {}
    for node in nodes:
        value = value_of(field, node.facts)
        if value is not None:
            values[node.name] = value
    return values


def _drifts_in(
    field: str, majority: str, counts: Counter[str], nodes: Iterable[Node]
) -> Iterator[tuple[str, Drift]]:
    """The nodes whose value of one fact differs from the majority's value, each with the
    difference."""
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


def _split_of(field: str, kind: Kind, values: Mapping[str, str]) -> FactSplit:
    """A fact without a majority value, with the nodes that have each value; the most frequent value
    comes first."""
    names_by_value: dict[str, list[str]] = defaultdict(list)
    for name, value in values.items():
        names_by_value[value].append(name)

    def most_frequent_first(value: str) -> tuple[int, str]:
        # The count is negated, because sorting puts the smallest first. The value is included to
        # make the order reproducible.
        return -len(names_by_value[value]), value

    ordered_values = sorted(names_by_value, key=most_frequent_first)
    return FactSplit(
        field=field,
        severity=severity_of(field),
        gpus=kind,
        values={value: tuple(names_by_value[value]) for value in ordered_values},
    )


def compared_with(sizes: Mapping[Kind, int]) -> dict[Kind, Kind]:
    """Maps each kind of machine to the kind that its nodes are compared with, usually the same
    kind.

    Nodes without visible GPUs do not form a kind if other nodes have GPUs: they are compared with
    the largest kind.
    """
    references = {}
    for kind in sizes:
        references[kind] = kind or _largest_kind(sizes)
    return references


def _largest_kind(sizes: Mapping[Kind, int]) -> Kind:
    """The kind with GPUs that has the most nodes; () if no node has GPUs."""

    def preference(kind: Kind) -> tuple[bool, int, Kind]:
        has_gpus = bool(kind)
        # The kind itself is included to make the result reproducible.
        return has_gpus, sizes[kind], kind

    return max(sizes, key=preference)


KIND = "node.kind"
"""The field of the difference for a node whose GPU model no other node has."""


def uncompared(nodes: Iterable[Node]) -> dict[Kind, list[str]]:
    """Maps each kind of machine that has too few nodes for a comparison to the names of these
    nodes."""
    by_kind: dict[Kind, list[str]] = defaultdict(list)
    for node in nodes:
        if node.facts:
            by_kind[node.kind].append(node.name)
    sizes = {kind: len(names) for kind, names in by_kind.items()}
    references = compared_with(sizes)
    small_kinds = {}
    for kind, names in by_kind.items():
        # Nodes that are compared with another kind are not counted here.
        is_own_reference = references[kind] == kind
        has_too_few = len(names) < LEAST_NODES
        if is_own_reference and has_too_few:
            small_kinds[kind] = names
    return small_kinds


def lone_kinds(nodes: Sequence[Node]) -> dict[str, Drift]:
    """Maps each node that is the only one of its kind to a warning, if another kind has several
    nodes.

    Such a node is compared with no other node, so the wrong GPU model would go unnoticed. In a
    fleet where all machines differ, this is normal and gives no warning.
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
"""The field of the difference for a record that is older than the others."""
FUTURE = "record.future"
"""The field of the difference for a record that is dated in the future."""
LEAST_AGE = timedelta(hours=6)
"""The least age difference that counts. A `fleet run` on a busy cluster, or checking nodes by hand,
may take hours, so records of one morning count as equally old."""
AGE_SPREADS = 5
"""By how many spreads a record may be older than the median record. Records that a timer
distributes over a day differ by at most 2 spreads (scaled median distances); 5 leave room for a day
when the timer was late."""


CLOCK_ERROR = timedelta(minutes=10)
"""A cluster's clocks differ by seconds, so a record dated further in the future than this has a
wrong date."""


def misdated_records(nodes: Iterable[Node], now: datetime) -> dict[str, Drift]:
    """Maps each node to a warning that its record is much older than most records, or dated in the
    future."""
    taken: dict[str, datetime] = {}
    for node in nodes:
        time = moment(node.taken_at)
        if time is not None:
            taken[node.name] = time
    future = {name: time for name, time in taken.items() if time > now + CLOCK_ERROR}
    plausible = {name: time for name, time in taken.items() if name not in future}
    misdated = _old_records(plausible)
    for name, time in future.items():
        misdated[name] = Drift(
            field=FUTURE,
            value=_in_words(time),
            majority=_in_words(now),
            severity=Severity.WARNING,
            nodes=len(plausible),
            of=len(taken),
        )
    return misdated


def _old_records(taken: Mapping[str, datetime]) -> dict[str, Drift]:
    """Maps each node to a warning that its record is much older than the others."""
    if len(taken) < LEAST_NODES:
        return {}
    middle = median_low(taken.values())
    distances = [abs(time - middle) for time in taken.values()]
    spread = TO_SIGMA * median_low(distances)
    oldest_usual_age = max(LEAST_AGE, AGE_SPREADS * spread)
    old: dict[str, Drift] = {}
    for name, time in taken.items():
        age = middle - time
        # Newer records are fine.
        if age <= oldest_usual_age:
            continue
        old[name] = Drift(
            field=TAKEN_AT,
            value=f"{_in_words(time)}, {span(age)} before most others",
            majority=_in_words(middle),
            severity=Severity.WARNING,
            nodes=len(taken),
            of=len(taken),
        )
    return old


def _in_words(time: datetime) -> str:
    """A time as it is shown to the user: `2026-11-19 03:00 UTC`."""
    return f"{time:%Y-%m-%d %H:%M} UTC"


def newest_of(nodes: Iterable[Node], now: datetime) -> datetime | None:
    """When the newest record was taken, ignoring records dated in the future; None if no record has
    a date."""
    latest_plausible = now + CLOCK_ERROR
    plausible_times = []
    for node in nodes:
        time = moment(node.taken_at)
        if time is not None and time <= latest_plausible:
            plausible_times.append(time)
    return max(plausible_times, default=None)


MOST_HOURS = 72
"""Time spans below three days are shown in hours."""


def span(time: timedelta) -> str:
    """A time span as text in hours, or in days from 72 hours on.

    >>> span(timedelta(days=1, hours=7)), span(timedelta(days=30))
    ('31 hours', '30 days')
    """
    hours = round(time.total_seconds() / 3600)
    if hours < MOST_HOURS:
        return f"{hours} hours"
    days = hours // 24
    return f"{days} days"


def majority_of(counts: Counter[str]) -> str | None:
    """The value that more than half of the nodes have; None if there is no such value, or if too
    few nodes report the fact.

    >>> majority_of(Counter({"580": 3, "570": 1})), majority_of(Counter({"580": 2, "570": 2}))
    ('580', None)
    """
    total = counts.total()
    if total < LEAST_NODES:
        return None
    value, most = counts.most_common(1)[0]
    is_majority = most * 2 > total
    # Exactly half of the nodes is not a majority.
    return value if is_majority else None


FALSE_ALARMS = 0.01
"""The chance that one check shows an outlier in a healthy fleet with normally distributed rates."""
TO_SIGMA = 1.4826
"""Converts the median distance into the standard deviation of a normal distribution."""
EFFICIENCY = 0.37
"""The statistical efficiency of the median distance (MAD): it is as uncertain as the standard
deviation of a sample only 37 % as large."""
LEAST_SPREAD = 0.005
"""The smallest spread, as a fraction of the median. No measurement is more precise than this, even
if the rates agree better."""
LEAST_LOSS = 0.05
"""The smallest relative loss of speed that counts, because a smaller loss is no reason to replace a
device."""
LEAST_VALUES = 5
"""The fewest rates that are compared; with fewer, the median distance is too uncertain."""


RATES = "rates."
"""The prefix of rates among the fields in which nodes differ."""


def outliers(nodes: Iterable[Node]) -> dict[str, list[Drift]]:
    """Maps each node to its measured speeds that are too slow, compared with the same check, GPU
    model and unit on other nodes."""
    groups: dict[tuple[str, str, str], list[tuple[str, Rate]]] = defaultdict(list)
    for node in nodes:
        for rate in node.rates:
            group = (rate.check, rate.model, rate.unit)
            groups[group].append((node.name, rate))
    slow_rates: dict[str, list[Drift]] = defaultdict(list)
    for rates in groups.values():
        if len(rates) < LEAST_VALUES:
            continue
        values = [rate.value for _, rate in rates]
        least = least_healthy(values, LEAST_LOSS)
        middle = median(values)
        for name, rate in rates:
            if rate.value < least:
                drift = _slow_rate(rate, middle, len(rates))
                slow_rates[name].append(drift)
    return slow_rates


def _slow_rate(rate: Rate, middle: float, count: int) -> Drift:
    """The difference between a speed that is too slow and the median of all speeds."""
    # A device with less than half of the usual speed counts as broken.
    is_below_half = rate.value < middle / 2
    severity = Severity.ERROR if is_below_half else Severity.WARNING
    return Drift(
        field=f"{RATES}{rate.check}",
        value=f"{rate.value:.4g} {rate.unit} on {rate.device}",
        majority=f"{middle:.4g} {rate.unit}",
        severity=severity,
        nodes=count,
        of=count,
    )


def least_healthy(values: Sequence[float], loss: float) -> float:
    """The lowest rate that a healthy device may have; it is at least the fraction `loss` below the
    median.

    >>> round(least_healthy([100, 101, 99, 100, 102, 98, 50], 0.05), 1)
    81.6
    """
    middle = median(values)
    distances = [abs(value - middle) for value in values]
    measured_spread = TO_SIGMA * median(distances)
    least_spread = LEAST_SPREAD * middle
    spread = max(measured_spread, least_spread)
    # Use the lower of two limits, so that a rate below it is further away than chance explains, and
    # its loss is large enough to matter.
    by_spread = middle - spreads(len(values)) * spread
    by_loss = middle * (1 - loss)
    least = min(by_spread, by_loss)
    return max(0.0, least)


def spreads(count: int) -> float:
    """How many spreads below the median the slowest of `count` healthy values may be.

    This is a quantile of Student's t, because the spread is estimated from the same values.

    >>> round(spreads(64), 1), round(spreads(8000), 1)
    (4.2, 4.7)
    """
    # The allowed chance of a false alarm is divided among all values.
    chance = FALSE_ALARMS / count
    z = -NormalDist().inv_cdf(chance)
    # There are fewer degrees of freedom than values, because the median distance uses only a part
    # of the sample's information.
    freedom = EFFICIENCY * (count - 1)
    # Student's t as a series in 1 / degrees of freedom around the normal quantile (Abramowitz and
    # Stegun 26.7.5); the terms are polynomials of the normal quantile.
    first_order = (z**3 + z) / 4
    second_order = 5 * z**5 + 16 * z**3 + 3 * z
    third_order = 3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z
    quantile = z
    quantile += first_order / freedom
    quantile += second_order / 96 / freedom**2
    quantile += third_order / 384 / freedom**3
    return quantile
