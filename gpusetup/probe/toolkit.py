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
    version = parse_nvcc(said.stdout)
    problem = None if version else said.problem or "its answer names no release"
    return version, (Reading(subject="toolkit", source=path, value=version, problem=problem),)


def parse_nvcc(text: str) -> str | None:
    """The release in the answer of `nvcc --version`.

    >>> parse_nvcc("Cuda compilation tools, release 12.4, V12.4.131")
    '12.4'
    """
    match = re.search(r"release (\d+\.\d+)", text)
    return match[1] if match else None


def read_home_version(system: System, home: str) -> str | None:
    """The version that a toolkit's folder names: `version.json`, before 11.1 `version.txt`."""
    text = read_or_none(system, join(home, "version.json"))
    if text is not None:
        return parse_version_json(text)
    old = re.search(
        r"CUDA Version (\d+\.\d+)", read_or_none(system, join(home, "version.txt")) or ""
    )
    return old[1] if old else None


def parse_version_json(text: str) -> str | None:
    """The CUDA version of a toolkit's `version.json`.

    >>> parse_version_json('{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}}')
    '12.4'
    """
    import json

    try:
        version = str(json.loads(text)["cuda"]["version"])
    except (ValueError, KeyError, TypeError):
        return None
    return ".".join(version.split(".")[:2])
