"""How a companion is tried: it is there, it imports, the device can, and its result is compared."""

from __future__ import annotations

import importlib
import re
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

from ..device.importing import first_line
from ..judging.tolerance import Part, judged
from ..values import FAILED, PASSED, SKIPPED, Outcome, kind

Computed = Union[Sequence[Part], Outcome]
Compute = Callable[[Any, Any, str], Computed]
"""(torch, the module, the device) -> comparisons with a reference, or an outcome."""
GPU_ONLY = "computes on NVIDIA GPUs only"


class CannotHere(Exception):
    """The companion cannot do this on this device; no fault of either."""


def companion(
    *distributions: str,
    module: Optional[str] = None,
    gpu: bool = False,
    capability: Tuple[int, int] = (0, 0),
    against: str = "torch in float64",
) -> Callable[[Compute], Callable[[str], Outcome]]:
    """Make a check of a computation. `distributions`: under which names it may be installed."""

    def made(compute: Compute) -> Callable[[str], Outcome]:
        def check(device: str) -> Outcome:
            told = installed(distributions)
            if told is None:
                hint = f"`gpusetup install {distributions[0]}`"
                return Outcome(SKIPPED, f"{distributions[0]} is not installed", hint=hint)
            unable = cannot(device, gpu, capability)
            if unable:
                return Outcome(SKIPPED, f"{told} {unable}")
            name = module or distributions[0].replace("-", "_")
            return tried(told, name, device, compute, against)

        return check

    return made


def part(name: str) -> Any:
    """A module of a companion by its full name."""
    return importlib.import_module(name)


def tried(told: str, module: str, device: str, compute: Compute, against: str) -> Outcome:
    """Import and compute; what an import raises is the companion's failure, with its cause."""
    import torch

    try:
        loaded = importlib.import_module(module)
    except (Exception, SystemExit) as problem:
        detail = f"{told}: import {module} failed: {first_line(problem)}"
        return Outcome(FAILED, detail, hint=cause(told, problem))
    if device == "none":
        return Outcome(PASSED, f"{told} imports; no device to compute on")
    try:
        found = compute(torch, loaded, device)
    except CannotHere as problem:
        return Outcome(SKIPPED, f"{told}: {problem}")
    outcome = found if isinstance(found, Outcome) else judged(found, against)
    return outcome._replace(detail=f"{told}: {outcome.detail}")


def installed(distributions: Sequence[str]) -> Optional[str]:
    """Name and version of the first of these that is there; None where none is."""
    from importlib.metadata import PackageNotFoundError, version

    for name in distributions:
        try:
            return f"{name} {version(name) or 'of no version'}"
        except PackageNotFoundError:
            continue
    return None


def cannot(device: str, gpu: bool, capability: Tuple[int, int]) -> Optional[str]:
    """Why a device cannot do it; None where it can, or where only the import is tried."""
    if device == "none":
        return None
    if kind(device) != "cuda":
        return GPU_ONLY if gpu else None
    import torch

    own = torch.cuda.get_device_capability(device)
    if own < capability:
        floor = ".".join(map(str, capability))
        return f"needs compute capability {floor}; this GPU has {own[0]}.{own[1]}"
    return None


CAUSES: Tuple[Tuple[str, str], ...] = (
    (
        r"undefined symbol|Symbol not found|procedure could not be found|different CUDA version",
        "it was built for another torch",
    ),
    (r"FFmpeg|libav(util|codec)", "FFmpeg is missing: `apt install ffmpeg`, or conda's `ffmpeg`"),
    (
        r"lib(cudart|cublas|cudnn|nvrtc|npp)\w*\.so|cu(dart|blas|dnn)64",
        "it was built for another CUDA",
    ),
    (r"libcuda\.so|nvcuda\.dll", "there is no NVIDIA driver here: `gpusetup doctor`"),
    (r"GLIBC\w*_[\d.]+' not found", "this system's C library is older than its wheel needs"),
)
"""What an import says -> what it means."""


def cause(told: str, problem: BaseException) -> str:
    """What an import error means, and the way out.

    >>> cause("torchao 0.15.0", OSError("x.so: undefined symbol: _ZN3c10"))[:31]
    'it was built for another torch:'
    """
    name = told.partition(" ")[0]
    if isinstance(problem, ModuleNotFoundError):
        lacking = (problem.name or "").partition(".")[0]
        return f"it needs {lacking}, which is not installed: `gpusetup install {lacking}`"
    for pattern, meaning in CAUSES:
        if re.search(pattern, str(problem)):
            more = "" if "`" in meaning else f": `gpusetup resolve {name}` names the pair that fits"
            return meaning + more
    return f'`python -c "import {name.replace("-", "_")}"` shows the whole error'


def heads(torch: Any, device: str, seed: int, length: int = 64) -> List[Any]:
    """q, k and v of an attention in float16, each as [2, length, 4, 64]: batch, length, heads."""
    from ..judging.tolerance import numbers

    made = (numbers(torch, 2, length, 4, 64, salt=seed + each) for each in range(3))
    return [each.to(device, torch.float16) for each in made]


def attention(torch: Any, q: Any, k: Any, v: Any, causal: bool = True) -> Any:
    """The exact attention in float64 on the CPU, of and in the layout of `heads`."""
    q, k, v = (each.detach().cpu().double().transpose(1, 2) for each in (q, k, v))
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2)
