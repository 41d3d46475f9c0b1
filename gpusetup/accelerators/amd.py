"""AMD: seen, not judged. No reader asks its driver; a target is `gfx1201` where a text says so."""

from __future__ import annotations

from gpusetup.accelerators.maker import Maker

MAKER = Maker(
    id="amd",
    name="AMD",
    pci="1002",
    listed=r"Advanced Micro|AMD|ATI |\[1002:",
    words=("amd", "radeon", "instinct"),
    models=r"\b(amd|radeon|rx\s?\d{3,4}|instinct|mi\d{2,3}[ax]?|vega|firepro)\b",
    instead="that is AMD's; only NVIDIA's GPUs are fitted by name: `gpusetup resolve --backend "
    "rocm6.4` says what there is for AMD's",
    label="rocm",
    label_form=r"rocm\d[\d.]*",
    device="cuda",
    masks=("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    noted="torch's ROCm builds exist",
)
