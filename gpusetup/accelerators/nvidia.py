"""NVIDIA: the maker whose GPUs are judged."""

from __future__ import annotations

from gpusetup.accelerators.maker import Maker
from gpusetup.model.machine import Gpu

MAKER = Maker(
    id="nvidia",
    name="NVIDIA",
    judged=True,
    pci="10de",
    listed=r"NVIDIA|\[10de:",
    label="cu",
    label_form=r"cu\d{2,3}",
    device="cuda",
    masks=("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"),
    readers={
        "NVML": "gpusetup.probe.nvml:read_nvml",
        "libcuda": "gpusetup.probe.cuda:read_cuda",
        "nvidia-smi": "gpusetup.probe.smi:read_smi",
    },
)


def target(gpu: Gpu) -> str | None:
    """What a kernel for it is compiled for: `sm_86`."""
    return gpu.compute_capability.sm if gpu.compute_capability else None
