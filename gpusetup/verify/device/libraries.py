"""Checks that a build's CUDA libraries load, even on a host without a GPU and driver."""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path
from typing import Iterator

import torch

from ..values import FAILED, PASSED, SKIPPED, Outcome
from .importing import REINSTALL, cuda_build

WANTED = re.compile(
    r"(lib)?(c10_cuda|torch_cuda\w*|cudart|cublas|cublasLt|cudnn\w*|cufft|curand|cusolver|cusparse"
    r"|cusparseLt|nccl|nvJitLink|nvrtc|nvToolsExt|nvtx3interop)[-\d_]*(\.so[.\d]*|\.dll)\Z"
)
"""The libraries that training needs. The wheels contain more (profilers, network transports), which
are loaded only on machines with the hardware for them."""
OF_THE_DRIVER = ("libcuda.so", "libnvidia-", "nvcuda.dll", "nvml.dll")
"""These libraries come with the driver, so a host that only builds images lacks them."""


def libraries_load(_: str) -> Outcome:
    """Check that every CUDA library of torch and of the installed nvidia wheels loads."""

    if not cuda_build(torch):
        return Outcome(
            SKIPPED,
            f"torch {torch.__version__} is a CPU build: there are no CUDA libraries",
            hint='to make verify fail for a CPU build, add `--expect "cuda==12.4"`',
        )
    loaded = waiting = 0
    problems = []
    for path in sorted(set(libraries_of(Path(torch.__file__).parent))):
        try:
            ctypes.CDLL(str(path))
            loaded += 1
        except OSError as problem:
            # The loader's message begins with the name of the missing file.
            missing_file = Path(str(problem).partition(":")[0]).name
            # A missing driver is not a fault of the image.
            if missing_file.startswith(OF_THE_DRIVER):
                waiting += 1
            else:
                problems.append(f"{path.name}: {problem}")
    if problems:
        return Outcome(FAILED, "; ".join(problems), hint=REINSTALL)
    if not loaded + waiting:
        return Outcome(FAILED, f"no CUDA library found in {sys.prefix}", hint=REINSTALL)
    for_driver = f", {waiting} wait for the driver" if waiting else ""
    return Outcome(PASSED, f"{loaded} CUDA libraries load{for_driver}")


def libraries_of(torch_folder: Path) -> Iterator[Path]:
    """The CUDA libraries of torch and of the installed nvidia wheels that training needs."""
    site_packages = torch_folder.parent
    files = [
        *(torch_folder / "lib").glob("*"),
        *site_packages.glob("nvidia/**/lib/*"),
        # On Windows, the libraries are in bin.
        *site_packages.glob("nvidia/**/bin/*"),
    ]
    return (path for path in files if WANTED.match(path.name))
