"""Which GPU a device of torch is: its UUID, also where this torch (before 2.5) does not say it."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Optional

LIBRARY = "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"
QUESTIONS = ("cuDeviceGetUuid_v2", "cuDeviceGetUuid")
"""The first one, of CUDA 11.4, names a MIG instance by its own UUID (cuda.h)."""


def gpu_uuid(torch: Any, device: str) -> Optional[str]:
    """`GPU-...` or `MIG-...` as `nvidia-smi -L` writes it; None where nobody tells it."""
    found = torch.cuda.get_device_properties(device)
    # The driver first: of a MIG instance torch may tell the UUID of the whole GPU.
    said = asked_of_driver(int(device.partition(":")[2])) or str(getattr(found, "uuid", "") or "")
    if not said:
        return None
    return written(said, str(found.name))


def written(said: str, name: str) -> str:
    """A UUID with what it is a UUID of.

    >>> written("12ab", "NVIDIA A100-SXM4-40GB MIG 1g.5gb"), written("GPU-12ab", "x")
    ('MIG-12ab', 'GPU-12ab')
    """
    if said.startswith(("GPU-", "MIG-")):
        return said
    return ("MIG-" if " MIG " in name else "GPU-") + said


def asked_of_driver(index: int, library: str = LIBRARY) -> str:
    """The UUID of a device that CUDA numbers so in this process; empty where it cannot be asked."""
    try:
        driver = ctypes.CDLL(library)
    except OSError:
        return ""
    handle, found = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(handle), index):
        return ""
    for name in QUESTIONS:
        question = getattr(driver, name, None)
        if question is not None and question(ctypes.byref(found), handle) == 0:
            return dashed(bytes(found).hex())
    return ""


def dashed(digits: str) -> str:
    """32 digits in the groups of a UUID.

    >>> dashed("00112233445566778899aabbccddeeff")
    '00112233-4455-6677-8899-aabbccddeeff'
    """
    groups = ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))
    return "-".join(digits[start:end] for start, end in groups)
