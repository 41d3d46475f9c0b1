"""GPUs that one source lists and another misses: the kernel's driver, NVML, CUDA, /dev."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from gpusetup.accelerators.makers import judged_on
from gpusetup.model.machine import Event, Gpu
from gpusetup.readings.sources import Snapshots, bus_key, gpu_line

JOB_VARIABLES = (
    "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "COBALT_JOBID", "FLUX_JOB_ID", "OAR_JOB_ID",
)  # fmt: skip
"""Variables of batch systems: a job is given some of the machine's GPUs, and sees them all."""
VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"


def missed_by_nvml(
    gpus: Sequence[Gpu], answers: Snapshots, files: Snapshots, environ: Mapping[str, str]
) -> Iterator[Event]:
    """GPUs that should be in NVML's list: the kernel's driver holds them, and each has a node. A
    container or a job that was given some GPUs has fewer nodes; on a whole machine that is a fault.
    """
    listed = [gpu for gpu in gpus if gpu.nvml_index is not None]
    bound, nodes = _bound_gpus(gpus, files), _node_numbers(files)
    for number in sorted({*range(len(bound))} - nodes) if 0 < len(nodes) < len(bound) else ():
        # The driver numbers the nodes by slot.
        text = f"/dev/nvidia{number} is missing"
        yield _event("device-node-missing", bound[number], text, source="/dev", gpu=str(number))
    nvml_lists = any(part.driver.nvml_code == 0 and part.gpus is not None for part in answers)
    if not nvml_lists or not all(gpu.pci_bus_id for gpu in listed):
        return  # one without an address may be the one that lacks
    missed = [gpu for gpu in bound if gpu not in listed and gpu.cuda_index is None]
    if any(name in environ for name in JOB_VARIABLES) or len(nodes) < len(listed) + len(missed):
        return
    slots = sorted({bus_key(gpu.pci_bus_id) or "" for gpu in (*listed, *missed)})
    for gpu in missed:
        place = str(slots.index(bus_key(gpu.pci_bus_id) or ""))  # NVML counts by slot
        text = "NVML does not list this GPU, although the kernel's driver holds it"
        yield _event("gpu-not-listed", gpu, text, source="NVML", place=place)


def missed_by_cuda(
    gpus: Sequence[Gpu], answers: Snapshots, environ: Mapping[str, str]
) -> Iterator[Event]:
    """GPUs that NVML lists and CUDA does not, if nothing hides them. A GPU in MIG mode without
    an instance has a finding of its own; beside an instance CUDA shows no whole GPU.
    """
    complete = any(
        part.cuda_api.init_code == 0
        and part.gpus is not None
        and len(part.gpus) == part.cuda_api.device_count
        for part in answers
    )
    listed = [gpu for gpu in gpus if gpu.cuda_index is not None]
    only_instances = listed and all(gpu.mig_enabled for gpu in listed)
    if VISIBLE_DEVICES in environ or not complete or only_instances:
        return
    for gpu in gpus:
        empty = gpu.lost or (gpu.mig_enabled and gpu.mig_count == 0)
        if gpu.nvml_index is not None and not empty and is_listed_by_cuda(gpu) is False:
            values = {"source": "libcuda", "asked": "nvml", "gpu": str(gpu.nvml_index)}
            yield _event("cuda-misses-gpu", gpu, "not in CUDA's list", **values)


def _event(kind: str, missed: Gpu, text: str, *, source: str, **values: str) -> Event:
    own = {**values, "bus": missed.pci_bus_id or "", "name": missed.name}
    return Event(kind=kind, values=own, source=source, text=f"{text}: {gpu_line(missed)}")


def is_listed_by_cuda(gpu: Gpu) -> bool | None:
    """Whether CUDA, which answered, lists it; None if it has neither UUID nor address (a
    Jetson's in NVML's list)."""
    if gpu.uuid is None and gpu.pci_bus_id is None:
        return None
    return gpu.cuda_index is not None


def _node_numbers(files: Snapshots) -> set[int]:
    """Of the nodes of GPUs: 5 for /dev/nvidia5."""
    paths = (node.path for part in files for node in part.devices or ())
    return {int(found[1]) for path in paths if (found := re.search(r"nvidia(\d+)$", path))}


def _bound_gpus(gpus: Sequence[Gpu], files: Snapshots) -> list[Gpu]:
    """The GPUs of /proc/driver/nvidia/gpus that the bus shows in the driver's hand, by slot."""
    devices = (device for part in files for device in judged_on(part.pci_devices))
    held = {bus_key(device.bus_id) for device in devices if device.driver == "nvidia"}
    held &= {bus_key(gpu.pci_bus_id) for part in files for gpu in part.gpus or ()}
    found = {bus: gpu for gpu in gpus if (bus := bus_key(gpu.pci_bus_id)) in held}
    return [found[bus] for bus in sorted(found, key=str)]
