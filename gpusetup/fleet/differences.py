"""Finds the facts and measured speeds in which a machine differs from most machines of its kind."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from statistics import median

from gpusetup.fleet.facts import is_compared, severity_of, value_of
from gpusetup.fleet.folder import moment
from gpusetup.fleet.nodes import Drift, FactSplit, Node, Rate, slurm_list
from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen

LEAST_NODES = 3
"""How many nodes must report a fact before a majority means anything."""
Kind = tuple[str, ...]
"""A kind of machines that can be compared with each other: the model that most of their GPUs have.
"""


class Differences(Frozen):
    """What tells nodes from the others of their kind."""

    of_node: Mapping[str, Sequence[Drift]]
    """Maps each node to its differences from most nodes of its kind."""
    splits: tuple[FactSplit, ...]
    """Facts of which no value has a majority."""
    uncompared: Mapping[Kind, Sequence[str]]
    """Maps each kind that has too few nodes for a comparison to the names of these nodes."""


def differences(nodes: Sequence[Node], now: datetime) -> Differences:
    """Compare each node's facts, speeds and dates with those of all nodes of the same kind."""
    by_kind: dict[Kind, list[Node]] = defaultdict(list)
    for node in nodes:
        if node.facts:
            by_kind[node.kind].append(node)
    # Nodes without visible GPUs are no kind of their own if others have GPUs: they are compared
    # with the largest kind, and have no vote on its usual values.
    without_gpus: list[Node] = []
    if len(by_kind) > 1:
        without_gpus = by_kind.pop((), [])
    largest = max(by_kind, key=lambda kind: (len(by_kind[kind]), kind), default=())
    drifts: dict[str, list[Drift]] = defaultdict(list)
    splits: list[FactSplit] = []
    uncompared: dict[Kind, list[str]] = {}
    for kind, voters in by_kind.items():
        if len(voters) < LEAST_NODES:
            uncompared[kind] = [node.name for node in voters]
        of_kind = (*voters, *(without_gpus if kind == largest else ()))
        fields: set[str] = set()
        for node in voters:
            fields.update(filter(is_compared, node.facts))
        for field in sorted(fields):
            values = {node.name: value_of(field, node.facts) for node in of_kind}
            counts = Counter(value for node in voters if (value := values[node.name]) is not None)
            majority = majority_of(counts)
            if majority is None and counts.total() >= LEAST_NODES:
                splits.append(_split_of(field, kind, values))
            for name, value in values.items():
                if majority is not None and value and value != majority:
                    drift = Drift(
                        field=field,
                        value=value,
                        majority=majority,
                        severity=severity_of(field),
                        nodes=counts[majority],
                        of=counts.total(),
                    )
                    drifts[name].append(drift)
        # A node that nothing can be compared with may simply have the wrong GPU. Where all machines
        # differ, this is usual.
        if len(voters) == 1 and kind and len(by_kind[largest]) >= LEAST_NODES:
            drifts[voters[0].name].append(
                Drift(
                    field=KIND,
                    value=", ".join(kind),
                    majority=", ".join(largest),
                    severity=Severity.WARNING,
                    nodes=len(by_kind[largest]),
                    of=sum(map(len, by_kind.values())),
                )
            )
    for one_kind in (slow_rates(nodes), misdated_records(nodes, now), copied_records(nodes)):
        for name, rows in one_kind.items():
            drifts[name] += rows
    return Differences(of_node=drifts, splits=tuple(splits), uncompared=uncompared)


KIND = "node.kind"
"""The field of the difference for a node whose GPU model no other node has."""
TAKEN_AT = "record.taken_at"
"""The field of the difference for a record that is older than the others."""
FUTURE = "record.future"
"""The field of the difference for a record that is dated in the future."""
COPIED = "record.copied"
"""The field of the difference for a record whose GPUs are another node's."""


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
    return value if most * 2 > total else None


def _split_of(field: str, kind: Kind, values: Mapping[str, str | None]) -> FactSplit:
    """A fact without a majority value, with the nodes that have each value; the most frequent value
    comes first."""
    names_by_value: dict[str, list[str]] = defaultdict(list)
    for name, value in values.items():
        if value is not None:
            names_by_value[value].append(name)
    # The value itself makes the order of equally frequent ones reproducible.
    ordered = sorted(names_by_value, key=lambda value: (-len(names_by_value[value]), value))
    return FactSplit(
        field=field,
        severity=severity_of(field),
        gpus=kind,
        values={value: tuple(names_by_value[value]) for value in ordered},
    )


# --- records --------------------------------------------------------------------------------------

DAY = timedelta(days=1)
"""Records that a timer spreads over a day count as equally old."""
CLOCK_ERROR = timedelta(minutes=10)
"""A cluster's clocks differ by seconds, so a record dated further in the future than this has a
wrong date."""


def newest_of(nodes: Iterable[Node], now: datetime) -> datetime | None:
    """When the newest record was taken, ignoring records dated in the future; None if no record has
    a date."""
    times = [moment(node.taken_at) for node in nodes]
    return max((time for time in times if time and time <= now + CLOCK_ERROR), default=None)


def misdated_records(nodes: Sequence[Node], now: datetime) -> dict[str, list[Drift]]:
    """Maps each node to a warning that its record is more than a day older than the newest one of
    several, or dated in the future."""
    taken: dict[str, datetime] = {}
    for node in nodes:
        if time := moment(node.taken_at):
            taken[node.name] = time
    newest = newest_of(nodes, now)
    misdated: dict[str, list[Drift]] = {}
    for name, time in taken.items():
        field, expected, value = TAKEN_AT, newest, _in_words(time)
        if time > now + CLOCK_ERROR:
            field, expected = FUTURE, now
        elif newest is None or len(taken) < LEAST_NODES or newest - time <= DAY:
            continue
        else:
            value = f"{value}, {span(newest - time)} before the newest"
        misdated[name] = [
            Drift(
                field=field,
                value=value,
                majority=_in_words(expected or now),
                severity=Severity.WARNING,
                nodes=len(taken),
                of=len(taken),
            )
        ]
    return misdated


def copied_records(nodes: Iterable[Node]) -> dict[str, list[Drift]]:
    """Maps each node to an error that another node's record has the same GPUs: one of the two is a
    copy, and its own node was not examined."""
    by_gpus: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for node in nodes:
        if node.gpu_uuids:
            by_gpus[node.gpu_uuids].append(node.name)
    copied: dict[str, list[Drift]] = {}
    for names in by_gpus.values():
        for name in names if len(names) > 1 else ():
            others = [other for other in names if other != name]
            copied[name] = [
                Drift(
                    field=COPIED,
                    value=f"the same GPUs (by UUID) as {slurm_list(others)}",
                    majority="other UUIDs",
                    severity=Severity.ERROR,
                    nodes=len(names),
                    of=len(names),
                )
            ]
    return copied


def _in_words(time: datetime) -> str:
    """A time as it is shown to the user: `2026-11-19 03:00 UTC`."""
    return f"{time:%Y-%m-%d %H:%M} UTC"


MOST_HOURS = 72
"""Time spans below three days are shown in hours."""


def span(time: timedelta) -> str:
    """A time span as text in hours, or in days from 72 hours on.

    >>> span(timedelta(days=1, hours=7)), span(timedelta(days=30))
    ('31 hours', '30 days')
    """
    hours = round(time.total_seconds() / 3600)
    return f"{hours} hours" if hours < MOST_HOURS else f"{hours // 24} days"


# --- speeds ---------------------------------------------------------------------------------------

RATES = "rates."
"""The prefix of rates among the fields in which nodes differ."""
LEAST_RATES = 5
"""The fewest rates that are compared, so that one slow device does not move the median."""
SLOW = 0.92
"""Below this share of the median, a device is slow. Healthy GPUs of one model vary by about 8 %
(Sinha et al., Not All GPUs Are Created Equal, SC 2022)."""
BROKEN = 0.5
"""Below this share of the median, a device counts as broken."""


def slow_rates(nodes: Iterable[Node]) -> dict[str, list[Drift]]:
    """Maps each node to its measured speeds that are too slow, compared with the same check, GPU
    model and unit on all nodes."""
    groups: dict[tuple[str, str, str], list[tuple[str, Rate]]] = defaultdict(list)
    for node in nodes:
        for rate in node.rates:
            groups[rate.check, rate.model, rate.unit].append((node.name, rate))
    slow: dict[str, list[Drift]] = defaultdict(list)
    for rates in groups.values():
        middle = median(rate.value for _, rate in rates)
        for name, rate in rates:
            if len(rates) < LEAST_RATES or rate.value >= SLOW * middle:
                continue
            is_broken = rate.value < BROKEN * middle
            drift = Drift(
                field=f"{RATES}{rate.check}",
                value=f"{rate.value:.4g} {rate.unit} on {rate.device}",
                majority=f"{middle:.4g} {rate.unit}",
                severity=Severity.ERROR if is_broken else Severity.WARNING,
                nodes=len(rates),
                of=len(rates),
            )
            slow[name].append(drift)
    return slow
