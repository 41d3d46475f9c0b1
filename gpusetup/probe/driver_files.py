"""The driver's user-space libraries as files: are they there, and of which release."""

from __future__ import annotations

import ntpath
import posixpath
import re
from itertools import islice

from gpusetup.model.machine import Driver, Reading, Snapshot
from gpusetup.readings.side import told
from gpusetup.system.system import System, exists, read_or_none, unless_refused

SOURCE = "library files"
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
LOADER_CACHE = "/etc/ld.so.cache"
WINDOWS_LIBRARIES = ("nvcuda.dll", "nvml.dll")
LINK_STEPS = 5


def read_libraries(system: System) -> Snapshot:
    """The libraries in the order in which the loader looks."""
    find = linux_libraries if system.family == "linux" else windows_libraries
    found = find(system)
    if not found:
        problem = "no driver library found"
        reading = Reading(subject="driver.library_found", source=SOURCE, problem=problem)
        return Snapshot(driver=Driver(library_found=False), readings=(reading,))
    names = {path: ntpath.basename(path) for path in found}
    cuda = [path for path in found if names[path].startswith(("libcuda.so", "nvcuda"))]
    releases = re.findall(r"\.so\.(\d{3,}\.\d+(?:\.\d+)?)$", "\n".join(found), re.M)
    driver = Driver(
        library_found=bool(cuda),
        libcuda_path=next(iter(cuda), None),
        library_version=next(iter(releases), None),
    )
    return Snapshot(driver=driver, readings=told("driver", SOURCE, driver))


def linux_libraries(system: System) -> tuple[str, ...]:
    """Each library's real file: where the environment says, where it usually is, and where no such
    folder has one, where the loader's cache says (zero-ended strings in a binary file)."""
    environ = system.environ()
    preloaded = environ.get("LD_PRELOAD", "").replace(":", " ").split()
    named = (*map(posixpath.dirname, preloaded), *environ.get("LD_LIBRARY_PATH", "").split(":"))
    folders = (*filter(None, named), *LINUX_FOLDERS)
    paths: list[str] = []
    for name in LINUX_LIBRARIES:
        there = (path for folder in folders if exists(system, path := f"{folder}/{name}"))
        paths += islice(there, 1)
    if not paths:
        cache = read_or_none(system, LOADER_CACHE) or ""
        cached = re.findall(r"(/[^\0]*/(?:libcuda|libnvidia-ml)\.so\.1)\0", cache)
        paths = [path for path in cached if exists(system, path)]
    return tuple(_followed(system, path) for path in paths)


def _followed(system: System, path: str) -> str:
    """The file at the end of a chain of links."""
    for _ in range(LINK_STEPS):
        path = posixpath.join(posixpath.dirname(path), unless_refused(system.link, path) or path)
    return path


def windows_libraries(system: System) -> tuple[str, ...]:
    root = system.environ().get("SystemRoot", "C:\\Windows")
    paths = (ntpath.join(root, "System32", name) for name in WINDOWS_LIBRARIES)
    return tuple(path for path in paths if exists(system, path))
