"""The NVIDIA driver, as far as Linux files show it: /proc/driver/nvidia, kernel modules and device
nodes."""

from __future__ import annotations

import re
from collections.abc import Callable

from gpusetup.model.machine import DeviceNode, Driver, Reading, Snapshot
from gpusetup.readings.paths import join
from gpusetup.readings.proc import is_excluded, parse_information, parse_modules, parse_proc_version
from gpusetup.readings.sources import gpu_readings, missing, readings_of
from gpusetup.system.system import System, exists, list_or_empty, read_or_none, unless_refused

VERSION_FILE = "/proc/driver/nvidia/version"
MODULES_FILE = "/proc/modules"
MODULE_VERSION_FILE = "/sys/module/nvidia/version"
GPUS_FOLDER = "/proc/driver/nvidia/gpus"
MODINFO_SECONDS = 5.0


def _driver_snapshot(source: str, driver: Driver) -> Snapshot:
    """A snapshot with the driver's fields from one source, and a reading for each field."""
    return Snapshot(driver=driver, readings=readings_of("driver", source, driver))


def _read(system: System, path: str, subject: str, parse: Callable[[str], Driver]) -> Snapshot:
    """A file about the driver. `subject` names the reading if the file cannot be read."""
    text = read_or_none(system, path)
    if text is None:
        return missing(subject, path, "cannot be read")
    return _driver_snapshot(path, parse(text))


def read_proc_version(system: System) -> Snapshot:
    """The driver's version and kind, from /proc."""
    return _read(system, VERSION_FILE, "driver.version", parse_proc_version)


def read_module_version(system: System) -> Snapshot:
    """The loaded module's driver version, from sysfs."""

    def parse(text: str) -> Driver:
        version = text.strip() or None
        return Driver(version=version, module_version=version)

    return _read(system, MODULE_VERSION_FILE, "driver.module_version", parse)


def read_modules(system: System) -> Snapshot:
    """Whether the driver's kernel modules are loaded; unknown under WSL, where the driver runs in
    Windows and a missing `nvidia` module says nothing."""
    if exists(system, "/dev/dxg"):
        return missing("driver.module_loaded", MODULES_FILE, "WSL: Windows holds the driver")
    return _read(system, MODULES_FILE, "driver.module_loaded", parse_modules)


def read_modinfo(system: System) -> Snapshot:
    """The version of the nvidia module installed for the running kernel, from `modinfo`."""
    output = system.run(("modinfo", "-F", "version", "nvidia"), MODINFO_SECONDS)
    if not output.ok:
        problem = output.problem or "no nvidia module is installed for the running kernel"
        return missing("driver.module_version", "modinfo", problem)
    version = output.stdout.strip() or None
    return _driver_snapshot("modinfo", Driver(module_version=version))


def read_proc_gpus(system: System) -> Snapshot:
    """The GPUs that the kernel driver manages, from /proc/driver/nvidia/gpus."""
    names = list_or_empty(system, GPUS_FOLDER)
    if not names:
        return missing("gpus", GPUS_FOLDER, "nothing there")
    gpus = []
    for name in names:
        page = read_or_none(system, f"{GPUS_FOLDER}/{name}/information") or ""
        # An administrator may exclude a GPU, and then the driver does not use it.
        if not is_excluded(page):
            gpus.append(parse_information(name, page))
    return Snapshot(gpus=tuple(gpus), readings=gpu_readings(GPUS_FOLDER, tuple(gpus)))


DEVICES_FOLDER = "/dev"
NODE = re.compile(r"nvidia(?!-caps)|dxg")
"""The names of NVIDIA's device nodes; the folder `nvidia-caps` is left out, because it contains MIG
instances."""


def read_nodes(system: System) -> Snapshot:
    """The NVIDIA device nodes with their permissions."""
    names = unless_refused(system.list, DEVICES_FOLDER)
    if names is None:
        return missing("devices", DEVICES_FOLDER, "cannot be listed")
    nodes = tuple(node_at(system, f"{DEVICES_FOLDER}/{name}") for name in filter(NODE.match, names))
    lines = [f"{node.path} {node.mode or '(cannot be read)'}" for node in nodes]
    readings = [
        Reading(subject="devices", source=DEVICES_FOLDER, value=line)
        for line in lines or ["no nvidia node"]
    ]
    return Snapshot(devices=nodes, readings=tuple(readings))


def node_at(system: System, path: str) -> DeviceNode:
    """A device node, with its permissions if they can be read."""
    stat = unless_refused(system.stat, path)
    if stat is None:
        return DeviceNode(path=path)
    return DeviceNode(path=path, mode=stat.mode, readable=stat.readable, writable=stat.writable)


LINUX_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
# The folders in which distributions, containers, WSL, Jetson and NixOS keep the driver's libraries.
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
    """Whether any of the driver's libraries exists, and the path of the first one found."""
    environ = system.environ()
    if system.family == "windows":
        root = environ.get("SystemRoot", "C:\\Windows")
        paths = [join(root, "System32", "nvcuda.dll")]
    else:
        folders = [*filter(None, environ.get("LD_LIBRARY_PATH", "").split(":")), *LINUX_FOLDERS]
        paths = [f"{folder}/{name}" for name in LINUX_LIBRARIES for folder in folders]
    library = next((path for path in paths if exists(system, path)), None)
    reading = Reading(
        subject="driver.library_found",
        source="library files",
        value=library,
        problem=None if library else "no driver library found",
    )
    return Snapshot(driver=Driver(library_found=library is not None), readings=(reading,))
