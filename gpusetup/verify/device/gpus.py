"""A GPU's identity, and the speed that a healthy GPU of its model reaches."""

from __future__ import annotations

import ctypes
import functools
import json
import os
from pathlib import Path
from typing import Any, Dict, Optional
from uuid import UUID

LIBRARY = "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"


def gpu_uuid(torch: Any, device: str) -> Optional[str]:
    """The UUID of a GPU as `nvidia-smi -L` prints it (`GPU-...` or `MIG-...`), or None."""
    properties = torch.cuda.get_device_properties(device)
    # Ask the driver first: for a MIG instance, torch may report the UUID of the whole GPU.
    uuid = uuid_from_driver(int(device.partition(":")[2])) or str(
        getattr(properties, "uuid", "") or ""
    )
    if not uuid or uuid.startswith(("GPU-", "MIG-")):
        return uuid or None
    return ("MIG-" if " MIG " in str(properties.name) else "GPU-") + uuid


def uuid_from_driver(index: int) -> str:
    """The UUID of this CUDA device by the driver; empty if the driver cannot be called."""
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


FIGURE = {"speed": 3, "speed-half": 0, "copy-within": 4}
"""Check -> the index of its figure in a row of the table."""
REACHED = {"speed": 0.7, "speed-half": 0.5, "copy-within": 0.35}
"""The share of the published figure that a healthy device reaches. The shares for float32 and
float16 products of size 4096 come from the best results measured by ml-engineering (accelerator
page): 0.81 to 0.87 on A100, 0.80 on H100, 0.73 to 0.79 on B200, B300 and GB200, and 0.37 on a Tesla
T4, which its 70 W slow down most. The share for copies, which read and write each byte, is
inferred: copies reach 0.7 to 0.9 of the bandwidth."""
HALF = 0.5
"""A device fails below half of that share."""


@functools.lru_cache(maxsize=None)
def published() -> Dict[str, Any]:
    """`nvidia-smi` name -> published figures: dense float16 TFLOPS, boost clock in MHz, whether
    that clock depends on the laptop, float32 TFLOPS, and memory bandwidth in GB/s."""
    room = Path(__file__).parent.parent
    text = (room / "gpus.json").read_text(encoding="utf-8")
    return dict(json.loads(text)["gpus"])


def least(check: str, name: str) -> Optional[float]:
    """The rate below which a GPU of this model is faulty (TFLOPS, or GB/s for copies); None if no
    figure is published.

    >>> round(least("copy-within", "NVIDIA A100-SXM4-40GB"))
    272
    """
    row = published().get(name)
    # The third column says that the rate depends on the laptop.
    if not row or row[2] or not row[FIGURE[check]]:
        return None
    return HALF * REACHED[check] * float(row[FIGURE[check]])
