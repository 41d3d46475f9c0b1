"""The newest build that fits a host, and the reasons against the others.

Every constraint must hold for every visible GPU. The newest torch wins. Among its builds, the one
with the highest CUDA version up to the driver's own is chosen. If there is none, it is the build
with the highest CUDA version of the same major version, which the driver also supports. If the
driver is unknown, it is the newest torch for the second-newest CUDA major version, and of its
builds the one with the lowest CUDA version, because most drivers support that version. A CPU build
is only chosen if it was requested, on macOS, or if a source reported that the machine has no NVIDIA
GPU at all (a note says so). So a GPU is never silently left unused.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from gpusetup.catalog.builds import index_url
from gpusetup.catalog.companions import beside
from gpusetup.catalog.kernels import served
from gpusetup.choose.advice import best_change
from gpusetup.choose.choice import Choice
from gpusetup.choose.constraints import in_scope, is_beyond, pick, preference, why_not
from gpusetup.choose.host import WHEELS, BuildQuestion
from gpusetup.choose.notes import notes_on
from gpusetup.errors import Unsatisfiable
from gpusetup.model.builds import Fallback, Rejection, TorchBuild
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.versions import parsed


def newest_fitting(question: BuildQuestion, machine: Snapshot) -> Choice:
    """The newest build that fits, fallbacks for it, and a reason for every other build of the
    platform.

    Never raises for a bad request: if it cannot be read or names something that never existed, the
    choice has no build but a reason (`check_wish` raises for the command line).
    """
    choice = _newest_fitting(question)
    if choice.build is not None:
        choice = replace(choice, action="first", build=as_on_host(choice.build, question))
    return replace(choice, notes=notes_on(choice, question, machine))


def as_on_host(build: TorchBuild, question: BuildQuestion) -> TorchBuild:
    """The build with the torchaudio for this Python, and with the oldest driver that supports both
    its CUDA version and the host's GPUs."""
    host = question.host
    torchaudio = beside(question.catalog, "torchaudio", build, host.python)
    floor = build.driver_floor
    # A Jetson has no minimum driver, because its driver has its own version numbers.
    if floor is None or host.board:
        return replace(build, torchaudio=torchaudio, driver_floor=None)
    # A driver may support the CUDA version but not yet the GPU.
    first_drivers = [first for _, first in host.first_drivers]
    floor = max((floor, *first_drivers), key=parsed)
    return replace(build, torchaudio=torchaudio, driver_floor=floor)


@lru_cache(maxsize=1024)
def _newest_fitting(question: BuildQuestion) -> Choice:
    """The choice without the notes about one machine. It is cached, because many reports are about
    equal hosts."""
    reasons = [(build, why_not(build, question)) for build in in_scope(question)]
    fitting = [build for build, reason in reasons if reason is None]
    fitting.sort(key=preference(question))
    chosen = fitting[0] if fitting else None
    host = question.host
    return Choice(
        build=chosen,
        served=served(chosen, host.gpus, host.driver_cuda) if chosen else (),
        alternatives=tuple(
            Fallback(
                torch=build.torch,
                backend=build.backend,
                index_url=index_url(build.backend) if build.channel == "pytorch" else build.channel,
            )
            for build in fitting[1:]
            # A CPU build is never a fallback, because it would silently leave the GPU unused.
            if build.torch == fitting[0].torch and build.cuda
        ),
        rejections=tuple(rejections_of(reasons, chosen, question)),
        # A choice of a wheel also contains the best conda build, but not the reverse.
        conda=pick(question.by_conda()) if question.channels == WHEELS else None,
        advice=best_change(question, chosen),
        wish=question.wish,
        catalog_as_of=question.catalog.as_of,
    )


def rejections_of(
    reasons: list[tuple[TorchBuild, str | None]],
    chosen: TorchBuild | None,
    question: BuildQuestion,
) -> Iterator[Rejection]:
    """Yields the rejected builds with their reasons. Builds for the chosen torch version that fit
    are fallbacks, so they are left out."""
    for build, reason in reasons:
        if reason is None and chosen is not None and build.torch != chosen.torch:
            reason = f"fits, but torch {chosen.torch} is newer"
            if is_beyond(build, question):
                # This build is newer, but was passed over because the driver is unknown.
                reason = f"needs NVIDIA driver {build.driver_floor}, and the driver here is unknown"
        if reason is not None:
            yield Rejection(torch=build.torch, backend=build.backend, reason=reason)


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
    hint = None
    if advice:
        hint = f"another {advice.change} ({advice.to}) gives {advice.gives}"
    return Unsatisfiable("\n  ".join(lines), hint=hint)
