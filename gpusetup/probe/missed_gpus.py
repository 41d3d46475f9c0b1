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
VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"


def missed_by_nvml(
    gpus: Sequence[Gpu], answers: Snapshots, files: Snapshots, environ: Mapping[str, str]
) -> Iterator[Event]:
    """Events for GPUs that the kernel driver manages and that have device nodes, although NVML does
    not list them.

    In a container or a job that was given only some GPUs, device nodes are missing on purpose. On a
    whole machine, a missing node is a fault.
    """
    bound = _bound_gpus(gpus, files)
    nodes = _node_numbers(files)
    yield from _missing_nodes(bound, nodes)

    listed = [gpu for gpu in gpus if gpu.nvml_index is not None]
    nvml_lists = any(part.driver.nvml_code == 0 and part.gpus is not None for part in answers)
    # If a listed GPU has no address, it may be the one that seems to be missing.
    all_have_addresses = all(gpu.pci_bus_id for gpu in listed)
    if not nvml_lists or not all_have_addresses:
        return
    missed = [gpu for gpu in bound if gpu not in listed and gpu.cuda_index is None]
    is_in_job = any(name in environ for name in JOB_VARIABLES)
    was_given_some = len(nodes) < len(listed) + len(missed)
    if is_in_job or was_given_some:
        return

    slots = sorted({bus_key(gpu.pci_bus_id) or "" for gpu in (*listed, *missed)})
    for gpu in missed:
        # NVML numbers GPUs in the order of their slots, so the slot gives the number that this GPU
        # would have.
        place = str(slots.index(bus_key(gpu.pci_bus_id) or ""))
        text = "NVML does not list this GPU, although the kernel's driver holds it"
        yield _event("gpu-not-listed", gpu, text, source="NVML", place=place)


def _missing_nodes(bound: Sequence[Gpu], nodes: set[int]) -> Iterator[Event]:
    """Events for GPUs that the driver manages but that have no device node, although other GPUs
    have one."""
    if not nodes or len(nodes) >= len(bound):
        return
    missing_numbers = set(range(len(bound))) - nodes
    for number in sorted(missing_numbers):
        # The driver numbers the nodes by slot too.
        text = f"/dev/nvidia{number} is missing"
        yield _event("device-node-missing", bound[number], text, source="/dev", gpu=str(number))


def missed_by_cuda(
    gpus: Sequence[Gpu], answers: Snapshots, environ: Mapping[str, str]
) -> Iterator[Event]:
    """Events for GPUs that NVML lists but CUDA does not, although nothing hides them.

    A GPU in MIG mode without an instance is left out, because another finding reports it. If a GPU
    has an instance, CUDA lists the instance instead of the whole GPU.
    """
    if VISIBLE_DEVICES in environ or not _has_complete_cuda_list(answers):
        return
    listed = [gpu for gpu in gpus if gpu.cuda_index is not None]
    only_instances = bool(listed) and all(gpu.mig_enabled for gpu in listed)
    if only_instances:
        return
    for gpu in gpus:
        has_no_instance = gpu.mig_enabled and gpu.mig_count == 0
        if gpu.nvml_index is None or gpu.lost or has_no_instance:
            continue
        if is_listed_by_cuda(gpu) is False:
            values = {"source": "libcuda", "asked": "nvml", "gpu": str(gpu.nvml_index)}
            yield _event("cuda-misses-gpu", gpu, "not in CUDA's list", **values)


def _has_complete_cuda_list(answers: Snapshots) -> bool:
    """Whether CUDA started and described every device that it counted."""
    for part in answers:
        api = part.cuda_api
        if api.init_code == 0 and part.gpus is not None and len(part.gpus) == api.device_count:
            return True
    return False


def _event(kind: str, missed: Gpu, text: str, *, source: str, **values: str) -> Event:
    """An event about a GPU that is missing in a source's list."""
    gpu_values = {
        "bus": missed.pci_bus_id or "",
        "name": missed.name,
    }
    return Event(
        kind=kind,
        values={**values, **gpu_values},
        source=source,
        text=f"{text}: {gpu_line(missed)}",
    )


def is_listed_by_cuda(gpu: Gpu) -> bool | None:
    """Whether CUDA lists the GPU; None if the GPU has no UUID or PCI address to compare.

    A Jetson's GPU has neither UUID nor address in NVML's list.
    """
    if gpu.uuid is None and gpu.pci_bus_id is None:
        return None
    return gpu.cuda_index is not None


def _node_numbers(files: Snapshots) -> set[int]:
    """The numbers in the names of the GPUs' device nodes, such as 5 for /dev/nvidia5."""
    numbers = set()
    for part in files:
        for node in part.devices or ():
            number = re.search(r"nvidia(\d+)$", node.path)
            if number is not None:
                numbers.add(int(number[1]))
    return numbers


def _bound_gpus(gpus: Sequence[Gpu], files: Snapshots) -> list[Gpu]:
    """The GPUs in /proc/driver/nvidia/gpus that are bound to the driver on the PCI bus, in order of
    their slots."""
    bound_on_bus: set[str | None] = set()
    held_by_driver: set[str | None] = set()
    for part in files:
        for device in judged_on(part.pci_devices):
            if device.driver == "nvidia":
                bound_on_bus.add(bus_key(device.bus_id))
        held_by_driver.update(bus_key(gpu.pci_bus_id) for gpu in part.gpus or ())

    bound_gpus = {}
    for gpu in gpus:
        slot = bus_key(gpu.pci_bus_id)
        if slot in bound_on_bus and slot in held_by_driver:
            bound_gpus[slot] = gpu
    return [bound_gpus[slot] for slot in sorted(bound_gpus, key=str)]
