"""What must hold for a build to fit: each function is named for it, and gives the reason if not.

All of them hold jointly. A reason names what the build needs and what was found.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from gpusetup.catalog.kernels import release, served_by
from gpusetup.model.machine import Gpu
from gpusetup.model.resolution import TorchBuild
from gpusetup.model.versions import parsed
from gpusetup.resolver.situation import Situation, is_allowed

Constraint = Callable[[TorchBuild, Situation], str | None]


def is_asked_torch(build: TorchBuild, situation: Situation) -> str | None:
    if is_allowed(build.torch, situation):
        return None
    return f"is not the torch asked for ({situation.torch_text})"


def is_asked_backend(build: TorchBuild, situation: Situation) -> str | None:
    if situation.backend in ("auto", build.backend):
        return None
    return f"is not the backend asked for ({situation.backend})"


def uses_the_gpu(build: TorchBuild, situation: Situation) -> str | None:
    if build.cuda or situation.backend == "cpu" or situation.family == "macos":
        return None
    if situation.presence == "some":
        name = situation.gpus[0].name
        return f"is a CPU build and would not use {name}; `--backend cpu` asks for it"
    if situation.presence == "unknown":
        return "is a CPU build; `--backend cpu` asks for it"
    return None


def has_a_gpu(build: TorchBuild, situation: Situation) -> str | None:
    if build.cuda is None or situation.presence != "none" or situation.backend == build.backend:
        return None
    return "needs an NVIDIA GPU, found none; `--backend` asks for it all the same"


def has_this_python(build: TorchBuild, situation: Situation) -> str | None:
    if situation.python_bits == 32:
        return "needs a 64-bit Python, found a 32-bit one"
    if situation.python is None or situation.python in build.pythons:
        return None
    if not build.pythons:
        return f"has no wheels for Python {situation.python}"
    return f"needs Python {_span(build.pythons)}, found {situation.python}"


def libc_reaches(build: TorchBuild, situation: Situation) -> str | None:
    if situation.libc is None or situation.family != "linux":
        return None
    name, _, found = situation.libc.partition(" ")
    if name == "musl":
        return f"needs glibc, found {situation.libc}: there are no wheels for musl"
    if build.glibc and found and parsed(found) < parsed(build.glibc):
        return f"needs glibc {build.glibc}, found {found}"
    return None


def macos_reaches(build: TorchBuild, situation: Situation) -> str | None:
    if not (build.macos and situation.macos) or parsed(situation.macos) >= parsed(build.macos):
        return None
    return f"needs macOS {build.macos}, found {situation.macos}"


def is_for_this_board(build: TorchBuild, situation: Situation) -> str | None:
    """A Jetson: wheels of servers run on its last releases only."""
    jetpack = situation.jetpack
    if build.cuda is None or situation.board is None or (jetpack and jetpack.torch_for):
        return None
    if situation.gpus and situation.driver_cuda:
        return None
    has = jetpack.name if jetpack else "a release that is not known"
    return f"is a server's wheel, and {situation.board} has {has}"


def driver_reaches(build: TorchBuild, situation: Situation) -> str | None:
    if build.cuda is None or (situation.driver is None and situation.driver_cuda is None):
        return None
    if situation.trusts_cuda and situation.driver_cuda:
        if release(situation.driver_cuda)[0] >= release(build.cuda)[0]:
            return None
        return f"needs {_who_serves(build.cuda, situation)}"
    floor = build.driver_floor
    if floor is None:
        return _driver_serves(build.cuda, situation)
    if situation.driver is None or parsed(situation.driver) >= parsed(floor):
        return None
    return f"needs NVIDIA driver {floor}, found {situation.driver}"


def _who_serves(cuda: str, situation: Situation) -> str:
    if situation.jetpack is None:
        return f"a driver for CUDA {cuda}, found one for {situation.driver_cuda}"
    found = f"{situation.jetpack.name} (CUDA {situation.driver_cuda})"
    return f"a JetPack for CUDA {cuda}, found {found}"


def _driver_serves(cuda: str, situation: Situation) -> str | None:
    """For a CUDA of which no floor is known: the driver's own has to be of that major."""
    own = situation.driver_cuda
    if own is None or release(own)[0] >= release(cuda)[0]:
        return None
    return (
        f"needs a driver for CUDA {cuda}, which is newer than the catalog of "
        f"{situation.catalog_as_of}; found one for {own}"
    )


def driver_knows_every_gpu(build: TorchBuild, situation: Situation) -> str | None:
    """A driver that came before a GPU does not start it, whatever the build."""
    if build.cuda is None or situation.driver is None:
        return None
    here = {gpu.name for gpu in situation.gpus}
    for name, first in situation.first_drivers:
        if name in here and parsed(situation.driver) < parsed(first):
            return f"{name} needs NVIDIA driver {first} or newer, found {situation.driver}"
    return None


def covers_every_gpu(build: TorchBuild, situation: Situation) -> str | None:
    if build.cuda is None:
        return None
    missed = {
        f"{gpu.name} ({gpu.compute_capability})": gpu
        for gpu in situation.gpus
        if gpu.compute_capability is not None
        and served_by(build, gpu.compute_capability, situation.driver_cuda) is None
    }
    if not missed:
        return None
    has = " ".join((*build.kernels, *build.ptx))
    also = _why_dropped(build, tuple(missed.values()), situation)
    return f"has no kernel for {', '.join(missed)}: it carries {has}{also}"


def _why_dropped(build: TorchBuild, gpus: tuple[Gpu, ...], situation: Situation) -> str:
    """What a library beside torch leaves out, where that is known."""
    majors = {gpu.compute_capability.major for gpu in gpus if gpu.compute_capability}
    for row in situation.dropped:
        if row.major in majors and parsed(build.torch) >= parsed(row.from_torch):
            return f" ({row.because})"
    return ""


ASKED: tuple[Constraint, ...] = (is_asked_torch, is_asked_backend)
FITS: tuple[Constraint, ...] = (
    has_this_python,
    libc_reaches,
    macos_reaches,
    driver_reaches,
    is_for_this_board,
    driver_knows_every_gpu,
    covers_every_gpu,
    has_a_gpu,
    uses_the_gpu,
)
CONSTRAINTS = (*ASKED, *FITS)
AFTER_TORCH = CONSTRAINTS[1:]


def fits(build: TorchBuild, situation: Situation) -> bool:
    """Whether a build fits; most are of another torch, which is seen before the rest is asked."""
    if not is_allowed(build.torch, situation):
        return False
    return all(constraint(build, situation) is None for constraint in AFTER_TORCH)


def why_not(build: TorchBuild, situation: Situation) -> str | None:
    """Every reason why a build does not fit; what was not asked for is no further judged."""
    for constraint in ASKED:
        if (reason := constraint(build, situation)) is not None:
            return reason
    reasons = [r for constraint in FITS if (r := constraint(build, situation)) is not None]
    return "; ".join(reasons) or None


@lru_cache(maxsize=256)
def _span(pythons: tuple[str, ...]) -> str:
    """`3.9 to 3.12`, with the free-threaded ones named apart."""
    plain = [p for p in pythons if not p.endswith("t")]
    free = [p for p in pythons if p.endswith("t")]
    span = plain[0] if len(plain) == 1 else f"{plain[0]} to {plain[-1]}"
    return f"{span} or {' '.join(free)}" if free else span
