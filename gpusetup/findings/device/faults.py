"""What the kernel's log, the driver or CUDA say of a GPU that is at fault, or of a program's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpusetup.evidence.context import RuleContext, cuda_errors, events, gpus, on, one_of
from gpusetup.findings import alike
from gpusetup.findings.layers import KERNELS_FAIL, NCCL_SAYS, SILENCE, Layer
from gpusetup.findings.message_rules import case_of, fix_of, from_message, marked, shown
from gpusetup.findings.record import Alike, Cause, Message
from gpusetup.fixes import which
from gpusetup.messages.recovery import recovery_action
from gpusetup.model.finding import Finding, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Gpu
from gpusetup.model.shell import Line, filled, lines

XID_GUIDE = 'NVIDIA, "Xid Errors"'
BUG_REPORT = ("sudo nvidia-bug-report.sh",)
GATHER = "gather first what NVIDIA asks for, where it comes back"

GPU_FELL_OFF_BUS = Cause(
    id="gpu-fell-off-bus",
    place=(Layer.HARDWARE, 10),
    title="the GPU no longer answers on the bus",
    means="Power, heat, seating, or power saving of the link.",
    proven_by="Xid 79, `GPU is lost`",
    way_out="Reboot; look at power and seating",
    source=XID_GUIDE,
    explains=(
        *SILENCE,
        "gpu-init-failed",
        "driver-not-loaded",
        "pcie-degraded",
        "nvlink-degraded",
        "fabric-unhealthy",
        "gpu-hang",
        *KERNELS_FAIL,
    ),
    message=Message(
        title="{who} {have} fallen off the PCI bus",
        text="Reboot (a full power-off is better); if it comes back: power cables and supply, "
        "heat, seating or riser, `pcie_aspm=off` on the kernel command line",
        commands=("sudo reboot",),
        needs_root=True,
        needs_reboot=True,
    ),
    alike=(
        Alike(
            causes=("hardware-fault", "gpu-does-not-answer"),
            asks=alike.KERNEL_LOG,
            unless=alike.says_lost,
        ),
    ),
)


GSP_TIMEOUT = Cause(
    id="gsp-timeout",
    place=(Layer.HARDWARE, 20),
    title="the GPU's system processor does not answer",
    means="Firmware or hardware.",
    proven_by="Xid 119 or 120",
    way_out="Reboot, update the driver",
    source=XID_GUIDE,
    explains=(*SILENCE, "gpu-init-failed", "driver-slow", "gpu-hang"),
    message=Message(
        title="The system processor (GSP) of {who} does not answer",
        text="Reboot; if it comes back, update the driver",
        commands=("sudo reboot",),
        other=(
            "echo 'options nvidia NVreg_EnableGpuFirmware=0' "
            "| sudo tee /etc/modprobe.d/nvidia-gsp.conf",
            "sudo reboot",
        ),
        other_title="switch the GSP firmware off, where it comes back and the kernel modules are "
        "the closed ones",
        needs_root=True,
        needs_reboot=True,
    ),
)


ECC_ERROR = Cause(
    id="ecc-error",
    place=(Layer.HARDWARE, 40),
    title="memory errors that ECC cannot correct",
    means="A memory row is bad; after a reset it is remapped, until there are no spare rows.",
    proven_by="Uncorrected errors, a failed or pending remapping, 60 retired pages, the SRAM "
    "threshold, Xid 48, 63, 64, 94, 95, 140, 156, 157, 160, 161, 171, 172; code 214",
    not_when="Corrected errors, which are harmless",
    way_out="Reset; replace if remapping failed",
    source='NVIDIA, "Xid Errors", "GPU Memory Error Management", "Dynamic Page Retirement"',
    explains=("gpu-init-failed", "gpu-hang", *KERNELS_FAIL),
    message=Message(
        title="{who}: memory errors that ECC cannot correct",
        text="Reset the GPU or reboot, so that bad rows are remapped; a GPU whose remapping failed "
        "must be replaced",
        look=('nvidia-smi -q -d "ECC,ROW_REMAPPER,PAGE_RETIREMENT"',),
        see="see the counters",
        needs_root=True,
        needs_reboot=True,
    ),
)


GPU_HANG = Cause(
    id="gpu-hang",
    kind_of="hardware-fault",
    place=(Layer.HARDWARE, 50),
    title="the GPU hung",
    means="A kernel that does not end, a fault of the driver, or a GPU that is not stable.",
    proven_by="Xid 8, 38, 44, 46, 109",
    not_when="gpu-fell-off-bus, gsp-timeout, hardware-fault, ecc-error: then that is why",
    way_out="End the program, reset the GPU, update the driver; then look at the hardware",
    source='NVIDIA, "Xid Errors", catalog',
    explains=(*KERNELS_FAIL, *NCCL_SAYS),
    message=Message(
        title="{who} hung ({what})",
        detail="A kernel that does not end, a fault of the driver, or a GPU that is not stable "
        "(overclocking, power, heat).",
        text="End the program and reset the GPU, or reboot (a GPU that drives a display cannot be "
        "reset); update the driver. If other programs hang it too: take back overclocking, look at "
        "power and heat, and have the GPU examined",
        look=BUG_REPORT,
        see=GATHER,
        needs_root=True,
        needs_reboot=True,
    ),
)


HARDWARE_FAULT = Cause(
    id="hardware-fault",
    place=(Layer.HARDWARE, 30),
    title="another hardware fault",
    means="Micro-controller, NVLink, power connectors.",
    proven_by="What the driver recommends (a reset, a reboot: NVML, Xid 154); "
    "Xid 54, 56 to 59, 61, 62, 74, 80, 81, 92, 110, 122, 123, 136, 143 to 150, 154, 155, "
    "158, 167 to 169; an SXid that is not non-fatal",
    not_when="Xid 13, 31, 43, 45: a program's own fault; Xid 8, 109: gpu-hang",
    way_out="Reset or reboot; another branch of the driver; field diagnostic",
    source=XID_GUIDE,
    explains=(
        *SILENCE,
        "gpu-init-failed",
        "gpu-hang",
        "compute-mode-exclusive",
        "nvlink-degraded",
        "fabric-unhealthy",
        *KERNELS_FAIL,
        *NCCL_SAYS,
    ),
    events=("hardware-fault", "sxid"),
    message=Message(
        title="{who} reported a fault: {what}",
        text="Reset the GPU or reboot: the driver or the GPU's firmware may have stopped. If it "
        "comes back, install another branch of the driver; only where it comes back under that "
        "too, look at heat and power and run NVIDIA's field diagnostic",
        commands=("sudo reboot",),
        look=BUG_REPORT,
        see=GATHER,
        needs_root=True,
        needs_reboot=True,
        # Memory, links, power, display; the others are the driver's or the firmware's as well.
        cases=(
            Message(
                having={"number": "^(?:54|56|57|58|74|80|81|92|136|14[3-9]|150|167)$"},
                title="{who} reported a hardware fault: {what}",
                text="Reboot; if it comes back, run NVIDIA's field diagnostic and have the GPU "
                "replaced",
            ),
        ),
    ),
)


XID_OF_A_PROGRAM = Cause(
    id="xid-of-a-program",
    severity=Severity.NOTE,
    title="Xids that a program's own fault causes",
    means="A bad address or a killed process.",
    proven_by="Xid 11, 13, 31, 32, 43, 45, 68, 69 and those of the copy and video engines",
    not_when="hardware-fault",
    way_out="Nothing on the machine",
    source=XID_GUIDE,
    kind_of="cuda-program-error",
    message=Message(
        title="The kernel log holds Xids that a program's own fault causes: {what}",
        detail="A bad address, an illegal instruction, a kill; the GPU works on.",
        text="Start the program again; if it comes back, find the kernel that fails: with this "
        "setting the traceback names it, and so does `compute-sanitizer`, slowly",
        commands=("export CUDA_LAUNCH_BLOCKING=1",),
    ),
    failure=6,
)


FAULTS = (
    (GPU_FELL_OFF_BUS, "79", ("lost",)),
    (GSP_TIMEOUT, "119 120", ()),
    (
        ECC_ERROR,
        "48 63 64 94 95 140 156 157 160 161 171 172",
        (
            *("ecc_uncorrected", "retired_pending", "remap_failed", "sram_threshold_exceeded"),
            "retired_pages",
        ),
    ),
    (GPU_HANG, "8 38 44 46 109", ()),
    (
        HARDWARE_FAULT,
        "54 56 57 58 59 61 62 74 80 81 92 110 122 123 136 143 144 145 146 147 148 149 150 154 155 "
        "158 167 168 169",
        ("recovery_action",),
    ),
    (
        XID_OF_A_PROGRAM,
        "11 13 25 31 32 37 39 40 41 43 45 60 66 67 68 69 70 71 72 75 76 77 82 83 84 85 86 88 89 "
        "137 141",
        (),
    ),
)
"""A cause, its Xids (NVIDIA's guide and catalog), and the fields that mark a GPU."""
FOLLOWS = "154"
"""Says what another Xid asks for; a fault of its own only where nothing else is shown."""
UNCORRECTABLE = 214
"""cudaErrorECCUncorrectable."""
RETIRED_PAGES_MOST = 60
"""From so many retired pages on the GPU is to be replaced (NVIDIA, "Dynamic Page Retirement")."""
ACTIONS = {
    "gpu_reset": "reset the GPU",
    "drain_and_reset": "start nothing new on the GPU, and reset it when its programs have ended",
    "drain_p2p": "end what goes between GPUs, so that their links can be reset",
    "recover_imex_domain": "recover the IMEX domain",
    "bus_reset": "reset the GPU's PCI bus (a reboot does it)",
    "node_reboot": "reboot the machine",
    "system_reboot": "reboot the whole system",
}
"""NVML's recovery actions in words (nvml.h, nvmlDeviceGpuRecoveryAction_t)."""
RESETS = {"gpu_reset", "drain_and_reset"}


def device_faults(context: RuleContext) -> Iterator[Finding]:
    """A fault of the hardware, or a program's; what the driver recommends alone is one too."""
    recommended = _recommended(context)
    xids, found = events(context, "xid"), False
    for cause, numbers, fields in FAULTS:
        said = [e for e in xids if e.values.get("number", "") in numbers.split()]
        # A recommendation of the driver belongs to the fault before it, or is past.
        said = [
            e for e in said if e.values["number"] != FOLLOWS or not (found or _past(e, recommended))
        ]
        # In WSL somebody's "fell off the bus" is no word of a kernel.
        wsl = context.snapshot.os.wsl
        said += [e for e in events(context, *cause.kinds) if not (wsl and e.values.get("said"))]
        said += cuda_errors(context, UNCORRECTABLE) if cause is ECC_ERROR else ()
        bad = [gpu for gpu in gpus(context) if any(_marks(gpu, name) for name in fields)]
        if said or (bad and not (found and cause is HARDWARE_FAULT)):
            found = True
            evidence = (*said, *marked(context, bad, *fields), *recommended.values())
            yield _fault(context, cause, evidence, concerned_gpus(context, bad, said), recommended)


def _past(event: Event, recommended: Mapping[str, Event]) -> bool:
    return "recovery" in event.values and not recommended


def _marks(gpu: Gpu, field: str) -> bool:
    value = getattr(gpu, field)
    if field == "recovery_action":
        return value in ACTIONS
    return bool(value) and (field != "retired_pages" or value >= RETIRED_PAGES_MOST)


def _recommended(context: RuleContext) -> dict[str, Event]:
    """What the driver recommends: NVML's answer, else the kernel's last word."""
    told = [(gpu.recovery_action, gpu.name) for gpu in gpus(context) if gpu.recovery_action]
    by_kernel = [
        (recovery_action(event.values.get("recovery")), event.text or "the kernel")
        for event in events(context, "xid")
    ]
    return {
        action: shown(context, "gpus", f"{of}: the driver recommends to {ACTIONS[action]}")
        for action, of in told or by_kernel
        if action in ACTIONS
    }


def _fault(
    context: RuleContext,
    cause: Cause,
    said: tuple[Event, ...],
    concerned: Sequence[Gpu],
    recommended: Mapping[str, Event],
) -> Finding:
    numbers = [f"{e.kind.replace('xid', 'Xid')} {n}" for e in said if (n := e.values.get("number"))]
    named = concerned or len(gpus(context)) < 2
    message, _ = case_of(context, cause.message or Message(), said)
    fix = replace(fix_of(context, cause.message or Message(), said), text=message.text)
    by_reset = cause is HARDWARE_FAULT and recommended and recommended.keys() <= RESETS
    if by_reset or cause in (ECC_ERROR, GPU_HANG):
        fix = replace(fix, commands=_reset(context, concerned))
    return from_message(
        context,
        cause,
        message,
        said,
        fix=fix,
        who=which.titled(context, concerned) if named else "The GPU",
        have=which.have(concerned),
        what=one_of(tuple(numbers)) or "the driver recommends a reset",
    )


def concerned_gpus(
    context: RuleContext, marked: Sequence[Gpu], said: Sequence[Event]
) -> tuple[Gpu, ...]:
    """The GPUs that a source marks, and those whose slots events name, each once."""
    both = (*marked, *which.at_slots(context, said))
    return tuple({which.short(gpu.pci_bus_id): gpu for gpu in both}.values())


def _reset(context: RuleContext, concerned: Sequence[Gpu]) -> tuple[Line, ...]:
    """The command that resets these GPUs; all of them where none can be named."""
    if on(context, "windows"):
        return ()
    if not (chosen := which.selected(concerned)):
        return lines("sudo nvidia-smi --gpu-reset")
    return (filled("sudo nvidia-smi --gpu-reset -i {gpus}", gpus=chosen),)


RULES = (device_faults,)
