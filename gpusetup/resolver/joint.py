"""torch chosen with the packages that need it: the words, and with which builds each has a release.
Pure: our table of companions is one more constraint on builds."""

from __future__ import annotations

import re
from collections.abc import Sequence

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.companion_table import (
    Pair,
    Project,
    companion_table,
    has_cuda,
    row_of,
    without,
)
from gpusetup.catalog.companions import beside
from gpusetup.catalog.default_wheels import usual_major
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Request, TorchBuild
from gpusetup.model.versions import allows, parsed
from gpusetup.resolver.companions import COMPANIONS, FAMILY
from gpusetup.resolver.constraints import fits, in_scope, preference
from gpusetup.resolver.situation import Situation, situation_of

OLDEST = "2.5"
"""Older torch is tried only if it, or a release of a package, is asked for."""
OF_TORCH = ("triton",)
"""What torch's own METADATA names by its version: a stand-in of torch has none of that."""
EXACT = re.compile(r"===?([^*,]+)")
"""One release by its version."""
EXTRA = re.compile(r"cu(?:da)?_?(1\d)(?!\d)")
"""`jax[cuda12]`: an extra that brings the libraries of one CUDA."""


class Asked(Frozen):
    """What is to go together, and on which machine."""

    machine: Snapshot
    request: Request
    catalog: Catalog
    words: tuple[str, ...] = ()
    alone: bool = False
    """Whether only the table is asked: then what it says of packages that declare their torch
    themselves counts too."""

    @property
    def host(self) -> Situation:
        return situation_of(self.machine, self.request, self.catalog)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(map(name_of, self.words))

    @property
    def projects(self) -> tuple[Project, ...]:
        """What the table knows of the words."""
        return tuple(filter(None, map(companion_table().project, self.names)))


# --- words ---------------------------------------------------------------------------------------


def name_of(word: str) -> str:
    """
    >>> name_of("jax[cuda13]>=0.7")
    'jax'
    """
    return canonicalize_name(Requirement(word).name)


def by_name(words: Sequence[str]) -> tuple[str, ...]:
    """The words in the order of their names: an answer does not depend on how they were typed, nor
    on how often.

    >>> by_name(["torchao", "numpy>=2", "torchao"])
    ('numpy>=2', 'torchao')
    """
    return tuple(sorted({str(Requirement(word)) for word in words}, key=name_of))


def extras_of(words: Sequence[str], name: str) -> tuple[str, ...]:
    """The extras that were asked for with a package."""
    named = (Requirement(word) for word in words if name_of(word) == name)
    return tuple(sorted({extra for said in named for extra in said.extras}))


def labelled(name: str, version: str, build: TorchBuild) -> str:
    """The version of a member of torch's family as torch's index has it.

    >>> from gpusetup.catalog.file import load_catalog
    >>> build = load_catalog().row_of("2.13.0", "cu130", "linux", "x86_64")
    >>> labelled("torchvision", "0.28.0", build), labelled("vllm", "0.32.0", build)
    ('0.28.0+cu130', '0.32.0')
    """
    if name in FAMILY and build.labelled:
        return f"{version.partition('+')[0]}+{build.backend}"
    return version


# --- builds --------------------------------------------------------------------------------------


def candidates(
    asked: Asked, projects: Sequence[Project], prefer: TorchBuild | None = None
) -> tuple[TorchBuild, ...]:
    """The builds to try, the newest torch first, the best for the machine first among those of one
    torch: those beside which each project has a release. `prefer` is the best of its torch."""
    host = asked.host
    oldest = any(Requirement(word).specifier for word in asked.words) or asked.request.torch
    found = [
        build
        for build in in_scope(host)
        if (oldest or parsed(build.torch) >= parsed(OLDEST))
        and fits(build, host)
        and none_beside(asked, projects, build) is None
    ]
    best = sorted(found, key=lambda build: (build != prefer, preference(host)(build)))
    return tuple(sorted(best, key=lambda build: parsed(build.torch), reverse=True))


def none_beside(asked: Asked, projects: Sequence[Project], build: TorchBuild) -> str | None:
    """Why a build has no release of one of the projects beside it; None if each has one."""
    for word in asked.words if build.cuda else ():
        said = [m[1] for extra in Requirement(word).extras if (m := EXTRA.match(extra))]
        if said and build.cuda_major not in said:
            return f"{word} is built for CUDA {' and '.join(said)}, torch for CUDA {build.cuda}"
    for project in projects:
        reasons = [why_not(asked, project, row, build) for row in _rows(asked, project, build)]
        if reasons and all(reasons):
            return reasons[0]
    return None


def _rows(asked: Asked, project: Project, build: TorchBuild) -> tuple[Pair, ...]:
    """The rows that are meant: that of a release that is asked for by its version, else those of a
    span of releases: one release that was built otherwise says nothing of the others. torch's index
    of one backend has one torchvision and one torchaudio for a torch."""
    if project.name in COMPANIONS:
        known = _own(asked, project.name, build)
        return (Pair(versions=f"=={known}", torch=f"=={build.torch}"),)
    words = (Requirement(word) for word in asked.words if name_of(word) == project.name)
    exact = (found[1] for word in words if (found := EXACT.fullmatch(str(word.specifier))))
    own = tuple(row for version in exact if (row := row_of(project, version)))
    spans = tuple(row for row in project.rows if not EXACT.fullmatch(row.versions))
    return own or spans or project.rows


def _own(asked: Asked, name: str, build: TorchBuild) -> str | None:
    return beside(asked.catalog, name, build, asked.host.python)  # type: ignore[arg-type]


def row_beside(asked: Asked, project: Project, build: TorchBuild) -> Pair | None:
    """The newest row of a project that goes with a build; None if none does."""
    rows = _rows(asked, project, build)
    spans = [row for row in rows if row.torch] or rows
    return next((row for row in spans if why_not(asked, project, row, build) is None), None)


def why_not(asked: Asked, project: Project, row: Pair, build: TorchBuild) -> str | None:
    """Why the releases of a row do not go with a build."""
    version = row.versions.removeprefix("==")
    if project.name in COMPANIONS:
        this = f"torch {build.torch} of {build.backend}"
        words = (Requirement(word) for word in asked.words if name_of(word) == project.name)
        if (own := _own(asked, project.name, build)) is None:
            return f"no {project.name} is known for {this}"
        wrong = own != version and build.labelled
        if not wrong and all(word.specifier.contains(own, prereleases=True) for word in words):
            return None
        return f"{this} goes with {project.name} {own}"
    said, usual = f"{project.name} {version}", usual_major(asked.catalog, build)
    if not has_cuda(project, row, build.cuda_major, usual):
        majors = " and ".join(row.cuda.split()).replace("default", usual)
        torch = f"torch for CUDA {build.cuda}" if build.cuda else f"this torch is {build.backend}'s"
        return f"{said} is built for CUDA {majors}, {torch} ({row.source})"
    counts = asked.alone or not project.declares or project.name in OF_TORCH
    if not (counts and row.torch) or allows(row.torch, build.torch):
        return None
    return f"{said} needs torch{row.torch} ({row.source})"


def refused(asked: Asked, name: str, version: str, build: TorchBuild) -> str | None:
    """Why a release does not go with a build; None if nothing speaks against it."""
    project = companion_table().project(name)
    if project is None:
        return None
    row = Pair(versions=version) if name in COMPANIONS else row_of(project, version)
    reason = why_not(asked, project, row, build) if row else None
    return reason.replace(row.versions.removeprefix("=="), version, 1) if row and reason else None


def limits_beside(asked: Asked, project: Project, build: TorchBuild) -> tuple[str, ...]:
    """What to forbid of a project beside a build, as an installer's constraints."""
    if project.name in COMPANIONS and build.labelled:
        own = _own(asked, project.name, build)
        return (f"{project.name}=={own}",) if own else ()
    return without(project, [row for row in project.rows if why_not(asked, project, row, build)])


def not_here(asked: Asked) -> tuple[Project, str, str] | None:
    """The first package that has nothing for this machine whatever the torch: it, why, and the case
    in which its row names something else."""
    family, machine = asked.machine.os.family or "", asked.machine.os.machine
    for one in asked.projects:
        if f"{family}-{machine}" not in (there := one.on.split()):
            return one, f"has no build for {family}-{machine} (only {', '.join(there)})", family
        floor = one.least_capability()
        for gpu in asked.host.gpus if floor else ():
            known = gpu.compute_capability
            if known and floor and known < floor:
                return one, f"needs a GPU of compute capability {floor}; {gpu.name} has {known}", ""
    best = candidates(asked, ())[:1]
    if best and best[0].cuda is None and best[0].os != "macos":
        said = "computes on an NVIDIA GPU only, and none is here"
        return next(((one, said, "no GPU") for one in asked.projects if one.gpu), None)
    return None
