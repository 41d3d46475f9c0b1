"""The GPU side of a machine, from every source at once.

The cheap sources (files) come first; they tell whether there is anything to ask. Then NVML, which
`nvidia-smi` asks too, and libcuda are asked in two children at the same time, under one deadline.
None of them may load a module or make a node (`child_scripts/hold_back.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from gpusetup.accelerators.makers import identified, judged_on
from gpusetup.model.frozen import replace
from gpusetup.model.machine import CudaApi, Driver, Gpu, PciDevice, Reading, Snapshot
from gpusetup.probe.deadline import LIMIT_SECONDS, BackgroundCall, Deadline, Notify
from gpusetup.probe.driver_files import (
    read_libraries,
    read_modinfo,
    read_module_version,
    read_modules,
    read_nodes,
    read_proc_gpus,
    read_proc_version,
)
from gpusetup.probe.missed_gpus import is_listed_by_cuda, missed_by_cuda, missed_by_nvml
from gpusetup.probe.pci import read_pci, read_wmi
from gpusetup.readings.sources import Snapshots, bus_key, first_known, merged_gpus, missing
from gpusetup.system.system import System

T = TypeVar("T")

FILES: dict[str, tuple[Callable[[System], Snapshot], ...]] = {
    "linux": (
        read_proc_version,
        read_module_version,
        read_modules,
        read_libraries,
        read_pci,
        read_nodes,
        read_proc_gpus,
    ),
    "windows": (read_libraries,),
    "macos": (),
}
"""The readers that start no child, by family, in order of precedence."""


def read_driver_and_gpus(
    system: System,
    *,
    notify: Notify | None = None,
    limit: float = LIMIT_SECONDS,
) -> Snapshot:
    """Everything about driver, CUDA and GPUs. `notify` hears of a wait; `limit` is in seconds."""
    from gpusetup.probe.driver_libraries import read_cuda, read_nvml

    files = [read(system) for read in FILES[system.family]]
    answers: Snapshots = ()
    if hint_at_a_driver(files):
        deadline = Deadline(limit, notify)
        calls = [
            BackgroundCall(_ask_driver, system, deadline, name, read)
            for name, read in (("NVML", read_nvml), ("libcuda", read_cuda))
        ]
        answers = [call.result() for call in calls]
        if system.family == "linux" and not any(part.driver.module_loaded for part in files):
            files.append(read_modinfo(system))
    else:
        if system.family == "windows":
            files.append(read_wmi(system))
        files.append(NOT_ASKED)
    return combine_sources(system, answers, files)


NOT_ASKED = missing("gpus", "nvml, libcuda", "not asked: no driver library, node or module")


def _ask_driver(
    system: System, deadline: Deadline, name: str, read: Callable[[System, float], Snapshot]
) -> Snapshot:
    with deadline.waiting_for(name):
        return read(system, deadline.left())


def hint_at_a_driver(files: Snapshots) -> bool:
    """Whether any file hints at an NVIDIA driver."""
    return any(
        part.driver.library_found or part.driver.module_loaded or part.devices or part.gpus
        for part in files
    )


def combine_sources(system: System, answers: Snapshots, files: Snapshots) -> Snapshot:
    """One snapshot out of all sources: the driver's answers, and what files show."""
    sources, environ = (*answers, *files), system.environ()
    on_bus = _first(part.pci_devices for part in sources)
    located = with_addresses(answers, [device.bus_id for device in judged_on(on_bus)])
    listed, reason = _listed_gpus(located, files, on_bus, system.family)
    all_gpus = [gpu for part in (*located, *files) for gpu in part.gpus or ()]
    everyone = merged_gpus(listed or (), all_gpus)
    gpus = None
    if listed is not None:
        gpus = with_visibility(everyone[: len(listed)], located, environ)
        gpus = with_numa_nodes(gpus, on_bus or ())
    return Snapshot(
        driver=merged_driver(answers, files),
        cuda_api=first_known((CudaApi(), *(part.cuda_api for part in sources))),
        gpus=None if gpus is None else tuple(map(identified, gpus)),
        gpu_links=_first(part.gpu_links for part in sources),
        pci_devices=on_bus,
        devices=_first(part.devices for part in sources),
        events=(
            *(event for part in sources for event in part.events),
            *missed_by_cuda(gpus or (), located, environ),
            *missed_by_nvml(everyone, located, files, environ),
        ),
        readings=(*(reading for part in sources for reading in part.readings), *reason),
    )


def _first(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)


def merged_driver(answers: Snapshots, files: Snapshots) -> Driver:
    """The kernel's files know its version best."""
    known = first_known((Driver(), *(part.driver for part in (*files, *answers))))
    seconds = [part.driver.seconds for part in answers if part.driver.seconds is not None]
    library_found = True if known.libcuda_path else known.library_found
    return replace(known, library_found=library_found, seconds=max(seconds, default=None))


def _listed_gpus(
    answers: Snapshots,
    files: Snapshots,
    on_bus: tuple[PciDevice, ...] | None,
    family: str,
) -> tuple[tuple[Gpu, ...] | None, tuple[Reading, ...]]:
    """The GPUs of the first source that lists some. If no driver answered: () if a list of the
    hardware was read and shows none, else None; a reading says why."""
    by_driver = [part.gpus for part in answers if part.gpus is not None]
    by_kernel = next((part.gpus for part in files if part.gpus), None)
    listed = next(filter(None, by_driver), () if by_driver else by_kernel)
    if listed is not None:
        return listed, ()
    may_be_there = on_bus is None or judged_on(on_bus) or any(part.devices for part in files)
    if may_be_there and family != "macos":
        problem = f"no driver answered; {len(judged_on(on_bus))} on the PCI bus"
        return None, (Reading(subject="gpus", source="all sources", problem=problem),)
    return (), (Reading(subject="gpus", source="all sources", value="no NVIDIA device is listed"),)


def with_visibility(
    gpus: Sequence[Gpu], answers: Snapshots, environ: Mapping[str, str]
) -> Sequence[Gpu]:
    """`visible`, from CUDA's own list; if its variable hides all of them, CUDA has no device."""
    codes = {part.cuda_api.init_code for part in answers if part.gpus is not None}
    if 0 in codes:
        return [replace(gpu, visible=is_listed_by_cuda(gpu)) for gpu in gpus]
    no_device = any(part.cuda_api.init_code == NO_DEVICE for part in answers)
    hidden = no_device and "CUDA_VISIBLE_DEVICES" in environ
    return [replace(gpu, visible=False) for gpu in gpus] if hidden else gpus


def with_numa_nodes(gpus: Sequence[Gpu], on_bus: Iterable[PciDevice]) -> Sequence[Gpu]:
    """The GPUs with the NUMA nodes that the kernel names for their addresses."""
    nodes = {bus_key(device.bus_id): device.numa_node for device in on_bus}
    return [replace(gpu, numa_node=nodes.get(bus_key(gpu.pci_bus_id))) for gpu in gpus]


NO_DEVICE = 100


def with_addresses(answers: Snapshots, on_bus: Iterable[str | None]) -> tuple[Snapshot, ...]:
    """NVML's list with the addresses that the PCI bus and the other lists know. It counts in the
    order of the bus: its place tells the address of a GPU that does not say where it is."""
    listed = [gpu.pci_bus_id for part in answers for gpu in part.gpus or ()]
    addresses = sorted({key for bus in (*on_bus, *listed) if (key := bus_key(bus))})
    return tuple(
        replace(part, gpus=tuple(_with_address(gpu, addresses) for gpu in part.gpus))
        if part.gpus and len(part.gpus) == len(addresses)
        else part
        for part in answers
    )


def _with_address(gpu: Gpu, addresses: Sequence[str]) -> Gpu:
    if gpu.pci_bus_id or gpu.nvml_index is None:
        return gpu
    return replace(gpu, pci_bus_id=addresses[gpu.nvml_index])
