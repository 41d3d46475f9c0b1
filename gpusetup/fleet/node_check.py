"""Whether a node may take jobs: its findings, and how it differs from its profile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from gpusetup.diagnosis.rules import OF_A_DRIVER, rules_of
from gpusetup.findings import presence
from gpusetup.fleet.facts import COUNT, facts_of
from gpusetup.fleet.judge import found
from gpusetup.fleet.nodes import NodeFinding
from gpusetup.fleet.profile import unmet
from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen
from gpusetup.probe.node import NodeRecord


class NodeCheckAnswer(Frozen):
    schema: Literal["gpusetup.node-check/1"] = "gpusetup.node-check/1"
    node: str
    ok: bool
    reason: str
    """The whole answer in one line."""
    taken_at: str | None
    findings: tuple[NodeFinding, ...]
    facts: Mapping[str, str]


def checked(node: str, record: NodeRecord, expected: Mapping[str, str]) -> NodeCheckAnswer:
    """Judge a node. `expected`: the facts of a sound one, by its profile."""
    snapshot = record.snapshot
    facts = {**facts_of(snapshot), **record.facts}
    rules = (*presence.OF_THE_DRIVER, *rules_of(("said", *OF_A_DRIVER)))
    findings = (*found(snapshot, rules), *unmet(expected, facts))
    graves = (one for one in findings if one.severity is Severity.ERROR)
    none_there = not (COUNT in expected or snapshot.gpus or snapshot.events)
    why = (
        *(f"{one.id}: {one.title}" for one in graves),
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
        facts=facts,
    )
