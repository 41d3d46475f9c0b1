"""Which of the GPUs are watched: those named, else those that CUDA_VISIBLE_DEVICES leaves. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gpusetup.errors import UsageError
from gpusetup.monitor.values import GpuSample

VARIABLE = "CUDA_VISIBLE_DEVICES"
SHORTEST = len("GPU-")
"""A beginning of a UUID is longer."""


def named_places(names: Sequence[str], gpus: Sequence[GpuSample]) -> tuple[int, ...]:
    """The places of the GPUs that `--gpu` names: `0`, or the start of a UUID.

    >>> two = (GpuSample(index=0, uuid="GPU-aa"), GpuSample(index=1, uuid="GPU-ab"))
    >>> named_places(("1", "gpu-aa", "1"), two)
    (1, 0)
    """
    places = [_place(name, gpus) for name in names]
    return tuple(dict.fromkeys(places))


def _place(name: str, gpus: Sequence[GpuSample]) -> int:
    low = name.lower()
    by_uuid = low if len(low) > 4 and low.startswith("gpu-") else None
    hits = [
        place
        for place, gpu in enumerate(gpus)
        if name == str(gpu.index) or (by_uuid and (gpu.uuid or "").lower().startswith(by_uuid))
    ]
    if len(hits) == 1:
        return hits[0]
    there = ", ".join(f"{gpu.index} ({gpu.uuid or 'UUID unknown'})" for gpu in gpus)
    problem = "Several GPUs are" if hits else "No GPU is"
    raise UsageError(f"{problem} called {name!r}", hint=f"there are: {there}")


def visible_places(
    variable: str, gpus: Sequence[GpuSample], *, pci_order: bool
) -> tuple[tuple[int, ...], str]:
    """The places that the variable leaves, and a word about it; all where that is not known.

    >>> two = (GpuSample(index=0, uuid="GPU-aa"), GpuSample(index=1, uuid="GPU-bb"))
    >>> visible_places("1", two, pci_order=True)
    ((1,), 'CUDA_VISIBLE_DEVICES=1: watching GPU 1')
    """
    said, everything = f"{VARIABLE}={variable}", tuple(range(len(gpus)))
    entries = [entry.strip().lower() for entry in variable.split(",")]
    numbers = [entry for entry in entries if entry.isdecimal()]
    if numbers and not pci_order and len({gpu.name for gpu in gpus}) > 1:
        return everything, f"{said} counts in CUDA's order, unknown here: watching every GPU"
    uuids = tuple(entry for entry in entries if len(entry) > SHORTEST)
    places = tuple(
        place
        for place, gpu in enumerate(gpus)
        if str(gpu.index) in numbers or (gpu.uuid or "").lower().startswith(uuids)
    )
    if not places:
        return everything, f"{said} names no GPU here: watching every GPU"
    labels = ", ".join(str(gpus[place].index) for place in places)
    return places, f"{said}: watching GPU {labels}"
