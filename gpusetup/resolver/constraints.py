"""What must hold for a build to fit, and the best of those that do.

A constraint is named for what it asks, and gives the reason if it does not hold: what the build
needs and what was found. All of them hold jointly, for every visible GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.kernels import release, served_by
from gpusetup.model.frozen import replace
from gpusetup.model.resolution import TorchBuild
from gpusetup.model.versions import parsed
from gpusetup.resolver.situation import CHANNELS, Situation

Constraint = Callable[[TorchBuild, Situation], str | None]


def is_asked_torch(build: TorchBuild, host: Situation) -> str | None:
    return None if host.takes(build.torch) else f"is not the torch asked for ({host.torch})"


def is_asked_backend(build: TorchBuild, host: Situation) -> str | None:
    if host.backend in ("auto", build.backend):
        return None
    return f"is not the backend asked for ({host.backend})"


def has_this_python(build: TorchBuild, host: Situation) -> str | None:
    if host.python_bits == 32:
        return "needs a 64-bit Python, found a 32-bit one"
    if host.python is None or host.python in build.pythons:
        return None
    return f"needs Python {', '.join(build.pythons)}, found {host.python}"


def libc_reaches(build: TorchBuild, host: Situation) -> str | None:
    name, _, found = (host.libc or "").partition(" ")
    if host.family != "linux":
        return None
    if name == "musl":
        return f"needs glibc, found {host.libc}: there are no wheels for musl"
    if build.glibc and found and parsed(found) < parsed(build.glibc):
        return f"needs glibc {build.glibc}, found {found}"
    return None


def macos_reaches(build: TorchBuild, host: Situation) -> str | None:
    if not (build.macos and host.macos) or parsed(host.macos) >= parsed(build.macos):
        return None
    return f"needs macOS {build.macos}, found {host.macos}"


def driver_reaches(build: TorchBuild, host: Situation) -> str | None:
    cuda, own = build.cuda, host.driver_cuda
    if cuda is None or not (host.driver or own):
        return None
    # Before CUDA 11 a driver serves no newer minor version than its own.
    parts = 1 if release(cuda)[0] >= host.catalog.minors_serve_from else 2
    serves = own is None or release(own)[:parts] >= release(cuda)[:parts]
    if host.trusts_cuda and own:
        what, there = "driver", f"one for {own}"
        if host.jetpack:
            what, there = "JetPack", f"{host.jetpack.name} (CUDA {own})"
        return None if serves else f"needs a {what} for CUDA {cuda}, found {there}"
    if build.driver_floor is None:
        # A CUDA of which no floor is known: the driver's own has to be of that major.
        newer = f"which is newer than the catalog of {host.catalog.as_of}; found one for {own}"
        return None if serves else f"needs a driver for CUDA {cuda}, {newer}"
    if host.driver is None or parsed(host.driver) >= parsed(build.driver_floor):
        return None
    return f"needs NVIDIA driver {build.driver_floor}, found {host.driver}"


def is_for_this_board(build: TorchBuild, host: Situation) -> str | None:
    """A Jetson: wheels of servers run on its last releases only."""
    jetpack = host.jetpack
    if build.cuda is None or host.board is None or (jetpack and jetpack.torch_for):
        return None
    if host.gpus and host.driver_cuda:
        return None
    has = jetpack.name if jetpack else "a release that is not known"
    return f"is a wheel for servers, but {host.board} has {has}"


def driver_knows_every_gpu(build: TorchBuild, host: Situation) -> str | None:
    """A driver that came before a GPU, or after its last branch, does not start it, whatever the
    build."""
    for reason in host.catalog.too_new(host.driver, host.gpus) if build.cuda else ():
        return reason
    here = {gpu.name for gpu in host.gpus}
    for name, first in host.first_drivers if build.cuda and host.driver else ():
        if name in here and parsed(host.driver or "0") < parsed(first):
            return f"{name} needs NVIDIA driver {first} or newer, found {host.driver}"
    return None


def covers_every_gpu(build: TorchBuild, host: Situation) -> str | None:
    missed = [
        f"{gpu.name} ({known})"
        for gpu in (host.gpus if build.cuda else ())
        if (known := gpu.compute_capability) and not served_by(build, known, host.driver_cuda)
    ]
    has = " ".join((*build.kernels, *build.ptx))
    return f"has no kernel for {', '.join(missed)}: it carries {has}" if missed else None


def has_a_gpu(build: TorchBuild, host: Situation) -> str | None:
    if build.cuda is None or host.presence != "none" or host.backend == build.backend:
        return None
    return "needs an NVIDIA GPU, found none; `--backend` asks for it all the same"


def uses_the_gpu(build: TorchBuild, host: Situation) -> str | None:
    if build.cuda or host.presence == "none" or host.backend == "cpu" or host.family == "macos":
        return None
    unused = f" and would not use {host.gpus[0].name}" if host.gpus else ""
    return f"is a CPU build{unused}; `--backend cpu` asks for it"


ASKED: tuple[Constraint, ...] = (is_asked_torch, is_asked_backend)
CONSTRAINTS: tuple[Constraint, ...] = (
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


def fits(build: TorchBuild, host: Situation) -> bool:
    """Whether a build fits."""
    return why_not(build, host) is None


def why_not(build: TorchBuild, host: Situation) -> str | None:
    """Every reason why a build does not fit; what was not asked for is no further judged."""
    asked = next(filter(None, (constraint(build, host) for constraint in ASKED)), None)
    every = filter(None, (constraint(build, host) for constraint in CONSTRAINTS))
    return asked or "; ".join(every) or None


# --- the best ------------------------------------------------------------------------------------


def in_scope(host: Situation) -> tuple[TorchBuild, ...]:
    """The rows of this platform and of the installer's channels, newest torch first."""
    return _in_scope(host.catalog, host.family, host.machine, host.floors, host.channels)


@lru_cache(maxsize=32)
def _in_scope(catalog: Catalog, *place: str | tuple[str, ...]) -> tuple[TorchBuild, ...]:
    family, machine, floors, channels = place
    rows = (
        build
        if floors == family or build.cuda is None  # else Linux on a Windows driver
        else replace(build, driver_floor=catalog.driver_floor(build.cuda, str(floors)))
        for build in catalog.builds
        if (build.os, build.machine) == (family, machine) and build.channel in channels
    )
    return tuple(sorted(rows, key=lambda build: newest_first(build.torch)))


def pick(host: Situation, above: str = "0") -> TorchBuild | None:
    """The best of the builds that fit, of a torch that is newer than `above`."""
    newer = (one for one in in_scope(host) if newest_first(one.torch) < newest_first(above))
    fitting = (build for build in newer if fits(build, host))
    return min(fitting, key=preference(host), default=None)


def nearest(torch: str, host: Situation) -> TorchBuild | None:
    """The best build of a torch, else of the nearest newer one, else of the newest that fits."""
    own = newest_first(torch)

    def distance(build: TorchBuild) -> tuple[object, ...]:
        there = newest_first(build.torch)
        oldest_first = tuple(-part for part in there)
        return there > own, there if there > own else oldest_first, preference(host)(build)

    return min((b for b in in_scope(host) if fits(b, host)), key=distance, default=None)


OF_2020 = 11
"""The CUDA from which on any driver of a major serves all of it."""


def preference(host: Situation) -> Callable[[TorchBuild], tuple[int, ...]]:
    """A sort key: newest torch, channel, the CUDA nearest below the driver's own, then above.

    Of an unknown driver it is taken that it serves the last CUDA major but one: what needs a newer
    one comes after all that does not. CUDA 10 and older come last, whose builds have no kernels for
    Ampere and what came after it.
    """
    own = release(host.driver_cuda) if host.driver_cuda else None

    def key(build: TorchBuild) -> tuple[int, ...]:
        cuda = release(build.cuda) if build.cuda else (0, 0)
        newest = (*newest_first(build.torch), CHANNELS.index(build.channel))
        if own is None:
            return (is_beyond(build, host), *newest, 0 < cuda[0] < OF_2020, *cuda)
        return (*newest, cuda > own, -cuda[0], -cuda[1])

    return key


def is_beyond(build: TorchBuild, host: Situation) -> bool:
    """Whether a build needs a driver of a later branch than an unknown one is taken to be of."""
    floor, assumed = build.driver_floor, host.assumed_driver
    return bool(floor and assumed and parsed(floor).major > parsed(assumed).major)


@lru_cache(maxsize=512)
def newest_first(torch: str) -> tuple[int, ...]:
    return tuple(-part for part in (*parsed(torch).release, 0, 0, 0)[:4])
