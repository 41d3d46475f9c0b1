"""The answer of `fleet show`: one row a node, the worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Literal, get_args

from gpusetup.causes.gpu_access import VGPU_UNLICENSED
from gpusetup.causes.gpu_losses import (
    FABRIC_UNHEALTHY,
    NVLINK_DEGRADED,
    PCIE_DEGRADED,
    POWER_THERMAL_THROTTLE,
)
from gpusetup.causes.host import CUDA_LAUNCH_BLOCKING, MEMORY_CACHING_OFF
from gpusetup.fleet.drift import LEAST_NODES, Drift, Drifts, Mixed, drifts
from gpusetup.fleet.facts import severity_of
from gpusetup.fleet.folder import Records, natural
from gpusetup.fleet.names import SAFE, slurm_list
from gpusetup.fleet.nodes import Node, NodeFinding
from gpusetup.fleet.rates import Outlier, outliers
from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen

RATES = "rates."
GRAVITY = {Severity.ERROR: 2, Severity.WARNING: 1, Severity.NOTE: 0}


COSTS = (
    *(POWER_THERMAL_THROTTLE.id, PCIE_DEGRADED.id, NVLINK_DEGRADED.id, FABRIC_UNHEALTHY.id),
    *(VGPU_UNLICENSED.id, CUDA_LAUNCH_BLOCKING.id, MEMORY_CACHING_OFF.id),
)
"""Warnings that cost speed now: a node that has one is not sound, however many others have it."""

Status = Literal["failed", "differs", "degraded", "ok"]
"""`degraded`: slower than it could be, as most of the others are."""


class DriftAnswer(Frozen):
    """A field in which a node is not like most nodes of its kind."""

    field: str
    value: str
    majority: str
    severity: Severity
    nodes: int
    """How many nodes have the majority's value, or how many devices were compared."""
    of: int
    """Of how many."""


class NodeAnswer(Frozen):
    name: str
    status: Status
    problem: str | None = None
    """Why there is no whole record."""
    taken_at: str | None = None
    findings: tuple[NodeFinding, ...] = ()
    drift: tuple[DriftAnswer, ...] = ()


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
    """An option of sbatch and srun; empty where no node failed."""
    names: tuple[str, ...] = ()
    """For Ray and Kubernetes, by their own names of nodes."""
    not_named: tuple[str, ...] = ()
    """Nodes whose names cannot stand in a command."""


class NotAsked(Frozen):
    """A node that `fleet run` left alone."""

    name: str
    why: str


class FleetAnswer(Frozen):
    schema: Literal["gpusetup.fleet/1"] = "gpusetup.fleet/1"
    nodes: tuple[NodeAnswer, ...]
    """The worst first, then by name."""
    mixed: tuple[Mixed, ...] = ()
    """Fields of which no value has a majority."""
    common: tuple[Common, ...] = ()
    exclude: Exclude = Exclude()
    left_out: tuple[str, ...] = ()
    """Files of the folder that are no records."""
    not_asked: tuple[NotAsked, ...] = ()
    """Nodes that `fleet run` left alone, for they were not idle."""

    @property
    def failed(self) -> tuple[NodeAnswer, ...]:
        return tuple(node for node in self.nodes if node.status == "failed")


def answer(records: Records, expected: Iterable[str] = ()) -> FleetAnswer:
    """Judge a fleet. `expected`: nodes that should have a record."""
    here = {node.name for node in records.nodes}
    missing = (Node(name=name, problem=NO_RECORD) for name in expected if name not in here)
    nodes = (*records.nodes, *missing)
    found, shared = drifts(nodes), common(records.nodes)
    slow = _by_node(outliers(nodes))
    usual = {one.id for one in shared}
    rows = [_row(node, _of_node(node, found, slow), usual) for node in nodes]
    rows.sort(key=_worst_first)
    return FleetAnswer(
        nodes=tuple(rows),
        mixed=found.mixed,
        common=shared,
        exclude=excluded(row.name for row in rows if row.status == "failed"),
        left_out=records.left_out,
    )


NO_RECORD = "it did not answer: there is no record of it"


def common(nodes: Sequence[Node]) -> tuple[Common, ...]:
    """The findings that more than half of the nodes have."""
    first: dict[str, NodeFinding] = {}
    counts: Counter[str] = Counter()
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


def _of_node(
    node: Node, found: Drifts, slow: Mapping[str, list[DriftAnswer]]
) -> tuple[DriftAnswer, ...]:
    return (*_drift(found.by_node.get(node.name, ())), *slow.get(node.name, ()))


def _row(node: Node, drift: Sequence[DriftAnswer], usual: Container[str]) -> NodeAnswer:
    drift = sorted(drift, key=lambda one: (-GRAVITY[one.severity], one.field))
    return NodeAnswer(
        name=node.name,
        status=_status(node, drift, usual),
        problem=node.problem,
        taken_at=node.taken_at,
        findings=node.findings,
        drift=tuple(drift),
    )


def _status(node: Node, drift: Sequence[DriftAnswer], usual: Container[str]) -> Status:
    """An error fails a node; a warning sets it apart where most nodes have none such."""
    graves = {one.severity for one in node.findings} | {one.severity for one in drift}
    if node.problem or Severity.ERROR in graves:
        return "failed"
    warned = {one.id for one in node.findings if one.severity is Severity.WARNING}
    if drift or any(id not in usual for id in warned):
        return "differs"
    return "degraded" if warned.intersection(COSTS) else "ok"


def _drift(rows: Iterable[Drift]) -> Iterable[DriftAnswer]:
    for one in rows:
        yield DriftAnswer(
            field=one.field,
            value=one.value,
            majority=one.majority,
            severity=severity_of(one.field),
            nodes=one.nodes,
            of=one.of,
        )


def _by_node(found: Iterable[Outlier]) -> Mapping[str, list[DriftAnswer]]:
    """Slow devices as differences from the middle of the others."""
    rows: dict[str, list[DriftAnswer]] = {}
    for one in found:
        rate = one.rate
        row = DriftAnswer(
            field=f"{RATES}{rate.check}",
            value=f"{rate.value:.4g} {rate.unit} on {rate.device}",
            majority=f"{one.middle:.4g} {rate.unit}",
            severity=Severity.ERROR if rate.value < one.middle / 2 else Severity.WARNING,
            nodes=one.of,
            of=one.of,
        )
        rows.setdefault(one.node, []).append(row)
    return rows


def _worst_first(row: NodeAnswer) -> tuple[int, int, int, object]:
    status = get_args(Status).index(row.status)
    found = [*(one.severity for one in row.findings), *(one.severity for one in row.drift)]
    graves = [GRAVITY[severity] for severity in found]
    return status, -sum(one == 2 for one in graves), -sum(graves), natural(row.name)


def excluded(names: Iterable[str]) -> Exclude:
    """The nodes that no job should get."""
    every = sorted(names, key=natural)
    safe = tuple(name for name in every if SAFE.fullmatch(name))
    return Exclude(
        slurm=f"--exclude={slurm_list(safe)}" if safe else "",
        names=safe,
        not_named=tuple(name for name in every if not SAFE.fullmatch(name)),
    )
