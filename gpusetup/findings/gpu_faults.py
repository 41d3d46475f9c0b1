"""Faulty GPUs and links, GPUs that run slowly, and GPUs that are too old for a feature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpusetup.causes.record import RECORDS
from gpusetup.evidence.context import (
    RuleContext,
    cuda_errors,
    events,
    gib,
    gpus,
    is_cuda_build,
    is_report,
    on,
    whole_number,
)
from gpusetup.findings.message_rules import finding, marked, of_gpus, shown
from gpusetup.fixes import gpu_naming
from gpusetup.fixes.drivers import REBOOT
from gpusetup.model.finding import Finding, Findings, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Gpu, visible_gpus
from gpusetup.model.shell import Lines, filled, lines
from gpusetup.model.versions import Capability, parsed
from gpusetup.readings.nvidia_smi import recovery_action

SLOWDOWNS = {
    *("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "hw_power_brake"),
    "sw_thermal_slowdown",
}
"""The throttle reasons that mean a loss of speed, on a probed machine and in a text."""
AS_DESIGNED = {"sw_power_cap"}
"""A GPU at its power limit works as designed, so only the author of a text gets this finding."""
HOT_CELSIUS = 90
"""A GPU at this temperature or above counts as too hot, even if it reports no slowdown."""


def power_thermal_throttle(context: RuleContext) -> Findings:
    """GPUs whose clocks are lowered because of heat or a power limit, or that are just too hot."""
    reasons = SLOWDOWNS | AS_DESIGNED if is_report(context) else SLOWDOWNS
    slowed = [
        gpu
        for gpu in gpus(context)
        if not reasons.isdisjoint(gpu.throttle_reasons or ())
        or (gpu.temperature_celsius or 0) >= HOT_CELSIUS
    ]
    fields = ("temperature_celsius", "power_watts", "power_limit_watts", "throttle_reasons")
    if slowed:
        yield of_gpus(context, "power-thermal-throttle", slowed, *fields)


PCIE_LINK_FIELDS = ("pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max")

USUAL_LANES = 8
"""A link with this many lanes is not slow: boards with two slots give each of them eight."""


def pcie_degraded(context: RuleContext) -> Findings:
    """GPUs whose PCIe link uses at most half of its lanes, and fewer than `USUAL_LANES`."""
    # A lost GPU has its own finding.
    narrow = [
        gpu
        for gpu in gpus(context)
        if not gpu.lost and _is_narrow(gpu.pcie_width, gpu.pcie_width_max)
    ]
    messages = []
    for event in events(context, "pcie-degraded"):
        width, width_max = (whole_number(event.values.get(key)) for key in ("width", "width_max"))
        if _is_narrow(width, width_max):
            messages.append(event)
    if narrow or messages:
        yield of_gpus(context, "pcie-degraded", narrow, *PCIE_LINK_FIELDS, messages=messages)


def _is_narrow(width: int | None, width_max: int | None) -> bool:
    """Whether both numbers of lanes are known and the link is narrow. NVML reports 0 if it does
    not know a number."""
    if not width or not width_max:
        return False
    return width * 2 <= width_max and width < USUAL_LANES


MOSTLY_USED = 0.85
"""Above this share of used memory, little is left for another program."""


def memory_taken(context: RuleContext) -> Findings:
    """One finding for each visible GPU whose memory is mostly used by other processes."""
    for gpu in visible_gpus(context.snapshot):
        used = gpu.memory_used_bytes or 0
        # If the size is unknown, any used memory counts.
        if used > MOSTLY_USED * (gpu.memory_total_bytes or used):
            processes = ", ".join(
                f"{process.name} ({process.pid})" for process in gpu.processes or ()
            )
            evidence = shown(context, "gpus", f"{gib(used)} used {processes}")
            names = gpu_naming.gpus_in_title(context, (gpu,))
            yield finding(context, "gpu-memory-taken", (evidence,), who=names)


FIRST_WITH_BF16, FIRST_FOR_TRITON = Capability(8, 0), Capability(7, 0)
"""The first GPUs that multiply bfloat16 matrices (Ampere) and that Triton supports (Volta)."""


def too_old(context: RuleContext) -> Findings:
    """One finding for each feature that torch would use and that an older GPU lacks."""
    torch = context.torch
    # A build of torch for the CPU or another maker does not use these features.
    if not is_cuda_build(torch):
        return
    limits = [("bf16-unsupported", FIRST_WITH_BF16, Severity.NOTE)]
    # Only torch.compile, which came with torch 2.0, needs Triton. An unknown version counts as new.
    if torch.version is None or parsed(torch.version) >= parsed("2.0"):
        limits.append(("gpu-too-old-for-triton", FIRST_FOR_TRITON, Severity.WARNING))
    for cause, first, severity in limits:
        older = [
            gpu
            for gpu in visible_gpus(context.snapshot)
            if gpu.compute_capability and gpu.compute_capability < first
        ]
        if older:
            # One GPU is enough as an example.
            yield of_gpus(context, cause, older[:1], "compute_capability", severity=severity)


class DeviceFault(NamedTuple):
    """How a fault is recognized: by lines of the kernel log or values of nvidia-smi and NVML."""

    cause: str
    xids: str
    """The numbers of the fault's Xids (from NVIDIA's guide and catalog), separated by spaces."""
    fields: tuple[str, ...] = ()
    """The fields that mark a GPU with this fault."""


DEVICE_FAULTS = (
    DeviceFault("gpu-fell-off-bus", "79", ("lost",)),
    DeviceFault("gsp-timeout", "119 120"),
    DeviceFault(
        "ecc-error",
        "48 63 64 94 95 140 156 157 160 161 171 172",
        (
            *("ecc_uncorrected", "retired_pending", "remap_failed", "sram_threshold_exceeded"),
            "retired_pages",
        ),
    ),
    DeviceFault(
        "hardware-fault",
        "8 38 44 46 54 56 57 58 59 61 62 74 80 81 92 109 110 122 123 136 143 144 145 146 147 148 "
        "149 150 154 155 158 167 168 169",
        ("recovery_action",),
    ),
    DeviceFault(
        "cuda-program-error",
        "11 13 25 31 32 37 39 40 41 43 45 60 66 67 68 69 70 71 72 75 76 77 82 83 84 85 86 88 89 "
        "137 141",
    ),
)
"""The faults in the order in which they are checked, because earlier ones explain later ones."""

RECOVERY_XID = "154"
"""Xid 154 reports the recovery that another Xid needs. It is a fault only if no other is shown."""

UNCORRECTABLE = 214
"""cudaErrorECCUncorrectable."""

UNKNOWN_ERROR = "unknown error"
"""The value with which the record of `gpu-fell-off-bus` marks NVML's unspecific error."""

RETIRED_PAGES_MOST = 60
"""A GPU with this many retired pages must be replaced (NVIDIA, "Dynamic Page Retirement")."""

RESETS = {"gpu_reset", "drain_and_reset", "none", None}
"""Recovery actions of the driver for which resetting the GPU is enough; None if it gives none."""


def device_faults(context: RuleContext) -> Findings:
    """A finding for each fault that the driver or the kernel log shows: of the hardware, or of a
    program.

    A recovery action that the driver recommends is a finding too if no other fault is shown.
    """
    has_earlier_fault = False
    for fault in DEVICE_FAULTS:
        messages = _messages_of(context, fault, has_earlier_fault=has_earlier_fault)
        faulty = [gpu for gpu in gpus(context) if any(_marks(gpu, field) for field in fault.fields)]
        # The recommended action belongs to a fault that was found earlier in this loop.
        if fault.cause == "hardware-fault" and has_earlier_fault and not messages:
            continue
        if messages or faulty:
            has_earlier_fault = True
            yield _finding_of_fault(context, fault, messages, faulty)


def _finding_of_fault(
    context: RuleContext, fault: DeviceFault, messages: Sequence[Event], faulty: Sequence[Gpu]
) -> Finding:
    """The finding that names the GPUs and the Xids of a fault, and resets these GPUs if a reset is
    enough. `faulty` are the GPUs whose values show the fault."""
    # The same GPU may have a faulty value and be named in a message by its PCI address.
    by_slot = {
        gpu_naming.slot_key(gpu.pci_bus_id): gpu
        for gpu in (*faulty, *gpu_naming.gpus_at_slots(context, messages))
    }
    concerned = tuple(by_slot.values())
    # If there are several GPUs and no source shows which one it is, the title names none.
    is_named = concerned or len(gpus(context)) < 2
    xids = [
        f"{XID_WORDS[event.kind]} {event.values['number']}"
        for event in messages
        if event.kind in XID_WORDS and event.values.get("number")
    ]
    found = finding(
        context,
        fault.cause,
        (*messages, *marked(context, faulty, *fault.fields)),
        who=gpu_naming.gpus_in_title(context, concerned) if is_named else "The GPU",
        what=", ".join(dict.fromkeys(xids)) or "the driver recommends a reset",
    )
    # A driver that recommends a reboot knows that a reset is not enough. Faulty rows of the memory
    # are always replaced at a reset.
    may_reset = fault.cause == "ecc-error" or (
        fault.cause == "hardware-fault" and all(gpu.recovery_action in RESETS for gpu in faulty)
    )
    if found.fix is None or not may_reset:
        return found
    before_reset = tuple(line for line in found.fix.commands if line != REBOOT)
    commands = (*before_reset, *_reset_commands(context, concerned))
    return replace(found, fix=replace(found.fix, commands=commands))


XID_WORDS = {"xid": "Xid", "sxid": "SXid"}
"""Kind of event -> the word before its number in the kernel log; SXids are faults of NVSwitches."""


def _messages_of(
    context: RuleContext, fault: DeviceFault, *, has_earlier_fault: bool
) -> list[Event]:
    """The events that show a fault: its Xids, its messages, and CUDA's error."""
    messages = []
    for event in events(context, "xid"):
        number = event.values.get("number", "")
        # The recommendation after another fault belongs to that fault, and `to 0x0 (None)` means
        # that the GPU no longer needs a recovery.
        is_over = recovery_action(event.values.get("recovery")) == "none"
        is_no_fault = number == RECOVERY_XID and (has_earlier_fault or is_over)
        if number in fault.xids.split() and not is_no_fault:
            messages.append(event)
    # In WSL, "Unknown Error" for a GPU's handle does not mean that the GPU fell off the bus.
    for event in events(context, *RECORDS[fault.cause].kinds):
        if not (context.os.wsl and event.values.get("reason") == UNKNOWN_ERROR):
            messages.append(event)
    if fault.cause == "ecc-error":
        messages += cuda_errors(context, UNCORRECTABLE)
    return messages


def _marks(gpu: Gpu, field: str) -> bool:
    """Whether the value of this field shows a fault of the GPU."""
    value = getattr(gpu, field)
    # The recovery action of a healthy GPU is "none".
    if not value or value == "none":
        return False
    # In normal use, the driver retires single pages.
    return field != "retired_pages" or value >= RETIRED_PAGES_MOST


def _reset_commands(context: RuleContext, concerned: Sequence[Gpu]) -> Lines:
    """The command that resets these GPUs; all of them if none can be named."""
    # The command exists on Linux only (`sudo`).
    if on(context, "windows"):
        return ()
    if indices := gpu_naming.smi_list(concerned):
        return (filled("sudo nvidia-smi --gpu-reset -i {gpus}", gpus=indices),)
    return lines("sudo nvidia-smi --gpu-reset")


RULES = (
    power_thermal_throttle,
    pcie_degraded,
    memory_taken,
    too_old,
    device_faults,
)
