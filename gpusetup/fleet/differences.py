"""Finds the facts and measured speeds in which a machine differs from most machines of its kind,
and records that are old, misdated or copied."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from statistics import median

from gpusetup.fleet.facts import is_compared, severity_of, value_of
from gpusetup.fleet.names import slurm_list
from gpusetup.fleet.records import Node, Rate, moment
from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen

LEAST_NODES = 3
"""How many nodes must report a fact before a majority means anything."""
Kind = tuple[str, ...]
"""A kind of machines that can be compared with each other: the model that most of their GPUs have.
"""


class Drift(Frozen):
    """A difference between a node and most nodes of its kind, in one field.

    Four fields are not facts about the node: `record.taken_at` means that its record is older than
    the others, `record.future` that its record is dated in the future, `record.copied` that another
    node's record has the same GPUs, and `node.kind` that no other node has GPUs of this model.
    """

    field: str
    value: str
    majority: str
    severity: Severity = Severity.WARNING
    nodes: int
    """How many nodes have the majority's value, or how many devices were compared."""
    of: int
    """The total number of nodes or devices."""


class FactSplit(Frozen):
    """A fact without a majority value among the nodes of a kind, so that it is unknown which nodes
    are right."""

    field: str
    severity: Severity
    gpus: tuple[str, ...]
    """The GPU model of that kind of node."""
    values: Mapping[str, tuple[str, ...]]
    """Maps each value to the nodes that have it; the most frequent value comes first."""


class Uncompared(Frozen):
    """A kind of machine that has too few nodes for a comparison, with these nodes."""

    gpus: Kind
    """The GPU models of these nodes."""
    nodes: tuple[str, ...]


class Differences(Frozen):
    """What tells nodes from the others of their kind."""

    of_node: Mapping[str, Sequence[Drift]]
    """Maps each node to its differences from most nodes of its kind."""
    splits: tuple[FactSplit, ...]
    """Facts of which no value has a majority."""
    uncompared: tuple[Uncompared, ...]


KIND = "node.kind"
TAKEN_AT = "record.taken_at"
FUTURE = "record.future"
COPIED = "record.copied"
RATES = "rates."
"""The prefix of rates among the fields in which nodes differ."""


def differences(nodes: Sequence[Node], now: datetime) -> Differences:
    """Compare each node's facts, speeds and dates with those of all nodes of the same kind."""
    by_kind: dict[Kind, list[Node]] = defaultdict(list)
    for node in nodes:
        if node.facts:
            by_kind[node.kind].append(node)
    # Nodes without visible GPUs are no kind of their own if others have GPUs: they are compared
    # with the largest kind, and have no vote on its usual values.
    without_gpus = by_kind.pop((), []) if len(by_kind) > 1 else []
    largest = max(by_kind, key=lambda kind: (len(by_kind[kind]), kind), default=())
    found: list[tuple[str, Drift]] = []
    splits: list[FactSplit] = []
    for kind, voters in by_kind.items():
        others = without_gpus if kind == largest else []
        for field in sorted({field for node in voters for field in node.facts}):
            if not is_compared(field):
                continue
            for one in in_field(field, kind, voters, others):
                if isinstance(one, FactSplit):
                    splits.append(one)
                else:
                    found.append(one)
        # A node that nothing can be compared with may simply have the wrong GPU. Where all machines
        # differ, this is usual.
        if len(voters) == 1 and kind and len(by_kind[largest]) >= LEAST_NODES:
            drift = Drift(
                field=KIND,
                value=", ".join(kind),
                majority=", ".join(largest),
                nodes=len(by_kind[largest]),
                of=sum(map(len, by_kind.values())),
            )
            found.append((voters[0].name, drift))
    of_node: dict[str, list[Drift]] = defaultdict(list)
    found += [*slow_rates(nodes), *misdated_records(nodes, now), *copied_records(nodes)]
    for name, drift in found:
        of_node[name].append(drift)
    uncompared = tuple(
        Uncompared(gpus=kind, nodes=tuple(node.name for node in voters))
        for kind, voters in by_kind.items()
        if len(voters) < LEAST_NODES
    )
    return Differences(of_node=of_node, splits=tuple(splits), uncompared=uncompared)


def in_field(
    field: str, kind: Kind, voters: Sequence[Node], others: Sequence[Node]
) -> Iterator[tuple[str, Drift] | FactSplit]:
    """What one field shows about nodes of a kind: a split if no value has a majority among the
    voters, otherwise the name of each node with another value, and how it differs."""
    values = {node.name: value_of(field, node.facts) for node in (*voters, *others)}
    counts = Counter(value for node in voters if (value := values[node.name]) is not None)
    total = counts.total()
    if total < LEAST_NODES:
        return
    severity = severity_of(field)
    usual, usual_count = counts.most_common(1)[0]
    if usual_count * 2 <= total:
        # The value itself makes the order of equally frequent ones reproducible.
        ordered = sorted(counts, key=lambda value: (-counts[value], value))
        names = {
            value: tuple(name for name, its in values.items() if its == value) for value in ordered
        }
        yield FactSplit(field=field, severity=severity, gpus=kind, values=names)
        return
    for name, value in values.items():
        if value is not None and value != usual:
            drift = Drift(
                field=field,
                value=value,
                majority=usual,
                severity=severity,
                nodes=usual_count,
                of=total,
            )
            yield name, drift


# --- records --------------------------------------------------------------------------------------

DAY = timedelta(days=1)
"""Records that a timer spreads over a day count as equally old."""
CLOCK_ERROR = timedelta(minutes=10)
"""A cluster's clocks differ by seconds, so a record dated further in the future than this has a
wrong date."""
MOST_HOURS = 72
"""Time spans below three days are shown in hours."""


def newest_of(nodes: Sequence[Node], now: datetime) -> datetime | None:
    """When the newest record was taken, ignoring records dated in the future; None if no record has
    a date."""
    times = [moment(node.taken_at) for node in nodes]
    return max((time for time in times if time and time <= now + CLOCK_ERROR), default=None)


def misdated_records(nodes: Sequence[Node], now: datetime) -> Iterator[tuple[str, Drift]]:
    """A warning for each record that is more than a day older than the newest one of several, or
    dated in the future."""
    taken = {node.name: time for node in nodes if (time := moment(node.taken_at))}
    newest = newest_of(nodes, now)
    for name, time in taken.items():
        field, expected, value = FUTURE, now, f"{time:%Y-%m-%d %H:%M} UTC"
        if time <= now + CLOCK_ERROR:
            if newest is None or len(taken) < LEAST_NODES or newest - time <= DAY:
                continue
            field, expected = TAKEN_AT, newest
            value += f", {span(newest - time)} before the newest"
        majority, count = f"{expected:%Y-%m-%d %H:%M} UTC", len(taken)
        yield name, Drift(field=field, value=value, majority=majority, nodes=count, of=count)


def span(time: timedelta) -> str:
    """A time span as text in hours, or in days from 72 hours on.

    >>> span(timedelta(days=1, hours=7)), span(timedelta(days=30))
    ('31 hours', '30 days')
    """
    hours = round(time.total_seconds() / 3600)
    return f"{hours} hours" if hours < MOST_HOURS else f"{hours // 24} days"


def copied_records(nodes: Sequence[Node]) -> Iterator[tuple[str, Drift]]:
    """An error for each node whose GPUs another node's record has too: one of the two is a copy,
    and its own node was not examined."""
    by_gpus: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for node in nodes:
        if node.gpu_uuids:
            by_gpus[node.gpu_uuids].append(node.name)
    for names in by_gpus.values():
        for name in names if len(names) > 1 else ():
            others = slurm_list(other for other in names if other != name)
            drift = Drift(
                field=COPIED,
                value=f"the same GPUs (by UUID) as {others}",
                majority="other UUIDs",
                severity=Severity.ERROR,
                nodes=len(names),
                of=len(names),
            )
            yield name, drift


# --- speeds ---------------------------------------------------------------------------------------

LEAST_RATES = 5
"""The fewest rates that are compared, so that one slow device does not move the median."""
SLOW = 0.92
"""Below this share of the median, a device is slow. Healthy GPUs of one model vary by about 8 %
(Sinha et al., Not All GPUs Are Created Equal, SC 2022)."""
BROKEN = 0.5
"""Below this share of the median, a device counts as broken."""


def slow_rates(nodes: Sequence[Node]) -> Iterator[tuple[str, Drift]]:
    """A difference for each measured speed that is too slow, compared with the same check, GPU
    model and unit on all nodes."""
    groups: dict[tuple[str, str, str], list[tuple[str, Rate]]] = defaultdict(list)
    for node in nodes:
        for rate in node.rates:
            groups[rate.check, rate.model, rate.unit].append((node.name, rate))
    for rates in groups.values():
        middle = median(rate.value for _, rate in rates)
        for name, rate in rates if len(rates) >= LEAST_RATES else ():
            if rate.value < SLOW * middle:
                is_broken = rate.value < BROKEN * middle
                drift = Drift(
                    field=f"{RATES}{rate.check}",
                    value=f"{rate.value:.4g} {rate.unit} on {rate.device}",
                    majority=f"{middle:.4g} {rate.unit}",
                    severity=Severity.ERROR if is_broken else Severity.WARNING,
                    nodes=len(rates),
                    of=len(rates),
                )
                yield name, drift
