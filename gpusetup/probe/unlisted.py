"""GPUs that one source has and another lacks: the kernel's driver, NVML, CUDA, /dev."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from gpusetup.accelerators.makers import judged_on
from gpusetup.model.machine import Event, Gpu, Snapshot
from gpusetup.readings.side import bus_key, in_short

GIVES_A_PART = (
    "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "COBALT_JOBID", "FLUX_JOB_ID", "OAR_JOB_ID",
)  # fmt: skip
"""Variables of batch systems: a job is given some of the machine's GPUs, and sees them all."""
Sides = Sequence[Snapshot]
HIDES = "CUDA_VISIBLE_DEVICES"


def unlisted(
    gpus: Sequence[Gpu],
    asked: Sides,
    files: Sides,
    environ: Mapping[str, str],
) -> Iterator[Event]:
    """Of the GPUs of all sources, one that should be in NVML's list: the kernel's driver holds
    it, and a node of its own is there. A container or a job that was given a part has fewer nodes;
    on a whole machine that is what is wrong.
    """
    known = [gpu for gpu in gpus if gpu.nvml_index is not None]
    bound, nodes = _bound(gpus, files), _numbers(files)
    for number in sorted({*range(len(bound))} - nodes) if 0 < len(nodes) < len(bound) else ():
        # The driver numbers the nodes by slot.
        said = f"/dev/nvidia{number} is missing"
        yield _event("device-node-missing", bound[number], "/dev", said, gpu=str(number))
    answers = any(side.driver.nvml_code == 0 and side.gpus is not None for side in asked)
    if not answers or not all(gpu.pci_bus_id for gpu in known):
        return  # one without an address may be the one that lacks
    held = [gpu for gpu in bound if gpu not in known and gpu.cuda_index is None]
    if any(name in environ for name in GIVES_A_PART) or len(nodes) < len(known) + len(held):
        return
    slots = sorted({bus_key(gpu.pci_bus_id) or "" for gpu in (*known, *held)})
    for gpu in held:
        place = str(slots.index(bus_key(gpu.pci_bus_id) or ""))  # NVML counts by slot
        said = "NVML does not list this GPU, although the kernel's driver holds it"
        yield _event("gpu-not-listed", gpu, "NVML", said, place=place)


def missed_by_cuda(
    gpus: Sequence[Gpu], asked: Sides, environ: Mapping[str, str]
) -> Iterator[Event]:
    """GPUs that NVML lists and CUDA does not, where nothing hides them. A GPU in MIG mode without
    an instance has a finding of its own; beside an instance CUDA shows no whole GPU.
    """
    sides = [side for side in asked if side.cuda_api.init_code == 0 and side.gpus is not None]
    if HIDES in environ or not any(len(s.gpus or ()) == s.cuda_api.device_count for s in sides):
        return
    listed = [gpu for gpu in gpus if gpu.cuda_index is not None]
    if listed and all(gpu.mig_enabled for gpu in listed):
        return
    for gpu in gpus:
        empty = gpu.lost or (gpu.mig_enabled and gpu.mig_count == 0)
        if gpu.nvml_index is not None and not empty and is_by_cuda(gpu) is False:
            values = {"asked": "nvml", "gpu": str(gpu.nvml_index)}
            yield _event("cuda-misses-gpu", gpu, "libcuda", "not in CUDA's list", **values)


def _event(kind: str, lacking: Gpu, source: str, said: str, **values: str) -> Event:
    known = {**values, "bus": lacking.pci_bus_id or "", "name": lacking.name}
    return Event(kind=kind, values=known, source=source, text=f"{said}: {in_short(lacking)}")


def is_by_cuda(gpu: Gpu) -> bool | None:
    """Whether CUDA, which answered, lists it; None where it has no name to be recognised by (a
    Jetson's, to NVML)."""
    if gpu.uuid is None and gpu.pci_bus_id is None:
        return None
    return gpu.cuda_index is not None


def _numbers(files: Sides) -> set[int]:
    """Of the nodes of GPUs: 5 for /dev/nvidia5."""
    paths = (node.path for side in files for node in side.devices or ())
    return {int(found[1]) for path in paths if (found := re.search(r"nvidia(\d+)$", path))}


def _bound(gpus: Sequence[Gpu], files: Sides) -> list[Gpu]:
    """The GPUs of /proc/driver/nvidia/gpus that the bus shows in the driver's hand, by slot."""
    devices = (device for side in files for device in judged_on(side.pci_devices))
    held = {bus_key(device.bus_id) for device in devices if device.driver == "nvidia"}
    held &= {bus_key(gpu.pci_bus_id) for side in files for gpu in side.gpus or ()}
    found = {bus: gpu for gpu in gpus if (bus := bus_key(gpu.pci_bus_id)) in held}
    return [found[bus] for bus in sorted(found, key=str)]
