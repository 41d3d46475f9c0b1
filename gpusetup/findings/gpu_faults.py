"""GPUs at fault, their links, and GPUs that lose speed or are too old for something."""

from __future__ import annotations

from collections.abc import Sequence

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
from gpusetup.model.finding import Findings, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Gpu, visible_gpus
from gpusetup.model.shell import Lines, filled, lines
from gpusetup.model.versions import Capability, parsed
from gpusetup.readings.nvidia_smi import recovery_action

LIMITS = {
    "hw_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "hw_power_brake",
    "sw_thermal_slowdown",
}


AS_DESIGNED = {"sw_power_cap"}
"""A GPU at its power limit works as designed: a finding only in a report, whose author asks."""


HOT_CELSIUS = 90


def power_thermal_throttle(context: RuleContext) -> Findings:
    """The hardware holds the clocks down, by heat or by power."""
    # No order: which reasons count as a loss depends on who shows them.
    limits = LIMITS | AS_DESIGNED if is_report(context) else LIMITS
    held = [
        gpu
        for gpu in gpus(context)
        if limits & {*(gpu.throttle_reasons or ())} or (gpu.temperature_celsius or 0) >= HOT_CELSIUS
    ]
    fields = ("temperature_celsius", "power_watts", "power_limit_watts", "throttle_reasons")
    if said := marked(context, held, *fields):
        yield finding(
            context, "power-thermal-throttle", said, who=gpu_naming.gpus_in_title(context, held)
        )


def pcie_degraded(context: RuleContext) -> Findings:
    """The PCIe link is narrower than it could be, or slower under load."""
    slow = [
        gpu
        for gpu in gpus(context)
        if not gpu.lost and _is_narrow(gpu.pcie_width, gpu.pcie_width_max)
    ]
    narrow = [
        event
        for event in events(context, "pcie-degraded")
        if _is_narrow(whole_number(event.values.get("width")), event.values.get("width_max"))
    ]
    said = (*narrow, *marked(context, slow, *LINK))
    if said:
        who, have = gpu_naming.gpus_in_title(context, slow), gpu_naming.has_or_have(slow)
        yield finding(context, "pcie-degraded", said, who=who, have=have)


LINK = ("pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max")


def _is_narrow(width: int | None, full: object) -> bool:
    return bool(width and full and width * 2 <= int(str(full)) and width < 8)


TAKEN = 0.85


def memory_taken(context: RuleContext) -> Findings:
    """Other processes hold most of a GPU's memory."""
    for gpu in visible_gpus(context.snapshot):
        used = gpu.memory_used_bytes or 0
        if used > TAKEN * (gpu.memory_total_bytes or used):
            by = [f"{one.name} ({one.pid})" for one in gpu.processes or ()]
            held = shown(context, "gpus", f"{gib(used)} used {', '.join(by)}")
            yield finding(
                context, "gpu-memory-taken", (held,), who=gpu_naming.gpus_in_title(context, (gpu,))
            )


TOO_OLD = (
    ("bf16-unsupported", Capability(8, 0), Severity.NOTE),
    ("gpu-too-old-for-triton", Capability(7, 0), Severity.WARNING),
)
"""A cause, and the first compute capability that has it not."""


def too_old(context: RuleContext) -> Findings:
    """A GPU that lacks what newer ones have, and a torch that would use it."""
    torch, seen = context.torch, visible_gpus(context.snapshot)
    compiles = parsed(torch.version or "99") >= parsed(context.catalog.milestone("torch.compile"))
    rows = TOO_OLD if compiles else TOO_OLD[:1]
    for cause, first, only in rows if is_cuda_build(torch) else ():
        if old := [g for g in seen if g.compute_capability and g.compute_capability < first]:
            yield of_gpus(context, cause, old[:1], "compute_capability", severity=only)


FAULTS = (
    ("gpu-fell-off-bus", "79", ("lost",)),
    ("gsp-timeout", "119 120", ()),
    (
        "ecc-error",
        "48 63 64 94 95 140 156 157 160 161 171 172",
        (
            *("ecc_uncorrected", "retired_pending", "remap_failed", "sram_threshold_exceeded"),
            "retired_pages",
        ),
    ),
    ("gpu-hang", "8 38 44 46 109", ()),
    (
        "hardware-fault",
        "54 56 57 58 59 61 62 74 80 81 92 110 122 123 136 143 144 145 146 147 148 149 150 154 155 "
        "158 167 168 169",
        ("recovery_action",),
    ),
    (
        "xid-of-a-program",
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


RESETS = {"gpu_reset", "drain_and_reset"}


def device_faults(context: RuleContext) -> Findings:
    """A fault of the hardware, or a program's; what the driver recommends alone is one too."""
    listed, found = gpus(context), False
    for cause, numbers, fields in FAULTS:
        record = RECORDS[cause]
        said = [e for e in events(context, "xid") if e.values.get("number", "") in numbers.split()]
        # A recommendation of the driver belongs to the fault before it, or is past.
        said = [e for e in said if e.values["number"] != FOLLOWS or not (found or _is_past(e))]
        # In WSL somebody's "fell off the bus" is no word of a kernel.
        heard = events(context, *record.kinds)
        said += [e for e in heard if not (context.os.wsl and e.values.get("said"))]
        said += cuda_errors(context, UNCORRECTABLE) if cause == "ecc-error" else ()
        bad = [gpu for gpu in listed if any(_marks(gpu, name) for name in fields)]
        if not said and (not bad or (found and cause == "hardware-fault")):
            continue
        found = True
        evidence = (*said, *marked(context, bad, *fields))
        concerned = concerned_gpus(context, bad, said)
        fix = replace(
            fix_of(context, record, evidence), text=case_of(context, record, evidence)[0].text
        )
        by_reset = bad and all(gpu.recovery_action in RESETS for gpu in bad)
        if by_reset or cause in ("ecc-error", "gpu-hang"):
            fix = replace(fix, commands=_reset(context, concerned))
        xids = [
            f"{e.kind.replace('xid', 'Xid')} {n}" for e in said if (n := e.values.get("number"))
        ]
        who = (
            gpu_naming.gpus_in_title(context, concerned)
            if concerned or len(listed) < 2
            else "The GPU"
        )
        what = ", ".join(dict.fromkeys(xids)) or "the driver recommends a reset"
        have = gpu_naming.has_or_have(concerned)
        yield finding(context, cause, evidence, fix=fix, who=who, have=have, what=what)


def _is_past(said: Event) -> bool:
    return recovery_action(said.values.get("recovery", "Reset")) is None


def _marks(gpu: Gpu, field: str) -> bool:
    value = getattr(gpu, field)
    few = field == "retired_pages" and value and value < RETIRED_PAGES_MOST
    return bool(value) and value != "none" and not few


def concerned_gpus(
    context: RuleContext, marked: Sequence[Gpu], said: Sequence[Event]
) -> tuple[Gpu, ...]:
    """The GPUs that a source marks, and those whose slots events name, each once."""
    both = (*marked, *gpu_naming.gpus_at_slots(context, said))
    return tuple({gpu_naming.slot_key(gpu.pci_bus_id): gpu for gpu in both}.values())


def _reset(context: RuleContext, concerned: Sequence[Gpu]) -> Lines:
    """The command that resets these GPUs; all of them where none can be named."""
    if on(context, "windows"):
        return ()
    if not (chosen := gpu_naming.smi_list(concerned)):
        return lines("sudo nvidia-smi --gpu-reset")
    return (filled("sudo nvidia-smi --gpu-reset -i {gpus}", gpus=chosen),)


def nvlink_degraded(context: RuleContext) -> Findings:
    """Links that carry nothing although their like do."""
    if silent := [gpu for gpu in gpus(context) if _lacks_links(context, gpu)]:
        fields = ("nvlinks_active", "nvlinks_inactive")
        works = any(gpu.nvlinks_active for gpu in gpus(context))
        yield of_gpus(context, "nvlink-degraded", silent, *fields, weak=works)


NVSWITCH_GPUS = 4
"""Boards with NVSwitch have more GPUs (HGX: 4 without, 8 with; DGX 16)."""


def _lacks_links(context: RuleContext, gpu: Gpu) -> bool:
    """Whether fewer links are active than on a GPU of its kind, or, on a board with switches, than
    its model has."""
    alike = [g.nvlinks_active or 0 for g in gpus(context) if g.name == gpu.name]
    active = gpu.nvlinks_active
    if active is None or gpu.mig_enabled:
        return False
    told = len(alike) > NVSWITCH_GPUS and (gpu.nvlinks_inactive or not active)
    most = nvlinks_of(gpu.name) if told else 0
    return active < max(*alike, most)


def fabric_unhealthy(context: RuleContext) -> Findings:
    """The GPU is registered with the NVSwitch fabric, and the fabric does not work as it should."""
    registered = [gpu for gpu in gpus(context) if gpu.fabric_state == "completed"]
    failed = [gpu for gpu in registered if gpu.fabric_status not in (None, "success")]
    if ill := failed or [gpu for gpu in gpus(context) if gpu.fabric_faults]:
        fields = ("fabric_faults", "fabric_status")
        yield of_gpus(context, "fabric-unhealthy", ill, *fields, weak=not failed)


RULES = (
    power_thermal_throttle,
    pcie_degraded,
    memory_taken,
    too_old,
    device_faults,
    nvlink_degraded,
    fabric_unhealthy,
)
