"""Finds the facts in which a machine differs from most machines of its kind, and records that are
copied or old."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date, timedelta

from gpusetup.fleet.facts import PACKAGES, severity_of, value_of
from gpusetup.fleet.names import slurm_list
from gpusetup.fleet.records import Node
from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen

LEAST_NODES = 3
"""How many nodes must report a fact before a majority means anything."""


class Drift(Frozen):
    """A difference between a node and most nodes of its kind, in one field.

    Three fields are not facts about the node: `record.copied` means that another node's record has
    the same GPUs, `record.old` that it is much older than the newest, and `node.kind` that no other
    node has GPUs of this model.
    """

    node: str
    field: str
    value: str
    majority: str | None
    """What the value should be; None if it is unknown which nodes are right, because no value has a
    majority, or because the field is about the record."""
    severity: Severity = Severity.WARNING


KIND = "node.kind"
COPIED = "record.copied"
OLD = "record.old"
OLD_AFTER = timedelta(days=7)
"""A record that is older than the newest one by more than this says little about its node today. A
week, because records are taken daily or with each maintenance."""


def by_kind(nodes: Sequence[Node]) -> dict[str, list[Node]]:
    """The nodes that report any facts, grouped by the models of their GPUs."""
    kinds: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        if node.facts:
            kinds[node.kind].append(node)
    return kinds


def differences(nodes: Sequence[Node]) -> Iterator[Drift]:
    """Compare each node's facts with those of all nodes of the same kind."""
    kinds = by_kind(nodes)
    # Nodes without visible GPUs are no kind of their own if others have GPUs: they are compared
    # with the largest kind, and have no vote on its usual values.
    without_gpus = kinds.pop("", []) if len(kinds) > 1 else []
    # Of two kinds of the same size, the name decides, so that the result is always the same.
    largest = max(kinds, key=lambda kind: (len(kinds[kind]), kind), default="")
    for kind, voters in kinds.items():
        compared = [*voters, *(without_gpus if kind == largest else ())]
        for field in sorted({field for node in voters for field in node.facts}):
            # torch's version is a fact of its own already.
            if field != f"{PACKAGES}torch":
                yield from _in_field(field, voters, compared)
        # The only node with its GPU model may have got the wrong GPU, unless no model is common
        # among these machines.
        if len(voters) == 1 and len(kinds[largest]) >= LEAST_NODES:
            yield Drift(node=voters[0].name, field=KIND, value=kind, majority=largest)
    yield from _copied_records(nodes)
    yield from _old_records(nodes)


def _in_field(field: str, voters: Sequence[Node], compared: Sequence[Node]) -> Iterator[Drift]:
    """The nodes among `compared` that differ in one field from most of the voters; all of them if
    no value has a majority among the voters."""
    counts = Counter(value for node in voters if (value := value_of(field, node.facts)) is not None)
    total = counts.total()
    if total < LEAST_NODES:
        return
    usual, usual_count = counts.most_common(1)[0]
    has_majority = usual_count * 2 > total
    for node in compared:
        value = value_of(field, node.facts)
        is_usual = has_majority and value == usual
        # A value that the record does not tell is no difference.
        if value is None or is_usual:
            continue
        yield Drift(
            node=node.name,
            field=field,
            value=value,
            majority=usual if has_majority else None,
            # Without a majority, no node is known to be wrong, so none fails.
            severity=severity_of(field) if has_majority else Severity.WARNING,
        )


def _copied_records(nodes: Sequence[Node]) -> Iterator[Drift]:
    """An error for each node whose GPUs another node's record has too: one of the two is a copy,
    and its own node was not examined."""
    names_by_gpus: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for node in nodes:
        # A record without UUIDs, for example a redacted one, cannot be recognised as a copy.
        if node.gpu_uuids:
            names_by_gpus[node.gpu_uuids].add(node.name)
    for node in nodes:
        others = names_by_gpus.get(node.gpu_uuids, set()) - {node.name}
        if others:
            yield Drift(
                node=node.name,
                field=COPIED,
                value=f"the same GPUs (by UUID) as {slurm_list(others)}",
                majority=None,
                severity=Severity.ERROR,
            )


def _old_records(nodes: Sequence[Node]) -> Iterator[Drift]:
    """A warning for each node whose newest record is much older than the newest of all nodes."""
    dates = {}
    for node in nodes:
        # The first ten characters are the date; some records have none.
        with suppress(ValueError):
            dates[node.name] = date.fromisoformat((node.taken_at or "")[:10])
    newest = max(dates.values(), default=date.min)
    for name, taken in dates.items():
        if newest - taken > OLD_AFTER:
            age = f"{(newest - taken).days} days older than the newest one"
            yield Drift(node=name, field=OLD, value=age, majority=None)
