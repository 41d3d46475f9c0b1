"""What a node says that takes it out of no job: doctor quotes it where something else is wrong.

Source: NVIDIA, "Xid Errors", catalog (2025-10): Xid 63 is a row that was remapped or a page that
was retired, Xid 94 a memory error that stayed within its program. If a reset is due, or spare
rows are used up, NVML says so by itself. An Xid of NVLink 5 (144 to 150) says whether it is fatal.
"""

from __future__ import annotations

from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Snapshot

HARMLESS_XIDS = ("63", "94")
NVML_NOT_SUPPORTED = "3"


def without_harmless(snapshot: Snapshot) -> Snapshot:
    """The record without the events for which nobody takes a node out."""
    return replace(snapshot, events=tuple(e for e in snapshot.events if not _is_harmless(e)))


def _is_harmless(event: Event) -> bool:
    if event.kind == "xid":
        return "nonfatal" in event.values or event.values.get("number") in HARMLESS_XIDS
    return event.kind == "gpu-read-failed" and event.values.get("code") == NVML_NOT_SUPPORTED
