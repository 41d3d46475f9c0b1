"""A set that goes together; and the answer from our own table of companions, if nobody is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from gpusetup.catalog.builds import index_url
from gpusetup.catalog.companion_table import Project, companion_table
from gpusetup.errors import Blocked, Unsatisfiable
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Driver
from gpusetup.model.resolution import HeldBack, JointPackage, TorchBuild
from gpusetup.resolver import resolve
from gpusetup.resolver.joint import (
    Asked,
    candidates,
    extras_of,
    labelled,
    name_of,
    none_beside,
    not_here,
    row_beside,
)
from gpusetup.resolver.refusal import nothing_fits


class Joint(Frozen):
    """What goes together, and why not something newer."""

    build: TorchBuild
    packages: tuple[JointPackage, ...]
    hashes: Mapping[str, tuple[str, ...]] = {}
    """Package -> sha256 of its wheels, if the index names them."""
    held_back: tuple[HeldBack, ...] = ()
    refused: tuple[HeldBack, ...] = ()
    """What would be an old release: a "no"."""
    notes: tuple[str, ...] = ()

    @property
    def torch(self) -> tuple[str, str]:
        return self.build.torch, self.build.backend


def builds_for(
    asked: Asked, projects: Sequence[Project], prefer: TorchBuild | None = None
) -> tuple[TorchBuild, ...]:
    """The builds to try; Unsatisfiable if a package has nothing here, or none fits."""
    if gone := not_here(asked):
        project, reason, case = gone
        raise Unsatisfiable(
            f"{project.name} {reason}",
            hint=f"nothing was changed; instead: {project.way_out(case)}",
        )
    builds, bare = candidates(asked, projects, prefer), replace(asked, words=())
    if builds:
        return builds
    if fitting := candidates(bare, ()):
        raise _not_with_these(asked, projects, fitting[0])
    raise nothing_fits(resolve(asked.machine, asked.request, asked.catalog))


def _not_with_these(asked: Asked, projects: Sequence[Project], newest: TorchBuild) -> Unsatisfiable:
    """A torch fits the machine, and no release of a package loads beside one."""
    driver, bare = asked.machine.driver.version, replace(asked, words=())
    there = f" (driver {driver})" if driver else ""
    index = index_url(newest.backend)
    without = [one for one in projects if none_beside(bare, (one,), newest)]
    ways = [f"for {one.name}: {one.way_out('CUDA', index)}" for one in without]
    later = candidates(replace(asked, machine=replace(asked.machine, driver=Driver())), projects)
    if later and later[0].driver_floor and later[0].cuda_major != newest.cuda_major:
        ways.append(f"or a driver for CUDA {later[0].cuda_major}: {later[0].driver_floor} or newer")
    return Unsatisfiable(
        f"No matching set loads here: {none_beside(asked, projects, newest)}; the "
        f"newest that fits here{there} is torch {newest.torch} of {newest.backend}",
        hint="; ".join(("nothing was changed", *ways)),
    )


def by_table(asked: Asked) -> Joint:
    """The newest torch that our table takes with every package; Blocked if it has none."""
    asked, table = replace(asked, alone=True), companion_table()
    for build in builds_for(asked, asked.projects):
        rows = [_not_asked(asked, word, build) for word in asked.words]
        if all(rows):
            said = f"offline: from the table of companions of {table.as_of} alone"
            unknown = [name for name in asked.names if table.project(name) is None]
            more = (f"offline nothing is known of {' and '.join(unknown)}",) if unknown else ()
            version, index = labelled("torch", build.torch, build), index_url(build.backend)
            torch = JointPackage(name="torch", version=version, index_url=index)
            return Joint(build=build, packages=(torch, *filter(None, rows)), notes=(said, *more))
    raise Blocked(
        "Offline, and the table of companions has no torch for " + " and ".join(asked.words),
        hint="run it without `--offline`",
    )


def _not_asked(asked: Asked, word: str, build: TorchBuild) -> JointPackage | None:
    """A package of which nobody was asked, within what was asked for and what the table takes
    beside a torch; None if it takes none."""
    name = name_of(word)
    project, limits = companion_table().project(name), Requirement(word).specifier
    row = row_beside(asked, project, build) if project else None
    if project and row is None:
        return None
    if row and (row.torch or row.cuda):
        limits &= SpecifierSet(row.versions)
    return JointPackage(
        name=name,
        version=None,
        limits=str(limits) or None,
        declared=project is None,
        asked=True,
        extras=extras_of((word,), name),
    )
