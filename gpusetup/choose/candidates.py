"""The torch builds that work with the requested packages. Can also choose a set of packages from
the companion table alone."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from gpusetup.catalog.builds import Catalog, index_url
from gpusetup.catalog.companion_table import Project, companion_table
from gpusetup.choose.compatibility import (
    CompanionQuestion,
    names_on_torch_index,
    notes_on_other_wheels,
    rows_meant,
    why_none_fits,
    why_not_on_gpus,
    why_row_differs,
)
from gpusetup.choose.constraints import fitting_builds, preference
from gpusetup.choose.host import Host, HostFacts, host_of, question_of
from gpusetup.choose.newest import newest_fitting, nothing_fits
from gpusetup.choose.wish import Wish, extras_of, name_of
from gpusetup.errors import Unsatisfiable
from gpusetup.model.builds import FAMILY, HeldBack, JointPackage, TorchBuild
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Driver
from gpusetup.model.versions import parsed

OLDEST = "2.5"
"""Older torch versions are only tried if one of them, or a certain release of a package, is
requested. Otherwise there would be too many to try."""


class PackageQuestion(Frozen):
    """The question which torch builds and package versions work together on a host."""

    wish: Wish
    host: Host
    catalog: Catalog

    @property
    def words(self) -> tuple[str, ...]:
        """The requirements for packages and companions besides torch, sorted by name."""
        return self.wish.words

    @property
    def of_torch_alone(self) -> PackageQuestion:
        """The same question without the packages."""
        wish = self.wish.of_torch_alone
        return replace(self, wish=wish)

    @property
    def companions(self) -> CompanionQuestion:
        """The same question, in the form that the companion table's functions need."""
        return CompanionQuestion(
            words=self.words,
            host=self.host.facts,
            catalog=self.catalog,
            only_table=self.wish.offline,
        )


def candidates(
    question: PackageQuestion, prefer: TorchBuild | None = None
) -> tuple[TorchBuild, ...]:
    """The builds for which each package has a release, newest torch first. Among builds of the same
    torch version, `prefer` comes first, then the best one for the host."""
    builds = question_of(question.wish, question.host, question.catalog)
    companions = question.companions
    fitting = []
    for build in fitting_builds(builds):
        is_old = parsed(build.torch) < parsed(OLDEST)
        # Old torch versions are left out, because an index would be asked about dozens of them in
        # vain.
        if is_old and not takes_old_torch(question):
            continue
        if why_none_fits(companions, build) is None:
            fitting.append(build)
    best = preference(builds)
    # Python's sort is stable, so builds of the same torch version keep the order of the first sort.
    fitting.sort(key=lambda build: (build != prefer, best(build)))
    fitting.sort(key=lambda build: parsed(build.torch), reverse=True)
    return tuple(fitting)


def builds_to_try(
    question: PackageQuestion, prefer: TorchBuild | None = None
) -> tuple[TorchBuild, ...]:
    """The candidates for the question. Raises Unsatisfiable with the reason if there are none."""
    builds = candidates(question, prefer)
    if not builds:
        raise nothing_goes_together(question)
    return builds


def takes_old_torch(question: PackageQuestion) -> bool:
    """Whether to try torch versions before 2.5 too, because a torch version or a package version
    was requested."""
    if question.wish.torch:
        return True
    requirements = map(Requirement, question.words)
    return any(requirement.specifier for requirement in requirements)


def newest_alone(question: PackageQuestion) -> TorchBuild | None:
    """The newest build that fits if packages are ignored; None if no build fits."""
    builds = candidates(question.of_torch_alone)
    return builds[0] if builds else None


def nothing_goes_together(question: PackageQuestion) -> Unsatisfiable:
    """The error if no build has a release of every package, with the reason and what to do
    instead."""
    host = question.host
    newest = newest_alone(question)
    if newest is None:
        builds = question_of(question.wish, host, question.catalog)
        choice = newest_fitting(builds, host.machine)
        return nothing_fits(choice)
    steps: list[str] = []
    for project in question.companions.projects:
        alone = replace(question.companions, words=(project.name,))
        # Only packages that cause the failure need a workaround.
        if why_none_fits(alone, newest):
            steps += ways_without_release(project, newest, host.facts)
    steps += driver_that_helps(question, newest)
    version = host.machine.driver.version
    driver = f" (driver {version})" if version else ""
    reason = why_none_fits(question.companions, newest)
    lines = (
        f"No set of releases works here: {reason}",
        f"the newest torch that fits here{driver} is {newest.torch} ({newest.backend})",
    )
    return Unsatisfiable("\n  ".join(lines), hint="\n  ".join(["nothing was changed", *steps]))


def ways_without_release(project: Project, build: TorchBuild, host: HostFacts) -> Iterator[str]:
    """Yields what to do about a package that has no release for this build and host: compile it,
    or use an alternative."""
    torch_index = index_url(build.backend)
    alternative = project.way_out(build, torch_index)
    # Do not suggest an hour of compiling for a package that cannot compute on these GPUs anyway.
    is_in_vain = why_not_on_gpus(project, build, host) is not None
    can_be_built = not is_in_vain and not any(map(project.has_wheels, project.rows))
    if can_be_built:
        yield way_to_build(project)
    for text in alternative.split("; "):
        yield f"alternative to {project.name}: {text}"


def driver_that_helps(question: PackageQuestion, newest: TorchBuild) -> Iterator[str]:
    """Yields the advice to install a newer driver, if the packages have a release for a newer CUDA
    version."""
    unknown_driver = replace(question.host.machine, driver=Driver())
    host = host_of(unknown_driver, question.catalog)
    builds = candidates(replace(question, host=host))
    if not builds:
        return
    build = builds[0]
    # A build for the same CUDA major version would not need a newer driver.
    is_later_cuda = build.cuda_major != newest.cuda_major
    if build.driver_floor and is_later_cuda:
        yield f"or install a driver for CUDA {build.cuda_major}: {build.driver_floor} or newer"


# --- by the table alone ---------------------------------------------------------------------------


class PackageSet(Frozen):
    """A build with the packages that work with it, and the reasons why some packages are not
    newer."""

    build: TorchBuild
    packages: tuple[JointPackage, ...]
    held_back: tuple[HeldBack, ...] = ()
    notes: tuple[str, ...] = ()


def set_by_table(question: PackageQuestion) -> PackageSet:
    """The set with the newest torch that works with every package, according to the companion table
    alone. No index is asked."""
    table = companion_table()
    build = builds_to_try(question)[0]
    notes = [
        f"offline: these versions come only from gpusetup's table of companions of {table.as_of}"
    ]
    notes += notes_on_other_wheels(question.companions, newest_alone(question) or build)
    unknown = []
    for name in question.companions.names:
        if table.project(name) is None:
            unknown.append(name)
    if unknown:
        notes.append(
            f"offline: gpusetup's table of companions does not have {' and '.join(unknown)}"
        )
    torch = JointPackage(
        name="torch",
        version=labelled("torch", build.torch, build),
        index_url=index_url(build.backend),
    )
    packages = [torch]
    for word in question.words:
        packages.append(package_by_table(question, word, build))
    return PackageSet(build=build, packages=tuple(packages), notes=tuple(notes))


def package_by_table(question: PackageQuestion, word: str, build: TorchBuild) -> JointPackage:
    """A requested package in a set. It has no exact version, only the limits from the request and
    the companion table."""
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
    """The versions of a package that the companion table allows with a build. The specifier is
    empty if the table sets no limit."""
    companions = question.companions
    for row in rows_meant(companions, project):
        if why_row_differs(companions, project, row, build):
            continue
        # A row that names neither torch nor CUDA excludes no version.
        excludes = row.torch or row.cuda
        return SpecifierSet(row.versions if excludes else "")
    return SpecifierSet()


def way_to_build(project: Project) -> str:
    """The advice that builds a package for the installed torch, or downloads a wheel that no index
    has."""
    command = how_to_build(project.name)
    if project.wheels_page:
        return (
            f"wheels for some torch versions are at {project.wheels_page}: `{command}` downloads "
            "the one that matches your torch, or compiles it if there is none"
        )
    return f"to compile {project.name} for your torch, run `{command}`"


def how_to_build(name: str) -> str:
    """The command that builds a package for the installed torch."""
    return f"uv pip install --no-build-isolation {name}"


def labelled(name: str, version: str, build: TorchBuild) -> str:
    """Returns the version with the label of the build's backend, as on torch's index. Packages and
    builds without labels keep the plain version.

    >>> from gpusetup.catalog.file import load_catalog
    >>> build = load_catalog().row_of("2.13.0", "cu130", "linux", "x86_64")
    >>> labelled("torchvision", "0.28.0", build), labelled("vllm", "0.32.0", build)
    ('0.28.0+cu130', '0.32.0')
    """
    # torch's wheels for macOS have no label.
    if name not in FAMILY or not build.labelled:
        return version
    public, _, _ = version.partition("+")
    return f"{public}+{build.backend}"
