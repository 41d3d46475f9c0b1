"""The links between GPUs: NVLink's state and errors, the NVSwitch fabric's health."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.catalog.facts import nvlinks_of, switched
from gpusetup.evidence.context import RuleContext, gpus
from gpusetup.findings.layers import NCCL_SAYS, Layer
from gpusetup.findings.message_rules import finding, marked
from gpusetup.findings.record import Cause, Message
from gpusetup.fixes import which
from gpusetup.model.finding import Finding, Severity
from gpusetup.model.machine import Gpu

NVLINK_DEGRADED = Cause(
    id="nvlink-degraded",
    place=(Layer.LOSSES, 40),
    title="NVLinks are inactive, or were trained anew",
    means="What goes between GPUs is slower or takes the way over PCIe.",
    proven_by="Fewer active links than a GPU of the same kind, or, on a board with switches, than "
    "its model has (none at all is an error); recovery errors",
    not_when="One bridge between two cards, which uses a part of their links; places for links "
    "that the model lacks (an A100 has 12)",
    way_out="Reboot; look at the bridge and the seating",
    source="nvidia-smi's manual page (nvlink); NVML API reference, NvLink methods",
    message=Message(
        title="{who}: NVLinks are inactive, or had many errors since the driver's start",
        detail="What goes between these GPUs is slower, or takes the way over PCIe; NCCL may hang. "
        "A few errors are corrected and harmless; counts that grow mean a bad link.",
        text="Reboot, so that the links are trained anew (with NVSwitch after Fabric Manager has "
        "started); if they stay inactive or errors grow: the bridge between the cards, their "
        "seating, the board",
        commands=("sudo reboot",),
        look=("nvidia-smi nvlink -s", "nvidia-smi nvlink -e"),
        see="see the links",
        needs_root=True,
        needs_reboot=True,
    ),
)


def nvlink_degraded(context: RuleContext) -> Iterator[Finding]:
    """Links that carry nothing although their like do, or that had to be trained anew."""
    silent = [gpu for gpu in gpus(context) if _lacks_links(context, gpu)]
    none = [gpu for gpu in silent if not any(_alike(context, gpu))]
    trained = [
        gpu
        for gpu in gpus(context)
        if gpu.nvlink_recoveries or (gpu.nvlink_errors or 0) >= MANY_ERRORS
    ]
    if ill := none or silent or trained:
        fields = ("nvlinks_active", "nvlinks_inactive", "nvlink_recoveries", "nvlink_errors")
        evidence = marked(context, ill, *fields)
        less = Severity.WARNING if silent else Severity.NOTE
        only = None if none else less
        who = which.titled(context, ill)
        yield finding(context, NVLINK_DEGRADED, evidence, severity=only, who=who)


NVSWITCH_GPUS = 4
"""Boards with NVSwitch have at least so many GPUs (HGX: 4 without, 8 with; DGX 16)."""
MANY_ERRORS = 1000
"""Below that, errors that the links corrected by themselves are no word worth."""


def _alike(context: RuleContext, gpu: Gpu) -> list[int]:
    """How many active links the GPUs of its kind have."""
    return [g.nvlinks_active or 0 for g in gpus(context) if g.name == gpu.name]


def _lacks_links(context: RuleContext, gpu: Gpu) -> bool:
    """Compared with the GPUs of its kind; a board with switches uses every link of its model."""
    active, alike = gpu.nvlinks_active, _alike(context, gpu)
    if active is None or gpu.mig_enabled:
        return False
    part = len(alike) > 1 and active and gpu.virtualization != "passthrough"
    every = (len(alike) > NVSWITCH_GPUS or part) and switched(gpu.name, every_link=True)
    told = gpu.nvlinks_inactive or not active
    return active < max(alike) or bool(every and told and active < (nvlinks_of(gpu.name) or 0))


FABRIC_UNHEALTHY = Cause(
    id="fabric-unhealthy",
    kind_of="system-not-ready-fabric-manager",
    place=(Layer.LOSSES, 30),
    title="the NVSwitch fabric works, and not as it should",
    means="A route, its bandwidth or its configuration is at fault.",
    proven_by="NVML's fabric health, or a registration that ended with an error",
    not_when="system-not-ready-fabric-manager: then it is not set up at all",
    way_out="Fabric Manager's log; start it anew; reset the board's GPUs",
    source='NVML API reference, nvmlGpuFabricInfoV; NVIDIA, "Fabric Manager User Guide"',
    explains=("nvlink-degraded", *NCCL_SAYS),
    message=Message(
        title="The NVSwitch fabric is not healthy at {who}",
        text="Look what Fabric Manager says and start it anew with no program on the GPUs; if the "
        "fault comes back, reset all GPUs of the board or reboot; then have the board examined",
        commands=("sudo systemctl restart nvidia-fabricmanager",),
        look=(
            "nvidia-smi -q | grep -A 12 Fabric",
            "sudo journalctl -u nvidia-fabricmanager -b",
        ),
        see="see the fabric's state and the log first",
        needs_root=True,
    ),
)


def fabric_unhealthy(context: RuleContext) -> Iterator[Finding]:
    """The GPU is registered with the NVSwitch fabric, and the fabric does not work as it should."""
    registered = [gpu for gpu in gpus(context) if gpu.fabric_state == "completed"]
    failed = [gpu for gpu in registered if gpu.fabric_status not in (None, "success")]
    if ill := failed or [gpu for gpu in gpus(context) if gpu.fabric_faults]:
        evidence = marked(context, ill, "fabric_faults", "fabric_status")
        only = None if failed else Severity.WARNING
        who = which.titled(context, ill)
        yield finding(context, FABRIC_UNHEALTHY, evidence, severity=only, who=who)


RULES = (nvlink_degraded, fabric_unhealthy)
