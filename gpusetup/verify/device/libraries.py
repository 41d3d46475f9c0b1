"""The CUDA libraries of a build load, on a host without a GPU and without a driver too."""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path
from typing import Iterator

from ..values import FAILED, PASSED, SKIPPED, Outcome
from .importing import REINSTALL, cuda_build

WANTED = re.compile(
    r"(lib)?(c10_cuda|torch_cuda\w*|cudart|cublas|cublasLt|cudnn\w*|cufft|curand|cusolver|cusparse"
    r"|cusparseLt|nccl|nvJitLink|nvrtc|nvToolsExt|nvtx3interop)[-\d_]*(\.so[.\d]*|\.dll)\Z"
)
"""What a training needs. The wheels bring more (profilers, network transports) that is loaded
only on machines with the hardware for it."""
OF_THE_DRIVER = ("libcuda.so", "libnvidia-", "nvcuda.dll", "nvml.dll")
"""Come with the driver, so a build host lacks them."""


def libraries_load(_: str) -> Outcome:
    """Every CUDA library of this torch and of the nvidia wheels beside it loads."""
    import torch

    if not cuda_build(torch):
        return Outcome(
            SKIPPED,
            f"torch {torch.__version__} is a CPU build: there are no CUDA libraries",
            hint='`--expect "cuda==12.4"` makes an image with a CPU build fail',
        )
    loaded, waiting, bad = 0, 0, []
    for path in sorted(set(libraries_of(Path(torch.__file__).parent))):
        try:
            ctypes.CDLL(str(path))
            loaded += 1
        except OSError as problem:
            # A missing driver is no fault of an image.
            if Path(str(problem).partition(":")[0]).name.startswith(OF_THE_DRIVER):
                waiting += 1
            else:
                bad.append(f"{path.name}: {problem}")
    if bad or not loaded + waiting:
        told = "; ".join(bad) or f"no CUDA library found in {sys.prefix}"
        return Outcome(FAILED, told, hint=REINSTALL)
    for_driver = f", {waiting} wait for the driver" if waiting else ""
    return Outcome(PASSED, f"{loaded} CUDA libraries load{for_driver}")


def libraries_of(torch_folder: Path) -> Iterator[Path]:
    """The wanted libraries of torch and of the nvidia wheels beside it."""
    site = torch_folder.parent
    there = [*(torch_folder / "lib").glob("*"), *site.glob("nvidia/**/lib/*")]
    there += site.glob("nvidia/**/bin/*")
    return (path for path in there if WANTED.match(path.name))
