"""A CUDA toolkit and a C compiler, where there are any; wheels need neither."""

from __future__ import annotations

import re

from gpusetup.model.machine import Reading, Snapshot, Toolkit
from gpusetup.system.system import System

NVCC_SECONDS = 3.0
COMPILERS = ("cc", "gcc", "clang", "cl", "clang-cl")


def read_toolkit(system: System) -> Snapshot:
    """What the first `nvcc` on PATH says of its version, and the first compiler there."""
    compiler = next(filter(None, map(system.which, COMPILERS)), None)
    path = system.which("nvcc")
    said = system.run([path, "--version"], NVCC_SECONDS) if path else None
    found = re.search(r"release (\d+\.\d+)", said.stdout) if said else None
    version, problem = found[1] if found else None, None
    if version is None:
        problem = said.problem or "its answer names no release" if said else "not on PATH"
    reading = Reading(subject="toolkit", source=path or "nvcc", value=version, problem=problem)
    return Snapshot(toolkit=Toolkit(nvcc=version, compiler=compiler), readings=(reading,))
