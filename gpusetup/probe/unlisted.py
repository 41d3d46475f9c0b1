"""GPUs that one source has and another lacks: the kernel's driver, NVML, CUDA, /dev."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from gpusetup.accelerators.makers import judged_on
from gpusetup.model.machine import Event, Gpu
from gpusetup.readings.side import GpuSide, bus_key, in_short, same_gpu

KIND = "gpu-not-listed"
GIVES_A_PART = (
    "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "COBALT_JOBID", "FLUX_JOB_ID", "OAR_JOB_ID",
)  # fmt: skip
"""Variables of batch systems: a job is given some of the machine's GPUs, and sees them all."""


def unlisted(
    asked: Sequence[GpuSide], files: Sequence[GpuSide], environ: Mapping[str, str]
) -> tuple[Event, ...]:
    """A GPU that should be in the driver's list: CUDA sees it, or the kernel's driver holds it and
    a node of its own is there. A container or a job that was given a part has fewer nodes; on a
    whole machine that is what is wrong.
    """
    nvml = next((s for s in asked if s.driver.nvml_code == 0 and s.gpus is not None), None)
    lists = nvml if nvml is not None else _of_cuda(asked, environ)
    known = () if lists is None else lists.gpus or ()
    bound, nodes = _bound(files), _numbers(files)
    lacking = sorted({*range(len(bound))} - nodes) if len(nodes) < len(bound) else []
    nodeless = (_without_node(number, bound, known) for number in lacking if nodes)
    if lists is None:
        return tuple(nodeless)
    seen = _seen_by_cuda(known, asked) if nvml is not None else ()
    absent = tuple(gpu for gpu in bound if not _among(gpu, known))
    given = any(name in environ for name in GIVES_A_PART)
    held = () if seen or given or len(nodes) < len(known) + len(absent) else absent
    source = "NVML" if nvml is not None else "CUDA"
    missing = (
        *((gpu, "CUDA sees it") for gpu in seen),
        *((gpu, "the kernel's driver holds it") for gpu in held),
    )
    slots = sorted({key for g in (*known, *seen, *held) if (key := bus_key(g.pci_bus_id))})
    return (*nodeless, *(_event(gpu, source, why, slots) for gpu, why in missing))


def missed_by_cuda(
    gpus: Sequence[Gpu], asked: Sequence[GpuSide], environ: Mapping[str, str]
) -> tuple[Event, ...]:
    """GPUs that NVML lists and CUDA does not, where nothing hides them. A GPU in MIG mode without
    an instance has a finding of its own; beside an instance CUDA shows no whole GPU.
    """
    cuda = next((s for s in asked if s.cuda_api.init_code == 0 and s.gpus is not None), None)
    listed = () if cuda is None else cuda.gpus or ()
    if (
        "CUDA_VISIBLE_DEVICES" in environ
        or cuda is None
        or cuda.cuda_api.device_count != len(listed)
    ):
        return ()
    cut = [gpu for gpu in gpus if gpu.mig_enabled]
    if listed and all(any(same_gpu(one, gpu) for gpu in cut) for one in listed):
        return ()
    missed = (
        gpu
        for gpu in gpus
        if gpu.nvml_index is not None
        and not (gpu.lost or (gpu.mig_enabled and gpu.mig_count == 0))
        and is_listed(gpu, listed) is False
    )
    return tuple(
        Event(
            kind="cuda-misses-gpu",
            values={"asked": "nvml", "gpu": str(gpu.nvml_index)},
            source="libcuda",
            text=f"not in CUDA's list: {in_short(gpu)}",
        )
        for gpu in missed
    )


def is_listed(gpu: Gpu, listed: Sequence[Gpu]) -> bool | None:
    """None where the GPU has no name to be recognised by (a Jetson's, to NVML)."""
    if gpu.uuid is None and gpu.pci_bus_id is None:
        return None
    return any(same_gpu(gpu, one) for one in listed)


def _of_cuda(asked: Sequence[GpuSide], environ: Mapping[str, str]) -> GpuSide | None:
    """CUDA's list, where NVML has none and nothing hides a GPU."""
    if "CUDA_VISIBLE_DEVICES" in environ:
        return None
    side = next((s for s in asked if s.cuda_api.init_code == 0 and s.gpus), None)
    cut = side is not None and any((g.uuid or "").startswith("MIG-") for g in side.gpus or ())
    return None if cut else side


def _seen_by_cuda(known: Sequence[Gpu], asked: Sequence[GpuSide]) -> tuple[Gpu, ...]:
    listed = (gpu for side in asked if side.cuda_api.init_code == 0 for gpu in side.gpus or ())
    return tuple(gpu for gpu in listed if gpu.pci_bus_id and not _among(gpu, known))


def _among(gpu: Gpu, known: Iterable[Gpu]) -> bool:
    """Whether it is listed; one without an address or a name may be this one."""
    return any(
        bus_key(one.pci_bus_id) in (None, bus_key(gpu.pci_bus_id)) or same_gpu(gpu, one)
        for one in known
    )


def _numbers(files: Sequence[GpuSide]) -> set[int]:
    """Of the nodes of GPUs: 5 for /dev/nvidia5."""
    paths = (node.path for side in files for node in side.devices or ())
    return {int(found[1]) for path in paths if (found := re.search(r"nvidia(\d+)$", path))}


def _bound(files: Sequence[GpuSide]) -> tuple[Gpu, ...]:
    """The GPUs of /proc/driver/nvidia/gpus that the bus shows in the driver's hand, by slot."""
    bound = {
        bus_key(device.bus_id)
        for side in files
        for device in judged_on(side.pci_devices)
        if device.driver == "nvidia"
    }
    kernel = (gpu for side in files for gpu in side.gpus or ())
    held = (gpu for gpu in kernel if bus_key(gpu.pci_bus_id) in bound)
    return tuple(sorted(held, key=lambda gpu: bus_key(gpu.pci_bus_id) or ""))


def _without_node(number: int, bound: Sequence[Gpu], known: Sequence[Gpu]) -> Event:
    """The driver numbers the nodes by slot; where one GPU is not listed, it is that one."""
    absent = [gpu for gpu in bound if not _among(gpu, known)]
    gpu = absent[0] if len(absent) == 1 else bound[number]
    values = {"gpu": str(number), "bus": gpu.pci_bus_id or "", "name": gpu.name}
    text = f"/dev/nvidia{number} is missing: {in_short(gpu)}"
    return Event(kind="device-node-missing", values=values, source="/dev", text=text)


def _event(gpu: Gpu, source: str, why: str, slots: Sequence[str]) -> Event:
    """`place` is the number that NVML would give it, which counts by slot."""
    bus = bus_key(gpu.pci_bus_id)
    place = str(slots.index(bus)) if bus in slots else ""
    values = {"bus": gpu.pci_bus_id or "", "place": place, "name": gpu.name, "asked": source}
    values["why"] = why
    text = f"not in the list of {source}, although {why}: {in_short(gpu)}"
    return Event(kind=KIND, values=values, source=source, text=text)
