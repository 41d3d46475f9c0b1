"""The driver's user-space libraries as files: are they there, and of which release."""

from __future__ import annotations

import ntpath
import posixpath
import re
from collections.abc import Mapping

from gpusetup.model.machine import Driver, Reading
from gpusetup.readings.side import GpuSide, told
from gpusetup.system.system import System, exists, list_or_empty, read_or_none

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
DRIVER_STORE = "System32\\DriverStore\\FileRepository"
LINK_STEPS = 5


def read_libraries(system: System) -> GpuSide:
    """The libraries in the order in which the loader looks; none on macOS."""
    find = {"linux": linux_libraries, "windows": windows_libraries}.get(system.family)
    found = find(system) if find else ()
    if not found:
        problem = "no driver library found"
        reading = Reading(subject="driver.library_found", source=SOURCE, problem=problem)
        return GpuSide(driver=Driver(library_found=False), readings=(reading,))
    driver = driver_of(found)
    return GpuSide(driver=driver, libraries=found, readings=told("driver", SOURCE, driver))


def driver_of(paths: tuple[str, ...]) -> Driver:
    """Paths whose names may hold the release.

    >>> driver = driver_of(("/usr/lib/libcuda.so.580.95.05", "/usr/lib/libnvidia-ml.so.580.95.05"))
    >>> driver.library_version, driver.libcuda_path
    ('580.95.05', '/usr/lib/libcuda.so.580.95.05')
    """
    cuda = next((path for path in paths if _is_cuda(path)), None)
    versions = (release(path) for path in paths)
    return Driver(
        library_found=cuda is not None,
        libcuda_path=cuda,
        library_version=next((version for version in versions if version), None),
    )


def release(path: str) -> str | None:
    """The release in a library's file name.

    >>> release("/usr/lib64/libcuda.so.580.95.05"), release("/usr/lib/wsl/lib/libcuda.so.1.1")
    ('580.95.05', None)
    """
    found = re.search(r"\.so\.(\d{3,}\.\d+(?:\.\d+)?)$", path)
    return found.group(1) if found else None


def _is_cuda(path: str) -> bool:
    return ntpath.basename(path).startswith(("libcuda.so", "nvcuda"))


def linux_libraries(system: System) -> tuple[str, ...]:
    """Each library's real file; the loader's cache is read where no usual folder has it."""
    folders = (*named_folders(system.environ()), *LINUX_FOLDERS)
    found = (_first(system, name, folders) for name in LINUX_LIBRARIES)
    paths = tuple(path for path in found if path)
    return paths or tuple(_followed(system, path) for path in cached_paths(system))


def named_folders(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Where the loader looks first, because the environment says so.

    >>> named_folders({"LD_PRELOAD": "/opt/mock/libnvidia-ml.so.1", "LD_LIBRARY_PATH": "/a::/b"})
    ('/opt/mock', '/a', '/b')
    """
    preloaded = environ.get("LD_PRELOAD", "").replace(":", " ").split()
    folders = environ.get("LD_LIBRARY_PATH", "").split(":")
    return tuple(filter(None, (*map(posixpath.dirname, preloaded), *folders)))


def _first(system: System, name: str, folders: tuple[str, ...]) -> str | None:
    candidates = (posixpath.join(folder, name) for folder in folders)
    path = next((path for path in candidates if exists(system, path)), None)
    return None if path is None else _followed(system, path)


def _followed(system: System, path: str) -> str:
    """The file at the end of a chain of links."""
    for _ in range(LINK_STEPS):
        try:
            path = posixpath.join(posixpath.dirname(path), system.link(path))
        except OSError:
            break
    return path


def cached_paths(system: System) -> tuple[str, ...]:
    text = read_or_none(system, LOADER_CACHE) or ""
    return tuple(path for path in parse_loader_cache(text) if exists(system, path))


def parse_loader_cache(text: str) -> tuple[str, ...]:
    """The paths of our libraries among the zero-ended strings of the binary file.

    >>> parse_loader_cache("libcuda.so.1\\0/srv/lib/libcuda.so.1\\0libm.so.6\\0/lib/libm.so.6\\0")
    ('/srv/lib/libcuda.so.1',)
    """
    return tuple(re.findall(r"(/[^\0]*/(?:libcuda|libnvidia-ml)\.so\.1)\0", text))


def windows_libraries(system: System) -> tuple[str, ...]:
    """System32 holds the loader's copies; the driver store holds what a package installed."""
    root = system.environ().get("SystemRoot", "C:\\Windows")
    direct = (ntpath.join(root, "System32", name) for name in WINDOWS_LIBRARIES)
    found = tuple(path for path in direct if exists(system, path))
    return found or _in_store(system, ntpath.join(root, DRIVER_STORE))


def _in_store(system: System, store: str) -> tuple[str, ...]:
    packages = (name for name in list_or_empty(system, store) if name.lower().startswith("nv"))
    candidates = (ntpath.join(store, package, "nvcuda64.dll") for package in packages)
    return tuple(path for path in candidates if exists(system, path))
