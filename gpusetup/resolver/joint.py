"""torch chosen with what stands on it: which builds are tried, and which set is taken. Pure.

The packages that are asked for constrain torch. A set is better that leaves fewer of them behind
their newest release, then the one with the newer torch; the order of the words does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.companion_table import (
    Pair,
    Project,
    row_of,
    runs_there,
)
from gpusetup.catalog.companions import beside
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import HeldBack, Request, TorchBuild
from gpusetup.model.versions import parsed
from gpusetup.resolver.choice import in_scope, preference
from gpusetup.resolver.companions import COMPANIONS
from gpusetup.resolver.constraints import fits
from gpusetup.resolver.situation import Situation, python_tag, situation_of

OLDEST = "2.5"
"""Older torch is tried only where it, or a release of a package, is asked for."""


class Solved(Frozen):
    """What an installer would take together: public versions by name, and the torch among them."""

    build: TorchBuild
    versions: Mapping[str, str]
    days_behind: Mapping[str, int] = {}
    """How many days before the newest release of a package the chosen one was published."""


class Asked(Frozen):
    """What is to go together: the requirements, and what our table knows of their packages."""

    words: tuple[str, ...] = ()
    projects: tuple[Project, ...] = ()
    only: str | None = None
    """The one CUDA major that torch and everything beside it is to have; "": none."""

    @property
    def pinned(self) -> bool:
        """Whether a release was asked for: then an old torch may be what it takes."""
        return any(Requirement(word).specifier for word in self.words)

    @property
    def majors(self) -> frozenset[str] | None:
        """The CUDA majors that all of it has; None where nothing says so.

        >>> sorted(Asked(words=("jax[cuda12]", "einops")).majors)
        ['12']
        """
        if self.only is not None:
            return frozenset({self.only})
        table = [
            frozenset(major for row in self._rows(one) for major in row.cuda.split())
            for one in self.projects
            if _says_cuda(one)
        ]
        extras = (extra for word in self.words for extra in Requirement(word).extras)
        said = [frozenset({found[1]}) for extra in extras if (found := EXTRA.match(extra))]
        known = [*table, *said]
        return frozenset.intersection(*known) if known else None

    def _rows(self, project: Project) -> tuple[Pair, ...]:
        """The rows that are meant: that of a release that is asked for by its version, else those
        of a span of releases: one release that was built otherwise says nothing of the others."""
        words = (Requirement(w) for w in self.words)
        own = (w for w in words if canonicalize_name(w.name) == project.name)
        exact = (found[1] for w in own if (found := EXACT.fullmatch(str(w.specifier))))
        for version in exact:
            if (row := row_of(project, version)) is not None:
                return (row,)
        return tuple(r for r in project.rows if not EXACT.fullmatch(r.versions)) or project.rows

    @property
    def built_for_cuda(self) -> tuple[str, ...]:
        """The packages that say so."""
        named = [word for word in self.words if any(map(EXTRA.match, Requirement(word).extras))]
        spoken = {Requirement(word).name for word in named}
        others = (one.name for one in self.projects if _says_cuda(one) and one.name not in spoken)
        return (*others, *named)


EXACT = re.compile(r"===?([^*,]+)")
"""One release by its version."""
EXTRA = re.compile(r"cu(?:da)?_?(1\d)(?!\d)")
"""`jax[cuda12]`: an extra that brings the libraries of one CUDA."""


def _says_cuda(project: Project) -> bool:
    return all(row.cuda[:1].isdigit() for row in project.rows)


def candidates(
    machine: Snapshot,
    request: Request,
    catalog: Catalog,
    asked: Asked,
    prefer: TorchBuild | None = None,
) -> tuple[TorchBuild, ...]:
    """The builds to try, the newest torch first: of each torch the best for the machine among those
    whose CUDA major every package has; `prefer` is the best of its torch."""
    found: dict[str, TorchBuild] = {}
    for build in sorted(_fitting(machine, request, catalog, asked), key=lambda b: b != prefer):
        found.setdefault(build.torch, build)
    return tuple(sorted(found.values(), key=lambda b: parsed(b.torch), reverse=True))


def _fitting(
    machine: Snapshot, request: Request, catalog: Catalog, asked: Asked
) -> list[TorchBuild]:
    """Every build for the machine whose CUDA major every package has, the best first."""
    situation = situation_of(machine, request, catalog)
    majors = asked.majors
    fitting = [
        build
        for build in in_scope(situation, catalog)
        if fits(build, situation)
        and (_is_tried(build, request) or asked.pinned)
        and (majors is None or build.cuda is None or build.cuda_major in majors)
    ]
    return sorted(fitting, key=preference(situation))


def majors_here(
    machine: Snapshot, request: Request, catalog: Catalog, asked: Asked
) -> tuple[str, ...]:
    """The CUDA majors of the builds that are tried, the best build's first."""
    fitting = _fitting(machine, request, catalog, asked)
    return tuple(dict.fromkeys(build.cuda_major for build in fitting))


def with_companions(
    machine: Snapshot,
    request: Request,
    catalog: Catalog,
    asked: Asked,
    chosen: TorchBuild,
    names: Sequence[str],
    majors: Container[str] | None = None,
) -> TorchBuild | None:
    """The build of the chosen torch that has these members of its family: torchaudio 2.11 was built
    for CUDA 13.0 and refuses a torch of 13.2. None where no build for the machine has them.
    `majors`: of one of these CUDA majors only."""
    python = python_tag(machine)
    of_torch = [b for b in _fitting(machine, request, catalog, asked) if b.torch == chosen.torch]
    return next(
        (
            build
            for build in sorted(of_torch, key=lambda b: b != chosen)
            if all(beside(catalog, name, build, python) for name in COMPANIONS if name in names)
            and (majors is None or build.cuda_major in majors)
        ),
        None,
    )


def _is_tried(build: TorchBuild, request: Request) -> bool:
    return request.torch is not None or parsed(build.torch) >= parsed(OLDEST)


def held_by_cuda(
    machine: Snapshot,
    request: Request,
    catalog: Catalog,
    asked: Asked,
    chosen: TorchBuild,
) -> tuple[HeldBack, ...]:
    """Why a newer torch was not even tried: it has no build for the CUDA of these packages."""
    majors = asked.majors
    newest = next(iter(candidates(machine, request, catalog, Asked())), chosen)
    if majors is None or parsed(newest.torch) <= parsed(chosen.torch):
        return ()
    names, cuda = " and ".join(asked.built_for_cuda), " and ".join(sorted(majors))
    by = f"{names} is built for CUDA {cuda}, and torch {newest.torch} is not, for this machine"
    return (HeldBack(package="torch", at=chosen.torch, by=by),)


def not_there(
    projects: Sequence[Project], machine: Snapshot, situation: Situation
) -> dict[str, str]:
    """The packages that have nothing for this machine whatever the torch, each with the reason."""
    platform = f"{machine.os.family}-{machine.os.machine}"
    found = {}
    for one in projects:
        if not runs_there(one, platform):
            found[one.name] = f"has no build for {platform} (only {', '.join(one.on.split())})"
        elif (reason := _gpu_too_old(one, situation)) is not None:
            found[one.name] = reason
    return found


def _gpu_too_old(project: Project, situation: Situation) -> str | None:
    floor = project.least_capability()
    for gpu in situation.gpus if floor else ():
        own = gpu.compute_capability
        if own is not None and floor is not None and own < floor:
            return f"needs a GPU of compute capability {floor}; {gpu.name} has {own}"
    return None


def best(solved: Sequence[Solved]) -> Solved | None:
    """The set that leaves the fewest packages behind, by the fewest days, with the newest torch."""

    def rank(one: Solved) -> tuple[object, ...]:
        behind = [days for days in one.days_behind.values() if days > 0]
        return (
            sum(days > YEAR for days in behind),
            len(behind),
            sum(behind),
            tuple(-part for part in parsed(one.build.torch).release),
        )

    return min(solved, key=rank, default=None)


YEAR = 365
"""Days; a release that is older than this beside its newest is not taken silently."""


def labelled(name: str, version: str, build: TorchBuild) -> str:
    """The version of a member of torch's family as torch's index has it.

    >>> from gpusetup.catalog.file import load_catalog
    >>> build = load_catalog().row_of("2.13.0", "cu130", "linux", "x86_64")
    >>> labelled("torchvision", "0.28.0", build), labelled("vllm", "0.32.0", build)
    ('0.28.0+cu130', '0.32.0')
    """
    from gpusetup.installers.options import FAMILY

    if name in FAMILY and build.labelled:
        return f"{version.partition('+')[0]}+{build.backend}"
    return version


def smallest_conflict(
    words: Sequence[str], goes: Callable[[Sequence[str]], bool]
) -> tuple[str, ...]:
    """The fewest of some requirements that do not go together: without any one of them the others
    do. `words` themselves must not go together.

    >>> smallest_conflict(["a", "b", "c"], lambda some: not {"a", "c"} <= set(some))
    ('a', 'c')
    """
    left = list(words)
    for word in words:
        fewer = [one for one in left if one != word]
        if fewer and not goes(fewer):
            left = fewer
    return tuple(left)


def needs_gpu(project: Project) -> bool:
    """Whether it is of no use without an NVIDIA GPU."""
    return project.gpu
