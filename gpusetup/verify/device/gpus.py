"""A GPU's identity, and the speed that a healthy GPU of its model reaches."""

from __future__ import annotations

import ctypes
import functools
import json
import os
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional
from uuid import UUID

LIBRARY = "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"


def gpu_uuid(torch: Any, device: str) -> Optional[str]:
    """The UUID of a GPU as `nvidia-smi -L` prints it (`GPU-...` or `MIG-...`), or None."""
    properties = torch.cuda.get_device_properties(device)
    # Ask the driver first: for a MIG instance, torch may report the UUID of the whole GPU.
    uuid = uuid_from_driver(int(device.partition(":")[2]))
    # Older releases of torch do not report it.
    uuid = uuid or str(getattr(properties, "uuid", None) or "")
    if not uuid or uuid.startswith(("GPU-", "MIG-")):
        return uuid or None
    # The name of a MIG instance is like `NVIDIA A100-SXM4-40GB MIG 1g.5gb`.
    return ("MIG-" if " MIG " in str(properties.name) else "GPU-") + uuid


def uuid_from_driver(index: int) -> str:
    """The UUID of this CUDA device from the driver, without a prefix such as `GPU-`; empty if the
    driver cannot be asked."""
    handle, uuid = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    try:
        driver = ctypes.CDLL(LIBRARY)
    except OSError:
        return ""
    # Each function of the driver returns 0 if it succeeds.
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(handle), index):
        return ""
    # The function exists from CUDA 11.4 on. Unlike the older one, it knows MIG instances.
    get_uuid = getattr(driver, "cuDeviceGetUuid_v2", None)
    if get_uuid is None or get_uuid(ctypes.byref(uuid), handle):
        return ""
    return str(UUID(bytes=bytes(uuid)))


class Figures(NamedTuple):
    """The published figures of a GPU model, as in a row of `gpus.json`."""

    float16_tflops: Optional[float]
    boost_mhz: Optional[float]
    depends_on_laptop: Optional[bool]
    """Whether the maker of a laptop chooses the clock, so that the figures do not hold for all."""
    float32_tflops: Optional[float]
    memory_gb_per_second: Optional[float]


FIGURE = {
    "speed": "float32_tflops",
    "speed-half": "float16_tflops",
    "copy-within": "memory_gb_per_second",
}
"""Check -> the published figure to compare it with."""
REACHED = {"speed": 0.7, "speed-half": 0.5, "copy-within": 0.35}
"""The share of the published figure that a healthy device reaches. The shares for float32 and
float16 products of size 4096 come from the best results measured by ml-engineering (accelerator
page): 0.81 to 0.87 on A100, 0.80 on H100, 0.73 to 0.79 on B200, B300 and GB200, and 0.37 on a Tesla
T4, which its 70 W slow down most. The share for copies, which read and write each byte, is
inferred: copies reach 0.7 to 0.9 of the bandwidth."""
HALF = 0.5
"""A device fails below half of that share."""


@functools.lru_cache(maxsize=None)
def published_figures() -> Dict[str, Figures]:
    """`nvidia-smi` name of a GPU model -> its published figures."""
    file = Path(__file__).parent.parent / "gpus.json"
    rows = json.loads(file.read_text(encoding="utf-8"))["gpus"]
    return {name: Figures(*row) for name, row in rows.items()}


def faulty_below(check: str, name: str) -> Optional[float]:
    """The rate below which a GPU of this model is faulty (TFLOPS, or GB/s for copies); None if no
    figure is published.

    >>> round(faulty_below("copy-within", "NVIDIA A100-SXM4-40GB"))
    272
    """
    figures = published_figures().get(name)
    if figures is None or figures.depends_on_laptop:
        return None
    figure = getattr(figures, FIGURE[check])
    return HALF * REACHED[check] * float(figure) if figure else None
