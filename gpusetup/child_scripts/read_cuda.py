"""Ask the CUDA driver API itself (libcuda, nvcuda.dll); print one line of JSON. Runs in a child.

The answer:

    {"library": "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05",   the mapped file, or null
     "load_error": null,        why no library could be loaded; then the rest is missing
     "stub": false,             the toolkit's stub (a folder `stubs`), which never finds a device
     "compat": false,           a cuda-compat (forward compatibility) copy
     "init": 0, "init_name": "CUDA_SUCCESS",     what cuInit returned
     "seconds": 0.2,            from the first call to the last
     "version": "13.0",         cuDriverGetVersion: the newest CUDA API this library serves
     "device_count": 1,         missing where cuInit failed or the GPUs cannot be counted
     "devices": [{"index": 0, "name": "...", "uuid": "GPU-...", "pci_bus_id": "0000:07:00.0",
                  "compute_capability": "8.0", "memory_total_bytes": 42949672960,
                  "problems": [{"field": "uuid", "code": 1, "text": "CUDA_ERROR_INVALID_VALUE"}]}],
     "problems": [...]}

Before that line stands one for each step and each part of the answer, in case that a call never
comes back: {"step": "cuDeviceGetName", "gpu": 1} is the call that is made next, {"part": {...}}
what is known so far ("device" is one of `devices`).

`index` is CUDA's order after CUDA_VISIBLE_DEVICES. Under MIG the uuid begins with `MIG-` and the
bus id is the whole GPU's. Python 3.8 syntax; the standard library and `driver_answers`.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
import uuid as uuid_module
from typing import Any, Dict

HERE = os.path.dirname(os.path.abspath(__file__))
# Python leaves a script's own folder off the path under PYTHONSAFEPATH or `-P`.
if HERE not in sys.path:
    sys.path.insert(0, HERE)

import driver_answers  # type: ignore[import-not-found, unused-ignore]  # noqa: E402

Answer = Dict[str, Any]

# Codes and names from cuda.h (CUresult); what a machine's state can make cuInit answer.
NAMES = {
    0: "CUDA_SUCCESS",
    1: "CUDA_ERROR_INVALID_VALUE",
    2: "CUDA_ERROR_OUT_OF_MEMORY",
    3: "CUDA_ERROR_NOT_INITIALIZED",
    34: "CUDA_ERROR_STUB_LIBRARY",
    46: "CUDA_ERROR_DEVICE_UNAVAILABLE",
    100: "CUDA_ERROR_NO_DEVICE",
    101: "CUDA_ERROR_INVALID_DEVICE",
    102: "CUDA_ERROR_DEVICE_NOT_LICENSED",
    214: "CUDA_ERROR_ECC_UNCORRECTABLE",
    304: "CUDA_ERROR_OPERATING_SYSTEM",
    800: "CUDA_ERROR_NOT_PERMITTED",
    801: "CUDA_ERROR_NOT_SUPPORTED",
    802: "CUDA_ERROR_SYSTEM_NOT_READY",
    803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
    804: "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
    805: "CUDA_ERROR_MPS_CONNECTION_FAILED",
    806: "CUDA_ERROR_MPS_RPC_FAILURE",
    807: "CUDA_ERROR_MPS_SERVER_NOT_READY",
    999: "CUDA_ERROR_UNKNOWN",
}
NEEDED = ("cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName")
"""What every driver's own libcuda has; one that lacks a call is none, and proves nothing."""
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR."""


class Failed(Exception):
    """A call returned something else than CUDA_SUCCESS."""

    def __init__(self, code: int) -> None:
        super().__init__(NAMES.get(code, "error %d" % code))
        self.value = code


def mapped_library() -> str | None:
    """The libcuda file that is mapped into this process."""
    try:
        with open("/proc/self/maps") as maps:
            paths = [line.rstrip("\n").partition("/")[2] for line in maps]
    except OSError:
        return None
    ours = [path for path in paths if os.path.basename(path).startswith("libcuda.so")]
    return "/" + ours[0].replace(" (deleted)", "") if ours else None


say, dotted = driver_answers.say, driver_answers.cuda_version
CURRENT: Answer = {}
"""{"gpu": 1} while that GPU is asked."""


def call_code(library: Any, name: str, *arguments: Any) -> int:
    """What a call returns; it is said before it is made."""
    function = getattr(library, name)
    say(dict(CURRENT, step=name))
    return int(function(*arguments))


def check_call(library: Any, name: str, *arguments: Any) -> None:
    code = call_code(library, name, *arguments)
    if code:
        raise Failed(code)


def int_value(library: Any, name: str, *arguments: Any) -> int:
    value = ctypes.c_int()
    check_call(library, name, ctypes.byref(value), *arguments)
    return value.value


def name(library: Any, device: int) -> str:
    buffer = ctypes.create_string_buffer(256)
    check_call(library, "cuDeviceGetName", buffer, 256, device)
    return buffer.value.decode("utf-8", "replace")


def uuid(library: Any, device: int) -> str:
    """`_v2` knows MIG devices; drivers before 470 have the first form only."""
    raw = ctypes.create_string_buffer(16)
    asked = "cuDeviceGetUuid_v2" if hasattr(library, "cuDeviceGetUuid_v2") else "cuDeviceGetUuid"
    check_call(library, asked, raw, device)
    kind = "MIG-" if " MIG " in name(library, device) else "GPU-"
    return kind + str(uuid_module.UUID(bytes=raw.raw))


def pci_bus_id(library: Any, device: int) -> str:
    buffer = ctypes.create_string_buffer(32)
    check_call(library, "cuDeviceGetPCIBusId", buffer, 32, device)
    return buffer.value.decode("ascii", "replace")


def compute_capability(library: Any, device: int) -> str:
    parts = tuple(
        int_value(library, "cuDeviceGetAttribute", which, device)
        for which in (CAPABILITY_MAJOR, CAPABILITY_MINOR)
    )
    return "%d.%d" % parts


def memory(library: Any, device: int) -> int:
    value = ctypes.c_size_t()
    check_call(library, "cuDeviceTotalMem_v2", ctypes.byref(value), device)
    return value.value


FIELDS = (
    ("pci_bus_id", pci_bus_id),
    ("uuid", uuid),
    ("name", name),
    ("compute_capability", compute_capability),
    ("memory_total_bytes", memory),
)


def read_devices(library: Any) -> list[Answer]:
    def handle_of(index: int) -> Any:
        CURRENT["gpu"] = index
        return library, int_value(library, "cuDeviceGet", index)

    count = driver_answers.plausible_count(int_value(library, "cuDeviceGetCount"))
    say({"part": {"count": count}})
    return [driver_answers.read_device(Failed, index, handle_of, FIELDS) for index in range(count)]


def main() -> Answer:
    answer: Answer = {"library": None, "load_error": None, "problems": []}
    say({"step": "loading libcuda"})
    try:
        library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError as problem:
        return dict(answer, load_error=str(problem))
    path = mapped_library() or ""
    missing = [name for name in NEEDED if not hasattr(library, name)]
    if missing:
        return dict(answer, load_error="%s has no %s" % (path or "libcuda", missing[0]))
    answer.update(library=path or None, stub="/stubs/" in path, compat="/compat" in path)
    say({"part": dict(answer)})
    began = time.monotonic()
    version = ("version", lambda: dotted(int_value(library, "cuDriverGetVersion")))
    answer.update(driver_answers.read_fields(Failed, (version,)))
    answer["init"] = call_code(library, "cuInit", 0)
    answer["init_name"] = NAMES.get(answer["init"], "error %d" % answer["init"])
    if answer["init"] == 0:
        say({"part": dict(answer)})
        found = driver_answers.read_fields(Failed, (("devices", read_devices),), library)
        answer.update(found, problems=answer["problems"] + found["problems"])
        if found["devices"] is not None:
            answer["device_count"] = len(found["devices"])
    answer["seconds"] = round(time.monotonic() - began, 3)
    return answer


if __name__ == "__main__":
    driver_answers.run(main)
