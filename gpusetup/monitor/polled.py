"""Samples of sources that are asked again for each sample: `nvidia-smi`, used if NVML cannot be
loaded, and the files that the amdgpu driver provides for each card. Reads the machine.

These samples contain neither processes nor the traffic of links. `amd-smi` reads the same files;
reading them directly needs no special rights, no tools and no extra process (Linux,
Documentation/gpu/amdgpu/thermal.rst and driver-misc.rst).
"""

from __future__ import annotations

from functools import partial

from gpusetup.accelerators.makers import AMD
from gpusetup.monitor.documents import GpuSample
from gpusetup.monitor.smi_logs import csv_rows, moments_of_rows
from gpusetup.monitor.sources import PolledSource, SourceEnded
from gpusetup.probe.nvidia_smi import PROGRAM, ask_nvidia_smi
from gpusetup.probe.other_makers import gpu_of, topology_targets
from gpusetup.probe.pci import FOLDER, read_pci
from gpusetup.readings.smi_csv import heading_of
from gpusetup.system.system import System, list_or_empty, read_or_none

FIELDS = (
    *("index", "name", "uuid", "utilization.gpu", "utilization.memory", "memory.used"),
    *("memory.total", "temperature.gpu", "power.draw", "power.limit", "clocks.sm"),
)
"""Fields that every driver knows: nvidia-smi rejects a query with an unknown field."""
ANSWER_SECONDS = 10.0
"""Without persistence mode, a large node may take several seconds."""
LONGEST_REASON = 200
"""How many characters of nvidia-smi's error message are shown."""


def open_nvidia_smi(interval: float) -> PolledSource:
    """The nvidia-smi source. Raises SourceEnded if the program is missing or shows no GPU."""
    read_gpus = partial(smi_gpus, System())
    source = PolledSource(interval, "nvidia-smi", read_gpus)
    # Asked now, so that a failure shows before the run begins.
    source.first = source.sample_of(read_gpus())
    return source


def smi_gpus(system: System) -> tuple[GpuSample, ...]:
    """The GPUs that nvidia-smi shows now. Raises SourceEnded if it shows none."""
    options = (f"--query-gpu={','.join(FIELDS)}", "--format=csv")
    answer = ask_nvidia_smi(system, options, ANSWER_SECONDS)
    if answer is None:
        raise SourceEnded(f"{PROGRAM}: not found")
    heading, *lines = answer.stdout.splitlines() or [""]
    names = heading_of(heading)
    # One query prints one moment, without a time.
    _, gpus = next(moments_of_rows(csv_rows(names, lines)), (None, ()))
    # Check the output, because nvidia-smi exits with 0 even if it only printed an error.
    if not gpus:
        printed = (answer.stdout or answer.stderr).strip().splitlines() or ["no answer"]
        raise SourceEnded(f"{PROGRAM}: {answer.problem or printed[0][:LONGEST_REASON]}")
    return gpus


# --- AMD ------------------------------------------------------------------------------------------


def open_amdgpu(interval: float, system: System | None = None) -> PolledSource:
    """The amdgpu source. Raises SourceEnded if no card reports its utilisation."""
    system = system or System()
    targets = topology_targets(system)
    names: dict[str, str] = {}
    for device in read_pci(system).pci_devices or ():
        if device.vendor != AMD.id or not device.bus_id:
            continue
        folder = f"{FOLDER}/{device.bus_id}"
        # Some integrated graphics have no such file and cannot be watched.
        if number(system, f"{folder}/gpu_busy_percent") is not None:
            names[folder] = gpu_of(system, device, targets).name
    if not names:
        raise SourceEnded("amdgpu: no AMD GPU reports its utilisation")

    def read_gpus() -> tuple[GpuSample, ...]:
        cards = enumerate(names.items())
        return tuple(amd_gpu(system, index, folder, name) for index, (folder, name) in cards)

    return PolledSource(interval, "amdgpu", read_gpus)


def amd_gpu(system: System, index: int, folder: str, name: str) -> GpuSample:
    """A sample of the card whose driver files are in this folder."""
    hwmon = f"{folder}/hwmon"
    sensor_folders = [f"{hwmon}/{entry}" for entry in list_or_empty(system, hwmon)]

    def sensor(units: int, *files: str) -> float | None:
        """The first of these sensor files that exists, because cards have different sensors; its
        value divided by `units`, the file's units in one of ours. None if none exists."""
        paths = (f"{sensors}/{file}" for file in files for sensors in sensor_folders)
        values = (number(system, path) for path in paths)
        return next((value / units for value in values if value is not None), None)

    clock = sensor(1_000_000, "freq1_input")  # Hz
    return GpuSample(
        index=index,
        name=name,
        utilization_percent=number(system, f"{folder}/gpu_busy_percent"),
        memory_busy_percent=number(system, f"{folder}/mem_busy_percent"),
        memory_used_bytes=number(system, f"{folder}/mem_info_vram_used"),
        memory_total_bytes=number(system, f"{folder}/mem_info_vram_total"),
        # Prefer the second sensor (in millidegrees), which measures the chip's hottest spot; the
        # first one measures its edge.
        temperature_celsius=sensor(1_000, "temp2_input", "temp1_input"),
        # In microwatts; some cards report only the momentary power.
        power_watts=sensor(1_000_000, "power1_average", "power1_input"),
        power_limit_watts=sensor(1_000_000, "power1_cap"),
        power_limit_default_watts=sensor(1_000_000, "power1_cap_default"),
        clock_sm_mhz=None if clock is None else int(clock),
    )


def number(system: System, path: str) -> int | None:
    """The whole number in a file; None if the file cannot be read or contains anything else."""
    text = (read_or_none(system, path) or "").strip()
    # The kernel prints no number of more than 64 bits, which has 20 digits at most.
    return int(text) if text.isdecimal() and len(text) <= 20 else None
