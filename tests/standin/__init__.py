"""Builds the stand-in driver libraries and points a test at them (README.md beside this file)."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
LIBRARIES = {"libnvidia-ml.so.1": "nvml.c", "libcuda.so.1": "cuda.c"}
FLAGS = ("-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra")

A100: dict[str, object] = {
    "name": "NVIDIA A100-SXM4-40GB",
    "memory": 40960 << 20,
    "memory_used": 512 << 20,
    "sm": 80,
    "persistence": 1,
    "mig_mode": 0,
    "compute_mode": 0,
    "ecc_mode": 1,
    "ecc_uncorrected": 0,
    "remap_pending": 0,
    "remap_failed": 0,
    "temperature": 33,
    "power_mw": 72500,
    "power_limit_mw": 400000,
    "throttle": 1,
    "utilization": 7,
    "pcie_gen": 4,
    "pcie_gen_max": 4,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "virtualization": 0,
    "fabric": 3,
    "display_active": 0,
}
"""A data centre GPU with everything."""
RTX_3050: dict[str, object] = {
    "name": "NVIDIA GeForce RTX 3050 Laptop GPU",
    "memory": 4096 << 20,
    "memory_used": 300 << 20,
    "sm": 86,
    "persistence": 0,
    "compute_mode": 0,
    "temperature": 51,
    "throttle": 4,
    "utilization": 0,
    "pcie_gen": 1,
    "pcie_gen_max": 4,
    "pcie_width": 8,
    "pcie_width_max": 8,
    "virtualization": 0,
    "display_active": 1,
}
"""A laptop GPU, which has no ECC, no MIG and no power reading."""


def compiler() -> tuple[str, ...] | None:
    """The system's C compiler, else the one inside the `ziglang` package."""
    if found := shutil.which("cc"):
        return (found,)
    if importlib.util.find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang", "cc")
    return None


def libraries() -> Path:
    """The folder with both libraries, built once for these sources and this user."""
    cc = compiler()
    if cc is None or sys.platform != "linux":
        pytest.skip("the stand-in libraries need Linux and a C compiler")
    files = ("state.h", "health.c", *LIBRARIES.values())
    sources = b"".join((HERE / name).read_bytes() for name in files)
    mark = hashlib.sha256(sources).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"gpusetup-standin-{os.getuid()}-{mark}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for library, source in LIBRARIES.items():
        if not (folder / library).exists():
            _compile(cc, HERE / source, folder / library)
    return folder


def program(source: str, place: Path) -> None:
    """A program beside the libraries: `helper.c` is what a driver's library starts."""
    libraries()
    subprocess.run((*(compiler() or ()), str(HERE / source), "-o", str(place)), check=True)


def _compile(cc: tuple[str, ...], source: Path, library: Path) -> None:
    """Under another name first, so that a second test run never loads half a library."""
    half = library.with_name(f"{library.name}.{os.getpid()}")
    subprocess.run((*cc, *FLAGS, str(source), "-o", str(half)), check=True)
    half.replace(library)


def state(gpus: tuple[Mapping[str, object], ...] = (A100,), **more: object) -> str:
    """A state file's text. Two underscores in a keyword stand for a dot: `nvml__init=18`."""
    machine = {
        "driver": "580.95.05",
        "nvml.version": "13.580.95.05",
        "cuda.version": 13000,
        "devices": len(gpus),
    }
    machine |= {key.replace("__", "."): value for key, value in more.items()}
    for place, gpu in enumerate(gpus):
        own = {"uuid": uuid(place), "bus": f"00000000:{7 + 8 * place:02X}:00.0", **gpu}
        machine |= {f"{place}.{key}": value for key, value in own.items()}
    return "".join(f"{key}={value}\n" for key, value in machine.items())


def uuid(place: int) -> str:
    """The UUID that GPU `place` gets unless the test names another."""
    return f"GPU-12345678-1234-1234-1234-{place:012d}"


def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> Path:
    """Point this process's children at the libraries and at a state file with `text`."""
    file = tmp_path / "standin.state"
    file.write_text(text, encoding="utf-8")
    monkeypatch.setenv("GPUSETUP_STANDIN", str(file))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(libraries()))
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    return file
