"""Which builds fit a host, and which of them is the best.

A constraint (`why_...`) returns a reason against a build, which names what the build needs and what
the host has; None if the build meets it. An unknown fact never excludes a build. A build fits if it
meets all constraints, for every visible GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from gpusetup.accelerators.makers import BY_ID, maker_of
from gpusetup.catalog.builds import Catalog, Channel
from gpusetup.catalog.kernels import release, served_by
from gpusetup.choose.host import CHANNELS, BuildQuestion
from gpusetup.choose.other_makers import builds_of_maker, why_no_builds, why_no_kernels
from gpusetup.model.builds import TorchBuild
from gpusetup.model.frozen import replace
from gpusetup.model.versions import parsed

Constraint = Callable[[TorchBuild, BuildQuestion], str | None]


def why_torch_differs(build: TorchBuild, question: BuildQuestion) -> str | None:
    if question.takes(build.torch):
        return None
    return f"is not the torch asked for ({question.wish.torch})"


def why_backend_differs(build: TorchBuild, question: BuildQuestion) -> str | None:
    if question.backend in ("auto", build.backend):
        return None
    return f"is not the backend asked for ({question.backend})"


def why_python_differs(build: TorchBuild, question: BuildQuestion) -> str | None:
    host = question.host
    # torch's last wheels for 32-bit Python are from 2017.
    if host.python_bits == 32:
        return "needs a 64-bit Python, found a 32-bit one"
    if host.python is None or host.python in build.pythons:
        return None
    return f"needs Python {', '.join(build.pythons)}, found {host.python}"


def why_libc_is_too_old(build: TorchBuild, question: BuildQuestion) -> str | None:
    host = question.host
    name, _, version = (host.libc or "").partition(" ")
    if host.family != "linux":
        return None
    # The wheels are tagged for glibc; Alpine's musl has another ABI.
    if name == "musl":
        return f"needs glibc, found {host.libc}: there are no wheels for musl"
    if build.glibc and version and parsed(version) < parsed(build.glibc):
        return f"needs glibc {build.glibc}, found {version}"
    return None


def why_macos_is_too_old(build: TorchBuild, question: BuildQuestion) -> str | None:
    macos = question.host.macos
    if build.macos and macos and parsed(macos) < parsed(build.macos):
        return f"needs macOS {build.macos}, found {macos}"
    return None


def why_driver_is_too_old(build: TorchBuild, question: BuildQuestion) -> str | None:
    """The reason if the NVIDIA driver does not support the build's CUDA version."""
    host, catalog, cuda = question.host, question.catalog, build.cuda
    if cuda is None or not (host.driver or host.driver_cuda):
        return None
    serves = True
    if host.driver_cuda:
        needed, supported = release(cuda), release(host.driver_cuda)
        # Before CUDA 11, a driver supports no CUDA newer than its own. Since then, only the major
        # version must match.
        parts = 1 if needed[0] >= catalog.minors_serve_from else 2
        serves = supported[:parts] >= needed[:parts]
    # With cuda-compat and on a Jetson, the driver's version number does not tell which CUDA version
    # it supports. So the CUDA version that it reports decides.
    if host.trusts_cuda and host.driver_cuda:
        if serves:
            return None
        if host.jetpack:
            found = f"{host.jetpack.name} (CUDA {host.driver_cuda})"
            return f"needs a JetPack for CUDA {cuda}, found {found}"
        return f"needs a driver for CUDA {cuda}, found one for {host.driver_cuda}"
    if build.driver_floor is None:
        if serves:
            return None
        newer = f"which is newer than the catalog of {catalog.as_of}"
        return f"needs a driver for CUDA {cuda}, {newer}; found one for {host.driver_cuda}"
    if host.driver is None or parsed(host.driver) >= parsed(build.driver_floor):
        return None
    return f"needs NVIDIA driver {build.driver_floor}, found {host.driver}"


def why_not_for_this_board(build: TorchBuild, question: BuildQuestion) -> str | None:
    """The reason if this Jetson cannot run the build: only the latest JetPacks run the wheels made
    for servers."""
    host = question.host
    board, jetpack = host.board, host.jetpack
    if build.cuda is None or board is None or (jetpack and jetpack.torch_for):
        return None
    # If the driver reports its GPU and CUDA version, `why_driver_is_too_old` decides.
    if host.gpus and host.driver_cuda:
        return None
    found = jetpack.name if jetpack else "a release that is not known"
    return f"is a wheel for servers, but {board} has {found}"


def why_driver_lacks_a_gpu(build: TorchBuild, question: BuildQuestion) -> str | None:
    """The reason if the driver is too old or too new for a GPU, so that no build runs on it."""
    host = question.host
    if build.cuda is None:
        return None
    # NVIDIA's later branches drop old GPUs.
    for reason in question.catalog.too_new(host.driver, host.gpus):
        return reason
    names = {gpu.name for gpu in host.gpus}
    for name, first_driver in host.first_drivers:
        if host.driver and name in names and parsed(host.driver) < parsed(first_driver):
            return f"{name} needs NVIDIA driver {first_driver} or newer, found {host.driver}"
    return None


def why_kernels_lack_a_gpu(build: TorchBuild, question: BuildQuestion) -> str | None:
    host, maker, gpus = question.host, question.maker, question.maker_gpus
    if maker:
        rows = in_scope(question)
        never = why_no_builds(maker, gpus, rows, question.platform, question.catalog)
        reasons = (*never, *(why_no_kernels(build, gpu) for gpu in gpus))
        return next(filter(None, reasons), None)
    # A GPU that the catalog does not know excludes no build; a note names it. Several GPUs of one
    # kind are named once.
    without_kernels = dict.fromkeys(
        f"{gpu.name} ({gpu.compute_capability})"
        for gpu in host.gpus
        if gpu.compute_capability and not served_by(build, gpu.compute_capability, host.driver_cuda)
    )
    if build.cuda is None or not without_kernels:
        return None
    codes = " ".join((*build.kernels, *build.ptx))
    return f"has no kernel for {', '.join(without_kernels)}, only for {codes}"


def why_gpu_is_missing(build: TorchBuild, question: BuildQuestion) -> str | None:
    # A requested backend is accepted, because images are often built on a host without the GPU on
    # which they will run.
    is_named = question.backend == build.backend
    if build.cuda is None or is_named or question.host.presence != "none":
        return None
    return "needs an NVIDIA GPU, found none; `--backend NAME` chooses it anyway"


def why_gpu_stays_unused(build: TorchBuild, question: BuildQuestion) -> str | None:
    """The reason against a CPU build on a machine that has, or may have, an NVIDIA GPU."""
    host = question.host
    if build.cuda or question.maker or question.backend == "cpu":
        return None
    # macOS has only one kind of build, which uses Apple's GPU.
    if host.presence == "none" or host.family == "macos":
        return None
    unused = f" and would not use {host.gpus[0].name}" if host.gpus else ""
    return f"is a CPU build{unused}; `--backend cpu` chooses it"


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


def why_not(build: TorchBuild, question: BuildQuestion) -> str | None:
    """All reasons why a build does not fit, separated by `; `; None if it fits.

    If the request itself excludes the build, no other reason is given.
    """
    asked = why_torch_differs(build, question) or why_backend_differs(build, question)
    if asked:
        return asked
    return "; ".join(filter(None, (why(build, question) for why in CONSTRAINTS))) or None


def first_reason(question: BuildQuestion) -> str:
    """The reason against the build that the request names, in a few words: that of the build with
    the fewest objections."""
    maker = maker_of(question.backend)
    if question.maker and maker not in (None, question.maker.id):
        return f"is for GPUs of {BY_ID[maker].name}"
    objections = []
    for build in in_scope(question):
        # A CPU build is no reason on a machine with a GPU.
        if why_gpu_stays_unused(build, question) and question.host.presence == "some":
            continue
        reason = why_not(build, question)
        if reason and question.takes(build.torch) and question.backend in ("auto", build.backend):
            objections.append(reason)
    if not objections:
        return "has no build on any index for this platform"
    reason = min(objections, key=lambda text: text.count("; ")).partition("; ")[0]
    return reason.partition(", only for")[0].replace("has no kernel for", "has no kernels for")


# --- the best ------------------------------------------------------------------------------------


def in_scope(question: BuildQuestion) -> tuple[TorchBuild, ...]:
    """The catalog's builds for this platform and the installer's channels, newest torch first; for
    AMD's and Intel's GPUs, the builds of their indexes, best first."""
    host, catalog = question.host, question.catalog
    if question.maker:
        return builds_of_maker(question.maker, question.maker_gpus, question.platform, catalog)
    return _in_scope(catalog, (host.family, host.architecture), host.floors, question.channels)


@lru_cache(maxsize=32)
def _in_scope(
    catalog: Catalog, platform: tuple[str, str], floors: str, channels: tuple[Channel, ...]
) -> tuple[TorchBuild, ...]:
    rows = []
    for build in catalog.builds:
        if (build.os, build.machine) != platform or build.channel not in channels:
            continue
        # WSL runs Linux builds on the Windows driver, whose version numbers differ.
        if build.cuda and floors != platform[0]:
            build = replace(build, driver_floor=catalog.driver_floor(build.cuda, floors))
        rows.append(build)
    return tuple(sorted(rows, key=lambda build: newest_first(build.torch)))


def fitting_builds(question: BuildQuestion, above: str = "0") -> list[TorchBuild]:
    """The builds that fit and whose torch is newer than `above`, newest torch first."""
    limit = newest_first(above)
    return [
        build
        for build in in_scope(question)
        # Compare versions first, because judging a build takes longer.
        if newest_first(build.torch) < limit and why_not(build, question) is None
    ]


def pick(question: BuildQuestion, above: str = "0") -> TorchBuild | None:
    """The best build that fits and whose torch is newer than `above`; None if there is none."""
    return min(fitting_builds(question, above), key=preference(question), default=None)


def nearest(torch: str, question: BuildQuestion) -> TorchBuild | None:
    """The best fitting build for this torch version, otherwise for the nearest newer one, otherwise
    for the newest older one; None if none fits."""
    wanted, rank = newest_first(torch), preference(question)

    def distance(build: TorchBuild) -> tuple[object, ...]:
        version = newest_first(build.torch)
        is_older = version > wanted
        # Among older versions the newest comes first, among newer ones the oldest.
        return is_older, version if is_older else tuple(-part for part in version), rank(build)

    return min(fitting_builds(question), key=distance, default=None)


FIRST_WITH_AMPERE = 11
"""The first CUDA major version whose builds have kernels for Ampere (sm_80) and later GPUs."""


def preference(question: BuildQuestion) -> Callable[[TorchBuild], tuple[int, ...]]:
    """A sort key for builds: the newest torch first, then the preferred channel, then the CUDA
    version nearest below the driver's, then those above it.

    If the driver is unknown but the installed torch listed a GPU, that torch's CUDA version counts.
    Otherwise builds that need a newer driver branch than the assumed one come last, and of one
    torch's builds the lowest CUDA comes first, which most drivers support.
    """
    if question.maker:
        place = {build: number for number, build in enumerate(in_scope(question))}
        return lambda build: (place.get(build, len(place)),)
    known = question.host.driver_cuda or question.host.cuda_at_work

    def rank(build: TorchBuild) -> tuple[int, ...]:
        newest = (*newest_first(build.torch), CHANNELS.index(build.channel))
        major, minor = release(build.cuda) if build.cuda else (0, 0)
        if known is None:
            is_before_ampere = 0 < major < FIRST_WITH_AMPERE
            return (is_beyond(build, question), *newest, is_before_ampere, major, minor)
        # Within a CUDA major version, a driver also runs newer minor versions, but cannot compile
        # their PTX.
        return (*newest, (major, minor) > release(known), -major, -minor)

    return rank


def is_beyond(build: TorchBuild, question: BuildQuestion) -> bool:
    """Whether a build needs a newer driver branch than the one assumed for an unknown driver."""
    floor, assumed = build.driver_floor, question.host.assumed_driver
    return bool(floor and assumed) and parsed(floor or "").major > parsed(assumed or "").major


@lru_cache(maxsize=512)
def newest_first(torch: str) -> tuple[int, ...]:
    """A sort key that puts the newest torch version first."""
    # `2.5` equals `2.5.0`, so keys get the same length to compare part by part.
    return tuple(-part for part in (*parsed(torch).release, 0, 0, 0)[:4])
