"""The single change of a host or of a wish that would help most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from gpusetup.choose.constraints import in_scope, is_beyond, pick
from gpusetup.choose.host import BuildQuestion
from gpusetup.model.builds import Advice, TorchBuild
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.versions import parsed


class Change(Frozen):
    """Something that could be changed, and the question as it would be then."""

    kind: Literal["driver", "python", "torch", "backend"]
    to: str | None
    """None: what the build that fits then has."""
    question: BuildQuestion

    @property
    def keeps_wish(self) -> bool:
        """Whether what is wanted stays as it is."""
        return self.kind in ("driver", "python")


def best_change(question: BuildQuestion, chosen: TorchBuild | None) -> Advice | None:
    """The change that gives the newest torch; None if none gives a newer one than the chosen.

    One that keeps the wish comes before one that does not, and of two equally good the first.
    """
    best: tuple[tuple[object, ...], Advice] | None = None
    for change in changes(question):
        if chosen is not None and not change.keeps_wish:
            continue
        build = pick(change.question, chosen.torch if chosen else "0")
        if build is None:
            continue
        is_reachable = not is_beyond(build, change.question)
        rank = (change.keeps_wish, is_reachable, parsed(build.torch).release)
        if best is None or rank > best[0]:
            of_build = build.torch if change.kind == "torch" else build.backend
            gives = f"torch {build.torch} ({build.backend})"
            best = rank, Advice(change=change.kind, to=change.to or of_build, gives=gives)
    return best[1] if best else None


def changes(question: BuildQuestion) -> Iterator[Change]:
    """What could be changed, the least costly first."""
    for driver in other_drivers(question):
        cuda = question.catalog.driver_cuda(driver)
        host = replace(
            question.host,
            driver=driver,
            driver_cuda=cuda,
            trusts_cuda=False,
            assumed_driver=None,
        )
        yield Change(kind="driver", to=driver, question=replace(question, host=host))
    for python in other_pythons(question):
        host = replace(question.host, python=python, python_bits=64)
        yield Change(kind="python", to=python, question=replace(question, host=host))
    wish = question.wish
    # A torch that is wanted may name its backend (`2.5.1+cu124`), which is wanted all the same.
    any_torch = replace(wish, torch=None, backend=question.backend)
    yield Change(kind="torch", to=None, question=replace(question, wish=any_torch))
    any_backend = "cpu" if question.backend == "cpu" else "auto"
    unlabelled = wish.torch.partition("+")[0] if wish.torch else None
    other_backend = replace(wish, torch=unlabelled, backend=any_backend)
    yield Change(kind="backend", to=None, question=replace(question, wish=other_backend))


def other_drivers(question: BuildQuestion) -> list[str]:
    """The drivers that may help: a newer one that some build needs, or an older one for a GPU that
    newer drivers dropped."""
    host, catalog = question.host, question.catalog
    # A Jetson's driver comes with its JetPack.
    with_floor = [build for build in in_scope(question) if build.driver_floor and not host.board]
    first_drivers = [first for _, first in host.first_drivers]
    newer: set[str] = set()
    for build in with_floor:
        driver = max((*first_drivers, build.driver_floor or ""), key=parsed)
        if parsed(driver) > parsed(host.driver or "0"):
            newer.add(driver)
    last_branches: set[str] = set()
    if catalog.ends_before(host.gpus, host.driver):
        for gpu in host.gpus:
            last_branches.add(str(catalog.last_branch(gpu.compute_capability)))
    drivers = sorted(newer | last_branches, key=parsed)
    return [driver for driver in drivers if not catalog.ends_before(host.gpus, driver)]


def other_pythons(question: BuildQuestion) -> list[str]:
    """The Pythons that builds are made for, the nearest to this one first."""
    minor = parsed((question.host.python or "").rstrip("t")).minor
    if not minor:
        return []
    pythons: set[str] = set()
    for build in in_scope(question):
        pythons.update(python for python in build.pythons if not python.endswith("t"))
    return sorted(pythons, key=lambda python: abs(parsed(python).minor - minor))
