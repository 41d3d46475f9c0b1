"""Machines in one line, for tests of what is decided about them."""

from __future__ import annotations

from typing import Literal

from gpusetup.catalog.file import load_catalog
from gpusetup.catalog.gpus import gpu_described
from gpusetup.model.machine import Driver, Os, Python, Snapshot


def machine(
    *gpus: str,
    driver: str | None = "580.95.05",
    python: str | None = "3.11",
    os: Literal["linux", "windows", "macos"] = "linux",
    on: str = "x86_64",
    libc: str | None = "glibc 2.35",
    wsl: bool | None = None,
) -> Snapshot:
    """A machine with these GPUs; `gpus` names or `sm_86`."""
    version = python.rstrip("t") if python else None
    return Snapshot(
        origin="composed",
        os=Os(family=os, machine=on, libc=libc if os == "linux" else None, wsl=wsl),
        python=Python(version=version, free_threaded=bool(python and python.endswith("t"))),
        driver=Driver(version=driver),
        gpus=tuple(gpu_described(name, load_catalog().gpus) for name in gpus),
    )
