"""What the Linux kernel says about the NVIDIA driver: /proc/driver/nvidia, modules, modinfo."""

from __future__ import annotations

import re
from collections.abc import Callable

from gpusetup.model.machine import DeviceNode, Driver, Reading, Snapshot
from gpusetup.readings.paths import join
from gpusetup.readings.proc import is_excluded, parse_information, parse_modules, parse_proc_version
from gpusetup.readings.sources import gpu_readings, missing, readings_of
from gpusetup.system.system import Stat, System, exists, list_or_empty, read_or_none, unless_refused

VERSION_FILE = "/proc/driver/nvidia/version"
MODULES_FILE = "/proc/modules"
MODULE_VERSION_FILE = "/sys/module/nvidia/version"
GPUS_FOLDER = "/proc/driver/nvidia/gpus"
MODINFO_SECONDS = 5.0
Reader = Callable[[System], Snapshot]


def read_from(path: str, subject: str, parse: Callable[[str], Driver]) -> Reader:
    """A reader of a file that tells of the driver."""

    def read(system: System) -> Snapshot:
        text = read_or_none(system, path)
        return (
            missing(subject, path, "cannot be read")
            if text is None
            else _driver_snapshot(path, parse(text))
        )

    return read


def _driver_snapshot(source: str, driver: Driver) -> Snapshot:
    return Snapshot(driver=driver, readings=readings_of("driver", source, driver))


def parse_module_version(text: str) -> Driver:
    version = text.strip() or None
    return Driver(version=version, module_version=version)


read_proc_version = read_from(VERSION_FILE, "driver.version", parse_proc_version)
read_module_version = read_from(MODULE_VERSION_FILE, "driver.module_version", parse_module_version)
_read_modules = read_from(MODULES_FILE, "driver.module_loaded", parse_modules)


def read_modules(system: System) -> Snapshot:
    """Under WSL and in a kernel without modules the absence of `nvidia` there says nothing."""
    if exists(system, "/dev/dxg"):
        return missing("driver.module_loaded", MODULES_FILE, "WSL: Windows holds the driver")
    return _read_modules(system)


def read_modinfo(system: System) -> Snapshot:
    """The module that is installed for the running kernel, if none is loaded."""
    output = system.run(("modinfo", "-F", "version", "nvidia"), MODINFO_SECONDS)
    if not output.ok:
        problem = output.problem or "no nvidia module is installed for the running kernel"
        return missing("driver.module_version", "modinfo", problem)
    return _driver_snapshot("modinfo", Driver(module_version=output.stdout.strip() or None))


def read_proc_gpus(system: System) -> Snapshot:
    folders = list_or_empty(system, GPUS_FOLDER)
    if not folders:
        return missing("gpus", GPUS_FOLDER, "nothing there")
    pages = [(name, read_or_none(system, f"{GPUS_FOLDER}/{name}/information")) for name in folders]
    gpus = tuple(
        parse_information(n, text or "") for n, text in pages if not is_excluded(text or "")
    )
    return Snapshot(gpus=gpus, readings=gpu_readings(GPUS_FOLDER, gpus))


DEVICES_FOLDER = "/dev"
NODE = r"nvidia(?!-caps)|dxg"
"""Names of device nodes; in `nvidia-caps` are the instances of MIG."""


def read_nodes(system: System) -> Snapshot:
    names = unless_refused(system.list, DEVICES_FOLDER)
    if names is None:
        return missing("devices", DEVICES_FOLDER, "cannot be listed")
    paths = [f"{DEVICES_FOLDER}/{name}" for name in names if re.match(NODE, name)]
    nodes = tuple(_node(path, unless_refused(system.stat, path)) for path in paths)
    lines = [f"{node.path} {node.mode or '(cannot be read)'}" for node in nodes]
    values = lines or ["no nvidia node"]
    readings = (Reading(subject="devices", source=DEVICES_FOLDER, value=value) for value in values)
    return Snapshot(devices=nodes, readings=tuple(readings))


def _node(path: str, found: Stat | None) -> DeviceNode:
    if found is None:
        return DeviceNode(path=path)
    return DeviceNode(path=path, mode=found.mode, readable=found.readable, writable=found.writable)


LINUX_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
# Where distributions, containers, WSL, Jetson and NixOS keep the driver's libraries.
LINUX_FOLDERS = (
    "/usr/lib/wsl/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia",
    "/usr/lib/aarch64-linux-gnu/tegra",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/run/opengl-driver/lib",
)


def read_libraries(system: System) -> Snapshot:
    """The first that is found: where the environment says, else where it usually is."""
    environ = system.environ()
    from_environment = filter(None, environ.get("LD_LIBRARY_PATH", "").split(":"))
    folders = (*from_environment, *LINUX_FOLDERS)
    paths = [f"{folder}/{name}" for name in LINUX_LIBRARIES for folder in folders]
    if system.family == "windows":
        paths = [join(environ.get("SystemRoot", "C:\\Windows"), "System32", "nvcuda.dll")]
    found = next((path for path in paths if exists(system, path)), None)
    driver = Driver(library_found=found is not None)
    problem = None if found else "no driver library found"
    subject = "driver.library_found"
    reading = Reading(subject=subject, source="library files", value=found, problem=problem)
    return Snapshot(driver=driver, readings=(reading,))
