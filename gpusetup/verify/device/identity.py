"""Which GPU a device of torch is: its UUID, also where this torch (before 2.5) does not say it."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Optional
from uuid import UUID

LIBRARY = "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"
QUESTIONS = ("cuDeviceGetUuid_v2", "cuDeviceGetUuid")
"""The first one, of CUDA 11.4, names a MIG instance by its own UUID (cuda.h)."""


def gpu_uuid(torch: Any, device: str) -> Optional[str]:
    """`GPU-...` or `MIG-...` as `nvidia-smi -L` writes it; None where nobody tells it."""
    found = torch.cuda.get_device_properties(device)
    # The driver first: of a MIG instance torch may tell the UUID of the whole GPU.
    said = asked_of_driver(int(device.partition(":")[2])) or str(getattr(found, "uuid", "") or "")
    if not said or said.startswith(("GPU-", "MIG-")):
        return said or None
    return ("MIG-" if " MIG " in str(found.name) else "GPU-") + said


def asked_of_driver(index: int) -> str:
    """The UUID of a device that CUDA numbers so in this process; empty where it cannot be asked."""
    handle, found = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    try:
        driver = ctypes.CDLL(LIBRARY)
    except OSError:
        return ""
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(handle), index):
        return ""
    for question in (getattr(driver, name, None) for name in QUESTIONS):
        if question is not None and question(ctypes.byref(found), handle) == 0:
            return str(UUID(bytes=bytes(found)))
    return ""
