"""Samples of AMD GPUs from the amdgpu driver's files in /sys. Reads the machine.

`amd-smi` reads the same files. Reading them directly needs no special rights, no tools and no extra
process. Source: Linux, Documentation/gpu/amdgpu/thermal.rst and driver-misc.rst.
"""

from __future__ import annotations

from collections.abc import Callable

from gpusetup.accelerators.makers import AMD
from gpusetup.model.frozen import replace
from gpusetup.monitor.documents import GpuSample, Sample
from gpusetup.monitor.sources import Machine, SourceEnded, SourceName
from gpusetup.probe.amd import gpu_of, topology_targets
from gpusetup.probe.pci import FOLDER, read_pci
from gpusetup.system.system import System, list_or_empty, read_or_none

MICROWATTS = 1_000_000
MILLIDEGREES = 1_000
HERTZ = 1_000_000


class AmdGpu(Machine):
    """Samples from the files that the amdgpu driver provides for each card, read once per
    sample."""

    name: SourceName = "amdgpu"

    def __init__(self, readers: list[Callable[[], GpuSample]], interval: float) -> None:
        super().__init__(interval)
        self._readers = readers

    def read(self, timeout: float) -> Sample:
        return replace(super().read(timeout), gpus=tuple(read() for read in self._readers))


def open_amdgpu(interval: float, system: System | None = None) -> AmdGpu:
    """The amdgpu source of samples. Raises SourceEnded if no card reports its utilisation."""
    system = system or System()
    devices = read_pci(system).pci_devices or ()
    cards = [device for device in devices if device.vendor == AMD.id and device.bus_id]
    targets = topology_targets(system)
    readers: list[Callable[[], GpuSample]] = []
    for card in cards:
        folder = f"{FOLDER}/{card.bus_id}"
        # A card without this file, such as some integrated graphics, cannot be watched.
        if number(system, f"{folder}/gpu_busy_percent") is None:
            continue
        name = gpu_of(system, card, targets).name
        readers.append(reader(system, folder, len(readers), name))
    if not readers:
        raise SourceEnded("amdgpu: no AMD GPU reports its utilisation")
    return AmdGpu(readers, interval)


def reader(system: System, folder: str, index: int, name: str) -> Callable[[], GpuSample]:
    """A function that reads one sample of the card whose driver files are in this folder."""
    sensors = [f"{folder}/hwmon/{entry}" for entry in list_or_empty(system, f"{folder}/hwmon")]

    def sensor(*files: str) -> int | None:
        """The value of the first of these sensor files that exists, because cards have different
        sensors; None if none exists."""
        for file in files:
            for place in sensors:
                value = number(system, f"{place}/{file}")
                if value is not None:
                    return value
        return None

    def read() -> GpuSample:
        busy = number(system, f"{folder}/gpu_busy_percent")
        memory_busy = number(system, f"{folder}/mem_busy_percent")
        clock = sensor("freq1_input")
        return GpuSample(
            index=index,
            name=name,
            utilization_percent=None if busy is None else float(busy),
            memory_busy_percent=None if memory_busy is None else float(memory_busy),
            memory_used_bytes=number(system, f"{folder}/mem_info_vram_used"),
            memory_total_bytes=number(system, f"{folder}/mem_info_vram_total"),
            # Prefer the second sensor, which measures the chip's hottest spot; the first one
            # measures its edge.
            temperature_celsius=scaled(sensor("temp2_input", "temp1_input"), MILLIDEGREES),
            power_watts=scaled(sensor("power1_average", "power1_input"), MICROWATTS),
            power_limit_watts=scaled(sensor("power1_cap"), MICROWATTS),
            power_limit_default_watts=scaled(sensor("power1_cap_default"), MICROWATTS),
            power_limit_max_watts=scaled(sensor("power1_cap_max"), MICROWATTS),
            clock_sm_mhz=None if clock is None else clock // HERTZ,
        )

    return read


def number(system: System, path: str) -> int | None:
    """The whole number in a file; None if the file cannot be read or contains anything else."""
    text = (read_or_none(system, path) or "").strip()
    return int(text) if text.isdecimal() and len(text) < 20 else None


def scaled(value: int | None, unit: int) -> float | None:
    """A reading divided by its unit, for example microwatts in watts; None stays None.

    >>> scaled(303_000_000, MICROWATTS), scaled(None, MILLIDEGREES)
    (303.0, None)
    """
    return None if value is None else value / unit
