"""torch chosen with the packages that need it: the words, and with which builds each has a release.
Pure: our table of companions is one more constraint on builds."""

from __future__ import annotations

import re
from collections.abc import Sequence

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from gpusetup.catalog.builds import Catalog, index_url
from gpusetup.catalog.companion_table import (
    Pair,
    Project,
    companion_table,
    has_cuda,
    row_of,
    without,
)
from gpusetup.catalog.companions import usual_major
from gpusetup.errors import Unsatisfiable
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Driver, Snapshot
from gpusetup.model.resolution import FAMILY, HeldBack, JointPackage, Request, TorchBuild
from gpusetup.model.versions import allows, parsed
from gpusetup.resolver.constraints import fits, in_scope, preference
from gpusetup.resolver.decide import nothing_fits, resolve
from gpusetup.resolver.situation import Situation, situation_of

OLDEST = "2.5"
"""Older torch is tried only if it, or a release of a package, is asked for."""
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


class Joint(Frozen):
    """What goes together, and why not something newer."""

    build: TorchBuild
    packages: tuple[JointPackage, ...]
    held_back: tuple[HeldBack, ...] = ()
    notes: tuple[str, ...] = ()


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


def candidates(asked: Asked, prefer: TorchBuild | None = None) -> tuple[TorchBuild, ...]:
    """The builds to try, the newest torch first, the best for the machine first among those of one
    torch: those beside which each project has a release. `prefer` is the best of its torch."""
    host = asked.host
    oldest = any(Requirement(word).specifier for word in asked.words) or asked.request.torch
    found = [
        build
        for build in in_scope(host)
        if (oldest or parsed(build.torch) >= parsed(OLDEST))
        and fits(build, host)
        and none_beside(asked, build) is None
    ]
    best = sorted(found, key=lambda build: (build != prefer, preference(host)(build)))
    return tuple(sorted(best, key=lambda build: parsed(build.torch), reverse=True))


def none_beside(asked: Asked, build: TorchBuild) -> str | None:
    """Why a build has no release of one of the packages beside it; None if each has one."""
    for word in asked.words if build.cuda else ():
        said = [m[1] for extra in Requirement(word).extras if (m := EXTRA.match(extra))]
        if said and build.cuda_major not in said:
            return f"{word} is built for CUDA {' and '.join(said)}, torch for CUDA {build.cuda}"
    for project in asked.projects:
        if gone := not_here(asked, project, build):
            return gone
        reasons = [why_not(asked, project, row, build) for row in _rows(asked, project)]
        if reasons and all(reasons):
            return reasons[0]
    return None


def _rows(asked: Asked, project: Project) -> tuple[Pair, ...]:
    """The rows that are meant: that of a release that is asked for by its version, else those of a
    span of releases: one release that was built otherwise says nothing of the others. If only the
    table is asked, all."""
    words = (Requirement(word) for word in asked.words if name_of(word) == project.name)
    exact = (found[1] for word in words if (found := EXACT.fullmatch(str(word.specifier))))
    own = tuple(row for version in exact if (row := row_of(project, version)))
    spans = tuple(row for row in project.rows if not EXACT.fullmatch(row.versions))
    meant = own or (not asked.alone and spans) or project.rows
    return (asked.alone and tuple(row for row in meant if row.torch)) or meant


def why_not(asked: Asked, project: Project, row: Pair, build: TorchBuild) -> str | None:
    """Why the releases of a row do not go with a build."""
    said = f"{project.name} {row.versions.removeprefix('==')}"
    usual = usual_major(asked.catalog, build)
    if not has_cuda(project, row, build.cuda_major, usual):
        majors = " and ".join(row.cuda.split()).replace("default", usual)
        torch = f"torch for CUDA {build.cuda}" if build.cuda else f"this torch is {build.backend}'s"
        return f"{said} is built for CUDA {majors}, {torch} ({row.source})"
    counts = asked.alone or not project.declares
    if not (counts and row.torch) or allows(row.torch, build.torch):
        return None
    return f"{said} needs torch{row.torch} ({row.source})"


def refused(asked: Asked, name: str, version: str, build: TorchBuild) -> str | None:
    """Why a release does not go with a build; None if nothing speaks against it."""
    project = companion_table().project(name)
    row = row_of(project, version) if project else None
    reason = why_not(asked, project, row, build) if project and row else None
    return reason.replace(row.versions.removeprefix("=="), version, 1) if row and reason else None


def limits_beside(asked: Asked, build: TorchBuild) -> tuple[str, ...]:
    """What to forbid beside a build, as an installer's constraints."""
    return tuple(
        text
        for one in companion_table().projects
        for text in without(one, [row for row in one.rows if why_not(asked, one, row, build)])
    )


def not_here(asked: Asked, project: Project, build: TorchBuild) -> str | None:
    """Why a package has nothing for this machine, whatever its release."""
    place, there = f"{build.os}-{build.machine}", project.on.split()
    if place not in there:
        return f"{project.name} has no build for {place} (only {', '.join(there)})"
    if project.gpu and build.cuda is None and build.os != "macos":
        return f"{project.name} computes on an NVIDIA GPU only, and none is here"
    floor = project.capability
    for gpu in asked.host.gpus:
        known = gpu.compute_capability
        if known and floor and known < floor:
            needs = f"{project.name} needs a GPU of compute capability {floor}"
            return f"{needs}; {gpu.name} has {known}"
    return None


# --- by our table ---------------------------------------------------------------------------------


def builds_for(asked: Asked, prefer: TorchBuild | None = None) -> tuple[TorchBuild, ...]:
    """The builds to try; Unsatisfiable if a package has nothing here, or none fits."""
    if builds := candidates(asked, prefer):
        return builds
    fitting = candidates(replace(asked, words=()))
    if not fitting:
        raise nothing_fits(resolve(asked.machine, asked.request, asked.catalog))
    newest, driver = fitting[0], asked.machine.driver.version
    there = f" (driver {driver})" if driver else ""
    ways = [
        f"for {one.name}: {one.way_out(newest, index_url(newest.backend))}"
        for one in asked.projects
        if none_beside(replace(asked, words=(one.name,)), newest)
    ]
    later = candidates(replace(asked, machine=replace(asked.machine, driver=Driver())))
    if later and later[0].driver_floor and later[0].cuda_major != newest.cuda_major:
        ways.append(f"or a driver for CUDA {later[0].cuda_major}: {later[0].driver_floor} or newer")
    raise Unsatisfiable(
        f"No matching set loads here: {none_beside(asked, newest)}; the "
        f"newest that fits here{there} is torch {newest.torch} of {newest.backend}",
        hint="; ".join(("nothing was changed", *ways)),
    )


def by_table(asked: Asked) -> Joint:
    """The newest torch that our table takes with every package."""
    asked, table = replace(asked, alone=True), companion_table()
    build = builds_for(asked)[0]
    said = f"offline: from the table of companions of {table.as_of} alone"
    unknown = [name for name in asked.names if table.project(name) is None]
    more = (f"offline nothing is known of {' and '.join(unknown)}",) if unknown else ()
    version, index = labelled("torch", build.torch, build), index_url(build.backend)
    torch = JointPackage(name="torch", version=version, index_url=index)
    others = (_not_asked(asked, word, build) for word in asked.words)
    return Joint(build=build, packages=(torch, *others), notes=(said, *more))


def _not_asked(asked: Asked, word: str, build: TorchBuild) -> JointPackage:
    """A package of which nobody was asked, within what was asked for and what the table takes
    beside a torch."""
    name = name_of(word)
    project, limits = companion_table().project(name), Requirement(word).specifier
    for row in _rows(asked, project) if project else ():
        if project and not why_not(asked, project, row, build):
            limits &= SpecifierSet(row.versions if row.torch or row.cuda else "")
            break
    return JointPackage(
        name=name,
        version=None,
        limits=str(limits) or None,
        declared=project is None,
        asked=True,
        extras=extras_of((word,), name),
    )
