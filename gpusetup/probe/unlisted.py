"""GPUs that one source has and another lacks: the kernel's driver, NVML, CUDA, /dev."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpusetup.accelerators.makers import judged_on
from gpusetup.model.machine import Event, Gpu, Snapshot
from gpusetup.readings.side import bus_key, in_short, same_gpu

GIVES_A_PART = (
    "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "COBALT_JOBID", "FLUX_JOB_ID", "OAR_JOB_ID",
)  # fmt: skip
"""Variables of batch systems: a job is given some of the machine's GPUs, and sees them all."""
HIDES = "CUDA_VISIBLE_DEVICES"


def unlisted(
    asked: Sequence[Snapshot], files: Sequence[Snapshot], environ: Mapping[str, str]
) -> Iterator[Event]:
    """A GPU that should be in the driver's list: CUDA sees it, or the kernel's driver holds it and
    a node of its own is there. A container or a job that was given a part has fewer nodes; on a
    whole machine that is what is wrong.
    """
    nvml = next((s.gpus for s in asked if s.driver.nvml_code == 0 and s.gpus is not None), None)
    listed = _by_cuda(asked)
    hidden = HIDES in environ or any((gpu.uuid or "").startswith("MIG-") for gpu in listed or ())
    cuda = None if hidden else listed or None
    lists = cuda if nvml is None else nvml
    known = lists or ()
    bound, nodes = _bound(files), _numbers(files)
    absent = [gpu for gpu in bound if not _among(gpu, known)]
    for number in sorted({*range(len(bound))} - nodes) if 0 < len(nodes) < len(bound) else ():
        # The driver numbers the nodes by slot; where one GPU is not listed, it is that one.
        gpu = absent[0] if len(absent) == 1 else bound[number]
        said = f"/dev/nvidia{number} is missing"
        yield _event("device-node-missing", "/dev", said, gpu, {"gpu": str(number)})
    if lists is None:
        return
    seen = [g for g in listed or () if nvml is not None and g.pci_bus_id and not _among(g, known)]
    given = any(name in environ for name in GIVES_A_PART)
    held = [] if seen or given or len(nodes) < len(known) + len(absent) else absent
    slots = sorted({key for g in (*known, *seen, *held) if (key := bus_key(g.pci_bus_id))})
    source = "CUDA" if nvml is None else "NVML"
    why = "CUDA sees it" if seen else "the kernel's driver holds it"
    for gpu in seen or held:
        bus = bus_key(gpu.pci_bus_id)
        place = str(slots.index(bus)) if bus in slots else ""  # NVML counts by slot
        said = f"not in the list of {source}, although {why}"
        more = {"place": place, "asked": source, "why": why}
        yield _event("gpu-not-listed", source, said, gpu, more)


def missed_by_cuda(
    gpus: Sequence[Gpu], asked: Sequence[Snapshot], environ: Mapping[str, str]
) -> Iterator[Event]:
    """GPUs that NVML lists and CUDA does not, where nothing hides them. A GPU in MIG mode without
    an instance has a finding of its own; beside an instance CUDA shows no whole GPU.
    """
    listed = _by_cuda(asked)
    counted = [s.cuda_api.device_count for s in asked if s.cuda_api.init_code == 0]
    if HIDES in environ or listed is None or len(listed) not in counted:
        return
    cut = [gpu for gpu in gpus if gpu.mig_enabled]
    if listed and all(any(same_gpu(one, gpu) for gpu in cut) for one in listed):
        return
    for gpu in gpus:
        empty = gpu.lost or (gpu.mig_enabled and gpu.mig_count == 0)
        if gpu.nvml_index is not None and not empty and is_listed(gpu, listed) is False:
            values = {"asked": "nvml", "gpu": str(gpu.nvml_index)}
            yield _event("cuda-misses-gpu", "libcuda", "not in CUDA's list", gpu, values)


def _event(kind: str, source: str, said: str, gpu: Gpu, more: Mapping[str, str]) -> Event:
    values = {"bus": gpu.pci_bus_id or "", "name": gpu.name, **more}
    return Event(kind=kind, values=values, source=source, text=f"{said}: {in_short(gpu)}")


def is_listed(gpu: Gpu, listed: Sequence[Gpu]) -> bool | None:
    """None where the GPU has no name to be recognised by (a Jetson's, to NVML)."""
    if gpu.uuid is None and gpu.pci_bus_id is None:
        return None
    return any(same_gpu(gpu, one) for one in listed)


def _by_cuda(asked: Sequence[Snapshot]) -> tuple[Gpu, ...] | None:
    return next((s.gpus for s in asked if s.cuda_api.init_code == 0 and s.gpus is not None), None)


def _among(gpu: Gpu, known: Iterable[Gpu]) -> bool:
    """Whether it is listed; one without an address or a name may be this one."""
    bus = bus_key(gpu.pci_bus_id)
    return any(bus_key(one.pci_bus_id) in (None, bus) or same_gpu(gpu, one) for one in known)


def _numbers(files: Sequence[Snapshot]) -> set[int]:
    """Of the nodes of GPUs: 5 for /dev/nvidia5."""
    paths = (node.path for side in files for node in side.devices or ())
    return {int(found[1]) for path in paths if (found := re.search(r"nvidia(\d+)$", path))}


def _bound(files: Sequence[Snapshot]) -> list[Gpu]:
    """The GPUs of /proc/driver/nvidia/gpus that the bus shows in the driver's hand, by slot."""
    devices = (device for side in files for device in judged_on(side.pci_devices))
    bound = {bus_key(device.bus_id) for device in devices if device.driver == "nvidia"}
    kernel = (gpu for side in files for gpu in side.gpus or ())
    held = (gpu for gpu in kernel if bus_key(gpu.pci_bus_id) in bound)
    return sorted(held, key=lambda gpu: bus_key(gpu.pci_bus_id) or "")
