"""The links between GPUs: NVLink's state and errors, the NVSwitch fabric's health."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpusetup.catalog.facts import nvlinks_of, switched
from gpusetup.evidence.context import RuleContext, gpus, numbered, value_evidence
from gpusetup.findings.driver.cuda_api import NVSWITCH_GPUS
from gpusetup.findings.layers import NCCL_SAYS, Layer
from gpusetup.findings.record import Cause
from gpusetup.fixes import paste, which
from gpusetup.model.finding import Finding, Fix
from gpusetup.model.machine import Gpu
from gpusetup.model.shell import lines

LINES = 8


def nvlink_degraded(context: RuleContext) -> Iterator[Finding]:
    """Links that carry nothing although their like do, or that had to be trained anew."""
    silent = [gpu for gpu in gpus(context) if _lacks_links(context, gpu)]
    none = [gpu for gpu in silent if not any(_alike(context, gpu))]
    some = [gpu for gpu in silent if gpu not in none]
    trained = [gpu for gpu in gpus(context) if _has_errors(gpu) and gpu not in silent]
    if none:
        yield _inactive(context, none, NVLINK_DEGRADED.found)
    if some:
        yield _inactive(context, some, NVLINK_DEGRADED.as_warning)
    if trained:
        yield _retrained(context, trained)


MANY_ERRORS = 1000
"""Below that, errors that the links corrected by themselves are no word worth."""


def _has_errors(gpu: Gpu) -> bool:
    return bool(gpu.nvlink_recoveries) or (gpu.nvlink_errors or 0) >= MANY_ERRORS


def _alike(context: RuleContext, gpu: Gpu) -> list[int]:
    """How many active links the GPUs of its kind have."""
    return [g.nvlinks_active or 0 for g in gpus(context) if g.name == gpu.name]


def _lacks_links(context: RuleContext, gpu: Gpu) -> bool:
    """Compared with the GPUs of its kind; a board with switches uses every link of its model."""
    active, alike = gpu.nvlinks_active, _alike(context, gpu)
    if active is None or gpu.mig_enabled:
        return False
    board = len(alike) > NVSWITCH_GPUS
    part = len(alike) > 1 and active and gpu.virtualization != "passthrough"
    every = (board or part) and switched(gpu.name, every_link=True)
    told = gpu.nvlinks_inactive or not active
    return active < max(alike) or bool(every and told and active < (nvlinks_of(gpu.name) or 0))


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
)


def _inactive(context: RuleContext, silent: list[Gpu], make: Callable[..., Finding]) -> Finding:
    what = (
        "NVLinks that are inactive" if any(g.nvlinks_active for g in silent) else "no active NVLink"
    )
    return make(
        f"{which.titled(context, silent)} {which.have(silent)} {what}",
        detail="What goes between these GPUs is slower, or takes the way over PCIe; NCCL may hang.",
        evidence=tuple(value_evidence(context, "gpus", _links_line(gpu)) for gpu in silent[:LINES]),
        fix=Fix(
            text="Reboot, so that the links are trained anew (with NVSwitch after Fabric Manager "
            "has started); if they stay inactive: the bridge between the cards, their seating, the "
            "board",
            commands=paste.posix(context, "sudo reboot"),
            looks=paste.look(
                "see the links, and what the kernel says of them",
                *paste.posix(context, "nvidia-smi nvlink -s", "sudo dmesg | grep -iE 'nvlink|xid'"),
            ),
            needs_root=True,
            needs_reboot=True,
        ),
    )


def _links_line(gpu: Gpu) -> str:
    has = nvlinks_of(gpu.name)
    silent = (link for link in gpu.nvlinks_inactive or () if has is None or link < has)
    names = ", ".join(map(str, silent))
    which_ones = f", link {names} inactive" if names else ""
    return f"{numbered(gpu)}: {gpu.nvlinks_active} links active{which_ones}"


def _retrained(context: RuleContext, trained: list[Gpu]) -> Finding:
    anew = any(gpu.nvlink_recoveries for gpu in trained)
    what = "NVLinks had to be trained anew" if anew else "NVLinks had many errors"
    return NVLINK_DEGRADED.as_note(
        f"{which.titled(context, trained)}: {what} since the driver's start",
        detail="A few such errors are corrected and harmless; counts that grow mean a bad link.",
        evidence=tuple(
            value_evidence(
                context,
                "gpus",
                f"{numbered(gpu)}: {gpu.nvlink_recoveries or 0} recoveries, "
                f"{gpu.nvlink_errors} errors",
            )
            for gpu in trained[:LINES]
        ),
        fix=Fix(
            text="Look whether the counts grow under load",
            looks=paste.look("see the counts", *lines("nvidia-smi nvlink -e")),
        ),
    )


FAULTS = {
    "bandwidth_degraded": "less bandwidth than it should have",
    "route_recovery": "a route is being recovered",
    "route_unhealthy": "a route is unhealthy",
    "access_timeout_recovery": "it recovers from an access that timed out",
    "limited_capacity": "limited capacity",
    "no_partition": "the GPU is in no partition",
    "insufficient_nvlinks": "too few NVLinks",
    "incompatible_gpu_fw": "the GPU's firmware does not fit",
    "invalid_location": "the GPU's place is not valid",
    "incorrect_sysguid": "a wrong system GUID",
    "incorrect_chassis_sn": "a wrong chassis number",
    "gpu_state_invalid": "the GPU's state is not valid",
    "unhealthy": "it is unhealthy",
}
"""What NVML calls the fabric's faults, in words."""


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
)


def fabric_unhealthy(context: RuleContext) -> Iterator[Finding]:
    """The GPU is registered with the NVSwitch fabric, and the fabric does not work as it should."""
    failed = [g for g in gpus(context) if g.fabric_state == "completed" and _status_failed(g)]
    ill = [g for g in gpus(context) if g.fabric_faults or g in failed]
    if not ill:
        return
    faults = dict.fromkeys(fault for gpu in ill for fault in _faults(gpu))
    make = FABRIC_UNHEALTHY.found if failed else FABRIC_UNHEALTHY.as_warning
    yield make(
        f"The NVSwitch fabric is not healthy at {which.titled(context, ill)}: {'; '.join(faults)}",
        evidence=tuple(
            value_evidence(context, "gpus", f"{numbered(gpu)}: fabric {', '.join(_faults(gpu))}")
            for gpu in ill[:LINES]
        ),
        fix=Fix(
            text="Look what Fabric Manager says and start it anew with no program on the GPUs; if "
            "the fault comes back, reset all GPUs of the board or reboot; then have the board "
            "examined",
            commands=paste.posix(context, "sudo systemctl restart nvidia-fabricmanager"),
            looks=paste.look(
                "see the fabric's state and the log first",
                *paste.posix(
                    context,
                    "nvidia-smi -q | grep -A 12 Fabric",
                    "sudo journalctl -u nvidia-fabricmanager -b",
                ),
            ),
            needs_root=True,
        ),
    )


def _status_failed(gpu: Gpu) -> bool:
    return gpu.fabric_status not in (None, "success")


def _faults(gpu: Gpu) -> tuple[str, ...]:
    named = tuple(FAULTS.get(one, one.replace("_", " ")) for one in gpu.fabric_faults or ())
    status = f"its registration ended with: {gpu.fabric_status}"
    return (*((status,) if _status_failed(gpu) else ()), *named)


RULES = (nvlink_degraded, fabric_unhealthy)
