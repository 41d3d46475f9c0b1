"""Events as the first edition named them: its snapshots are read with the names of today."""

from __future__ import annotations

from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot

FORMER = {
    "check-failed": "gpu-check-failed",
    "container-capability-missing": "container-driver-capability-missing",
    "cuda-call-failed": "cuda-init-failed",
    "cuda-out-of-memory": "out-of-memory",
    "cuda-toolkit-mismatch": "cuda-toolkit-mismatch-extension-build",
    "cudnn-version-mismatch": "ld-library-path-conflict",
    "cxx-standard": "cxx-standard-too-old",
    "dll-missing": "windows-dll-missing",
    "download-forbidden": "site-not-writable",
    "fabric-manager-failed": "system-not-ready-fabric-manager",
    "gpu-missed-by-cuda": "cuda-misses-gpu",
    "gpu-requires-reset": "hardware-fault",
    "hardware-error": "hardware-fault",
    "internal-assert": "torch-internal-error",
    "libcuda-not-loaded": "libcuda-missing",
    "library-conflict": "ld-library-path-conflict",
    "mig-assert": "mig-misconfigured",
    "module-build-failed": "driver-build-failed",
    "module-key-rejected": "secure-boot-rejected",
    "module-not-inserted": "driver-not-loaded",
    "nccl-unavailable": "nccl-unavailable-windows",
    "no-gpu-at-build": "build-without-gpu",
    "nvml-call-failed": "nvml-init-failed",
    "nvrm-api-mismatch": "nvml-mismatch",
    "open-files": "open-files-limit",
    "out-of-memory-at-init": "cuda-init-out-of-memory",
    "pagefile-too-small": "windows-pagefile-too-small",
    "path-too-long": "windows-path-too-long",
    "pcie-limited": "pcie-degraded",
    "ptx-unsupported": "ptx-unsupported-toolchain",
    "requires-other": "requirement-broken",
    "static-tls": "static-tls-full",
    "tf32-enabled": "tf32-precision",
    "throttled": "power-thermal-throttle",
    "torch-header-gone": "extension-too-old-for-torch",
    "torch-libraries-mixed": "mixed-conda-pip",
}
"""A kind of event of the first edition -> its kind since then."""


def with_names_of_today(snapshot: Snapshot) -> Snapshot:
    """
    >>> from gpusetup.model.machine import Event
    >>> with_names_of_today(Snapshot(events=(Event(kind="open-files"),))).events[0].kind
    'open-files-limit'
    """
    events = snapshot.events
    if not any(event.kind in FORMER for event in events):
        return snapshot
    renamed = (replace(event, kind=FORMER.get(event.kind, event.kind)) for event in events)
    return replace(snapshot, events=tuple(renamed))
