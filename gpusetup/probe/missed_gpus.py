"""GPUs that the kernel driver holds but NVML does not list."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from gpusetup.accelerators.makers import judged_on
from gpusetup.model.machine import Event, Gpu
from gpusetup.readings.sources import Snapshots, bus_key, gpu_line

JOB_VARIABLES = (
    "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "COBALT_JOBID", "FLUX_JOB_ID", "OAR_JOB_ID",
)  # fmt: skip
"""Variables that batch systems set in a job."""
NUMBERED_NODE = re.compile(r"nvidia(\d+)$")


def missed_by_nvml(
    gpus: Sequence[Gpu], answers: Snapshots, files: Snapshots, environ: Mapping[str, str]
) -> Iterator[Event]:
    """Events for GPUs that the kernel driver manages and that have device nodes, although NVML does
    not list them.

    In a container or a job that was given only some GPUs, this is so on purpose: it has fewer nodes
    or a variable of the batch system, but may see the kernel's files of all GPUs.
    """
    # The GPUs in /proc/driver/nvidia/gpus that are bound to the driver on the PCI bus, by slot.
    held = {bus_key(gpu.pci_bus_id) for part in files for gpu in part.gpus or ()}
    held &= {
        bus_key(device.bus_id)
        for part in files
        for device in judged_on(part.pci_devices)
        if device.driver == "nvidia"
    }
    lists = [part.gpus for part in answers if part.driver.nvml_code == 0 and part.gpus is not None]
    listed = {bus_key(gpu.pci_bus_id) for gpus_of_nvml in lists for gpu in gpus_of_nvml}
    # If a listed GPU has no address, it may be the one that seems to be missing.
    if not lists or None in listed:
        return
    missed = {
        slot: gpu
        for gpu in gpus
        if (slot := bus_key(gpu.pci_bus_id)) in held - listed and gpu.cuda_index is None
    }
    paths = {node.path for part in files for node in part.devices or ()}
    nodes = [path for path in paths if NUMBERED_NODE.search(path)]
    was_given_some = len(nodes) < len(listed) + len(missed)
    if was_given_some or any(name in environ for name in JOB_VARIABLES):
        return
    # NVML numbers GPUs in the order of their slots, so the slot gives the number that this GPU
    # would have.
    slots = sorted(slot or "" for slot in (*listed, *missed))
    for slot, gpu in missed.items():
        text = "NVML does not list this GPU, although the kernel's driver holds it"
        place = str(slots.index(slot or ""))
        values = {"bus": gpu.pci_bus_id or "", "name": gpu.name, "place": place}
        said = f"{text}: {gpu_line(gpu)}"
        yield Event(kind="gpu-not-listed", values=values, source="NVML", text=said)
