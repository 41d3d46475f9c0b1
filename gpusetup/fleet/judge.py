"""The findings of many machines: alike ones are judged once.

Nodes of one fleet differ in what no rule tells apart: a GPU's UUID, a temperature of 31 or 34 °C.
`settled` sets such values to one of their kind; two records that are equal then have the same
findings, and the second one costs a look into a table. What is near a rule's limit stays exact.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.evidence.context import Rule
from gpusetup.fleet.nodes import NodeFinding
from gpusetup.model.codec import to_json
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Gpu, Snapshot
from gpusetup.model.units import GIB

if TYPE_CHECKING:
    from gpusetup.catalog.builds import Catalog

QUIET = {"temperature_celsius": 70, "utilization_percent": 10, "power_watts": float("inf")}
"""Of a GPU: below these no rule says anything; each is far from the nearest limit of a rule."""
EMPTY_SHARE, ENOUGH_BYTES, QUICK_SECONDS = 0.1, 64 * GIB, 1.0
"""Of its memory, of a disk, and of the driver's answer."""
MEASURED = re.compile(r"(?:gpus|driver\.seconds)$|(?:disks|memory)(?:\.|$)")
"""Subjects of readings whose text has such values in it."""
HARMLESS_XIDS = ("63", "94")
NVML_NOT_SUPPORTED = "3"

NOT_OF_THE_NODE = ("gpu-memory-taken",)
"""A job that runs meanwhile is no fault of the node."""
Findings = tuple[NodeFinding, ...]


class Judge:
    """What is wrong with a machine, as doctor says it."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._known: dict[bytes, Findings] = {}

    def __call__(self, snapshot: Snapshot) -> Findings:
        key = hashlib.blake2b(to_json(settled(snapshot)).encode(), digest_size=16).digest()
        if key not in self._known:
            self._known[key] = found(snapshot, self._catalog)
        return self._known[key]


def found(snapshot: Snapshot, catalog: Catalog, rules: Iterable[Rule] | None = None) -> Findings:
    """Doctor's findings in short, the root first; no consequences, and nothing that a job does."""
    return tuple(
        NodeFinding(id=one.id, severity=one.severity, title=one.title, root=one.root)
        for one in diagnose(without_harmless(snapshot), catalog, rules=rules).findings
        if one.explained_by is None and one.id not in NOT_OF_THE_NODE
    )


def settled(snapshot: Snapshot) -> Snapshot:
    """The record with what no rule tells apart set to one value; one whose variables name a GPU by
    its UUID stays as it is."""
    if any("GPU-" in value for value in snapshot.environment.values()):
        return snapshot
    memory, seconds = snapshot.memory, snapshot.driver.seconds
    whole = memory.total_bytes and memory.total_bytes // GIB * GIB
    return replace(
        snapshot,
        taken_at=snapshot.taken_at and snapshot.taken_at[:10],
        gpus=snapshot.gpus and tuple(map(_settled_gpu, snapshot.gpus)),
        driver=replace(snapshot.driver, seconds=seconds and max(seconds, QUICK_SECONDS)),
        memory=replace(memory, total_bytes=whole, available_bytes=None),
        disks=tuple(
            replace(disk, free_bytes=disk.free_bytes and min(disk.free_bytes, ENOUGH_BYTES))
            for disk in snapshot.disks
        ),
        readings=tuple(
            one for one in snapshot.readings if one.problem or not MEASURED.match(one.subject)
        ),
    )


def _settled_gpu(gpu: Gpu) -> Gpu:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    empty = used is not None and total is not None and used < EMPTY_SHARE * total
    quiet = {name: value for name in QUIET if (value := getattr(gpu, name)) is not None}
    return replace(
        gpu,
        uuid=gpu.uuid and "GPU",
        memory_used_bytes=1 if empty else used,
        processes=() if empty and gpu.processes is not None else gpu.processes,
        **{name: max(value, QUIET[name]) for name, value in quiet.items()},
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
        return "nonfatal" in event.values or event.values.get("number") in HARMLESS_XIDS
    return event.kind == "gpu-read-failed" and event.values.get("code") == NVML_NOT_SUPPORTED


Judged = Callable[[Snapshot], Findings]
