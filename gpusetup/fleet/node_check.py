"""Decides whether a node can run jobs, based on doctor's findings and on differences from a
profile.

A profile describes what nodes of one kind should be like. It is the record that `fleet check
--json` writes on a healthy node; the user deletes the `facts` that may differ between nodes. A fact
that a node does not report counts as unknown, and never makes a node fail.
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
"""Numbers of driver events that require no action; see `without_harmless` for the source."""
NVML_NOT_SUPPORTED = "3"
"""NVML's error code for a feature that the GPU does not have (NVML_ERROR_NOT_SUPPORTED)."""


def findings_of(snapshot: Snapshot, rules: Iterable[Rule] | None = None) -> tuple[NodeFinding, ...]:
    """Doctor's findings in short form, with root causes first. Consequences of other findings and
    effects of running jobs are left out.

    `rules`: use only these rules; None means all rules.
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
    """The rules that `fleet check` applies: those about the driver and its GPUs."""
    rules_of_files = rules_of(("message_rules", *DRIVER_FILES))
    return (*presence.OF_THE_DRIVER, *rules_of_files)


def without_memory_of_jobs(snapshot: Snapshot) -> Snapshot:
    """The snapshot without the used memory of busy GPUs, because a running job is not a fault.

    Used memory on an idle GPU may be left over from a job that has ended. If it is unknown how busy
    a GPU is, it counts as busy.
    """
    gpus = []
    for gpu in snapshot.gpus or ():
        if gpu.utilization_percent != 0:
            gpu = replace(gpu, memory_used_bytes=None)
        gpus.append(gpu)
    # None means that the GPUs could not be listed.
    return replace(snapshot, gpus=None if snapshot.gpus is None else tuple(gpus))


def without_harmless(snapshot: Snapshot) -> Snapshot:
    """The snapshot without driver events that are no reason to take a node out of service.

    Source: NVIDIA, "Xid Errors", catalog (2025-10): Xid 63 means that a row was remapped or a page
    retired, Xid 94 that a memory error affected only one program. If a reset is needed or no spare
    rows are left, NVML reports this separately. The Xids of NVLink 5 (144 to 150) contain the word
    "nonfatal" if they are harmless.
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
        # The GPU does not have the feature about which the driver was asked; this is not a fault.
        return values.get("code") == NVML_NOT_SUPPORTED
    if event.kind != "xid":
        return False
    # Xid 154 names the recovery action that is required, which may be None.
    needs_nothing = values.get("recovery") == "None"
    is_known = values.get("number") in HARMLESS_XIDS
    return needs_nothing or is_known or "nonfatal" in values


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
        # A fact that the node does not report counts as unknown, and never makes the node fail.
        actual = facts.get(name, expected_value)
        # A node needs only half of the free disk space that the profile's node had.
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
            # If only some of the GPUs differ in the fact, the history records each of them
            # separately.
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
    """A one-line summary of the whole result."""
    taken_at: str | None
    findings: tuple[NodeFinding, ...]
    facts: Mapping[str, str]
    blind_to: tuple[Source, ...] = ()
    """The sources that the check could not read, so that findings from them may exist unnoticed."""


def all_findings(
    ok: bool, reason: str, findings: tuple[NodeFinding, ...]
) -> tuple[NodeFinding, ...]:
    """The findings of a check. If it failed without a finding of severity error, a finding with its
    reason is added."""
    severities = {finding.severity for finding in findings}
    has_error = Severity.ERROR in severities
    if ok or has_error:
        return findings
    # With this finding, `fleet show` also counts the node as failed.
    failure = NodeFinding(id="node-check-failed", severity=Severity.ERROR, title=reason)
    return (*findings, failure)


def check_node(
    node: str,
    record: NodeRecord,
    expected: Mapping[str, str],
    since: Mapping[FindingKey, str] | None = None,
) -> NodeCheckAnswer:
    """Judge a node. `expected` contains the facts of its profile; `since` contains the times of
    earlier findings (None if there is no history)."""
    snapshot = record.snapshot
    now = snapshot.taken_at
    facts = {**facts_of(snapshot), **record.facts}
    findings = []
    for finding in (*findings_of(snapshot, check_rules()), *unlike_profile(expected, facts)):
        if since is not None:
            finding = dated(finding, since, now)
        findings.append(replace(finding, taken_at=now))
    problems = _problems(findings, now)
    # Missing GPUs are already reported if the profile counts GPUs, or if there is a driver event.
    expects_gpu = GPU_COUNT in expected
    is_explained = expects_gpu or bool(snapshot.gpus) or bool(snapshot.events)
    if not is_explained:
        problems.append("no NVIDIA GPU found")
    text = "; ".join(problems) or what_it_is(facts)
    return NodeCheckAnswer(
        node=node,
        ok=not problems,
        # Remove line breaks, because a GPU's name may contain one and would split a log line.
        reason=" ".join(text.split()),
        taken_at=now,
        findings=tuple(findings),
        facts=facts,
        blind_to=_blind_to(sight_of(record, expected)),
    )


HARDWARE_FAULTS = tuple(fault.cause for fault in DEVICE_FAULTS if fault.cause != "xid-of-a-program")
"""The ids of hardware faults, which are never caused by a change of the driver, the profile or a
program."""


def _problems(findings: Iterable[NodeFinding], now: str | None) -> list[str]:
    """The errors among the findings as phrases for the reason, with hardware faults first; findings
    with the same id share a phrase.

    Hardware faults come first because Slurm truncates a reason, and the limit for drained nodes
    depends on how the reason begins.
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
    # A fact that the node does not report was not compared.
    compared_facts = tuple(name for name in expected if name in facts)
    sources = sources_read(record.snapshot)
    if compared_facts:
        sources = (*sources, "profile")
    return Sight(sources=sources, gpus=addresses(record.snapshot), facts=compared_facts)


OF_A_CHECK: tuple[Source, ...] = ("driver", "kernel log", "profile")
"""The sources that a check reads if it can."""


def _blind_to(sight: Sight) -> tuple[Source, ...]:
    """The sources that a check could not read."""
    return tuple(source for source in OF_A_CHECK if source not in sight.sources)


def what_it_is(facts: Mapping[str, str]) -> str:
    """A one-line description of a healthy node: its GPUs and its driver version."""
    gpu_count = facts.get(GPU_COUNT, "0")
    gpu_name = facts.get("gpus.name", "GPU")
    # A driver that is not loaded reports no version.
    driver = facts.get("driver.version", "unknown")
    return f"{gpu_count} x {gpu_name}, driver {driver}"
