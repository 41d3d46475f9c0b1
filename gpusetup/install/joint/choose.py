"""The set that goes together: uv is asked with every torch that fits, and the best is taken."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from itertools import product
from pathlib import Path

from packaging.requirements import Requirement

from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.companion_table import (
    companion_table,
)
from gpusetup.errors import Unsatisfiable
from gpusetup.install.joint.ask import Answer, Asker, Locked
from gpusetup.install.joint.behind import behind, is_limited, why_no_newer
from gpusetup.install.joint.links import page_file
from gpusetup.install.joint.matrix import matrix_of, word_of
from gpusetup.install.joint.notes import (
    cuda_of_others,
    glibc_note,
    own_cuda,
    page_notes,
)
from gpusetup.install.joint.places import Places
from gpusetup.install.joint.releases import Fetcher, Listed, is_listed, listed
from gpusetup.install.joint.table import Joint, candidates_of, other_cuda_only
from gpusetup.install.joint.words import by_name, extras_of, name_of, projects_of
from gpusetup.install.joint.work import Work, hashes_of
from gpusetup.installers.options import FAMILY
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import HeldBack, JointPackage, Request, TorchBuild
from gpusetup.resolver.joint import (
    YEAR,
    Asked,
    Solved,
    best,
    held_by_cuda,
    labelled,
    majors_here,
    with_companions,
)

WORKERS = 4


def choose_together(
    machine: Snapshot,
    request: Request,
    words: Sequence[str],
    catalog: Catalog,
    places: Places,
    fetcher: Callable[[], Fetcher],
    *,
    explain: bool = False,
    prefer: TorchBuild | None = None,
    behind_days: int = 0,
) -> Joint:
    """The set for a machine and some requirements. `prefer`: the torch that is taken where nothing
    beside it is more than `behind_days` older than its newest release.

    Unsatisfiable where none goes together, or only with an old release; Blocked where an index
    does not answer.
    """
    words = by_name(words)
    projects = projects_of([name_of(word) for word in words], companion_table())
    asked = Asked(words=tuple(words), projects=projects)
    wish = partial(_chosen, machine, request, catalog, _Index(places, fetcher))
    wish = partial(wish, explain=explain, prefer=prefer, behind_days=behind_days)
    joint, others = wish(asked, words)
    return _of_one_cuda(machine, request, catalog, asked, joint, others, wish) if others else joint


class _Index:
    """The user's indexes: uv is asked by them, and each of their pages is read once."""

    def __init__(self, places: Places, fetcher: Callable[[], Fetcher]) -> None:
        self.indexes, self._named, self._fetcher = places.indexes, places.named, fetcher
        self.asker = Asker(places.uv, places.environment)
        self.page = cache(self._page)
        self.has_torch = cache(self._has_torch)

    def _page(self, name: str) -> Listed:
        return listed(self._fetcher(), self.indexes, name) if self.indexes else Listed(name=name)

    def _has_torch(self) -> bool:
        """Whether the user's indexes list torch at all: a mirror of other packages need not. The
        client's own default index has it."""
        return not self._named or is_listed(self._fetcher(), self.indexes, "torch")


def _of_one_cuda(
    machine: Snapshot,
    request: Request,
    catalog: Catalog,
    asked: Asked,
    joint: Joint,
    others: Mapping[str, str],
    wish: Callable[..., tuple[Joint, Mapping[str, str]]],
) -> Joint:
    """The set in which everything is built for torch's CUDA: of each major that this machine has,
    the best torch's first. What was asked for stays at its newest where it can: left alone, uv may
    take a release of years ago beside newer ones of what nobody asked for. Unsatisfiable where
    there is no set."""
    newest = [f"{one.name}>={one.version}" for one in joint.packages if one.asked and not one.file]
    majors = majors_here(machine, request, catalog, asked)
    for major, words in product(majors, ((*asked.words, *newest), asked.words)):
        with suppress(Unsatisfiable):
            found = wish(replace(asked, only=major), words)[0]
            if not found.refused:
                return found
    raise other_cuda_only(machine, request, catalog, joint, others)


def _chosen(
    machine: Snapshot,
    request: Request,
    catalog: Catalog,
    index: _Index,
    asked: Asked,
    words: Sequence[str],
    *,
    explain: bool,
    prefer: TorchBuild | None,
    behind_days: int,
) -> tuple[Joint, Mapping[str, str]]:
    """The best set of any CUDA, or of the one that is asked for; and what of it would not load."""
    builds = candidates_of(machine, request, catalog, asked, prefer)
    one_cuda = asked.only is not None
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(WORKERS) as pool:
        work = Work(
            machine,
            words,
            builds,
            index.asker,
            Path(folder),
            catalog,
            index.indexes,
            one_cuda=one_cuda,
        )
        has_torch = pool.submit(index.has_torch)
        pages = pool.map(index.page, work.names)
        first = work.free(work.words)
        if not has_torch.result():
            work.stand_in(listed=False)
            first = work.free(work.words)
        found = dict(zip(work.names, pages, strict=True))
        build, answer = _preferred(work, prefer, found, behind_days) or best_of(
            work, first, found, pool
        )
        build, answer, newer = _newer_torch(work, build, answer, found)
        answer = work.with_own_vision(build, answer)
        family = [one.name for one in answer.packages if one.name in FAMILY]
        served = with_companions(machine, request, catalog, asked, build, family)
        if served not in (None, build):
            build, answer = work.instead(build, served, answer)
        others = cuda_of_others(work, build, answer)
        fitting = others and with_companions(
            machine, request, catalog, asked, build, family, others
        )
        if fitting:
            build, answer = work.instead(build, fitting, answer)
        if wrong := work.other_cuda(build, answer):
            return Joint(build=build, packages=_packages(work, build, answer)), wrong
        older = held_by_cuda(machine, request, catalog, asked, build)
        held = (*(newer or older), *behind(work, build, answer, found, pool))
        matrix = matrix_of(work, build, answer, found, pool) if explain else ()
    refused = tuple(h for h in held if _is_old(h, found, asked.words))
    notes = (*glibc_note(machine), *page_notes(found))
    if fitting:
        notes = (*notes, *own_cuda(work, build, answer))
    if served is None:
        notes = (*notes, f"no {' and '.join(family[1:])} is known for torch {build.torch} here")
    joint = Joint(
        build=build,
        packages=_packages(work, build, answer),
        hashes=hashes_of(work, build, answer),
        held_back=held,
        matrix=matrix,
        refused=refused,
        notes=notes,
    )
    return joint, {}


_NONE = Listed(name="")


def _is_old(held: HeldBack, found: Mapping[str, Listed], words: Sequence[str]) -> bool:
    """Whether a release is of years ago, and nobody asked for an old one."""
    if found.get(held.package, _NONE).days_behind(held.at) <= YEAR:
        return False
    return not any(
        said.specifier
        for word in words
        if name_of(word) == held.package and (said := Requirement(word))
    )


def _preferred(
    work: Work, prefer: TorchBuild | None, found: Mapping[str, Listed], behind_days: int
) -> tuple[TorchBuild, Answer] | None:
    """The set of one torch, where it leaves nothing further behind."""
    build = prefer if prefer in work.builds else None
    if build is None:
        return None
    answer = work.beside(build, work.words)
    if answer.reason or not work.agrees(answer, build):
        return None
    days_behind = (found[name].days_behind(answer.version(name) or "0") for name in work.names)
    return None if any(days > behind_days for days in days_behind) else (build, answer)


def best_of(
    work: Work, first: Answer, found: Mapping[str, Listed], pool: ThreadPoolExecutor
) -> tuple[TorchBuild, Answer]:
    """uv's own choice where no torch has anything newer; else the best of every torch's."""
    if (own := _newest_of_uv(work, first, found, pool)) is not None:
        return own
    answers = [*pool.map(lambda one: work.beside(one, work.words), work.builds)]
    solved = {
        one.torch: (one, answer)
        for one, answer in zip(work.builds, answers, strict=True)
        if answer.reason is None
    }
    taken = best([_solved(work, one, answer, found) for one, answer in solved.values()])
    if taken is None:
        from gpusetup.install.joint.no_set import no_set

        raise no_set(work, first, found, answers)
    return solved[taken.build.torch]


def _newest_of_uv(
    work: Work, answer: Answer, found: Mapping[str, Listed], pool: ThreadPoolExecutor
) -> tuple[TorchBuild, Answer] | None:
    """uv's answer where nothing in it can be newer with any torch. Of one package alone uv is asked
    for something newer until there is nothing; None where every torch has to be asked."""
    for _ in range(MOST_ROUNDS):
        build = work.build_of(answer)
        if build is None or not work.agrees(answer, build):
            return None
        late = [n for n in work.names if found[n].days_behind(answer.version(n) or "0")]
        newer = [*filter(None, pool.map(partial(_newer_than, work, answer, found), late))]
        if not newer:
            return build, answer
        if len(work.names) > 1 or newer[0].version(work.names[0]) is None:
            return None
        answer = newer[0]
    return None


MOST_ROUNDS = 8


def _newer_than(
    work: Work, answer: Answer, found: Mapping[str, Listed], name: str
) -> Answer | None:
    """A set with any torch in which a package is newer than in an answer; None where none is."""
    asked, page = work.words[work.names.index(name)], found[name]
    release = (answer.version(name) or "").partition("+")[0]
    is_next = page.newest is not None and page.newer_than(release) == (page.newest.version,)
    if is_next and not is_limited(work, name):
        other = why_no_newer(work, name, page)
    else:
        other = work.free([asked, f"{name}>{release}"])
    return None if other.reason else other


def _solved(work: Work, build: TorchBuild, answer: Answer, found: Mapping[str, Listed]) -> Solved:
    versions = {name: answer.version(name) or "" for name in work.names}
    behind = {name: found[name].days_behind(v) for name, v in versions.items() if v}
    return Solved(build=build, versions=versions, days_behind=behind)


def _newer_torch(
    work: Work, build: TorchBuild, answer: Answer, found: Mapping[str, Listed]
) -> tuple[TorchBuild, Answer, tuple[HeldBack, ...]]:
    """Why no newer torch is taken; where one can be after all, it is."""
    exact = [f"{word_of(name, work)}=={answer.version(name)}" for name in work.names]
    for newer in work.builds:
        if newer.torch == build.torch:
            return build, answer, ()
        if why := work.not_taken(answer, newer):
            return build, answer, (HeldBack(package="torch", at=build.torch, by=why),)
        other = work.beside(newer, exact)
        if other.reason is None:
            return newer, other, ()
        held = HeldBack(package="torch", at=build.torch, by=other.reason)
        return build, answer, (held,)
    return build, answer, ()


def _packages(work: Work, build: TorchBuild, answer: Answer) -> tuple[JointPackage, ...]:
    """The whole set: torch's family, what was asked for, then the rest by name."""
    order = {name: place for place, name in enumerate((*FAMILY, *work.names))}
    rows = sorted(answer.packages, key=lambda one: (order.get(one.name, len(order)), one.name))
    return tuple(_package(work, build, one) for one in rows)


def _package(work: Work, build: TorchBuild, one: Locked) -> JointPackage:
    from gpusetup.catalog.builds import index_url
    from gpusetup.install.credentials import without_credentials

    name, version = one.name, one.version
    project = work.table.project(name)
    file = page_file(project, version, work.python) if project else None
    is_family = name in FAMILY
    own = None if one.index is None else without_credentials(one.index) or work.index
    where = index_url(build.backend) if is_family else own
    return JointPackage(
        name=name,
        version=labelled(name, version, build) if is_family else version,
        index_url=None if file else where,
        file=file,
        declared=project is None or project.declares,
        asked=name in work.names,
        extras=extras_of(work.words, name),
    )
