"""What must hold for a build to fit, and the best of those that do.

A constraint is named for what it asks, and gives the reason if it does not hold: what the build
needs and what was found. All of them hold jointly, for every visible GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from gpusetup.catalog.builds import Catalog, Channel
from gpusetup.catalog.kernels import release, served_by
from gpusetup.choose.host import CHANNELS, BuildQuestion
from gpusetup.model.builds import TorchBuild
from gpusetup.model.frozen import replace
from gpusetup.model.versions import parsed

Constraint = Callable[[TorchBuild, BuildQuestion], str | None]


def is_asked_torch(build: TorchBuild, question: BuildQuestion) -> str | None:
    if question.takes(build.torch):
        return None
    return f"is not the torch asked for ({question.wish.torch})"


def is_asked_backend(build: TorchBuild, question: BuildQuestion) -> str | None:
    if question.backend in ("auto", build.backend):
        return None
    return f"is not the backend asked for ({question.backend})"


def has_this_python(build: TorchBuild, question: BuildQuestion) -> str | None:
    host = question.host
    if host.python_bits == 32:
        return "needs a 64-bit Python, found a 32-bit one"
    if host.python is None or host.python in build.pythons:
        return None
    return f"needs Python {', '.join(build.pythons)}, found {host.python}"


def libc_reaches(build: TorchBuild, question: BuildQuestion) -> str | None:
    host = question.host
    name, _, version = (host.libc or "").partition(" ")
    if host.family != "linux":
        return None
    if name == "musl":
        return f"needs glibc, found {host.libc}: there are no wheels for musl"
    if build.glibc and version and parsed(version) < parsed(build.glibc):
        return f"needs glibc {build.glibc}, found {version}"
    return None


def macos_reaches(build: TorchBuild, question: BuildQuestion) -> str | None:
    macos = question.host.macos
    if not (build.macos and macos) or parsed(macos) >= parsed(build.macos):
        return None
    return f"needs macOS {build.macos}, found {macos}"


def driver_reaches(build: TorchBuild, question: BuildQuestion) -> str | None:
    host, catalog = question.host, question.catalog
    cuda, served = build.cuda, host.driver_cuda
    if cuda is None or not (host.driver or served):
        return None
    # Before CUDA 11 a driver serves no newer minor version than its own.
    parts = 1 if release(cuda)[0] >= catalog.minors_serve_from else 2
    serves = served is None or release(served)[:parts] >= release(cuda)[:parts]
    if host.trusts_cuda and served:
        if serves:
            return None
        if host.jetpack:
            return f"needs a JetPack for CUDA {cuda}, found {host.jetpack.name} (CUDA {served})"
        return f"needs a driver for CUDA {cuda}, found one for {served}"
    if build.driver_floor is None:
        # A CUDA of which no floor is known: the driver's own has to be of that major.
        if serves:
            return None
        newer = f"which is newer than the catalog of {catalog.as_of}"
        return f"needs a driver for CUDA {cuda}, {newer}; found one for {served}"
    if host.driver is None or parsed(host.driver) >= parsed(build.driver_floor):
        return None
    return f"needs NVIDIA driver {build.driver_floor}, found {host.driver}"


def is_for_this_board(build: TorchBuild, question: BuildQuestion) -> str | None:
    """A Jetson: wheels of servers run on its last releases only."""
    host, jetpack = question.host, question.host.jetpack
    runs_servers_wheels = jetpack is not None and bool(jetpack.torch_for)
    if build.cuda is None or host.board is None or runs_servers_wheels:
        return None
    # A GPU on a PCI card, and a driver that says its CUDA, are no board's own.
    if host.gpus and host.driver_cuda:
        return None
    release_name = jetpack.name if jetpack else "a release that is not known"
    return f"is a wheel for servers, but {host.board} has {release_name}"


def driver_knows_every_gpu(build: TorchBuild, question: BuildQuestion) -> str | None:
    """A driver that came before a GPU, or after its last branch, does not start it, whatever the
    build."""
    host = question.host
    if build.cuda is None:
        return None
    for reason in question.catalog.too_new(host.driver, host.gpus):
        return reason
    if host.driver is None:
        return None
    names = {gpu.name for gpu in host.gpus}
    for name, first_driver in host.first_drivers:
        if name in names and parsed(host.driver) < parsed(first_driver):
            return f"{name} needs NVIDIA driver {first_driver} or newer, found {host.driver}"
    return None


def covers_every_gpu(build: TorchBuild, question: BuildQuestion) -> str | None:
    if build.cuda is None:
        return None
    host = question.host
    missed = []
    for gpu in host.gpus:
        capability = gpu.compute_capability
        if capability and not served_by(build, capability, host.driver_cuda):
            missed.append(f"{gpu.name} ({capability})")
    if not missed:
        return None
    codes = " ".join((*build.kernels, *build.ptx))
    return f"has no kernel for {', '.join(missed)}: it carries {codes}"


def has_a_gpu(build: TorchBuild, question: BuildQuestion) -> str | None:
    is_named = question.backend == build.backend
    if build.cuda is None or question.host.presence != "none" or is_named:
        return None
    return "needs an NVIDIA GPU, found none; `--backend` asks for it all the same"


def uses_the_gpu(build: TorchBuild, question: BuildQuestion) -> str | None:
    host = question.host
    is_wanted = question.backend == "cpu"
    if build.cuda or host.presence == "none" or is_wanted or host.family == "macos":
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


def fits(build: TorchBuild, question: BuildQuestion) -> bool:
    """Whether a build fits."""
    return why_not(build, question) is None


def why_not(build: TorchBuild, question: BuildQuestion) -> str | None:
    """Every reason why a build does not fit; what was not asked for is no further judged."""
    for constraint in ASKED:
        reason = constraint(build, question)
        if reason:
            return reason
    reasons = [constraint(build, question) for constraint in CONSTRAINTS]
    return "; ".join(filter(None, reasons)) or None


# --- the best ------------------------------------------------------------------------------------


def in_scope(question: BuildQuestion) -> tuple[TorchBuild, ...]:
    """The rows of this platform and of the installer's channels, newest torch first."""
    host = question.host
    place = (host.family, host.architecture, host.floors)
    return _in_scope(question.catalog, place, question.channels)


@lru_cache(maxsize=32)
def _in_scope(
    catalog: Catalog, place: tuple[str, str, str], channels: tuple[Channel, ...]
) -> tuple[TorchBuild, ...]:
    family, architecture, floors = place
    rows = []
    for build in catalog.builds:
        if (build.os, build.machine) != (family, architecture) or build.channel not in channels:
            continue
        # WSL runs builds for Linux on the driver of Windows, which is numbered apart.
        if build.cuda and floors != family:
            build = replace(build, driver_floor=catalog.driver_floor(build.cuda, floors))
        rows.append(build)
    return tuple(sorted(rows, key=lambda build: newest_first(build.torch)))


def fitting_builds(question: BuildQuestion) -> list[TorchBuild]:
    """The builds that fit, newest torch first."""
    return [build for build in in_scope(question) if fits(build, question)]


def pick(question: BuildQuestion, above: str = "0") -> TorchBuild | None:
    """The best of the builds that fit, of a torch that is newer than `above`."""
    limit = newest_first(above)
    newer = [build for build in in_scope(question) if newest_first(build.torch) < limit]
    fitting = [build for build in newer if fits(build, question)]
    return min(fitting, key=preference(question), default=None)


def nearest(torch: str, question: BuildQuestion) -> TorchBuild | None:
    """The best build of a torch, else of the nearest newer one, else of the newest that fits."""
    wanted = newest_first(torch)
    prefer = preference(question)

    def distance(build: TorchBuild) -> tuple[object, ...]:
        place = newest_first(build.torch)
        if place > wanted:  # an older torch: the newest of them
            return (True, place, prefer(build))
        oldest_first = tuple(-part for part in place)
        return (False, oldest_first, prefer(build))

    return min(fitting_builds(question), key=distance, default=None)


FIRST_WITH_AMPERE = 11
"""CUDA 11 is the first whose builds have kernels for Ampere (sm_80) and what came after it."""


def preference(question: BuildQuestion) -> Callable[[TorchBuild], tuple[int, ...]]:
    """A sort key: newest torch, channel, the CUDA nearest below the driver's own, then above.

    An unknown driver is taken to serve the last CUDA major but one: what needs a newer one comes
    after all that does not. CUDA 10 and older come last, whose builds have no kernels for Ampere
    and what came after it.
    """
    driver_cuda = question.host.driver_cuda
    served = release(driver_cuda) if driver_cuda else None

    def key(build: TorchBuild) -> tuple[int, ...]:
        cuda = release(build.cuda) if build.cuda else (0, 0)
        newest = (*newest_first(build.torch), CHANNELS.index(build.channel))
        if served is not None:
            return (*newest, int(cuda > served), -cuda[0], -cuda[1])
        is_before_ampere = 0 < cuda[0] < FIRST_WITH_AMPERE
        return (int(is_beyond(build, question)), *newest, int(is_before_ampere), *cuda)

    return key


def is_beyond(build: TorchBuild, question: BuildQuestion) -> bool:
    """Whether a build needs a driver of a later branch than an unknown one is taken to be of."""
    floor, assumed = build.driver_floor, question.host.assumed_driver
    if not floor or not assumed:
        return False
    return parsed(floor).major > parsed(assumed).major


@lru_cache(maxsize=512)
def newest_first(torch: str) -> tuple[int, ...]:
    """A sort key of versions in which the newest comes first."""
    parts = (*parsed(torch).release, 0, 0, 0)
    return tuple(-part for part in parts[:4])
