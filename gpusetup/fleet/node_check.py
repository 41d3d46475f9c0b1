"""Decides whether a node can take jobs, from doctor's findings and from the differences to its
profile.

The profile says what a node of a kind should be like: it is the record that `fleet check --json`
writes on a sound one. A person deletes from its `facts` what may differ between nodes. A fact that
a node does not tell is unknown, and fails no node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.diagnosis.rules import DRIVER_FILES, rules_of
from gpusetup.errors import BadInput
from gpusetup.evidence.context import Rule
from gpusetup.findings import presence
from gpusetup.findings.gpu_faults import DEVICE_FAULTS
from gpusetup.fleet.facts import FREE_DISK, GPU_COUNT, facts_of, words_of
from gpusetup.fleet.gpu_words import gpus_of, in_short, numbered_gpus
from gpusetup.fleet.node_finding import FindingKey, NodeFinding, Source, dated, since_words
from gpusetup.fleet.sight import Sight, addresses, sources_read
from gpusetup.model.codec import from_json
from gpusetup.model.finding import Finding, Severity
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Event, Snapshot
from gpusetup.probe.node import NodeRecord

HARMLESS_XIDS = ("63", "94")
"""Numbers of driver events that need no action; `without_harmless` has the source."""
NVML_NOT_SUPPORTED = "3"
"""NVML's error code for a feature that the GPU does not have (NVML_ERROR_NOT_SUPPORTED)."""


def findings_of(snapshot: Snapshot, rules: Iterable[Rule] | None = None) -> tuple[NodeFinding, ...]:
    """Doctor's findings in short form, root causes first, without consequences of other findings
    and without effects of running jobs.

    `rules`: those of a check; None for all.
    """
    grave = without_harmless(without_memory_of_jobs(snapshot))
    diagnosis = diagnose(grave, load_catalog(), rules=rules)
    findings = []
    for finding in diagnosis.findings:
        is_consequence = finding.explained_by is not None
        if is_consequence:
            continue
        short_finding = NodeFinding(
            id=finding.id,
            severity=finding.severity,
            title=in_short(finding.title),
            root=finding.root,
            about=gpus_of(finding.title),
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
    """The rules that a node check applies: those about the driver and its GPUs."""
    rules_of_files = rules_of(("message_rules", *DRIVER_FILES))
    return (*presence.OF_THE_DRIVER, *rules_of_files)


def without_memory_of_jobs(snapshot: Snapshot) -> Snapshot:
    """The snapshot without the used memory of busy GPUs, because a running job is not a fault.

    Memory that is taken on an idle GPU may be left over from a job that is gone. Where no source
    tells how busy a GPU is, it counts as one that computes.
    """
    gpus = []
    for gpu in snapshot.gpus or ():
        if gpu.utilization_percent != 0:
            gpu = replace(gpu, memory_used_bytes=None)
        gpus.append(gpu)
    # None: nobody could ask for GPUs.
    return replace(snapshot, gpus=None if snapshot.gpus is None else tuple(gpus))


def without_harmless(snapshot: Snapshot) -> Snapshot:
    """The snapshot without events that are no reason to take a node out of service.

    Source: NVIDIA, "Xid Errors", catalog (2025-10): Xid 63 is a row that was remapped or a page
    that was retired, Xid 94 a memory error that stayed within its program. If a reset is due, or
    spare rows are used up, NVML says so by itself. An Xid of NVLink 5 (144 to 150) says whether it
    is fatal.
    """
    grave_events = []
    for event in snapshot.events:
        if not _is_harmless(event):
            grave_events.append(event)
    return replace(snapshot, events=tuple(grave_events))


def _is_harmless(event: Event) -> bool:
    """Whether a driver event needs no action."""
    values = event.values
    if event.kind == "gpu-read-failed":
        # Such a GPU lacks the feature that was asked for.
        return values.get("code") == NVML_NOT_SUPPORTED
    if event.kind != "xid":
        return False
    # Xid 154 says what is to be done.
    needs_nothing = values.get("recovery") == "None"
    is_known = values.get("number") in HARMLESS_XIDS
    return needs_nothing or is_known or "nonfatal" in values


MOST_BYTES = 1 << 20
"""The largest profile that is read."""
MAY_DIFFER = {"gpus.pcie_width", "links.down", "os.kernel", "memory.memlock_bytes"}
"""Facts that an idle card, or an update without consequence, changes."""


class Profile(Frozen):
    """The part of a node check's record that serves as a profile for other nodes."""

    schema: Literal["gpusetup.node-check/1"]
    ok: bool
    reason: str
    facts: Mapping[str, str]


def read_profile(text: str, what: str) -> dict[str, str]:
    """The facts of a profile that other nodes must have; BadInput if the file is invalid or its
    node failed the check."""
    try:
        profile = from_json(text, Profile, what=what)
    except BadInput as problem:
        hint = "`gpusetup fleet check --json > FILE` writes one on a sound node"
        raise BadInput(problem.message, hint=hint) from problem
    # Other nodes would have to have its fault.
    if not profile.ok:
        raise BadInput(f"{what} is the record of a node that failed: {profile.reason}")
    facts = {}
    for name, value in profile.facts.items():
        if name not in MAY_DIFFER:
            facts[name] = value
    return facts


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
        # A fact that the node does not tell is unknown, and fails no node.
        actual = facts.get(name, expected_value)
        # Half of the disk that the sound node has free is enough.
        is_free_disk = (
            name.endswith(FREE_DISK) and expected_value.isdecimal() and actual.isdecimal()
        )
        if is_free_disk:
            least = int(expected_value) // 2
            expectation = f"at least {least}"
            differs = int(actual) < least
        else:
            expectation = expected_value
            differs = actual != expected_value
        if differs:
            title = f"{words_of(name)} {actual}, expected {expectation}"
            # Of a fact of some GPUs each GPU has its own history.
            gpus = [f"{name}: {gpu}" for gpu in numbered_gpus(actual)]
            finding = NodeFinding(
                id="unlike-profile",
                severity=Severity.ERROR,
                title=title,
                about=tuple(gpus or (name,)),
                source="profile",
            )
            differences.append(finding)
    return tuple(differences)


class NodeCheckAnswer(Frozen):
    schema: Literal["gpusetup.node-check/1"] = "gpusetup.node-check/1"
    node: str
    ok: bool
    reason: str
    """The whole answer in one line."""
    taken_at: str | None
    findings: tuple[NodeFinding, ...]
    facts: Mapping[str, str]
    blind_to: tuple[Source, ...] = ()
    """Where the check could not look: such findings may be there all the same."""


def all_findings(
    ok: bool, reason: str, findings: tuple[NodeFinding, ...]
) -> tuple[NodeFinding, ...]:
    """The findings of a check, with one for its reason if it failed without a finding of severity
    error."""
    severities = {finding.severity for finding in findings}
    has_error = Severity.ERROR in severities
    if ok or has_error:
        return findings
    # So `fleet show` calls the node failed too.
    failure = NodeFinding(id="node-check-failed", severity=Severity.ERROR, title=reason)
    return (*findings, failure)


def check_node(
    node: str,
    record: NodeRecord,
    expected: Mapping[str, str],
    since: Mapping[FindingKey, str] | None = None,
) -> NodeCheckAnswer:
    """Judge a node. `expected` are the facts in its profile; `since` has the times of earlier
    findings (None without a history)."""
    snapshot = record.snapshot
    now = snapshot.taken_at
    facts = {**facts_of(snapshot), **record.facts}
    findings = []
    for finding in (*findings_of(snapshot, check_rules()), *unlike_profile(expected, facts)):
        if since is not None:
            finding = dated(finding, since, now)
        findings.append(replace(finding, taken_at=now))
    problems = _problems(findings, now)
    # A profile that counts GPUs says it by itself, and so does an event of the driver.
    expects_gpu = GPU_COUNT in expected
    is_explained = expects_gpu or bool(snapshot.gpus) or bool(snapshot.events)
    if not is_explained:
        problems.append("no NVIDIA GPU found")
    text = "; ".join(problems) or what_it_is(facts)
    return NodeCheckAnswer(
        node=node,
        ok=not problems,
        # A GPU's name must not end a line of a log.
        reason=" ".join(text.split()),
        taken_at=now,
        findings=tuple(findings),
        facts=facts,
        blind_to=_blind_to(sight_of(record, expected)),
    )


HARDWARE_FAULTS = tuple(fault.cause for fault in DEVICE_FAULTS if fault.cause != "xid-of-a-program")
"""The ids of faults that no change of a driver, a profile or a program causes."""


def _problems(findings: Iterable[NodeFinding], now: str | None) -> list[str]:
    """The errors among the findings as parts of the reason, hardware faults first; findings with
    the same id are joined.

    Slurm cuts a reason, and its limit for drained nodes asks what the reason begins with.
    """
    words_by_id: dict[str, list[str]] = {id: [] for id in HARDWARE_FAULTS}
    for finding in findings:
        if finding.severity is Severity.ERROR:
            words = f"{finding.title}{since_words(finding, now)}"
            words_by_id.setdefault(finding.id, []).append(words)
    problems = []
    for id, words_of_id in words_by_id.items():
        if words_of_id:
            problems.append(f"{id}: {'; '.join(words_of_id)}")
    return problems


def sight_of(record: NodeRecord, expected: Mapping[str, str]) -> Sight:
    """What a check with this record and profile could have seen."""
    facts = {**facts_of(record.snapshot), **record.facts}
    # A fact that the node does not tell was not compared.
    compared_facts = tuple(name for name in expected if name in facts)
    sources = sources_read(record.snapshot)
    if compared_facts:
        sources = (*sources, "profile")
    return Sight(sources=sources, gpus=addresses(record.snapshot), facts=compared_facts)


OF_A_CHECK: tuple[Source, ...] = ("driver", "kernel log", "profile")
"""Where a check looks, if it can."""


def _blind_to(sight: Sight) -> tuple[Source, ...]:
    """The sources that a check could not read."""
    return tuple(source for source in OF_A_CHECK if source not in sight.sources)


def what_it_is(facts: Mapping[str, str]) -> str:
    """A healthy node in one line: its GPUs and its driver version."""
    gpu_count = facts.get(GPU_COUNT, "0")
    gpu_name = facts.get("gpus.name", "GPU")
    # A driver that is not loaded tells no version.
    driver = facts.get("driver.version", "unknown")
    return f"{gpu_count} x {gpu_name}, driver {driver}"
