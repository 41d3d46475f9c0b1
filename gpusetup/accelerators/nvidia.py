"""NVIDIA: the maker whose GPUs are judged."""

from __future__ import annotations

from gpusetup.accelerators.maker import Maker

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
)
