"""What one machine has otherwise than most machines of its kind."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from gpusetup.fleet.facts import ABSENT, is_optional, severity_of, told_absent
from gpusetup.fleet.nodes import Drift, Node
from gpusetup.model.frozen import Frozen

LEAST_NODES = 3
"""So many must tell a fact before most of them can be right."""
FEW_VALUES = 5
"""A fact without a majority is worth a line where it has no more values than this."""
Kind = tuple[str, ...]
"""What makes machines comparable: the models of their GPUs."""
Counts = Mapping[str, Counter[str]]
"""Field -> how many of some nodes have each value."""


class Mixed(Frozen):
    """A field of which no value has a majority."""

    field: str
    values: Mapping[str, int]
    """Value -> number of nodes."""


def drifts(nodes: Iterable[Node]) -> tuple[dict[str, list[Drift]], tuple[Mixed, ...]]:
    """Each node's differences from most nodes of its kind, and the fields without a majority."""
    by_kind: dict[Kind, list[Node]] = defaultdict(list)
    for node in nodes:
        if node.facts:
            by_kind[node.kind].append(node)
    like = compared_with({kind: len(alike) for kind, alike in by_kind.items()})
    counts = {kind: counted(by_kind[kind]) for kind in {*like.values()}}
    usual = {kind: {n: majority_of(c) for n, c in of.items()} for kind, of in counts.items()}
    found = {
        node.name: _drift_of(node, counts[like[kind]], usual[like[kind]])
        for kind, alike in by_kind.items()
        for node in alike
    }
    mixed = [one for kind in counts for one in _mixed(counts[kind])]
    return found, tuple(sorted(mixed, key=lambda one: one.field))


def compared_with(sizes: Mapping[Kind, int]) -> dict[Kind, Kind]:
    """Each kind of machine -> the kind that it is compared with: its own, however few they are.
    A node with one GPU of another model among the usual ones is compared with those that have only
    the usual; nodes whose GPUs are not seen are no kind where others have some."""

    def like(kind: Kind) -> Kind:
        if kind and (len(kind) == 1 or sizes[kind] >= LEAST_NODES):
            return kind
        of_it = [one for one in sizes if {*one} < {*kind}] if kind else [*sizes]
        most = max(of_it, key=lambda one: (bool(one), sizes[one], one), default=kind)
        return most if sizes[most] >= LEAST_NODES or not kind else kind

    return {kind: like(kind) for kind in sizes}


def counted(nodes: Sequence[Node]) -> Counts:
    """How many of these nodes have each value, `absent` where it could have been told."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for name in {name for node in nodes for name in node.facts}:
        for node in nodes:
            if (value := value_of(node, name)) is not None:
                found[name][value] += 1
    return found


def value_of(node: Node, name: str) -> str | None:
    """A fact of a node; `absent` where the node has none; None where it does not tell."""
    value = node.facts.get(name)
    if value is None and node.facts and is_optional(name) and told_absent(name, node.facts):
        return ABSENT
    return value


def majority_of(counts: Counter[str]) -> str | None:
    """The value that more than half of those have who tell one.

    >>> majority_of(Counter({"580": 3, "570": 1})), majority_of(Counter({"580": 2, "570": 2}))
    ('580', None)
    """
    total = counts.total()
    value, most = counts.most_common(1)[0]
    return value if total >= LEAST_NODES and most * 2 > total else None


def _drift_of(node: Node, counts: Counts, usual: Mapping[str, str | None]) -> list[Drift]:
    return [
        Drift(
            field=name,
            value=value,
            majority=most,
            severity=severity_of(name),
            nodes=counts[name][most],
            of=counts[name].total(),
        )
        for name, most in sorted(usual.items())
        if most is not None and (value := value_of(node, name)) not in (None, most) and value
    ]


def _mixed(counts: Counts) -> Iterable[Mixed]:
    for name, values in counts.items():
        few = 1 < len(values) <= FEW_VALUES and values.total() >= LEAST_NODES
        if few and majority_of(values) is None:
            yield Mixed(field=name, values=dict(values.most_common()))
