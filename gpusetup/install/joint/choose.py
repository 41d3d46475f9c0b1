"""The set that goes together: uv is asked with every torch that fits, and the table of companions
rules out what uv cannot know."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import date
from itertools import product
from pathlib import Path

from packaging.requirements import Requirement

from gpusetup.catalog.builds import index_url
from gpusetup.catalog.companion_table import companion_table
from gpusetup.errors import Unsatisfiable
from gpusetup.install.fetching.page import require_pages
from gpusetup.install.joint.compile import Answer, Locked, Uv, glibc_of, listed
from gpusetup.install.joint.places import Places
from gpusetup.install.joint.stand_ins import page_file, write_stand_ins
from gpusetup.install.joint.table import Joint, builds_for
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Cell, HeldBack, JointPackage, TorchBuild
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
MINORS_SHOWN = 6
"""The torches of `--explain`: of each minor the newest that fits."""


def choose_together(
    asked: Asked,
    places: Places,
    *,
    explain: bool = False,
    prefer: TorchBuild | None = None,
    behind_days: int = 0,
) -> Joint:
    """The set for a machine and some requirements. `prefer`: the torch that is taken if nothing
    beside it is more than `behind_days` older than its newest release; else, with any such days,
    the next newer one.

    Unsatisfiable if none goes together; Blocked if an index does not answer.
    """
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as pool:
        uv = Uv(places, asked.machine, Path(folder))
        newest = pool.submit(listed, asked.names, uv)
        is_listed = pool.submit(lambda: not places.named or bool(uv.ask(("torch",)).packages))
        search = _Search(asked, uv, newest.result, is_listed.result())
        found = search.nearest(prefer, behind_days) if prefer else None
        found = found or search.best(prefer)
        held = tuple(search.held_back(found))
        return Joint(
            build=found.build,
            packages=_packages(asked, found, uv),
            hashes={
                one.name: one.hashes
                for one in found.answer.packages
                if labelled(one.name, one.version, found.build) == one.version
            },
            held_back=held,
            matrix=tuple(search.matrix(found)) if explain else (),
            refused=tuple(one for one in held if found.late.get(one.package, 0) > YEAR),
            notes=tuple(_notes(asked.machine, newest.result())),
        )


class _Set(Frozen):
    """A torch and what goes with it, as uv answers; the builds among which it was chosen."""

    build: TorchBuild
    answer: Answer
    builds: tuple[TorchBuild, ...]
    late: Mapping[str, int]
    """What was asked for in any version and is not at its newest -> how many days it is behind."""


class _Search:
    """One joint question."""

    def __init__(self, asked: Asked, uv: Uv, newest: Callable[[], Answer], is_listed: bool) -> None:
        self.asked, self.uv, self._newest, self._is_listed = asked, uv, newest, is_listed

    def _set(self, build: TorchBuild, answer: Answer, builds: Sequence[TorchBuild] = ()) -> _Set:
        free = [name_of(word) for word in self.asked.words if is_free(word)]
        days = {name: days_behind(answer, self._newest(), name) for name in free}
        late = {name: behind for name, behind in days.items() if behind}
        return _Set(build=build, answer=answer, builds=(*builds, build), late=late)

    def _ask(self, builds: Sequence[TorchBuild], words: Sequence[str], *limits: str) -> Answer:
        """What goes together with any torch of some builds."""
        torches = {build.torch for build in builds}
        known = (row.torch for row in self.asked.catalog.releases)
        holes = [f"torch!={torch}" for torch in known if torch not in torches]
        span = [f"torch>={builds[-1].torch},<={builds[0].torch}", *holes]
        span = [f"torch=={builds[0].torch}"] if len(builds) == 1 else span
        name = "-".join(f"{build.torch}+{build.backend}" for build in builds)
        folder = self.uv.folder / f"{abs(hash(name))}"
        links = str(folder)
        if not folder.is_dir():
            catalog, python = self.asked.catalog, self.uv.python
            write_stand_ins(folder, builds, catalog, python, listed=self._is_listed)
        return self.uv.ask((*words, "torch"), (*span, *limits), links)

    def beside(self, build: TorchBuild) -> _Set | None:
        """The set with one build; None if there is none."""
        answer = self._with(build, self.asked.words)
        return None if answer.reason else self._set(build, answer)

    def nearest(self, there: TorchBuild, behind_days: int) -> _Set | None:
        """The set with the torch that is there, else with the next newer one that goes with all;
        one that is yet to come is only tried itself."""
        later = [
            build
            for build in reversed(candidates(self.asked, self.asked.projects))
            if behind_days and parsed(build.torch) > parsed(there.torch)
        ]
        sets = filter(None, map(self.beside, (there, *later)))
        return next((s for s in sets if max(s.late.values(), default=0) <= behind_days), None)

    def _with(self, build: TorchBuild, words: Sequence[str]) -> Answer:
        projects = companion_table().projects
        limits = [text for one in projects for text in limits_beside(self.asked, one, build)]
        return self._ask((build,), words, *limits)

    def any(self, words: Sequence[str], prefer: TorchBuild | None) -> _Set | str:
        """The set with the newest torch that goes, or why there is none: uv is asked with every
        torch, then with each build of the one that it takes and what our table forbids beside it.
        """
        asked = replace(self.asked, words=tuple(words))
        builds, reason = builds_for(asked, asked.projects, prefer), ""
        tried = {build.torch: build for build in reversed(builds)}
        while tried:
            newest_first = tuple(reversed(tried.values()))
            answer = self._ask(newest_first, words)
            if answer.reason:
                return reason or answer.reason
            torch = answer.version("torch")
            for build in (one for one in builds if one.torch == torch):
                own = self._with(build, words)
                if not own.reason:
                    return self._set(build, own, newest_first)
                reason = reason or self._by_table(answer, build) or own.reason
            del tried[torch]
        return reason

    def _by_table(self, answer: Answer, build: TorchBuild) -> str | None:
        """Why our table does not take a package of an answer beside a build."""
        names = (one.name for one in answer.packages if one.name not in FAMILY)
        reasons = (refused(self.asked, name, answer.version(name), build) for name in names)
        return next(filter(None, reasons), None)

    def best(self, prefer: TorchBuild | None) -> _Set:
        """uv's own set, or one in which something that was asked for is newer: the fewest releases
        of years ago, then the fewest that are behind, by the fewest days."""
        found = self.any(self.asked.words, prefer)
        if isinstance(found, str):
            require_pages(self.asked.names, self.uv.places.indexes)
            raise Unsatisfiable(
                f"No torch for this machine works with {' and '.join(self.asked.words)}: {found}",
                hint="nothing was changed; leave one of them out, or name another version"
                if len(self.asked.words) > 1
                else "nothing was changed; check the spelling. If it has no wheel, "
                f"`uv pip install --no-build-isolation {self.asked.names[0]}` builds it",
            )
        sets = [found]
        for name in found.late:
            with suppress(Unsatisfiable):
                words = (*self.asked.words, f"{name}>={self._newest().version(name)}")
                other = self.any(words, prefer)
                sets += () if isinstance(other, str) else (other,)

        def rank(one: _Set) -> tuple[int, ...]:
            days = one.late.values()
            return sum(d > YEAR for d in days), len(days), sum(days)

        return min(sets, key=rank)

    def held_back(self, found: _Set) -> Iterator[HeldBack]:
        """What is not at its newest, and what holds it: the table, or uv in its own words."""
        build = found.build
        exact = {name: f"{name}=={found.answer.version(name)}" for name in self.asked.names}
        first = next(iter(candidates(replace(self.asked, words=()), ())), build)
        if parsed(first.torch) > parsed(build.torch):
            by = none_beside(self.asked, self.asked.projects, first)
            by = by or self._by_table(found.answer, first)
            by = by or self._with(first, [*exact.values()]).reason
            by = by or f"torch {first.torch} goes with other releases of them"
            yield HeldBack(package="torch", at=build.torch, by=by)
        for name in found.late:
            late, at = self._newest().version(name), found.answer.version(name)
            by = refused(self.asked, name, late, build)
            words = {**exact, name: f"{name}=={late}"}
            by = by or self._with(build, [*words.values()]).reason
            yield HeldBack(package=name, at=at, by=by or f"{name} {late} goes with other releases")

    def matrix(self, found: _Set) -> Iterator[Cell]:
        """Each word with the newest torch of each minor, the chosen one among them."""
        minors: dict[tuple[int, ...], TorchBuild] = {}
        for build in found.builds:
            minors.setdefault(parsed(build.torch).release[:2], build)
        shown = dict.fromkeys((*[*minors.values()][:MINORS_SHOWN], found.build))
        for word, build in product(self.asked.words, shown):
            answer, name = self._with(build, [word]), name_of(word)
            yield Cell(
                package=name,
                torch=build.torch,
                backend=build.backend,
                version=answer.version(name) or None,
                reason=answer.reason,
            )


def is_free(word: str) -> bool:
    """Whether no version limits a requirement."""
    said = Requirement(word)
    return not (said.specifier or said.url)


def days_behind(answer: Answer, newest: Answer, name: str) -> int:
    """How many days before its newest release a package's came."""
    at, last = answer.version(name), newest.version(name)
    if not last or parsed(parsed(at).base_version) >= parsed(parsed(last).base_version):
        return 0
    came, came_last = answer.published(name), newest.published(name)
    if not (came and came_last):
        return 1
    return max(1, (date.fromisoformat(came_last) - date.fromisoformat(came)).days)


def _notes(machine: Snapshot, newest: Answer) -> Iterator[str]:
    known = (machine.os.libc or "").startswith("glibc ")
    if machine.os.family == "linux" and not known:
        yield f"the C library is not known and is taken as glibc {glibc_of(machine)}: `--glibc`"
    if undated := [one.name for one in newest.packages if one.published is None]:
        yield f"the index does not say when {', '.join(undated)} came: how old is not judged"


def _packages(asked: Asked, found: _Set, uv: Uv) -> tuple[JointPackage, ...]:
    """The whole set: torch's family, what was asked for, then the rest by name."""
    order = {name: place for place, name in enumerate((*FAMILY, *asked.names))}
    rows = sorted(
        found.answer.packages, key=lambda one: (order.get(one.name, len(order)), one.name)
    )
    return tuple(_package(asked, found.build, one, uv) for one in rows)


def _package(asked: Asked, build: TorchBuild, one: Locked, uv: Uv) -> JointPackage:
    from gpusetup.install.credentials import without_credentials

    project = companion_table().project(one.name)
    file = page_file(project, one.version, uv.python) if project else None
    index = None if one.index is None else without_credentials(one.index)
    return JointPackage(
        name=one.name,
        version=labelled(one.name, one.version, build),
        index_url=None if file else index_url(build.backend) if one.name in FAMILY else index,
        file=file,
        declared=project is None or project.declares,
        asked=one.name in asked.names,
        extras=extras_of(asked.words, one.name),
    )
