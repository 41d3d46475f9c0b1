"""The NVIDIA driver, as far as Linux files show it: /proc/driver/nvidia, kernel modules and device
nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

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
    """Returns a function that reads a file about the driver. `subject` names the reading if the
    file cannot be read."""

    def read(system: System) -> Snapshot:
        text = read_or_none(system, path)
        if text is None:
            return missing(subject, path, "cannot be read")
        return _driver_snapshot(path, parse(text))

    return read


def _driver_snapshot(source: str, driver: Driver) -> Snapshot:
    """A snapshot with the driver's fields from one source, and a reading for each field."""
    readings = readings_of("driver", source, driver)
    return Snapshot(driver=driver, readings=readings)


def parse_module_version(text: str) -> Driver:
    """The loaded module's driver version, from sysfs."""
    version = text.strip() or None
    return Driver(version=version, module_version=version)


read_proc_version = read_from(VERSION_FILE, "driver.version", parse_proc_version)
read_module_version = read_from(MODULE_VERSION_FILE, "driver.module_version", parse_module_version)
_read_modules = read_from(MODULES_FILE, "driver.module_loaded", parse_modules)


def read_modules(system: System) -> Snapshot:
    """Whether the driver's kernel modules are loaded; unknown under WSL, where the driver runs in
    Windows."""
    # Under WSL the driver runs in Windows, so a missing `nvidia` module says nothing.
    if exists(system, "/dev/dxg"):
        return missing("driver.module_loaded", MODULES_FILE, "WSL: Windows holds the driver")
    return _read_modules(system)


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
    nodes = []
    for name in names:
        if NODE.match(name):
            path = f"{DEVICES_FOLDER}/{name}"
            nodes.append(_node(path, unless_refused(system.stat, path)))

    lines = [f"{node.path} {node.mode or '(cannot be read)'}" for node in nodes]
    readings = []
    for line in lines or ["no nvidia node"]:
        readings.append(Reading(subject="devices", source=DEVICES_FOLDER, value=line))
    return Snapshot(devices=tuple(nodes), readings=tuple(readings))


def _node(path: str, stat: Stat | None) -> DeviceNode:
    """A device node, with its permissions if they can be read."""
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
    driver = Driver(library_found=False)
    library = None
    for path in _library_paths(system):
        if exists(system, path):
            driver = Driver(library_found=True)
            library = path
            break
    problem = None if library else "no driver library found"
    reading = Reading(
        subject="driver.library_found", source="library files", value=library, problem=problem
    )
    return Snapshot(driver=driver, readings=(reading,))


def _library_paths(system: System) -> Iterator[str]:
    """The paths at which the driver's libraries may be."""
    environ = system.environ()
    if system.family == "windows":
        root = environ.get("SystemRoot", "C:\\Windows")
        yield join(root, "System32", "nvcuda.dll")
        return
    named_folders = environ.get("LD_LIBRARY_PATH", "").split(":")
    for name in LINUX_LIBRARIES:
        for folder in (*named_folders, *LINUX_FOLDERS):
            if folder:
                yield f"{folder}/{name}"
