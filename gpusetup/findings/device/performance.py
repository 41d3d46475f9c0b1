"""GPUs that lose speed, and whose memory others hold."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    events,
    gib,
    gpus,
    is_report,
    says_nothing_else,
    whole_number,
)
from gpusetup.findings.layers import Layer
from gpusetup.findings.message_rules import finding, from_messages, marked, shown
from gpusetup.findings.record import Cause, Message
from gpusetup.fixes import which
from gpusetup.model.finding import Finding, Severity
from gpusetup.model.machine import visible_gpus

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


POWER_THERMAL_THROTTLE = Cause(
    id="power-thermal-throttle",
    severity=Severity.WARNING,
    place=(Layer.LOSSES, 20),
    title="heat or power hold the clocks down",
    means="The hardware protects itself.",
    proven_by="A hardware or thermal slowdown reason, 90 °C or more",
    not_when="sw_power_cap under load, which is normal",
    way_out="Cooling, power",
    source="nvidia-smi's manual page",
    message=Message(
        title="{who}: the clocks are held down, by heat or by power",
        text="Look at cooling, dust and power cables; on a laptop use its own mains adapter (not "
        "USB-C) and the performance mode. At its power limit (sw_power_cap) a GPU works as it is "
        "meant to: raise the limit where card and supply allow it, with `sudo nvidia-smi -pl` and "
        "the watts",
        look=('nvidia-smi -q -d "PERFORMANCE,TEMPERATURE,POWER"',),
        see="see heat, power and what holds the clocks",
    ),
)


def power_thermal_throttle(context: RuleContext) -> Iterator[Finding]:
    """The hardware holds the clocks down, by heat or by power."""
    # No order: which reasons count as a loss depends on who shows them.
    limits = LIMITS | AS_DESIGNED if is_report(context) else LIMITS
    held = [
        gpu
        for gpu in gpus(context)
        if limits & {*(gpu.throttle_reasons or ())} or (gpu.temperature_celsius or 0) >= HOT_CELSIUS
    ]
    fields = ("temperature_celsius", "power_watts", "power_limit_watts", "throttle_reasons")
    said = marked(context, held, *fields) or events(context, "power-thermal-throttle")
    if said:
        yield finding(context, POWER_THERMAL_THROTTLE, said, who=which.titled(context, held))


PCIE_DEGRADED = Cause(
    id="pcie-degraded",
    severity=Severity.WARNING,
    place=(Layer.LOSSES, 50),
    title="the PCIe link is narrow, or slow under load",
    means="Riser, slot, seating.",
    proven_by="Half the lanes or fewer (and below 8)",
    not_when="A lower generation, which at rest is power saving",
    way_out="Seat the card anew",
    source="nvidia-smi's manual page",
    events=("pcie-slow", "pcie-errors"),
    holds=(lambda context: says_nothing_else(context, "pcie-slow", "pcie-errors"),),
    message=Message(
        title="{who} {have} a PCIe link that is slower than it could be",
        plain="The GPU's PCIe link is slow, or reports errors",
        detail="At rest a GPU lowers its link by itself: that is no fault. A few corrected errors "
        "are harmless; a log full of them means a slower link, and uncorrected ones a GPU that may "
        "fall off the bus.",
        text="Seat the card anew, without riser, in the slot with all lanes; look at the slot's "
        "setting in the firmware (against errors one generation lower; against the flood of lines "
        "alone the kernel's option `pcie_aspm=off` often helps)",
        look=(
            'nvidia-smi "--query-gpu=pcie.link.gen.current,pcie.link.width.current" --format=csv',
        ),
        see="see the link as it is",
    ),
)


def pcie_degraded(context: RuleContext) -> Iterator[Finding]:
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
        who, have = which.titled(context, slow), which.have(slow)
        yield finding(context, PCIE_DEGRADED, said, who=who, have=have)
    yield from from_messages(context, (PCIE_DEGRADED,))


LINK = ("pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max")


def _is_narrow(width: int | None, full: object) -> bool:
    return bool(width and full and width * 2 <= int(str(full)) and width < 8)


TAKEN = 0.85


GPU_MEMORY_TAKEN = Cause(
    id="gpu-memory-taken",
    severity=Severity.WARNING,
    title="another process holds most of the memory",
    means="What is left may be too little.",
    proven_by="More than 85 % used",
    way_out="See nvidia-smi",
    source="nvidia-smi's manual page",
    message=Message(
        title="Most of the memory of {who} is taken already",
        text="End the process that holds it",
        look=("nvidia-smi",),
        see="see which one that is",
    ),
)


def memory_taken(context: RuleContext) -> Iterator[Finding]:
    """Other processes hold most of a GPU's memory."""
    for gpu in visible_gpus(context.snapshot):
        used = gpu.memory_used_bytes or 0
        if used > TAKEN * (gpu.memory_total_bytes or used):
            by = [f"{one.name or 'a process'} (process {one.pid})" for one in gpu.processes or ()]
            held = shown(context, "gpus", f"{gib(used)} used {', '.join(by)}")
            yield finding(context, GPU_MEMORY_TAKEN, (held,), who=which.titled(context, (gpu,)))


RULES = (
    power_thermal_throttle,
    pcie_degraded,
    memory_taken,
)
