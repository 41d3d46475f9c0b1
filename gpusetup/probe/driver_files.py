"""The driver's user-space libraries as files: is one where a program finds it."""

from __future__ import annotations

from gpusetup.model.machine import Driver, Reading, Snapshot
from gpusetup.readings.paths import join
from gpusetup.system.system import System, exists

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


def read_libraries(system: System) -> Snapshot:
    """The first that is found: where the environment says, else where it usually is."""
    environ = system.environ()
    named = filter(None, environ.get("LD_LIBRARY_PATH", "").split(":"))
    folders = (*named, *LINUX_FOLDERS)
    paths = [f"{folder}/{name}" for name in LINUX_LIBRARIES for folder in folders]
    if system.family == "windows":
        paths = [join(environ.get("SystemRoot", "C:\\Windows"), "System32", "nvcuda.dll")]
    found = next((path for path in paths if exists(system, path)), None)
    driver = Driver(library_found=found is not None)
    problem = None if found else "no driver library found"
    subject = "driver.library_found"
    reading = Reading(subject=subject, source=SOURCE, value=found, problem=problem)
    return Snapshot(driver=driver, readings=(reading,))
