"""Calls the CUDA driver API (libcuda, nvcuda.dll) and prints one line of JSON. Runs in a child
process.

The answer:

    {"library": "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05",   the mapped file, or null
     "load_error": null,        why no library could be loaded; then the rest is missing
     "stub": false,             the toolkit's stub (a folder `stubs`), which never finds a device
     "compat": false,           a cuda-compat (forward compatibility) copy
     "init": 0, "init_name": "CUDA_SUCCESS",     what cuInit returned
     "version": "13.0",         cuDriverGetVersion: the newest CUDA API that this library supports
     "device_count": 1,         missing if cuInit failed or the GPUs cannot be counted
     "devices": [{"index": 0, "name": "...", "uuid": "GPU-...", "pci_bus_id": "0000:07:00.0",
                  "compute_capability": "8.0", "memory_total_bytes": 42949672960,
                  "problems": [{"field": "uuid", "code": 1, "text": "CUDA_ERROR_INVALID_VALUE"}]}],
     "problems": [...]}

Before that line it prints one for each call, because a call may never return:
{"step": "cuDeviceGetName", "gpu": 1}.

`index` counts in CUDA's order, after CUDA_VISIBLE_DEVICES. With MIG, the uuid begins with `MIG-`,
and the bus id is that of the whole GPU. Python 3.8 syntax; imports the standard library and
`driver_answers`.
"""

from __future__ import annotations

import ctypes
import os
import sys
import uuid as uuid_module
from typing import Any, Dict

HERE = os.path.dirname(os.path.abspath(__file__))
# With PYTHONSAFEPATH or `-P`, Python leaves a script's own folder off the path.
if HERE not in sys.path:
    sys.path.insert(0, HERE)

import driver_answers  # type: ignore[import-not-found, unused-ignore]  # noqa: E402

Answer = Dict[str, Any]
NEEDED = ("cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName")
"""Functions that every driver's own libcuda has. A library that lacks one is not a driver's, so its
answers prove nothing."""
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR."""


class Failed(Exception):
    """A call did not return CUDA_SUCCESS."""

    def __init__(self, library: Any, code: int) -> None:
        super().__init__(name_of_code(library, code))
        self.value = code


def name_of_code(library: Any, code: int) -> str:
    """The name of a result in cuda.h, such as CUDA_ERROR_NO_DEVICE, from the library itself. The
    toolkit's stub has no names."""
    text = ctypes.c_char_p()
    if hasattr(library, "cuGetErrorName"):
        library.cuGetErrorName(code, ctypes.byref(text))
    return text.value.decode() if text.value else "error %d" % code


def mapped_library() -> str | None:
    """The path of the libcuda file that is mapped into this process."""
    try:
        with open("/proc/self/maps") as maps:
            # `7f1c-7f1d r-xp 00000000 08:01 1234    /usr/lib64/libcuda.so.580.95.05`
            paths = ["/" + line.rstrip("\n").partition("/")[2] for line in maps]
    except OSError:
        return None
    for path in paths:
        if os.path.basename(path).startswith("libcuda.so"):
            # The kernel says so if an update has replaced the file since it was mapped.
            return path.replace(" (deleted)", "")
    return None


say = driver_answers.say
CURRENT: Answer = {}
"""{"gpu": 1, "bus": "0000:0f:00.0"} while that GPU is being read."""


def call_code(library: Any, name: str, *arguments: Any) -> int:
    """Announce a call, because it may never return, then make it and return its result."""
    function = getattr(library, name)
    say(dict(CURRENT, step=name))
    return int(function(*arguments))


def check_call(library: Any, name: str, *arguments: Any) -> None:
    """Make a call, and raise Failed if it does not succeed."""
    code = call_code(library, name, *arguments)
    if code:
        raise Failed(library, code)


def int_value(library: Any, name: str, *arguments: Any) -> int:
    """The number that a call writes into its first argument."""
    value = ctypes.c_int()
    check_call(library, name, ctypes.byref(value), *arguments)
    return value.value


def text_value(library: Any, name: str, device: int, length: int) -> str:
    """The text that a call writes, at most this many bytes with a zero byte at the end."""
    buffer = ctypes.create_string_buffer(length)
    check_call(library, name, buffer, length, device)
    return buffer.value.decode("utf-8", "replace")


def name(library: Any, device: int) -> str:
    return text_value(library, "cuDeviceGetName", device, 256)


def uuid(library: Any, device: int) -> str:
    """The GPU's UUID. `_v2` supports MIG devices; drivers before 470 lack it."""
    raw = ctypes.create_string_buffer(16)
    check_call(library, "cuDeviceGetUuid_v2", raw, device)
    # The bytes do not show whether this is a MIG device, but the name does.
    prefix = "MIG-" if " MIG " in name(library, device) else "GPU-"
    return prefix + str(uuid_module.UUID(bytes=raw.raw))


def compute_capability(library: Any, device: int) -> str:
    major = int_value(library, "cuDeviceGetAttribute", CAPABILITY_MAJOR, device)
    minor = int_value(library, "cuDeviceGetAttribute", CAPABILITY_MINOR, device)
    return "%d.%d" % (major, minor)


def memory(library: Any, device: int) -> int:
    """The GPU's total memory in bytes. `_v2` also works for more than 4 GiB."""
    value = ctypes.c_size_t()
    check_call(library, "cuDeviceTotalMem_v2", ctypes.byref(value), device)
    return value.value


def pci_bus_id(library: Any, device: int) -> str:
    CURRENT["bus"] = text_value(library, "cuDeviceGetPCIBusId", device, 32)
    return str(CURRENT["bus"])


FIELDS = (
    ("pci_bus_id", pci_bus_id),
    ("uuid", uuid),
    ("name", name),
    ("compute_capability", compute_capability),
    ("memory_total_bytes", memory),
)


def read_devices(library: Any) -> list[Answer]:
    """Every GPU that CUDA lists, with its values and what could not be read."""

    def handle_of(index: int) -> Any:
        # From here on, announced steps name this GPU.
        CURRENT.update(gpu=index, bus="")
        device = int_value(library, "cuDeviceGet", index)
        return library, device

    count = int_value(library, "cuDeviceGetCount")
    return [driver_answers.read_device(Failed, index, handle_of, FIELDS) for index in range(count)]


def cuda_version(library: Any) -> Any:
    """The newest CUDA API that the library supports, as text."""
    return driver_answers.cuda_version(int_value(library, "cuDriverGetVersion"))


LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"


def main() -> Answer:
    """The answer that the top of this file describes."""
    answer: Answer = {"library": None, "load_error": None, "problems": []}
    say({"step": "loading libcuda"})
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as problem:
        return dict(answer, load_error=str(problem))
    path = mapped_library() or ""
    missing = [name for name in NEEDED if not hasattr(library, name)]
    if missing:
        load_error = "%s has no %s" % (path or "libcuda", missing[0])
        return dict(answer, load_error=load_error)
    answer.update(library=path or None, stub="/stubs/" in path, compat="/compat" in path)
    init_code = call_code(library, "cuInit", 0)
    answer["init"] = init_code
    answer["init_name"] = name_of_code(library, init_code)
    # The version needs no cuInit.
    version = (("version", cuda_version),)
    fields = version if init_code else (*version, ("devices", read_devices))
    answer.update(driver_answers.read_fields(Failed, fields, library))
    # The list is None if the GPUs cannot be counted.
    if answer.get("devices") is not None:
        answer["device_count"] = len(answer["devices"])
    return answer


if __name__ == "__main__":
    driver_answers.run(main)
