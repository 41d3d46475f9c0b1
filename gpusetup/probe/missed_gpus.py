"""GPUs that NVML lists but CUDA does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpusetup.model.machine import Event, Gpu
from gpusetup.readings.sources import Snapshots, gpu_line


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
            bus, index = gpu.pci_bus_id or "", str(gpu.nvml_index)
            values = {"asked": "nvml", "gpu": index, "bus": bus, "name": gpu.name}
            said = f"not in CUDA's list: {gpu_line(gpu)}"
            yield Event(kind="cuda-misses-gpu", values=values, source="libcuda", text=said)


def is_listed_by_cuda(gpu: Gpu) -> bool | None:
    """Whether CUDA lists the GPU; None if the GPU has no UUID or PCI address to compare, as a
    Jetson's in NVML's list."""
    if gpu.uuid is None and gpu.pci_bus_id is None:
        return None
    return gpu.cuda_index is not None
