"""Every finding has a machine on which it is made, and one very like it on which it is not."""

from __future__ import annotations

from each_row import each
from judging import (
    HEALTHY,
    IN_DOCKER,
    SITE,
    changed,
    event,
    found,
    gpu,
    judged,
)

from gpusetup.model.finding import Severity
from gpusetup.model.machine import (
    Package,
    Snapshot,
)
from gpusetup.model.units import GIB

E, W, N = Severity.ERROR, Severity.WARNING, Severity.NOTE


def packages(*pairs: tuple[str, str], installer: str = "pip") -> tuple[Package, ...]:
    return tuple(
        Package(name=name, version=version, installer=installer, location=SITE)
        for name, version in pairs
    )


def xid(number: int) -> Snapshot:
    return changed(events=event("xid", f"NVRM: Xid: {number}", number=str(number)))


CASES: tuple[tuple[str, Severity, Snapshot, Snapshot], ...] = (
    # --- the process and its boundary ---
    (
        "container-driver-capability-missing",
        E,
        changed(
            IN_DOCKER,
            driver={"library_found": False},
            env={"NVIDIA_DRIVER_CAPABILITIES": "utility"},
        ),
        changed(
            IN_DOCKER,
            driver={"library_found": False},
            env={"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"},
        ),
    ),
    # --- the devices ---
    ("compute-mode-exclusive", E, gpu(compute_mode="Prohibited"), gpu(compute_mode="Default")),
    ("vgpu-unlicensed", W, changed(events=event("vgpu-unlicensed")), gpu(virtualization="vgpu")),
    ("pcie-degraded", W, gpu(pcie_width=4), gpu(pcie_width=8)),
    ("ecc-error", E, gpu(retired_pages=60), gpu(retired_pages=4)),
    (
        "gpu-memory-taken",
        W,
        gpu(memory_used_bytes=23 * GIB),
        gpu(memory_used_bytes=12 * GIB),
    ),
    (
        "mixed-conda-pip",
        E,
        changed(packages=packages(("torch", "2.5.1"), ("torch", "2.9.0"))),
        changed(packages=packages(("torch", "2.5.1"))),
    ),
    (
        "no-target",
        W,
        changed(events=event("stale-environment", variable="VIRTUAL_ENV", path="/gone")),
        HEALTHY,
    ),
)


@each("id, severity, ill, well", CASES)
def test_a_finding_is_made_where_it_holds_and_not_beside_it(
    id: str, severity: Severity, ill: Snapshot, well: Snapshot
) -> None:
    made = found(ill, id)
    assert made is not None and made.severity is severity, [f.id for f in judged(ill).findings]
    if severity is not N:
        assert made.fix is not None and made.fix.text
        assert all(one.source and one.text for one in made.evidence)
    assert made.evidence or severity is not E
    other = found(well, id)
    assert other is None or other.severity is not severity


DOCUMENTED_XIDS = (
    *(8, 11, 13, 25, 31, 32, 37, 38, 39, 43, 44, 45, 46, 48, 54, 60, 61, 62, 63, 64, 66, 67, 68),
    *(69, 74, 79, 80, 82, 92, 94, 95, 109, 110, 119, 120, 136, 137, 140, 141, 143, 144, 145, 146),
    *(147, 148, 149, 150, 154, 155, 156, 157, 158, 160, 161, 171, 172),
)
"""Xids with a meaning of their own on today's GPUs (NVIDIA's catalog), but for unused numbers."""


@each("number", DOCUMENTED_XIDS)
def test_every_xid_that_means_something_has_one_finding(number: int) -> None:
    healthy = {finding.id for finding in judged(HEALTHY).findings}
    ids = [finding.id for finding in judged(xid(number)).findings if finding.id not in healthy]
    assert len(ids) == 1, ids
