"""Compares two records, either of two machines or of one machine at two times."""

from __future__ import annotations

from typing import Literal

from gpusetup.fleet.facts import severity_of
from gpusetup.fleet.node_check import NodeFinding
from gpusetup.fleet.records import Node
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
        # Differences with the severity `note` do not affect programs.
        return bool(self.only_second) or any(
            difference.severity is not Severity.NOTE for difference in self.differences
        )


def compare(first: Node, second: Node) -> CompareAnswer:
    """The differences between two records: facts with different values, and findings that only one
    of the records has."""
    differences = [
        Difference(
            field=field,
            first=first.facts.get(field),
            second=second.facts.get(field),
            severity=severity_of(field),
        )
        for field in {*first.facts, *second.facts}
        if first.facts.get(field) != second.facts.get(field)
    ]
    # The most serious first: the rank is negated, because sorting puts the smallest first.
    differences.sort(key=lambda difference: (-GRAVITY[difference.severity], difference.field))

    # Only the ids are compared, because the titles may name other GPUs or other figures.
    first_ids = {finding.id for finding in first.findings}
    second_ids = {finding.id for finding in second.findings}
    return CompareAnswer(
        first=first.name,
        second=second.name,
        only_first=tuple(one for one in first.findings if one.id not in second_ids),
        only_second=tuple(one for one in second.findings if one.id not in first_ids),
        differences=tuple(differences),
    )
