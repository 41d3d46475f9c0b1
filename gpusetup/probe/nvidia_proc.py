"""What the Linux kernel says about the NVIDIA driver: /proc/driver/nvidia, modules, modinfo."""

from __future__ import annotations

from gpusetup.model.machine import Driver, Snapshot
from gpusetup.readings.proc import is_excluded, parse_information, parse_modules, parse_proc_version
from gpusetup.readings.side import missing, told, told_gpus
from gpusetup.system.system import System, exists, list_or_empty, read_or_none

VERSION_FILE = "/proc/driver/nvidia/version"
MODULES_FILE = "/proc/modules"
MODULE_VERSION_FILE = "/sys/module/nvidia/version"
GPUS_FOLDER = "/proc/driver/nvidia/gpus"
MODINFO_SECONDS = 5.0


def read_proc_version(system: System) -> Snapshot:
    text = read_or_none(system, VERSION_FILE)
    if text is None:
        return missing("driver.version", VERSION_FILE, "no such file")
    return _told(VERSION_FILE, parse_proc_version(text))


def _told(source: str, driver: Driver) -> Snapshot:
    return Snapshot(driver=driver, readings=told("driver", source, driver))


def read_module_version(system: System) -> Snapshot:
    text = read_or_none(system, MODULE_VERSION_FILE)
    if text is None:
        return missing("driver.module_version", MODULE_VERSION_FILE, "no such file")
    version = text.strip() or None
    return _told(MODULE_VERSION_FILE, Driver(version=version, module_version=version))


def read_modules(system: System) -> Snapshot:
    """Under WSL and in a kernel without modules the absence of `nvidia` there says nothing."""
    text = read_or_none(system, MODULES_FILE)
    if text is None:
        return missing("driver.module_loaded", MODULES_FILE, "cannot be read")
    if exists(system, "/dev/dxg"):
        return missing("driver.module_loaded", MODULES_FILE, "WSL: Windows holds the driver")
    return _told(MODULES_FILE, parse_modules(text))


def read_modinfo(system: System) -> Snapshot:
    """The module that is installed for the running kernel, where none is loaded."""
    said = system.run(("modinfo", "-F", "version", "nvidia"), MODINFO_SECONDS)
    if not said.ok:
        problem = said.problem or "no nvidia module is installed for the running kernel"
        return missing("driver.module_version", "modinfo", problem)
    return _told("modinfo", Driver(module_version=said.stdout.strip() or None))


def read_proc_gpus(system: System) -> Snapshot:
    folders = list_or_empty(system, GPUS_FOLDER)
    if not folders:
        return missing("gpus", GPUS_FOLDER, "nothing there")
    texts = {name: read_or_none(system, f"{GPUS_FOLDER}/{name}/information") for name in folders}
    pages = ((name, text or "") for name, text in texts.items())
    gpus = tuple(parse_information(*page) for page in pages if not is_excluded(page[1]))
    return Snapshot(gpus=gpus, readings=told_gpus(GPUS_FOLDER, gpus))
