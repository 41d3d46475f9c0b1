"""What the Linux kernel says about the NVIDIA driver: /proc/driver/nvidia, modules, modinfo."""

from __future__ import annotations

import re

from gpusetup.model import Driver, Gpu
from gpusetup.probe.side import UNNAMED, GpuSide, missing, told, told_gpus
from gpusetup.probe.system import System, exists, list_or_empty, read_or_none

VERSION_FILE = "/proc/driver/nvidia/version"
MODULES_FILE = "/proc/modules"
MODULE_VERSION_FILE = "/sys/module/nvidia/version"
GPUS_FOLDER = "/proc/driver/nvidia/gpus"
MODINFO_SECONDS = 5.0


def read_proc_version(system: System) -> GpuSide:
    text = read_or_none(system, VERSION_FILE)
    if text is None:
        return missing("driver.version", VERSION_FILE, "no such file")
    driver = parse_proc_version(text)
    return GpuSide(driver=driver, readings=told("driver", VERSION_FILE, driver))


def parse_proc_version(text: str) -> Driver:
    """The NVRM line, of the proprietary or the open module.

    >>> parse_proc_version("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12")
    ... # doctest: +ELLIPSIS
    Driver(version='535.183.01', ..., open_module=False, ...)
    >>> line = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build"
    >>> parse_proc_version(line).open_module
    True
    """
    line = next((line for line in text.splitlines() if line.startswith("NVRM")), "")
    found = re.search(r"\s(\d{3,}\.\d+(?:\.\d+)?)\s", line + " ")
    if not found:
        return Driver(module_loaded=True)
    opened = "Open Kernel Module" in line
    return Driver(version=found.group(1), open_module=opened, module_loaded=True)


def read_module_version(system: System) -> GpuSide:
    text = read_or_none(system, MODULE_VERSION_FILE)
    if text is None:
        return missing("driver.module_version", MODULE_VERSION_FILE, "no such file")
    driver = Driver(version=text.strip() or None, module_version=text.strip() or None)
    return GpuSide(driver=driver, readings=told("driver", MODULE_VERSION_FILE, driver))


def read_modules(system: System) -> GpuSide:
    """Under WSL and in a kernel without modules the absence of `nvidia` there says nothing."""
    text = read_or_none(system, MODULES_FILE)
    if text is None:
        return missing("driver.module_loaded", MODULES_FILE, "cannot be read")
    if exists(system, "/dev/dxg"):
        return missing("driver.module_loaded", MODULES_FILE, "WSL: Windows holds the driver")
    driver = parse_modules(text)
    return GpuSide(driver=driver, readings=told("driver", MODULES_FILE, driver))


def parse_modules(text: str) -> Driver:
    """One module a line, its name first.

    >>> parse_modules("nvidia_uvm 1957888 0 - Live 0x0\\nnvidia 9912320 2 nvidia_uvm, Live 0x0")
    ... # doctest: +ELLIPSIS
    Driver(..., module_loaded=True, ..., uvm_loaded=True, ..., nouveau_loaded=False, ...)
    """
    loaded = {line.partition(" ")[0] for line in text.splitlines()}
    return Driver(
        module_loaded="nvidia" in loaded,
        uvm_loaded="nvidia_uvm" in loaded,
        nouveau_loaded="nouveau" in loaded,
    )


def read_modinfo(system: System) -> GpuSide:
    """The module that is installed for the running kernel, where none is loaded."""
    said = system.run(("modinfo", "-F", "version", "nvidia"), MODINFO_SECONDS)
    if not said.ok:
        problem = said.problem or "no nvidia module is installed for the running kernel"
        return missing("driver.module_version", "modinfo", problem)
    driver = Driver(module_version=said.stdout.strip() or None)
    return GpuSide(driver=driver, readings=told("driver", "modinfo", driver))


def read_proc_gpus(system: System) -> GpuSide:
    folders = list_or_empty(system, GPUS_FOLDER)
    if not folders:
        return missing("gpus", GPUS_FOLDER, "nothing there")
    texts = {name: read_or_none(system, f"{GPUS_FOLDER}/{name}/information") for name in folders}
    gpus = tuple(
        parse_information(name, text or "")
        for name, text in texts.items()
        if not is_excluded(text or "")
    )
    return GpuSide(gpus=gpus, readings=told_gpus(GPUS_FOLDER, gpus))


def is_excluded(text: str) -> bool:
    """Whether the driver was told to leave this GPU out (NVreg_ExcludedGpus).

    >>> is_excluded("GPU Excluded:\\t Yes"), is_excluded("GPU Excluded:\\t No")
    (True, False)
    """
    return re.search(r"^GPU (?:Excluded|Blacklisted):\s*Yes", text, re.M) is not None


def parse_information(bus_id: str, text: str) -> Gpu:
    """One GPU's page; a GPU that could not be started has question marks for its UUID.

    >>> gpu = parse_information("0000:01:00.0", "Model: \\t NVIDIA L4\\nGPU UUID: \\t GPU-????????")
    >>> gpu.name, gpu.uuid, gpu.pci_bus_id
    ('NVIDIA L4', None, '0000:01:00.0')
    """
    lines = (line.partition(":") for line in text.splitlines())
    values = {label.strip(): value.strip() for label, _, value in lines}
    uuid = values.get("GPU UUID") or None
    return Gpu(
        name=values.get("Model") or UNNAMED,
        uuid=None if uuid and "?" in uuid else uuid,
        pci_bus_id=values.get("Bus Location") or bus_id,
    )
