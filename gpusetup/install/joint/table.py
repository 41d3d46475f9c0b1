"""A joint question's answer from our own table of companions, where nobody is asked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gpusetup.catalog.builds import Catalog, index_url
from gpusetup.catalog.companion_table import Project, companion_table, takes_torch
from gpusetup.catalog.kernels import release
from gpusetup.errors import Blocked, Unsatisfiable
from gpusetup.install.joint.words import by_name, extras_of, name_of, projects_of
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Cell, HeldBack, JointPackage, Request, TorchBuild
from gpusetup.resolver import resolve
from gpusetup.resolver.joint import Asked, candidates, labelled, needs_gpu, not_there
from gpusetup.resolver.situation import situation_of


class Joint(Frozen):
    """What goes together, and why not something newer."""

    build: TorchBuild
    packages: tuple[JointPackage, ...]
    hashes: Mapping[str, tuple[str, ...]] = {}
    """Package -> sha256 of its wheels, where the index names them."""
    held_back: tuple[HeldBack, ...] = ()
    matrix: tuple[Cell, ...] = ()
    refused: tuple[HeldBack, ...] = ()
    """What would be an old release: a "no"."""
    notes: tuple[str, ...] = ()


def candidates_of(
    machine: Snapshot,
    request: Request,
    catalog: Catalog,
    asked: Asked,
    prefer: TorchBuild | None,
) -> tuple[TorchBuild, ...]:
    """The builds to try; Unsatisfiable where a package has nothing here, or none fits."""
    situation, projects = situation_of(machine, request, catalog), asked.projects
    gone = not_there(projects, machine, situation)
    builds = candidates(machine, request, catalog, asked, prefer)
    if builds and builds[0].cuda is None and builds[0].os != "macos":
        gone |= {p.name: NO_GPU for p in projects if needs_gpu(p) and p.name not in gone}
    if gone:
        name, reason = next(iter(gone.items()))
        other = next(p.alternative for p in projects if p.name == name)
        raise Unsatisfiable(f"{name} {reason}", hint=f"nothing was changed; instead: {other}")
    if not builds:
        raise Unsatisfiable(*_nothing_fits(machine, request, catalog, asked))
    return builds


def _nothing_fits(
    machine: Snapshot, request: Request, catalog: Catalog, asked: Asked
) -> tuple[str, str]:
    """Why no build fits: the CUDA that the packages ask for, or the machine and the request."""
    others = candidates(machine, request, catalog, Asked(projects=()))
    if not others or not asked.majors:
        every = resolve(machine, request, catalog).rejections
        near = [one for one in every if not one.reason.startswith(("is not the ", "is a CPU"))]
        one = next(iter(near or every), None)
        why = f": torch {one.torch} of {one.backend} {one.reason}" if one else ""
        return (
            f"No torch build fits this machine and these packages{why}",
            "`gpusetup resolve --explain` without packages says why each torch does not",
        )
    names, majors = " and ".join(asked.built_for_cuda), " and ".join(sorted(asked.majors))
    driver = f" with driver {machine.driver.version}" if machine.driver.version else ""
    return (
        f"{names} is built for CUDA {majors}, and no torch of CUDA {majors} fits this machine"
        f"{driver}: the newest that fits is torch {others[0].torch}+{others[0].backend}",
        f"nothing was changed; take what is built for CUDA {release(others[0].cuda or '0')[0]}, "
        "or update the driver: `gpusetup doctor` names the one",
    )


NO_GPU = "computes on an NVIDIA GPU only, and none is here"


def by_table(machine: Snapshot, request: Request, words: Sequence[str], catalog: Catalog) -> Joint:
    """The set for a machine and some requirements, by our table alone."""
    projects = projects_of([name_of(word) for word in words], companion_table())
    asked = Asked(words=tuple(words), projects=projects)
    return from_table(words, candidates_of(machine, request, catalog, asked, None))


def from_table(words: Sequence[str], builds: Sequence[TorchBuild]) -> Joint:
    """The newest torch that our table takes with every package; Blocked where it has none."""
    words, table = by_name(words), companion_table()
    names = tuple(map(name_of, words))
    projects = projects_of(names, table)
    for build in builds:
        if all(_in_table(project, build.torch) for project in projects):
            rows = tuple(_not_asked(words, name) for name in names)
            said = f"offline: from the table of companions of {table.as_of} alone"
            unknown = [name for name in names if table.project(name) is None]
            more = (f"offline nothing is known of {' and '.join(unknown)}",) if unknown else ()
            return Joint(build=build, packages=(_torch(build), *rows), notes=(said, *more))
    raise Blocked(
        "Offline, and the table of companions has no torch that goes with " + " and ".join(words),
        hint="run it without `--offline`",
    )


def _not_asked(words: Sequence[str], name: str) -> JointPackage:
    """A package whose releases nobody was asked for."""
    return JointPackage(
        name=name,
        version=None,
        declared=companion_table().project(name) is None,
        asked=True,
        extras=extras_of(words, name),
    )


def _torch(build: TorchBuild) -> JointPackage:
    version = labelled("torch", build.torch, build)
    return JointPackage(
        name="torch", version=version, index_url=index_url(build.backend), declared=True
    )


def _in_table(project: Project, torch: str) -> bool:
    spoken = [row for row in project.rows if row.torch]
    pages = {wheel.torch for wheel in project.releases}
    if pages:
        return ".".join(torch.split(".")[:2]) in pages
    return not spoken or any(takes_torch(project, _some(r.versions), torch) for r in spoken)


def _some(specifier: str) -> str:
    return re.sub(r"[<>=!]+|\.\*", "", specifier)
