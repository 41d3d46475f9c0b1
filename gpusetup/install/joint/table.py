"""A joint question's answer from our own table of companions, where nobody is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from gpusetup.catalog.builds import Catalog, index_url
from gpusetup.catalog.companion_table import Pair, Project, companion_table, has_cuda, row_of
from gpusetup.catalog.default_wheels import usual_major
from gpusetup.catalog.kernels import release
from gpusetup.errors import Blocked, Unsatisfiable
from gpusetup.install.joint.words import by_name, extras_of, name_of, projects_of
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Driver, Snapshot
from gpusetup.model.resolution import Cell, HeldBack, JointPackage, Request, TorchBuild
from gpusetup.model.versions import allows, parsed
from gpusetup.resolver import resolve
from gpusetup.resolver.joint import Asked, candidates, labelled, majors_here, needs_gpu, not_there
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
    case: str = machine.os.family or ""
    builds = candidates(machine, request, catalog, asked, prefer)
    if builds and builds[0].cuda is None and builds[0].os != "macos":
        lacks = {p.name: NO_GPU for p in projects if needs_gpu(p) and p.name not in gone}
        gone, case = gone | lacks, case if gone else "no GPU"
    if gone:
        name, reason = next(iter(gone.items()))
        other = next(p.way_out(case) for p in projects if p.name == name)
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


def other_cuda_only(
    machine: Snapshot,
    request: Request,
    catalog: Catalog,
    joint: Joint,
    others: Mapping[str, str],
) -> Unsatisfiable:
    """That every set has something that would not load, and what would serve."""
    table = companion_table()
    said = "; ".join(others.values())
    index = index_url(joint.build.backend)
    known = [own for name in others if (own := table.project(name))]
    ways = [f"for {one.name}: {one.way_out('CUDA', index)}" for one in known]
    newest = replace(machine, driver=Driver())
    later = candidates(newest, request, catalog, Asked())[:1]
    if later and later[0].cuda_major != joint.build.cuda_major and later[0].driver_floor:
        ways.append(f"or a driver for CUDA {later[0].cuda_major}: {later[0].driver_floor} or newer")
    return Unsatisfiable(
        f"Nothing that goes together loads here: {said}",
        hint=f"nothing was changed; {'; '.join(ways)}",
    )


def by_table(machine: Snapshot, request: Request, words: Sequence[str], catalog: Catalog) -> Joint:
    """The set for a machine and some requirements, by our table alone."""
    projects = projects_of([name_of(word) for word in words], companion_table())
    asked = Asked(words=tuple(words), projects=projects)
    builds = candidates_of(machine, request, catalog, asked, None)
    tried = (
        candidates(machine, request, catalog, replace(asked, only=major))
        for major in majors_here(machine, request, catalog, asked)
    )
    every = {one for some in tried for one in some} - {*builds}
    rows = sorted((*builds, *every), key=lambda b: parsed(b.torch), reverse=True)
    return from_table(words, rows, catalog)


def from_table(words: Sequence[str], builds: Sequence[TorchBuild], catalog: Catalog) -> Joint:
    """The newest torch that our table takes with every package; Blocked where it has none."""
    words, table = by_name(words), companion_table()
    for build in builds:
        rows = [_not_asked(word, build, catalog) for word in words]
        if all(rows):
            said = f"offline: from the table of companions of {table.as_of} alone"
            unknown = [name for word in words if table.project(name := name_of(word)) is None]
            more = (f"offline nothing is known of {' and '.join(unknown)}",) if unknown else ()
            there = (_torch(build), *filter(None, rows))
            return Joint(build=build, packages=there, notes=(said, *more))
    raise Blocked(
        "Offline, and the table of companions has no torch that goes with " + " and ".join(words),
        hint="run it without `--offline`",
    )


def _not_asked(word: str, build: TorchBuild, catalog: Catalog) -> JointPackage | None:
    """A package whose releases nobody was asked for, within what was asked for and what the table
    takes beside a torch; None where it takes none."""
    said, project = Requirement(word), companion_table().project(name_of(word))
    limits = said.specifier
    if project is not None:
        row = _row_beside(project, word, build, catalog)
        if row is None:
            return None
        limits &= SpecifierSet(row.versions) if row.torch or row.cuda else SpecifierSet()
    return JointPackage(
        name=name_of(word),
        version=None,
        limits=str(limits) or None,
        declared=project is None,
        asked=True,
        extras=extras_of([word], name_of(word)),
    )


def _row_beside(project: Project, word: str, build: TorchBuild, catalog: Catalog) -> Pair | None:
    """The newest row that is asked for, takes a torch, and loads beside it."""
    pages = {wheel.torch for wheel in project.releases}
    if pages and ".".join(build.torch.split(".")[:2]) not in pages:
        return None
    usual, asked = usual_major(catalog, build), Requirement(word).specifier
    spoken = [row for row in project.rows if row.torch] or [*project.rows]
    exact = next((one.version for one in asked if one.operator == "=="), "")
    if exact and (own := row_of(project, exact)) is not None:
        spoken = [own]
    return next(
        (
            row
            for row in spoken
            if (not row.torch or allows(row.torch, build.torch))
            and has_cuda(project, row, build.cuda_major, usual)
        ),
        None,
    )


def _torch(build: TorchBuild) -> JointPackage:
    version = labelled("torch", build.torch, build)
    return JointPackage(
        name="torch", version=version, index_url=index_url(build.backend), declared=True
    )
