"""The driver and its GPUs as parts of a composed machine: files, nodes and what the children say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from machine_parts import CARDS, MIB, Card, Composer, bus_of, gpu_answers, uuid_of

from gpusetup.readings.paths import join

NAMES = {
    0: "CUDA_SUCCESS", 100: "CUDA_ERROR_NO_DEVICE", 101: "CUDA_ERROR_INVALID_DEVICE",
    304: "CUDA_ERROR_OPERATING_SYSTEM", 802: "CUDA_ERROR_SYSTEM_NOT_READY",
    803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", 804: "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
    999: "CUDA_ERROR_UNKNOWN",
}  # fmt: skip
MESSAGES = {
    0: "Success", 4: "Insufficient Permissions", 9: "Driver Not Loaded", 12: "NVML Shared Library Not Found",
    15: "GPU is lost", 18: "Driver/library version mismatch", 999: "Unknown Error",
}  # fmt: skip
SMI_MESSAGES = {
    9: "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n\n",
    18: "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: {library}\n",
    4: "Failed to initialize NVML: Insufficient Permissions\n",
    999: "Failed to initialize NVML: Unknown Error\n",
}  # fmt: skip
NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")


def cards(*names: str) -> tuple[Card, ...]:
    return tuple(CARDS[name] for name in names)


def pci(made: Composer, some: Sequence[Card], *, driver: str | None = "nvidia") -> None:
    """The GPUs on the PCI bus of Linux, with the kernel driver that is bound to them."""
    for place, card in enumerate(some):
        pci_device(made, bus_of(place), "10de", card.device_id, driver)


def pci_device(made: Composer, bus: str, vendor: str, device: str, driver: str | None) -> None:
    folder = f"/sys/bus/pci/devices/{bus}"
    made.file(f"{folder}/class", "0x030000\n")
    made.file(f"{folder}/vendor", f"0x{vendor}\n")
    made.file(f"{folder}/device", f"0x{device}\n")
    made.file(f"{folder}/power_state", "D0\n")
    if driver:
        made.link(f"{folder}/driver", f"../../../../bus/pci/drivers/{driver}")


def libraries(made: Composer, version: str, folder: str | None = None) -> str:
    """The driver's user-space libraries; the path of libcuda."""
    arch = made.tape.facts["machine"]
    where = folder or f"/usr/lib/{arch}-linux-gnu"
    for name in ("libcuda.so", "libnvidia-ml.so"):
        made.file(f"{where}/{name}.{version}")
        made.link(f"{where}/{name}.1", f"{name}.{version}")
    made.file("/usr/bin/nvidia-smi")
    made.tape.which["nvidia-smi"] = "/usr/bin/nvidia-smi"
    return f"{where}/libcuda.so.{version}"


def module(made: Composer, version: str, *, uvm: bool = True, opened: bool = False) -> None:
    """The loaded kernel module."""
    arch = made.tape.facts["machine"]
    kind = f"Open Kernel Module for {arch}" if opened else f"{arch} Kernel Module"
    made.file(
        "/proc/driver/nvidia/version",
        f"NVRM version: NVIDIA UNIX {kind}  {version}  Release Build\n",
    )
    made.file("/sys/module/nvidia/version", f"{version}\n")
    helper = "nvidia_uvm 2000000 0 - Live 0x0\n" if uvm else ""
    made.file(
        "/proc/modules",
        f"{helper}nvidia_modeset 1000000 0 - Live 0x0\nnvidia 9900000 3 - Live 0x0\n",
    )


def nodes(made: Composer, count: int, *, uvm: bool = True, mode: str = "crw-rw-rw-") -> None:
    for name in (*(f"nvidia{n}" for n in range(count)), *NODES):
        if uvm or "uvm" not in name:
            made.file(f"/dev/{name}", mode=mode)


def nvml(
    made: Composer,
    version: str,
    cuda: str,
    devices: list[dict[str, Any]],
    *,
    code: int = 0,
    library: str | None = None,
) -> None:
    """What NVML answers; with a `code` other than 0 nothing but that, and nvidia-smi the same."""
    answer: dict[str, Any] = {"init": code, "message": MESSAGES[code]}
    if code == 0:
        answer |= {
            "driver_version": version, "cuda_version": cuda, "devices": devices, "problems": [],
            "nvml_version": f"{cuda.partition('.')[0]}.{library or version}",
        }  # fmt: skip
    elif code in SMI_MESSAGES:
        text = SMI_MESSAGES[code].format(library=(library or version).rsplit(".", 0)[0])
        for argv in smi_commands(made):
            made.says(argv, text, code)
    made.tape.ask["read_nvml"] = answer


def smi_commands(made: Composer) -> tuple[tuple[str, ...], ...]:
    from gpusetup.readings.nvidia_smi.csv import QUERY

    smi = made.tape.which.get("nvidia-smi") or "/usr/bin/nvidia-smi"
    return ((smi, f"--query-gpu={','.join(QUERY)}", "--format=csv"), (smi, "-q", "-x"), (smi,))


def cuda_api(
    made: Composer,
    version: str,
    some: Sequence[Card],
    *,
    code: int = 0,
    library: str | None = None,
    order: Sequence[int] | None = None,
    **more: Any,
) -> None:
    """What libcuda answers; `order`: the places of the visible GPUs in CUDA's order."""
    answer: dict[str, Any] = {
        "library": library, "load_error": None, "problems": [], "stub": False, "compat": False,
        "version": version, "init": code, "init_name": NAMES[code], **more,
    }  # fmt: skip
    if code == 0:
        places = range(len(some)) if order is None else order
        answer["device_count"] = len(places)
        answer["devices"] = [_cuda_device(some[place], n, place) for n, place in enumerate(places)]
    made.tape.ask["read_cuda"] = answer


def _cuda_device(card: Card, index: int, place: int) -> dict[str, Any]:
    size = card.memory_mib * MIB if card.memory_mib else None
    return {
        "index": index, "name": card.name, "uuid": uuid_of(place), "pci_bus_id": bus_of(place),
        "compute_capability": card.capability, "memory_total_bytes": size,
    }  # fmt: skip


def working(
    made: Composer,
    some: Sequence[Card],
    driver: str,
    cuda: str,
    *,
    opened: bool = False,
    uvm: bool = True,
    init: int = 0,
    order: Sequence[int] | None = None,
    **changes: Any,
) -> str:
    """A whole driver on Linux that answers; `changes` go into what NVML says of every GPU."""
    pci(made, some)
    module(made, driver, uvm=uvm, opened=opened)
    nodes(made, len(some), uvm=uvm)
    library = libraries(made, driver)
    nvml(made, driver, cuda, gpu_answers(some, **changes))
    cuda_api(made, cuda, some, code=init, library=library, order=order)
    return library


def windows_driver(made: Composer, some: Sequence[Card], driver: str, cuda: str) -> None:
    """A driver on Windows: NVML and nvcuda in System32, nvidia-smi beside them."""
    system = "C:\\Windows\\System32"
    for name in ("nvcuda.dll", "nvml.dll", "nvidia-smi.exe"):
        made.file(join(system, name))
    made.tape.which["nvidia-smi"] = join(system, "nvidia-smi.exe")
    changes = {"driver_model": "WDDM", "persistence": None, "display_active": True}
    nvml(made, driver, cuda, gpu_answers(some, **changes))
    cuda_api(made, cuda, some, library=join(system, "nvcuda.dll"))


BANNER = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI {smi:<18} KMD Version: {driver:<16} CUDA UMD Version: {cuda:<8}|
+-----------------------------------------+------------------------+----------------------+
"""
"""From 610 on the banner names the kernel-mode driver and the user-mode driver."""
