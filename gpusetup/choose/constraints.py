"""Which builds fit a host, and which of them is the best.

A reason against a build names what the build needs and what the host has. An unknown fact never
excludes a build. A build fits if nothing speaks against it, for every visible GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from gpusetup.accelerators.makers import BY_ID, maker_of
from gpusetup.catalog.builds import Catalog, Channel
from gpusetup.catalog.kernels import release, served_by
from gpusetup.choose.host import CHANNELS, BuildQuestion
from gpusetup.choose.other_makers import builds_of_maker, why_no_builds, why_no_kernels
from gpusetup.model.builds import TorchBuild
from gpusetup.model.frozen import replace
from gpusetup.model.versions import parsed


def why_not(build: TorchBuild, question: BuildQuestion) -> str | None:
    """All reasons why a build that was asked for does not fit, joined by `; `; None if it fits."""
    return "; ".join(_reasons_against(build, question)) or None


def _reasons_against(build: TorchBuild, question: BuildQuestion) -> list[str]:
    """The reasons why a build that the request allows does not fit; empty if it fits."""
    reasons = (
        *_unmet_by_system(build, question),
        why_driver_is_too_old(build, question),
        *_unmet_by_driver_or_jetson(build, question),
        why_kernels_lack_a_gpu(build, question),
        why_gpu_is_missing_or_unused(build, question),
    )
    return [*filter(None, reasons)]


def _unmet_by_system(build: TorchBuild, question: BuildQuestion) -> Iterator[str]:
    """Yields the build's needs that the host's Python, C library or macOS does not meet."""
    host = question.host
    # torch's last wheels for 32-bit Python are from 2017.
    if host.python_bits == 32:
        yield "needs a 64-bit Python, found a 32-bit one"
    elif host.python is not None and host.python not in build.pythons:
        yield f"needs Python {', '.join(build.pythons)}, found {host.python}"
    name, _, version = (host.libc or "").partition(" ")
    # Wheels for Linux are tagged for glibc; Alpine's musl has another ABI.
    if name == "musl" and host.family == "linux":
        yield f"needs glibc, found {host.libc}: there are no wheels for musl"
    elif build.glibc and version and parsed(version) < parsed(build.glibc):
        yield f"needs glibc {build.glibc}, found {version}"
    if build.macos and host.macos and parsed(host.macos) < parsed(build.macos):
        yield f"needs macOS {build.macos}, found {host.macos}"


FIRST_WITH_MINORS = 11
"""The first CUDA major version of which a driver also supports newer minor versions. Before, it
supports no CUDA newer than its own."""


def driver_runs(cuda: str, driver_cuda: str) -> bool:
    """Whether a driver that reports one CUDA version also runs programs of another.

    >>> driver_runs("12.8", "12.4"), driver_runs("13.0", "12.4"), driver_runs("10.2", "10.1")
    (True, False, False)
    """
    needed, supported = release(cuda), release(driver_cuda)
    # With minor-version compatibility, only the major version counts.
    if needed[0] >= FIRST_WITH_MINORS:
        return supported[0] >= needed[0]
    return supported >= needed


def why_driver_is_too_old(build: TorchBuild, question: BuildQuestion) -> str | None:
    """The reason why NVIDIA's driver does not support the build's CUDA version; None if it may."""
    host, cuda = question.host, build.cuda
    # A CPU build needs no driver, and an unknown driver excludes no build.
    if cuda is None or not (host.driver or host.driver_cuda):
        return None
    # With cuda-compat, on a Jetson, and for a CUDA that is newer than the catalog (no floor), the
    # driver's version number does not tell which CUDA version it supports. So what it reports
    # decides, and also if the version number itself is unknown.
    floor, version = build.driver_floor, host.driver
    if floor is None or version is None or (host.trusts_cuda and host.driver_cuda):
        if host.driver_cuda is None or driver_runs(cuda, host.driver_cuda):
            return None
        if host.jetpack:
            found = f"{host.jetpack.name} (CUDA {host.driver_cuda})"
            return f"needs a JetPack for CUDA {cuda}, found {found}"
        return f"needs a driver for CUDA {cuda}, found one for {host.driver_cuda}"
    if parsed(version) >= parsed(floor):
        return None
    return f"needs NVIDIA driver {floor}, found {version}"


def _unmet_by_driver_or_jetson(build: TorchBuild, question: BuildQuestion) -> Iterator[str]:
    """Yields why no CUDA wheel of any version runs here: because of this Jetson's JetPack, or
    because the driver does not support one of the GPUs."""
    host, jetpack = question.host, question.host.jetpack
    if build.cuda is None:
        return
    # Only the latest JetPacks run the wheels made for servers. If the driver reports its GPU and
    # CUDA version, `why_driver_is_too_old` decides.
    is_reported = host.gpus and host.driver_cuda
    runs_wheels = jetpack is not None and jetpack.torch_for
    if host.board and not is_reported and not runs_wheels:
        found = jetpack.name if jetpack else "a release that is not known"
        yield f"is a wheel for servers, but {host.board} has {found}"
    # NVIDIA's later branches drop old GPUs. One GPU is reason enough.
    too_new = question.catalog.too_new(host.driver, host.gpus)
    if too_new:
        yield too_new[0]
        return
    for name, first_driver in host.first_drivers:
        if host.driver and parsed(host.driver) < parsed(first_driver):
            yield f"{name} needs NVIDIA driver {first_driver} or newer, found {host.driver}"
            return


def why_kernels_lack_a_gpu(build: TorchBuild, question: BuildQuestion) -> str | None:
    """The reason why the build has no kernels for one of the GPUs; None if it has, or may have."""
    maker, gpus = question.maker, question.maker_gpus
    if maker:
        # A GPU that none of the maker's builds supports is a reason against this one, too.
        for_no_build = why_no_builds(maker, gpus, in_scope(question), question.platform)
        for_this_build = (why_no_kernels(build, gpu) for gpu in gpus)
        return next(filter(None, (*for_no_build, *for_this_build)), None)
    # A CPU build has no kernels for any GPU; `why_gpu_is_missing_or_unused` judges it.
    if build.cuda is None:
        return None
    host = question.host
    codes = (*build.kernels, *build.ptx)
    without_kernels = []
    for gpu in host.gpus:
        capability = gpu.compute_capability
        # A GPU that the catalog does not know excludes no build; a note names it.
        if capability and not served_by(codes, capability, build.cuda, host.driver_cuda):
            without_kernels.append(f"{gpu.name} ({capability})")
    if not without_kernels:
        return None
    # Several GPUs of the same name are named once.
    names = ", ".join(dict.fromkeys(without_kernels))
    return f"has no kernel for {names}, only for {' '.join(codes)}"


def why_gpu_is_missing_or_unused(build: TorchBuild, question: BuildQuestion) -> str | None:
    """The reason against a CUDA build without an NVIDIA GPU, or a CPU build if there may be a GPU;
    otherwise None."""
    host = question.host
    # A backend that is named is accepted, because images are often built on a host without a GPU.
    if build.cuda and host.presence == "none" and question.backend != build.backend:
        return "needs an NVIDIA GPU, and none was found; `--backend NAME` chooses the build anyway"
    # macOS has only one build of each torch, which uses Apple's GPU.
    may_be_cpu = host.presence == "none" or host.family == "macos" or question.backend == "cpu"
    # AMD's and Intel's builds (`maker`) have no CUDA either, but use their GPU.
    if build.cuda or question.maker or may_be_cpu:
        return None
    unused = f" and would not use {host.gpus[0].name}" if host.gpus else ""
    return f"is a CPU build{unused}; `--backend cpu` chooses it"


def main_reason(question: BuildQuestion) -> str:
    """The reason to show if no build fits: the first one against the build with the fewest reasons
    against it, among the builds that the request allows; or that it allows none, or only builds for
    another maker's GPUs."""
    maker = maker_of(question.backend)
    if question.maker and maker not in (None, question.maker.id):
        return f"is for {BY_ID[maker].name} GPUs"
    has_gpu = question.host.presence == "some"
    reasons_of_builds = []
    for build in filter(question.allows, in_scope(question)):
        # That a CPU build would leave the GPU unused does not explain why no build fits.
        if not (has_gpu and why_gpu_is_missing_or_unused(build, question)):
            reasons_of_builds.append(_reasons_against(build, question))
    if not reasons_of_builds:
        return "has no build for this platform in gpusetup's catalog"
    # The list of the kernels that exist, `, only for ...`, is left out.
    return min(reasons_of_builds, key=len)[0].partition(", only for")[0]


def in_scope(question: BuildQuestion) -> tuple[TorchBuild, ...]:
    """The catalog's builds for this platform and the installer's channels, newest torch first; for
    AMD's and Intel's GPUs, the builds of their indexes, best first."""
    host, catalog = question.host, question.catalog
    if question.maker:
        return builds_of_maker(question.maker, question.maker_gpus, question.platform, catalog)
    platform = (host.family, host.architecture)
    return builds_of_platform(catalog, platform, question.channels, host.driver_system)


@lru_cache(maxsize=64)
def builds_of_platform(
    catalog: Catalog, platform: tuple[str, str], channels: tuple[Channel, ...], driver_system: str
) -> tuple[TorchBuild, ...]:
    """The catalog's builds for a system and architecture, newest torch first. Cached, because most
    questions are about a few platforms.

    `driver_system`: the system that the driver is for, which differs on WSL.
    """
    rows = []
    for build in catalog.builds:
        if (build.os, build.machine) != platform or build.channel not in channels:
            continue
        # WSL runs Linux builds on the Windows driver, whose version numbers differ.
        if build.cuda and driver_system != platform[0]:
            build = replace(build, driver_floor=catalog.driver_floor(build.cuda, driver_system))
        rows.append(build)
    return tuple(sorted(rows, key=lambda build: newest_first_key(build.torch)))


def fitting_builds(question: BuildQuestion, above: str = "0") -> list[TorchBuild]:
    """The builds that fit and whose torch is newer than the version `above`, newest torch first."""
    above_version = parsed(above)
    return [
        build
        for build in in_scope(question)
        # Judging a build takes longest, so it comes last.
        if parsed(build.torch) > above_version
        and question.allows(build)
        and why_not(build, question) is None
    ]


def best_build(question: BuildQuestion, above: str = "0") -> TorchBuild | None:
    """The best build that fits and whose torch is newer than `above`; None if there is none."""
    return min(fitting_builds(question, above), key=preference(question), default=None)


def nearest_build(torch: str, question: BuildQuestion) -> TorchBuild | None:
    """The best fitting build for this torch version, otherwise for the nearest newer one, otherwise
    for the newest older one; None if none fits."""
    fitting = fitting_builds(question)
    if not fitting:
        return None
    versions = [parsed(build.torch) for build in fitting]
    # A post-release, such as conda-forge's `2.3.0.post301`, counts as its release.
    version = parsed(parsed(torch).base_version)
    nearest = min((one for one in versions if one >= version), default=max(versions))
    of_nearest = [build for build in fitting if parsed(build.torch) == nearest]
    return min(of_nearest, key=preference(question))


FIRST_WITH_AMPERE = 11
"""The first CUDA major version whose builds have kernels for Ampere (sm_80) and later GPUs."""


def preference(question: BuildQuestion) -> Callable[[TorchBuild], tuple[int, ...]]:
    """A sort key for builds: the newest torch first, then the preferred channel, then the CUDA
    version nearest below the driver's, then those above it, newest first.

    If the driver is unknown, builds that need a newer driver branch than the assumed one come last,
    and of one torch's builds the lowest CUDA that knows Ampere comes first, which most drivers
    support."""
    if question.maker:
        # `in_scope` lists another maker's builds best first.
        position = {build: number for number, build in enumerate(in_scope(question))}
        return lambda build: (position[build],)
    driver_cuda = question.host.driver_cuda

    def rank(build: TorchBuild) -> tuple[int, ...]:
        torch_and_channel = (*newest_first_key(build.torch), CHANNELS.index(build.channel))
        # A CPU build and CUDA builds compete only on a machine without a GPU, for the extras of a
        # project. The driver is then unknown, and the CPU build, as CUDA 0.0, comes first.
        major, minor = release(build.cuda) if build.cuda else (0, 0)
        if driver_cuda is None:
            floor, assumed = build.driver_floor, question.host.assumed_driver
            needs_newer_branch = False
            # A CPU build has no floor, and for a Jetson no driver is assumed.
            if floor and assumed:
                needs_newer_branch = parsed(floor).major > parsed(assumed).major
            is_before_ampere = 0 < major < FIRST_WITH_AMPERE
            return (needs_newer_branch, *torch_and_channel, is_before_ampere, major, minor)
        # Within a CUDA major version, a driver also runs newer minor versions, but cannot compile
        # their PTX, so those come last.
        is_above_driver = (major, minor) > release(driver_cuda)
        return (*torch_and_channel, is_above_driver, -major, -minor)

    return rank


@lru_cache(maxsize=512)
def newest_first_key(torch: str) -> tuple[int, ...]:
    """A sort key that puts the newest torch first. Cached, because every build is sorted by it."""
    # `2.5` equals `2.5.0`, so keys get the same length to compare part by part.
    return tuple(-part for part in (*parsed(torch).release, 0, 0, 0)[:4])
