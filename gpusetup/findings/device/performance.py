"""GPUs that lose speed, whose memory others hold, or that are worth a note."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gpusetup.evidence.context import (
    RuleContext,
    event_evidence,
    events,
    gib,
    gpus,
    is_report,
    numbered,
    says_nothing_else,
    value_evidence,
    whole_number,
)
from gpusetup.findings.layers import Layer
from gpusetup.findings.record import Cause
from gpusetup.fixes import paste, which
from gpusetup.model.finding import Finding, Fix, Severity
from gpusetup.model.machine import Gpu, GpuProcess, visible_gpus
from gpusetup.model.shell import filled, lines

# --- speed ---------------------------------------------------------------------------------------

HARD_LIMITS = (
    "hw_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "hw_power_brake",
    "sw_thermal_slowdown",
)
SOFT_LIMITS = ("sw_power_cap",)
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
    limits = (*HARD_LIMITS, *SOFT_LIMITS) if is_report(context) else HARD_LIMITS
    held = [gpu for gpu in gpus(context) if _held_by(gpu, limits) or _is_hot(gpu)]
    if held:
        yield _held_down(context, held, limits)
        return
    messages = events(context, "power-thermal-throttle")
    if messages:
        reason = messages[0].values.get("reason")
        laptop = _of_a_laptop(gpus(context))
        yield POWER_THERMAL_THROTTLE.found(
            f"{which.names(context)}: the clocks are held down{f' ({reason})' if reason else ''}",
            detail=OF_A_LAPTOP if laptop else AT_ITS_LIMIT,
            evidence=event_evidence(messages),
            fix=LAPTOP if laptop else COOLING,
        )


AT_ITS_LIMIT = (
    "A card that runs at its power limit under load works as it is meant to; the limit can be "
    "raised where the card and its supply allow it (nvidia-smi -pl). A card that draws far less "
    "than its limit is held by its supply."
)
OF_A_LAPTOP = (
    "A laptop's firmware may hold the GPU far below the limit that nvidia-smi shows: on battery, "
    "on a weak adapter, in a quiet mode, or while the processor takes the power."
)


def _of_a_laptop(held: Iterable[Gpu]) -> bool:
    return any("laptop" in gpu.name.lower() or "max-q" in gpu.name.lower() for gpu in held)


def _held_by(gpu: Gpu, limits: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(reason for reason in gpu.throttle_reasons or () if reason in limits)


def _is_hot(gpu: Gpu) -> bool:
    return (gpu.temperature_celsius or 0) >= HOT_CELSIUS


def _held_down(context: RuleContext, held: list[Gpu], limits: tuple[str, ...]) -> Finding:
    reasons = tuple(dict.fromkeys(r for gpu in held for r in _held_by(gpu, limits)))
    hottest = max(gpu.temperature_celsius or 0 for gpu in held)
    alone = len(gpus(context)) == 1 and held[0].name.lower() in ("", "unknown")
    who = "The GPU" if alone else which.titled(context, held)
    return POWER_THERMAL_THROTTLE.found(
        f"{who} {which.are(held)} held down: {', '.join(reasons) or f'{hottest} °C'}",
        evidence=tuple(value_evidence(context, "gpus", _heat_line(gpu)) for gpu in held[:8]),
        fix=_what_helps(held, reasons),
    )


def _what_helps(held: list[Gpu], reasons: tuple[str, ...]) -> Fix:
    if _of_a_laptop(held):
        return LAPTOP
    return POWER_LIMIT if reasons and set(reasons) <= set(SOFT_LIMITS) else COOLING


BELOW_DEFAULT = 0.98


def _lowered_to(lowered: list[Gpu]) -> str:
    watts = dict.fromkeys(f"{gpu.power_limit_watts:.0f}" for gpu in lowered)
    return f"the power limit is {', '.join(watts)} W"


POWER_LIMIT_LOWERED = Cause(
    id="power-limit-lowered",
    severity=Severity.NOTE,
    title="the power limit is below the card's default",
    means="Somebody set it (`nvidia-smi -pl`); less speed under load, less heat.",
    proven_by="A limit below the default one, on no laptop",
    way_out="nvidia-smi -pl with the default, where card and supply carry it",
    source="nvidia-smi's manual page",
)


def power_limit_lowered(context: RuleContext) -> Iterator[Finding]:
    """Somebody set a lower power limit; a laptop's own system moves it, and is left out."""
    lowered = [gpu for gpu in gpus(context) if _is_lowered(gpu) and "Laptop" not in gpu.name]
    if lowered:
        first = lowered[0]
        yield POWER_LIMIT_LOWERED.found(
            f"{which.titled(context, lowered)}: {_lowered_to(lowered)}, "
            f"by default it is {first.power_limit_default_watts:.0f} W",
            detail="Less power is less speed under load, and less heat: it may be meant so.",
            evidence=tuple(
                value_evidence(context, "gpus", _limit_line(gpu)) for gpu in lowered[:8]
            ),
            fix=Fix(
                text="Set the default again, where card and supply carry it",
                commands=tuple(
                    filled(
                        "sudo nvidia-smi -i {gpu} -pl {watts}",
                        gpu=which.gpu_named(gpu),
                        watts=f"{gpu.power_limit_default_watts:.0f}",
                    )
                    for gpu in lowered
                ),
                needs_root=True,
            ),
        )


def _is_lowered(gpu: Gpu) -> bool:
    limit, default = gpu.power_limit_watts, gpu.power_limit_default_watts
    return bool(limit and default and limit < default * BELOW_DEFAULT)


def _limit_line(gpu: Gpu) -> str:
    limit, default = gpu.power_limit_watts, gpu.power_limit_default_watts
    return f"{numbered(gpu)}: {limit:.0f} W of {default:.0f} W"


def _heat_line(gpu: Gpu) -> str:
    parts = (
        f"{gpu.temperature_celsius} °C" if gpu.temperature_celsius is not None else None,
        f"{gpu.power_watts:.0f} W" if gpu.power_watts is not None else None,
        f"of {gpu.power_limit_watts:.0f} W" if gpu.power_limit_watts is not None else None,
        ", ".join(gpu.throttle_reasons or ()) or None,
    )
    return f"{numbered(gpu)}: " + " ".join(part for part in parts if part)


BUSY_PERCENT = 20
"""Below this utilisation an idle link rests at a lower speed, which is no fault."""


SEATING = Fix(
    text="Seat the card anew, without riser, in the slot with all lanes; look at the slot's "
    "setting in the firmware",
    looks=paste.look(
        "see the link as it is",
        *lines(
            'nvidia-smi "--query-gpu=pcie.link.gen.current,pcie.link.width.current" --format=csv'
        ),
    ),
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
)


def pcie_degraded(context: RuleContext) -> Iterator[Finding]:
    """The PCIe link is narrower than it could be, or slower under load."""
    kinds: dict[tuple[int | None, ...], list[Gpu]] = {}
    for gpu in gpus(context):
        if not gpu.lost and _is_degraded(gpu):
            link = (gpu.pcie_generation, gpu.pcie_width)
            kinds.setdefault((*link, gpu.pcie_generation_max, gpu.pcie_width_max), []).append(gpu)
    for (speed, width, best, full), concerned in kinds.items():
        yield PCIE_DEGRADED.found(
            f"{which.titled(context, concerned)} {which.have(concerned)} a PCIe link of "
            f"{_link(speed, width)}; it could have {_link(best, full)}",
            evidence=tuple(
                value_evidence(context, "gpus", f"{numbered(gpu)}: {_link(speed, width)}")
                for gpu in concerned[:8]
            ),
            fix=SEATING,
        )


def pcie_slow(context: RuleContext) -> Iterator[Finding]:
    """A link of fewer transfers than its slot has, in a text about nothing else."""
    messages = events(context, "pcie-slow")
    if not messages or not says_nothing_else(context, "pcie-slow"):
        return
    speed, best = messages[0].values.get("speed"), messages[0].values.get("best")
    yield PCIE_DEGRADED.found(
        f"A PCIe link runs at {speed} of {best}",
        detail="At rest a GPU lowers its link by itself: it is a fault only if it stays so under "
        "load.",
        evidence=event_evidence(messages),
        fix=SEATING,
    )


def pcie_errors(context: RuleContext) -> Iterator[Finding]:
    """The kernel's error reports of the GPU's link, in a text about nothing else."""
    messages = events(context, "pcie-errors")
    if not messages or not says_nothing_else(context, "pcie-errors"):
        return
    severe = any(e.values.get("severity", "").lower().startswith("un") for e in messages)
    yield PCIE_DEGRADED.found(
        "The GPU's PCIe link reports errors"
        + ("" if severe else ", which it corrects by sending again"),
        detail="A few corrected ones are harmless; a log full of them means a slower link, and "
        "uncorrected ones a GPU that may fall off the bus.",
        evidence=event_evidence(messages),
        fix=ERRORS,
    )


ERRORS = Fix(
    text="Seat the card anew, without riser, and set the slot one generation lower in the firmware "
    "(4.0 in place of 5.0); against the flood of lines alone the kernel's option `pcie_aspm=off` "
    "often helps",
    looks=paste.look(
        "see whether the counts grow", *lines("nvidia-smi -q -d PCIE; sudo dmesg | grep -i aer")
    ),
)


def _link(generation: int | None, width: int | None) -> str:
    """
    >>> _link(4, 16), _link(None, 4)
    ('generation 4 x16', 'x4')
    """
    speed = f"generation {generation}" if generation else None
    return " ".join(part for part in (speed, f"x{width}" if width else None) if part)


def _is_degraded(gpu: Gpu) -> bool:
    width, full = gpu.pcie_width, gpu.pcie_width_max
    speed, best = gpu.pcie_generation, gpu.pcie_generation_max
    narrow = bool(width and full and width * 2 <= full and width < 8)
    busy = (gpu.utilization_percent or 0) >= BUSY_PERCENT
    return narrow or bool(busy and speed and best and speed < best)


def pcie_said(context: RuleContext) -> Iterator[Finding]:
    """The kernel or lspci says that a link is narrower than both of its ends could have it."""
    narrow = tuple(e for e in events(context, "pcie-degraded") if _is_narrow(e.values))
    if narrow:
        values = narrow[0].values
        yield PCIE_DEGRADED.found(
            f"{which.names(context)} has a PCIe link of x{values['width']}; it could have "
            f"x{values['width_max']}",
            evidence=event_evidence(narrow),
            fix=SEATING,
        )


def _is_narrow(values: Mapping[str, str]) -> bool:
    width, full = whole_number(values.get("width")), whole_number(values.get("width_max"))
    if width is None or full is None:
        return False
    return width * 2 <= full and width < 8


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
        if used is not None and total and used > TAKEN * total:
            held = f"{numbered(gpu)}: {gib(used)} of {gib(total)} used"
            who = which.titled(context, (gpu,))
            yield GPU_MEMORY_TAKEN.found(
                f"{gib(used)} of the {gib(total)} of {who} are taken already",
                evidence=(
                    value_evidence(context, "gpus", held),
                    *(
                        value_evidence(context, "gpus", _holder(one))
                        for one in (gpu.processes or ())[:3]
                    ),
                ),
                fix=Fix(
                    text="End the process that holds it",
                    looks=paste.look("see which one that is", *lines("nvidia-smi")),
                ),
            )


def _holder(process: GpuProcess) -> str:
    size = f" holds {gib(process.memory_bytes)}" if process.memory_bytes else ""
    return f"{process.name or 'a process'} (process {process.pid}){size}"


# --- worth knowing -------------------------------------------------------------------------------


RULES = (
    power_thermal_throttle,
    power_limit_lowered,
    pcie_degraded,
    pcie_said,
    pcie_slow,
    pcie_errors,
    memory_taken,
)
