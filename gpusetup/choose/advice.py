"""Finds the single change to the host or the request that would help most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from gpusetup.choose.constraints import in_scope, is_beyond, pick
from gpusetup.choose.host import BuildQuestion
from gpusetup.model.builds import Advice, TorchBuild
from gpusetup.model.frozen import replace
from gpusetup.model.versions import parsed

Kind = Literal["driver", "python", "torch", "backend"]


def best_change(question: BuildQuestion, chosen: TorchBuild | None) -> Advice | None:
    """The change that allows the newest torch; None if no change allows a newer torch than the
    chosen build has.

    A change that keeps the request is preferred to one that does not. Of two equally good changes
    the first one is taken.
    """
    best_rank: tuple[object, ...] = ()
    advice = None
    for kind, to, changed in changes(question):
        keeps_wish = kind in ("driver", "python")
        # If a build was chosen, do not advise the user to change their request.
        if chosen is not None and not keeps_wish:
            continue
        build = pick(changed, chosen.torch if chosen else "0")
        if build is None:
            continue
        rank = (keeps_wish, not is_beyond(build, changed), parsed(build.torch).release)
        if rank > best_rank:
            best_rank = rank
            of_build = build.torch if kind == "torch" else build.backend
            advice = Advice(
                change=kind, to=to or of_build, gives=f"torch {build.torch} ({build.backend})"
            )
    return advice


def changes(question: BuildQuestion) -> Iterator[tuple[Kind, str | None, BuildQuestion]]:
    """Yields all possible changes, the least costly first, each with its new value and the question
    that results. The value is None if it depends on the build that fits after the change."""
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
        yield "driver", driver, replace(question, host=other_host)
    for python in other_pythons(question):
        other_host = replace(host, python=python, python_bits=64)
        yield "python", python, replace(question, host=other_host)
    # The requested torch version may name its backend (`2.5.1+cu124`). If any torch version is
    # allowed instead, that backend must stay.
    any_torch = replace(wish, torch=None, backend=question.backend)
    yield "torch", None, replace(question, wish=any_torch)
    torch = wish.torch.partition("+")[0] if wish.torch else None
    # A user who wants the CPU build must not be advised to take a build for a GPU.
    backend = "cpu" if question.backend == "cpu" else "auto"
    yield "backend", None, replace(question, wish=replace(wish, torch=torch, backend=backend))


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
            drivers.add(str(catalog.last_branch(gpu.compute_capability)))
    # Skip a driver that no longer supports the oldest of the GPUs.
    return [
        driver
        for driver in sorted(drivers, key=parsed)
        if not catalog.ends_before(host.gpus, driver)
    ]


def other_pythons(question: BuildQuestion) -> list[str]:
    """The Python versions that have builds, nearest to the current one first; empty if the current
    one is unknown."""
    python = (question.host.python or "").rstrip("t")
    minor = parsed(python).minor
    # If the current Python is unknown, another one cannot be recommended.
    if not minor:
        return []
    pythons = {python for build in in_scope(question) for python in build.pythons}
    # The free-threaded Python comes last, because few packages have wheels for it.
    usual = [python for python in pythons if not python.endswith("t")]
    usual.sort(key=parsed, reverse=True)
    return sorted(usual, key=lambda python: abs(parsed(python).minor - minor))
