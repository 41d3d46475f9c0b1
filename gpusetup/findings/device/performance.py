"""GPUs that lose speed, and whose memory others hold."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    event_evidence,
    events,
    gib,
    gpus,
    is_report,
    says_nothing_else,
    value_evidence,
    whole_number,
)
from gpusetup.findings.layers import Layer
from gpusetup.findings.message_rules import from_messages
from gpusetup.findings.record import Cause, Message
from gpusetup.fixes import paste, which
from gpusetup.model.finding import Finding, Fix, Severity
from gpusetup.model.machine import Gpu, visible_gpus
from gpusetup.model.shell import lines

HARD_LIMITS = {
    "hw_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "hw_power_brake",
    "sw_thermal_slowdown",
}
SOFT_LIMITS = {"sw_power_cap"}
"""A GPU at its power limit works as designed: a finding only in a report, whose author asks."""
HOT_CELSIUS = 90


COOLING = Fix(
    text="Look at cooling, dust and power cables; on a laptop use the mains adapter",
    looks=paste.look(
        "see heat, power and what holds the clocks",
        *lines('nvidia-smi -q -d "PERFORMANCE,TEMPERATURE,POWER"'),
    ),
)


LAPTOP = Fix(
    text="Use the laptop's own mains adapter (not USB-C), and choose the performance mode in the "
    "maker's program or in the system's power settings; then look at cooling and dust",
    looks=COOLING.looks,
)
"""A laptop's firmware divides the power between processor and GPU."""


POWER_LIMIT = Fix(
    text="Under load a GPU is meant to run at its power limit; raise the limit where card and "
    "supply allow it: `sudo nvidia-smi -pl` and the watts",
    looks=paste.look("see the limits that the card allows", *lines("nvidia-smi -q -d POWER")),
    needs_root=True,
)


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
)


def power_thermal_throttle(context: RuleContext) -> Iterator[Finding]:
    """The hardware holds the clocks down, by heat or by power."""
    # No order: which reasons count as a loss depends on who shows them.
    limits = HARD_LIMITS | SOFT_LIMITS if is_report(context) else HARD_LIMITS
    hot = [gpu for gpu in gpus(context) if (gpu.temperature_celsius or 0) >= HOT_CELSIUS]
    held = [g for g in gpus(context) if g in hot or limits.intersection(g.throttle_reasons or ())]
    said = () if held else events(context, "power-thermal-throttle")
    if held or said:
        reasons = {one for gpu in held for one in gpu.throttle_reasons or () if one in limits}
        reasons |= {event.values["reason"] for event in said if "reason" in event.values}
        laptop = any("laptop" in g.name.lower() or "max-q" in g.name.lower() for g in gpus(context))
        at_its_limit = reasons and reasons <= SOFT_LIMITS
        yield POWER_THERMAL_THROTTLE.found(
            f"{which.titled(context, held)}: the clocks are held down"
            f" ({', '.join(sorted(reasons)) or 'it is hot'})",
            evidence=(*event_evidence(said), *which.shown(context, held, *HEAT)),
            fix=LAPTOP if laptop else POWER_LIMIT if at_its_limit else COOLING,
        )


HEAT = ("temperature_celsius", "power_watts", "power_limit_watts", "throttle_reasons")


BUSY_PERCENT = 20
"""Below this utilisation an idle link rests at a lower speed, which is no fault."""


LINK_NOW = 'nvidia-smi "--query-gpu=pcie.link.gen.current,pcie.link.width.current" --format=csv'
SEATING = Fix(
    text="Seat the card anew, without riser, in the slot with all lanes; look at the slot's "
    "setting in the firmware",
    looks=paste.look("see the link as it is", *lines(LINK_NOW)),
)


PCIE_DEGRADED = Cause(
    id="pcie-degraded",
    severity=Severity.WARNING,
    place=(Layer.LOSSES, 50),
    title="the PCIe link is narrow, or slow under load",
    means="Riser, slot, seating.",
    proven_by="Half the lanes or fewer (and below 8); a lower generation while busy",
    not_when="A lower generation at rest, which is power saving",
    way_out="Seat the card anew",
    source="nvidia-smi's manual page",
    events=("pcie-slow", "pcie-errors"),
    holds=(lambda context: says_nothing_else(context, "pcie-slow", "pcie-errors"),),
    message=Message(
        title="The GPU's PCIe link reports errors",
        detail="A few corrected ones are harmless; a log full of them means a slower link, and "
        "uncorrected ones a GPU that may fall off the bus.",
        text="Seat the card anew, without riser, and set the slot one generation lower in the "
        "firmware (4.0 in place of 5.0); against the flood of lines alone the kernel's option "
        "`pcie_aspm=off` often helps",
        look=("nvidia-smi -q -d PCIE", "sudo dmesg | grep -i aer"),
        see="see whether the counts grow",
        cases=(
            Message(
                having={"speed": ""},
                title="A PCIe link runs at {speed} of {best}",
                detail="At rest a GPU lowers its link by itself: it is a fault only if it stays so "
                "under load.",
                text=SEATING.text,
                look=(LINK_NOW,),
                see="see the link as it is",
            ),
        ),
    ),
)


def pcie_degraded(context: RuleContext) -> Iterator[Finding]:
    """The PCIe link is narrower than it could be, or slower under load."""
    slow = [gpu for gpu in gpus(context) if not gpu.lost and _is_degraded(gpu)]
    said = tuple(
        event
        for event in events(context, "pcie-degraded")
        if _is_narrow(*(whole_number(event.values.get(name)) for name in ("width", "width_max")))
    )
    if slow or said:
        yield PCIE_DEGRADED.found(
            f"{which.titled(context, slow)} {which.have(slow)} a PCIe link that is slower than it "
            "could be",
            evidence=(*event_evidence(said), *which.shown(context, slow, *LINK)),
            fix=SEATING,
        )
    yield from from_messages(context, (PCIE_DEGRADED,))


LINK = ("pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max")


def _is_narrow(width: int | None, full: int | None) -> bool:
    return bool(width and full and width * 2 <= full and width < 8)


def _is_degraded(gpu: Gpu) -> bool:
    speed, best = gpu.pcie_generation, gpu.pcie_generation_max
    busy = (gpu.utilization_percent or 0) >= BUSY_PERCENT
    return _is_narrow(gpu.pcie_width, gpu.pcie_width_max) or bool(
        busy and speed and best and speed < best
    )


TAKEN = 0.85


GPU_MEMORY_TAKEN = Cause(
    id="gpu-memory-taken",
    severity=Severity.WARNING,
    title="another process holds most of the memory",
    means="What is left may be too little.",
    proven_by="More than 85 % used",
    way_out="See nvidia-smi",
    source="nvidia-smi's manual page",
)


def memory_taken(context: RuleContext) -> Iterator[Finding]:
    """Other processes hold most of a GPU's memory."""
    for gpu in visible_gpus(context.snapshot):
        used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
        if used and total and used > TAKEN * total:
            holders = (
                f"{one.name or 'a process'} (process {one.pid})" for one in gpu.processes or ()
            )
            yield GPU_MEMORY_TAKEN.found(
                f"{gib(used)} of the {gib(total)} of {which.titled(context, (gpu,))} are taken "
                "already",
                evidence=(
                    value_evidence(context, "gpus", f"{gib(used)} used {', '.join(holders)}"),
                ),
                fix=Fix(
                    text="End the process that holds it",
                    looks=paste.look("see which one that is", *lines("nvidia-smi")),
                ),
            )


RULES = (
    power_thermal_throttle,
    pcie_degraded,
    memory_taken,
)
