"""Which GPU it is that does not say where it is: the one whose address no other has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpusetup.model.frozen import replace
from gpusetup.model.machine import Gpu, Snapshot
from gpusetup.readings.side import bus_key


def with_addresses(sides: Sequence[Snapshot], listed: Iterable[str | None]) -> tuple[Snapshot, ...]:
    """Every list of GPUs, with the addresses that the PCI bus and the other lists know.

    NVML counts in the order of the bus: where as many addresses as GPUs are left, they are theirs.
    CUDA has an order of its own, so that of its list only a single one is known.
    """
    told = [gpu.pci_bus_id for side in sides for gpu in side.gpus or ()]
    known = sorted({key for bus in (*listed, *told) if (key := bus_key(bus))})
    return tuple(
        side if side.gpus is None else replace(side, gpus=completed(side.gpus, known))
        for side in sides
    )


def completed(gpus: Sequence[Gpu], known: Sequence[str]) -> tuple[Gpu, ...]:
    """
    >>> first = Gpu(name="T4", nvml_index=0, pci_bus_id="0000:07:00.0")
    >>> both = (first, Gpu(name="?", nvml_index=1))
    >>> completed(both, ["0000:07:00.0", "0000:0f:00.0"])[1].pci_bus_id
    '0000:0f:00.0'
    """
    taken = {bus_key(gpu.pci_bus_id) for gpu in gpus}
    free = [bus for bus in known if bus not in taken]
    lacking = [gpu for gpu in gpus if gpu.pci_bus_id is None]
    in_order = len(lacking) == 1 or all(gpu.nvml_index is not None for gpu in lacking)
    if len(free) != len(lacking) or not in_order:
        return tuple(gpus)
    left = iter(free)
    return tuple(gpu if gpu.pci_bus_id else replace(gpu, pci_bus_id=next(left)) for gpu in gpus)
