"""Chooses torch with the packages that need it: uv is asked with each torch that fits, the newest
first, and the table of companions rules out what uv cannot know."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, cached_property
from typing import Any

from packaging.requirements import Requirement

from gpusetup.catalog.builds import index_url
from gpusetup.catalog.companion_table import companion_table
from gpusetup.catalog.file import load_catalog
from gpusetup.errors import Unsatisfiable
from gpusetup.install.decide import Task, decide
from gpusetup.install.job import Job
from gpusetup.install.packages import RequestedPackages
from gpusetup.install.target.find import Target
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.resolution import FAMILY, HeldBack, JointPackage, Request, TorchBuild
from gpusetup.model.versions import parsed
from gpusetup.resolver.joint import (
    Asked,
    Joint,
    builds_for,
    by_name,
    candidates,
    extras_of,
    labelled,
    limits_beside,
    name_of,
    none_beside,
    refused,
)
from gpusetup.resolver.least import crosses
from gpusetup.resolver.situation import python_tag
from gpusetup.uv.errors import explanation
from gpusetup.uv.logins import without_logins
from gpusetup.uv.platforms import USUAL_GLIBC, USUAL_PYTHON, platform_of
from gpusetup.uv.question import Question, Requirements, lock_of
from gpusetup.uv.releases import Release, newest_release
from gpusetup.uv.settings import PersonSettings

YEAR = 365
"""Days; a release that is older than this beside its newest is not taken silently."""


def choose_together(
    asked: Asked,
    root: str,
    settings: PersonSettings,
    *,
    prefer: TorchBuild | None = None,
    behind_days: int = 0,
) -> Joint:
    """The set for a machine and some requirements, torch's own index below `root`. `prefer`: the
    torch that is taken if nothing beside it is more than `behind_days` older than its newest
    release; else, with any such days, the next newer one.

    Unsatisfiable if none goes together, or only with an old release of one of them; Blocked if an
    index does not answer.
    """
    search = Search(asked, root, settings)
    found = search.found(prefer, behind_days)
    refuse_years_behind_source(search, found)
    held = tuple(search.held_back(found))
    if old := [one for one in held if found.late.get(one.package, 0) > YEAR]:
        raise refusal(old)
    return Joint(
        build=found.build,
        packages=search.packages(found),
        held_back=held,
        notes=(*search.notes(), *found.notes, *search.newer_sources(found)),
    )


# --- what uv answers ------------------------------------------------------------------------------


class Locked(Frozen):
    """One package of an answer."""

    version: str
    published: datetime | None = None
    """None: the index does not say."""


def locked_of(row: Mapping[str, Any]) -> Locked:
    wheels = row.get("wheels", ())
    times = [when for one in wheels if isinstance(when := one.get("upload-time"), datetime)]
    return Locked(version=row.get("version", ""), published=min(times, default=None))


class Set(Frozen):
    """What goes together with a torch; or uv's sentence why nothing does."""

    build: TorchBuild
    packages: Mapping[str, Locked] = {}
    reason: str | None = None
    notes: tuple[str, ...] = ()
    """What is to be said of the packages."""
    late: Mapping[str, int] = {}
    """What was asked for in any version and is not at its newest -> how many days it is behind."""

    def version(self, name: str) -> str:
        return self.packages.get(name, Locked(version="")).version.partition("+")[0]


class Search:
    """One joint question: uv with the user's own indexes, asked for one machine; each question
    once."""

    def __init__(self, asked: Asked, root: str, settings: PersonSettings) -> None:
        self.asked, self.root, self.settings = asked, root, settings
        self.platform, self.environment = platform_of(asked.machine)
        self.python_version = (python_tag(asked.machine) or USUAL_PYTHON).rstrip("t")
        self.ask = cache(self._ask)

    def _ask(self, build: TorchBuild, words: tuple[str, ...], *, limited: bool = True) -> Set:
        """What goes with a build."""
        own = tuple(word for word in words if name_of(word) in FAMILY)
        requirements = Requirements(
            family=(f"torch=={build.torch}", *own),
            index=index_url(build.backend, self.root),
            others=tuple(word for word in words if word not in own),
            constraints=limits_beside(self.asked, build) if limited else (),
        )
        try:
            answer = lock_of(self._question(requirements), self.settings)
        except Unsatisfiable as no:
            return Set(build=build, reason=explanation(no.message))
        packages = {row["name"]: locked_of(row) for row in answer.rows}
        late = dict(self._late(packages))
        return Set(build=build, packages=packages, notes=answer.notes, late=late)

    def _question(self, requirements: Requirements) -> Question:
        return Question(
            requirements=requirements,
            # Our own Python builds nothing: without a name uv asks each of the machine's for its
            # version.
            python=sys.executable,
            python_version=self.python_version,
            platform=self.platform,
            environment=self.environment,
            title="uv finds no set of versions",
        )

    @cached_property
    def newest(self) -> dict[str, Locked]:
        """Each package that may come in any version by itself, at its newest release for this
        Python and system."""
        if not self.free:
            return {}
        question = self._question(Requirements(family=(), index=self.root, others=self.free))
        try:
            answer = lock_of(question, self.settings, with_dependencies=False)
        except Unsatisfiable:
            return {}
        return {row["name"]: locked_of(row) for row in answer.rows}

    @cached_property
    def free(self) -> tuple[str, ...]:
        """The packages that may come in any version."""
        words = map(Requirement, self.asked.words)
        return tuple(name_of(word.name) for word in words if not word.specifier)

    @cached_property
    def newer_in_source(self) -> dict[str, Release]:
        """Each such package whose newest release exists only as source, with that release.

        uv builds nothing here, so that it does not see those.
        """
        releases: dict[str, Release] = {}
        for name in self.free:
            if name in FAMILY:
                continue
            release = newest_release(name, self.settings, self.python_version)
            wheel = self.newest.get(name)
            if release is None or release.has_wheel:
                continue
            if wheel is None or parsed(release.version) > parsed(wheel.version):
                releases[name] = release
        return releases

    def _late(self, packages: Mapping[str, Locked]) -> Iterator[tuple[str, int]]:
        for name, newest in self.newest.items():
            if name in packages and (days := days_behind(packages[name], newest)):
                yield name, days

    # --- what is taken ----------------------------------------------------------------------------

    def found(self, prefer: TorchBuild | None, behind_days: int) -> Set:
        """The first torch with which all is at most so many days behind its newest; `prefer` is
        tried first, then, with any such days, the next newer ones, then all from the newest on.
        Else that with the fewest releases of years ago, then with the fewest that are behind."""
        sets: dict[str, Set] = {}
        tried: list[Set] = []
        for build in self._order(prefer, behind_days):
            if build.torch in sets:
                continue
            one = self.ask(build, self.asked.words)
            tried.append(one)
            if not one.reason and max(one.late.values(), default=0) <= behind_days:
                return one
            if not one.reason:
                sets[build.torch] = one
        if not sets:
            raise self._none(tried[0])

        def rank(one: Set) -> tuple[int, ...]:
            days = one.late.values()
            return sum(d > YEAR for d in days), len(days), sum(days)

        return min(sets.values(), key=rank)

    def _order(self, prefer: TorchBuild | None, behind_days: int) -> Iterator[TorchBuild]:
        if prefer:
            yield prefer
            for build in reversed(candidates(self.asked)) if behind_days else ():
                if parsed(build.torch) > parsed(prefer.torch):
                    yield build
        yield from builds_for(self.asked, prefer)

    def packages(self, found: Set) -> tuple[JointPackage, ...]:
        """The whole set: torch's family, what was asked for, then the rest by name."""
        build, table, names = found.build, companion_table(), self.asked.names
        root = without_logins(self.root)
        return tuple(
            JointPackage(
                name=name,
                version=labelled(name, one.version, build),
                index_url=index_url(build.backend, root) if name in FAMILY else None,
                declared=(project := table.project(name)) is None or project.declares,
                asked=name in names,
                extras=extras_of(self.asked.words, name),
            )
            for name, one in sorted(
                found.packages.items(),
                key=lambda row: (row[0] not in FAMILY, row[0] not in names, row[0]),
            )
        )

    # --- why, and why not -------------------------------------------------------------------------

    def _none(self, first: Set) -> Unsatisfiable:
        """Why nothing goes together: our table, else uv in its own words."""
        words, name = self.asked.words, self.asked.names[0]
        plain = self.ask(first.build, words, limited=False)
        known = companion_table().project(name)
        way = "leave one of them out, or name another version"
        if len(words) == 1:
            other = f"or instead: {known.alternative}" if known else "check the spelling"
            built = f"`uv pip install --no-build-isolation {name}` builds it"
            way = f"if it has no wheel, {built}; {other}"
        return Unsatisfiable(
            f"No torch for this machine works with {' and '.join(words)}: "
            f"{self._by_table(plain) or plain.reason or first.reason}",
            hint=f"nothing was changed; {way}",
        )

    def _by_table(self, found: Set) -> str | None:
        """Why our table does not take a package of an answer beside its build."""
        names = (name for name in found.packages if name not in FAMILY)
        reasons = (refused(self.asked, name, found.version(name), found.build) for name in names)
        return next(filter(None, reasons), None)

    def held_back(self, found: Set) -> Iterator[HeldBack]:
        """What is not at its newest, and what holds it: the table, or uv in its own words."""
        exact = {name: f"{name}=={found.version(name)}" for name in self.asked.names}
        first = next(iter(candidates(replace(self.asked, words=()))), found.build)
        if parsed(first.torch) > parsed(found.build.torch):
            table = none_beside(self.asked, first) or self._by_table(replace(found, build=first))
            by = table or self.ask(first, tuple(exact.values())).reason
            other = f"torch {first.torch} goes with other releases of them"
            yield HeldBack(package="torch", at=found.build.torch, by=by or other)
        for name in found.late:
            newest = self.newest[name].version.partition("+")[0]
            words = {**exact, name: f"{name}=={newest}"}
            table = refused(self.asked, name, newest, found.build)
            by = table or self.ask(found.build, tuple(words.values())).reason
            other = f"{name} {newest} goes with other releases"
            yield HeldBack(package=name, at=found.version(name), by=by or other)

    def newer_sources(self, chosen: Set) -> Iterator[str]:
        """A note for each package whose newer release has no wheel."""
        for name, release in self.newer_in_source.items():
            if name in chosen.packages:
                yield (
                    f"{name} {release.version} is newer than {chosen.version(name)} and exists "
                    f"only as source: `{how_to_build(name)}` builds it"
                )

    def notes(self) -> Iterator[str]:
        os = self.asked.machine.os
        if os.family == "linux" and not (os.libc or "").startswith("glibc "):
            yield f"the C library is not known and is taken as glibc {USUAL_GLIBC}: `--glibc`"
        if undated := [name for name, one in self.newest.items() if one.published is None]:
            yield f"the index does not say when {', '.join(undated)} came: how old is not judged"


def refuse_years_behind_source(search: Search, chosen: Set) -> None:
    """Unsatisfiable if a package would come in a release that is years older than its newest, which
    exists only as source: such a wheel is a leftover of how the project once was published."""
    for name, release in search.newer_in_source.items():
        wheel = chosen.packages.get(name)
        newest = Locked(version=release.version, published=release.published)
        if wheel is not None and days_behind(wheel, newest) > YEAR:
            raise Unsatisfiable(
                f"The newest {name} with a wheel is {wheel.version}, years older than "
                f"{release.version}, which exists only as source",
                hint=f"nothing was changed; `gpusetup install` first, then "
                f"`{how_to_build(name)}` builds the newest; asked for by its version the old one "
                f"is taken: '{name}=={wheel.version}'",
            )


def how_to_build(name: str) -> str:
    """The command that builds a package beside the torch that is installed."""
    return f"uv pip install --no-build-isolation {name}"


def refusal(old: Sequence[HeldBack]) -> Unsatisfiable:
    """Why a set of old releases is no answer, and the way out."""
    said = "; ".join(f"{one.package} only at {one.at}: {one.by}" for one in old)
    names = " ".join(f"'{one.package}=={one.at}'" for one in old)
    return Unsatisfiable(
        f"Only an old release goes together here: {said}",
        hint=f"asked for by its version it is taken: {names}",
    )


def days_behind(here: Locked, newest: Locked) -> int:
    """How many days before its newest release a package's came."""
    at, last = (parsed(parsed(one.version).base_version) for one in (here, newest))
    if at >= last:
        return 0
    if not (here.published and newest.published):
        return 1
    return max(1, (newest.published - here.published).days)


# --- `install PACKAGE` ----------------------------------------------------------------------------


def with_set(job: Job, task: Task, target: Target) -> Task:
    """The task with the torch that goes with the packages, each at the version that goes with it.
    A torch that is there stays if nothing beside it would be a release of years ago.

    Unsatisfiable if none does, or only with an old release of one of them.
    """
    question, build, stays = task.question, task.build, not task.decision.moves
    request, asked = question.request, question.asked
    is_known = build.pythons or not stays  # else no index is known to have it
    if not asked.packages or job.wheels or not is_known:
        return task
    versions = dict(asked.beside)
    companions = (f"{name}{versions.get(name, '')}" for name in asked.named if name != "torch")
    words = by_name((*asked.packages, *companions))
    job.talk(f"Which versions go together: {without_logins(', '.join(words))} ...")
    wanted, days = question.wanted, YEAR if stays else 0
    together = Asked(machine=task.machine, request=wanted, catalog=load_catalog(), words=words)
    joint = choose_together(together, request.root, job.settings, prefer=build, behind_days=days)
    is_same = (build.torch, build.backend) == (joint.build.torch, joint.build.backend)
    if stays and is_same:
        return task
    # The backend is named too, unless that would leave a maker's GPUs.
    held, backend = task.decision.held, joint.build.backend
    if held is not None and crosses(held.backend, backend):
        backend = request.backend
    exact = Request(torch=f"=={joint.build.torch}", backend=backend)
    chosen = replace(question, asked=_exact(asked, joint), wanted=exact)
    moved = decide(chosen, job.talk, fresh=target.venv is not None)
    why = next((one.by for one in joint.held_back if one.package == "torch"), moved.why)
    if is_same:
        why = task.why
    elif stays:
        there, names = task.machine.torch.version, " and ".join(asked.packages)
        why = f"with torch {there} {names} would be old, or missing"
    said = (f"{one.package} stays at {one.at}: {one.by}" for one in joint.held_back)
    return replace(moved, why=why, said=(*said, *joint.notes))


def _exact(asked: RequestedPackages, joint: Joint) -> RequestedPackages:
    """The words at the versions of the set; torch's companions that it needs among the family."""
    versions = {one.name: one.version for one in joint.packages}
    words = []
    for word in asked.packages:
        said, version = Requirement(word), versions.get(name_of(word))
        extras = f"[{','.join(sorted(said.extras))}]" if said.extras else ""
        words.append(f"{said.name}{extras}=={version}" if version else word)
    family = tuple(name for name in FAMILY if name in {*asked.family, *versions})
    return replace(asked, family=family, packages=tuple(words))
