"""The CUDA libraries of a build load, on a host without a GPU and without a driver too."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from typing import Iterator, NamedTuple, Tuple

from ..values import FAILED, PASSED, SKIPPED, Outcome
from .importing import REINSTALL, cuda_build

WANTED = re.compile(
    r"(lib)?(c10_cuda|torch_cuda\w*|cudart|cublas|cublasLt|cudnn\w*|cufft|curand|cusolver|cusparse"
    r"|cusparseLt|nccl|nvJitLink|nvrtc|nvToolsExt|nvtx3interop)[-\d_]*(\.so[.\d]*|\.dll)\Z"
)
"""What a training needs. The wheels bring more (profilers, network transports) that is loaded
only on machines with the hardware for it."""
OURS = re.compile(r"(torch-|nvidia_).*\.dist-info\Z")
"""The wheels whose records are read."""
OF_THE_DRIVER = ("libcuda.so", "libnvidia-", "nvcuda.dll", "nvml.dll")
"""Come with the driver, so a build host lacks them."""


class Tried(NamedTuple):
    name: str
    problem: str


def libraries_load(_: str) -> Outcome:
    """Every CUDA library of this torch and of the nvidia wheels beside it loads."""
    import torch

    if not cuda_build(torch):
        return Outcome(
            SKIPPED,
            f"torch {torch.__version__} is a CPU build: there are no CUDA libraries",
            hint='`--expect "cuda==12.4"` makes an image with a CPU build fail',
        )
    tried = tuple(load(path) for path in libraries_of(os.path.dirname(torch.__file__)))
    return judged(tried)


def libraries_of(torch_folder: str) -> Tuple[str, ...]:
    """The wanted libraries of torch and the nvidia wheels beside it: the files that are there, and
    those that the wheels' records name, so that a deleted one is missed."""
    site = os.path.dirname(torch_folder)
    folders = [os.path.join(torch_folder, "lib")]
    for folder, _, _ in os.walk(os.path.join(site, "nvidia")):
        if os.path.basename(folder) in ("lib", "bin"):
            folders.append(folder)
    there = {path for folder in folders for path in _wanted(folder)}
    return tuple(sorted(there | set(_recorded(site))))


def _wanted(folder: str) -> Iterator[str]:
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return (os.path.join(folder, name) for name in names if WANTED.match(name))


def _recorded(site: str) -> Iterator[str]:
    """The wanted libraries that the RECORD files of torch and of the nvidia wheels name."""
    for folder in os.listdir(site):
        record = os.path.join(site, folder, "RECORD")
        if OURS.match(folder) and os.path.isfile(record):
            with open(record, encoding="utf-8") as file:
                names = [line.split(",")[0] for line in file]
            wanted = [name for name in names if WANTED.match(os.path.basename(name))]
            yield from (os.path.normpath(os.path.join(site, name)) for name in wanted)


def load(path: str) -> Tried:
    """Load one library; the problem is empty where it loads."""
    try:
        ctypes.CDLL(path)
    except OSError as problem:
        return Tried(os.path.basename(path), str(problem))
    return Tried(os.path.basename(path), "")


def judged(tried: Tuple[Tried, ...]) -> Outcome:
    """What the loads say together; a missing driver is no fault of an image."""
    bad = [each for each in tried if each.problem and not _lacks_driver(each.problem)]
    waiting = [each for each in tried if each.problem and _lacks_driver(each.problem)]
    if bad:
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        return Outcome(FAILED, f"{bad[0].name}: {bad[0].problem}{more}", hint=REINSTALL)
    if not tried:
        return Outcome(FAILED, f"no CUDA library found in {sys.prefix}", hint=REINSTALL)
    for_driver = f", {len(waiting)} wait for the driver" if waiting else ""
    return Outcome(PASSED, f"{len(tried) - len(waiting)} CUDA libraries load{for_driver}")


def _lacks_driver(problem: str) -> bool:
    """Whether the loader names a library that comes with the driver as missing."""
    missing = problem.partition(":")[0]
    return any(os.path.basename(missing).startswith(name) for name in OF_THE_DRIVER)
