"""The environment variables that decide how CUDA, torch and the installers behave.

An allow-list: what is not named here is never kept, and passwords in addresses are taken out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpusetup.model.machine import Event
from gpusetup.probe.target import Target
from gpusetup.readings.paths import is_below, join
from gpusetup.system.system import System, list_or_empty

FOREIGN = (
    r"lib(cudart|cublas|cublasLt|cudnn\w*|nvJitLink|cusparse|cusolver|nccl|nvrtc|cufft|curand|"
    r"cupti|stdc\+\+|gomp|mkl_rt)\.so"
)
"""Libraries that torch brings itself: another one that is found first takes their place."""


def library_events(system: System, target: Target | None) -> Iterable[Event]:
    """What `LD_LIBRARY_PATH` puts in front of the libraries that torch brings."""
    if system.family != "linux":
        return
    for folder in filter(None, system.environ().get("LD_LIBRARY_PATH", "").split(":")):
        names = list_or_empty(system, folder.rstrip("/") or "/")
        if "/stubs" in folder and any(name.startswith("libcuda.so") for name in names):
            yield _event("libcuda-stub", folder, "libcuda.so")
        first = sorted({match[0] for name in names if (match := re.match(FOREIGN, name))})
        if first and not (target and is_below(folder, target.prefix) and target.prefix != "/usr"):
            yield _event("foreign-library", folder, " ".join(first))


def _event(kind: str, folder: str, libraries: str) -> Event:
    return Event(
        kind=kind,
        values={"folder": folder, "libraries": libraries, "variable": "LD_LIBRARY_PATH"},
        source="LD_LIBRARY_PATH",
        text=join(folder, libraries),
    )
