"""Whether a node may take jobs: its findings, and how it differs from its profile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from gpusetup.catalog.builds import Catalog
from gpusetup.causes.gpu_losses import GPU_MEMORY_TAKEN
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.diagnosis.rules import OF_A_DRIVER, rules_of
from gpusetup.findings import presence
from gpusetup.fleet.facts import COUNT, facts_of
from gpusetup.fleet.judge import without_harmless
from gpusetup.fleet.nodes import NodeFinding
from gpusetup.fleet.profile import Unmet, unmet
from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Snapshot
from gpusetup.probe.node import NodeRecord

NOT_OF_THE_NODE = (GPU_MEMORY_TAKEN.id,)
"""A job that runs during the check is no fault of the node."""


class NodeCheckAnswer(Frozen):
    schema: Literal["gpusetup.node-check/1"] = "gpusetup.node-check/1"
    node: str
    ok: bool
    reason: str
    """The whole answer in one line."""
    taken_at: str | None
    findings: tuple[NodeFinding, ...]
    unmet: tuple[Unmet, ...]
    """What is not as the profile asks."""
    unknown: tuple[str, ...]
    """What the profile asks for and this node does not tell."""
    facts: Mapping[str, str]


def checked(
    node: str, record: NodeRecord, expected: Mapping[str, str], catalog: Catalog
) -> NodeCheckAnswer:
    """Judge a node. `expected`: the facts of a sound one, by its profile."""
    snapshot = record.snapshot
    facts = {**facts_of(snapshot), **record.facts}
    findings, wrong = _findings(snapshot, catalog), unmet(expected, facts)
    graves = (one for one in findings if one.severity is Severity.ERROR)
    none_there = not (COUNT in expected or snapshot.gpus or snapshot.events)
    why = (
        *(f"{one.id}: {one.title}" for one in graves),
        *(one.words for one in wrong),
        *(("no NVIDIA GPU found",) if none_there else ()),
    )
    count, name = facts.get("gpus.count", "0"), facts.get("gpus.name", "GPU")
    sound = f"{count} x {name}, driver {facts.get('driver.version', 'unknown')}"
    return NodeCheckAnswer(
        node=node,
        ok=not why,
        reason=" ".join(("; ".join(why) or sound).split()),  # a GPU's name ends no line of a log
        taken_at=snapshot.taken_at,
        findings=findings,
        unmet=wrong,
        unknown=tuple(name for name in expected if name not in facts),
        facts=facts,
    )


def _findings(snapshot: Snapshot, catalog: Catalog) -> tuple[NodeFinding, ...]:
    """What doctor's rules about driver and GPUs find, the root first."""
    rules = (*presence.OF_THE_DRIVER, *rules_of(("said", *OF_A_DRIVER)))
    return tuple(
        NodeFinding(id=one.id, severity=one.severity, title=one.title, root=one.root)
        for one in diagnose(without_harmless(snapshot), catalog, rules=rules).findings
        if one.explained_by is None and one.id not in NOT_OF_THE_NODE
    )
