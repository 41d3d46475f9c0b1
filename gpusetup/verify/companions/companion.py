"""How a companion is tried: it is there, it imports, the device can, and its result is compared."""

from __future__ import annotations

import re
from typing import Any, Callable, NamedTuple, Optional, Tuple

from ..values import kind

Compared = Tuple[Any, Any, float]
"""What was found, what is right, and how far it may be off."""
VARIABLE = "GPUSETUP_VERIFY_WITH"
"""Names the companion of the process: each has one of its own."""
HALF = 4e-3
"""What float16 products and a float16 answer may be off, of values around 1."""


class Companion(NamedTuple):
    """A package that stands on torch, or shares its GPU, and its smallest real computation."""

    name: str
    proves: str = "it imports"
    compute: Optional[Callable[[Any, Any, str], Compared]] = None
    """(torch, the module, the device) -> a comparison. What has no kernels of its own for a tensor
    of torch is imported alone."""
    module: str = ""
    """What is imported, where that is not its name."""
    gpu: Optional[Tuple[int, int]] = None
    """The least compute capability of one that computes on NVIDIA GPUs only."""
    also: Tuple[str, ...] = ()
    """Under which names else it is installed."""


def installed(row: Companion) -> Optional[str]:
    """Name and version of the first distribution that is there; None where none is."""
    from importlib.metadata import PackageNotFoundError, version

    for name in (row.name, *row.also):
        try:
            return f"{name} {version(name) or 'of no version'}"
        except PackageNotFoundError:
            continue
    return None


def cannot(device: str, least: Optional[Tuple[int, int]]) -> str:
    """Why a device cannot do it; empty where it can, or where only the import is tried."""
    if device == "none" or least is None:
        return ""
    if kind(device) != "cuda":
        return "computes on NVIDIA GPUs only"
    import torch

    own = torch.cuda.get_device_capability(device)
    told = "needs compute capability %d.%d; this GPU has %d.%d"
    return told % (*least, *own) if own < least else ""


CAUSES: Tuple[Tuple[str, str], ...] = (
    (
        r"undefined symbol|Symbol not found|procedure could not be found|different CUDA version",
        "it was built for another torch: `gpusetup resolve {0}` names the pair that fits",
    ),
    (r"FFmpeg|libav(util|codec)", "FFmpeg is missing: `apt install ffmpeg`, or conda's `ffmpeg`"),
    (
        r"lib(cudart|cublas|cudnn|nvrtc|npp)\w*\.so|cu(dart|blas|dnn)64",
        "it was built for another CUDA: `gpusetup resolve {0}` names the pair that fits",
    ),
    (r"libcuda\.so|nvcuda\.dll", "there is no NVIDIA driver here: `gpusetup doctor`"),
    (r"GLIBC\w*_[\d.]+' not found", "this system's C library is older than its wheel needs"),
    (r"", '`python -c "import {1}"` shows the whole error'),
)
"""What an import says -> what it means, and the way out. First match wins."""


def cause(name: str, module: str, problem: BaseException) -> str:
    """What an import error means, and the way out."""
    if isinstance(problem, ModuleNotFoundError):
        lacking = (problem.name or "").partition(".")[0]
        return f"it needs {lacking}, which is not installed: `gpusetup install {lacking}`"
    found = next(meaning for words, meaning in CAUSES if re.search(words, str(problem)))
    return found.format(name, module)
