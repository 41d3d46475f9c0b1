"""`--explain`: each package with each torch, and the reason of every empty cell."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from packaging.requirements import Requirement

from gpusetup.install.joint.ask import Answer
from gpusetup.install.joint.releases import Listed
from gpusetup.install.joint.words import extras_of, name_of
from gpusetup.install.joint.work import Work
from gpusetup.model.resolution import Cell, TorchBuild
from gpusetup.model.versions import parsed
from gpusetup.resolver.joint import YEAR

MINORS_SHOWN = 6
"""The torches of the matrix: of each minor the newest that fits."""


def word_of(name: str, work: Work) -> str:
    """The package with its extras, as it was asked for."""
    extras = extras_of(work.words, name)
    return f"{name}[{','.join(extras)}]" if extras else name


def matrix_of(
    work: Work,
    chosen: TorchBuild,
    taken: Answer,
    found: Mapping[str, Listed],
    pool: ThreadPoolExecutor,
) -> tuple[Cell, ...]:
    """Each package alone with the newest torch of each minor, the chosen one among them."""
    minors: dict[tuple[int, ...], TorchBuild] = {}
    for build in work.builds:
        minors.setdefault(parsed(build.torch).release[:2], build)
    shown = [*minors.values()][:MINORS_SHOWN]
    columns = shown if chosen in shown else [*shown, chosen]
    rows = [(word, build) for word in work.words for build in columns]
    return tuple(pool.map(lambda row: _cell(work, taken, found, *row), rows))


def _cell(
    work: Work, taken: Answer, found: Mapping[str, Listed], word: str, build: TorchBuild
) -> Cell:
    answer, name = work.beside(build, [word]), name_of(word)
    version = answer.version(name)
    reason = None if version else _empty(work, taken, found[name], build, word, answer)
    if version and (days := found[name].days_behind(version)) > YEAR:
        newest = found[name].newest
        assert newest is not None
        # uv may go back in one package to keep another new: the release that is taken is asked.
        other = _the_taken(work, taken, name, build)
        if other is not None and other.reason is None and (same := other.version(name)):
            return Cell(package=name, torch=build.torch, backend=build.backend, version=same)
        reason = f"only {version}, {days} days older than {newest.version}"
        reason += f"; {other.reason}" if other is not None and other.reason else ""
        version = None
    return Cell(
        package=name, torch=build.torch, backend=build.backend, version=version, reason=reason
    )


def _the_taken(work: Work, taken: Answer, name: str, build: TorchBuild) -> Answer | None:
    """Whether the release of the set that is taken goes with a torch, or why not."""
    version = (taken.version(name) or "").partition("+")[0]
    return work.beside(build, [f"{word_of(name, work)}=={version}"]) if version else None


def _empty(
    work: Work,
    taken: Answer,
    page: Listed,
    build: TorchBuild,
    word: str,
    answer: Answer,
) -> str:
    """Why a package has nothing for a torch: in the words of the release that is taken."""
    project = work.table.project(page.name)
    if project and project.releases:
        built = sorted({one.torch for one in project.releases}, key=parsed)
        if ".".join(build.torch.split(".")[:2]) not in built:
            return f"its wheels are built for torch {', '.join(built)}"
    other = None if Requirement(word).specifier else _the_taken(work, taken, page.name, build)
    if other is not None and other.reason:
        return other.reason
    return answer.reason or "uv gives no reason"
