"""The GPUs: losing speed, their memory taken, or worth a word."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpusetup.model import Capability, Evidence, Finding, Fix, Gpu, parsed, visible_gpus
from gpusetup.rules import ways
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
from gpusetup.shell import lines

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
        *lines("nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER"),
    ),
)


POWER_LIMIT = Fix(
    text="Under load a GPU is meant to run at its power limit; raise the limit where card and "
    "supply allow it: `sudo nvidia-smi -pl` and the watts",
    looks=ways.look("see the limits that the card allows", *lines("nvidia-smi -q -d POWER")),
    needs_root=True,
)


def _called(gpu: Gpu) -> str:
    return "The GPU" if gpu.name.lower() in ("", "unknown") else gpu.name


def power_thermal_throttle(case: Case) -> Iterator[Finding]:
    """The hardware holds the clocks down, by heat or by power."""
    for gpu in gpus(case):
        limits = (*HARD_LIMITS, *SOFT_LIMITS) if is_report(case) else HARD_LIMITS
        reasons = tuple(r for r in gpu.throttle_reasons or () if r in limits)
        if reasons or (gpu.temperature_celsius or 0) >= HOT_CELSIUS:
            yield warning(
                "power-thermal-throttle",
                f"{_called(gpu)} is held down: "
                f"{', '.join(reasons) or f'{gpu.temperature_celsius} °C'}",
                evidence=(shown(case, "gpus", _heat_line(gpu)),),
                fix=POWER_LIMIT if reasons and set(reasons) <= set(SOFT_LIMITS) else COOLING,
            )
            return
    said = events(case, "throttled")
    if said:
        reason = said[0].values.get("reason")
        yield warning(
            "power-thermal-throttle",
            f"{ways.names(case)}: the clocks are held down{f' ({reason})' if reason else ''}",
            detail="At the power limit under load that is how the card is meant to work; the limit "
            "can be raised where the card and its supply allow it (nvidia-smi -pl).",
            evidence=told(said),
            fix=COOLING,
        )


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
        *lines("nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.width.current --format=csv"),
    ),
)


def pcie_degraded(case: Case) -> Iterator[Finding]:
    """The PCIe link is narrower than it could be, or slower under load."""
    for gpu in gpus(case):
        width, full = gpu.pcie_width, gpu.pcie_width_max
        speed, best = gpu.pcie_generation, gpu.pcie_generation_max
        narrow = bool(width and full and width * 2 <= full and width < 8)
        busy = (gpu.utilization_percent or 0) >= BUSY_PERCENT
        slow = bool(busy and speed and best and speed < best)
        if not gpu.lost and (narrow or slow):
            yield warning(
                "pcie-degraded",
                f"{gpu.name} has a PCIe link of generation {speed or '?'} x{width or '?'}; it "
                "could have "
                f"generation {best or '?'} x{full or '?'}",
                evidence=(shown(case, "gpus", f"{numbered(gpu)}: gen {speed} x{width}"),),
                fix=SEATING,
            )


def pcie_said(case: Case) -> Iterator[Finding]:
    """The kernel or lspci says that a link is narrower than both of its ends could have it."""
    narrow = tuple(e for e in events(case, "pcie-limited") if _is_narrow(e.values))
    if narrow:
        values = narrow[0].values
        yield warning(
            "pcie-degraded",
            f"{ways.names(case)} has a PCIe link of x{values['width']}; it could have "
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
    """Another process holds most of a GPU's memory."""
    for gpu in visible_gpus(case.snapshot):
        used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
        if used is not None and total and used > TAKEN * total:
            yield warning(
                "gpu-memory-taken",
                f"{gib(used)} of {gpu.name}'s {gib(total)} are taken already",
                evidence=(
                    shown(case, "gpus", f"{numbered(gpu)}: {gib(used)} of {gib(total)} used"),
                ),
                fix=Fix(
                    text="End the process that holds it",
                    looks=ways.look("see which one that is", *lines("nvidia-smi")),
                ),
            )


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
            f"bfloat16 was asked of {ways.names(case)}, which has none (it begins with 8.0)",
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
        name = old[0].name if old else ways.names(case)
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
    names = tuple(dict.fromkeys(gpu.name for gpu in visible_gpus(case.snapshot)))
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
    pcie_degraded,
    pcie_said,
    memory_taken,
    newer_than_catalog,
    no_bfloat16,
    too_old_for_triton,
    mixed_gpus,
)
