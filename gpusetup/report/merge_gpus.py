"""Lists of GPUs of many places become one: the most trusted list, each GPU with what others know."""

from __future__ import annotations

from gpusetup.model.frozen import replace
from gpusetup.model.machine import Gpu, Reading
from gpusetup.readings.side import first_known, told_gpus
from gpusetup.report.facts import Gpus

READINGS_A_SUBJECT = 4
GPUS_KEPT = 64
LARGEST = 1 << 50
NUMBERS = (
    "memory_total_bytes", "memory_used_bytes", "nvml_index", "cuda_index", "ecc_uncorrected",
    "temperature_celsius", "power_watts", "power_limit_watts", "utilization_percent",
    "pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max", "mig_count",
    "remapped_rows", "retired_pages", "power_limit_default_watts", "nvlinks_active",
    "nvlink_errors", "nvlink_recoveries", "clock_sm_max_mhz", "clock_memory_max_mhz",
    "clock_sm_application_mhz",
)  # fmt: skip


def choose_gpus(lists: list[Gpus]) -> tuple[tuple[Gpu, ...] | None, tuple[Reading, ...]]:
    """The most trusted list with GPUs in it, each GPU with what other lists know of it."""
    full = [one for one in lists if one.gpus]
    readings = tuple(
        r for one in lists[:READINGS_A_SUBJECT] for r in told_gpus(one.source, one.gpus)
    )
    if not full:
        return (() if lists else None), readings
    base, *rest = sorted(full, key=lambda one: -one.trust)
    others = [(place, gpu) for one in rest for place, gpu in enumerate(one.gpus)]
    kept = base.gpus[:GPUS_KEPT]
    gpus = (
        _with_others(gpu, place, others, alone=len(kept) == 1) for place, gpu in enumerate(kept)
    )
    return tuple(_possible(gpu) for gpu in gpus), readings


def _possible(gpu: Gpu) -> Gpu:
    """Without numbers that no GPU has: damaged text holds such, and JSON has no room for them."""
    absurd = {
        name: None
        for name in NUMBERS
        if (value := getattr(gpu, name)) is not None and not 0 <= value < LARGEST
    }
    return replace(gpu, **absurd) if absurd else gpu


def _with_others(gpu: Gpu, place: int, others: list[tuple[int, Gpu]], *, alone: bool) -> Gpu:
    """From lists of the same machine: the same GPU by its UUID, slot or number, else by its name."""
    same = [other for at, other in others if _meant(gpu, place, other, at, alone=alone)]
    if not same:
        return gpu
    whole = replace(gpu, name=_whole_name(gpu.name, same))
    return first_known((whole, *(replace(other, name=whole.name) for other in same)))


def _meant(gpu: Gpu, place: int, other: Gpu, at: int, *, alone: bool) -> bool:
    """Whether two lists speak of one GPU."""
    if not _same(gpu, other):
        return False
    for here, there in ((gpu.uuid, other.uuid), (_slot(gpu), _slot(other))):
        if here and there:
            return here == there
    if _index(other) is not None:
        return _index(other) == place
    return alone or (other.name != "unknown" and at == place)


def _slot(gpu: Gpu) -> str | None:
    """A bus address in its short form: nvidia-smi writes the domain with eight digits or four.

    >>> _slot(Gpu(name="T4", pci_bus_id="00000000:3B:00.0"))
    '0:3b:00.0'
    """
    domain, colon, rest = (gpu.pci_bus_id or "").lower().partition(":")
    return f"{domain.lstrip('0') or '0'}:{rest}" if colon and ":" in rest else None


def _index(gpu: Gpu) -> int | None:
    return gpu.nvml_index if gpu.nvml_index is not None else gpu.cuda_index


def _same(one: Gpu, other: Gpu) -> bool:
    here, there = _bare(one.name), _bare(other.name)
    return here == there or "unknown" in (here, there) or (
        one.name.endswith("...") and there.startswith(here)
    )  # fmt: skip


def _bare(name: str) -> str:
    return name.lower().removeprefix("nvidia ").removesuffix("...").strip()


def _whole_name(name: str, others: list[Gpu]) -> str:
    if name.endswith("...") or name == "unknown":
        return next((o.name for o in others if not o.name.endswith("...")), name)
    return name
