"""The conditions under which a build fits a host, and the choice of the best build that fits.

A constraint (`why_...`) returns a reason against a build, which names what the build needs and what
the host has. It returns None if the build meets the constraint. An unknown fact never excludes a
build. A build fits if it meets all constraints, for every visible GPU.
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


def why_torch_differs(build: TorchBuild, question: BuildQuestion) -> str | None:
    """The reason if the request excludes this torch version; None if it allows it."""
    if question.takes(build.torch):
        return None
    return f"is not the torch asked for ({question.wish.torch})"


def why_backend_differs(build: TorchBuild, question: BuildQuestion) -> str | None:
    """The reason if another backend was requested; None if this one was requested, or none at
    all."""
    if question.backend in ("auto", build.backend):
        return None
    return f"is not the backend asked for ({question.backend})"


def why_python_differs(build: TorchBuild, question: BuildQuestion) -> str | None:
    """The reason if the build has no wheel for this Python; None if it has, or if the version is
    unknown."""
    host = question.host
    # torch's last wheels for 32-bit Python are from 2017.
    if host.python_bits == 32:
        return "needs a 64-bit Python, found a 32-bit one"
    if host.python is None or host.python in build.pythons:
        return None
    return f"needs Python {', '.join(build.pythons)}, found {host.python}"


def why_libc_is_too_old(build: TorchBuild, question: BuildQuestion) -> str | None:
    """The reason if the C library is musl or a glibc older than the build needs; None if it is new
    enough or unknown."""
    host = question.host
    if host.family != "linux":
        return None
    name, _, version = (host.libc or "").partition(" ")
    # The wheels are tagged for glibc; Alpine's musl has another ABI.
    if name == "musl":
        return f"needs glibc, found {host.libc}: there are no wheels for musl"
    # An unknown C library does not exclude a build.
    if not build.glibc or not version:
        return None
    if parsed(version) < parsed(build.glibc):
        return f"needs glibc {build.glibc}, found {version}"
    return None


def why_macos_is_too_old(build: TorchBuild, question: BuildQuestion) -> str | None:
    """The reason if this macOS is too old for the build; None if it is new enough or unknown."""
    macos = question.host.macos
    # Only a Mac whose macOS version is known can be too old.
    if not build.macos or not macos:
        return None
    if parsed(macos) >= parsed(build.macos):
        return None
    return f"needs macOS {build.macos}, found {macos}"


def why_driver_is_too_old(build: TorchBuild, question: BuildQuestion) -> str | None:
    """The reason if the NVIDIA driver does not support the build's CUDA version; None if it does,
    if the driver is unknown, or for a CPU build."""
    host, catalog = question.host, question.catalog
    cuda = build.cuda
    if cuda is None or not (host.driver or host.driver_cuda):
        return None
    serves = driver_serves_cuda(cuda, question)
    # With cuda-compat and on a Jetson, the driver's version number does not tell which CUDA version
    # it supports. So the CUDA version that it reports decides.
    if host.trusts_cuda and host.driver_cuda:
        if serves:
            return None
        if host.jetpack:
            release_here = f"{host.jetpack.name} (CUDA {host.driver_cuda})"
            return f"needs a JetPack for CUDA {cuda}, found {release_here}"
        return f"needs a driver for CUDA {cuda}, found one for {host.driver_cuda}"
    if build.driver_floor is None:
        # The catalog has no minimum driver for this CUDA version, so the driver's CUDA version
        # decides. If that is unknown too, `driver_serves_cuda` does not object.
        if serves:
            return None
        newer = f"which is newer than the catalog of {catalog.as_of}"
        return f"needs a driver for CUDA {cuda}, {newer}; found one for {host.driver_cuda}"
    if host.driver is None:
        return None
    if parsed(host.driver) >= parsed(build.driver_floor):
        return None
    return f"needs NVIDIA driver {build.driver_floor}, found {host.driver}"


def driver_serves_cuda(cuda: str, question: BuildQuestion) -> bool:
    """Whether the driver's CUDA version supports the build's; True if it is unknown."""
    driver_cuda = question.host.driver_cuda
    if driver_cuda is None:
        return True
    needed, supported = release(cuda), release(driver_cuda)
    # Before CUDA 11, a driver supports no CUDA newer than its own. Since then, only the major
    # version must match.
    parts = 1 if needed[0] >= question.catalog.minors_serve_from else 2
    return supported[:parts] >= needed[:parts]


def why_not_for_this_board(build: TorchBuild, question: BuildQuestion) -> str | None:
    """The reason if this Jetson cannot run the build: only the latest JetPacks run the wheels made
    for servers. None if it can, or if this is not a Jetson."""
    host = question.host
    board, jetpack = host.board, host.jetpack
    if build.cuda is None or board is None:
        return None
    if jetpack and jetpack.torch_for:
        return None
    # If the driver reports its GPU and CUDA version, `why_driver_is_too_old` decides.
    if host.gpus and host.driver_cuda:
        return None
    release_here = jetpack.name if jetpack else "a release that is not known"
    return f"is a wheel for servers, but {board} has {release_here}"


def why_driver_lacks_a_gpu(build: TorchBuild, question: BuildQuestion) -> str | None:
    """The reason if the driver is too old or too new for one of the GPUs, so that no build at all
    runs on it; None if the driver supports them all."""
    host = question.host
    if build.cuda is None:
        return None
    # The driver may be too new: NVIDIA's later branches drop old GPUs.
    for reason in question.catalog.too_new(host.driver, host.gpus):
        return reason
    if host.driver is None:
        return None
    # The driver may be too old: the first driver for the GPU is newer than this one.
    names = {gpu.name for gpu in host.gpus}
    for name, first_driver in host.first_drivers:
        if name in names and parsed(host.driver) < parsed(first_driver):
            return f"{name} needs NVIDIA driver {first_driver} or newer, found {host.driver}"
    return None


def why_kernels_lack_a_gpu(build: TorchBuild, question: BuildQuestion) -> str | None:
    """The reason if the build has no kernels for one of the GPUs; None if it has them for all."""
    if build.cuda is None:
        return None
    host = question.host
    # A dictionary names several GPUs of one kind only once. It is unknown whether the build
    # supports a GPU that is not in the catalog, so it does not reject the build; a note tells that.
    without_kernels = {
        f"{gpu.name} ({gpu.compute_capability})": None
        for gpu in host.gpus
        if gpu.compute_capability and not served_by(build, gpu.compute_capability, host.driver_cuda)
    }
    if not without_kernels:
        return None
    codes = " ".join((*build.kernels, *build.ptx))
    return f"has no kernel for {', '.join(without_kernels)}, only for {codes}"


def why_gpu_is_missing(build: TorchBuild, question: BuildQuestion) -> str | None:
    """The reason against a CUDA build on a machine without an NVIDIA GPU, unless its backend was
    requested; otherwise None."""
    if build.cuda is None or question.host.presence != "none":
        return None
    # A requested backend is accepted, because images are often built on a host without the GPU on
    # which they will run.
    if question.backend == build.backend:
        return None
    return "needs an NVIDIA GPU, found none; `--backend NAME` chooses it anyway"


def why_gpu_stays_unused(build: TorchBuild, question: BuildQuestion) -> str | None:
    """The reason against a CPU build on a machine with an NVIDIA GPU, unless the CPU build was
    requested; otherwise None."""
    host = question.host
    if build.cuda or question.backend == "cpu":
        return None
    # macOS has only one kind of build, which uses Apple's GPU.
    if host.presence == "none" or host.family == "macos":
        return None
    unused = ""
    if host.gpus:
        unused = f" and would not use {host.gpus[0].name}"
    return f"is a CPU build{unused}; `--backend cpu` chooses it"


ASKED: tuple[Constraint, ...] = (why_torch_differs, why_backend_differs)
CONSTRAINTS: tuple[Constraint, ...] = (
    why_python_differs,
    why_libc_is_too_old,
    why_macos_is_too_old,
    why_driver_is_too_old,
    why_not_for_this_board,
    why_driver_lacks_a_gpu,
    why_kernels_lack_a_gpu,
    why_gpu_is_missing,
    why_gpu_stays_unused,
)


def fits(build: TorchBuild, question: BuildQuestion) -> bool:
    """Whether no constraint objects to a build."""
    return why_not(build, question) is None


def why_not(build: TorchBuild, question: BuildQuestion) -> str | None:
    """All reasons why a build does not fit, separated by `; `; None if it fits.

    If the request itself excludes the build, no other reason is given.
    """
    for constraint in ASKED:
        reason = constraint(build, question)
        if reason:
            return reason
    reasons = [constraint(build, question) for constraint in CONSTRAINTS]
    return "; ".join(filter(None, reasons)) or None


def first_reason(question: BuildQuestion) -> str:
    """The reason against the build that the request names, in a few words: that of the build with
    the fewest objections."""
    objections: list[tuple[int, str]] = []
    for build in in_scope(question):
        if not question.takes(build.torch) or question.backend not in ("auto", build.backend):
            continue
        # A CPU build is no reason on a machine with a GPU.
        if build.cuda is None and question.host.presence == "some" and question.backend != "cpu":
            continue
        reason = why_not(build, question)
        if reason:
            objections.append((reason.count("; "), reason))
    if not objections:
        return "no index has it for this platform"
    reason = min(objections, key=lambda pair: pair[0])[1].partition("; ")[0]
    return reason.partition(", only for")[0].replace("has no kernel for", "has no kernels for")


# --- the best ------------------------------------------------------------------------------------


def in_scope(question: BuildQuestion) -> tuple[TorchBuild, ...]:
    """The catalog's builds for this platform and the installer's channels, newest torch first."""
    host = question.host
    platform = (host.family, host.architecture)
    return _in_scope(question.catalog, platform, host.floors, question.channels)


@lru_cache(maxsize=32)
def _in_scope(
    catalog: Catalog, platform: tuple[str, str], floors: str, channels: tuple[Channel, ...]
) -> tuple[TorchBuild, ...]:
    """Like `in_scope`, but with plain values so that results can be cached. On WSL the minimum
    drivers are those for Windows."""
    family, _ = platform
    rows = []
    for build in catalog.builds:
        if (build.os, build.machine) != platform or build.channel not in channels:
            continue
        # WSL runs Linux builds on the Windows driver, whose version numbers differ.
        if build.cuda and floors != family:
            build = replace(build, driver_floor=catalog.driver_floor(build.cuda, floors))
        rows.append(build)
    rows.sort(key=lambda build: newest_first(build.torch))
    return tuple(rows)


def fitting_builds(question: BuildQuestion) -> list[TorchBuild]:
    """The builds that fit, newest torch first."""
    return [build for build in in_scope(question) if fits(build, question)]


def pick(question: BuildQuestion, above: str = "0") -> TorchBuild | None:
    """The best build that fits and whose torch is newer than `above`; None if there is none."""
    limit = newest_first(above)
    newer = [
        build
        for build in in_scope(question)
        # Compare versions first, because judging a build takes longer.
        if newest_first(build.torch) < limit and fits(build, question)
    ]
    return min(newer, key=preference(question), default=None)


def nearest(torch: str, question: BuildQuestion) -> TorchBuild | None:
    """The best fitting build for this torch version, otherwise for the nearest newer one, otherwise
    for the newest older one; None if none fits."""
    wanted_torch = newest_first(torch)
    prefer = preference(question)

    def distance(build: TorchBuild) -> tuple[object, ...]:
        version = newest_first(build.torch)
        # Among older versions the newest comes first, among newer ones the oldest.
        if version > wanted_torch:
            return (True, version, prefer(build))
        return (False, tuple(-part for part in version), prefer(build))

    return min(fitting_builds(question), key=distance, default=None)


FIRST_WITH_AMPERE = 11
"""The first CUDA major version whose builds have kernels for Ampere (sm_80) and later GPUs."""


def preference(question: BuildQuestion) -> Callable[[TorchBuild], tuple[int, ...]]:
    """A sort key for builds: the newest torch first, then the preferred channel, then the CUDA
    version nearest below the driver's, then those above it.

    If the driver is unknown but the installed torch listed a GPU, that torch's CUDA version counts.
    Otherwise the driver is assumed to support the second-newest CUDA major version, and builds that
    need a newer driver come last. Among the builds of one torch, CUDA 10 and older come last,
    because they have no kernels for Ampere and later GPUs.
    """
    driver_cuda = question.host.driver_cuda or question.host.cuda_at_work
    if driver_cuda is None:
        return lambda build: rank_on_unknown_driver(build, question)
    driver_release = release(driver_cuda)

    def rank(build: TorchBuild) -> tuple[int, ...]:
        major, minor = cuda_release(build)
        # Within a CUDA major version, a driver also runs newer minor versions, but cannot compile
        # their PTX.
        is_above = int((major, minor) > driver_release)
        return (*newest_channel_first(build), is_above, -major, -minor)

    return rank


def cuda_release(build: TorchBuild) -> tuple[int, ...]:
    """The build's CUDA version as numbers; (0, 0) for a CPU build."""
    return release(build.cuda) if build.cuda else (0, 0)


def newest_channel_first(build: TorchBuild) -> tuple[int, ...]:
    """A sort key for builds: newest torch first, then the preferred channel."""
    return (*newest_first(build.torch), CHANNELS.index(build.channel))


def rank_on_unknown_driver(build: TorchBuild, question: BuildQuestion) -> tuple[int, ...]:
    """A sort key for builds if the driver is unknown: the newest torch first, and among its builds
    the lowest CUDA version first, but CUDA 10 and older last."""
    cuda = cuda_release(build)
    # A CPU build has no CUDA version that could be too old.
    is_before_ampere = int(0 < cuda[0] < FIRST_WITH_AMPERE)
    needs_later_branch = int(is_beyond(build, question))
    return (needs_later_branch, *newest_channel_first(build), is_before_ampere, *cuda)


def is_beyond(build: TorchBuild, question: BuildQuestion) -> bool:
    """Whether a build needs a newer driver branch than the one assumed for an unknown driver."""
    floor = build.driver_floor
    assumed = question.host.assumed_driver
    if not floor or not assumed:
        return False
    return parsed(floor).major > parsed(assumed).major


@lru_cache(maxsize=512)
def newest_first(torch: str) -> tuple[int, ...]:
    """A sort key that puts the newest torch version first."""
    # `2.5` equals `2.5.0`, so keys get the same length to compare part by part.
    return tuple(-part for part in (*parsed(torch).release, 0, 0, 0)[:4])
