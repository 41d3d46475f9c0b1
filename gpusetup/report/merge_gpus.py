"""Lists of GPUs of many places become one: the most trusted list, each GPU with what others know."""

from __future__ import annotations

from gpusetup.model.frozen import fields, replace
from gpusetup.model.machine import Gpu, Reading
from gpusetup.readings.side import bus_key, first_known, told_gpus
from gpusetup.report.facts import Gpus

READINGS_A_SUBJECT = 4
GPUS_KEPT = 64
LARGEST = 1 << 50


def choose_gpus(lists: list[Gpus]) -> tuple[tuple[Gpu, ...] | None, tuple[Reading, ...]]:
    """The most trusted list with GPUs in it, each GPU with what other lists know of it."""
    told = (told_gpus(one.source, one.gpus) for one in lists[:READINGS_A_SUBJECT])
    readings = tuple(reading for some in told for reading in some)
    full = sorted((one for one in lists if one.gpus), key=lambda one: -one.trust)
    if not full:
        return (() if lists else None), readings
    kept = full[0].gpus[:GPUS_KEPT]
    others = [(place, gpu) for one in full[1:] for place, gpu in enumerate(one.gpus)]
    gpus = []
    for place, gpu in enumerate(kept):
        same = [o for at, o in others if _is_same(gpu, place, o, at, alone=len(kept) == 1)]
        whole = (other.name for other in same if not _is_cut(other.name))
        name = next(whole, gpu.name) if _is_cut(gpu.name) else gpu.name
        known = first_known([replace(one, name=name) for one in (gpu, *same)])
        gpus.append(_possible(known))
    return tuple(gpus), readings


def _is_cut(name: str) -> bool:
    return name.endswith("...") or name == "unknown"


def _possible(gpu: Gpu) -> Gpu:
    """Without numbers that no GPU has: damaged text holds such, and JSON has no room for them."""
    numbers = {part.name: getattr(gpu, part.name) for part in fields(gpu)}
    absurd = [
        name
        for name, value in numbers.items()
        if isinstance(value, int | float) and not 0 <= value < LARGEST
    ]
    return replace(gpu, **dict.fromkeys(absurd)) if absurd else gpu


def _is_same(gpu: Gpu, place: int, other: Gpu, at: int, *, alone: bool) -> bool:
    """Whether two lists speak of one GPU: by its UUID, slot or number, else by its name."""
    here, there = (
        one.name.lower().removeprefix("nvidia ").removesuffix("...").strip() for one in (gpu, other)
    )
    cut = gpu.name.endswith("...") and there.startswith(here)
    if here != there and "unknown" not in (here, there) and not cut:
        return False
    for own, others in (
        (gpu.uuid, other.uuid),
        (bus_key(gpu.pci_bus_id), bus_key(other.pci_bus_id)),
    ):
        if own and others:
            return own == others
    index = other.cuda_index if other.nvml_index is None else other.nvml_index
    if index is not None:
        return index == place
    return alone or (other.name != "unknown" and at == place)
