"""The findings of many machines: alike ones are judged once.

Nodes of one fleet differ in what no rule tells apart: a GPU's UUID, a temperature of 31 or 34 °C.
`settled` sets such values to one of their kind; two records that are equal then have the same
findings, and the second one costs a look into a table. What is near a rule's limit stays exact.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.fleet.harmless import without_harmless
from gpusetup.fleet.nodes import NodeFinding
from gpusetup.model.codec import to_json
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Gpu, Snapshot
from gpusetup.model.units import GIB

if TYPE_CHECKING:
    from gpusetup.catalog.builds import Catalog

COOL_CELSIUS = 70
IDLE_PERCENT = 10
EMPTY_SHARE = 0.1
ENOUGH_BYTES = 64 * GIB
QUICK_SECONDS = 1.0
"""Below, or above, no rule says anything; each is far from the nearest limit of a rule."""

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


def found(snapshot: Snapshot, catalog: Catalog) -> Findings:
    """Doctor's findings in short, the root first."""
    return tuple(
        NodeFinding(id=one.id, severity=one.severity, title=one.title, root=one.root)
        for one in diagnose(without_harmless(snapshot), catalog).findings
    )


def settled(snapshot: Snapshot) -> Snapshot:
    """The record with what no rule tells apart set to one value."""
    named = any("GPU-" in value for value in snapshot.environment.values())
    memory, driver = snapshot.memory, snapshot.driver
    whole = memory.total_bytes and memory.total_bytes // GIB * GIB
    return replace(
        snapshot,
        taken_at=snapshot.taken_at and snapshot.taken_at[:10],
        gpus=snapshot.gpus and tuple(_settled_gpu(gpu, named) for gpu in snapshot.gpus),
        driver=replace(driver, seconds=_below(driver.seconds, QUICK_SECONDS)),
        memory=replace(memory, total_bytes=whole, available_bytes=None),
        disks=tuple(
            replace(disk, free_bytes=disk.free_bytes and min(disk.free_bytes, ENOUGH_BYTES))
            for disk in snapshot.disks
        ),
        readings=tuple(
            replace(one, value="told") if one.value and MEASURED.match(one.subject) else one
            for one in snapshot.readings
        ),
    )


MEASURED = re.compile(r"(?:gpus|driver\.seconds)$|(?:disks|memory)(?:\.|$)")
"""Subjects of readings whose text has such values in it."""


def _settled_gpu(gpu: Gpu, keep_uuid: bool) -> Gpu:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    empty = used is not None and total is not None and used < EMPTY_SHARE * total
    return replace(
        gpu,
        uuid=gpu.uuid if keep_uuid or gpu.uuid is None else "GPU",
        temperature_celsius=_below(gpu.temperature_celsius, COOL_CELSIUS),
        utilization_percent=_below(gpu.utilization_percent, IDLE_PERCENT),
        power_watts=gpu.power_watts and 1.0,
        memory_used_bytes=1 if empty else used,
        processes=() if empty and gpu.processes is not None else gpu.processes,
    )


def _below(value: float | None, limit: float) -> float | None:
    return 0 if value is not None and value < limit else value


Judged = Callable[[Snapshot], Findings]
