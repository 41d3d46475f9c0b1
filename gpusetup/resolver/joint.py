"""torch chosen with what is to stand on it: the words, and beside which builds each has a release.
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
    runs_there,
    without,
)
from gpusetup.catalog.companions import beside
from gpusetup.catalog.default_wheels import usual_major
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Request, TorchBuild
from gpusetup.model.versions import allows, parsed
from gpusetup.resolver.choice import in_scope, preference
from gpusetup.resolver.companions import COMPANIONS, FAMILY
from gpusetup.resolver.constraints import fits
from gpusetup.resolver.situation import python_tag, situation_of

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
    """Whether nobody but the table is asked: then what it says of packages that declare their torch
    themselves counts too."""

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
    """The words in the order of their names, one of each: an answer does not depend on how they
    were typed, nor on how often.

    >>> by_name(["torchao", "numpy>=2", "NumPy<3", "numpy>=2"])
    ('numpy<3,>=2', 'torchao')
    """
    free: dict[str, Requirement] = {}
    exact = []
    for said in map(Requirement, words):
        if said.url or said.marker:
            exact.append(str(said))
            continue
        first = free.setdefault(canonicalize_name(said.name), said)
        first.extras |= said.extras
        first.specifier &= said.specifier
    return tuple(sorted((*dict.fromkeys(exact), *map(str, free.values())), key=name_of))


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
    situation = situation_of(asked.machine, asked.request, asked.catalog)
    pinned = any(Requirement(word).specifier for word in asked.words)
    fitting = [
        build
        for build in in_scope(situation, asked.catalog)
        if fits(build, situation)
        and (pinned or asked.request.torch or parsed(build.torch) >= parsed(OLDEST))
    ]
    best = sorted(fitting, key=lambda b: (b != prefer, preference(situation)(b)))
    found = (build for build in best if none_beside(asked, projects, build) is None)
    return tuple(sorted(found, key=lambda b: parsed(b.torch), reverse=True))


def none_beside(asked: Asked, projects: Sequence[Project], build: TorchBuild) -> str | None:
    """Why a build has no release of one of the projects beside it; None if each has one."""
    for word in asked.words if build.cuda else ():
        said = [m[1] for extra in Requirement(word).extras if (m := EXTRA.match(extra))]
        if said and build.cuda_major not in said:
            return f"{word} is built for CUDA {' and '.join(said)}, torch for CUDA {build.cuda}"
    for project in projects:
        reasons = [_row_refused(asked, project, row, build) for row in _rows(asked, project)]
        if project.name in COMPANIONS:
            reasons = [_not_of_the_family(asked, project.name, build)]
        if reasons and all(reasons):
            return reasons[0]
    return None


def _rows(asked: Asked, project: Project) -> tuple[Pair, ...]:
    """The rows that are meant: that of a release that is asked for by its version, else those of a
    span of releases: one release that was built otherwise says nothing of the others."""
    words = (Requirement(word) for word in asked.words if name_of(word) == project.name)
    exact = (found[1] for word in words if (found := EXACT.fullmatch(str(word.specifier))))
    own = tuple(row for version in exact if (row := row_of(project, version)))
    spans = tuple(row for row in project.rows if not EXACT.fullmatch(row.versions))
    return own or spans or project.rows


def row_beside(asked: Asked, project: Project, build: TorchBuild) -> Pair | None:
    """The newest row of a project that goes with a build; None if none does."""
    pages = {wheel.torch for wheel in project.releases}
    if pages and ".".join(build.torch.split(".")[:2]) not in pages:
        return None
    rows = (
        row for row in _rows(asked, project) if row.torch or not any(r.torch for r in project.rows)
    )
    return next((row for row in rows if _row_refused(asked, project, row, build) is None), None)


def _row_refused(asked: Asked, project: Project, row: Pair, build: TorchBuild) -> str | None:
    said, usual = (
        f"{project.name} {row.versions.removeprefix('==')}",
        usual_major(asked.catalog, build),
    )
    if not has_cuda(project, row, build.cuda_major, usual):
        majors = " and ".join(row.cuda.split()).replace("default", usual)
        torch = f"torch for CUDA {build.cuda}" if build.cuda else f"this torch is {build.backend}'s"
        return f"{said} is built for CUDA {majors}, {torch} ({row.source})"
    counts = asked.alone or not project.declares or project.name in OF_TORCH
    if not (counts and row.torch) or allows(row.torch, build.torch):
        return None
    return f"{said} needs torch{row.torch} ({row.source})"


def _not_of_the_family(asked: Asked, name: str, build: TorchBuild) -> str | None:
    """torch's index of one backend has one torchvision and one torchaudio for a torch."""
    own = beside(asked.catalog, name, build, python_tag(asked.machine))  # type: ignore[arg-type]
    words = (Requirement(word) for word in asked.words if name_of(word) == name)
    if own is None:
        return f"no {name} is known for torch {build.torch} of {build.backend}"
    if all(word.specifier.contains(own, prereleases=True) for word in words):
        return None
    return f"torch {build.torch} of {build.backend} goes with {name} {own}"


def refused(asked: Asked, name: str, version: str, build: TorchBuild) -> str | None:
    """Why a release does not go with a build; None if nothing speaks against it."""
    project = companion_table().project(name)
    if project is None:
        return None
    if name in COMPANIONS:
        own = beside(asked.catalog, name, build, python_tag(asked.machine))
        if own == version or not build.labelled:
            return None
        return f"torch {build.torch} of {build.backend} goes with {name} {own or 'of no version'}"
    row = row_of(project, version)
    if row is None:
        return None
    reason = _row_refused(asked, project, row, build)
    return reason and reason.replace(row.versions.removeprefix("=="), version, 1)


def limits_beside(asked: Asked, project: Project, build: TorchBuild) -> tuple[str, ...]:
    """What to forbid of a project beside a build, as an installer's constraints."""
    if project.name in COMPANIONS and build.labelled:
        own = beside(asked.catalog, project.name, build, python_tag(asked.machine))
        return (f"{project.name}=={own}",) if own else ()
    wrong = [row for row in project.rows if _row_refused(asked, project, row, build)]
    return without(project, wrong)


NO_GPU = "computes on an NVIDIA GPU only, and none is here"


def not_here(asked: Asked) -> tuple[Project, str, str] | None:
    """The first package that has nothing for this machine whatever the torch: it, why, and the case
    in which its row names something else."""
    machine = asked.machine
    platform = f"{machine.os.family}-{machine.os.machine}"
    situation = situation_of(machine, asked.request, asked.catalog)
    for one in asked.projects:
        floor = one.least_capability()
        old = [
            g
            for g in situation.gpus
            if floor and g.compute_capability and g.compute_capability < floor
        ]
        if not runs_there(one, platform):
            there = f"has no build for {platform} (only {', '.join(one.on.split())})"
            return one, there, machine.os.family or ""
        if old:
            has = f"{old[0].name} has {old[0].compute_capability}"
            return one, f"needs a GPU of compute capability {floor}; {has}", ""
    best = candidates(asked, ())[:1]
    if best and best[0].cuda is None and best[0].os != "macos":
        return next(((one, NO_GPU, "no GPU") for one in asked.projects if one.gpu), None)
    return None
