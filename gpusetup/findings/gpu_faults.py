"""Faulty GPUs and links, GPUs that run slowly, and GPUs that are too old for a feature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpusetup.catalog.facts import nvlinks_of
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
from gpusetup.findings.message_rules import (
    case_of,
    finding,
    fix_of,
    marked,
    of_gpus,
    shown,
)
from gpusetup.fixes import gpu_naming
from gpusetup.model.finding import Findings, Fix, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Events, Gpu, visible_gpus
from gpusetup.model.shell import Lines, filled, lines
from gpusetup.model.versions import Capability, parsed
from gpusetup.readings.nvidia_smi import recovery_action

SLOWDOWNS = {
    "hw_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "hw_power_brake",
    "sw_thermal_slowdown",
}
"""The throttle reasons that mean a loss of speed, on a probed machine and in a text."""


AS_DESIGNED = {"sw_power_cap"}
"""A GPU at its power limit works as designed, so this is a finding only in a text, whose author
asks about it."""


HOT_CELSIUS = 90
"""A GPU at this temperature or above counts as too hot, even if it reports no slowdown."""


def power_thermal_throttle(context: RuleContext) -> Findings:
    """GPUs whose clocks are lowered because of heat or a power limit."""
    # A power limit that the GPU reaches by design counts only in a text, whose author asks about
    # it.
    counted_reasons = SLOWDOWNS | AS_DESIGNED if is_report(context) else SLOWDOWNS
    slowed_gpus = []
    for gpu in gpus(context):
        is_slowed = bool(counted_reasons & set(gpu.throttle_reasons or ()))
        if is_slowed or (gpu.temperature_celsius or 0) >= HOT_CELSIUS:
            slowed_gpus.append(gpu)
    fields = ("temperature_celsius", "power_watts", "power_limit_watts", "throttle_reasons")
    evidence = marked(context, slowed_gpus, *fields)
    if evidence:
        names = gpu_naming.gpus_in_title(context, slowed_gpus)
        yield finding(context, "power-thermal-throttle", evidence, who=names)


PCIE_LINK_FIELDS = ("pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max")


def pcie_degraded(context: RuleContext) -> Findings:
    """GPUs whose PCIe link uses far fewer lanes than it could."""
    narrow_gpus = []
    for gpu in gpus(context):
        # A lost GPU has its own finding.
        if not gpu.lost and _is_narrow(gpu.pcie_width, gpu.pcie_width_max):
            narrow_gpus.append(gpu)
    narrow_events = []
    for event in events(context, "pcie-degraded"):
        if _is_narrow(whole_number(event.values.get("width")), event.values.get("width_max")):
            narrow_events.append(event)
    evidence = (*narrow_events, *marked(context, narrow_gpus, *PCIE_LINK_FIELDS))
    if evidence:
        yield finding(
            context,
            "pcie-degraded",
            evidence,
            who=gpu_naming.gpus_in_title(context, narrow_gpus),
            have=gpu_naming.has_or_have(narrow_gpus),
        )


def _is_narrow(width: int | None, width_max: int | str | None) -> bool:
    """Whether a PCIe link has at most half of its lanes, and fewer than 8."""
    # A width of 0 is no width, and without both numbers nothing can be compared.
    if not width or not width_max:
        return False
    # Eight lanes of sixteen are usual on boards with two slots.
    return width * 2 <= int(width_max) and width < 8


MOSTLY_USED = 0.85
"""Above this share of used memory, little is left for another program."""


def memory_taken(context: RuleContext) -> Findings:
    """One finding for each visible GPU whose memory is mostly used by other processes."""
    for gpu in visible_gpus(context.snapshot):
        used_bytes = gpu.memory_used_bytes or 0
        # If the size is unknown, any used memory counts.
        if used_bytes <= MOSTLY_USED * (gpu.memory_total_bytes or used_bytes):
            continue
        holders = [f"{process.name} ({process.pid})" for process in gpu.processes or ()]
        evidence = shown(context, "gpus", f"{gib(used_bytes)} used {', '.join(holders)}")
        names = gpu_naming.gpus_in_title(context, (gpu,))
        yield finding(context, "gpu-memory-taken", (evidence,), who=names)


class AgeLimit(NamedTuple):
    """A feature that GPUs below a compute capability lack."""

    cause: str
    first_capability: Capability
    """The first compute capability that has the feature."""
    severity: Severity


NO_BF16 = AgeLimit("bf16-unsupported", Capability(8, 0), Severity.NOTE)
NO_TRITON = AgeLimit("gpu-too-old-for-triton", Capability(7, 0), Severity.WARNING)


def too_old(context: RuleContext) -> Findings:
    """One finding for each feature that torch would use and that an older GPU lacks."""
    torch = context.torch
    # A build of torch for the CPU or another maker does not use these features.
    if not is_cuda_build(torch):
        return
    limits = [NO_BF16]
    # Only torch.compile needs Triton. An unknown version counts as new.
    if parsed(torch.version or "99") >= parsed(context.catalog.milestone("torch.compile")):
        limits.append(NO_TRITON)
    for limit in limits:
        for gpu in visible_gpus(context.snapshot):
            capability = gpu.compute_capability
            if capability and capability < limit.first_capability:
                yield of_gpus(
                    context, limit.cause, (gpu,), "compute_capability", severity=limit.severity
                )
                # One GPU is enough as an example.
                break


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
    DeviceFault("gpu-hang", "8 38 44 46 109"),
    DeviceFault(
        "hardware-fault",
        "54 56 57 58 59 61 62 74 80 81 92 110 122 123 136 143 144 145 146 147 148 149 150 154 155 "
        "158 167 168 169",
        ("recovery_action",),
    ),
    DeviceFault(
        "xid-of-a-program",
        "11 13 25 31 32 37 39 40 41 43 45 60 66 67 68 69 70 71 72 75 76 77 82 83 84 85 86 88 89 "
        "137 141",
    ),
)
"""The faults in the order in which they are checked, because earlier ones explain later ones."""


RECOVERY_XID = "154"
"""Xid 154 reports the recovery that another Xid needs. It counts as a fault only if no other Xid is
shown."""


UNCORRECTABLE = 214
"""cudaErrorECCUncorrectable."""


RETIRED_PAGES_MOST = 60
"""A GPU with this many retired pages must be replaced (NVIDIA, "Dynamic Page Retirement")."""


RESETS = {"gpu_reset", "drain_and_reset"}
"""Recovery actions of the driver for which resetting the GPU is enough."""


def device_faults(context: RuleContext) -> Findings:
    """A finding for each fault that the driver or the kernel log shows: of the hardware, or of a
    program.

    A recovery action that the driver recommends is a finding too if no other fault is shown.
    """
    listed_gpus = gpus(context)
    has_earlier_fault = False
    for fault in DEVICE_FAULTS:
        messages = _messages_of(context, fault, has_earlier_fault=has_earlier_fault)
        faulty_gpus = [
            gpu for gpu in listed_gpus if any(_marks(gpu, field) for field in fault.fields)
        ]
        # The recommended action belongs to a fault that was found earlier in this loop.
        is_consequence = fault.cause == "hardware-fault" and has_earlier_fault
        if not messages and (not faulty_gpus or is_consequence):
            continue
        has_earlier_fault = True
        concerned = concerned_gpus(context, faulty_gpus, messages)
        # If there are several GPUs and no source shows which one it is, the title names none.
        names = "The GPU"
        if concerned or len(listed_gpus) < 2:
            names = gpu_naming.gpus_in_title(context, concerned)
        evidence = (*messages, *marked(context, faulty_gpus, *fault.fields))
        yield finding(
            context,
            fault.cause,
            evidence,
            fix=_fix_of_fault(context, fault, evidence, faulty_gpus),
            who=names,
            have=gpu_naming.has_or_have(concerned),
            what=_xids_in_words(messages) or "the driver recommends a reset",
        )


def _messages_of(
    context: RuleContext, fault: DeviceFault, *, has_earlier_fault: bool
) -> list[Event]:
    """The events that show a fault: its Xids, its messages, and CUDA's error."""
    numbers = fault.xids.split()
    messages = []
    for event in events(context, "xid"):
        number = event.values.get("number", "")
        # The driver's recommendation belongs to the fault before it, or is no longer needed.
        is_explained = number == RECOVERY_XID and (has_earlier_fault or _is_past(event))
        if number in numbers and not is_explained:
            messages.append(event)
    for event in events(context, *RECORDS[fault.cause].kinds):
        # In WSL, "fell off the bus" in a person's own words is not a kernel message.
        if not (context.os.wsl and event.values.get("said")):
            messages.append(event)
    if fault.cause == "ecc-error":
        messages += cuda_errors(context, UNCORRECTABLE)
    return messages


def _fix_of_fault(
    context: RuleContext, fault: DeviceFault, evidence: Events, faulty_gpus: Sequence[Gpu]
) -> Fix:
    """The fix of the record, with the command that resets the GPUs if a reset helps."""
    record = RECORDS[fault.cause]
    case, _ = case_of(context, record, evidence)
    fix = replace(fix_of(context, record, evidence), text=case.text)
    actions = {gpu.recovery_action for gpu in faulty_gpus}
    if (actions and actions <= RESETS) or fault.cause in ("ecc-error", "gpu-hang"):
        concerned = concerned_gpus(context, faulty_gpus, evidence)
        return replace(fix, commands=_reset_commands(context, concerned))
    return fix


XID_WORDS = {"xid": "Xid", "sxid": "SXid"}
"""Kind of event -> the word before its number in the kernel log; SXids are faults of NVSwitches."""


def _xids_in_words(messages: Sequence[Event]) -> str:
    """The Xid numbers of some events, each once: `Xid 79, Xid 154`; "" if none has a number."""
    words = []
    for event in messages:
        word = XID_WORDS.get(event.kind)
        number = event.values.get("number")
        if word and number:
            words.append(f"{word} {number}")
    return ", ".join(dict.fromkeys(words))


def _is_past(event: Event) -> bool:
    """Whether an Xid 154 says that the GPU needs no recovery any more."""
    # An Xid 154 without an action in words still means that the GPU needs some recovery.
    return recovery_action(event.values.get("recovery", "Reset")) is None


def _marks(gpu: Gpu, field: str) -> bool:
    """Whether the value of this field shows a fault of the GPU."""
    value = getattr(gpu, field)
    if not value or value == "none":
        return False
    # In normal use, the driver retires single pages.
    return field != "retired_pages" or value >= RETIRED_PAGES_MOST


def concerned_gpus(
    context: RuleContext, faulty_gpus: Sequence[Gpu], messages: Sequence[Event]
) -> tuple[Gpu, ...]:
    """The GPUs that a tool reports as faulty and those whose PCI addresses events name, each
    once."""
    by_slot: dict[str, Gpu] = {}
    for gpu in (*faulty_gpus, *gpu_naming.gpus_at_slots(context, messages)):
        by_slot[gpu_naming.slot_key(gpu.pci_bus_id)] = gpu
    return tuple(by_slot.values())


def _reset_commands(context: RuleContext, concerned: Sequence[Gpu]) -> Lines:
    """The command that resets these GPUs; all of them if none can be named."""
    # The command exists on Linux only (`sudo`).
    if on(context, "windows"):
        return ()
    indices = gpu_naming.smi_list(concerned)
    if not indices:
        return lines("sudo nvidia-smi --gpu-reset")
    return (filled("sudo nvidia-smi --gpu-reset -i {gpus}", gpus=indices),)


def nvlink_degraded(context: RuleContext) -> Findings:
    """GPUs with fewer active NVLinks than other GPUs of the same model."""
    listed_gpus = gpus(context)
    lacking_gpus = [gpu for gpu in listed_gpus if _lacks_links(context, gpu)]
    if lacking_gpus:
        # If another GPU has a working link, NVLink may be partly usable.
        works_in_part = any(gpu.nvlinks_active for gpu in listed_gpus)
        fields = ("nvlinks_active", "nvlinks_inactive")
        yield of_gpus(context, "nvlink-degraded", lacking_gpus, *fields, weak=works_in_part)


NVSWITCH_GPUS = 4
"""Boards with NVSwitch have more GPUs (HGX: 4 without, 8 with; DGX 16)."""


def _lacks_links(context: RuleContext, gpu: Gpu) -> bool:
    """Whether fewer NVLinks are active than the GPU should have.

    It should have as many as the best GPU of its model in this machine; on a board with NVSwitch,
    as many as the model has.
    """
    active_links = gpu.nvlinks_active
    # With MIG, NVLink is not used.
    if active_links is None or gpu.mig_enabled:
        return False
    links_of_same_model = [
        other.nvlinks_active or 0 for other in gpus(context) if other.name == gpu.name
    ]
    expected_links = max(links_of_same_model)
    has_silent_links = bool(gpu.nvlinks_inactive) or not active_links
    if len(links_of_same_model) > NVSWITCH_GPUS and has_silent_links:
        expected_links = max(expected_links, nvlinks_of(gpu.name))
    return active_links < expected_links


def fabric_unhealthy(context: RuleContext) -> Findings:
    """GPUs that could not register with the NVSwitch fabric, or whose registration is unhealthy."""
    failed_gpus = []
    for gpu in gpus(context):
        if gpu.fabric_state == "completed" and gpu.fabric_status not in (None, "success"):
            failed_gpus.append(gpu)
    # A fault of the fabric without a failed registration is a warning only.
    unhealthy_gpus = failed_gpus or [gpu for gpu in gpus(context) if gpu.fabric_faults]
    if unhealthy_gpus:
        fields = ("fabric_faults", "fabric_status")
        yield of_gpus(context, "fabric-unhealthy", unhealthy_gpus, *fields, weak=not failed_gpus)


RULES = (
    power_thermal_throttle,
    pcie_degraded,
    memory_taken,
    too_old,
    device_faults,
    nvlink_degraded,
    fabric_unhealthy,
)
