"""Merges the records of one node. For each finding, the newest record that could have seen it
decides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

from gpusetup.fleet.history import moment
from gpusetup.fleet.node_finding import NodeFinding
from gpusetup.fleet.nodes import Node
from gpusetup.model.frozen import replace

UNDATED = datetime.min.replace(tzinfo=timezone.utc)


def merged(records: Sequence[Node]) -> Node:
    """Several records of one node, merged into one. Newer records take precedence, and undated ones
    count as the oldest."""
    newest_first = sorted(records, key=_newness, reverse=True)
    node = newest_first[0]
    for older in newest_first[1:]:
        node = replace(
            node,
            taken_at=node.taken_at or older.taken_at,
            kind=node.kind or older.kind,
            # If both records contain a fact, the newer record counts.
            facts={**older.facts, **node.facts},
            rates=(*node.rates, *older.rates),
            problem=node.problem or older.problem,
            broken_file=node.broken_file or older.broken_file,
            since={**older.since, **node.since},
            has_record=node.has_record or older.has_record,
        )
        if node.snapshot_file is None:
            node = replace(
                node,
                snapshot_file=older.snapshot_file,
                snapshot_findings=older.snapshot_findings,
            )
    return replace(node, findings=tuple(_findings_that_hold(newest_first)))


def _newness(record: Node) -> tuple[datetime, bool]:
    """A sort key that is largest for the newest record. If two records have the same time, a
    snapshot counts as the newer one."""
    has_whole_snapshot = "snapshot" in record.sight.sources
    return _time_of(record), has_whole_snapshot


def _time_of(record: Node) -> datetime:
    """When a record was taken; the earliest possible time if the record has no date."""
    return moment(record.taken_at) or UNDATED


def _findings_that_hold(newest_first: Iterable[Node]) -> list[NodeFinding]:
    """The findings that no newer record contradicts. If several records contain findings with the
    same id, those of the newest record are taken."""
    findings: list[NodeFinding] = []
    newer_records: list[Node] = []
    for record in newest_first:
        ids_of_newer_records = {finding.id for finding in findings}
        for finding in record.findings:
            is_over = any(_is_denied(finding, record, newer) for newer in newer_records)
            if not is_over and finding.id not in ids_of_newer_records:
                findings.append(finding)
        newer_records.append(record)
    return findings


def _is_denied(finding: NodeFinding, record: Node, newer: Node) -> bool:
    """Whether a newer record would have seen a finding of an older record, so that its absence
    means that the fault is gone.

    A report of verify has no date, so it neither contradicts other records nor is contradicted by
    them.
    """
    have_dates = bool(record.taken_at and newer.taken_at)
    if not have_dates or _time_of(newer) <= _time_of(record):
        return False
    return newer.sight.covers_all(finding)
