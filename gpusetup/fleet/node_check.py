"""Whether a node may take jobs: its findings, and how it differs from its profile."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from gpusetup.catalog.builds import Catalog
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.diagnosis.rules import of_a_driver
from gpusetup.errors import UsageError
from gpusetup.findings.driver import kernel_module, presence
from gpusetup.fleet.facts import facts_of
from gpusetup.fleet.nodes import NodeFinding
from gpusetup.fleet.profile import Expectation, Unmet, unknown, unmet
from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Snapshot
from gpusetup.readings.side import bus_key

NOT_OF_THE_NODE = ("gpu-memory-taken",)
"""A job that runs beside the check is no fault of the node."""


class NodeCheckAnswer(Frozen):
    schema: Literal["gpusetup.node-check/1"] = "gpusetup.node-check/1"
    node: str
    ok: bool
    reason: str
    """The whole answer in one line."""
    taken_at: str | None
    seconds: float
    findings: tuple[NodeFinding, ...]
    unmet: tuple[Unmet, ...]
    """What is not as the profile asks."""
    unknown: tuple[str, ...]
    """What the profile asks for and this node does not tell."""
    facts: Mapping[str, str]


def checked(
    node: str,
    snapshot: Snapshot,
    more: Mapping[str, str],
    expected: tuple[Expectation, ...],
    catalog: Catalog,
    seconds: float,
) -> NodeCheckAnswer:
    """Judge a node. `more`: facts that the snapshot has no place for."""
    facts = {**facts_of(snapshot), **more}
    findings, wrong = _findings(snapshot, catalog), unmet(expected, facts)
    why = (*_errors(findings), *(one.words for one in wrong), *_nothing_there(snapshot, expected))
    return NodeCheckAnswer(
        node=node,
        ok=not why,
        reason="; ".join(why) if why else _sound(facts),
        taken_at=snapshot.taken_at,
        seconds=round(seconds, 2),
        findings=findings,
        unmet=wrong,
        unknown=unknown(expected, facts),
        facts=facts,
    )


def only(
    snapshot: Snapshot, expected: tuple[Expectation, ...], gpus: str | None
) -> tuple[Snapshot, tuple[Expectation, ...]]:
    """The node as a job sees it that has some of its GPUs (`0,3` or `0-3`); None: all.

    What is said of the other GPUs is left out, and so is their number.
    """
    if not gpus:
        return snapshot, expected
    numbers = _numbers(gpus)
    others = [g for g in snapshot.gpus or () if g.nvml_index not in numbers]
    buses = {bus_key(gpu.pci_bus_id) for gpu in others} - {None}
    kept = replace(
        snapshot,
        gpus=snapshot.gpus and tuple(g for g in snapshot.gpus if g.nvml_index in numbers),
        events=tuple(e for e in snapshot.events if bus_key(e.values.get("bus_id")) not in buses),
    )
    return kept, tuple(one for one in expected if one.field != "gpus.count")


def _numbers(gpus: str) -> set[int]:
    """
    >>> sorted(_numbers("0,2-3"))
    [0, 2, 3]
    """
    found: set[int] = set()
    for part in gpus.split(","):
        ends = re.fullmatch(r"\s*(\d{1,3})(?:-(\d{1,3}))?\s*", part)
        if not ends:
            raise UsageError(f"{gpus!r} is no list of GPUs", hint="write 0,3 or 0-3")
        found |= set(range(int(ends[1]), int(ends[2] or ends[1]) + 1))
    return found


def _findings(snapshot: Snapshot, catalog: Catalog) -> tuple[NodeFinding, ...]:
    """What doctor's rules about driver and GPUs find, the root first."""
    rules = (*presence.RULES, *kernel_module.RULES, *of_a_driver())
    return tuple(
        NodeFinding(id=one.id, severity=one.severity, title=one.title, root=one.root)
        for one in diagnose(snapshot, catalog, rules=rules).findings
        if one.explained_by is None and one.id not in NOT_OF_THE_NODE
    )


def _errors(findings: tuple[NodeFinding, ...]) -> tuple[str, ...]:
    graves = (one for one in findings if one.severity is Severity.ERROR)
    return tuple(f"{one.id}: {one.title}" for one in graves)


def _nothing_there(snapshot: Snapshot, expected: tuple[Expectation, ...]) -> tuple[str, ...]:
    """A node without a GPU is none to check, unless its profile says so."""
    if snapshot.gpus or any(one.field == "gpus.count" for one in expected):
        return ()
    return () if snapshot.events else ("no GPU of NVIDIA is seen",)


def _sound(facts: Mapping[str, str]) -> str:
    count, name = facts.get("gpus.count", "0"), facts.get("gpus.name", "GPU")
    driver = facts.get("driver.version")
    return f"{count} x {name}{f', driver {driver}' if driver else ''}"
