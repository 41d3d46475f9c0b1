"""The newest build that fits a host, with the reasons against the others, the change that would
help most, and notes on what was unknown.

The newest torch wins. Among its builds, the one with the highest CUDA version up to the driver's
own is chosen; if there is none, the highest of the same major version. A CPU build is only chosen
if it was requested, on macOS, or if a source reported that the machine has no NVIDIA GPU at all (a
note says so). So a GPU is never silently left unused.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

from gpusetup.catalog.builds import index_url
from gpusetup.catalog.companions import beside
from gpusetup.catalog.jetpack import FIRST_OF_THOR, JETPACKS, UNIFIED, runs_ordinary_wheels
from gpusetup.catalog.kernels import served
from gpusetup.choose.choice import Choice
from gpusetup.choose.constraints import in_scope, is_beyond, pick, preference, why_not
from gpusetup.choose.host import WHEELS, BuildQuestion
from gpusetup.choose.other_makers import notes_of, why_no_builds
from gpusetup.errors import Unsatisfiable
from gpusetup.model.builds import Advice, Rejection, TorchBuild
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.versions import cuda_of, parsed


def newest_fitting(question: BuildQuestion, machine: Snapshot) -> Choice:
    """The newest build that fits, fallbacks for it, and a reason for every other build of the
    platform.

    Never raises for a bad request: if it cannot be read or names something that never existed, the
    choice has no build but a reason (`check_wish` raises for the command line).
    """
    choice = _newest_fitting(question)
    build, host, maker = choice.build, question.host, question.maker
    if maker:
        gpus = question.maker_gpus
        problems = why_no_builds(maker, gpus, in_scope(question), question.platform)
        if problems:
            return replace(choice, notes=problems, rejections=())
        notes_on_maker = tuple(notes_of(gpus, maker, build))
        return replace(choice, action="first" if build else "nothing", notes=notes_on_maker)
    notes = on_missing_build(choice.conda, question)
    if build is not None:
        floor = None
        # A Jetson has no minimum driver, because its driver has its own version numbers.
        if build.driver_floor and not host.board:
            # A driver may support the CUDA version but not yet the GPU.
            first_drivers = (first for _, first in host.first_drivers)
            floor = max((build.driver_floor, *first_drivers), key=parsed)
        torchaudio = beside(question.catalog, "torchaudio", build, host.python)
        build = replace(build, torchaudio=torchaudio, driver_floor=floor)
        choice = replace(choice, action="first", build=build)
        notes = on_build(build, question, machine)
    return replace(choice, notes=tuple(dict.fromkeys((*notes, *on_host(question)))))


@lru_cache(maxsize=1024)
def _newest_fitting(question: BuildQuestion) -> Choice:
    """The choice without the notes about one machine; cached, because many hosts are equal."""
    reasons = [(build, why_not(build, question)) for build in in_scope(question)]
    fitting = [build for build, reason in reasons if reason is None]
    fitting.sort(key=preference(question))
    chosen = fitting[0] if fitting else None
    host, is_conda = question.host, question.channels != WHEELS
    # A CPU build is never a fallback, because it would silently leave the GPU unused.
    of_gpu = [build for build in fitting[1:] if build.cuda or question.maker]
    rejections = []
    for build, reason in reasons:
        if reason is None and chosen is not None and build.torch != chosen.torch:
            reason = f"fits, but torch {chosen.torch} is newer"
            if is_beyond(build, question):
                # This build is newer, but was passed over because the driver is unknown.
                reason = f"needs NVIDIA driver {build.driver_floor}, and the driver here is unknown"
        if reason is not None:
            rejections.append(Rejection(torch=build.torch, backend=build.backend, reason=reason))
    return Choice(
        build=chosen,
        served=served(chosen, host.gpus, host.driver_cuda) if chosen else (),
        alternatives=tuple(one for one in of_gpu if one.torch == fitting[0].torch),
        rejections=tuple(rejections),
        # A choice of a wheel also contains the best conda build, but not the reverse.
        conda=None if is_conda or question.maker else pick(question.by_conda()),
        advice=None if question.maker else best_change(question, chosen),
        wish=question.wish,
        catalog_as_of=question.catalog.as_of,
    )


MOST_REASONS = 5
"""How many reasons the error shows if nothing fits; `resolve --explain` lists all of them."""


def nothing_fits(choice: Choice) -> Unsatisfiable:
    """The error that no build fits, with the reasons and the change that would help."""
    reasons = [
        f"{rejection.torch} {rejection.backend}: {rejection.reason}"
        for rejection in choice.rejections
        # The user knows why builds do not fit that the request itself excludes.
        if not rejection.reason.startswith("is not the ")
    ]
    lines = ("No PyTorch build fits this machine", *choice.notes, *reasons[:MOST_REASONS])
    advice = choice.advice
    hint = f"another {advice.change} ({advice.to}) gives {advice.gives}" if advice else None
    return Unsatisfiable("\n  ".join(lines), hint=hint)


# --- the change that would help most --------------------------------------------------------------


def best_change(question: BuildQuestion, chosen: TorchBuild | None) -> Advice | None:
    """The single change to the host or the request that allows the newest torch; None if none
    allows a newer one than the chosen build has.

    A change that keeps the request is preferred. Of two equally good changes the first one counts.
    """
    best_rank: tuple[object, ...] = ()
    advice = None
    for kind, to, changed in changes(question):
        keeps_wish = kind in ("driver", "python")
        # If a build was chosen, do not advise the user to change their request.
        if chosen is not None and not keeps_wish:
            continue
        build = pick(changed, chosen.torch if chosen else "0")
        if build is None:
            continue
        rank = (keeps_wish, not is_beyond(build, changed), parsed(build.torch).release)
        if rank > best_rank:
            best_rank, of_build = rank, build.torch if kind == "torch" else build.backend
            gives = f"torch {build.torch} ({build.backend})"
            advice = Advice(change=kind, to=to or of_build, gives=gives)
    return advice


Kind = Literal["driver", "python", "torch", "backend"]


def changes(question: BuildQuestion) -> Iterator[tuple[Kind, str | None, BuildQuestion]]:
    """Yields all possible changes, the least costly first, each with its new value and the question
    that results. The value is None if it depends on the build that fits after the change."""
    catalog, host, wish = question.catalog, question.host, question.wish
    # A Jetson's driver is part of its JetPack and cannot be updated separately.
    floors = {build.driver_floor for build in in_scope(question) if not host.board} - {None}
    first_drivers = [first for _, first in host.first_drivers]
    needed = {max((*first_drivers, str(floor)), key=parsed) for floor in floors}
    drivers = {driver for driver in needed if parsed(driver) > parsed(host.driver or "0")}
    if catalog.ends_before(host.gpus, host.driver):
        # Newer drivers no longer support a GPU, so its last branch may help.
        drivers |= {str(catalog.last_branch(gpu.compute_capability)) for gpu in host.gpus}
    for driver in sorted(drivers, key=parsed):
        if catalog.ends_before(host.gpus, driver):
            continue
        other_host = replace(
            host,
            driver=driver,
            driver_cuda=catalog.driver_cuda(driver),
            # What was assumed, and the CUDA version that cuda-compat adds, are not about the new
            # driver.
            trusts_cuda=False,
            assumed_driver=None,
        )
        yield "driver", driver, replace(question, host=other_host)
    minor = parsed((host.python or "").rstrip("t")).minor
    pythons = {python for build in in_scope(question) for python in build.pythons}
    # The free-threaded Python is left out, because few packages have wheels for it.
    usual = sorted((one for one in pythons if not one.endswith("t")), key=parsed, reverse=True)
    # If the current Python is unknown, another one cannot be recommended.
    for python in sorted(usual, key=lambda one: abs(parsed(one).minor - minor)) if minor else ():
        other_host = replace(host, python=python, python_bits=64)
        yield "python", python, replace(question, host=other_host)
    # The requested torch version may name its backend (`2.5.1+cu124`). If any torch version is
    # allowed instead, that backend must stay.
    any_torch = replace(wish, torch=None, backend=question.backend)
    yield "torch", None, replace(question, wish=any_torch)
    torch = wish.torch.partition("+")[0] if wish.torch else None
    # A user who wants the CPU build must not be advised to take a build for a GPU.
    backend = "cpu" if question.backend == "cpu" else "auto"
    yield "backend", None, replace(question, wish=replace(wish, torch=torch, backend=backend))


# --- notes ----------------------------------------------------------------------------------------

NO_GPU = "no NVIDIA GPU was found, so this is the CPU build"


def on_missing_build(conda: TorchBuild | None, question: BuildQuestion) -> Iterator[str]:
    """Yields notes on what the catalog lacks if no build fits, or on conda's build."""
    host, catalog, backend = question.host, question.catalog, question.backend
    torch = question.wish.torch
    if conda and conda.cuda:
        yield (
            f"conda has torch {conda.torch} with CUDA {conda.cuda} that fits ({conda.channel}): "
            "`gpusetup resolve --installer conda`"
        )
    if not in_scope(question):
        # For Windows on Arm, torch's own index has CPU builds since torch 2.7.
        yield (
            f"gpusetup's table has no torch for {host.family} on {host.architecture}; what "
            f"PyTorch's index has is at {index_url('cpu')}/torch/"
        )
    if backend in catalog.other_backends:
        today = f"; {index_url(backend)}/torch/ lists what is there today"
        yield (
            f"the catalog of {catalog.as_of} knows no build for NVIDIA GPUs of the backend "
            f"{backend}{today if cuda_of(backend) else ''}"
        )
    releases = [row.torch for row in catalog.releases]
    if not any(map(question.takes, releases)):
        span = f"{releases[0]} to {releases[-1]}"
        yield f"the catalog of {catalog.as_of} has torch {span}, but not {torch}"
        return
    # Rows of conda's channels do not name a backend.
    rows = [row for row in catalog.builds if row.channel == "pytorch"]
    of_torch = dict.fromkeys(row.backend for row in rows if question.takes(row.torch))
    of_backend = sorted((row.torch for row in rows if row.backend == backend), key=parsed)
    if torch and of_backend and backend not in of_torch:
        yield (
            f"torch {torch} was never built for {backend}: its builds are for "
            f"{', '.join(of_torch)}; builds for {backend} are of torch {of_backend[0]} to "
            f"{of_backend[-1]}"
        )


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
        is_absent = False in (machine.driver.module_loaded, machine.driver.library_found)
        problem = "no NVIDIA driver was found" if is_absent else "the driver is unknown"
        yield f"{problem}: this build needs NVIDIA driver {build.driver_floor or 0} or newer"
    unknown = [gpu.name for gpu in host.gpus if gpu.compute_capability is None]
    if unknown:
        yield (
            f"the compute capability of {unknown[0]} is unknown to the catalog of "
            f"{question.catalog.as_of}: gpusetup cannot tell whether the build has kernels for it"
        )


def on_host(question: BuildQuestion) -> Iterator[str]:
    """Yields notes on what is newer than the catalog, and on a Jetson."""
    host, catalog, jetpack = question.host, question.catalog, question.host.jetpack
    age = f"is newer than the catalog of {catalog.as_of}"
    if host.driver and catalog.driver_is_newer(host.driver):
        # Newer NVIDIA drivers support whatever older ones did.
        newest = max(row.branch for row in catalog.branches)
        yield f"driver {host.driver} {age}: it counts as branch {newest}"
    capabilities = [gpu.compute_capability for gpu in host.gpus if gpu.compute_capability]
    for gpu in host.gpus:
        if gpu.compute_capability and catalog.is_newer_gpu(gpu.compute_capability):
            yield (
                f"{gpu.name} (compute capability {gpu.compute_capability}) {age}: try a newer "
                "gpusetup, or a nightly build of torch"
            )
    yield from catalog.too_new(host.driver, host.gpus)
    if jetpack and runs_ordinary_wheels(jetpack, capabilities):
        yield f"{jetpack.name} (CUDA {jetpack.cuda}) runs torch's own aarch64 wheels"
    elif host.board:
        # If two rows are for the same JetPack, the later one has the newer wheels.
        releases = (jetpack,) if jetpack else JETPACKS
        addresses = {row.name: row.wheels for row in releases if row.wheels}
        places = ", ".join(f"for {name}: {address}" for name, address in addresses.items())
        yield (
            f"torch's own aarch64 wheels need {UNIFIED.name} (CUDA {UNIFIED.cuda}) or newer on a "
            f"Jetson, or {FIRST_OF_THOR.name} on a Thor. For an older JetPack, use the wheels that "
            f"NVIDIA builds for it{f' ({places})' if places else ''}. `gpusetup doctor` prints the "
            "commands for this Python"
        )
