"""Why a package of a set is not at its newest release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from packaging.requirements import Requirement

from gpusetup.install.joint.ask import Answer
from gpusetup.install.joint.matrix import word_of
from gpusetup.install.joint.releases import Listed
from gpusetup.install.joint.words import name_of
from gpusetup.install.joint.work import Work
from gpusetup.model.resolution import HeldBack, TorchBuild
from gpusetup.resolver.joint import smallest_conflict


def behind(
    work: Work,
    build: TorchBuild,
    answer: Answer,
    found: Mapping[str, Listed],
    pool: ThreadPoolExecutor,
) -> tuple[HeldBack, ...]:
    """What is not at its newest release, and what holds it."""
    late = [n for n in work.names if found[n].days_behind(answer.version(n) or "0") > 0]

    def held(name: str) -> HeldBack:
        at = answer.version(name) or ""
        return HeldBack(package=name, at=at, by=_held_by(work, build, name, at, found[name]))

    return tuple(pool.map(held, late))


def _held_by(work: Work, build: TorchBuild, name: str, at: str, page: Listed) -> str:
    """Why a package is no newer: the torch that the others hold, or what its newest asks for."""
    assert page.newest is not None
    word, newest = word_of(name, work), page.newest
    own = next((w for w in work.words if name_of(w) == name), word)
    if not Requirement(own).specifier.contains(newest.version, prereleases=True):
        return f"asked for as {own}"
    if f"{name}!={newest.version}" in work.not_on(build):
        return f"torch's index of {build.backend} has no {name} {newest.version}"
    alone = work.free([word]) if len(work.words) > 1 else None
    further = alone.version(name) if alone else None
    if further and page.days_behind(further) < page.days_behind(at):
        return _against(work, build, name, f"{word}=={further.partition('+')[0]}")
    if not newest.has_wheel:
        return f"{newest.version} has no wheel, only its source"
    other = why_no_newer(work, name, page)
    newer = work.build_of(other) if work.one_cuda else None
    if newer and (wrong := work.other_cuda(newer, other)):
        return " and ".join(wrong.values())
    return other.reason or f"torch {build.torch} beside the others"


def _against(work: Work, build: TorchBuild, name: str, exact: str) -> str:
    """Why a release that goes alone does not go with the others, and with which of them."""
    others = [one for one in work.words if name_of(one) != name]

    def goes(words: Sequence[str]) -> bool:
        answer = work.free([exact, *words])
        return answer.reason is None

    if goes(others):
        why = work.beside(build, [exact]).reason or f"{exact} needs another torch"
        return f"{why}, and the others go with torch {build.torch}"
    left = smallest_conflict(others, goes) if len(others) > 1 else others
    answer = work.free([exact, *left])
    return f"{answer.reason or f'{exact} does not go with it'}, which excludes {' and '.join(left)}"


def is_limited(work: Work, name: str) -> bool:
    return bool(Requirement(work.words[work.names.index(name)]).specifier)


def why_no_newer(work: Work, name: str, page: Listed) -> Answer:
    """A package alone at its newest release, with any torch."""
    assert page.newest is not None
    return work.free([f"{word_of(name, work)}=={page.newest.version}"])
