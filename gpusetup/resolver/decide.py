"""Which torch build fits a machine, and why the others do not.

All constraints hold jointly, for every visible GPU. The newest torch wins; within it the highest
CUDA that is at most the driver's own, else the highest of its family by minor-version
compatibility. With an unknown driver the newest torch of the last CUDA major but one, and its
lowest CUDA: most drivers serve that. A CPU build is the answer only where it is
asked for, on macOS, and where a source said that the machine has no NVIDIA GPU at all (a note
says so): a GPU is never left unused silently.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gpusetup.catalog.builds import INDEX_ROOT, Catalog, index_url
from gpusetup.catalog.companions import beside
from gpusetup.catalog.kernels import served_by
from gpusetup.errors import Unsatisfiable, UsageError
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Gpu, Snapshot
from gpusetup.model.resolution import Choice, Rejection, Request, Resolution, Served, TorchBuild
from gpusetup.model.versions import cuda_of, parsed
from gpusetup.resolver.advice import best_change
from gpusetup.resolver.choice import best_build, in_scope, is_beyond, preference
from gpusetup.resolver.companions import FAMILY
from gpusetup.resolver.constraints import why_not
from gpusetup.resolver.notes import Told, notes_on
from gpusetup.resolver.situation import (
    CONDA_CHANNELS,
    WHEELS,
    Situation,
    label_of,
    python_tag,
    situation_of,
    specifier,
)

if TYPE_CHECKING:
    from gpusetup.model.documents import ResolveAnswer


def resolve(snapshot: Snapshot, request: Request, catalog: Catalog) -> Resolution:
    """The build that fits, its fallbacks, and a reason for every other row of the platform.

    Never raises for what is asked: a request that cannot be read or that names what never
    existed gets no build and a reason (`check_request` raises for the command line).
    """
    situation = situation_of(snapshot, request, catalog)
    found = _decided(replace(situation, gpus=_told_apart(situation.gpus)), catalog)
    if found.build is not None:
        found = replace(found, build=_with_companions(found.build, situation, snapshot, catalog))
    told = Told(found=found, situation=situation, machine=snapshot, catalog=catalog)
    return replace(found, notes=notes_on(told))


def _told_apart(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """The GPUs without what does not matter here: load and temperature."""
    return tuple(Gpu(name=g.name, compute_capability=g.compute_capability) for g in gpus)


@lru_cache(maxsize=1024)
def _decided(situation: Situation, catalog: Catalog) -> Resolution:
    """The resolution of a situation, without what only this machine adds.

    Cached, because many reports are about the same situation.
    """
    reasons = [(build, why_not(build, situation)) for build in in_scope(situation, catalog)]
    fit = (build for build, reason in reasons if reason is None)
    fitting = sorted(fit, key=preference(situation))
    chosen = fitting[0] if fitting else None
    conda = None
    if situation.channels == WHEELS:
        conda = best_build(replace(situation, channels=CONDA_CHANNELS), catalog)
    return Resolution(
        build=chosen,
        index_url=index_url(chosen.backend) if chosen and chosen.channel == "pytorch" else None,
        served=_served(chosen, situation) if chosen else (),
        fallbacks=_fallbacks(fitting),
        rejections=_rejections(reasons, fitting, situation, catalog),
        conda=conda,
        advice=best_change(situation, chosen, catalog),
        catalog_as_of=catalog.as_of,
    )


def to_answer(
    resolution: Resolution,
    snapshot: Snapshot,
    packages: tuple[str, ...] = FAMILY,
) -> ResolveAnswer:
    """The public document of a resolution, with the commands of every installer.

    `packages` are torch and what comes along with it; of what is not torch's family conda is not
    told, because pip installed it.
    """
    from gpusetup.installers import INSTALLERS
    from gpusetup.installers.options import InstallerOptions
    from gpusetup.model.documents import ResolveAnswer

    build, commands = resolution.build, {}
    for name, steps in INSTALLERS.items() if build else ():
        by_conda = name == "conda"
        options = InstallerOptions(
            index_root=resolution.index_root or INDEX_ROOT,
            python=snapshot.python.executable,
            packages=tuple(p for p in packages if p in FAMILY) if by_conda else packages,
            conda_prefix=snapshot.python.prefix if snapshot.python.manager == "conda" else None,
        )
        try:
            commands[name] = tuple(step.argv for step in steps(resolution, options))
        except Unsatisfiable:
            commands[name] = ()
    of_build = ("torch", "torchvision", "torchaudio", "backend", "driver_floor")
    same = ("index_url", "served", "fallbacks", "rejections", "advice", "notes", "catalog_as_of")
    told: dict[str, Any] = {name: getattr(build, name, None) for name in of_build}
    told |= {name: getattr(resolution, name) for name in same}
    return ResolveAnswer(commands=commands, python=python_tag(snapshot), **told)


def check_request(request: Request, catalog: Catalog) -> None:
    """Raise UsageError for a request that is malformed, contradictory or names what never was."""
    wanted = specifier(request.torch)
    named = [clause.version.rstrip(".*") for clause in wanted or ()]
    tried = ("0", *named, *(f"{version}.0.1" for version in named))
    if wanted and not any(wanted.contains(one, prereleases=True) for one in tried):
        raise UsageError(
            f"`--torch {request.torch}` contradicts itself: no version is that",
            hint="such as `2.5.1` or `>=2.6,<2.9`",
        )
    labelled = label_of(request.torch)
    if labelled and request.backend not in ("auto", labelled):
        raise UsageError(
            f"`--torch {request.torch}` asks for {labelled} and `--backend` for {request.backend}",
            hint="give one of them",
        )
    for backend in filter(None, (labelled, request.backend)):
        if backend != "auto" and backend not in catalog.backends:
            live = f"`gpusetup resolve --backend {backend} --refresh` asks the index for it; "
            raise UsageError(
                f"The catalog of {catalog.as_of} knows no torch for {backend!r}",
                hint=(live if cuda_of(backend) else "") + _nearest_backends(backend, catalog),
            )


def _nearest_backends(backend: str, catalog: Catalog) -> str:
    import difflib

    def newest_label(label: str) -> list[int]:
        """`rocm6.10` after `rocm6.9`, `cu130` after `cu92`."""
        return [int(number) for number in re.findall(r"\d+", label)]

    empty = {label for label, torches in catalog.other_backends.items() if not torches}
    known = sorted({*catalog.backends} - empty, key=newest_label, reverse=True)
    begun = [one for one in known if one.startswith(backend) or one == f"rocm{cuda_of(backend)}"]
    near = begun or difflib.get_close_matches(backend, known, 3, 0.5) or ["cpu", "cu126", "cu130"]
    return f"`auto` takes what fits; the nearest: {', '.join(near[:SHOWN])}"


SHOWN = 5


def _fallbacks(fitting: list[TorchBuild]) -> tuple[Choice, ...]:
    same = [build for build in fitting[1:] if build.torch == fitting[0].torch]
    return tuple(
        Choice(torch=b.torch, backend=b.backend, index_url=_where(b)) for b in same if b.cuda
    )


def _where(build: TorchBuild) -> str:
    return index_url(build.backend) if build.channel == "pytorch" else build.channel


def _served(build: TorchBuild, situation: Situation) -> tuple[Served, ...]:
    found = []
    for gpu in situation.gpus if build.cuda else ():
        if gpu.compute_capability is None:
            continue
        by = served_by(build, gpu.compute_capability, situation.driver_cuda)
        if by is not None:
            found.append(Served(gpu=gpu.name, compute_capability=gpu.compute_capability, by=by))
    return tuple(found)


def _rejections(
    reasons: list[tuple[TorchBuild, str | None]],
    fitting: list[TorchBuild],
    situation: Situation,
    catalog: Catalog,
) -> tuple[Rejection, ...]:
    """A reason for every row that is neither the answer nor a fallback."""
    newest = fitting[0].torch if fitting else None
    older = f"fits, but torch {newest} is newer"
    found = [
        _rejection(build.torch, build.backend, reason or _needs(build, situation) or older)
        for build, reason in reasons
        if reason is not None or build.torch != newest
    ]
    return (*found, *_elsewhere(situation, catalog, any_here=bool(reasons)))


def _needs(build: TorchBuild, situation: Situation) -> str | None:
    """Why a build that fits is left, where the driver is unknown."""
    if not is_beyond(build, situation):
        return None
    return f"needs NVIDIA driver {build.driver_floor}, and the driver here is unknown"


@lru_cache(maxsize=8192)
def _rejection(torch: str, backend: str, reason: str) -> Rejection:
    """One value for all situations that have it: reports need a tenth of the memory."""
    return Rejection(torch=torch, backend=backend, reason=reason)


def _elsewhere(situation: Situation, catalog: Catalog, *, any_here: bool) -> Iterable[Rejection]:
    """Why what was asked for has no row here: another platform's, ROCm's, or never published."""
    here = f"{situation.family} {situation.machine}"
    if not any_here:
        newest = catalog.releases[-1].torch
        for build in catalog.builds:
            if build.torch == newest and build.channel == "pytorch":
                reason = f"is built for {build.os} {build.machine}, this is {here}"
                yield Rejection(torch=newest, backend=build.backend, reason=reason)
    asked, others = situation.backend, catalog.other_backends
    if asked in others:
        reason = "is not for NVIDIA GPUs, and other GPUs are not fitted"
        none = f"has no torch from 1.13 on that the catalog of {catalog.as_of} knows"
        for torch in others[asked] or ("any",):
            why = reason if others[asked] else none
            yield Rejection(torch=torch, backend=asked, reason=why)
    elif asked != "auto" and asked not in catalog.backends:
        yield Rejection(torch="any", backend=asked, reason="never existed")


def _with_companions(
    build: TorchBuild, situation: Situation, snapshot: Snapshot, catalog: Catalog
) -> TorchBuild:
    """The build without what refuses this very Python: a torchvision (3.14.1), a torchaudio. Its
    driver serves the GPUs too; on a Jetson there is no floor, whose driver is numbered apart."""
    own = build.driver_floor
    floors = (own, *(first for _, first in situation.first_drivers)) if own else ()
    floor = None if situation.board else max(floors, key=parsed, default=None)
    audio = beside(catalog, "torchaudio", build, python_tag(snapshot))
    build = replace(build, torchaudio=audio, driver_floor=floor)
    row = catalog.release_of(build.torch)
    excluded = row.torchvision_excludes if row else None
    if excluded is None or excluded != snapshot.python.version:
        return build
    return replace(build, torchvision=None)
