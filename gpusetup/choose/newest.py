"""The newest build that fits a host, and why the others do not.

All constraints hold jointly, for every visible GPU. The newest torch wins; within it the highest
CUDA that is at most the driver's own, else the highest of its family by minor-version
compatibility. With an unknown driver the newest torch of the last CUDA major but one, and its
lowest CUDA: most drivers serve that. A CPU build is the answer only if it is asked for, on macOS,
and if a source said that the machine has no NVIDIA GPU at all (a note says so): a GPU is never
left unused silently.
"""

from __future__ import annotations

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
    """The newest build that fits, its fallbacks, and a reason for every other row of the platform.

    Never raises for what is wanted: a wish that cannot be read or that names what never existed
    gets no build and a reason (`check_wish` raises for the command line).
    """
    choice = _newest_fitting(question)
    if choice.build is not None:
        choice = replace(choice, action="first", build=as_on_host(choice.build, question))
    return replace(choice, notes=notes_on(choice, question, machine))


def as_on_host(build: TorchBuild, question: BuildQuestion) -> TorchBuild:
    """The build with the torchaudio that this Python has, and the first driver that its GPUs need.

    On a Jetson there is no floor, because its driver is numbered apart.
    """
    host = question.host
    floor = build.driver_floor
    if floor and host.board is None:
        first_drivers = [first for _, first in host.first_drivers]
        floor = max((floor, *first_drivers), key=parsed)
    else:
        floor = None
    torchaudio = beside(question.catalog, "torchaudio", build, host.python)
    return replace(build, torchaudio=torchaudio, driver_floor=floor)


@lru_cache(maxsize=1024)
def _newest_fitting(question: BuildQuestion) -> Choice:
    """The choice without what only this machine adds. Cached, because many reports are about hosts
    that do not differ."""
    reasons = [(build, why_not(build, question)) for build in in_scope(question)]
    fitting = [build for build, reason in reasons if reason is None]
    fitting.sort(key=preference(question))
    chosen = fitting[0] if fitting else None
    host = question.host
    return Choice(
        build=chosen,
        served=served(chosen, host.gpus, host.driver_cuda) if chosen else (),
        alternatives=fallbacks_of(fitting),
        rejections=tuple(rejections_of(reasons, chosen, question)),
        conda=pick(question.by_conda()) if question.channels == WHEELS else None,
        advice=best_change(question, chosen),
        wish=question.wish,
        catalog_as_of=question.catalog.as_of,
    )


def fallbacks_of(fitting: list[TorchBuild]) -> tuple[Fallback, ...]:
    """The builds that may stand in for the first of some: of the same torch, for a GPU too."""
    fallbacks = []
    for build in fitting[1:]:
        if build.torch == fitting[0].torch and build.cuda:
            is_wheel = build.channel == "pytorch"
            where = index_url(build.backend) if is_wheel else build.channel
            fallbacks.append(Fallback(torch=build.torch, backend=build.backend, index_url=where))
    return tuple(fallbacks)


def rejections_of(
    reasons: list[tuple[TorchBuild, str | None]],
    chosen: TorchBuild | None,
    question: BuildQuestion,
) -> list[Rejection]:
    """Why each build was not chosen; a fitting one of the chosen torch is a fallback."""
    rejections = []
    for build, reason in reasons:
        if reason is None and chosen is not None and build.torch != chosen.torch:
            reason = f"fits, but torch {chosen.torch} is newer"
            if is_beyond(build, question):
                floor = build.driver_floor
                reason = f"needs NVIDIA driver {floor}, and the driver here is unknown"
        if reason:
            rejections.append(Rejection(torch=build.torch, backend=build.backend, reason=reason))
    return rejections


MOST_REASONS = 5
"""Reasons in the sentence that nothing fits; `resolve --explain` lists all."""


def nothing_fits(choice: Choice) -> Unsatisfiable:
    """Why nothing fits: what was asked for, or what keeps the builds of that from this machine."""
    reasons = [
        f"{rejection.torch} {rejection.backend}: {rejection.reason}"
        for rejection in choice.rejections
        if not rejection.reason.startswith("is not the ")
    ]
    advice = choice.advice
    return Unsatisfiable(
        "\n  ".join(("No PyTorch build fits this machine", *choice.notes, *reasons[:MOST_REASONS])),
        hint=f"another {advice.change} ({advice.to}) gives {advice.gives}" if advice else None,
    )
