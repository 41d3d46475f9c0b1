"""The newest build that fits a host, the reasons against those that do not fit, the change that
would help most, and notes on what was unknown.

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
from gpusetup.catalog.companions import companion_for
from gpusetup.catalog.jetpack import FIRST_OF_THOR, UNIFIED, runs_ordinary_wheels
from gpusetup.catalog.kernels import served
from gpusetup.choose.choice import Choice
from gpusetup.choose.constraints import best_build, in_scope, preference, why_not
from gpusetup.choose.host import BuildQuestion
from gpusetup.choose.other_makers import notes_of, why_no_builds
from gpusetup.errors import Unsatisfiable
from gpusetup.model.builds import Advice, Rejection, TorchBuild
from gpusetup.model.frozen import replace
from gpusetup.model.versions import parsed


@lru_cache(maxsize=1024)
def newest_fitting(question: BuildQuestion) -> Choice:
    """The newest build that fits, alternatives to it, and a reason for every build that does not
    fit. Cached, because many hosts are equal. For a request that cannot be read, the choice has no
    build but a note: `check_wish` raises for the command line.
    """
    host, maker = question.host, question.maker
    reasons = [
        (build, why_not(build, question))
        for build in in_scope(question)
        # The user knows why builds do not fit that the request itself excludes.
        if question.allows(build)
    ]
    fitting = [build for build, reason in reasons if reason is None]
    fitting.sort(key=preference(question))
    build = fitting[0] if fitting else None
    # A CPU build is never an alternative, because it would silently leave the GPU unused. The
    # builds of another maker (`maker`) name no CUDA.
    of_gpu = [one for one in fitting[1:] if one.cuda or maker]
    choice = Choice(
        build=build,
        action="first" if build else "nothing",
        served=served(build, host.gpus, host.driver_cuda) if build else (),
        alternatives=tuple(one for one in of_gpu if one.torch == fitting[0].torch),
        rejections=tuple(
            Rejection(torch=one.torch, backend=one.backend, reason=reason)
            for one, reason in reasons
            if reason
        ),
        advice=None if maker else best_change(question, build),
        wish=question.wish,
        catalog_as_of=question.catalog.as_of,
    )
    if maker:
        gpus = question.maker_gpus
        problems = why_no_builds(maker, gpus, in_scope(question), question.platform)
        if problems:
            return replace(choice, build=None, action="nothing", notes=problems, rejections=())
        return replace(choice, notes=tuple(notes_of(gpus, maker, build)))
    if build is None:
        notes = notes_on_missing_build(question)
    else:
        floor = None
        # A Jetson has no minimum driver, because its driver has its own version numbers.
        if build.driver_floor and not host.board:
            # A driver may support the CUDA version but not yet the GPU.
            first_drivers = (first for _, first in host.first_drivers)
            floor = max((build.driver_floor, *first_drivers), key=parsed)
        # A torch that was released without a torchaudio may work with an earlier one.
        torchaudio = companion_for(question.catalog, "torchaudio", build, host.python)
        build = replace(build, torchaudio=torchaudio, driver_floor=floor)
        choice, notes = replace(choice, build=build), notes_on_build(build, question)
    return replace(choice, notes=tuple(dict.fromkeys((*notes, *notes_on_host(question)))))


MOST_REASONS = 5
"""How many reasons the error shows if nothing fits; `resolve --explain` lists all of them."""


def nothing_fits(choice: Choice) -> Unsatisfiable:
    """The error that no build fits, with the reasons and what would help."""
    reasons = [
        f"{rejection.torch} {rejection.backend}: {rejection.reason}"
        for rejection in choice.rejections
    ]
    lines = ("No PyTorch build fits this machine", *choice.notes, *reasons[:MOST_REASONS])
    advice = choice.advice
    hint = None
    if advice:
        hint = f"with another {advice.change} ({advice.to}), you get {advice.gives}"
    elif choice.wish.names_build:
        hint = "leave out `--torch` and `--backend`: `gpusetup resolve` alone shows what fits"
    return Unsatisfiable("\n  ".join(lines), hint=hint)


def best_change(question: BuildQuestion, chosen: TorchBuild | None) -> Advice | None:
    """The other driver or Python with which the newest torch fits; None if none gives a newer one
    than the chosen build has. Of two equally good changes the first one counts."""
    best_torch = chosen.torch if chosen else "0"
    advice = None
    for part, new_version, changed_question in changes(question):
        build = best_build(changed_question, above=best_torch)
        if build:
            best_torch, gives = build.torch, f"torch {build.torch} ({build.backend})"
            advice = Advice(change=part, to=new_version, gives=gives)
    return advice


def changes(
    question: BuildQuestion,
) -> Iterator[tuple[Literal["driver", "python"], str, BuildQuestion]]:
    """Yields the changes to the host that may help, the least costly first: what changes, its new
    version, and the question about the changed host."""
    catalog, host = question.catalog, question.host
    # A Jetson's driver is part of its JetPack and cannot be updated separately.
    builds = () if host.board else in_scope(question)
    floors = {build.driver_floor for build in builds if build.driver_floor}
    # A driver must support the build's CUDA version and each of the GPUs.
    first_drivers = [first_driver for _, first_driver in host.first_drivers]
    needed = {max((*first_drivers, floor), key=parsed) for floor in floors}
    drivers = {driver for driver in needed if parsed(driver) > parsed(host.driver or "0")}
    if catalog.ends_before(host.gpus, host.driver):
        # Newer drivers support none of the GPUs, but the last branch for each of them may help.
        drivers |= {str(catalog.last_branch(gpu.compute_capability)) for gpu in host.gpus}
    for driver in sorted(drivers, key=parsed):
        # This one no longer supports the GPUs.
        if catalog.ends_before(host.gpus, driver):
            continue
        other_host = replace(
            host,
            driver=driver,
            driver_cuda=catalog.driver_cuda(driver),
            # Neither cuda-compat's CUDA version nor what was assumed is about the new driver.
            trusts_cuda=False,
            assumed_driver=None,
        )
        yield "driver", driver, replace(question, host=other_host)
    if not host.python:
        # Without the current Python, no other one can be recommended.
        return
    minor = parsed(host.python.rstrip("t")).minor
    pythons = {python for build in in_scope(question) for python in build.pythons}
    # The free-threaded Python is left out, because few packages have wheels for it.
    usual = [python for python in pythons if not python.endswith("t")]
    # The nearest version first, and of two equally near ones the newer.
    usual.sort(key=lambda python: (abs(parsed(python).minor - minor), -parsed(python).minor))
    for python in usual:
        other_host = replace(host, python=python, python_bits=64)
        yield "python", python, replace(question, host=other_host)


NO_GPU = "no NVIDIA GPU was found, so this is the CPU build"


def notes_on_missing_build(question: BuildQuestion) -> Iterator[str]:
    """Yields notes on what the catalog lacks if no build fits."""
    host, catalog, backend = question.host, question.catalog, question.backend
    if not in_scope(question):
        # For Windows on Arm, torch's own index has CPU builds since torch 2.7.
        yield (
            f"gpusetup's table has no torch for {host.family} on {host.architecture}; "
            f"{index_url('cpu')}/torch/ lists what PyTorch's index has"
        )
    if backend in catalog.without_build:
        yield (
            f"gpusetup's catalog of {catalog.as_of} has no build from {backend} for NVIDIA GPUs; "
            f"{index_url(backend)}/torch/ lists the builds that exist today"
        )
    releases = [row.torch for row in catalog.releases]
    if not any(map(question.allows_version, releases)):
        span = f"{releases[0]} to {releases[-1]}"
        yield f"the catalog of {catalog.as_of} has torch {span}, but not {question.wish.torch}"


def notes_on_build(build: TorchBuild, question: BuildQuestion) -> Iterator[str]:
    """Yields notes on facts about the GPU or driver that were unknown when the build was chosen."""
    host = question.host
    # A Mac has only one build, and with `--backend cpu` the user knows it.
    if host.presence == "none" and host.family != "macos" and question.backend != "cpu":
        unchecked = "you asked for this build, so gpusetup did not check it against a GPU"
        yield f"no NVIDIA GPU was found here: {unchecked}" if build.cuda else NO_GPU
    if build.cuda is None:
        return
    if host.presence == "unknown":
        yield "the GPU is unknown, so gpusetup cannot tell whether the build has kernels for it"
    if not (host.driver or host.driver_cuda):
        floor = f"NVIDIA driver {build.driver_floor} or newer" if build.driver_floor else "a driver"
        yield f"the driver is unknown; this build needs {floor}"
    unknown = [gpu.name for gpu in host.gpus if gpu.compute_capability is None]
    if unknown:
        yield (
            f"gpusetup's catalog of {question.catalog.as_of} does not know the compute capability "
            f"of {unknown[0]}, so gpusetup cannot tell whether the build has kernels for it"
        )


def notes_on_host(question: BuildQuestion) -> Iterator[str]:
    """Yields notes on GPUs that are newer than the catalog, on drivers that are too new for an old
    GPU, and on a Jetson (`host.board`)."""
    host, catalog, jetpack = question.host, question.catalog, question.host.jetpack
    capabilities = [gpu.compute_capability for gpu in host.gpus if gpu.compute_capability]
    for gpu in host.gpus:
        if gpu.compute_capability and catalog.is_newer_gpu(gpu.compute_capability):
            yield (
                f"{gpu.name} (compute capability {gpu.compute_capability}) is newer than the "
                f"catalog of {catalog.as_of}: try a newer gpusetup, or a nightly build of torch"
            )
    yield from catalog.too_new(host.driver, host.gpus)
    if jetpack and runs_ordinary_wheels(jetpack, capabilities):
        yield f"{jetpack.name} (CUDA {jetpack.cuda}) runs torch's own aarch64 wheels"
    elif host.board:
        yield (
            f"torch's own aarch64 wheels need {UNIFIED.name} (CUDA {UNIFIED.cuda}) or newer on a "
            f"Jetson Orin, or {FIRST_OF_THOR.name} or newer on a Thor. For an older JetPack, "
            "NVIDIA builds wheels: `gpusetup doctor` prints the commands for this Python"
        )
