"""Which torch build fits a machine, and why the others do not.

All constraints hold jointly, for every visible GPU. The newest torch wins; within it the highest
CUDA that is at most the driver's own, else the highest of its family by minor-version
compatibility. With an unknown driver the newest torch of the last CUDA major but one, and its
lowest CUDA: most drivers serve that. A CPU build is the answer only if it is asked for, on macOS,
and if a source said that the machine has no NVIDIA GPU at all (a note says so): a GPU is never
left unused silently.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from gpusetup.accelerators.makers import LABEL
from gpusetup.catalog.builds import INDEX_ROOT, Catalog, index_url
from gpusetup.catalog.companions import beside
from gpusetup.catalog.kernels import served
from gpusetup.errors import Unsatisfiable, UsageError
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import (
    FAMILY,
    Advice,
    Choice,
    Rejection,
    Request,
    Resolution,
    TorchBuild,
)
from gpusetup.model.versions import parsed
from gpusetup.resolver.constraints import in_scope, is_beyond, pick, preference, why_not
from gpusetup.resolver.notes import notes_on
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
    host = situation_of(snapshot, request, catalog)
    found = _decided(host)
    if found.build is not None:
        found = replace(found, build=_as_it_is_here(found.build, host))
    return replace(found, notes=notes_on(found, host, snapshot))


def _as_it_is_here(build: TorchBuild, host: Situation) -> TorchBuild:
    """The build without a torchaudio that this Python has not. Its driver serves the GPUs too; on a
    Jetson there is no floor, whose driver is numbered apart."""
    own = build.driver_floor
    floors = (own, *(first for _, first in host.first_drivers)) if own and not host.board else ()
    return replace(
        build,
        torchaudio=beside(host.catalog, "torchaudio", build, host.python),
        driver_floor=max(floors, key=parsed, default=None),
    )


@lru_cache(maxsize=1024)
def _decided(host: Situation) -> Resolution:
    """The resolution of a situation, without what only this machine adds. Cached, because many
    reports are about the same situation."""
    reasons = [(build, why_not(build, host)) for build in in_scope(host)]
    fitting = [build for build, reason in reasons if reason is None]
    chosen = min(fitting, key=preference(host), default=None)
    by_conda = replace(host, channels=CONDA_CHANNELS)
    others = sorted((b for b in fitting if b != chosen), key=preference(host))
    newest = chosen.torch if chosen else None
    rejections = [
        Rejection(torch=build.torch, backend=build.backend, reason=reason)
        for build, why in reasons
        if (reason := why or _passed_over(build, newest, host))
    ]
    return Resolution(
        build=chosen,
        index_url=index_url(chosen.backend) if chosen and chosen.channel == "pytorch" else None,
        served=served(chosen, host.gpus, host.driver_cuda) if chosen else (),
        fallbacks=tuple(
            Choice(
                torch=build.torch,
                backend=build.backend,
                index_url=index_url(build.backend) if build.channel == "pytorch" else build.channel,
            )
            for build in others
            if build.torch == newest and build.cuda
        ),
        rejections=tuple(rejections),
        conda=pick(by_conda) if host.channels == WHEELS else None,
        advice=_best_change(host, chosen),
        catalog_as_of=host.catalog.as_of,
    )


def _passed_over(build: TorchBuild, newest: str | None, host: Situation) -> str | None:
    """Why a build of another torch is left although it fits."""
    if build.torch == newest:
        return None
    if is_beyond(build, host):
        return f"needs NVIDIA driver {build.driver_floor}, and the driver here is unknown"
    return f"fits, but torch {newest} is newer"


# --- the single change that would help most ------------------------------------------------------


def _best_change(host: Situation, chosen: TorchBuild | None) -> Advice | None:
    """The change that gives the newest torch, one that keeps the request before one that does not;
    of two equally good the first. With an answer there, only a newer torch counts."""
    found: list[tuple[tuple[bool, bool, tuple[int, ...]], Advice]] = []
    for kind, to, changes in _changes(host):
        keeps, changed = kind not in ("torch", "backend"), replace(host, **changes)
        build = pick(changed, chosen.torch if chosen else "0") if keeps or not chosen else None
        if build is not None:
            rank = (keeps, not is_beyond(build, changed), parsed(build.torch).release)
            gives = f"torch {build.torch} ({build.backend})"
            to = to or (build.torch if kind == "torch" else build.backend)
            found.append((rank, Advice(change=kind, to=to, gives=gives)))
    return max(found, key=lambda row: row[0])[1] if found else None


Kind = Literal["driver", "python", "torch", "backend"]


def _changes(host: Situation) -> Iterator[tuple[Kind, str, dict[str, Any]]]:
    """What could be changed, the least costly first: what, to what, and what differs then."""
    builds = in_scope(host)
    known: dict[str, Any] = {"driver": None, "trusts_cuda": False, "assumed_driver": None}
    firsts = [first for _, first in host.first_drivers]
    floors = {build.driver_floor for build in builds if build.driver_floor and not host.board}
    catalog = host.catalog
    too_new = catalog.ends_before(host.gpus, host.driver)
    ends = {str(catalog.last_branch(gpu.compute_capability)) for gpu in host.gpus if too_new}
    reached = {max((*firsts, floor), key=parsed) for floor in floors}
    for driver in sorted({*ends, *reached}, key=parsed):
        newer = driver in ends or parsed(driver) > parsed(host.driver or "0")
        if newer and not catalog.ends_before(host.gpus, driver):
            cuda = catalog.driver_cuda(driver)
            yield "driver", driver, {**known, "driver": driver, "driver_cuda": cuda}
    pythons = {one for build in builds for one in build.pythons if not one.endswith("t")}
    minor = parsed((host.python or "").rstrip("t")).minor
    for python in sorted(pythons, key=lambda one: abs(parsed(one).minor - minor)) if minor else ():
        yield "python", python, {"python": python, "python_bits": 64}
    yield "torch", "", {"torch": None}
    yield "backend", "", {"backend": host.backend if host.backend == "cpu" else "auto"}


def nothing_fits(resolution: Resolution) -> Unsatisfiable:
    """Why: what was asked for, or what keeps the builds of that from this machine."""
    advice = resolution.advice
    asked = [r for r in resolution.rejections if not r.reason.startswith("is not the ")]
    reasons = [f"{r.torch} {r.backend}: {r.reason}" for r in asked[:5]]
    return Unsatisfiable(
        "\n  ".join(("No PyTorch build fits this machine", *resolution.notes, *reasons)),
        hint=f"another {advice.change} ({advice.to}) gives {advice.gives}" if advice else None,
    )


# --- the document, and what is asked -------------------------------------------------------------


OF_A_BUILD = ("torch", "torchvision", "torchaudio", "backend", "driver_floor")


def to_answer(
    resolution: Resolution,
    snapshot: Snapshot,
    packages: tuple[str, ...] = FAMILY,
    conda_name: str | None = None,
) -> ResolveAnswer:
    """The public document of a resolution, with the commands of every installer.

    `packages` are torch and what comes along with it; of what is not torch's family conda is not
    told, because pip installed it. `conda_name` is a new environment for conda's commands.
    """
    from gpusetup.installers import INSTALLERS, InstallerOptions
    from gpusetup.model.documents import ResolveAnswer

    build, commands = resolution.build, {}
    for name, steps in INSTALLERS.items() if build else ():
        by_conda = name == "conda"
        options = InstallerOptions(
            index_root=resolution.index_root or INDEX_ROOT,
            python=snapshot.python.executable,
            packages=tuple(p for p in packages if p in FAMILY) if by_conda else packages,
            conda_prefix=snapshot.python.prefix if snapshot.python.manager == "conda" else None,
            conda_name=conda_name,
            conda_python=python_tag(snapshot),
        )
        try:
            commands[name] = tuple(step.argv for step in steps(resolution, options))
        except Unsatisfiable:
            commands[name] = ()
    same = ("index_url", "served", "fallbacks", "rejections", "advice", "notes", "catalog_as_of")
    told: dict[str, Any] = {name: getattr(build, name, None) for name in OF_A_BUILD}
    told |= {name: getattr(resolution, name) for name in same}
    return ResolveAnswer(commands=commands, python=python_tag(snapshot), **told)


def check_request(request: Request, catalog: Catalog) -> None:
    """Raise UsageError for a request that is malformed, contradictory or names what never was."""
    specifier(request.torch)
    labelled = label_of(request.torch)
    if labelled and request.backend not in ("auto", labelled):
        raise UsageError(
            f"`--torch {request.torch}` asks for {labelled} and `--backend` for {request.backend}",
            hint="give one of them",
        )
    backend = labelled or request.backend
    # A word of the person's own goes into a command only if it looks like a label.
    shown = backend if re.fullmatch(LABEL, backend) else "NAME"
    if backend not in ("auto", *catalog.backends):
        raise UsageError(
            f"The catalog of {catalog.as_of} knows no torch for {backend!r}",
            hint="`auto` takes what fits; or name one, such as `cpu` or `cu126`. `gpusetup resolve "
            f"--backend {shown} --refresh` asks PyTorch's index now",
        )
