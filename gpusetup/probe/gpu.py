"""Everything about the GPUs of a machine, from all sources.

Files come first, because they are quick to read and show whether there is a driver to query. NVML,
which `nvidia-smi` uses too, and libcuda are then queried at the same time, in child processes with
a common time limit. Neither may load a kernel module or create a device node
(`child_scripts/hold_back.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from gpusetup.accelerators.makers import identified, judged_on
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Gpu, PciDevice, Reading, Snapshot
from gpusetup.probe.deadline import LIMIT_SECONDS, Notify, announced, in_background
from gpusetup.probe.driver_files import read_driver_files, read_modinfo
from gpusetup.probe.pci import read_wmi
from gpusetup.readings.environment import JOB_VARIABLES
from gpusetup.readings.sources import (
    Snapshots,
    bus_key,
    first_known,
    gpu_line,
    merged_gpus,
    merged_snapshots,
    missing,
)
from gpusetup.system.system import System

NOT_ASKED = missing("gpus", "nvml, libcuda", "not asked: no driver library, node or module")
NO_DEVICE = 100
"""The code of CUDA_ERROR_NO_DEVICE."""
NUMBERED_NODE = re.compile(r"nvidia\d+$")


def read_driver_and_gpus(
    system: System, *, notify: Notify | None = None, limit: float = LIMIT_SECONDS
) -> Snapshot:
    """Everything about the driver, CUDA and the GPUs.

    `notify` is called if the driver is slow. The driver may take `limit` seconds.
    """
    files = read_driver_files(system)
    answers: list[Snapshot] = []
    if hint_at_a_driver(files):
        has_several = any(len(part.gpus or ()) > 1 for part in files)
        *answers, topology = _ask_driver(system, limit, notify, has_several=has_several)
        files.append(topology)
        # A kernel module that is not loaded may still be installed.
        is_loaded = any(part.driver.module_loaded for part in files)
        if system.family == "linux" and not is_loaded:
            files.append(read_modinfo(system))
    else:
        # Windows itself lists the cards, even without their driver.
        if system.family == "windows":
            files.append(read_wmi(system))
        files.append(NOT_ASKED)
    return combine_sources(system, answers, files)


def _ask_driver(
    system: System, limit: float, notify: Notify | None, *, has_several: bool
) -> Snapshots:
    """The answers of NVML, of libcuda and, last, how the GPUs are connected (empty for one GPU).
    All run at once: each process that opens the driver alone would start the GPUs again."""
    # Imported here because a machine without a driver does not need them.
    from gpusetup.probe.driver_libraries import read_cuda, read_nvml
    from gpusetup.probe.nvidia_smi import read_topology

    sources = {"NVML": read_nvml, "libcuda": read_cuda}
    if has_several:
        sources["nvidia-smi"] = read_topology
    calls = {name: in_background(read, system, limit) for name, read in sources.items()}

    def pending() -> list[str]:
        return [name for name, call in calls.items() if not call.done()]

    with announced(pending, limit, notify):
        answers = [call.result() for call in calls.values()]
    return answers if has_several else [*answers, Snapshot()]


def hint_at_a_driver(files: Snapshots) -> bool:
    """Whether any of these snapshots from files suggests that there is an NVIDIA driver."""
    return any(
        part.driver.library_found or part.driver.module_loaded or part.devices or part.gpus
        for part in files
    )


def combine_sources(system: System, answers: Snapshots, files: Snapshots) -> Snapshot:
    """A snapshot that combines all sources: the answers of the driver's libraries, and the files.

    Kernel files come first for the driver, because they have the exact version.
    """
    sources, environ = (*answers, *files), system.environ()
    merged = merged_snapshots(sources)
    listed, reason = _listed_gpus(answers, files, merged.pci_devices, system.family)
    gpus: tuple[Gpu, ...] | None = None
    left_out: tuple[Gpu, ...] = ()
    if listed is not None:  # otherwise there may be GPUs that no source lists
        of_sources = [gpu for part in sources for gpu in part.gpus or ()]
        # `merged_gpus` puts GPUs that only another source knows behind the listed ones; the first
        # source decides which GPUs there are.
        known = merged_gpus(listed, of_sources)
        left_out = known[len(listed) :]
        gpus = tuple(map(identified, _with_visibility(known[: len(listed)], answers, environ)))
    driver = first_known([part.driver for part in (*files, *answers)])
    # If a libcuda was loaded, the library exists, even if it is in an unusual folder.
    if driver.libcuda_path:
        driver = replace(driver, library_found=True)
    return replace(
        merged,
        driver=driver,
        gpus=gpus,
        events=(
            *merged.events,
            *missed_by_nvml(left_out, listed or (), merged, environ),
            *missed_by_cuda(gpus or (), answers, environ),
        ),
        readings=(*merged.readings, *reason),
    )


def _listed_gpus(
    answers: Snapshots, files: Snapshots, on_bus: tuple[PciDevice, ...] | None, family: str
) -> tuple[tuple[Gpu, ...] | None, tuple[Reading, ...]]:
    """The GPUs from the first source that lists any. If there are none, a reading says why.

    If no driver responded, the result is () if the hardware was read and shows no NVIDIA GPU.
    Otherwise it is None, because there may be a GPU.
    """
    of_driver = [part.gpus for part in answers if part.gpus is not None]
    of_files = [part.gpus for part in files if part.gpus]
    if of_driver:
        # An empty list from a driver that works means that there is no GPU.
        return next(filter(None, of_driver), ()), ()
    if of_files:
        return of_files[0], ()
    nvidia_on_bus = judged_on(on_bus)
    has_device_nodes = any(part.devices for part in files)
    may_have_gpu = on_bus is None or nvidia_on_bus or has_device_nodes
    # Current macOS has no driver for NVIDIA GPUs, so no driver can respond there.
    if may_have_gpu and family != "macos":
        problem = f"no driver answered; {len(nvidia_on_bus)} on the PCI bus"
        return None, (Reading(subject="gpus", source="all sources", problem=problem),)
    return (), (Reading(subject="gpus", source="all sources", value="no NVIDIA device is listed"),)


def _with_visibility(
    gpus: Sequence[Gpu], answers: Snapshots, environ: Mapping[str, str]
) -> Sequence[Gpu]:
    """The GPUs with `visible` set according to CUDA's list, or False if CUDA_VISIBLE_DEVICES hides
    all of them; unchanged if CUDA did not start for another reason."""
    if any(part.gpus is not None and part.cuda_api.init_code == 0 for part in answers):
        return [replace(gpu, visible=is_listed_by_cuda(gpu)) for gpu in gpus]
    # If the variable hides all GPUs, CUDA reports that there is no device.
    has_no_device = any(part.cuda_api.init_code == NO_DEVICE for part in answers)
    if has_no_device and "CUDA_VISIBLE_DEVICES" in environ:
        return [replace(gpu, visible=False) for gpu in gpus]
    return gpus


def missed_by_nvml(
    left_out: Sequence[Gpu], listed: Sequence[Gpu], merged: Snapshot, environ: Mapping[str, str]
) -> Iterator[Event]:
    """Events for GPUs that the kernel's driver holds although NVML, which works, lists only others.

    A container or a batch job may see the kernel's files of all GPUs and was given only some.
    """
    of_nvidia = [device for device in merged.pci_devices or () if device.driver == "nvidia"]
    bound = {bus_key(device.bus_id) for device in of_nvidia}
    missed = [gpu for gpu in left_out if bus_key(gpu.pci_bus_id) in bound]
    nodes = [node for node in merged.devices or () if NUMBERED_NODE.search(node.path)]
    # A container has a node for each GPU that it was given.
    was_given_some = len(nodes) < len(listed) + len(missed) or JOB_VARIABLES & environ.keys()
    # A listed GPU without an address may be the one that seems to be missing.
    have_addresses = all(gpu.pci_bus_id for gpu in listed)
    if was_given_some or merged.driver.nvml_code != 0 or not have_addresses:
        return
    for gpu in missed:
        text = f"the kernel's driver holds it, NVML does not list it: {gpu_line(gpu)}"
        values = {"bus": gpu.pci_bus_id or "", "gpu": str(gpu.nvml_index), "name": gpu.name}
        yield Event(kind="gpu-not-listed", values=values, source="NVML", text=text)


def missed_by_cuda(
    gpus: Sequence[Gpu], answers: Snapshots, environ: Mapping[str, str]
) -> Iterator[Event]:
    """Events for GPUs that NVML lists but CUDA does not, although nothing hides them.

    With MIG, CUDA lists an instance instead of the whole GPUs, so nothing is compared.
    """
    # CUDA must have started and described every device that it counted.
    is_complete = any(
        part.cuda_api.init_code == 0
        and part.gpus is not None
        and len(part.gpus) == part.cuda_api.device_count
        for part in answers
    )
    uses_mig = any(gpu.mig_enabled for gpu in gpus)
    if "CUDA_VISIBLE_DEVICES" in environ or not is_complete or uses_mig:
        return
    for gpu in gpus:
        if gpu.nvml_index is not None and not gpu.lost and is_listed_by_cuda(gpu) is False:
            bus, index = gpu.pci_bus_id or "", str(gpu.nvml_index)
            values = {"asked": "nvml", "gpu": index, "bus": bus, "name": gpu.name}
            text = f"not in CUDA's list: {gpu_line(gpu)}"
            yield Event(kind="cuda-misses-gpu", values=values, source="libcuda", text=text)


def is_listed_by_cuda(gpu: Gpu) -> bool | None:
    """Whether CUDA lists the GPU; None if the GPU has no UUID or PCI address to compare, as a
    Jetson's in NVML's list."""
    if gpu.uuid is None and gpu.pci_bus_id is None:
        return None
    return gpu.cuda_index is not None
