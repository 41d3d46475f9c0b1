"""Which of the GPUs are watched: those named, else those that CUDA_VISIBLE_DEVICES leaves. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gpusetup.errors import UsageError
from gpusetup.monitor.values import GpuSample

VARIABLE = "CUDA_VISIBLE_DEVICES"


def named_places(names: Sequence[str], gpus: Sequence[GpuSample]) -> tuple[int, ...]:
    """The places of the GPUs that `--gpu` names: `0`, `0:1` (MIG), or the start of a UUID.

    >>> two = (GpuSample(index=0, uuid="GPU-aa"), GpuSample(index=1, uuid="GPU-ab"))
    >>> named_places(("1", "gpu-aa", "1"), two)
    (1, 0)
    """
    places = [_place(name, gpus) for name in names]
    return tuple(dict.fromkeys(places))


def _place(name: str, gpus: Sequence[GpuSample]) -> int:
    low = name.lower()
    by_uuid = low if len(low) > 4 and low.startswith(("gpu-", "mig-")) else None
    hits = [
        place
        for place, gpu in enumerate(gpus)
        if name == gpu.label or (by_uuid and (gpu.uuid or "").lower().startswith(by_uuid))
    ]
    if len(hits) == 1:
        return hits[0]
    there = ", ".join(f"{gpu.label} ({gpu.uuid or 'UUID unknown'})" for gpu in gpus)
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
    wanted = [entry.strip().lower() for entry in variable.split(",")]
    instances = [place for place in everything if gpus[place].mig_index is not None]
    places = tuple(place for place in instances if (gpus[place].uuid or "?").lower() in wanted)
    if not places:  # whole GPUs, each with its instances
        whole = [gpu for gpu in gpus if gpu.mig_index is None]
        kept = {gpu.index for gpu in _left(wanted, whole)}
        by_number = wanted[0].isdecimal() and not pci_order and len({g.name for g in whole}) > 1
        if by_number and 0 < len(kept) < len(whole):
            return everything, f"{said} counts in CUDA's order, unknown here: watching every GPU"
        places = tuple(place for place in everything if gpus[place].index in kept)
    if not places:
        return everything, f"{said} hides every GPU from CUDA: watching all the same"
    labels = ", ".join(gpus[place].label for place in places)
    return places, f"{said}: watching GPU {labels}"


def _left(wanted: Sequence[str], whole: Sequence[GpuSample]) -> list[GpuSample]:
    """The GPUs that the variable names, by number or by the start of a UUID: the first entry that
    names none ends the list (CUDA C++ programming guide, "CUDA Environment Variables")."""
    left: list[GpuSample] = []
    for entry in wanted:
        hits = [
            gpu
            for gpu in whole
            if entry == str(gpu.index)
            or (entry.startswith("gpu-") and (gpu.uuid or "").lower().startswith(entry))
        ]
        if len(hits) != 1:
            break
        left += hits
    return left
