"""Opens a source of samples for AMD, Intel or Apple GPUs if there is no NVIDIA GPU to watch. Reads
the machine."""

from __future__ import annotations

from gpusetup.monitor.amdgpu import open_amdgpu
from gpusetup.monitor.powermetrics import open_powermetrics
from gpusetup.monitor.sources import SampleSource, SourceEnded
from gpusetup.monitor.xpu_smi import open_xpu_smi
from gpusetup.system.system import System

BY_FAMILY = {
    "linux": (open_amdgpu, open_xpu_smi),
    "macos": (open_powermetrics,),
    "windows": (open_xpu_smi,),
}
"""The sources to try on each operating system, in this order."""


def open_other_maker(interval: float, system: System | None = None) -> SampleSource:
    """The first of this system's sources that works. If none works, raises SourceEnded with the
    reasons of all of them."""
    system = system or System()
    reasons = []
    for open_source in BY_FAMILY[system.family]:
        try:
            return open_source(interval, system)
        except SourceEnded as problem:
            reasons.append(str(problem))
    raise SourceEnded("; ".join(reasons))
