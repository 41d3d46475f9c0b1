"""Two records compared: two machines, or one machine at two dates."""

from __future__ import annotations

from typing import Literal

from gpusetup.fleet.facts import severity_of
from gpusetup.fleet.nodes import Node, NodeFinding
from gpusetup.fleet.show import GRAVITY
from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen


class Difference(Frozen):
    """A fact in which the two differ; null if one does not tell it."""

    field: str
    first: str | None
    second: str | None
    severity: Severity


class Side(Frozen):
    name: str
    taken_at: str | None
    findings: tuple[NodeFinding, ...]


class CompareAnswer(Frozen):
    schema: Literal["gpusetup.compare/1"] = "gpusetup.compare/1"
    first: Side
    second: Side
    only_first: tuple[str, ...]
    """Findings that only the first has."""
    only_second: tuple[str, ...]
    differences: tuple[Difference, ...]
    """The gravest first."""

    @property
    def matters(self) -> bool:
        """Whether the second is worse, or not the same in what a program depends on."""
        grave = any(one.severity is not Severity.NOTE for one in self.differences)
        return bool(self.only_second) or grave


def compared(first: Node, second: Node) -> CompareAnswer:
    """What differs between two records, and what of it matters."""
    names = sorted({*first.facts, *second.facts})
    pairs = ((name, first.facts.get(name), second.facts.get(name)) for name in names)
    rows = (
        Difference(field=name, first=one, second=other, severity=severity_of(name))
        for name, one, other in pairs
        if one != other
    )
    ids_first, ids_second = _ids(first), _ids(second)
    return CompareAnswer(
        first=_side(first),
        second=_side(second),
        only_first=tuple(id for id in ids_first if id not in ids_second),
        only_second=tuple(id for id in ids_second if id not in ids_first),
        differences=tuple(sorted(rows, key=lambda one: (-GRAVITY[one.severity], one.field))),
    )


def _ids(node: Node) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.id for one in node.findings))


def _side(node: Node) -> Side:
    return Side(name=node.name, taken_at=node.taken_at, findings=node.findings)
