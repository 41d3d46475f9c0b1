"""Parsers for files under /proc on Linux: the NVIDIA driver, its kernel modules and GPUs, and
memory."""

from __future__ import annotations

import re

from gpusetup.model.frozen import replace
from gpusetup.model.machine import Driver, Gpu
from gpusetup.readings.sources import UNNAMED

MODULES = {"nvidia": "module_loaded", "nvidia_uvm": "uvm_loaded", "nouveau": "nouveau_loaded"}
"""A kernel module -> the field of the driver that says whether it is loaded."""


def parse_proc_version(text: str) -> Driver:
    """The driver's version and kind (proprietary or open module), from the NVRM line of
    /proc/driver/nvidia/version.

    >>> parse_proc_version("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12")
    ... # doctest: +ELLIPSIS
    Driver(version='535.183.01', ..., open_module=False, ...)
    >>> line = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build"
    >>> parse_proc_version(line).open_module
    True
    """
    line = next((line for line in text.splitlines() if line.startswith("NVRM")), "")
    version = re.search(r"\s(\d{3,}\.\d+(?:\.\d+)?)\s", line + " ")
    if not version:
        return Driver(module_loaded=True)
    is_open = "Open Kernel Module" in line
    return Driver(version=version[1], open_module=is_open, module_loaded=True)


def parse_modules(text: str) -> Driver:
    """Which of the NVIDIA and nouveau modules are loaded, from the text of /proc/modules.

    >>> parse_modules("nvidia_uvm 1957888 0 - Live 0x0\\nnvidia 9912320 2 nvidia_uvm, Live 0x0")
    ... # doctest: +ELLIPSIS
    Driver(..., module_loaded=True, ..., uvm_loaded=True, ..., nouveau_loaded=False, ...)
    """
    loaded = {line.partition(" ")[0] for line in text.splitlines()}
    return replace(Driver(), **{field: module in loaded for module, field in MODULES.items()})


def is_excluded(text: str) -> bool:
    """Whether the driver's setting NVreg_ExcludedGpus excludes this GPU.

    >>> is_excluded("GPU Excluded:\\t Yes"), is_excluded("GPU Excluded:\\t No")
    (True, False)
    """
    return re.search(r"^GPU (?:Excluded|Blacklisted):\s*Yes", text, re.M) is not None


def parse_information(bus_id: str, text: str) -> Gpu:
    """The GPU described by its information page in /proc; its UUID is None if the GPU could not be
    started.

    >>> gpu = parse_information("0000:01:00.0", "Model: \\t NVIDIA L4\\nGPU UUID: \\t GPU-????????")
    >>> gpu.name, gpu.uuid, gpu.pci_bus_id
    ('NVIDIA L4', None, '0000:01:00.0')
    >>> parse_information("0000:01:00.0", "GPU UUID: \\t GPU-0a").uuid
    'GPU-0a'
    """
    lines = (line.partition(":") for line in text.splitlines())
    values = {label.strip(): value.strip() for label, _, value in lines}
    uuid = values.get("GPU UUID") or None
    return Gpu(
        name=values.get("Model") or UNNAMED,
        uuid=None if uuid and "?" in uuid else uuid,
        pci_bus_id=values.get("Bus Location") or bus_id,
    )


def parse_meminfo(text: str) -> dict[str, int]:
    """The sizes in `/proc/meminfo`, in bytes.

    >>> parse_meminfo("MemTotal:       16384 kB\\n")
    {'MemTotal': 16777216}
    """
    # The kernel writes "kB" but means KiB.
    rows = re.findall(r"^(\w+):\s+(\d+) kB$", text, re.M)
    return {name: int(kibibytes) * 1024 for name, kibibytes in rows}
