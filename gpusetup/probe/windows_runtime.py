"""Whether Windows has the Visual C++ runtime that torch's DLLs need."""

from __future__ import annotations

from gpusetup.model.machine import Event
from gpusetup.probe.target import TargetPython
from gpusetup.readings.paths import join
from gpusetup.system.system import System, exists

CPP_LIBRARY = "msvcp140.dll"
"""The C++ part of the runtime. Python comes with the C part (vcruntime140.dll), but not with the
C++ part."""

ALWAYS_THERE = "kernel32.dll"
"""A file that Windows always has. If it seems to be missing too, the folder cannot be read, and a
missing runtime is not proven."""


def runtime_events(system: System, target: TargetPython | None) -> tuple[Event, ...]:
    """An event if the C++ runtime is missing, because torch's DLLs cannot be loaded without it."""
    if system.family != "windows" or target is None:
        return ()
    environ = system.environ()
    root = environ.get("SystemRoot") or environ.get("SYSTEMROOT") or "C:\\Windows"
    system_folder = join(root, "System32")
    # conda has a package for it (vc14_runtime).
    folders = (system_folder, target.prefix, join(target.prefix, "Library\\bin"))
    is_readable = exists(system, join(system_folder, ALWAYS_THERE))
    if not is_readable or any(exists(system, join(folder, CPP_LIBRARY)) for folder in folders):
        return ()
    values = {"dll": CPP_LIBRARY, "searched": system_folder}
    text = f"no {CPP_LIBRARY} in {system_folder}"
    return (Event(kind="windows-dll-missing", values=values, source=system_folder, text=text),)
