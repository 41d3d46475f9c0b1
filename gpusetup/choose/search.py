"""Asks an index which packages work together with a torch build, and remembers its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from packaging.requirements import Requirement

from gpusetup.catalog.companion_table import companion_table
from gpusetup.choose.candidates import (
    PackageQuestion,
    candidates,
)
from gpusetup.choose.compatibility import (
    limits_beside,
    names_on_torch_index,
)
from gpusetup.choose.index import AnsweringIndex, IndexAnswer, Released, SetQuestion
from gpusetup.choose.wish import name_of
from gpusetup.model.builds import FAMILY, TorchBuild
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.versions import parsed

YEAR = 365
"""In days. A release that is older than its package's newest by more than this is not chosen
silently."""


class Candidate(Frozen):
    """The packages that work together with one build, or the index's reason why there are none."""

    build: TorchBuild
    packages: Mapping[str, Released] = {}
    reason: str | None = None
    unknown: tuple[str, ...] = ()
    """The packages that no index has in any version, if there is no set because of them."""
    notes: tuple[str, ...] = ()
    on_torch_index: tuple[str, ...] = ()
    """The packages, besides torch and its companions, that come from torch's own index."""
    days_behind: Mapping[str, int] = {}
    """Maps each package that may have any version and is behind its newest release to the number of
    days between the two."""

    @property
    def most_days_behind(self) -> int:
        """The largest number of days that a package is behind its newest release; 0 if none is."""
        days = self.days_behind.values()
        return max(days, default=0)

    @property
    def rank(self) -> tuple[int, int, int]:
        """How old the set is, for comparing sets: how many releases are over a year behind, how
        many are behind at all, and the total of days."""
        days = [*self.days_behind.values()]
        # One release that is years old is worse than many that are a week old.
        years_ago = [number for number in days if number > YEAR]
        return len(years_ago), len(days), sum(days)

    def version(self, name: str) -> str:
        """The version of a package in the set, without its label; "" if the package is not in the
        set."""
        package = self.packages.get(name)
        if package is None:
            return ""
        return package.public


class Search:
    """A search in an index for packages that work together. It asks each question only once."""

    def __init__(self, question: PackageQuestion, index: AnsweringIndex) -> None:
        self.question = question
        self.index = index
        # uv takes seconds to answer a question.
        self.answers: dict[tuple[TorchBuild, tuple[str, ...], bool], Candidate] = {}

    def ask(self, build: TorchBuild, words: tuple[str, ...], *, limited: bool = True) -> Candidate:
        """The packages that work with a build. With `limited`, releases that the companion table
        excludes are left out."""
        key = build, words, limited
        answer = self.answers.get(key)
        if answer is None:
            answer = self._ask(build, words, limited=limited)
            self.answers[key] = answer
        return answer

    def _ask(self, build: TorchBuild, words: tuple[str, ...], *, limited: bool) -> Candidate:
        """Ask the index for the packages that work with a build, first with those from torch's own
        index, then without."""
        exact = SetQuestion(backend=build.backend, torch=f"=={build.torch}", words=words)
        if not limited:
            return self._candidate(build, self.index.set_beside(exact), ())
        on_torch_index = self.on_torch_index(build)
        if on_torch_index:
            from_torch_index = replace(
                exact,
                words=with_added(words, on_torch_index),
                limits=self.limits(build, on_torch_index),
                on_torch_index=on_torch_index,
            )
            answer = self.index.set_beside(from_torch_index)
            if not answer.reason:
                return self._candidate(build, answer, on_torch_index)
        # A mirror may have only torch itself, so try again with the packages from the default
        # index.
        answer = self.index.set_beside(replace(exact, limits=self.limits(build)))
        return self._candidate(build, answer, ())

    def torch_among(self, builds: Sequence[TorchBuild], words: tuple[str, ...]) -> str | None:
        """A torch version, among these builds for one backend, that may work with the packages;
        None if none does.

        One question covers all torch versions between the oldest and the newest, with only those
        limits that all the builds share. So if the index finds no solution, none of the builds
        works. If it finds one, that torch version must still be tried in a question about it alone.
        """
        versions = sorted((build.torch for build in builds), key=parsed)
        span = SetQuestion(
            backend=builds[0].backend, torch=f">={versions[0]},<={versions[-1]}", words=words
        )
        on_torch_index = self.on_torch_index(builds[0])
        # As for one build, try first with the packages from torch's own index, then without.
        for names in dict.fromkeys((on_torch_index, ())):
            question = replace(
                span,
                words=with_added(words, names),
                limits=self.common_limits(builds, names),
                on_torch_index=names,
            )
            answer = self.index.set_beside(question)
            if not answer.reason:
                return answer.packages["torch"].public
        return None

    def common_limits(
        self, builds: Sequence[TorchBuild], on_torch_index: tuple[str, ...]
    ) -> tuple[str, ...]:
        """The companion table's constraints that are the same for all of these builds."""
        others = [set(self.limits(build, on_torch_index)) for build in builds[1:]]
        common = []
        for limit in self.limits(builds[0], on_torch_index):
            if all(limit in limits for limits in others):
                common.append(limit)
        return tuple(common)

    def _candidate(
        self, build: TorchBuild, answer: IndexAnswer, on_torch_index: tuple[str, ...]
    ) -> Candidate:
        return Candidate(
            build=build,
            packages=answer.packages,
            reason=answer.reason,
            unknown=answer.unknown,
            notes=answer.notes,
            on_torch_index=on_torch_index,
            days_behind={} if answer.reason else self.days_behind(answer.packages),
        )

    def on_torch_index(self, build: TorchBuild) -> tuple[str, ...]:
        """The packages for this build that come from torch's own index, whether they were requested
        or are dependencies."""
        catalog = self.question.catalog
        # Dependencies only matter if torch's CUDA version differs from the default index's. Check
        # that first, because the names of the dependencies must be asked from the index.
        if not names_on_torch_index(self.known_names, build, catalog):
            return ()
        names = (*self.question.companions.names, *self.brought_by_others)
        return names_on_torch_index(names, build, catalog)

    @property
    def known_names(self) -> tuple[str, ...]:
        """The names of all packages in the companion table."""
        projects = companion_table().projects
        names = [project.name for project in projects]
        return tuple(names)

    @cached_property
    def brought_by_others(self) -> tuple[str, ...]:
        """The packages that are installed as dependencies of the requested ones."""
        builds = candidates(self.question)
        if not builds:
            return ()
        # The names of the dependencies hardly depend on the torch version, so one question is
        # enough.
        without_limits = self.ask(builds[0], self.question.words, limited=False)
        names = [name for name in without_limits.packages if name not in FAMILY]
        return tuple(names)

    def limits(self, build: TorchBuild, on_torch_index: tuple[str, ...] = ()) -> tuple[str, ...]:
        """The constraints that exclude releases which do not work with a build."""
        question = self.question
        return limits_beside(
            question.host.facts,
            question.catalog,
            build,
            on_torch_index,
        )

    @cached_property
    def in_any_version(self) -> tuple[str, ...]:
        """The requested packages for which any version is acceptable."""
        names = []
        for word in self.question.words:
            requirement = Requirement(word)
            # A user who names a version knows that there are newer ones.
            if not requirement.specifier:
                names.append(name_of(requirement.name))
        return tuple(names)

    @cached_property
    def newest(self) -> Mapping[str, Released]:
        """The newest release with a wheel for this host of each package that may have any
        version."""
        names = self.in_any_version
        # Without a package, there is nothing to ask uv.
        if not names:
            return {}
        return self.index.newest(names)

    @cached_property
    def newer_sources(self) -> dict[str, Released]:
        """The packages whose newest release only exists as source code, with that release.

        uv does not build packages here, so it would not see those releases.
        """
        releases: dict[str, Released] = {}
        for name in self.in_any_version:
            # torch's own index only has wheels, no source distributions.
            if name in FAMILY:
                continue
            source = self.index.newest_source(name)
            wheel = self.newest.get(name)
            if source is None:
                continue
            if wheel is None or parsed(source.version) > parsed(wheel.version):
                releases[name] = source
        return releases

    def days_behind(self, packages: Mapping[str, Released]) -> dict[str, int]:
        """Maps each package that is behind its newest release to the number of days."""
        behind = {}
        for name, newest in self.newest.items():
            package = packages.get(name)
            # A marker may have excluded this package.
            if package is None:
                continue
            days = days_between(package, newest)
            if days:
                behind[name] = days
        return behind


def with_added(words: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    """The requirements, followed by the packages that should come from torch's own index and are
    not among them.

    Dependencies must be named too, because uv only takes named packages from an explicit index.
    """
    required = [*map(name_of, words)]
    added = [name for name in names if name not in required]
    return (*words, *added)


def days_between(release: Released, newest: Released) -> int:
    """How many days a release is older than its package's newest one: 0 if it is the newest,
    otherwise at least 1."""
    # A pre-release or a patched build counts as the release that it belongs to.
    version = parsed(parsed(release.version).base_version)
    newest_version = parsed(parsed(newest.version).base_version)
    if version >= newest_version:
        return 0
    # The release is older, but the index does not tell by how much.
    if release.published is None or newest.published is None:
        return 1
    age = newest.published - release.published
    return max(1, age.days)
