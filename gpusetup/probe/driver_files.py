"""The NVIDIA driver as files show it: /proc/driver/nvidia, kernel modules, nodes and libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.model.machine import DeviceNode, Driver, Gpu, Reading, Snapshot
from gpusetup.probe.pci import read_pci
from gpusetup.readings.paths import join
from gpusetup.readings.sources import UNNAMED, gpu_readings, missing, readings_of
from gpusetup.system.system import System, exists, list_or_empty, read_or_none, unless_refused

GPUS_FOLDER = "/proc/driver/nvidia/gpus"
DEVICES_FOLDER = "/dev"


def read_driver_files(system: System) -> list[Snapshot]:
    """What files show about the driver and its GPUs, one snapshot for each source, in order of
    precedence. Starts no child process."""
    if system.family == "windows":
        return [read_libraries(system)]
    if system.family == "macos":
        return []
    return [
        *_read_kernel_driver(system),
        read_libraries(system),
        read_pci(system),
        read_nodes(system),
        _read_proc_gpus(system),
    ]


def _read_kernel_driver(system: System) -> Iterator[Snapshot]:
    """The version of the running driver, from /proc and /sys, and which modules are loaded."""

    def kernel_module(text: str) -> Driver:
        # `NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12`; the open module
        # is called `Open Kernel Module for x86_64`.
        line = next((line for line in text.splitlines() if line.startswith("NVRM")), "")
        version = re.search(r"\s(\d{3,}\.\d+(?:\.\d+)?)(?:\s|$)", line)
        if not version:
            return Driver(module_loaded=True)
        is_open = "Open Kernel Module" in line
        return Driver(version=version[1], open_module=is_open, module_loaded=True)

    def module_version(text: str) -> Driver:
        version = text.strip() or None
        return Driver(version=version, module_version=version)

    def loaded_modules(text: str) -> Driver:
        loaded = {line.partition(" ")[0] for line in text.splitlines()}
        return Driver(
            module_loaded="nvidia" in loaded,
            uvm_loaded="nvidia_uvm" in loaded,
            nouveau_loaded="nouveau" in loaded,
        )

    for path, subject, parse in (
        ("/proc/driver/nvidia/version", "driver.version", kernel_module),
        ("/sys/module/nvidia/version", "driver.module_version", module_version),
        ("/proc/modules", "driver.module_loaded", loaded_modules),
    ):
        text, problem = read_or_none(system, path), "cannot be read"
        # WSL has this device, and no `nvidia` module even if the driver works.
        if subject == "driver.module_loaded" and exists(system, "/dev/dxg"):
            text, problem = None, "WSL: Windows holds the driver"
        if text is None:
            yield missing(subject, path, problem)
        else:
            driver = parse(text)
            yield Snapshot(driver=driver, readings=readings_of("driver", path, driver))


MODINFO = ("modinfo", "-F", "version", "nvidia")
MODINFO_SECONDS = 5.0


def read_modinfo(system: System) -> Snapshot:
    """The version of the nvidia module installed for the running kernel, from `modinfo`."""
    output = system.run(MODINFO, MODINFO_SECONDS)
    if not output.ok:
        problem = output.problem or "no nvidia module is installed for the running kernel"
        return missing("driver.module_version", "modinfo", problem)
    driver = Driver(module_version=output.stdout.strip() or None)
    return Snapshot(driver=driver, readings=readings_of("driver", "modinfo", driver))


def _read_proc_gpus(system: System) -> Snapshot:
    """The GPUs that the kernel module lists, with name, UUID and address."""
    names = list_or_empty(system, GPUS_FOLDER)
    if not names:
        return missing("gpus", GPUS_FOLDER, "nothing there")
    gpus: list[Gpu] = []
    for name in names:
        page = read_or_none(system, f"{GPUS_FOLDER}/{name}/information") or ""
        lines = (line.partition(":") for line in page.splitlines())
        values = {label.strip(): value.strip() for label, _, value in lines}
        # The UUID of a GPU that could not be started has question marks.
        uuid = values.get("GPU UUID") or None
        gpu = Gpu(
            name=values.get("Model") or UNNAMED,
            uuid=None if uuid and "?" in uuid else uuid,
            pci_bus_id=values.get("Bus Location") or name,
            # NVML numbers the GPUs in the order of their addresses too.
            nvml_index=len(gpus),
        )
        gpus.append(gpu)
    return Snapshot(gpus=tuple(gpus), readings=gpu_readings(GPUS_FOLDER, gpus))


NODE = re.compile(r"nvidia(?!-caps)|dxg")
"""The names of NVIDIA's device nodes, without the folder of MIG instances (`nvidia-caps`)."""


def read_nodes(system: System) -> Snapshot:
    """The NVIDIA device nodes with their permissions."""
    names = unless_refused(system.list, DEVICES_FOLDER)
    if names is None:
        return missing("devices", DEVICES_FOLDER, "cannot be listed")
    nodes = tuple(node_at(system, f"{DEVICES_FOLDER}/{name}") for name in filter(NODE.match, names))
    reading = Reading(subject="devices", source=DEVICES_FOLDER, value=f"nodes: {len(nodes)}")
    return Snapshot(devices=nodes, readings=(reading,))


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
        # The loader searches the variable's folders first.
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
