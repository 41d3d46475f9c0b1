"""Since when: what earlier folders of the same nodes tell of a finding, and what changed before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpusetup.fleet.nodes import Node, NodeFinding
from gpusetup.model.frozen import Frozen, replace

Past = Sequence[Mapping[str, Node]]
"""The nodes of earlier folders by name, the oldest folder first."""


class Change(Frozen):
    """A fact that was another one before."""

    field: str
    before: str | None
    after: str | None


class FirstFailure(Frozen):
    """When a node first failed, and what had changed on it since it was last sound."""

    finding: str
    at: str | None
    sound_at: str | None
    """When it was last seen without; None where no earlier record is sound."""
    changes: tuple[Change, ...] = ()


def with_since(node: Node, past: Past) -> Node:
    """The node whose findings say when a record first showed them."""
    records = _records(node, past)
    return replace(
        node, findings=tuple(replace(f, since=_since(f, records)) for f in node.findings)
    )


def _records(node: Node, past: Past) -> list[Node]:
    """The node's records, the newest first."""
    return [node, *(folder[node.name] for folder in reversed(past) if node.name in folder)]


def _since(finding: NodeFinding, records: Sequence[Node]) -> str | None:
    since = None
    for record in records:
        if not _has(record, finding.id):
            break
        since = record.taken_at
    return since


def _has(record: Node, id: str) -> bool:
    return any(one.id == id for one in record.findings)


def first_failure(node: Node, past: Past) -> FirstFailure | None:
    """What changed before the root finding of a node came; None where nothing failed."""
    root = next((one for one in node.findings if one.root), None)
    if root is None:
        return None
    records = _records(node, past)
    failing = 0
    while failing + 1 < len(records) and _has(records[failing + 1], root.id):
        failing += 1
    first = records[failing]
    sound = records[failing + 1] if failing + 1 < len(records) else None
    return FirstFailure(
        finding=root.id,
        at=first.taken_at,
        sound_at=sound.taken_at if sound else None,
        changes=changes(sound, first) if sound else (),
    )


def changes(before: Node, after: Node) -> tuple[Change, ...]:
    """Every fact that both tell, or only one, with another value.

    >>> changes(Node(name="a", facts={"torch.version": "2.9.0"}), Node(name="a"))[0].after is None
    True
    """
    names = sorted({*before.facts, *after.facts})
    rows = ((name, before.facts.get(name), after.facts.get(name)) for name in names)
    return tuple(Change(field=n, before=old, after=new) for n, old, new in rows if old != new)
