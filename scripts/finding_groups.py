"""Where the message of a finding comes from: the groups of the index."""

from __future__ import annotations

from gpusetup.causes import container_engines, containers, parallel
from gpusetup.causes.layers import STAGES, Layer
from gpusetup.causes.record import RECORDS, Cause
from gpusetup.diagnosis.explanations import records

GROUPS = (
    "Installing",
    "Importing",
    "Starting on the GPU",
    "Running",
    "Several GPUs",
    "Containers, Kubernetes and WSL",
    "Driver and hardware",
)
"""Where a message comes from, in the order of a first evening with PyTorch."""
GROUP_OF_STAGE = {
    "install": "Installing",
    "build": "Installing",
    "import": "Importing",
    "start": "Starting on the GPU",
    "first-kernel": "Starting on the GPU",
    "running": "Running",
    "distributed": "Several GPUs",
}


def group_of(record: Cause) -> str:
    """The group of the index that a finding stands in."""
    if record in parallel.CAUSES:
        return "Several GPUs"
    layer = record.place[0] if record.place else None
    if record in (*containers.CAUSES, *container_engines.CAUSES) or layer is Layer.BOUNDARY:
        return "Containers, Kubernetes and WSL"
    if layer in (Layer.HARDWARE, Layer.DRIVER):
        return "Driver and hardware"
    default_stage = STAGES.get(layer, "start") if layer else "running"
    return GROUP_OF_STAGE[record.stage or default_stage]


def finding_ids() -> frozenset[str]:
    """Every id that has a page."""
    return frozenset(record.id for record in records()) | frozenset(RECORDS)
