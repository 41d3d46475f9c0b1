"""Which binary code runs on which GPU.

The rule and its exceptions are those of CUDA and of the table inside torch 2.15 (`torch.cuda`):
a kernel runs on the same major and an equal or later minor; PTX is compiled for any equal or
newer GPU by a driver whose own CUDA is at least the build's; the integrated GPUs of Jetson
boards run desktop kernels only from CUDA 13.2 on; 11.0 was called 10.1 before CUDA 13.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache

from gpusetup.catalog.facts import Integrated, facts
from gpusetup.model.builds import Served, TorchBuild
from gpusetup.model.machine import Gpu
from gpusetup.model.versions import Capability

BLACKWELL = Capability(10, 0)
FIRST_FOR_BLACKWELL = (12, 8)
"""The first CUDA whose libraries have code for it: torch's own PTX alone carries no model."""


@cache
def _boards() -> dict[Capability, Integrated]:
    return {row.capability: row for row in facts(Integrated)}


@cache
def _today(capability: Capability) -> Capability:
    """What a capability is called now."""
    return next((new for new, row in _boards().items() if row.was == capability), capability)


@lru_cache(maxsize=256)
def release(cuda: str) -> tuple[int, int]:
    """A CUDA version as two numbers; (0, 0) for a text that is no version.

    >>> release("13.0") > release("12.9")
    True
    """
    found = re.match(r"(\d+)(?:\.(\d+))?", cuda)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


def runs_on(kernel: Capability, gpu: Capability, cuda: str | None = None) -> bool:
    """Whether binary code for `kernel`, built with `cuda`, runs on `gpu`.

    >>> runs_on(Capability(8, 6), Capability(8, 9))
    True
    >>> orin = Capability(8, 7)
    >>> runs_on(Capability(8, 0), orin), runs_on(Capability(8, 0), orin, "13.2")
    (False, True)
    """
    kernel, gpu = _today(kernel), _today(gpu)
    if kernel == gpu:
        return True
    ours, theirs = _boards().get(kernel), _boards().get(gpu)
    if ours and ours.apart:
        return False
    if theirs and theirs.apart:
        first = theirs.desktop_from
        if not first or release(cuda or "0") < release(first):
            return False
    return kernel.major == gpu.major and kernel.minor <= gpu.minor


def compiles_for(
    ptx: Capability, gpu: Capability, cuda: str | None, driver_cuda: str | None
) -> bool:
    """Whether a driver that serves `driver_cuda` compiles PTX of a build with `cuda` for `gpu`.

    An unknown driver compiles nothing: PTX counts only if it surely works.

    >>> compiles_for(Capability(12, 0), Capability(12, 1), "12.9", "12.8")
    False
    """
    if cuda is None or driver_cuda is None or _today(ptx) > _today(gpu):
        return False
    if gpu >= BLACKWELL and release(cuda) < FIRST_FOR_BLACKWELL:
        return False
    return release(driver_cuda) >= release(cuda)


def served_by(build: TorchBuild, gpu: Capability, driver_cuda: str | None) -> str | None:
    """The code of a build that a GPU would run: `sm_86`, `compute_120`; None when there is none."""
    return served_by_codes((*build.kernels, *build.ptx), gpu, build.cuda, driver_cuda)


@lru_cache(maxsize=8192)
def served_by_codes(
    codes: tuple[str, ...], gpu: Capability, cuda: str | None, driver_cuda: str | None
) -> str | None:
    """The same for the codes that a torch itself lists, kernels and PTX. The kernel nearest
    to the GPU wins, and any kernel over PTX."""
    known = readable(codes)
    kernels = (Capability.parse(code) for code in known if code.startswith("sm_"))
    ptx = (Capability.parse(code) for code in known if code.startswith("compute_"))
    nearest = max((one for one in kernels if runs_on(one, gpu, cuda)), default=None)
    compiled = (one for one in ptx if compiles_for(one, gpu, cuda, driver_cuda))
    if nearest is not None:
        return nearest.sm
    return next((f"compute{one.sm[2:]}" for one in sorted(compiled, reverse=True)), None)


def served(build: TorchBuild, gpus: Iterable[Gpu], driver_cuda: str | None) -> tuple[Served, ...]:
    """How each GPU is served that is."""
    return tuple(
        Served(gpu=gpu.name, compute_capability=known, by=by)
        for gpu in (gpus if build.cuda else ())
        if (known := gpu.compute_capability) and (by := served_by(build, known, driver_cuda))
    )


def readable(codes: tuple[str, ...]) -> tuple[str, ...]:
    """The codes that name an architecture: what else a snapshot lists was written by strangers.

    >>> readable(("sm_86", "sm_90a", "gfx1100", "compute_"))
    ('sm_86', 'sm_90a')
    """
    return tuple(code for code in codes if re.fullmatch(r"(sm|compute)_\d{2,3}[af]?", code))
