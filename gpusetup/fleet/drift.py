"""What one machine has otherwise than most machines of its kind."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from gpusetup.fleet.facts import ABSENT, is_optional, told_absent
from gpusetup.fleet.nodes import Node
from gpusetup.model.frozen import Frozen

LEAST_NODES = 3
"""So many must tell a fact before most of them can be right."""
FEW_VALUES = 5
"""A fact without a majority is worth a line where it has no more values than this."""


class Majority(Frozen):
    """What most machines of a kind have."""

    value: str
    nodes: int
    """How many have it."""
    of: int
    """How many tell it."""


class Drift(Frozen):
    """One field in which a node is not like most of its kind."""

    field: str
    value: str
    majority: str
    nodes: int
    """How many nodes have the majority's value."""
    of: int
    """Of how many that tell it."""


class Mixed(Frozen):
    """A field of which no value has a majority."""

    field: str
    values: Mapping[str, int]
    """Value -> number of nodes."""


Kind = tuple[str, ...]


def kind_of(node: Node) -> Kind:
    """What makes machines comparable: the models of their GPUs."""
    return node.kind


def compared_with(nodes: Sequence[Node]) -> dict[Kind, Kind]:
    """Each kind of machine -> the kind that it is compared with: its own, however few they are.
    A node with one GPU of another model among the usual ones is compared with those that have only
    the usual; nodes whose GPUs are not seen are no kind where others have some."""
    sizes = Counter(kind_of(node) for node in nodes if node.facts)

    def like(kind: Kind) -> Kind:
        if kind and (len(kind) == 1 or sizes[kind] >= LEAST_NODES):
            return kind
        of_it = [one for one in sizes if {*one} < {*kind}] if kind else [*sizes]
        most = max(of_it, key=lambda one: (bool(one), sizes[one], one), default=kind)
        return most if sizes[most] >= LEAST_NODES or not kind else kind

    return {kind: like(kind) for kind in sizes}


def counted(nodes: Iterable[Node]) -> dict[str, Counter[str]]:
    """Field -> how many of these nodes have each value, `absent` where it could have been told."""
    nodes = list(nodes)
    names = {name for node in nodes for name in node.facts}
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for node in nodes:
        for name in names:
            value = value_of(node, name)
            if value is not None:
                found[name][value] += 1
    return dict(found)


def value_of(node: Node, name: str) -> str | None:
    """A fact of a node; `absent` where the node has none; None where it does not tell."""
    value = node.facts.get(name)
    if value is None and node.facts and is_optional(name) and told_absent(name, node.facts):
        return ABSENT
    return value


def majority_of(counts: Counter[str]) -> Majority | None:
    """The value that more than half of those have who tell one.

    >>> majority_of(Counter({"580": 3, "570": 1})).value
    '580'
    >>> majority_of(Counter({"580": 2, "570": 2})) is None
    True
    """
    total = sum(counts.values())
    value, most = counts.most_common(1)[0]
    if total < LEAST_NODES or most * 2 <= total:
        return None
    return Majority(value=value, nodes=most, of=total)


class Drifts(Frozen):
    """What differs in a fleet."""

    by_node: Mapping[str, tuple[Drift, ...]]
    mixed: tuple[Mixed, ...]


def drifts(nodes: Sequence[Node]) -> Drifts:
    """Each node's differences from most nodes of its kind, and the fields without a majority."""
    pairs = compared_with(nodes)
    by_kind: dict[Kind, list[Node]] = defaultdict(list)
    for node in nodes:
        if node.facts:
            by_kind[kind_of(node)].append(node)
    counts = {kind: counted(by_kind[kind]) for kind in set(pairs.values())}
    found = {
        node.name: _drift_of(node, counts[pairs[kind_of(node)]]) for node in nodes if node.facts
    }
    mixed = (one for kind in counts for one in _mixed(counts[kind]))
    return Drifts(
        by_node={name: rows for name, rows in found.items() if rows},
        mixed=tuple(sorted(mixed, key=lambda one: one.field)),
    )


def _drift_of(node: Node, counts: Mapping[str, Counter[str]]) -> tuple[Drift, ...]:
    found = []
    for name in sorted({*counts, *node.facts}):
        value = value_of(node, name)
        most = majority_of(counts[name]) if name in counts else None
        if value is not None and most is not None and value != most.value:
            found.append(
                Drift(field=name, value=value, majority=most.value, nodes=most.nodes, of=most.of)
            )
    return tuple(found)


def _mixed(counts: Mapping[str, Counter[str]]) -> Iterable[Mixed]:
    for name, values in counts.items():
        total = sum(values.values())
        if 1 < len(values) <= FEW_VALUES and total >= LEAST_NODES and majority_of(values) is None:
            yield Mixed(field=name, values=dict(values.most_common()))
