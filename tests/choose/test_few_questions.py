"""How often an index is asked for a set, and that fewer questions give no older set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from gpusetup.catalog.file import load_catalog
from gpusetup.choose.candidates import PackageQuestion, candidates
from gpusetup.choose.choice import Choice
from gpusetup.choose.host import host_of
from gpusetup.choose.index import IndexAnswer, Released, SetQuestion
from gpusetup.choose.packages import set_by_index
from gpusetup.choose.wish import Wish
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Driver, Gpu, Os, Python, Snapshot
from gpusetup.model.versions import Capability


class Release(Frozen):
    """A release of a package, the torch that it takes, and when it came."""

    version: str
    torch: str
    month: int


class ListedIndex:
    """An index of a few releases, which counts its questions."""

    torch_root = "https://mirror.example/whl"

    def __init__(self, torches: Sequence[str], packages: Mapping[str, Sequence[Release]]) -> None:
        self.torches = torches
        self.packages = packages
        self.questions: list[SetQuestion] = []

    def begin(self, choice: Choice, words: tuple[str, ...]) -> None:
        pass

    def set_beside(self, question: SetQuestion) -> IndexAnswer:
        self.questions.append(question)
        allowed = SpecifierSet(question.torch)
        for torch in self.torches:
            chosen = {"torch": Released(version=torch)}
            for word in question.words:
                requirement = Requirement(word)
                release = self._newest(requirement, torch, question.limits)
                if release is not None:
                    chosen[requirement.name] = release
            if torch in allowed and len(chosen) == 1 + len(question.words):
                return IndexAnswer(packages=chosen)
        return IndexAnswer(reason=f"Because {question.words} depend on another torch.")

    def _newest(
        self, requirement: Requirement, torch: str, limits: Sequence[str]
    ) -> Released | None:
        allowed = requirement.specifier
        for limit in map(Requirement, limits):
            if limit.name == requirement.name:
                allowed &= limit.specifier
        for release in self.packages[requirement.name]:
            if release.version in allowed and torch in SpecifierSet(release.torch):
                return self._released(release)
        return None

    def _released(self, release: Release) -> Released:
        published = datetime(2026, release.month, 1, tzinfo=timezone.utc)
        return Released(version=release.version, published=published)

    @property
    def places(self) -> tuple[str, ...]:
        return ()

    def newest(self, names: tuple[str, ...]) -> Mapping[str, Released]:
        return {name: self._released(self.packages[name][0]) for name in names}

    def newest_source(self, name: str) -> Released | None:
        return None


OLD_DRIVER = Snapshot(
    os=Os(family="linux", machine="x86_64", libc="glibc 2.35"),
    python=Python(version="3.12.1"),
    driver=Driver(version="535.183.01"),
    gpus=(Gpu(name="T4", compute_capability=Capability(7, 5)),),
)


def question_about(*words: str) -> PackageQuestion:
    catalog = load_catalog()
    return PackageQuestion(
        wish=Wish(packages=words), host=host_of(OLD_DRIVER, catalog), catalog=catalog
    )


@pytest.mark.parametrize(
    ("releases", "torch", "version", "most_questions"),
    [
        # The newest goes with the newest torch: one question, and one about what it brings along.
        ([Release(version="2.0", torch=">=2", month=8)], "2.14.1", "2.0", 2),
        # The newest goes with no torch here; an older torch has a newer release than a newer one.
        (
            [
                Release(version="3.0", torch=">=3", month=9),
                Release(version="2.0", torch="==2.9.1", month=8),
                Release(version="1.0", torch=">=2", month=7),
            ],
            "2.9.1",
            "2.0",
            14,
        ),
        # The newest goes with one old torch.
        (
            [
                Release(version="3.0", torch="==2.6.0", month=8),
                Release(version="1.0", torch=">=2", month=7),
            ],
            "2.6.0",
            "3.0",
            7,
        ),
        # No release of any torch is newer than that beside the newest torch.
        (
            [
                Release(version="3.0", torch=">=3", month=9),
                Release(version="1.0", torch=">=2", month=7),
            ],
            "2.14.1",
            "1.0",
            10,
        ),
    ],
    ids=["first", "between", "old torch", "none newer"],
)
def test_few_questions_find_the_newest_set(
    releases: list[Release], torch: str, version: str, most_questions: int
) -> None:
    question = question_about("server")
    builds = candidates(question)
    torches = [*dict.fromkeys(build.torch for build in builds)]
    assert len(torches) > 10
    index = ListedIndex(torches, {"server": releases})
    chosen = set_by_index(question, index)
    versions = {package.name: package.version for package in chosen.packages}
    assert (chosen.build.torch, versions["server"]) == (torch, version)
    # What is asked afterwards explains why something is not at its newest.
    assert len(index.questions) <= most_questions


def test_of_several_packages_none_is_bounded_by_another_set() -> None:
    """Beside the newest torch one is old; beside an older torch the other one is, by less."""
    index = ListedIndex(
        ["2.14.1", "2.9.1"],
        {
            "server": [
                Release(version="2.0", torch="==2.9.1", month=8),
                Release(version="1.0", torch="==2.14.1", month=1),
            ],
            "client": [
                Release(version="2.0", torch="==2.14.1", month=8),
                Release(version="1.0", torch="==2.9.1", month=8),
            ],
        },
    )
    chosen = set_by_index(question_about("server", "client"), index)
    versions = {package.name: package.version for package in chosen.packages}
    assert (versions["server"], versions["client"]) == ("2.0", "1.0")
