"""A CUDA toolkit and a C compiler, where there are any; wheels need neither."""

from __future__ import annotations

import re

from gpusetup.model.machine import Reading, Toolkit
from gpusetup.readings.paths import join
from gpusetup.system.system import System, exists, read_or_none

NVCC_SECONDS = 3.0
COMPILERS = {
    "linux": ("cc", "gcc", "clang"),
    "macos": ("cc", "clang"),
    "windows": ("cl", "clang-cl", "gcc"),
}


def read_toolkit(system: System) -> tuple[Toolkit, tuple[Reading, ...]]:
    environ = system.environ()
    home = environ.get("CUDA_HOME") or environ.get("CUDA_PATH")
    path = system.which("nvcc")
    nvcc, readings = read_nvcc(system, path)
    found = Toolkit(
        nvcc=nvcc,
        nvcc_path=path,
        home=home,
        home_exists=exists(system, home) if home else None,
        home_version=read_home_version(system, home) if home else None,
        compiler=next(filter(None, map(system.which, COMPILERS[system.family])), None),
    )
    return found, readings


def read_nvcc(system: System, path: str | None) -> tuple[str | None, tuple[Reading, ...]]:
    """What the first `nvcc` on PATH says of its version."""
    if path is None:
        return None, (Reading(subject="toolkit", source="nvcc", problem="not on PATH"),)
    said = system.run([path, "--version"], NVCC_SECONDS)
    found = re.search(r"release (\d+\.\d+)", said.stdout)
    version = found[1] if found else None
    problem = None if version else said.problem or "its answer names no release"
    return version, (Reading(subject="toolkit", source=path, value=version, problem=problem),)


def read_home_version(system: System, home: str) -> str | None:
    """The version that a toolkit's folder names: `version.json`, before 11.1 `version.txt`."""
    text = read_or_none(system, join(home, "version.json"))
    form = r'"cuda"\s*:\s*{[^}]*"version"\s*:\s*"(\d+\.\d+)'
    if text is None:
        text, form = read_or_none(system, join(home, "version.txt")), r"CUDA Version (\d+\.\d+)"
    found = re.search(form, text or "")
    return found[1] if found else None
