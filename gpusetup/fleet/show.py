"""The answer of `fleet show`: one row a node, the worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Literal, get_args

from gpusetup.fleet.drift import LEAST_NODES, drifts, outliers
from gpusetup.fleet.folder import Records
from gpusetup.fleet.nodes import SAFE, Drift, Node, NodeFinding, natural, slurm_list
from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen

GRAVITY = {Severity.ERROR: 2, Severity.WARNING: 1, Severity.NOTE: 0}


COST_SPEED = (
    *("power-thermal-throttle", "pcie-degraded", "nvlink-degraded", "fabric-unhealthy"),
    *("vgpu-unlicensed", "cuda-launch-blocking", "memory-caching-off"),
)
"""Warnings that cost speed now: a node that has one is not sound, however many others have it."""

Status = Literal["failed", "differs", "degraded", "ok"]
"""`degraded`: slower than it could be, as most of the others are."""


class NodeAnswer(Frozen):
    name: str
    status: Status
    problem: str | None = None
    """Why there is no whole record."""
    taken_at: str | None = None
    findings: tuple[NodeFinding, ...] = ()
    drift: tuple[Drift, ...] = ()


class Common(Frozen):
    """A finding that most nodes have: it tells none of them from the others."""

    id: str
    severity: Severity
    title: str
    nodes: int
    of: int


class Exclude(Frozen):
    """The failed nodes as schedulers take them."""

    slurm: str = ""
    """An option of sbatch and srun; empty if no node failed."""
    names: tuple[str, ...] = ()
    """For Ray and Kubernetes, by their own names of nodes."""


class FleetAnswer(Frozen):
    schema: Literal["gpusetup.fleet/1"] = "gpusetup.fleet/1"
    nodes: tuple[NodeAnswer, ...]
    """The worst first, then by name."""
    common: tuple[Common, ...] = ()
    exclude: Exclude = Exclude()
    left_out: tuple[str, ...] = ()
    """Files of the folder that are no records."""
    not_asked: Mapping[str, str] = {}
    """Nodes that `fleet run` left alone -> why."""


def answer(records: Records, expected: Iterable[str] = ()) -> FleetAnswer:
    """Judge a fleet. `expected`: nodes that should have a record."""
    recorded = {node.name for node in records.nodes}
    missing = (Node(name=name, problem=NO_RECORD) for name in expected if name not in recorded)
    nodes, common_findings = (*records.nodes, *missing), common(records.nodes)
    drift_of, slow_rates, common_ids = (
        drifts(nodes),
        outliers(nodes),
        {one.id for one in common_findings},
    )
    rows = [
        _row(node, (*drift_of[node.name], *slow_rates[node.name]), common_ids) for node in nodes
    ]
    rows.sort(key=_worst_first)
    return FleetAnswer(
        nodes=tuple(rows),
        common=common_findings,
        exclude=excluded(row.name for row in rows if row.status == "failed"),
        left_out=records.left_out,
    )


NO_RECORD = "no record: the node did not answer"


def common(nodes: Sequence[Node]) -> tuple[Common, ...]:
    """The findings that more than half of the nodes have."""
    counts: Counter[str] = Counter()
    first: dict[str, NodeFinding] = {}
    for node in nodes:
        each = {one.id: one for one in node.findings}
        counts.update(each.keys())
        first = {**each, **first}
    of = sum(bool(node.facts) for node in nodes)
    return tuple(
        Common(id=id, severity=first[id].severity, title=first[id].title, nodes=count, of=of)
        for id, count in counts.most_common()
        if of >= LEAST_NODES and count * 2 > of
    )


def _row(node: Node, drift: Sequence[Drift], usual: Container[str]) -> NodeAnswer:
    """An error fails a node; a warning sets it apart if most nodes have none such."""
    severities = {one.severity for one in node.findings} | {one.severity for one in drift}
    warnings = {one.id for one in node.findings if one.severity is Severity.WARNING}
    status: Status = "degraded" if warnings.intersection(COST_SPEED) else "ok"
    if node.problem or Severity.ERROR in severities:
        status = "failed"
    elif drift or any(id not in usual for id in warnings):
        status = "differs"
    return NodeAnswer(
        name=node.name,
        status=status,
        problem=node.problem,
        taken_at=node.taken_at,
        findings=node.findings,
        drift=tuple(sorted(drift, key=lambda one: (-GRAVITY[one.severity], one.field))),
    )


def _worst_first(row: NodeAnswer) -> tuple[object, ...]:
    return get_args(Status).index(row.status), natural(row.name)


def excluded(names: Iterable[str]) -> Exclude:
    """The nodes that no job should get, of those whose names can be part of a command."""
    safe = tuple(sorted(filter(SAFE.fullmatch, names), key=natural))
    return Exclude(slurm=f"--exclude={slurm_list(safe)}" if safe else "", names=safe)
