"""GPUs that the kernel's driver or CUDA has, and NVML's list does not."""

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
    gpus: Sequence[Gpu],
    asked: Sequence[GpuSide],
    files: Sequence[GpuSide],
    environ: Mapping[str, str],
) -> tuple[Event, ...]:
    """A GPU that should be in the driver's list: CUDA sees it, or the kernel's driver holds it and
    a node of its own is there. A container or a job that was given a part has fewer nodes.
    """
    nvml = next((s for s in asked if s.driver.nvml_code == 0 and s.gpus is not None), None)
    lists = nvml if nvml is not None else _of_cuda(asked, environ)
    if lists is None or any(gpu.mig_enabled for gpu in gpus):
        return ()
    known = lists.gpus or ()
    seen = _seen_by_cuda(known, asked) if nvml is not None else ()
    held = () if seen or any(name in environ for name in GIVES_A_PART) else _held(known, files)
    source = "NVML" if nvml is not None else "CUDA"
    missing = (
        *((gpu, "CUDA sees it") for gpu in seen),
        *((gpu, "the kernel's driver holds it") for gpu in held),
    )
    slots = sorted({key for g in (*known, *seen, *held) if (key := bus_key(g.pci_bus_id))})
    return tuple(_event(gpu, source, why, slots) for gpu, why in missing)


def _of_cuda(asked: Sequence[GpuSide], environ: Mapping[str, str]) -> GpuSide | None:
    """CUDA's list, where NVML has none and nothing hides a GPU."""
    if "CUDA_VISIBLE_DEVICES" in environ:
        return None
    return next((s for s in asked if s.cuda_api.init_code == 0 and s.gpus), None)


def _seen_by_cuda(known: Sequence[Gpu], asked: Sequence[GpuSide]) -> tuple[Gpu, ...]:
    listed = (gpu for side in asked if side.cuda_api.init_code == 0 for gpu in side.gpus or ())
    return tuple(gpu for gpu in listed if gpu.pci_bus_id and not _among(gpu, known))


def _among(gpu: Gpu, known: Iterable[Gpu]) -> bool:
    """Whether it is listed; one without an address or a name may be this one."""
    return any(
        bus_key(one.pci_bus_id) in (None, bus_key(gpu.pci_bus_id)) or same_gpu(gpu, one)
        for one in known
    )


def _held(known: Sequence[Gpu], files: Sequence[GpuSide]) -> tuple[Gpu, ...]:
    """What /proc/driver/nvidia/gpus and the bus list, where more nodes than GPUs are there."""
    nodes = [
        node for side in files for node in side.devices or () if re.search(r"nvidia\d+$", node.path)
    ]
    bound = {
        bus_key(device.bus_id)
        for side in files
        for device in judged_on(side.pci_devices)
        if device.driver == "nvidia"
    }
    kernel = [gpu for side in files for gpu in side.gpus or ()]
    missing = [g for g in kernel if bus_key(g.pci_bus_id) in bound and not _among(g, known)]
    return tuple(missing) if len(nodes) >= len(known) + len(missing) else ()


def _event(gpu: Gpu, source: str, why: str, slots: Sequence[str]) -> Event:
    """`place` is the number that NVML would give it, which counts by slot."""
    bus = bus_key(gpu.pci_bus_id)
    place = str(slots.index(bus)) if bus in slots else ""
    values = {"bus": gpu.pci_bus_id or "", "place": place, "name": gpu.name, "asked": source}
    values["why"] = why
    text = f"not in the list of {source}, although {why}: {in_short(gpu)}"
    return Event(kind=KIND, values=values, source=source, text=text)
