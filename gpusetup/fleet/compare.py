"""Compares two records, either of two machines or of one machine at two times."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from gpusetup.fleet.facts import severity_of
from gpusetup.fleet.node_check import NodeFinding
from gpusetup.fleet.nodes import Node
from gpusetup.fleet.show import GRAVITY
from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen


class Difference(Frozen):
    """A fact that differs between two records. If a record does not contain the fact, its value is
    null."""

    field: str
    first: str | None
    second: str | None
    severity: Severity


class CompareAnswer(Frozen):
    schema: Literal["gpusetup.compare/1"] = "gpusetup.compare/1"
    first: str
    second: str
    """The names of the two records."""
    only_first: tuple[NodeFinding, ...]
    """Findings that only the first record has."""
    only_second: tuple[NodeFinding, ...]
    differences: tuple[Difference, ...]
    """The most serious differences come first."""

    @property
    def matters(self) -> bool:
        """Whether the second record has additional findings, or differs in something that programs
        depend on."""
        if self.only_second:
            return True
        severities = {difference.severity for difference in self.differences}
        # Differences with the severity `note` do not affect programs.
        severities.discard(Severity.NOTE)
        return len(severities) > 0


def compare(first: Node, second: Node) -> CompareAnswer:
    """The differences between two records: facts with different values, and findings that only one
    of the records has."""
    differences = []
    for name in {*first.facts, *second.facts}:
        first_value = first.facts.get(name)
        second_value = second.facts.get(name)
        if first_value != second_value:
            difference = Difference(
                field=name,
                first=first_value,
                second=second_value,
                severity=severity_of(name),
            )
            differences.append(difference)
    differences.sort(key=_gravest_first)
    return CompareAnswer(
        first=first.name,
        second=second.name,
        only_first=_without(first.findings, second.findings),
        only_second=_without(second.findings, first.findings),
        differences=tuple(differences),
    )


def _gravest_first(difference: Difference) -> tuple[int, str]:
    """A sort key that puts the most serious differences first, and then sorts by field."""
    gravity = GRAVITY[difference.severity]
    # The rank is negated, because sorting puts the smallest first.
    return -gravity, difference.field


def _without(
    findings: Iterable[NodeFinding], common_findings: Iterable[NodeFinding]
) -> tuple[NodeFinding, ...]:
    """The findings whose ids do not occur in `common_findings`."""
    common_ids = {finding.id for finding in common_findings}
    different = []
    for finding in findings:
        # Only the ids are compared, because the titles may name other GPUs or other figures.
        if finding.id not in common_ids:
            different.append(finding)
    return tuple(different)
