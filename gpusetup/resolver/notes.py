"""What a reader of a resolution should know besides the build: guesses, ages, what is missing."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.accelerators.makers import MAKERS
from gpusetup.catalog.jetpack import FIRST_OF_THOR, JETPACKS, UNIFIED, runs_ordinary_wheels
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Resolution, TorchBuild
from gpusetup.model.versions import cuda_of, parsed
from gpusetup.resolver.constraints import in_scope
from gpusetup.resolver.held import vendors_of
from gpusetup.resolver.situation import Situation

STALE_DAYS = 120
"""From this age on a catalog says so."""
NO_GPU = "no NVIDIA GPU was found, so this is the CPU build"


def notes_on(found: Resolution, host: Situation, machine: Snapshot) -> tuple[str, ...]:
    """All notes that apply."""
    build = found.build
    if build is None:
        about: Iterator[str] = _without_a_build(found.conda, host)
    else:
        about = _of_the_build(build, host, machine)
    return tuple(dict.fromkeys((*about, *_of_the_machine(host, machine))))


def age_note(as_of: str, today: str) -> str | None:
    """A note for a catalog of more than 120 days; `today` is `YYYY-MM-DD`."""
    from datetime import date

    days = (date.fromisoformat(today) - date.fromisoformat(as_of)).days
    if days <= STALE_DAYS:
        return None
    return f"the catalog is {days} days old ({as_of}): a newer gpusetup knows newer builds"


def _without_a_build(conda: TorchBuild | None, host: Situation) -> Iterator[str]:
    """A torch that the catalog does not know, or that was never built for the backend; and what
    conda has in its place."""
    if conda and conda.cuda:
        yield (
            f"conda has torch {conda.torch} with CUDA {conda.cuda} that fits ({conda.channel}): "
            "`gpusetup resolve --installer conda`"
        )
    if not in_scope(host):
        yield f"no torch is built for {host.family} on {host.machine}"
    if host.backend in host.catalog.other_backends:
        of = f"the catalog of {host.catalog.as_of}"
        ask_now = ""
        if cuda_of(host.backend):
            command = f"gpusetup resolve --backend {host.backend} --refresh"
            ask_now = f"; `{command}` asks PyTorch's index now"
        yield f"{of} knows no build for NVIDIA GPUs of the backend {host.backend}{ask_now}"
    releases = [row.torch for row in host.catalog.releases]
    if not any(map(host.takes, releases)):
        known = f"that of {host.catalog.as_of} knows {releases[0]} to {releases[-1]}"
        yield f"the catalog has no torch {host.torch}: {known}"
        return
    wheels = [row for row in host.catalog.builds if row.channel == "pytorch"]
    with_torch = dict.fromkeys(row.backend for row in wheels if host.takes(row.torch))
    with_backend = sorted((r.torch for r in wheels if r.backend == host.backend), key=parsed)
    if host.torch and host.backend not in with_torch and with_backend:
        yield (
            f"torch {host.torch} was never built for {host.backend}: its builds are for "
            f"{', '.join(with_torch)}; builds for {host.backend} are of torch "
            f"{with_backend[0]} to {with_backend[-1]}"
        )


def _of_the_build(build: TorchBuild, host: Situation, machine: Snapshot) -> Iterator[str]:
    """What was not judged, or not known, when the build was chosen."""
    if host.presence == "none" and host.family != "macos" and host.backend != "cpu":
        judged = "you asked for this build, so it was not checked against a GPU"
        yield f"no NVIDIA GPU was found here: {judged}" if build.cuda else NO_GPU
    if build.cuda and host.presence == "unknown":
        yield "the GPU is unknown: gpusetup cannot tell whether the build has kernels for it"
    if build.cuda and not (host.driver or host.driver_cuda):
        what = "the driver is unknown, so a CUDA that most drivers support was chosen"
        if machine.driver.module_loaded is False or machine.driver.library_found is False:
            what = "no NVIDIA driver was found"
        yield f"{what}: this build needs NVIDIA driver {build.driver_floor or 0} or newer"
    unknown = (gpu.name for gpu in host.gpus if build.cuda and gpu.compute_capability is None)
    for name in [*unknown][:1]:
        yield (
            f"the compute capability of {name} is unknown to the catalog of {host.catalog.as_of}: "
            "gpusetup cannot tell whether the build has kernels for it"
        )


def _of_the_machine(host: Situation, machine: Snapshot) -> Iterator[str]:
    """What the catalog does not know of the machine, and what is not for torch's wheels."""
    catalog, driver = host.catalog, host.driver
    if driver and catalog.driver_is_newer(driver):
        newest = max(row.branch for row in catalog.branches)
        as_of = f"the catalog of {catalog.as_of}"
        yield f"driver {driver} is newer than {as_of}: it counts as branch {newest}"
    for gpu in host.gpus:
        known = gpu.compute_capability
        if known and catalog.is_newer_gpu(known):
            yield (
                f"{gpu.name} (compute capability {known}) is newer than the catalog of "
                f"{catalog.as_of}: try a newer gpusetup, or a nightly build of torch"
            )
    yield from catalog.too_new(driver, host.gpus)
    jetpack = host.jetpack
    chips = filter(None, (gpu.compute_capability for gpu in host.gpus))
    if jetpack and runs_ordinary_wheels(jetpack, chips):
        yield f"{jetpack.name} (CUDA {jetpack.cuda}) runs torch's own aarch64 wheels"
    elif host.board:
        releases = (jetpack,) if jetpack else JETPACKS
        # Of two releases of one JetPack the newer has the newer wheels.
        wheels = {row.name: row.wheels for row in releases if row.wheels}
        own = "".join(f"; {name}: {address}" for name, address in wheels.items())
        yield (
            f"a Jetson runs torch's own aarch64 wheels from {UNIFIED.name} (CUDA {UNIFIED.cuda}) "
            f"on, Thor from {FIRST_OF_THOR.name}: before that use the wheels that NVIDIA builds "
            f"for its JetPack{own}. `gpusetup doctor` prints the commands for this Python"
        )
    for maker in MAKERS if host.presence == "none" else ():
        if maker.noted and maker.id in vendors_of(machine):
            only = "but only NVIDIA GPUs are fitted here"
            yield f"an {maker.name} GPU was found: {maker.noted}, {only}"
