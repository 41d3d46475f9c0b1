"""Which binary code runs on which GPU.

The rule and its exceptions are those of CUDA and of the table inside torch 2.15 (`torch.cuda`):
a kernel runs on the same major and an equal or later minor; PTX is compiled for any equal or
newer GPU by a driver whose own CUDA is at least the build's; the integrated GPUs of Jetson
boards run desktop kernels only from CUDA 13.2 on; 11.0 was called 10.1 before CUDA 13.0.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from gpusetup.catalog.facts import Integrated, facts
from gpusetup.model.resolution import TorchBuild
from gpusetup.model.versions import Capability


@cache
def jetson() -> dict[Capability, str | None]:
    """Integrated GPUs that other kernels of their major do not serve, nor theirs the others, and
    the CUDA from which on the desktop kernels run on them too."""
    return {row.capability: row.desktop_from for row in facts(Integrated) if row.apart}


@cache
def renamed() -> dict[Capability, Capability]:
    """What a capability was called before -> what it is called."""
    return {row.was: row.capability for row in facts(Integrated) if row.was}


@lru_cache(maxsize=1024)
def capability(code: str) -> Capability:
    """`Capability.parse` with a memory, for the same codes of many builds.

    >>> capability("compute_90")
    Capability(9, 0)
    """
    return Capability.parse(code)


@lru_cache(maxsize=256)
def release(cuda: str) -> tuple[int, int]:
    """A CUDA version as two numbers; (0, 0) for a text that is no version.

    >>> release("13.0") > release("12.9")
    True
    """
    major, _, minor = cuda.partition(".")
    if major.isdecimal() and minor.isdecimal():
        return int(major), int(minor)
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
    kernel, gpu = renamed().get(kernel, kernel), renamed().get(gpu, gpu)
    if kernel == gpu:
        return True
    if kernel in jetson() or (gpu in jetson() and not _unified(gpu, cuda)):
        return False
    return kernel.major == gpu.major and kernel.minor <= gpu.minor


def _unified(gpu: Capability, cuda: str | None) -> bool:
    first = jetson()[gpu]
    return first is not None and cuda is not None and release(cuda) >= release(first)


BLACKWELL = Capability(10, 0)
FIRST_FOR_BLACKWELL = (12, 8)
"""The first CUDA whose libraries have code for it: torch's own PTX alone carries no model."""


def compiles_for(
    ptx: Capability, gpu: Capability, cuda: str | None, driver_cuda: str | None
) -> bool:
    """Whether a driver that serves `driver_cuda` compiles PTX of a build with `cuda` for `gpu`.

    An unknown driver compiles nothing: PTX counts only where it surely works.

    >>> compiles_for(Capability(12, 0), Capability(12, 1), "12.9", "12.8")
    False
    """
    if cuda is None or driver_cuda is None:
        return False
    if renamed().get(ptx, ptx) > renamed().get(gpu, gpu):
        return False
    if gpu >= BLACKWELL and release(cuda) < FIRST_FOR_BLACKWELL:
        return False
    return release(driver_cuda) >= release(cuda)


@lru_cache(maxsize=4096)
def _nearest(kernels: tuple[str, ...], gpu: Capability, cuda: str | None) -> Capability | None:
    return max((c for code in kernels if runs_on(c := capability(code), gpu, cuda)), default=None)


def served_by(build: TorchBuild, gpu: Capability, driver_cuda: str | None) -> str | None:
    """The code of a build that a GPU would run: `sm_86`, `compute_120`; None when there is none.

    The kernel nearest to the GPU wins, and any kernel over PTX.
    """
    kernel = _nearest(build.kernels, gpu, build.cuda)
    if kernel is not None:
        return kernel.sm
    ptx = [
        c for code in build.ptx if compiles_for(c := capability(code), gpu, build.cuda, driver_cuda)
    ]
    return max(ptx).sm.replace("sm_", "compute_") if ptx else None


@lru_cache(maxsize=1024)
def served_by_codes(
    codes: tuple[str, ...], gpu: Capability, cuda: str | None, driver_cuda: str | None
) -> str | None:
    """The same for the codes that a torch itself lists, kernels and PTX together."""
    known = readable(codes)
    build = TorchBuild(
        torch="",
        backend="",
        cuda=cuda,
        os="linux",
        machine="",
        pythons=(),
        kernels=tuple(code for code in known if code.startswith("sm_")),
        ptx=tuple(code for code in known if code.startswith("compute_")),
    )
    return served_by(build, gpu, driver_cuda)


def readable(codes: tuple[str, ...]) -> tuple[str, ...]:
    """The codes that name an architecture.

    >>> readable(("sm_86", "sm_90a", "gfx1100", "compute_"))
    ('sm_86', 'sm_90a')
    """
    return tuple(code for code in codes if re.fullmatch(r"(sm|compute)_\d{2,3}[af]?", code))
