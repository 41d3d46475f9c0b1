"""Two records compared: two machines, or one machine at two dates."""

from __future__ import annotations

from collections.abc import Iterable
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


class CompareAnswer(Frozen):
    schema: Literal["gpusetup.compare/1"] = "gpusetup.compare/1"
    first: str
    second: str
    """What the records are called."""
    only_first: tuple[NodeFinding, ...]
    """Findings that only the first has."""
    only_second: tuple[NodeFinding, ...]
    differences: tuple[Difference, ...]
    """The gravest first."""

    @property
    def matters(self) -> bool:
        """Whether the second is worse, or not the same in what a program depends on."""
        grave = any(one.severity is not Severity.NOTE for one in self.differences)
        return bool(self.only_second) or grave


def compare(first: Node, second: Node) -> CompareAnswer:
    """What differs between two records, and what of it matters."""
    rows = [
        Difference(
            field=name,
            first=first.facts.get(name),
            second=second.facts.get(name),
            severity=severity_of(name),
        )
        for name in {*first.facts, *second.facts}
        if first.facts.get(name) != second.facts.get(name)
    ]
    return CompareAnswer(
        first=first.name,
        second=second.name,
        only_first=_without(first.findings, second.findings),
        only_second=_without(second.findings, first.findings),
        differences=tuple(sorted(rows, key=lambda one: (-GRAVITY[one.severity], one.field))),
    )


def _without(
    findings: Iterable[NodeFinding], others: Iterable[NodeFinding]
) -> tuple[NodeFinding, ...]:
    known = {one.id for one in others}
    return tuple(one for one in findings if one.id not in known)
