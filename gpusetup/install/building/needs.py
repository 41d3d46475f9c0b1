"""What a build of a CUDA extension needs of a machine, what it costs, and its variables. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.catalog.companion_table import Project
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Snapshot

GIB = 1 << 30
JOB_BYTES = 4 * GIB
"""What one compiler of such an extension takes: flash-attention's README, MAX_JOBS."""
DISK_BYTES = 10 * GIB
"""What objects and temporary files take beside the wheel."""


class Place(Frozen):
    """Where it would be built, beyond what a snapshot holds."""

    cuda: str | None = None
    """Torch's: `13.0`; None for a build without one."""
    headers: bool = True
    """Whether the target's Python.h is there."""
    free_bytes: int | None = None
    """Of the disk that the build writes to."""


def compiles_cuda(project: Project | None) -> bool:
    """Whether a build needs nvcc; what the table does not know is taken as one that does.

    >>> from gpusetup.catalog.companion_table import companion_table
    >>> [compiles_cuda(companion_table().project(n)) for n in ("flash-attn", "deepspeed", "other")]
    [True, False, True]
    """
    return project is None or project.gpu


def problems(machine: Snapshot, place: Place) -> tuple[tuple[str, str], ...]:
    """What a build with nvcc lacks here, each with what to do; none where it can be tried."""
    return tuple(_problems(machine, place))


def _problems(machine: Snapshot, place: Place) -> Iterator[tuple[str, str]]:
    nvcc, cuda = machine.toolkit.nvcc, place.cuda
    if cuda is None:
        yield "torch is a build without CUDA", "take one for the GPUs: `gpusetup install --upgrade`"
    elif nvcc is None:
        yield "there is no nvcc on PATH", f"install the CUDA toolkit {cuda} and put its bin on PATH"
    elif nvcc.partition(".")[0] != cuda.partition(".")[0]:
        said = f"nvcc is of CUDA {nvcc}, torch of CUDA {cuda}: their majors must be the same"
        yield said, f"install the CUDA toolkit {cuda} and put its bin first on PATH"
    if machine.toolkit.compiler is None:
        yield "there is no C++ compiler on PATH", COMPILER[machine.os.family or "linux"]
    if not place.headers:
        yield (
            "Python.h is missing",
            "install Python's headers: `apt install python3-dev`",
        )
    if not capabilities(machine):
        yield "no GPU is known whose kernels could be built", "name it: `--for-gpu NAME`"
    memory = machine.memory.available_bytes
    if memory is not None and memory < JOB_BYTES:
        said = f"{memory / GIB:.1f} GiB of memory are free, one compiler takes 4"
        yield said, "end other programs, or build on a larger machine"
    if place.free_bytes is not None and place.free_bytes < DISK_BYTES:
        said = f"{place.free_bytes / GIB:.1f} GiB of disk are free, a build takes 10"
        yield said, "make room, or set XDG_CACHE_HOME to a larger disk"


COMPILER = {
    "linux": "install one: `apt install g++`, `dnf install gcc-c++`",
    "windows": "start from the command prompt of the Visual C++ build tools",
    "macos": "install one: `xcode-select --install`",
}


def capabilities(machine: Snapshot) -> tuple[str, ...]:
    """The architectures of the GPUs, as TORCH_CUDA_ARCH_LIST has them, each once."""
    found = {gpu.compute_capability for gpu in machine.gpus or () if gpu.compute_capability}
    return tuple(str(one) for one in sorted(found))


def jobs(machine: Snapshot) -> int:
    """How many compilers the memory takes, at most one for each core."""
    cores = machine.cpu.usable_cores or machine.cpu.logical_cores or 1
    memory = machine.memory.available_bytes
    return max(1, cores if memory is None else min(cores, memory // JOB_BYTES))


def variables(machine: Snapshot, *, cuda: bool) -> dict[str, str]:
    """What the build is told: no more compilers than fit, no kernels that nobody here can run."""
    arches = ";".join(capabilities(machine))
    own = {"TORCH_CUDA_ARCH_LIST": arches} if cuda and arches else {}
    return {"MAX_JOBS": str(jobs(machine)), **own}
