"""Whether a node may take jobs: doctor's findings, and how it differs from its profile.

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
from gpusetup.fleet.facts import GPU_COUNT, facts_of, words_of
from gpusetup.fleet.nodes import NodeFinding
from gpusetup.model.codec import from_json
from gpusetup.model.finding import Severity
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Event, Snapshot
from gpusetup.probe.node import NodeRecord

HARMLESS_XIDS = ("63", "94")
NVML_NOT_SUPPORTED = "3"
NOT_OF_THE_NODE = ("gpu-memory-taken",)
"""A job that runs meanwhile is no fault of the node."""


def findings_of(snapshot: Snapshot, rules: Iterable[Rule] | None = None) -> tuple[NodeFinding, ...]:
    """Doctor's findings in short, the root first; no consequences, and nothing that a job does."""
    return tuple(
        NodeFinding(id=one.id, severity=one.severity, title=one.title, root=one.root)
        for one in diagnose(without_harmless(snapshot), load_catalog(), rules=rules).findings
        if one.explained_by is None and one.id not in NOT_OF_THE_NODE
    )


def without_harmless(snapshot: Snapshot) -> Snapshot:
    """The record without the events for which nobody takes a node out.

    Source: NVIDIA, "Xid Errors", catalog (2025-10): Xid 63 is a row that was remapped or a page
    that was retired, Xid 94 a memory error that stayed within its program. If a reset is due, or
    spare rows are used up, NVML says so by itself. An Xid of NVLink 5 (144 to 150) says whether it
    is fatal.
    """
    return replace(snapshot, events=tuple(e for e in snapshot.events if not _is_harmless(e)))


def _is_harmless(event: Event) -> bool:
    if event.kind == "xid":
        return (
            "nonfatal" in event.values
            or event.values.get("number") in HARMLESS_XIDS
            or event.values.get("recovery") == "None"  # Xid 154: nothing is to be done any more
        )
    return event.kind == "gpu-read-failed" and event.values.get("code") == NVML_NOT_SUPPORTED


FREE = "_free_gib"
"""How the facts of free disk end: half of what the sound node has is enough."""
MOST_BYTES = 1 << 20
MAY_DIFFER = {"gpus.pcie_width", "links.down", "os.kernel", "memory.memlock_bytes"}
"""Facts that an idle card, or an update without consequence, changes."""


class Profile(Frozen):
    """The part of a record that other nodes are compared with."""

    schema: Literal["gpusetup.node-check/1"]
    ok: bool
    reason: str
    facts: Mapping[str, str]


def read_profile(text: str, what: str) -> dict[str, str]:
    """The facts of a sound node; `BadInput` names what is wrong in the file."""
    try:
        found = from_json(text, Profile, what=what)
    except BadInput as problem:
        hint = "`gpusetup fleet check --json > FILE` writes one on a sound node"
        raise BadInput(problem.message, hint=hint) from problem
    if not found.ok:
        raise BadInput(f"{what} is the record of a node that failed: {found.reason}")
    return {name: value for name, value in found.facts.items() if name not in MAY_DIFFER}


def unlike_profile(
    expected: Mapping[str, str], facts: Mapping[str, str]
) -> tuple[NodeFinding, ...]:
    """What a node tells otherwise than the profile asks.

    >>> unlike_profile({"gpus.count": "8", "disk.tmp_free_gib": "90"}, {"gpus.count": "7"})[0].title
    'number of GPUs 7, expected 8'
    >>> unlike_profile({"disk.tmp_free_gib": "90"}, {"disk.tmp_free_gib": "40"})[0].title
    'disk.tmp_free_gib 40, expected at least 45'
    """
    found = []
    for name, value in expected.items():
        actual = facts.get(name, value)
        differs = actual != value
        if name.endswith(FREE) and value.isdecimal() and actual.isdecimal():
            least = int(value) // 2
            differs, value = int(actual) < least, f"at least {least}"
        if differs:
            title = f"{words_of(name)} {actual}, expected {value}"
            found.append(NodeFinding(id="unlike-profile", severity=Severity.ERROR, title=title))
    return tuple(found)


class NodeCheckAnswer(Frozen):
    schema: Literal["gpusetup.node-check/1"] = "gpusetup.node-check/1"
    node: str
    ok: bool
    reason: str
    """The whole answer in one line."""
    taken_at: str | None
    findings: tuple[NodeFinding, ...]
    facts: Mapping[str, str]


def check_node(node: str, record: NodeRecord, expected: Mapping[str, str]) -> NodeCheckAnswer:
    """Judge a node. `expected`: the facts of a sound one, by its profile."""
    snapshot = record.snapshot
    facts = {**facts_of(snapshot), **record.facts}
    rules = (*presence.OF_THE_DRIVER, *rules_of(("message_rules", *DRIVER_FILES)))
    findings = (*findings_of(snapshot, rules), *unlike_profile(expected, facts))
    errors = (one for one in findings if one.severity is Severity.ERROR)
    has_no_gpu = not (GPU_COUNT in expected or snapshot.gpus or snapshot.events)
    problems = (
        *(f"{one.id}: {one.title}" for one in errors),
        *(("no NVIDIA GPU found",) if has_no_gpu else ()),
    )
    count, name = facts.get("gpus.count", "0"), facts.get("gpus.name", "GPU")
    summary = f"{count} x {name}, driver {facts.get('driver.version', 'unknown')}"
    return NodeCheckAnswer(
        node=node,
        ok=not problems,
        reason=" ".join(
            ("; ".join(problems) or summary).split()
        ),  # a GPU's name ends no line of a log
        taken_at=snapshot.taken_at,
        findings=findings,
        facts=facts,
    )
