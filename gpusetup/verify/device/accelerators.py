"""GPUs from Intel (`xpu`) and Apple (`mps`), by torch's documentation."""

from __future__ import annotations

from typing import Any, Optional

from ..values import FAILED, OTHER_ACCELERATORS, PASSED, Outcome, Row, kind
from .importing import cuda_build, first_line

MAKERS = {"xpu": "Intel", "mps": "Apple"}
"""torch's name for a kind of GPU -> its vendor."""
NOT_BUILT = {
    "xpu": "`gpusetup install --backend xpu` installs the build for Intel's GPUs",
    "mps": "torch's wheels for Macs with Apple's processors have it; a Mac with Intel's has no MPS",
}
"""Kind of GPU -> what to do if torch was not built for it."""
NOT_FOUND = {
    "xpu": "`gpusetup doctor` shows whether Intel's driver is loaded and your user may use the GPU",
    "mps": "MPS needs macOS 12.3 or later (torch 2.13 needs macOS 14), and no virtual machine",
}
"""Kind of GPU -> what to do if torch was built for it but finds no GPU."""


def accelerator_of(torch: Any, wanted_device: str) -> str:
    """`xpu` or `mps` if that kind is to be tested (`auto`: what torch is built for); else empty."""
    if kind(wanted_device) in OTHER_ACCELERATORS:
        return kind(wanted_device)
    if wanted_device != "auto" or cuda_build(torch):
        return ""
    return next((name for name in OTHER_ACCELERATORS if count_of(torch, name)), "")


def count_of(torch: Any, name: str) -> Optional[int]:
    """How many of these GPUs torch sees; None if it was not built for them."""
    if name == "mps":
        backend = getattr(torch.backends, "mps", None)
        return int(backend.is_available()) if backend and backend.is_built() else None
    if getattr(torch.version, "xpu", None) is None:
        return None
    return int(torch.xpu.device_count()) if torch.xpu.is_available() else 0


def accelerators_detected(torch: Any, name: str) -> Outcome:
    """Check that torch sees GPUs of this kind, and report them."""
    gpu = f"GPU not detected! torch {torch.__version__}"
    reason, count = f"has the device {name} and finds no GPU for it", 0
    # torch raises RuntimeError if the driver does not answer.
    try:
        found = count_of(torch, name)
        if found is None:
            detail = f"{gpu} is not built for {MAKERS[name]}'s GPUs"
            return Outcome(FAILED, detail, hint=NOT_BUILT[name])
        count = found
    except Exception as problem:
        reason = first_line(problem)
    if not count:
        return Outcome(FAILED, f"{gpu} {reason}", hint=NOT_FOUND[name])
    seen = ["mps"] if name == "mps" else [f"{name}:{index}" for index in range(count)]
    words = "1 GPU" if count == 1 else f"{count} GPUs"
    facts: Row = {"gpus": count, "seen": seen}
    return Outcome(PASSED, f"torch sees {words} of {MAKERS[name]}", facts=facts)


def accelerator_row(torch: Any, device: str) -> Row:
    """The report's fields for an Intel or Apple GPU."""
    if device == "mps":
        # Older releases of torch do not report how much memory the GPU may use.
        limit_of = getattr(torch.mps, "recommended_max_memory", None)
        memory = int(limit_of()) if limit_of else None
        return {"device": device, "name": "Apple GPU", "memory_total_bytes": memory}
    gpu = torch.xpu.get_device_properties(device)
    return {"device": device, "name": str(gpu.name), "memory_total_bytes": int(gpu.total_memory)}
