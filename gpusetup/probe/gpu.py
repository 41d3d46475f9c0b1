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
from gpusetup.probe.driver_files import (
    read_libraries,
    read_modinfo,
    read_module_version,
    read_modules,
    read_nodes,
    read_proc_gpus,
    read_proc_version,
)
from gpusetup.probe.patience import LIMIT_SECONDS, Beside, Notify, Patience
from gpusetup.probe.pci import read_pci, read_wmi
from gpusetup.probe.unlisted import is_by_cuda, missed_by_cuda, unlisted
from gpusetup.readings.side import bus_key, first_known, missing, united
from gpusetup.system.system import System

T = TypeVar("T")
Sides = Sequence[Snapshot]
"""The answers of several sources."""

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


def read_gpu_side(
    system: System,
    *,
    notify: Notify | None = None,
    limit: float = LIMIT_SECONDS,
) -> Snapshot:
    """Everything about driver, CUDA and GPUs. `notify` hears of a wait; `limit` is in seconds."""
    files = [read(system) for read in FILES[system.family]]
    patience = Patience(limit, notify)
    asked: Sides = ()
    if worth_asking(files):
        calls = [_ask(system, patience, name) for name in ("NVML", "libcuda")]
        asked = [one.result() for one in calls]
        if system.family == "linux" and not any(side.driver.module_loaded for side in files):
            files.append(read_modinfo(system))
    else:
        if system.family == "windows":
            files.append(read_wmi(system))
        files.append(SILENT)
    return assembled(system, asked, files)


SILENT = missing("gpus", "nvml, libcuda", "not asked: no driver library, node or module")


def _ask(system: System, patience: Patience, source: str) -> Beside[Snapshot]:
    """Ask one of the driver's libraries, beside others, under one deadline."""
    from gpusetup.probe.driver_libraries import read_cuda, read_nvml

    def asked() -> Snapshot:
        read = read_nvml if source == "NVML" else read_cuda
        with patience.waiting_for(source):
            return read(system, patience.left())

    return Beside(asked)


def worth_asking(files: Sides) -> bool:
    """Whether any file hints at an NVIDIA driver."""
    return any(
        side.driver.library_found or side.driver.module_loaded or side.devices or side.gpus
        for side in files
    )


def assembled(system: System, asked: Sides, files: Sides) -> Snapshot:
    """One answer out of all sources; `asked` are those that the driver answered."""
    sides, environ = (*asked, *files), system.environ()
    listed = _first(side.pci_devices for side in sides)
    asked = with_addresses(asked, [device.bus_id for device in judged_on(listed)])
    base, why = _members(asked, files, listed, system.family)
    everyone = united(base or (), [gpu for side in (*asked, *files) for gpu in side.gpus or ()])
    gpus = None if base is None else with_visibility(everyone[: len(base)], asked, environ)
    return Snapshot(
        driver=merged_driver(asked, files),
        cuda_api=first_known((CudaApi(), *(side.cuda_api for side in sides))),
        gpus=None if gpus is None else tuple(map(identified, gpus)),
        pci_devices=listed,
        devices=_first(side.devices for side in sides),
        events=(
            *(event for side in sides for event in side.events),
            *missed_by_cuda(gpus or (), asked, environ),
            *unlisted(everyone, asked, files, environ),
        ),
        readings=(*(reading for side in sides for reading in side.readings), *why),
    )


def _first(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)


def merged_driver(asked: Sides, files: Sides) -> Driver:
    """The kernel's files know its version best."""
    known = first_known((Driver(), *(side.driver for side in (*files, *asked))))
    waited = [side.driver.seconds for side in asked if side.driver.seconds is not None]
    found = True if known.libcuda_path else known.library_found
    return replace(known, library_found=found, seconds=max(waited, default=None))


def _members(
    asked: Sides,
    files: Sides,
    listed: tuple[PciDevice, ...] | None,
    family: str,
) -> tuple[tuple[Gpu, ...] | None, tuple[Reading, ...]]:
    """The GPUs of the first source that lists some; where no driver answered, () only if a list of
    the hardware was read and shows none."""
    answers = [side.gpus for side in asked if side.gpus is not None]
    held = next((side.gpus for side in files if side.gpus), None)
    base = next(filter(None, answers), () if answers else held)
    if base is not None:
        return base, ()
    there = listed is None or judged_on(listed) or any(side.devices for side in files)
    if there and family != "macos":
        problem = f"no driver answered; {len(judged_on(listed))} on the PCI bus"
        return None, (Reading(subject="gpus", source="all sources", problem=problem),)
    return (), (Reading(subject="gpus", source="all sources", value="no NVIDIA device is listed"),)


def with_visibility(gpus: Sequence[Gpu], asked: Sides, environ: Mapping[str, str]) -> Sequence[Gpu]:
    """`visible`, from CUDA's own list; where its variable hides all of them, CUDA has no device."""
    codes = {side.cuda_api.init_code for side in asked if side.gpus is not None}
    if 0 in codes:
        return [replace(gpu, visible=is_by_cuda(gpu)) for gpu in gpus]
    none = any(side.cuda_api.init_code == NO_DEVICE for side in asked)
    hidden = none and "CUDA_VISIBLE_DEVICES" in environ
    return [replace(gpu, visible=False) for gpu in gpus] if hidden else gpus


NO_DEVICE = 100


def with_addresses(sides: Sequence[Snapshot], listed: Iterable[str | None]) -> tuple[Snapshot, ...]:
    """NVML's list with the addresses that the PCI bus and the other lists know. It counts in the
    order of the bus: its place tells the address of a GPU that does not say where it is."""
    told = [gpu.pci_bus_id for side in sides for gpu in side.gpus or ()]
    known = sorted({key for bus in (*listed, *told) if (key := bus_key(bus))})
    return tuple(
        replace(side, gpus=tuple(_at(gpu, known) for gpu in side.gpus))
        if side.gpus and len(side.gpus) == len(known)
        else side
        for side in sides
    )


def _at(gpu: Gpu, addresses: Sequence[str]) -> Gpu:
    if gpu.pci_bus_id or gpu.nvml_index is None:
        return gpu
    return replace(gpu, pci_bus_id=addresses[gpu.nvml_index])
