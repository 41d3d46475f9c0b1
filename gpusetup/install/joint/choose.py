"""The set that goes together: uv is asked with each torch that fits, the newest first, and the
table of companions rules out what uv cannot know."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from functools import cached_property
from pathlib import Path

from packaging.requirements import Requirement

from gpusetup.catalog.builds import index_url
from gpusetup.catalog.companion_table import companion_table
from gpusetup.catalog.companions import beside
from gpusetup.errors import Unsatisfiable
from gpusetup.install.joint.compile import Answer, Locked, Uv, glibc_of
from gpusetup.install.joint.places import Places
from gpusetup.install.joint.stand_ins import write_stand_ins
from gpusetup.install.joint.table import Joint, builds_for
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.resolution import HeldBack, JointPackage, TorchBuild
from gpusetup.model.versions import parsed
from gpusetup.resolver.companions import FAMILY
from gpusetup.resolver.joint import (
    Asked,
    candidates,
    extras_of,
    labelled,
    limits_beside,
    name_of,
    none_beside,
    refused,
)

YEAR = 365
"""Days; a release that is older than this beside its newest is not taken silently."""


def choose_together(
    asked: Asked,
    places: Places,
    *,
    prefer: TorchBuild | None = None,
    behind_days: int = 0,
) -> Joint:
    """The set for a machine and some requirements. `prefer`: the torch that is taken if nothing
    beside it is more than `behind_days` older than its newest release; else, with any such days,
    the next newer one.

    Unsatisfiable if none goes together; Blocked if an index does not answer.
    """
    with tempfile.TemporaryDirectory() as folder:
        search = Search(asked, Uv(places, asked.machine, Path(folder)))
        found = search.found(prefer, behind_days)
        held = tuple(search.held_back(found))
        return Joint(
            build=found.build,
            packages=search.packages(found),
            hashes={
                one.name: one.hashes
                for one in found.answer.packages
                if labelled(one.name, one.version, found.build) == one.version
            },
            held_back=held,
            refused=tuple(one for one in held if found.late.get(one.package, 0) > YEAR),
            notes=tuple(search.notes()),
        )


class Set(Frozen):
    """A torch and what goes with it, as uv answers."""

    build: TorchBuild
    answer: Answer
    late: Mapping[str, int]
    """What was asked for in any version and is not at its newest -> how many days it is behind."""


class Search:
    """One joint question."""

    def __init__(self, asked: Asked, uv: Uv) -> None:
        self.asked, self.uv = asked, uv
        self.tried: dict[TorchBuild, Answer] = {}

    @cached_property
    def newest(self) -> Answer:
        """Each package by itself, at its newest release for this Python and system."""
        found = (self.uv.ask((name,)) for name in self.asked.names)
        return Answer(packages=tuple(one for answer in found for one in answer.packages))

    @cached_property
    def is_listed(self) -> bool:
        """Whether the user's indexes have torch."""
        return not self.uv.places.named or bool(self.uv.ask(("torch",)).packages)

    def ask(self, build: TorchBuild, words: Iterable[str], *, limited: bool = True) -> Answer:
        """What goes with a build."""
        folder = self.uv.folder / f"{build.torch}+{build.backend}"
        if not folder.is_dir():
            write_stand_ins(folder, build, self.asked.catalog, listed=self.is_listed)
        projects = companion_table().projects if limited else ()
        limits = [text for one in projects for text in limits_beside(self.asked, one, build)]
        return self.uv.ask((*words, "torch"), (f"torch=={build.torch}", *limits), folder)

    def sets(self, builds: Iterable[TorchBuild]) -> Iterator[Set]:
        """The set of each torch that has one; builds that differ in nothing are asked for once."""
        free = [word for word in map(Requirement, self.asked.words) if not word.specifier]
        names = [name_of(str(word)) for word in free if not word.url]
        known: set[object] = set()
        for build in builds:
            audio = beside(self.asked.catalog, "torchaudio", build)
            alike = (build.torch, build.cuda_major, build.torchvision, audio)
            if not known & {build.torch, alike}:
                known.add(alike)
                answer = self.tried[build] = self.ask(build, self.asked.words)
                late = {name: days_behind(answer.of(name), self.newest.of(name)) for name in names}
                if not answer.reason:
                    known.add(build.torch)
                    yield Set(build=build, answer=answer, late={n: d for n, d in late.items() if d})

    def found(self, prefer: TorchBuild | None, behind_days: int) -> Set:
        """The first torch with which all is at most so many days behind its newest; `prefer` is
        tried first, then, with any such days, the next newer ones, then all from the newest on.
        Else that with the fewest releases of years ago, then with the fewest that are behind."""
        first: list[TorchBuild] = [prefer] if prefer else []
        for build in reversed(candidates(self.asked, self.asked.projects)) if first else ():
            if behind_days and parsed(build.torch) > parsed(first[0].torch):
                first.append(build)
        sets: list[Set] = []
        for one in self.sets(first):
            if max(one.late.values(), default=0) <= behind_days:
                return one
        for one in self.sets(builds_for(self.asked, self.asked.projects, prefer)):
            sets.append(one)
            if not one.late:
                break
        if not sets:
            raise self._none()

        def rank(one: Set) -> tuple[int, ...]:
            days = one.late.values()
            return sum(d > YEAR for d in days), len(days), sum(days)

        return min(sets, key=rank)

    def _none(self) -> Unsatisfiable:
        """Why nothing goes together: our table, else uv in its own words."""
        words, names = self.asked.words, self.asked.names
        plain = ((build, self.ask(build, words, limited=False)) for build in self.tried)
        reasons = [
            self._by_table(said, one) or said.reason or self.tried[one].reason
            for one, said in plain
        ]
        known = companion_table().project(names[0])
        other = f"or instead: {known.way_out()}" if known else "check the spelling"
        build_it = f"`uv pip install --no-build-isolation {names[0]}` builds it"
        alone = f"if it has no wheel, {build_it}; {other}"
        way = "leave one of them out, or name another version" if len(words) > 1 else alone
        return Unsatisfiable(
            f"No torch for this machine works with {' and '.join(words)}: "
            f"{next(filter(None, reasons), '')}",
            hint=f"nothing was changed; {way}",
        )

    def _by_table(self, answer: Answer, build: TorchBuild) -> str | None:
        """Why our table does not take a package of an answer beside a build."""
        names = (one.name for one in answer.packages if one.name not in FAMILY)
        reasons = (refused(self.asked, name, answer.version(name), build) for name in names)
        return next(filter(None, reasons), None)

    def held_back(self, found: Set) -> Iterator[HeldBack]:
        """What is not at its newest, and what holds it: the table, or uv in its own words."""
        build, answer = found.build, found.answer
        exact = {name: f"{name}=={answer.version(name)}" for name in self.asked.names}
        first = next(iter(candidates(replace(self.asked, words=()), ())), build)
        if parsed(first.torch) > parsed(build.torch):
            by = none_beside(self.asked, self.asked.projects, first)
            by = by or self._by_table(answer, first) or self.ask(first, exact.values()).reason
            other = f"torch {first.torch} goes with other releases of them"
            yield HeldBack(package="torch", at=build.torch, by=by or other)
        for name in found.late:
            late = self.newest.version(name)
            words = {**exact, name: f"{name}=={late}"}
            by = refused(self.asked, name, late, build) or self.ask(build, words.values()).reason
            other = f"{name} {late} goes with other releases"
            yield HeldBack(package=name, at=answer.version(name), by=by or other)

    def notes(self) -> Iterator[str]:
        os = self.asked.machine.os
        if os.family == "linux" and not (os.libc or "").startswith("glibc "):
            taken = glibc_of(self.asked.machine)
            yield f"the C library is not known and is taken as glibc {taken}: `--glibc`"
        if undated := [one.name for one in self.newest.packages if one.published is None]:
            yield f"the index does not say when {', '.join(undated)} came: how old is not judged"

    def packages(self, found: Set) -> tuple[JointPackage, ...]:
        """The whole set: torch's family, what was asked for, then the rest by name."""
        order = {name: place for place, name in enumerate((*FAMILY, *self.asked.names))}
        rows = sorted(found.answer.packages, key=lambda one: (order.get(one.name, 99), one.name))
        return tuple(self._package(found.build, one) for one in rows)

    def _package(self, build: TorchBuild, one: Locked) -> JointPackage:
        from gpusetup.install.credentials import without_credentials

        project = companion_table().project(one.name)
        index = index_url(build.backend) if one.name in FAMILY else one.index
        return JointPackage(
            name=one.name,
            version=labelled(one.name, one.version, build),
            index_url=None if index is None else without_credentials(index),
            declared=project is None or project.declares,
            asked=one.name in self.asked.names,
            extras=extras_of(self.asked.words, one.name),
        )


def days_behind(here: Locked, newest: Locked) -> int:
    """How many days before its newest release a package's came."""
    at, last = (parsed(parsed(one.version).base_version) for one in (here, newest))
    if not newest.version or at >= last:
        return 0
    if not (here.published and newest.published):
        return 1
    came, came_last = (date.fromisoformat(one.published or "") for one in (here, newest))
    return max(1, (came_last - came).days)
