"""What is wrong with a machine of a fleet, as doctor says it."""

from __future__ import annotations

from collections.abc import Iterable

from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.evidence.context import Rule
from gpusetup.fleet.nodes import NodeFinding
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Snapshot

HARMLESS_XIDS = ("63", "94")
NVML_NOT_SUPPORTED = "3"
NOT_OF_THE_NODE = ("gpu-memory-taken",)
"""A job that runs meanwhile is no fault of the node."""


def found(snapshot: Snapshot, rules: Iterable[Rule] | None = None) -> tuple[NodeFinding, ...]:
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
        over = event.values.get("recovery") == "None"  # Xid 154: nothing is to be done any more
        return over or "nonfatal" in event.values or event.values.get("number") in HARMLESS_XIDS
    return event.kind == "gpu-read-failed" and event.values.get("code") == NVML_NOT_SUPPORTED
