"""Whether Windows has the Visual C++ runtime that torch's DLLs need."""

from __future__ import annotations

from gpusetup.model.machine import Event
from gpusetup.probe.target import Target
from gpusetup.readings.paths import join
from gpusetup.system.system import System, exists

CPP_LIBRARY = "msvcp140.dll"
"""The C++ part of the runtime. Python brings the C part (vcruntime140.dll), but not this one."""

ALWAYS_THERE = "kernel32.dll"
"""If even this is not seen, the folder cannot be read, and nothing is proven."""

IN_AN_ENVIRONMENT = ("", "Library\\bin")
"""conda has a package of its own for the runtime (vc14_runtime)."""


def runtime_events(system: System, target: Target | None) -> tuple[Event, ...]:
    """The missing runtime, as what keeps torch's DLLs from loading; nothing on other systems."""
    if system.family != "windows" or target is None:
        return ()
    root = system.environ().get("SystemRoot") or system.environ().get("SYSTEMROOT") or "C:\\Windows"
    folder = join(root, "System32")
    if not exists(system, join(folder, ALWAYS_THERE)):
        return ()
    places = (
        folder,
        *(join(target.prefix, part) if part else target.prefix for part in IN_AN_ENVIRONMENT),
    )
    if any(exists(system, join(place, CPP_LIBRARY)) for place in places):
        return ()
    values = {"dll": CPP_LIBRARY, "searched": folder}
    text = f"no {CPP_LIBRARY} in {folder}"
    return (Event(kind="windows-dll-missing", values=values, source=folder, text=text),)
