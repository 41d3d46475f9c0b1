"""The GPUs: losing speed, their memory taken, or worth a word."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpusetup.model import Capability, Evidence, Finding, Fix, Gpu, GpuProcess, parsed, visible_gpus
from gpusetup.rules import ways, which
from gpusetup.rules.case import (
    Case,
    error,
    events,
    gib,
    gpus,
    is_cuda_build,
    is_report,
    note,
    numbered,
    shown,
    told,
    warning,
    whole_number,
)
from gpusetup.shell import filled, lines

# --- speed ---------------------------------------------------------------------------------------

HARD_LIMITS = (
    "hw_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "hw_power_brake",
    "sw_thermal_slowdown",
)
SOFT_LIMITS = ("sw_power_cap",)
"""At the power limit a GPU works as it is meant to; a text that shows it asks about it."""
HOT_CELSIUS = 90


COOLING = Fix(
    text="Look at cooling, dust and power cables; on a laptop use the mains adapter",
    looks=ways.look(
        "see heat, power and what holds the clocks",
        *lines('nvidia-smi -q -d "PERFORMANCE,TEMPERATURE,POWER"'),
    ),
)


POWER_LIMIT = Fix(
    text="Under load a GPU is meant to run at its power limit; raise the limit where card and "
    "supply allow it: `sudo nvidia-smi -pl` and the watts",
    looks=ways.look("see the limits that the card allows", *lines("nvidia-smi -q -d POWER")),
    needs_root=True,
)


def power_thermal_throttle(case: Case) -> Iterator[Finding]:
    """The hardware holds the clocks down, by heat or by power."""
    limits = (*HARD_LIMITS, *SOFT_LIMITS) if is_report(case) else HARD_LIMITS
    held = [gpu for gpu in gpus(case) if _held_by(gpu, limits) or _is_hot(gpu)]
    if held:
        yield _held_down(case, held, limits)
        return
    said = events(case, "throttled")
    if said:
        reason = said[0].values.get("reason")
        yield warning(
            "power-thermal-throttle",
            f"{which.names(case)}: the clocks are held down{f' ({reason})' if reason else ''}",
            detail="At the power limit under load that is how the card is meant to work; the limit "
            "can be raised where the card and its supply allow it (nvidia-smi -pl).",
            evidence=told(said),
            fix=COOLING,
        )


def _held_by(gpu: Gpu, limits: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(reason for reason in gpu.throttle_reasons or () if reason in limits)


def _is_hot(gpu: Gpu) -> bool:
    return (gpu.temperature_celsius or 0) >= HOT_CELSIUS


def _held_down(case: Case, held: list[Gpu], limits: tuple[str, ...]) -> Finding:
    reasons = tuple(dict.fromkeys(r for gpu in held for r in _held_by(gpu, limits)))
    hottest = max(gpu.temperature_celsius or 0 for gpu in held)
    alone = len(gpus(case)) == 1 and held[0].name.lower() in ("", "unknown")
    who = "The GPU" if alone else which.titled(case, held)
    return warning(
        "power-thermal-throttle",
        f"{who} {which.are(held)} held down: {', '.join(reasons) or f'{hottest} °C'}",
        evidence=tuple(shown(case, "gpus", _heat_line(gpu)) for gpu in held[:8]),
        fix=POWER_LIMIT if reasons and set(reasons) <= set(SOFT_LIMITS) else COOLING,
    )


BELOW_DEFAULT = 0.98


def _lowered_to(lowered: list[Gpu]) -> str:
    watts = dict.fromkeys(f"{gpu.power_limit_watts:.0f}" for gpu in lowered)
    return f"the power limit is {', '.join(watts)} W"


def power_limit_lowered(case: Case) -> Iterator[Finding]:
    """Somebody set a lower power limit; a laptop's own system moves it, and is left out."""
    lowered = [gpu for gpu in gpus(case) if _is_lowered(gpu) and "Laptop" not in gpu.name]
    if lowered:
        first = lowered[0]
        yield note(
            "power-limit-lowered",
            f"{which.titled(case, lowered)}: {_lowered_to(lowered)}, "
            f"by default it is {first.power_limit_default_watts:.0f} W",
            detail="Less power is less speed under load, and less heat: it may be meant so.",
            evidence=tuple(shown(case, "gpus", _limit_line(gpu)) for gpu in lowered[:8]),
            fix=Fix(
                text="Set the default again, where card and supply carry it",
                commands=tuple(
                    filled(
                        "sudo nvidia-smi -i {gpu} -pl {watts}",
                        gpu=ways.gpu_named(gpu),
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
    looks=ways.look(
        "see the link as it is",
        *lines(
            'nvidia-smi "--query-gpu=pcie.link.gen.current,pcie.link.width.current" --format=csv'
        ),
    ),
)


def pcie_degraded(case: Case) -> Iterator[Finding]:
    """The PCIe link is narrower than it could be, or slower under load."""
    kinds: dict[tuple[int | None, ...], list[Gpu]] = {}
    for gpu in gpus(case):
        if not gpu.lost and _is_degraded(gpu):
            link = (gpu.pcie_generation, gpu.pcie_width)
            kinds.setdefault((*link, gpu.pcie_generation_max, gpu.pcie_width_max), []).append(gpu)
    for (speed, width, best, full), concerned in kinds.items():
        yield warning(
            "pcie-degraded",
            f"{which.titled(case, concerned)} {which.have(concerned)} a PCIe link of "
            f"{_link(speed, width)}; it could have {_link(best, full)}",
            evidence=tuple(
                shown(case, "gpus", f"{numbered(gpu)}: {_link(speed, width)}")
                for gpu in concerned[:8]
            ),
            fix=SEATING,
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


def pcie_said(case: Case) -> Iterator[Finding]:
    """The kernel or lspci says that a link is narrower than both of its ends could have it."""
    narrow = tuple(e for e in events(case, "pcie-limited") if _is_narrow(e.values))
    if narrow:
        values = narrow[0].values
        yield warning(
            "pcie-degraded",
            f"{which.names(case)} has a PCIe link of x{values['width']}; it could have "
            f"x{values['width_max']}",
            evidence=told(narrow),
            fix=SEATING,
        )


def _is_narrow(values: Mapping[str, str]) -> bool:
    width, full = whole_number(values.get("width")), whole_number(values.get("width_max"))
    if width is None or full is None:
        return False
    return width * 2 <= full and width < 8


TAKEN = 0.85


def memory_taken(case: Case) -> Iterator[Finding]:
    """Other processes hold most of a GPU's memory."""
    for gpu in visible_gpus(case.snapshot):
        used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
        if used is not None and total and used > TAKEN * total:
            held = f"{numbered(gpu)}: {gib(used)} of {gib(total)} used"
            who = which.titled(case, (gpu,))
            yield warning(
                "gpu-memory-taken",
                f"{gib(used)} of the {gib(total)} of {who} are taken already",
                evidence=(
                    shown(case, "gpus", held),
                    *(shown(case, "gpus", _holder(one)) for one in (gpu.processes or ())[:3]),
                ),
                fix=Fix(
                    text="End the process that holds it",
                    looks=ways.look("see which one that is", *lines("nvidia-smi")),
                ),
            )


def _holder(process: GpuProcess) -> str:
    size = f" holds {gib(process.memory_bytes)}" if process.memory_bytes else ""
    return f"{process.name or 'a process'} (process {process.pid}){size}"


# --- worth knowing -------------------------------------------------------------------------------


def newer_than_catalog(case: Case) -> Iterator[Finding]:
    for gpu in visible_gpus(case.snapshot):
        capability = gpu.compute_capability
        if capability is not None and case.catalog.is_newer_gpu(capability):
            yield note(
                "gpu-newer-than-catalog",
                f"{gpu.name} ({capability.sm}) is newer than the catalog of {case.catalog.as_of}",
                fix=Fix(
                    text="Update gpusetup, or ask the live index: `gpusetup resolve --refresh`"
                ),
            )


def no_bfloat16(case: Case) -> Iterator[Finding]:
    old = [g for g in visible_gpus(case.snapshot) if _below(g, Capability(8, 0))]
    said = events(case, "bf16-unsupported")
    if said:
        yield error(
            "bf16-unsupported",
            f"bfloat16 was asked of {which.names(case)}, which has none (it begins with 8.0)",
            evidence=told(said),
            fix=Fix(text="Use float16 with a GradScaler instead (`--dtype half`, `fp16=True`)"),
        )
    elif old and is_cuda_build(case.snapshot.torch):
        yield note(
            "bf16-unsupported",
            f"{old[0].name} ({old[0].compute_capability}) has no bfloat16: use float16 with a "
            "GradScaler",
        )


def too_old_for_triton(case: Case) -> Iterator[Finding]:
    old = [g for g in visible_gpus(case.snapshot) if _below(g, Capability(7, 0))]
    said = events(case, "gpu-too-old-for-triton")
    make = error if said else warning
    if said or (old and is_cuda_build(case.snapshot.torch) and _compiles(case)):
        name = old[0].name if old else which.names(case)
        yield make(
            "gpu-too-old-for-triton",
            f"{name} is too old for torch.compile: Triton needs compute capability 7.0",
            evidence=(
                *told(said),
                *(shown(case, "gpus", f"{g.name}: {g.compute_capability}") for g in old[:1]),
            ),
            fix=Fix(
                text='Run eagerly: leave torch.compile out, or use backend="eager"',
                commands=(ways.setting(case, "TORCHDYNAMO_DISABLE", "1"),),
            ),
        )


def _compiles(case: Case) -> bool:
    """torch.compile came with torch 2.0."""
    version = case.snapshot.torch.version
    return version is None or parsed(version) >= parsed("2.0")


def _below(gpu: Gpu, least: Capability) -> bool:
    return gpu.compute_capability is not None and gpu.compute_capability < least


def mixed_gpus(case: Case) -> Iterator[Finding]:
    """Several kinds of GPU in one machine: CUDA's order is not nvidia-smi's."""
    seen = (gpu.name for gpu in visible_gpus(case.snapshot))
    names = tuple(dict.fromkeys(name for name in seen if name not in which.UNNAMED))
    if len(names) > 1 and case.snapshot.environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        yield note(
            "gpu-order-differs",
            f"CUDA counts the fastest GPU first, nvidia-smi counts by PCI slot: {', '.join(names)}",
            evidence=(Evidence(source="environment", text="CUDA_DEVICE_ORDER is not PCI_BUS_ID"),),
            fix=Fix(
                text="Let both count alike",
                commands=(ways.setting(case, "CUDA_DEVICE_ORDER", "PCI_BUS_ID"),),
            ),
        )


RULES = (
    power_thermal_throttle,
    power_limit_lowered,
    pcie_degraded,
    pcie_said,
    memory_taken,
    newer_than_catalog,
    no_bfloat16,
    too_old_for_triton,
    mixed_gpus,
)
