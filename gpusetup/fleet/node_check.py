"""Whether a node may take jobs: its findings, and how it differs from its profile."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import Literal

from gpusetup.catalog.builds import Catalog
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.diagnosis.rules import OF_A_DRIVER, rules_of
from gpusetup.errors import UsageError
from gpusetup.findings import presence
from gpusetup.fleet.facts import COUNT, facts_of
from gpusetup.fleet.harmless import without_harmless
from gpusetup.fleet.nodes import NodeFinding
from gpusetup.fleet.profile import Unmet, unmet
from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Event, Snapshot
from gpusetup.readings.side import slot_key

NOT_OF_THE_NODE = ("gpu-memory-taken",)
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


class Job(Frozen):
    """A node as a job sees it."""

    snapshot: Snapshot
    facts: Mapping[str, str] = {}
    """What the snapshot has no place for: links, free disk."""
    expected: Mapping[str, str] = {}
    """The facts of a sound node, by its profile."""
    absent: tuple[int, ...] = ()
    """GPUs that the job has and the node has not."""
    alone: bool = False
    """The node has GPUs that the job has not."""


def checked(node: str, job: Job, catalog: Catalog) -> NodeCheckAnswer:
    """Judge a node."""
    snapshot = job.snapshot
    facts = {**facts_of(snapshot), **job.facts}
    gone = bool(job.absent and job.alone and not snapshot.gpus)
    findings = () if gone else _findings(snapshot, catalog)
    wrong = unmet(job.expected, facts)
    graves = (one for one in findings if one.severity is Severity.ERROR)
    why = (
        *(f"{one.id}: {one.title}" for one in graves),
        *(f"GPU {number} is not there" for number in job.absent),
        *(one.words for one in wrong),
        *_none_there(job),
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
        unknown=tuple(name for name in job.expected if name not in facts),
        facts=facts,
    )


def only(job: Job, gpus: str | None) -> Job:
    """The node as a job sees it that has some of its GPUs (`0,3` or `0-3`); None: all.

    What is said of the other GPUs is left out, and so is their number; a GPU whose own number is
    not known stays. With MIG a scheduler's numbers are those of instances: none of them is called
    absent.
    """
    if not gpus:
        return job
    numbers, snapshot = numbers_of(gpus), job.snapshot
    every = snapshot.gpus or ()
    own = tuple(gpu for gpu in every if gpu.nvml_index is None or gpu.nvml_index in numbers)
    others = {g.nvml_index: slot_key(g.pci_bus_id) for g in every if g not in own}
    slots = frozenset(slot for slot in others.values() if slot)
    hung = any(event.kind == "child-failed" for event in snapshot.events)
    known = snapshot.gpus is not None and not hung and not any(gpu.mig_enabled for gpu in every)
    return replace(
        job,
        snapshot=replace(
            snapshot,
            gpus=snapshot.gpus and own,
            events=tuple(e for e in snapshot.events if not _is_about_others(e, slots, others)),
        ),
        expected={n: value for n, value in job.expected.items() if n != COUNT},
        absent=tuple(sorted(numbers - {g.nvml_index for g in every})) if known else (),
        alone=bool(others),
    )


def _is_about_others(event: Event, slots: Container[str], numbers: Container[int | None]) -> bool:
    """Whether an event is only about other GPUs than the job's, by their slots or its number."""
    number = event.values.get("gpu", "")
    places = (event.values.get("bus_ids") or event.values.get("bus_id") or "").split()
    if not places:
        return number.isdecimal() and int(number) in numbers
    return all(slot_key(place) in slots for place in places)


def numbers_of(gpus: str) -> set[int]:
    """
    >>> sorted(numbers_of("0,2-3"))
    [0, 2, 3]
    """
    found: set[int] = set()
    for part in gpus.split(","):
        ends = re.fullmatch(r"\s*([0-9]{1,3})(?:-([0-9]{1,3}))?\s*", part)
        numbers = range(int(ends[1]), int(ends[2] or ends[1]) + 1) if ends else ()
        if not numbers:
            raise UsageError(f"{gpus!r} is no list of GPUs", hint="write 0,3 or 0-3")
        found |= set(numbers)
    return found


def _findings(snapshot: Snapshot, catalog: Catalog) -> tuple[NodeFinding, ...]:
    """What doctor's rules about driver and GPUs find, the root first."""
    rules = (*presence.OF_THE_DRIVER, *rules_of(("said", *OF_A_DRIVER)))
    return tuple(
        NodeFinding(id=one.id, severity=one.severity, title=one.title, root=one.root)
        for one in diagnose(without_harmless(snapshot), catalog, rules=rules).findings
        if one.explained_by is None and one.id not in NOT_OF_THE_NODE
    )


def _none_there(job: Job) -> tuple[str, ...]:
    """A node without a GPU fails, unless its profile expects none."""
    told = job.absent or COUNT in job.expected or job.snapshot.gpus or job.snapshot.events
    return () if told else ("no NVIDIA GPU found",)
