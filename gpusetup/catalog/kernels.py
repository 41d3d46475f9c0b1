"""Which GPUs can run which binary code.

The rule and its exceptions are those of CUDA and of the table inside torch 2.15 (`torch.cuda`). A
kernel runs on GPUs with the same major version and an equal or later minor version. A driver can
compile PTX for any equal or newer GPU if the driver's own CUDA version is at least the build's. The
integrated GPUs of Jetson boards only run desktop kernels from CUDA 13.2 on.
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
"""The first CUDA version whose libraries contain code for Blackwell. torch's own PTX alone is not
enough to run a model."""


@cache
def _boards() -> dict[Capability, Integrated]:
    """The GPUs of Jetson boards, by compute capability."""
    return {row.capability: row for row in facts(Integrated)}


@lru_cache(maxsize=256)
def release(cuda: str) -> tuple[int, int]:
    """Returns a CUDA version as two numbers; (0, 0) for a text that is not a version.

    >>> release("13.0") > release("12.9")
    True
    """
    numbers = re.match(r"(\d+)(?:\.(\d+))?", cuda)
    return (int(numbers[1]), int(numbers[2] or 0)) if numbers else (0, 0)


def runs_on(kernel: Capability, gpu: Capability, cuda: str | None = None) -> bool:
    """Whether binary code for `kernel`, built with `cuda`, runs on `gpu`.

    >>> runs_on(Capability(8, 6), Capability(8, 9))
    True
    >>> orin = Capability(8, 7)
    >>> runs_on(Capability(8, 0), orin), runs_on(Capability(8, 0), orin, "13.2")
    (False, True)
    """
    if kernel == gpu:
        return True
    board_of_kernel = _boards().get(kernel)
    board_of_gpu = _boards().get(gpu)
    # Kernels for a Jetson board do not run on any desktop GPU.
    if board_of_kernel and board_of_kernel.apart:
        return False
    if board_of_gpu and board_of_gpu.apart:
        first_cuda = board_of_gpu.desktop_from
        runs_desktop_kernels = first_cuda and release(cuda or "0") >= release(first_cuda)
        if not runs_desktop_kernels:
            return False
    return kernel.major == gpu.major and kernel.minor <= gpu.minor


def compiles_for(
    ptx: Capability, gpu: Capability, cuda: str | None, driver_cuda: str | None
) -> bool:
    """Whether a driver that supports `driver_cuda` can compile PTX built with `cuda` for `gpu`.

    If the driver is unknown, the result is false: PTX only counts if it surely works.

    >>> compiles_for(Capability(12, 0), Capability(12, 1), "12.9", "12.8")
    False
    """
    if cuda is None or driver_cuda is None:
        return False
    # PTX for a newer architecture has instructions that an older GPU lacks.
    if ptx > gpu:
        return False
    if gpu >= BLACKWELL and release(cuda) < FIRST_FOR_BLACKWELL:
        return False
    return release(driver_cuda) >= release(cuda)


@lru_cache(maxsize=8192)
def served_by(
    codes: tuple[str, ...], gpu: Capability, cuda: str | None, driver_cuda: str | None
) -> str | None:
    """The kernel or PTX that a GPU would run of these, such as `sm_86` or `compute_120`; None if
    there is none for it. `cuda` is the CUDA version that they were built with.

    The kernel nearest to the GPU is chosen; PTX is only chosen if no kernel fits.
    """
    kernels = []
    ptx = []
    for code in readable(codes):
        capability = Capability.parse(code)
        if code.startswith("sm_"):
            if runs_on(capability, gpu, cuda):
                kernels.append(capability)
        elif compiles_for(capability, gpu, cuda, driver_cuda):
            ptx.append(capability)
    if kernels:
        return max(kernels).sm
    # PTX has the name of its target with another prefix.
    return max(ptx).sm.replace("sm_", "compute_") if ptx else None


def served(build: TorchBuild, gpus: Iterable[Gpu], driver_cuda: str | None) -> tuple[Served, ...]:
    """The GPUs that a build supports, each with the code that it would run."""
    # A build without CUDA has no kernels.
    if not build.cuda:
        return ()
    served_gpus = []
    for gpu in gpus:
        capability = gpu.compute_capability
        if not capability:
            continue
        code = served_by(build.kernels + build.ptx, capability, build.cuda, driver_cuda)
        if code:
            served_gpus.append(Served(gpu=gpu.name, compute_capability=capability, by=code))
    return tuple(served_gpus)


CODE = re.compile(r"(sm|compute)_\d{2,3}[af]?")
"""An architecture as compilers name it, such as `sm_86`, `sm_90a` or `compute_120`."""


def readable(codes: tuple[str, ...]) -> tuple[str, ...]:
    """The codes that are valid architecture names, because a snapshot may contain anything.

    >>> readable(("sm_86", "sm_90a", "gfx1100", "compute_"))
    ('sm_86', 'sm_90a')
    """
    return tuple(filter(CODE.fullmatch, codes))
