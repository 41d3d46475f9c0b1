"""Judges one node within seconds, by doctor's rules for the driver and its GPUs, and compares it
with a profile."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.diagnose import DRIVER_RULES, diagnose
from gpusetup.errors import BadInput
from gpusetup.evidence.context import Rule
from gpusetup.findings import message_rules
from gpusetup.findings.gpu_faults import DEVICE_FAULTS
from gpusetup.fleet.facts import GPU_COUNT, GPU_NAME, facts_of, words_of
from gpusetup.model.codec import from_json
from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Event, Snapshot


class NodeFinding(Frozen):
    """A finding about a node, in short form."""

    id: str
    severity: Severity
    title: str = ""
    field: str | None = None
    """The fact that differs from the profile."""


class NodeCheckAnswer(Frozen):
    """What `fleet check` prints, and what its records and profiles contain."""

    schema: Literal["gpusetup.node-check/1"] = "gpusetup.node-check/1"
    node: str = ""
    ok: bool
    reason: str
    """A one-line summary of the whole result."""
    taken_at: str | None = None
    findings: tuple[NodeFinding, ...] = ()
    facts: Mapping[str, str] = {}
    gpu_uuids: tuple[str, ...] = ()
    """The UUIDs of the node's GPUs. Two nodes with the same ones have a copy of one record."""


HARDWARE_FAULTS = tuple(
    fault.cause for fault in DEVICE_FAULTS if fault.cause != "cuda-program-error"
)
"""The ids of hardware faults, which are never caused by a change of the driver, the profile or a
program."""


def check_node(node: str, snapshot: Snapshot, expected: Mapping[str, str]) -> NodeCheckAnswer:
    """Judge a node. `expected` contains the facts of its profile."""
    facts = facts_of(snapshot)
    rules = (*message_rules.RULES, *DRIVER_RULES)
    findings = (*findings_of(snapshot, rules), *unlike_profile(expected, facts))
    # Missing GPUs are already reported if the profile counts GPUs, or by what the driver's events
    # are about.
    has_events = not all(map(_is_harmless, snapshot.events))
    if not (GPU_COUNT in expected or snapshot.gpus or has_events):
        findings = (*findings, NO_GPU)

    # Findings with the same id share a phrase. Hardware faults come first, because Slurm truncates
    # a reason, and the limit for drained nodes depends on how it begins.
    titles_by_id: dict[str, list[str]] = {id: [] for id in HARDWARE_FAULTS}
    for finding in findings:
        if finding.severity is Severity.ERROR:
            titles_by_id.setdefault(finding.id, []).append(finding.title)
    problems = [f"{id}: {'; '.join(titles)}" for id, titles in titles_by_id.items() if titles]

    gpus = f"{facts.get(GPU_COUNT, '0')} x {facts.get(GPU_NAME, 'GPU')}"
    reason = "; ".join(problems) or f"{gpus}, driver {facts.get('driver.version', 'unknown')}"
    return NodeCheckAnswer(
        node=node,
        ok=not problems,
        # Without line breaks, because a GPU's name may contain one and would split a log line.
        reason=" ".join(reason.split()),
        taken_at=snapshot.taken_at,
        findings=findings,
        facts=facts,
        gpu_uuids=uuids_of(snapshot),
    )


NO_GPU = NodeFinding(id="no-nvidia-gpu", severity=Severity.ERROR, title="no NVIDIA GPU found")


def findings_of(snapshot: Snapshot, rules: Iterable[Rule] | None = None) -> tuple[NodeFinding, ...]:
    """Doctor's findings in short form, with root causes first. Consequences of other findings and
    effects of running jobs are left out.

    `rules`: use only these rules; None means all rules.
    """
    # A running job's memory is no fault. On an idle GPU, memory may be left over from a job that
    # has ended. If it is unknown how busy a GPU is, it counts as busy.
    gpus = snapshot.gpus and tuple(
        gpu if gpu.utilization_percent == 0 else replace(gpu, memory_used_bytes=None)
        for gpu in snapshot.gpus
    )
    events = tuple(event for event in snapshot.events if not _is_harmless(event))
    without_jobs = replace(snapshot, gpus=gpus, events=events)
    return tuple(
        NodeFinding(id=finding.id, severity=finding.severity, title=finding.title)
        for finding in diagnose(without_jobs, load_catalog(), rules=rules).findings
        if finding.explained_by is None
    )


HARMLESS_XIDS = ("63", "94")
"""Xid 63: a row was remapped or a page retired. Xid 94: a memory error affected only one program.
If a reset is needed or no spare rows are left, NVML reports this separately. Source: NVIDIA, "Xid
Errors", catalog (2025-10)."""
NVML_NOT_SUPPORTED = "3"
"""NVML's error code for a feature that the GPU does not have (NVML_ERROR_NOT_SUPPORTED)."""


def _is_harmless(event: Event) -> bool:
    """Whether a driver event is no reason to take a node out of service."""
    if event.kind == "gpu-read-failed":
        return event.values.get("code") == NVML_NOT_SUPPORTED
    if event.kind != "xid":
        return False
    # Xid 154 names the recovery action that is required, which may be None. The Xids of NVLink 5
    # (144 to 150) contain the word "nonfatal" if they are harmless.
    needs_nothing = event.values.get("recovery") == "None" or "nonfatal" in event.values
    return needs_nothing or event.values.get("number") in HARMLESS_XIDS


UUID = re.compile(r"GPU-[0-9a-f]{8}[0-9a-f-]*")
"""A GPU's UUID. In a redacted record, its place is taken by an alias such as `GPU-0001`."""


def uuids_of(snapshot: Snapshot) -> tuple[str, ...]:
    """The UUIDs of the GPUs; aliases and unknown ones are left out."""
    uuids = [gpu.uuid for gpu in snapshot.gpus or () if gpu.uuid and UUID.fullmatch(gpu.uuid)]
    return tuple(sorted(uuids))


MOST_BYTES = 1 << 20
"""The largest profile that is read, in bytes."""
MAY_DIFFER = {"gpus.pcie_width", "os.kernel"}
"""Facts that may change while a card is idle, or after a harmless update."""


def read_profile(text: str, what: str) -> dict[str, str]:
    """The facts of a profile that other nodes must match. Raises BadInput if the file is invalid,
    or if the node that it describes failed the check."""
    try:
        profile = from_json(text, NodeCheckAnswer, what=what)
    except BadInput as problem:
        raise BadInput(
            f"{what} is not the output of `gpusetup fleet check --json`",
            hint="`gpusetup fleet check --json > FILE` writes one on a healthy node",
        ) from problem
    # Other nodes would be required to have the same fault.
    if not profile.ok:
        raise BadInput(f"{what} is the record of a node that failed: {profile.reason}")
    return {name: value for name, value in profile.facts.items() if name not in MAY_DIFFER}


def unlike_profile(
    expected: Mapping[str, str], facts: Mapping[str, str]
) -> tuple[NodeFinding, ...]:
    """A finding for each fact in which a node differs from its profile.

    >>> unlike_profile({"gpus.count": "8", "os.kernel": "6.8"}, {"gpus.count": "7"})[0].title
    'number of GPUs 7, expected 8'
    """
    return tuple(
        NodeFinding(
            id="unlike-profile",
            severity=Severity.ERROR,
            title=f"{words_of(name)} {facts[name]}, expected {value}",
            field=name,
        )
        for name, value in expected.items()
        # A fact that the node does not report is unknown, and never makes the node fail.
        if facts.get(name, value) != value
    )
