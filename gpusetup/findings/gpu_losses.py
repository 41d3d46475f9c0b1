"""GPUs that lose speed, that are too old for something, or of several kinds."""

from __future__ import annotations

from gpusetup.evidence.context import (
    RuleContext,
    events,
    gib,
    gpus,
    is_cuda_build,
    is_report,
    whole_number,
)
from gpusetup.findings.message_rules import finding, marked, of_gpus, shown
from gpusetup.fixes import which
from gpusetup.model.finding import Findings, Severity
from gpusetup.model.machine import Gpu, visible_gpus
from gpusetup.model.versions import Capability, parsed

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
    said = marked(context, held, *fields) or events(context, "power-thermal-throttle")
    if said:
        yield finding(context, "power-thermal-throttle", said, who=which.titled(context, held))


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
        who, have = which.titled(context, slow), which.have(slow)
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
            by = [f"{one.name or 'a process'} (process {one.pid})" for one in gpu.processes or ()]
            held = shown(context, "gpus", f"{gib(used)} used {', '.join(by)}")
            yield finding(context, "gpu-memory-taken", (held,), who=which.titled(context, (gpu,)))


def no_bfloat16(context: RuleContext) -> Findings:
    old = _below(context, Capability(8, 0))
    if old and is_cuda_build(context.torch):
        fields, only = ("name", "compute_capability"), Severity.NOTE
        yield of_gpus(context, "bf16-unsupported", old[:1], *fields, severity=only)


def _below(context: RuleContext, least: Capability) -> list[Gpu]:
    seen = visible_gpus(context.snapshot)
    return [g for g in seen if g.compute_capability and g.compute_capability < least]


def too_old_for_triton(context: RuleContext) -> Findings:
    old, torch = _below(context, Capability(7, 0)), context.torch
    first = parsed(context.catalog.milestone("torch.compile"))
    if old and is_cuda_build(torch) and parsed(torch.version or "99") >= first:
        yield of_gpus(context, "gpu-too-old-for-triton", old, "compute_capability", weak=True)


RULES = (
    power_thermal_throttle,
    pcie_degraded,
    memory_taken,
    no_bfloat16,
    too_old_for_triton,
)
