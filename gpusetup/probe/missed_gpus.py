"""GPUs that one source lists but another does not. The sources are the kernel driver, NVML, CUDA
and /dev."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from gpusetup.accelerators.makers import judged_on
from gpusetup.model.machine import Event, Gpu
from gpusetup.readings.sources import Snapshots, bus_key, gpu_line

JOB_VARIABLES = (
    "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "COBALT_JOBID", "FLUX_JOB_ID", "OAR_JOB_ID",
)  # fmt: skip
"""Variables that batch systems set in a job. A job may have only some of the machine's GPUs and
still see the files of all of them."""


def missed_by_nvml(
    gpus: Sequence[Gpu], answers: Snapshots, files: Snapshots, environ: Mapping[str, str]
) -> Iterator[Event]:
    """Events for GPUs that the kernel driver manages and that have device nodes, although NVML does
    not list them.

    In a container or a job that was given only some GPUs, device nodes are missing on purpose. On a
    whole machine, a missing node is a fault.
    """
    # The GPUs in /proc/driver/nvidia/gpus that are bound to the driver on the PCI bus, by slot.
    held = {bus_key(gpu.pci_bus_id) for part in files for gpu in part.gpus or ()}
    held &= {
        bus_key(device.bus_id)
        for part in files
        for device in judged_on(part.pci_devices)
        if device.driver == "nvidia"
    }
    by_slot = {bus_key(gpu.pci_bus_id): gpu for gpu in gpus}
    bound = [by_slot[slot] for slot in sorted(by_slot, key=str) if slot in held]
    paths = (node.path for part in files for node in part.devices or ())
    nodes = {int(name[1]) for name in map(NUMBERED_NODE.search, paths) if name}
    if nodes and len(nodes) < len(bound):
        # The driver numbers the nodes by slot too.
        for number in sorted(set(range(len(bound))) - nodes):
            text = f"/dev/nvidia{number} is missing"
            yield _event("device-node-missing", bound[number], text, source="/dev", gpu=str(number))

    lists = [part.gpus for part in answers if part.driver.nvml_code == 0 and part.gpus is not None]
    listed = {bus_key(gpu.pci_bus_id) for gpus_of_nvml in lists for gpu in gpus_of_nvml}
    # If a listed GPU has no address, it may be the one that seems to be missing.
    if not lists or None in listed:
        return
    missed = [
        gpu for gpu in bound if bus_key(gpu.pci_bus_id) not in listed and gpu.cuda_index is None
    ]
    was_given_some = len(nodes) < len(listed) + len(missed)
    if was_given_some or any(name in environ for name in JOB_VARIABLES):
        return
    slots = sorted({*filter(None, listed), *(bus_key(gpu.pci_bus_id) or "" for gpu in missed)})
    for gpu in missed:
        # NVML numbers GPUs in the order of their slots, so the slot gives the number that this GPU
        # would have.
        place = str(slots.index(bus_key(gpu.pci_bus_id) or ""))
        text = "NVML does not list this GPU, although the kernel's driver holds it"
        yield _event("gpu-not-listed", gpu, text, source="NVML", place=place)


NUMBERED_NODE = re.compile(r"nvidia(\d+)$")


def missed_by_cuda(
    gpus: Sequence[Gpu], answers: Snapshots, environ: Mapping[str, str]
) -> Iterator[Event]:
    """Events for GPUs that NVML lists but CUDA does not, although nothing hides them.

    A GPU in MIG mode without an instance is left out, because another finding reports it. If a GPU
    has an instance, CUDA lists the instance instead of the whole GPU.
    """
    # CUDA must have started and described every device that it counted.
    is_complete = any(
        part.cuda_api.init_code == 0
        and part.gpus is not None
        and len(part.gpus) == part.cuda_api.device_count
        for part in answers
    )
    listed = [gpu for gpu in gpus if gpu.cuda_index is not None]
    only_instances = bool(listed) and all(gpu.mig_enabled for gpu in listed)
    if "CUDA_VISIBLE_DEVICES" in environ or not is_complete or only_instances:
        return
    for gpu in gpus:
        has_no_instance = gpu.mig_enabled and gpu.mig_count == 0
        if gpu.nvml_index is None or gpu.lost or has_no_instance:
            continue
        if is_listed_by_cuda(gpu) is False:
            values = {"source": "libcuda", "asked": "nvml", "gpu": str(gpu.nvml_index)}
            yield _event("cuda-misses-gpu", gpu, "not in CUDA's list", **values)


def _event(kind: str, missed: Gpu, text: str, *, source: str, **values: str) -> Event:
    values |= {"bus": missed.pci_bus_id or "", "name": missed.name}
    return Event(kind=kind, values=values, source=source, text=f"{text}: {gpu_line(missed)}")


def is_listed_by_cuda(gpu: Gpu) -> bool | None:
    """Whether CUDA lists the GPU; None if the GPU has no UUID or PCI address to compare, as a
    Jetson's in NVML's list."""
    if gpu.uuid is None and gpu.pci_bus_id is None:
        return None
    return gpu.cuda_index is not None
