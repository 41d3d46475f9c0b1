"""Builds the result of `fleet show`: one row per node, with the worst nodes first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, get_args

from gpusetup.fleet.drift import (
    LEAST_NODES,
    fact_differences,
    lone_kinds,
    misdated_records,
    newest_of,
    outliers,
    span,
    uncompared,
)
from gpusetup.fleet.folder import Records
from gpusetup.fleet.next_step import next_command
from gpusetup.fleet.node_finding import NodeFinding, dated
from gpusetup.fleet.nodes import SAFE, Drift, FactSplit, Node, natural, slurm_list
from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen, replace

GRAVITY = {Severity.ERROR: 2, Severity.WARNING: 1, Severity.NOTE: 0}


COST_SPEED = (
    *("power-thermal-throttle", "pcie-degraded", "nvlink-degraded", "fabric-unhealthy"),
    *("vgpu-unlicensed", "cuda-launch-blocking", "memory-caching-off"),
)
"""Warnings about something that costs speed now. A node with such a warning is not healthy, even if
many other nodes have the same warning."""

Status = Literal["failed", "differs", "degraded", "undecided", "ok"]
"""`degraded`: the node is slower than it could be, but so are most other nodes. `undecided`: one of
the node's facts has no majority value, so it is unknown whether the node is right."""


class NodeAnswer(Frozen):
    name: str
    status: Status
    problem: str | None = None
    """Why the node's record is missing or incomplete; None if it is complete."""
    taken_at: str | None = None
    findings: tuple[NodeFinding, ...] = ()
    drift: tuple[Drift, ...] = ()
    next: str | None = None
    """For a node that failed or has a warning, the command that shows more; for a missing record,
    the command that takes it."""


class Uncompared(Frozen):
    """A kind of machine that has too few nodes for a comparison, with these nodes."""

    gpus: tuple[str, ...]
    """The GPU models of these nodes."""
    nodes: tuple[str, ...]


class Common(Frozen):
    """A finding that most nodes have, of the whole fleet or of one kind, so that it does not
    distinguish a node."""

    id: str
    severity: Severity
    title: str
    nodes: int
    of: int
    gpus: tuple[str, ...] = ()
    """The GPU models of that kind; empty if most nodes of the whole fleet have the finding."""

    def is_of(self, node: Node) -> bool:
        """Whether this node belongs to the nodes among which the finding is common: the whole fleet
        or one kind."""
        is_of_whole_fleet = not self.gpus
        # If `gpus` is not empty, the finding is common only among nodes with these GPUs.
        return is_of_whole_fleet or self.gpus == node.kind


class Exclude(Frozen):
    """The failed nodes, in the form that schedulers need to exclude them."""

    slurm: str = ""
    """An option for sbatch and srun; empty if no node failed."""
    names: tuple[str, ...] = ()
    """The names of the nodes, as Ray and Kubernetes need them."""


class FleetAnswer(Frozen):
    schema: Literal["gpusetup.fleet/1"] = "gpusetup.fleet/1"
    nodes: tuple[NodeAnswer, ...]
    """The worst nodes first, then sorted by name."""
    common: tuple[Common, ...] = ()
    exclude: Exclude = Exclude()
    left_out: tuple[str, ...] = ()
    """Files in the folder that are not records."""
    not_asked: Mapping[str, str] = {}
    """Maps each node that `fleet run` skipped to the reason."""
    uncompared: tuple[Uncompared, ...] = ()
    """Nodes that cannot be compared with others."""
    splits: tuple[FactSplit, ...] = ()
    """Facts that have no majority value, with the most serious first."""
    newest_record: str | None = None
    """When the newest record was taken."""
    age: str | None = None
    """How long ago the newest record was taken, if more than a day."""


OLD = timedelta(days=1)
"""If the newest record is older than this, the answer says how old it is, because records are
usually judged on the day when they were taken."""


def answer(records: Records, expected: Iterable[str], now: datetime) -> FleetAnswer:
    """Judge a fleet by its records. `expected` names nodes that should have a record; a node
    without one fails."""
    recorded = {node.name for node in records.nodes}
    missing = [Node(name=name, problem=NO_RECORD) for name in expected if name not in recorded]
    nodes = (*records.nodes, *missing)
    common_findings = common(records.nodes)
    compared_facts = fact_differences(nodes)
    differences = all_differences(nodes, compared_facts.drifts, now)
    undecided = _nodes_in(compared_facts.splits)
    rows = []
    for node in nodes:
        # Collect the findings that this node shares with most nodes, because they do not
        # distinguish it.
        common_ids = {finding.id for finding in common_findings if finding.is_of(node)}
        row = _row(node, differences[node.name], common_ids, records.folder)
        if row.status == "ok" and node.name in undecided:
            row = replace(row, status="undecided")
        rows.append(row)
    rows.sort(key=_worst_first)
    failed = [row.name for row in rows if row.status == "failed"]
    newest = newest_of(nodes, now)
    is_old = newest is not None and now - newest > OLD
    small_kinds = []
    for kind, names in uncompared(nodes).items():
        small_kinds.append(Uncompared(gpus=kind, nodes=tuple(names)))
    return FleetAnswer(
        nodes=tuple(rows),
        common=common_findings,
        exclude=excluded(failed),
        left_out=records.left_out,
        uncompared=tuple(small_kinds),
        splits=tuple(sorted(compared_facts.splits, key=_gravest_split_first)),
        newest_record=f"{newest:%Y-%m-%dT%H:%M:%SZ}" if newest else None,
        age=span(now - newest) if newest and is_old else None,
    )


def _nodes_in(splits: Iterable[FactSplit]) -> set[str]:
    """The names of all nodes in facts that have no majority value."""
    names: set[str] = set()
    for split in splits:
        for nodes_of_value in split.values.values():
            names.update(nodes_of_value)
    return names


def _gravest_split_first(split: FactSplit) -> tuple[int, str]:
    """A sort key that puts the most serious facts first, and then sorts by name."""
    return -GRAVITY[split.severity], split.field


def all_differences(
    nodes: Sequence[Node], fact_drifts: Mapping[str, Sequence[Drift]], now: datetime
) -> dict[str, list[Drift]]:
    """Maps each node to its differences from the others: those in `fact_drifts`, and differences in
    speed, in its kind and in its record's date."""
    differences: dict[str, list[Drift]] = defaultdict(list)
    for drifts_by_node in (fact_drifts, outliers(nodes)):
        for name, rows in drifts_by_node.items():
            differences[name].extend(rows)
    # A node has at most one difference of each of these two types.
    for drift_by_node in (lone_kinds(nodes), misdated_records(nodes, now)):
        for name, drift in drift_by_node.items():
            differences[name].append(drift)
    return differences


NO_RECORD = "no record: the node did not answer"


def common(nodes: Sequence[Node]) -> tuple[Common, ...]:
    """The findings that more than half of the nodes have, of the whole fleet or of one kind of
    machine.

    For example, if the GPUs of all nodes of a kind are divided (MIG), the finding about it is not a
    difference, even if the rest of the fleet has other GPUs.
    """
    of_all = _common_among(nodes)
    ids_of_all = {row.id for row in of_all}
    by_kind: dict[tuple[str, ...], list[Node]] = {}
    for node in nodes:
        by_kind.setdefault(node.kind, []).append(node)
    of_kinds: list[Common] = []
    if len(by_kind) > 1:
        for kind in sorted(filter(None, by_kind)):
            rows = _common_among(by_kind[kind])
            of_kinds += [replace(row, gpus=kind) for row in rows if row.id not in ids_of_all]
    return (*of_all, *of_kinds)


def _common_among(nodes: Sequence[Node]) -> list[Common]:
    """The findings that more than half of these nodes have, with the most frequent first; [] if
    there are too few nodes."""
    counts: Counter[str] = Counter()
    examples: dict[str, NodeFinding] = {}
    for node in nodes:
        findings = {finding.id: finding for finding in node.findings}
        counts.update(findings.keys())
        examples = {**findings, **examples}
    node_count = sum(1 for node in nodes if node.facts)
    if node_count < LEAST_NODES:
        return []
    rows = []
    for id, count in counts.most_common():
        example = examples[id]
        if count * 2 > node_count:
            row = Common(
                id=id,
                severity=example.severity,
                title=example.title,
                nodes=count,
                of=node_count,
            )
            rows.append(row)
    return rows


def _row(
    node: Node, drift: Sequence[Drift], common_ids: Container[str], folder: str | None
) -> NodeAnswer:
    """A node's row in the result, with its status, differences and next command."""
    findings = []
    for finding in node.findings:
        # If a finding has no time from its own record, use the node's history.
        findings.append(finding if finding.since else dated(finding, node.since))
    status = _status(node, drift, common_ids)
    next_step = None
    if status in ("failed", "differs"):
        next_step = _next_of(node, drift, common_ids, folder)
    return NodeAnswer(
        name=node.name,
        status=status,
        problem=node.problem,
        taken_at=node.taken_at,
        findings=tuple(findings),
        drift=tuple(sorted(drift, key=_gravest_difference_first)),
        next=next_step,
    )


def _gravest_difference_first(difference: Drift) -> tuple[int, str]:
    """A sort key that puts the most serious differences first, and then sorts by field."""
    return -GRAVITY[difference.severity], difference.field


def _next_of(
    node: Node, drift: Sequence[Drift], common_ids: Container[str], folder: str | None
) -> str | None:
    """The command that shows more about a node than the result does; None if the node has only
    minor differences in facts."""
    findings = []
    for finding in node.findings:
        is_uncommon_warning = finding.severity is Severity.WARNING and finding.id not in common_ids
        if finding.severity is Severity.ERROR or is_uncommon_warning:
            findings.append(finding)
    has_grave_difference = any(row.severity is Severity.ERROR for row in drift)
    if not (findings or has_grave_difference or node.problem):
        return None
    return next_command(replace(node, findings=tuple(findings)), drift, folder)


def _status(node: Node, drift: Sequence[Drift], common_ids: Container[str]) -> Status:
    """A node's status: `failed` after an error, `differs` after a difference or an uncommon
    warning, `degraded` if it is slow, otherwise `ok`."""
    severities = {finding.severity for finding in node.findings}
    severities |= {row.severity for row in drift}
    if node.problem or Severity.ERROR in severities:
        return "failed"
    warnings = {finding.id for finding in node.findings if finding.severity is Severity.WARNING}
    uncommon = [id for id in warnings if id not in common_ids]
    if drift or uncommon:
        return "differs"
    # A node with a warning about speed is degraded even if all others have the same warning.
    costs_speed = not warnings.isdisjoint(COST_SPEED)
    return "degraded" if costs_speed else "ok"


def _worst_first(row: NodeAnswer) -> tuple[int, tuple[tuple[str, int], ...]]:
    """A sort key that puts the nodes with the worst status first, and then sorts by name."""
    # `Status` lists the worst status first.
    statuses: tuple[Status, ...] = get_args(Status)
    badness = statuses.index(row.status)
    name_key = natural(row.name)
    return badness, name_key


def excluded(names: Iterable[str]) -> Exclude:
    """The nodes to keep out of jobs, in the form that schedulers need; names that are not safe in a
    command are left out."""
    usable_names = []
    for name in names:
        # The names become part of a command.
        if SAFE.fullmatch(name):
            usable_names.append(name)
    usable_names.sort(key=natural)
    if not usable_names:
        return Exclude()
    option = f"--exclude={slurm_list(usable_names)}"
    return Exclude(slurm=option, names=tuple(usable_names))
