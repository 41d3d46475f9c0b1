"""The torch builds that work with the requested packages, by the companion table and the catalog
alone."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from gpusetup.catalog.builds import Catalog, index_url
from gpusetup.catalog.companion_table import Project, companion_table, row_of
from gpusetup.choose.compatibility import (
    exact_version,
    names_on_torch_index,
    rows_meant,
    why_not_beside,
    why_not_on_gpus,
    why_not_on_host,
    why_row_differs,
)
from gpusetup.choose.constraints import first_reason, fitting_builds, nearest, preference
from gpusetup.choose.host import BuildQuestion, Host, host_of, question_of
from gpusetup.choose.newest import newest_fitting, nothing_fits
from gpusetup.choose.wish import Wish, name_of
from gpusetup.errors import Unsatisfiable
from gpusetup.model.builds import FAMILY, HeldBack, JointPackage, TorchBuild
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Driver
from gpusetup.model.shell import shell_line
from gpusetup.model.versions import parsed

OLDEST = "2.5"
"""Older torch versions are only tried if one of them, or a certain release of a package, is
requested."""
LONGEST_LINE = 120
"""The maximum length of the first line of an error, in characters."""


class PackageQuestion(Frozen):
    """The question which torch builds and package versions work together on a host."""

    wish: Wish
    host: Host
    catalog: Catalog
    by_table: bool = False
    """Whether no index is asked, so that only the companion table can tell."""

    @property
    def words(self) -> tuple[str, ...]:
        """The requirements for packages and companions besides torch, sorted by name."""
        return self.wish.words

    @property
    def of_torch(self) -> BuildQuestion:
        """The question for torch alone."""
        return question_of(self.wish, self.host, self.catalog)

    def without(self, names: tuple[str, ...]) -> PackageQuestion:
        """The same question without these packages."""
        packages = tuple(word for word in self.wish.packages if name_of(word) not in names)
        return replace(self, wish=replace(self.wish, packages=packages))

    def why_not(self, build: TorchBuild) -> str | None:
        """The first reason why a package has no release for a build; None if every one has."""
        facts, by_table = self.host.facts, self.by_table
        reasons = (
            why_not_beside(word, build, facts, self.catalog, by_table=by_table)
            for word in self.words
        )
        return next(filter(None, reasons), None)


class PackageSet(Frozen):
    """A build with the packages that work with it, and the reasons why some are not newer."""

    build: TorchBuild
    packages: tuple[JointPackage, ...]
    held_back: tuple[HeldBack, ...] = ()
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """The names of requested packages that are installed after the set."""


def candidates(
    question: PackageQuestion, prefer: TorchBuild | None = None
) -> tuple[TorchBuild, ...]:
    """The builds for which each package may have a release, newest torch first. Among builds of the
    same torch version, `prefer` comes first, then the best one for the host."""
    takes_old = question.wish.torch or any(Requirement(word).specifier for word in question.words)
    oldest = parsed("0" if takes_old else OLDEST)
    fitting = [
        build
        for build in fitting_builds(question.of_torch)
        if parsed(build.torch) >= oldest and question.why_not(build) is None
    ]
    best = preference(question.of_torch)
    # Python's sort is stable, so builds of the same torch version keep the order of the first sort.
    fitting.sort(key=lambda build: (build != prefer, best(build)))
    return tuple(sorted(fitting, key=lambda build: parsed(build.torch), reverse=True))


def newest_alone(question: PackageQuestion) -> TorchBuild | None:
    """The newest build that fits if packages are ignored; None if no build fits."""
    builds = candidates(replace(question, wish=question.wish.of_torch_alone))
    return builds[0] if builds else None


# --- the set by the table -------------------------------------------------------------------------


def set_by_table(question: PackageQuestion) -> PackageSet:
    """The set with the newest torch that works with every package, according to the companion table
    and the catalog. No index is asked. Raises Unsatisfiable if no torch does."""
    builds = candidates(question)
    if not builds:
        raise nothing_goes_together(question)
    build, table = builds[0], companion_table()
    index = index_url(build.backend)
    notes = []
    if question.wish.offline:
        of_table = f"gpusetup's table of companions of {table.as_of}"
        notes.append(f"offline: these versions come only from {of_table}")
        names = [name_of(word) for word in question.words]
        unknown = [name for name in names if name not in FAMILY and table.project(name) is None]
        if unknown:
            notes.append(
                f"offline: gpusetup's table of companions does not have {' and '.join(unknown)}"
            )
    torch = labelled("torch", build.torch, build)
    packages = [JointPackage(name="torch", version=torch, index_url=index)]
    for word in question.words:
        name, requirement = name_of(word), Requirement(word)
        version = build.family().get(name)
        if version:
            version = labelled(name, version, build)
            packages.append(JointPackage(name=name, version=version, index_url=index, asked=True))
            continue
        project, limits = table.project(name), requirement.specifier
        for row in rows_meant(project, limits, by_table=True) if project else ():
            if project and not why_row_differs(
                project, row, build, question.catalog, by_table=True
            ):
                # A row that names neither torch nor CUDA excludes no version.
                limits &= SpecifierSet(row.versions if row.torch or row.cuda else "")
                break
        is_own = bool(names_on_torch_index((name,), build, question.catalog))
        packages.append(
            JointPackage(
                name=name,
                version=None,
                index_url=index if is_own else None,
                limits=str(limits) or None,
                declared=project is None,
                asked=True,
                extras=tuple(sorted(requirement.extras)),
            )
        )
    return PackageSet(build=build, packages=tuple(packages), notes=tuple(notes))


def labelled(name: str, version: str, build: TorchBuild) -> str:
    """The version with the label of the build's backend, as on torch's index. Packages and builds
    without labels keep the plain version.

    >>> from gpusetup.catalog.file import load_catalog
    >>> build = load_catalog().row_of("2.13.0", "cu130", "linux", "x86_64")
    >>> labelled("torchvision", "0.28.0", build), labelled("vllm", "0.32.0", build)
    ('0.28.0+cu130', '0.32.0')
    """
    # torch's wheels for macOS have no label.
    if name not in FAMILY or not build.labelled:
        return version
    return f"{version.partition('+')[0]}+{build.backend}"


# --- packages that are built from source ----------------------------------------------------------


def source_only(question: PackageQuestion) -> dict[str, str]:
    """Maps the names of requested packages that no index has as a wheel, by the table, to their
    requirements. They are left out of the question if something else remains."""
    build = newest_alone(question)
    words: dict[str, str] = {}
    for word in question.words if build else ():
        project = companion_table().project(name_of(word))
        rows = rows_meant(project, Requirement(word).specifier) if project else ()
        if project is None or build is None or not rows or any(map(project.has_wheels, rows)):
            continue
        # What cannot run here is refused with that reason instead.
        if why_not_on_host(project, build, question.host.facts) is None:
            words[name_of(word)] = word
    rest = len(question.words) > len(words) or question.wish.from_project
    return words if rest or "torch" in question.wish.family else {}


def notes_on_sources(words: dict[str, str], question: PackageQuestion) -> Iterator[str]:
    """Yields a note with the command for packages that are built from source after torch."""
    os = question.host.machine.os.family
    plain = {}
    for name, word in words.items():
        project = companion_table().project(name)
        if project is None:
            plain[name] = word
            continue
        command = shell_line(("uv", "pip", "install", "--no-build-isolation", word), os)
        page = f"; wheels for some torch versions: {project.wheels_page}"
        yield (
            f"{name} has no wheel on an index, so build it after torch: `{command}` (it compiles "
            f"CUDA, which needs nvcc{page if project.wheels_page else ''})"
        )
    if plain:
        command = shell_line(("uv", "pip", "install", *plain.values()), os)
        yield f"built from source when you install: {', '.join(plain)}: `{command}`"


# --- if nothing works -----------------------------------------------------------------------------


def nothing_goes_together(question: PackageQuestion) -> Unsatisfiable:
    """The error if no build has a release of every package, with the reason and what to do
    instead."""
    host, newest = question.host, newest_alone(question)
    if newest is None:
        return nothing_fits(newest_fitting(question.of_torch, host.machine))
    pinned = _pin_that_decides(question)
    if pinned:
        return pinned
    steps = ["nothing was changed"]
    for word in question.words:
        project = companion_table().project(name_of(word))
        alone = replace(question, wish=replace(question.wish, packages=(word,), family=()))
        # Only packages that cause the failure need a workaround.
        if project is None or not alone.why_not(newest):
            continue
        # Do not suggest an hour of compiling for a package that cannot compute on these GPUs.
        runs = why_not_on_gpus(project, newest, host.facts) is None
        if runs and not any(map(project.has_wheels, project.rows)):
            steps.append(way_to_build(project))
        instead = project.way_out(newest, index_url(newest.backend))
        steps += [f"alternative to {project.name}: {text}" for text in instead.split("; ")]
    unknown_driver = host_of(replace(host.machine, driver=Driver()), question.catalog)
    builds = candidates(replace(question, host=unknown_driver))
    # A build for the same CUDA major version would not need a newer driver.
    if builds and builds[0].driver_floor and builds[0].cuda_major != newest.cuda_major:
        cuda, floor = builds[0].cuda_major, builds[0].driver_floor
        steps.append(f"or install a driver for CUDA {cuda}: {floor} or newer")
    version = host.machine.driver.version
    driver = f" (driver {version})" if version else ""
    reason = question.why_not(newest) or "no single torch works with all of these packages"
    lines = (
        *first_line(reason),
        f"the newest torch that fits here{driver} is {newest.torch} ({newest.backend})",
    )
    return Unsatisfiable("\n  ".join(lines), hint="\n  ".join(steps))


def first_line(cause: str) -> tuple[str, ...]:
    """A cause as lines of an error, of which the first has at most 120 characters."""
    if len(cause) <= LONGEST_LINE:
        return (cause,)
    start = cause[: LONGEST_LINE - 3]
    return (f"{start.rpartition(' ')[0] or start}...", cause)


def _pin_that_decides(question: PackageQuestion) -> Unsatisfiable | None:
    """The error if a pinned companion needs a torch that cannot run on this host, with the nearest
    release that works; None if no pin is the cause."""
    builds = question.of_torch
    for word in question.words:
        project = companion_table().project(name_of(word))
        version = exact_version(Requirement(word).specifier)
        row = row_of(project, version) if project and version else None
        needs = exact_version(SpecifierSet(row.torch or "")) if row else None
        of_pin = replace(builds, wish=replace(builds.wish, torch=needs))
        if project is None or needs is None or fitting_builds(of_pin):
            continue
        near = nearest(needs, replace(builds, wish=replace(builds.wish, torch=None)))
        rows = [
            other.versions.removeprefix("==")
            for other in reversed(project.rows if near else ())
            if near and other.torch
            if not why_row_differs(project, other, near, question.catalog, by_table=True)
        ]
        way = ""
        if near and rows:
            way = (
                f"\nthe nearest that works: {project.name} {rows[0]} with torch {near.torch} from "
                f"{near.backend}: change the pin, then run this again"
            )
        return Unsatisfiable(
            "\n  ".join(first_line(f"{word} needs torch {needs}, which {first_reason(of_pin)}")),
            hint=f"nothing was changed{way}",
        )
    return None


def way_to_build(project: Project) -> str:
    """The advice that builds a package for the installed torch, or downloads a wheel that no index
    has."""
    command = f"uv pip install --no-build-isolation {project.name}"
    if project.wheels_page:
        return (
            f"wheels for some torch versions are at {project.wheels_page}: `{command}` downloads "
            "the one that matches your torch, or compiles it if there is none"
        )
    return f"to compile {project.name} for your torch, run `{command}`"
