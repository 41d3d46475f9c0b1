"""Finds the single change to the host or the request that would help most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from gpusetup.choose.constraints import in_scope, is_beyond, pick
from gpusetup.choose.host import BuildQuestion
from gpusetup.model.builds import Advice, TorchBuild
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.versions import parsed


class PossibleChange(Frozen):
    """A possible change to the host or the request, with the build question that results from
    it."""

    kind: Literal["driver", "python", "torch", "backend"]
    to: str | None
    """The new value, such as a driver version; None if the value depends on the build that fits
    after the change."""
    question: BuildQuestion

    @property
    def keeps_wish(self) -> bool:
        """Whether the change is to the host (its driver or Python) and leaves the request as
        it is."""
        of_the_host = ("driver", "python")
        return self.kind in of_the_host

    def advice(self, build: TorchBuild) -> Advice:
        """The advice to make this change, with the build that would then fit."""
        of_build = build.torch if self.kind == "torch" else build.backend
        return Advice(
            change=self.kind,
            to=self.to or of_build,
            gives=f"torch {build.torch} ({build.backend})",
        )


def best_change(question: BuildQuestion, chosen: TorchBuild | None) -> Advice | None:
    """The change that allows the newest torch; None if no change allows a newer torch than the
    chosen build has.

    A change that keeps the request is preferred to one that does not. Of two equally good changes
    the first one is taken.
    """
    best_rank: tuple[object, ...] = ()
    advice = None
    above = chosen.torch if chosen else "0"
    for change in changes(question):
        # If a build was chosen, do not advise the user to change their request.
        if chosen is not None and not change.keeps_wish:
            continue
        build = pick(change.question, above)
        if build is None:
            continue
        is_reachable = not is_beyond(build, change.question)
        version = parsed(build.torch).release
        rank = (change.keeps_wish, is_reachable, version)
        if rank > best_rank:
            best_rank = rank
            advice = change.advice(build)
    return advice


def changes(question: BuildQuestion) -> Iterator[PossibleChange]:
    """Yields all possible changes, the least costly first: driver, Python, torch version,
    backend."""
    catalog, host, wish = question.catalog, question.host, question.wish
    for driver in other_drivers(question):
        other_host = replace(
            host,
            driver=driver,
            driver_cuda=catalog.driver_cuda(driver),
            # The driver that was assumed, and the CUDA version that cuda-compat adds, no longer
            # apply to the new driver.
            trusts_cuda=False,
            assumed_driver=None,
        )
        changed = replace(question, host=other_host)
        yield PossibleChange(kind="driver", to=driver, question=changed)
    for python in other_pythons(question):
        other_host = replace(host, python=python, python_bits=64)
        changed = replace(question, host=other_host)
        yield PossibleChange(kind="python", to=python, question=changed)
    # The requested torch version may name its backend (`2.5.1+cu124`). If any torch version is
    # allowed instead, that backend must stay.
    any_torch = replace(wish, torch=None, backend=question.backend)
    changed = replace(question, wish=any_torch)
    yield PossibleChange(kind="torch", to=None, question=changed)
    torch = wish.torch.partition("+")[0] if wish.torch else None
    # A user who wants the CPU build must not be advised to take a build for a GPU.
    backend = "cpu" if question.backend == "cpu" else "auto"
    any_backend = replace(wish, torch=torch, backend=backend)
    changed = replace(question, wish=any_backend)
    yield PossibleChange(kind="backend", to=None, question=changed)


def other_drivers(question: BuildQuestion) -> list[str]:
    """The driver versions that may help: newer ones that a build needs, or an older branch for a
    GPU that newer drivers no longer support."""
    host, catalog = question.host, question.catalog
    drivers: set[str] = set()
    first_drivers = [first for _, first in host.first_drivers]
    for build in in_scope(question):
        # A Jetson's driver is part of its JetPack and cannot be updated separately.
        if build.driver_floor is None or host.board:
            continue
        driver = max((*first_drivers, build.driver_floor), key=parsed)
        if parsed(driver) > parsed(host.driver or "0"):
            drivers.add(driver)
    if catalog.ends_before(host.gpus, host.driver):
        for gpu in host.gpus:
            last_branch = catalog.last_branch(gpu.compute_capability)
            drivers.add(str(last_branch))
    usable = []
    for driver in sorted(drivers, key=parsed):
        # Skip a driver that no longer supports the oldest of the GPUs.
        if not catalog.ends_before(host.gpus, driver):
            usable.append(driver)
    return usable


def other_pythons(question: BuildQuestion) -> list[str]:
    """The Python versions that have builds, nearest to the current one first; empty if the current
    one is unknown."""
    python = (question.host.python or "").rstrip("t")
    minor = parsed(python).minor
    # If the current Python is unknown, another one cannot be recommended.
    if not minor:
        return []
    pythons: set[str] = set()
    for build in in_scope(question):
        pythons.update(build.pythons)
    # The free-threaded Python comes last, because few packages have wheels for it.
    usual = [python for python in pythons if not python.endswith("t")]
    usual.sort(key=parsed, reverse=True)
    return sorted(usual, key=lambda python: abs(parsed(python).minor - minor))
