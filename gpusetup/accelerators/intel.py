"""Intel: seen, not judged. No reader asks its driver."""

from __future__ import annotations

from gpusetup.accelerators.maker import Maker

MAKER = Maker(
    id="intel",
    name="Intel",
    pci="8086",
    listed=r"Intel|\[8086:",
    words=("intel", "arc"),
    models=r"\b(intel(?! gaudi)|arc|iris|uhd)\b",
    index="https://download.pytorch.org/whl/xpu",
    label="xpu",
    label_form="xpu",
    device="xpu",
    masks=("ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR"),
)
