"""Judges one node within seconds, by doctor's rules for the driver and its GPUs, and compares it
with a profile."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.diagnosis.rules import DRIVER_FILES, rules_of
from gpusetup.errors import BadInput
from gpusetup.evidence.context import Rule
from gpusetup.findings import presence
from gpusetup.findings.gpu_faults import DEVICE_FAULTS
from gpusetup.fleet.facts import FREE_DISK, GPU_COUNT, facts_of, words_of
from gpusetup.fleet.gpu_words import in_short
from gpusetup.model.codec import from_json
from gpusetup.model.finding import Finding, Severity
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Event, Snapshot
from gpusetup.probe.node import NodeRecord

Source = Literal["driver", "kernel log", "profile", "snapshot", "verify"]
"""Where a finding comes from. `snapshot` means something that only doctor examines, such as torch.
"""


class NodeFinding(Frozen):
    """A finding about a node, in short form."""

    id: str
    severity: Severity
    title: str = ""
    root: bool = False
    source: Source = "driver"
    field: str | None = None
    """The fact that differs from the profile."""
    taken_at: str | None = None
    """When the record that contains it was taken."""


HARMLESS_XIDS = ("63", "94")
"""Numbers of driver events that require no action; see `without_harmless` for the source."""
NVML_NOT_SUPPORTED = "3"
"""NVML's error code for a feature that the GPU does not have (NVML_ERROR_NOT_SUPPORTED)."""


def findings_of(snapshot: Snapshot, rules: Iterable[Rule] | None = None) -> tuple[NodeFinding, ...]:
    """Doctor's findings in short form, with root causes first. Consequences of other findings and
    effects of running jobs are left out.

    `rules`: use only these rules; None means all rules.
    """
    grave = without_harmless(without_memory_of_jobs(snapshot))
    findings = []
    for finding in diagnose(grave, load_catalog(), rules=rules).findings:
        is_consequence = finding.explained_by is not None
        if is_consequence:
            continue
        short_finding = NodeFinding(
            id=finding.id,
            severity=finding.severity,
            title=in_short(finding.title),
            root=finding.root,
            source=_source_of(finding),
            taken_at=snapshot.taken_at,
        )
        findings.append(short_finding)
    return tuple(findings)


def _source_of(finding: Finding) -> Source:
    """The source of a check's finding: `kernel log` if only the kernel's log shows it, otherwise
    `driver`."""
    sources = {quote.source for quote in finding.evidence}
    return "kernel log" if sources == {"kernel log"} else "driver"


def check_rules() -> tuple[Rule, ...]:
    """The rules that `fleet check` applies: those about the driver and its GPUs."""
    return (*presence.OF_THE_DRIVER, *rules_of(("message_rules", *DRIVER_FILES)))


def without_memory_of_jobs(snapshot: Snapshot) -> Snapshot:
    """The snapshot without the used memory of busy GPUs, because a running job is not a fault.

    Used memory on an idle GPU may be left over from a job that has ended. If it is unknown how busy
    a GPU is, it counts as busy.
    """
    # None means that the GPUs could not be listed.
    if snapshot.gpus is None:
        return snapshot
    gpus = []
    for gpu in snapshot.gpus:
        is_idle = gpu.utilization_percent == 0
        gpus.append(gpu if is_idle else replace(gpu, memory_used_bytes=None))
    return replace(snapshot, gpus=tuple(gpus))


def without_harmless(snapshot: Snapshot) -> Snapshot:
    """The snapshot without driver events that are no reason to take a node out of service.

    Source: NVIDIA, "Xid Errors", catalog (2025-10): Xid 63 means that a row was remapped or a page
    retired, Xid 94 that a memory error affected only one program. If a reset is needed or no spare
    rows are left, NVML reports this separately. The Xids of NVLink 5 (144 to 150) contain the word
    "nonfatal" if they are harmless.
    """
    grave_events = tuple(event for event in snapshot.events if not _is_harmless(event))
    return replace(snapshot, events=grave_events)


def _is_harmless(event: Event) -> bool:
    """Whether a driver event needs no action."""
    values = event.values
    if event.kind == "gpu-read-failed":
        # The GPU does not have the feature about which the driver was asked; this is not a fault.
        return values.get("code") == NVML_NOT_SUPPORTED
    if event.kind != "xid":
        return False
    # Xid 154 names the recovery action that is required, which may be None.
    needs_nothing = values.get("recovery") == "None"
    is_known = values.get("number") in HARMLESS_XIDS
    return needs_nothing or is_known or "nonfatal" in values


# --- the profile of a healthy node ----------------------------------------------------------------

MOST_BYTES = 1 << 20
"""The largest profile that is read, in bytes."""
MAY_DIFFER = {"gpus.pcie_width", "links.down", "os.kernel", "memory.memlock_bytes"}
"""Facts that may change while a card is idle, or after a harmless update."""


class Profile(Frozen):
    """The part of a record of `fleet check` that serves as a profile for other nodes."""

    schema: Literal["gpusetup.node-check/1"]
    ok: bool
    reason: str
    facts: Mapping[str, str]


def read_profile(text: str, what: str) -> dict[str, str]:
    """The facts of a profile that other nodes must match. Raises BadInput if the file is invalid,
    or if the node that it describes failed the check."""
    try:
        profile = from_json(text, Profile, what=what)
    except BadInput as problem:
        hint = "`gpusetup fleet check --json > FILE` writes one on a sound node"
        raise BadInput(problem.message, hint=hint) from problem
    # Refuse such a profile, because other nodes would be required to have the same fault.
    if not profile.ok:
        raise BadInput(f"{what} is the record of a node that failed: {profile.reason}")
    return {name: value for name, value in profile.facts.items() if name not in MAY_DIFFER}


def unlike_profile(
    expected: Mapping[str, str], facts: Mapping[str, str]
) -> tuple[NodeFinding, ...]:
    """A finding for each fact in which a node differs from its profile.

    >>> unlike_profile({"gpus.count": "8", "disk.tmp_free_gib": "90"}, {"gpus.count": "7"})[0].title
    'number of GPUs 7, expected 8'
    >>> unlike_profile({"disk.tmp_free_gib": "90"}, {"disk.tmp_free_gib": "40"})[0].title
    'disk.tmp_free_gib 40, expected at least 45'
    """
    differences = []
    for name, expected_value in expected.items():
        # A fact that the node does not report counts as unknown, and never makes the node fail.
        actual = facts.get(name, expected_value)
        expectation, differs = expected_value, actual != expected_value
        # A node needs only half of the free disk space that the profile's node had.
        if name.endswith(FREE_DISK) and expected_value.isdecimal() and actual.isdecimal():
            least = int(expected_value) // 2
            expectation, differs = f"at least {least}", int(actual) < least
        if differs:
            finding = NodeFinding(
                id="unlike-profile",
                severity=Severity.ERROR,
                title=f"{words_of(name)} {actual}, expected {expectation}",
                source="profile",
                field=name,
            )
            differences.append(finding)
    return tuple(differences)


# --- the answer -----------------------------------------------------------------------------------


class NodeCheckAnswer(Frozen):
    schema: Literal["gpusetup.node-check/1"] = "gpusetup.node-check/1"
    node: str
    ok: bool
    reason: str
    """A one-line summary of the whole result."""
    taken_at: str | None
    findings: tuple[NodeFinding, ...]
    facts: Mapping[str, str]
    blind_to: tuple[Source, ...] = ()
    """The sources that the check could not read, so that findings from them may exist unnoticed."""
    gpu_uuids: tuple[str, ...] = ()
    """The UUIDs of the node's GPUs. Two nodes with the same ones have a copy of one record."""


def all_findings(
    ok: bool, reason: str, findings: tuple[NodeFinding, ...]
) -> tuple[NodeFinding, ...]:
    """The findings of a check. If it failed without a finding of severity error, a finding with its
    reason is added."""
    has_error = any(finding.severity is Severity.ERROR for finding in findings)
    if ok or has_error:
        return findings
    # With this finding, `fleet show` also counts the node as failed.
    failure = NodeFinding(id="node-check-failed", severity=Severity.ERROR, title=reason)
    return (*findings, failure)


def check_node(node: str, record: NodeRecord, expected: Mapping[str, str]) -> NodeCheckAnswer:
    """Judge a node. `expected` contains the facts of its profile."""
    snapshot = record.snapshot
    facts = {**facts_of(snapshot), **record.facts}
    findings = (*findings_of(snapshot, check_rules()), *unlike_profile(expected, facts))
    problems = _problems(findings)
    # Missing GPUs are already reported if the profile counts GPUs, or if there is a driver event.
    is_explained = GPU_COUNT in expected or bool(snapshot.gpus) or bool(snapshot.events)
    if not is_explained:
        problems.append("no NVIDIA GPU found")
    text = "; ".join(problems) or what_it_is(facts)
    sources = sources_read(snapshot)
    # A fact that the node does not report was not compared.
    if any(name in facts for name in expected):
        sources = (*sources, "profile")
    return NodeCheckAnswer(
        node=node,
        ok=not problems,
        # Remove line breaks, because a GPU's name may contain one and would split a log line.
        reason=" ".join(text.split()),
        taken_at=snapshot.taken_at,
        findings=findings,
        facts=facts,
        blind_to=tuple(source for source in OF_A_CHECK if source not in sources),
        gpu_uuids=uuids_of(snapshot),
    )


HARDWARE_FAULTS = tuple(fault.cause for fault in DEVICE_FAULTS if fault.cause != "xid-of-a-program")
"""The ids of hardware faults, which are never caused by a change of the driver, the profile or a
program."""


def _problems(findings: Iterable[NodeFinding]) -> list[str]:
    """The errors among the findings as phrases for the reason, with hardware faults first; findings
    with the same id share a phrase.

    Hardware faults come first because Slurm truncates a reason, and the limit for drained nodes
    depends on how the reason begins.
    """
    titles_by_id: dict[str, list[str]] = {id: [] for id in HARDWARE_FAULTS}
    for finding in findings:
        if finding.severity is Severity.ERROR:
            titles_by_id.setdefault(finding.id, []).append(finding.title)
    return [f"{id}: {'; '.join(titles)}" for id, titles in titles_by_id.items() if titles]


SOURCES: tuple[Source, ...] = get_args(Source)
OF_A_CHECK: tuple[Source, ...] = ("driver", "kernel log", "profile")
"""The sources that a check reads if it can."""


def sources_read(snapshot: Snapshot) -> tuple[Source, ...]:
    """The sources that a snapshot could read: `driver` if the driver responded for all GPUs, and
    `kernel log`."""
    sources: list[Source] = []
    answered = {reading.subject for reading in snapshot.readings if reading.problem is None}
    failed = {reading.subject for reading in snapshot.readings if reading.problem is not None}
    # A driver may report its version first and hang later, so the version alone proves nothing.
    if snapshot.gpus and snapshot.driver.nvml_code == 0 and "driver" not in failed:
        sources.append("driver")
    if "events" in answered:
        sources.append("kernel log")
    return tuple(sources)


UUID = re.compile(r"GPU-[0-9a-f]{8}[0-9a-f-]*")
"""A GPU's UUID. In a redacted record, its place is taken by an alias such as `GPU-0001`."""


def uuids_of(snapshot: Snapshot) -> tuple[str, ...]:
    """The UUIDs of the GPUs; aliases and unknown ones are left out."""
    uuids = [gpu.uuid for gpu in snapshot.gpus or () if gpu.uuid and UUID.fullmatch(gpu.uuid)]
    return tuple(sorted(uuids))


def what_it_is(facts: Mapping[str, str]) -> str:
    """A one-line description of a healthy node: its GPUs and its driver version."""
    gpu_count = facts.get(GPU_COUNT, "0")
    gpu_name = facts.get("gpus.name", "GPU")
    # A driver that is not loaded reports no version.
    driver = facts.get("driver.version", "unknown")
    return f"{gpu_count} x {gpu_name}, driver {driver}"
