"""The builds that may go together with packages, and a set by the table of companions alone."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from gpusetup.catalog.builds import Catalog, index_url
from gpusetup.catalog.companion_table import Project, companion_table
from gpusetup.choose.compatibility import (
    Companionship,
    names_on_torch_index,
    notes_on_other_wheels,
    rows_meant,
    why_none_fits,
    why_row_differs,
)
from gpusetup.choose.constraints import fitting_builds, preference
from gpusetup.choose.host import Host, host_of, question_of
from gpusetup.choose.newest import newest_fitting, nothing_fits
from gpusetup.choose.wish import Wish, extras_of, name_of
from gpusetup.errors import Unsatisfiable
from gpusetup.model.builds import FAMILY, HeldBack, JointPackage, TorchBuild
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Driver
from gpusetup.model.versions import parsed

OLDEST = "2.5"
"""Older torch is tried only if it, or a release of a package, is asked for: there are too many."""


class PackageQuestion(Frozen):
    """Which packages are to go together with which torch, on which host."""

    wish: Wish
    host: Host
    catalog: Catalog

    @property
    def words(self) -> tuple[str, ...]:
        """What is to go together with torch, in the order of its names."""
        return self.wish.words

    @property
    def of_torch_alone(self) -> PackageQuestion:
        """The same question without packages."""
        return replace(self, wish=self.wish.of_torch_alone)

    @property
    def beside(self) -> Companionship:
        """The question as the table of companions is asked it."""
        return Companionship(
            words=self.words,
            host=self.host.facts,
            catalog=self.catalog,
            only_table=self.wish.offline,
        )


def candidates(
    question: PackageQuestion, prefer: TorchBuild | None = None
) -> tuple[TorchBuild, ...]:
    """The builds beside which each package has a release, the newest torch first; of one torch the
    best for the host first, and `prefer` before all others of its torch."""
    builds = question_of(question.wish, question.host, question.catalog)
    names_a_release = any(Requirement(word).specifier for word in question.words)
    takes_old = bool(question.wish.torch) or names_a_release
    fitting = []
    for build in fitting_builds(builds):
        is_old = parsed(build.torch) < parsed(OLDEST)
        if is_old and not takes_old:
            continue
        if why_none_fits(question.beside, build) is None:
            fitting.append(build)
    best = preference(builds)
    fitting.sort(key=lambda build: (build != prefer, best(build)))
    fitting.sort(key=lambda build: parsed(build.torch), reverse=True)
    return tuple(fitting)


def builds_to_try(
    question: PackageQuestion, prefer: TorchBuild | None = None
) -> tuple[TorchBuild, ...]:
    """The candidates; Unsatisfiable if a package has nothing here, or no build fits."""
    builds = candidates(question, prefer)
    if not builds:
        raise nothing_goes_together(question)
    return builds


def newest_alone(question: PackageQuestion) -> TorchBuild | None:
    """The newest build that fits, whatever the packages need."""
    return next(iter(candidates(question.of_torch_alone)), None)


def nothing_goes_together(question: PackageQuestion) -> Unsatisfiable:
    """Why no build has a release of each package, and the ways out."""
    host, catalog = question.host, question.catalog
    fitting = candidates(question.of_torch_alone)
    if not fitting:
        builds = question_of(question.wish, host, catalog)
        return nothing_fits(newest_fitting(builds, host.machine))
    newest = fitting[0]
    ways = ["nothing was changed"]
    for project in question.beside.projects:
        alone = replace(question.beside, words=(project.name,))
        if not why_none_fits(alone, newest):
            continue
        way = project.way_out(newest, index_url(newest.backend))
        if not any(map(project.has_wheels, project.rows)):
            way = f"`{how_to_build(project.name)}` builds it beside your torch; or {way}"
        ways.append(f"for {project.name}: {way}")
    ways += driver_that_helps(question, newest)
    driver = host.machine.driver.version
    where = f" (driver {driver})" if driver else ""
    return Unsatisfiable(
        f"No matching set loads here: {why_none_fits(question.beside, newest)}; the "
        f"newest that fits here{where} is torch {newest.torch} of {newest.backend}",
        hint="; ".join(ways),
    )


def driver_that_helps(question: PackageQuestion, newest: TorchBuild) -> Iterator[str]:
    """A driver for a later CUDA, if the packages have a release for that."""
    machine = replace(question.host.machine, driver=Driver())
    any_driver = replace(question, host=host_of(machine, question.catalog))
    later = candidates(any_driver)
    if later and later[0].driver_floor and later[0].cuda_major != newest.cuda_major:
        yield f"or a driver for CUDA {later[0].cuda_major}: {later[0].driver_floor} or newer"


# --- by the table alone ---------------------------------------------------------------------------


class PackageSet(Frozen):
    """Packages that go together with a build, and why nothing newer."""

    build: TorchBuild
    packages: tuple[JointPackage, ...]
    held_back: tuple[HeldBack, ...] = ()
    notes: tuple[str, ...] = ()


def set_by_table(question: PackageQuestion) -> PackageSet:
    """The newest torch that the table takes with every package; no index is asked."""
    table = companion_table()
    build = builds_to_try(question)[0]
    notes = [f"offline: from the table of companions of {table.as_of} alone"]
    notes += notes_on_other_wheels(question.beside, newest_alone(question) or build)
    unknown = [name for name in question.beside.names if table.project(name) is None]
    if unknown:
        notes.append(f"offline nothing is known of {' and '.join(unknown)}")
    torch = JointPackage(
        name="torch",
        version=labelled("torch", build.torch, build),
        index_url=index_url(build.backend),
    )
    packages = [package_by_table(question, word, build) for word in question.words]
    return PackageSet(build=build, packages=(torch, *packages), notes=tuple(notes))


def package_by_table(question: PackageQuestion, word: str, build: TorchBuild) -> JointPackage:
    """A package within what was asked for and what the table takes beside a build."""
    name = name_of(word)
    project = companion_table().project(name)
    limits = Requirement(word).specifier
    if project is not None:
        limits &= limits_by_table(question, project, build)
    names = names_on_torch_index((name,), build, question.catalog)
    return JointPackage(
        name=name,
        version=None,
        index_url=index_url(build.backend) if name in names else None,
        limits=str(limits) or None,
        declared=project is None,
        asked=True,
        extras=extras_of((word,), name),
    )


def limits_by_table(question: PackageQuestion, project: Project, build: TorchBuild) -> SpecifierSet:
    """The releases that the table takes beside a build, as far as it excludes any."""
    for row in rows_meant(question.beside, project):
        if why_row_differs(question.beside, project, row, build) is None:
            return SpecifierSet(row.versions if row.torch or row.cuda else "")
    return SpecifierSet()


def how_to_build(name: str) -> str:
    """The command that builds a package beside the torch that is installed."""
    return f"uv pip install --no-build-isolation {name}"


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
