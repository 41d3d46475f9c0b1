"""What one machine has otherwise than most machines of its kind."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from gpusetup.fleet.facts import severity_of, value_of
from gpusetup.fleet.nodes import Drift, Node

LEAST_NODES = 3
"""So many must tell a fact before most of them can be right."""
Kind = tuple[str, ...]
"""What makes machines comparable: the models of their GPUs."""


def drifts(nodes: Iterable[Node]) -> dict[str, list[Drift]]:
    """Each node's differences from most nodes of its kind."""
    by_kind: dict[Kind, list[Node]] = defaultdict(list)
    for node in nodes:
        if node.facts:
            by_kind[node.kind].append(node)
    compared: dict[Kind, list[Node]] = defaultdict(list)
    for kind, like in compared_with({kind: len(alike) for kind, alike in by_kind.items()}).items():
        compared[like] += by_kind[kind]
    found: dict[str, list[Drift]] = defaultdict(list)
    for kind, those in compared.items():
        for name in sorted({name for node in by_kind[kind] for name in node.facts}):
            told = (value_of(name, node.facts) for node in by_kind[kind])
            counts = Counter(value for value in told if value is not None)
            most, total = majority_of(counts), counts.total()
            for node in those:
                value = value_of(name, node.facts)
                if most and value and value != most:
                    drift = Drift(
                        field=name,
                        value=value,
                        majority=most,
                        severity=severity_of(name),
                        nodes=counts[most],
                        of=total,
                    )
                    found[node.name].append(drift)
    return found


def compared_with(sizes: Mapping[Kind, int]) -> dict[Kind, Kind]:
    """Each kind of machine -> the kind that it is compared with: its own, however few they are.
    A node with one GPU of another model among the usual ones is compared with those that have only
    the usual; nodes whose GPUs are not seen are no kind if others have some."""

    def like(kind: Kind) -> Kind:
        if len(kind) == 1 or (kind and sizes[kind] >= LEAST_NODES):
            return kind
        of_it = (one for one in sizes if {*one} <= {*kind} or not kind)
        return max(of_it, key=lambda one: (bool(one), sizes[one], one))

    return {kind: like(kind) for kind in sizes}


def majority_of(counts: Counter[str]) -> str | None:
    """The value that more than half of those have who tell one.

    >>> majority_of(Counter({"580": 3, "570": 1})), majority_of(Counter({"580": 2, "570": 2}))
    ('580', None)
    """
    total = counts.total()
    value, most = counts.most_common(1)[0]
    return value if total >= LEAST_NODES and most * 2 > total else None
