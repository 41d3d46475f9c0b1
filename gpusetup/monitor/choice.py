"""Which of the GPUs are watched: those named, else those that CUDA_VISIBLE_DEVICES leaves. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gpusetup.errors import UsageError
from gpusetup.monitor.documents import GpuSample

VARIABLE = "CUDA_VISIBLE_DEVICES"
SHORTEST = len("GPU-")
"""A beginning of a UUID is longer."""


def named_places(names: Sequence[str], gpus: Sequence[GpuSample]) -> tuple[int, ...]:
    """The places of the GPUs with these indexes, or beginnings of UUIDs.

    >>> two = (GpuSample(index=0, uuid="GPU-aa"), GpuSample(index=1, uuid="GPU-ab"))
    >>> named_places(("1", "gpu-aa", "1"), two)
    (1, 0)
    """
    places = []
    for name in names:
        start = name.lower() if len(name) > SHORTEST else "none"
        hits = [
            place
            for place, gpu in enumerate(gpus)
            if name == str(gpu.index) or (gpu.uuid or "").lower().startswith(start)
        ]
        if len(hits) != 1:
            there = ", ".join(f"{gpu.index} ({gpu.uuid or 'UUID unknown'})" for gpu in gpus)
            problem = "Several GPUs are" if hits else "No GPU is"
            raise UsageError(f"{problem} called {name!r}", hint=f"there are: {there}")
        places += hits
    return tuple(dict.fromkeys(places))


def visible_places(
    variable: str, gpus: Sequence[GpuSample], *, pci_order: bool
) -> tuple[tuple[int, ...] | None, str]:
    """The places that the variable leaves, None if that is not known, and a word about it.

    >>> two = (GpuSample(index=0, uuid="GPU-aa"), GpuSample(index=1, uuid="GPU-bb"))
    >>> visible_places("1", two, pci_order=True)
    ((1,), 'CUDA_VISIBLE_DEVICES=1: watching GPU 1')
    """
    said, names = f"{VARIABLE}={variable}", [*filter(None, map(str.strip, variable.split(",")))]
    mixed = len({gpu.name for gpu in gpus}) > 1
    if any(map(str.isdecimal, names)) and mixed and not pci_order:
        return None, f"{said} counts in CUDA's order, unknown here: watching every GPU"
    try:
        places = named_places(names, gpus)
    except UsageError:
        places = ()
    if not places:
        return None, f"{said} names no GPU here: watching every GPU"
    labels = ", ".join(str(gpus[place].index) for place in places)
    return places, f"{said}: watching GPU {labels}"
