"""Chooses torch together with the packages that need it, by an index.

The index is asked with each torch that fits, the newest first, and the table of companions rules
out what an index cannot know. Pure but for the index, which is handed in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from packaging.requirements import Requirement

from gpusetup.catalog.builds import index_url
from gpusetup.catalog.companion_table import companion_table
from gpusetup.choose.candidates import (
    PackageQuestion,
    PackageSet,
    builds_to_try,
    candidates,
    how_to_build,
    labelled,
    newest_alone,
)
from gpusetup.choose.compatibility import (
    limits_beside,
    names_on_torch_index,
    notes_on_other_wheels,
    why_none_fits,
    why_release_differs,
)
from gpusetup.choose.index import Index, IndexAnswer, Released
from gpusetup.choose.wish import extras_of, name_of
from gpusetup.errors import Unsatisfiable
from gpusetup.model.builds import FAMILY, HeldBack, JointPackage, TorchBuild
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.versions import parsed

YEAR = 365
"""Days; a release that is older than this beside its newest is not taken silently."""


def set_by_index(
    question: PackageQuestion,
    index: Index,
    *,
    prefer: TorchBuild | None = None,
    behind_days: int = 0,
) -> PackageSet:
    """The set that an index has. `prefer` is the torch that is taken if nothing beside it is more
    than `behind_days` older than its newest release; else, with any such days, the next newer one.

    Unsatisfiable if none goes together, or only with an old release of one of them.
    """
    search = Search(question, index)
    answer = search.best(prefer, behind_days)
    refuse_years_behind_source(search, answer)
    held_back = tuple(search.held_back(answer))
    old = [held for held in held_back if answer.days_behind.get(held.package, 0) > YEAR]
    if old:
        raise only_old_releases(old)
    return PackageSet(
        build=answer.build,
        packages=search.packages(answer),
        held_back=held_back,
        notes=(*search.notes(), *answer.notes, *search.notes_on_sources(answer)),
    )


class Candidate(Frozen):
    """What goes together with one build; or the index's sentence why nothing does."""

    build: TorchBuild
    packages: Mapping[str, Released] = {}
    reason: str | None = None
    notes: tuple[str, ...] = ()
    on_torch_index: tuple[str, ...] = ()
    """The packages besides torch's family that come from torch's own index."""
    days_behind: Mapping[str, int] = {}
    """What may come in any version and is not at its newest -> how many days it is behind."""

    @property
    def most_days_behind(self) -> int:
        """How far the oldest package is behind its newest release."""
        return max(self.days_behind.values(), default=0)

    @property
    def rank(self) -> tuple[int, int, int]:
        """How old the set is: releases of years ago, then releases behind, then days."""
        days = self.days_behind.values()
        years_ago = [each for each in days if each > YEAR]
        return len(years_ago), len(days), sum(days)

    def version(self, name: str) -> str:
        """The version of a package in the set, without its label; "" if it is not in it."""
        package = self.packages.get(name)
        return package.public if package else ""


class Search:
    """One joint question to an index, which hears each question once."""

    def __init__(self, question: PackageQuestion, index: Index) -> None:
        self.question, self.index = question, index
        self.answers: dict[tuple[TorchBuild, tuple[str, ...], bool], Candidate] = {}

    def ask(self, build: TorchBuild, words: tuple[str, ...], *, limited: bool = True) -> Candidate:
        """What goes with a build; `limited`: within what the table of companions allows."""
        key = build, words, limited
        if key not in self.answers:
            self.answers[key] = self._ask(build, words, limited=limited)
        return self.answers[key]

    def _ask(self, build: TorchBuild, words: tuple[str, ...], *, limited: bool) -> Candidate:
        """What goes with a build: with what torch's own index has for its CUDA, else without."""
        on_torch_index = self.on_torch_index(build) if limited else ()
        if on_torch_index:
            added = [name for name in on_torch_index if name not in map(name_of, words)]
            limits = self.limits(build, on_torch_index)
            answer = self.index.beside(build, (*words, *added), limits, on_torch_index)
            if not answer.reason:
                return self._candidate(build, answer, on_torch_index)
        # A mirror may have torch alone: then the default index's must do.
        limits = self.limits(build) if limited else ()
        return self._candidate(build, self.index.beside(build, words, limits, ()), ())

    def _candidate(
        self, build: TorchBuild, answer: IndexAnswer, on_torch_index: tuple[str, ...]
    ) -> Candidate:
        return Candidate(
            build=build,
            packages=answer.packages,
            reason=answer.reason,
            notes=answer.notes,
            on_torch_index=on_torch_index,
            days_behind={} if answer.reason else self.days_behind(answer.packages),
        )

    def on_torch_index(self, build: TorchBuild) -> tuple[str, ...]:
        """The packages, named or brought by others, that come from torch's own index."""
        named = self.question.beside.names
        catalog = self.question.catalog
        # Only beside another CUDA than the default index's it matters what others bring.
        if not names_on_torch_index(self.known_names, build, catalog):
            return ()
        return names_on_torch_index((*named, *self.brought_by_others), build, catalog)

    @property
    def known_names(self) -> tuple[str, ...]:
        """The packages of the table of companions."""
        return tuple(project.name for project in companion_table().projects)

    @cached_property
    def brought_by_others(self) -> tuple[str, ...]:
        """What the packages bring along that torch's own index has, too."""
        newest = next(iter(candidates(self.question)), None)
        if newest is None:
            return ()
        without_limits = self.ask(newest, self.question.words, limited=False)
        return tuple(name for name in without_limits.packages if name not in FAMILY)

    def limits(self, build: TorchBuild, on_torch_index: tuple[str, ...] = ()) -> tuple[str, ...]:
        """What the table of companions forbids beside a build."""
        host, catalog = self.question.host.facts, self.question.catalog
        return limits_beside(host, catalog, build, on_torch_index)

    @cached_property
    def in_any_version(self) -> tuple[str, ...]:
        """The packages that may come in any version."""
        requirements = map(Requirement, self.question.words)
        return tuple(name_of(each.name) for each in requirements if not each.specifier)

    @cached_property
    def newest(self) -> Mapping[str, Released]:
        """Each such package at its newest release for this Python and system."""
        return self.index.newest(self.in_any_version) if self.in_any_version else {}

    @cached_property
    def newer_sources(self) -> dict[str, Released]:
        """Each such package whose newest release exists only as source, with that release.

        uv builds nothing here, so that it does not see those.
        """
        releases: dict[str, Released] = {}
        for name in self.in_any_version:
            # torch's own index has no source distributions.
            source = None if name in FAMILY else self.index.newest_source(name)
            wheel = self.newest.get(name)
            is_newer = wheel is None or (source and parsed(source.version) > parsed(wheel.version))
            if source is not None and is_newer:
                releases[name] = source
        return releases

    def days_behind(self, packages: Mapping[str, Released]) -> dict[str, int]:
        """The packages of a set that are not at their newest, and by how many days."""
        behind = {}
        for name, newest in self.newest.items():
            days = days_between(packages[name], newest) if name in packages else 0
            if days:
                behind[name] = days
        return behind

    # --- what is taken ----------------------------------------------------------------------------

    def best(self, prefer: TorchBuild | None, behind_days: int) -> Candidate:
        """The first torch with which all is at most so many days behind its newest.

        Else that with the fewest releases of years ago, then with the fewest that are behind.
        """
        first: Candidate | None = None
        sets: list[Candidate] = []
        asked: set[tuple[str, tuple[str, ...]]] = set()
        for build in self._order(prefer, behind_days):
            # Another backend of a torch may go with newer packages (xformers is built for CUDA 12
            # alone), unless the table forbids the same beside it.
            key = build.torch, self.limits(build)
            if key in asked:
                continue
            candidate = self.ask(build, self.question.words)
            first = first or candidate
            if candidate.reason:
                continue
            asked.add(key)
            if candidate.most_days_behind <= behind_days:
                return candidate
            sets.append(candidate)
        if sets:
            return min(sets, key=lambda candidate: candidate.rank)
        assert first is not None, "there is a build to try"
        raise self._nothing(first)

    def _order(self, prefer: TorchBuild | None, behind_days: int) -> Iterator[TorchBuild]:
        """The builds in the order in which they are tried: `prefer`, then, if older releases would
        do, the next newer ones, then all from the newest on."""
        if prefer and why_none_fits(self.question.beside, prefer) is None:
            yield prefer
        if prefer and behind_days:
            for build in reversed(candidates(self.question)):
                if parsed(build.torch) > parsed(prefer.torch):
                    yield build
        yield from builds_to_try(self.question, prefer)

    def packages(self, chosen: Candidate) -> tuple[JointPackage, ...]:
        """The whole set: torch's family, what was asked for, then the rest by name."""
        build, table = chosen.build, companion_table()
        names = self.question.beside.names
        torch_index = index_url(build.backend, self.index.torch_root)
        from_torch_index = (*FAMILY, *chosen.on_torch_index)
        packages = []
        for name, release in chosen.packages.items():
            project = table.project(name)
            packages.append(
                JointPackage(
                    name=name,
                    version=labelled(name, release.version, build),
                    index_url=torch_index if name in from_torch_index else None,
                    declared=project is None or project.declares,
                    asked=name in names,
                    extras=extras_of(self.question.words, name),
                )
            )
        packages.sort(key=lambda each: (each.name not in FAMILY, not each.asked, each.name))
        return tuple(packages)

    # --- why, and why not -------------------------------------------------------------------------

    def _nothing(self, first: Candidate) -> Unsatisfiable:
        """Why nothing goes together: the table's reason, else the index's own words."""
        words, name = self.question.words, self.question.beside.names[0]
        unlimited = self.ask(first.build, words, limited=False)
        way = "leave one of them out, or name another version"
        if len(words) == 1:
            project = companion_table().project(name)
            torch_index = index_url(first.build.backend, self.index.torch_root)
            other = "check the spelling"
            if project:
                other = f"or instead: {project.way_out(first.build, torch_index)}"
            way = f"if it has no wheel, `{how_to_build(name)}` builds it; {other}"
        reason = self._reason_of_table(unlimited) or unlimited.reason or first.reason
        return Unsatisfiable(
            f"No torch for this machine works with {' and '.join(words)}: {reason}",
            hint=f"nothing was changed; {way}",
        )

    def _reason_of_table(self, candidate: Candidate) -> str | None:
        """Why the table does not take a package of a set beside its build."""
        for name in candidate.packages:
            if name in FAMILY:
                continue
            version, build = candidate.version(name), candidate.build
            is_of_torch_index = name in candidate.on_torch_index
            beside = replace(self.question.beside, takes_torch_index=is_of_torch_index)
            reason = why_release_differs(beside, name, version, build)
            if reason:
                return reason
        return None

    def held_back(self, chosen: Candidate) -> Iterator[HeldBack]:
        """What is not at its newest, and what holds it: the table, or uv in its own words."""
        beside = self.question.beside
        exact = {name: f"{name}=={chosen.version(name)}" for name in beside.names}
        newest = newest_alone(self.question) or chosen.build
        if parsed(newest.torch) > parsed(chosen.build.torch):
            on_newest = replace(chosen, build=newest)
            reason = why_none_fits(beside, newest) or self._reason_of_table(on_newest)
            reason = reason or self.ask(newest, tuple(exact.values())).reason
            other = f"torch {newest.torch} goes with other releases of them"
            yield HeldBack(package="torch", at=chosen.build.torch, by=reason or other)
        for name in chosen.days_behind:
            version = self.newest[name].public
            words = {**exact, name: f"{name}=={version}"}
            reason = why_release_differs(beside, name, version, chosen.build)
            reason = reason or self.ask(chosen.build, tuple(words.values())).reason
            other = f"{name} {version} goes with other releases"
            yield HeldBack(package=name, at=chosen.version(name), by=reason or other)

    def notes_on_sources(self, chosen: Candidate) -> Iterator[str]:
        """A note for each package whose newer release has no wheel."""
        for name, release in self.newer_sources.items():
            if name in chosen.packages:
                yield (
                    f"{name} {release.version} is newer than {chosen.version(name)} and exists "
                    f"only as source: `{how_to_build(name)}` builds it"
                )

    def notes(self) -> Iterator[str]:
        """What was guessed, or what the index does not say."""
        newest = newest_alone(self.question)
        if newest:
            yield from notes_on_other_wheels(self.question.beside, newest)
        os = self.question.host.machine.os
        if os.family == "linux" and not (os.libc or "").startswith("glibc "):
            yield f"the C library is not known and is taken as glibc {USUAL_GLIBC}: `--glibc`"
        undated = [name for name, release in self.newest.items() if release.published is None]
        if undated:
            yield f"the index does not say when {', '.join(undated)} came: how old is not judged"


USUAL_GLIBC = "2.35"
"""What an unknown C library is taken as: Ubuntu 22.04's, older than most machines' of today."""


def refuse_years_behind_source(search: Search, chosen: Candidate) -> None:
    """Unsatisfiable if a package would come in a release that is years older than its newest, which
    exists only as source: such a wheel is a leftover of how the project once was published."""
    for name, source in search.newer_sources.items():
        wheel = chosen.packages.get(name)
        if wheel is not None and days_between(wheel, source) > YEAR:
            raise Unsatisfiable(
                f"The newest {name} with a wheel is {wheel.version}, years older than "
                f"{source.version}, which exists only as source",
                hint=f"nothing was changed; `gpusetup install` first, then "
                f"`{how_to_build(name)}` builds the newest; asked for by its version the old one "
                f"is taken: '{name}=={wheel.version}'",
            )


def only_old_releases(old: Sequence[HeldBack]) -> Unsatisfiable:
    """Why a set of old releases is no answer, and the way out."""
    reasons = "; ".join(f"{held.package} only at {held.at}: {held.by}" for held in old)
    names = " ".join(f"'{held.package}=={held.at}'" for held in old)
    return Unsatisfiable(
        f"Only an old release goes together here: {reasons}",
        hint=f"asked for by its version it is taken: {names}",
    )


def days_between(release: Released, newest: Released) -> int:
    """How many days before its newest release a package's release came; 1 if nothing tells."""
    version = parsed(parsed(release.version).base_version)
    newest_version = parsed(parsed(newest.version).base_version)
    if version >= newest_version:
        return 0
    if not (release.published and newest.published):
        return 1
    return max(1, (newest.published - release.published).days)
