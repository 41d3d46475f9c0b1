"""Notes on a choice, for example on guesses, missing facts and the catalog's age."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from gpusetup.accelerators.makers import MAKERS
from gpusetup.catalog.jetpack import FIRST_OF_THOR, JETPACKS, UNIFIED, runs_ordinary_wheels
from gpusetup.choose.choice import Choice
from gpusetup.choose.constraints import in_scope
from gpusetup.choose.host import BuildQuestion
from gpusetup.choose.installed import vendors_of
from gpusetup.model.builds import TorchBuild
from gpusetup.model.machine import Snapshot
from gpusetup.model.versions import cuda_of, parsed

STALE_DAYS = 120
"""The age in days from which the catalog counts as outdated: torch has a release about every two
months."""
NO_GPU = "no NVIDIA GPU was found, so this is the CPU build"


def notes_on(choice: Choice, question: BuildQuestion, machine: Snapshot) -> tuple[str, ...]:
    """All notes that apply to a choice, without duplicates."""
    notes: list[str] = []
    if choice.build is None:
        notes += on_missing_build(choice.conda, question)
    else:
        notes += on_build(choice.build, question, machine)
    notes += on_driver_and_gpus(question)
    notes += on_jetson(question)
    notes += on_other_makers(question, machine)
    return tuple(dict.fromkeys(notes))


def age_note(as_of: str, today: str) -> str | None:
    """A note if the catalog is more than 120 days old, otherwise None; `today` is `YYYY-MM-DD`."""
    days = (date.fromisoformat(today) - date.fromisoformat(as_of)).days
    if days <= STALE_DAYS:
        return None
    return f"the catalog is {days} days old ({as_of}): a newer gpusetup knows newer builds"


ELSEWHERE = {
    ("windows", "aarch64"): (
        "torch's own index has CPU builds for Windows on Arm since torch 2.7, which gpusetup's "
        "table does not list: `uv pip install torch --index https://download.pytorch.org/whl/cpu`, "
        "with an Arm64 Python 3.12 or newer"
    )
}
"""Platforms for which the catalog has no builds, and where to find torch for them
(https://pytorch.org/blog/pytorch-native-windows-arm64-builds)."""


# --- without a build ------------------------------------------------------------------------------


def on_missing_build(conda: TorchBuild | None, question: BuildQuestion) -> Iterator[str]:
    """Yields notes on why no build fits: the platform, backend or torch is not in the catalog, or
    conda has a build instead."""
    host, catalog = question.host, question.catalog
    if conda and conda.cuda:
        yield (
            f"conda has torch {conda.torch} with CUDA {conda.cuda} that fits ({conda.channel}): "
            "`gpusetup resolve --installer conda`"
        )
    if not in_scope(question):
        yield ELSEWHERE.get(
            (host.family, host.architecture),
            f"no torch is built for {host.family} on {host.architecture}",
        )
    if question.backend in catalog.other_backends:
        command = f"gpusetup resolve --backend {question.backend} --refresh"
        ask_now = f"; `{command}` asks PyTorch's index now" if cuda_of(question.backend) else ""
        yield (
            f"the catalog of {catalog.as_of} knows no build for NVIDIA GPUs of the backend "
            f"{question.backend}{ask_now}"
        )
    releases = [row.torch for row in catalog.releases]
    if any(map(question.takes, releases)):
        yield from on_torch_of_other_backends(question)
    else:
        span = f"{releases[0]} to {releases[-1]}"
        wanted = question.wish.torch
        yield f"the catalog of {catalog.as_of} has torch {span}, but not {wanted}"


def on_torch_of_other_backends(question: BuildQuestion) -> Iterator[str]:
    """Yields a note if the requested torch exists, but was never built for the requested
    backend."""
    backend, torch = question.backend, question.wish.torch
    # Rows of conda's channels do not name a backend.
    rows = [row for row in question.catalog.builds if row.channel == "pytorch"]
    backends_of_torch = dict.fromkeys(row.backend for row in rows if question.takes(row.torch))
    torches_of_backend = [row.torch for row in rows if row.backend == backend]
    if not torch or backend in backends_of_torch or not torches_of_backend:
        return
    torches_of_backend.sort(key=parsed)
    oldest, newest = torches_of_backend[0], torches_of_backend[-1]
    yield (
        f"torch {torch} was never built for {backend}: its builds are for "
        f"{', '.join(backends_of_torch)}; builds for {backend} are of torch {oldest} to {newest}"
    )


# --- with a build ---------------------------------------------------------------------------------


def on_build(build: TorchBuild, question: BuildQuestion, machine: Snapshot) -> Iterator[str]:
    """Yields notes on facts about the GPU or driver that were unknown when the build was chosen."""
    host = question.host
    if host.presence == "none" and host.family != "macos" and question.backend != "cpu":
        unchecked = "you asked for this build, so it was not checked against a GPU"
        yield f"no NVIDIA GPU was found here: {unchecked}" if build.cuda else NO_GPU
    if build.cuda is None:
        return
    if host.presence == "unknown":
        yield "the GPU is unknown: gpusetup cannot tell whether the build has kernels for it"
    if not (host.driver or host.driver_cuda):
        problem = "the driver is unknown, so a CUDA that most drivers support was chosen"
        if host.cuda_at_work:
            problem = (
                f"the driver is unknown, but it started the torch for CUDA {host.cuda_at_work}"
            )
        if machine.driver.module_loaded is False or machine.driver.library_found is False:
            problem = "no NVIDIA driver was found"
        yield f"{problem}: this build needs NVIDIA driver {build.driver_floor or 0} or newer"
    for gpu in host.gpus:
        if gpu.compute_capability is None:
            yield (
                f"the compute capability of {gpu.name} is unknown to the catalog of "
                f"{question.catalog.as_of}: gpusetup cannot tell whether the build has kernels "
                "for it"
            )
            return


def on_driver_and_gpus(question: BuildQuestion) -> Iterator[str]:
    """Yields notes on drivers or GPUs that are newer than the catalog, and on a driver that does
    not support the GPU."""
    host, catalog = question.host, question.catalog
    age = f"is newer than the catalog of {catalog.as_of}"
    if host.driver and catalog.driver_is_newer(host.driver):
        branches = [row.branch for row in catalog.branches]
        newest = max(branches)
        # Newer NVIDIA drivers support whatever older ones did.
        yield f"driver {host.driver} {age}: it counts as branch {newest}"
    for gpu in host.gpus:
        capability = gpu.compute_capability
        if capability and catalog.is_newer_gpu(capability):
            yield (
                f"{gpu.name} (compute capability {capability}) {age}: try a newer gpusetup, or a "
                "nightly build of torch"
            )
    yield from catalog.too_new(host.driver, host.gpus)


def on_jetson(question: BuildQuestion) -> Iterator[str]:
    """Yields a note on whether a Jetson runs torch's own wheels, or where to find NVIDIA's wheels
    for it."""
    host = question.host
    jetpack = host.jetpack
    capabilities = filter(None, (gpu.compute_capability for gpu in host.gpus))
    if jetpack and runs_ordinary_wheels(jetpack, capabilities):
        yield f"{jetpack.name} (CUDA {jetpack.cuda}) runs torch's own aarch64 wheels"
    elif host.board:
        releases = (jetpack,) if jetpack else JETPACKS
        # If two rows are for the same JetPack, the later one has the newer wheels.
        addresses = {row.name: row.wheels for row in releases if row.wheels}
        places = [f"for {name}: {address}" for name, address in addresses.items()]
        wheels = f" ({', '.join(places)})" if places else ""
        yield (
            f"torch's own aarch64 wheels need {UNIFIED.name} (CUDA {UNIFIED.cuda}) or newer on a "
            f"Jetson, or {FIRST_OF_THOR.name} on a Thor. For an older JetPack, use the wheels that "
            f"NVIDIA builds for it{wheels}. `gpusetup doctor` prints the commands for this Python"
        )


def on_other_makers(question: BuildQuestion, machine: Snapshot) -> Iterator[str]:
    """Yields notes on GPUs of other makers, if the machine has no NVIDIA GPU."""
    if question.host.presence != "none":
        return
    vendors = vendors_of(machine)
    for maker in MAKERS:
        if maker.noted and maker.id in vendors:
            yield (
                f"an {maker.name} GPU was found: {maker.noted}, but only NVIDIA GPUs are fitted "
                "here"
            )
