"""The single change that would help most: a driver, a Python, one GPU less, another torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.jetpack import JETPACKS, runs_ordinary_wheels
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Gpu
from gpusetup.model.resolution import Advice, TorchBuild
from gpusetup.model.versions import parsed
from gpusetup.resolver.choice import best_build, in_scope
from gpusetup.resolver.situation import Situation, is_allowed

Kind = Literal["driver", "python", "gpu", "torch", "os", "backend"]


class Change(Frozen):
    """One thing that could be otherwise, and the situation that it would make."""

    kind: Kind
    to: str
    situation: Situation
    keeps_request: bool = True


def best_change(situation: Situation, chosen: TorchBuild | None, catalog: Catalog) -> Advice | None:
    """The change that gives the newest torch, one that keeps the request before one that does not.

    With an answer already there, only a change that would give a newer torch counts.
    """
    if chosen is not None and chosen.torch == _newest_asked(situation, catalog):
        return None
    best: tuple[Change, TorchBuild] | None = None
    for change in _changes(situation, catalog, answered=chosen is not None):
        build = best_build(change.situation, catalog)
        if build is None or (chosen is not None and parsed(build.torch) <= parsed(chosen.torch)):
            continue
        if best is None or _worth(change, build) > _worth(*best):
            best = (change, build)
    if best is None:
        return None
    change, build = best
    return Advice(change=change.kind, to=change.to, gives=f"torch {build.torch} ({build.backend})")


def _worth(change: Change, build: TorchBuild) -> tuple[object, ...]:
    return change.keeps_request, parsed(build.torch)


def _newest_asked(situation: Situation, catalog: Catalog) -> str | None:
    """The newest torch of this platform that the request allows."""
    for build in in_scope(situation, catalog):
        if is_allowed(build.torch, situation):
            return build.torch
    return None


def _changes(situation: Situation, catalog: Catalog, *, answered: bool) -> Iterator[Change]:
    """What could be changed, the least costly first (of two equally good the first wins)."""
    yield from _drivers(situation, catalog)
    yield from _pythons(situation, catalog)
    yield from _fewer_gpus(situation)
    if answered:
        return
    if situation.torch is not None:
        freed = replace(situation, torch=None, torch_text=None)
        found = best_build(freed, catalog)
        if found is not None:
            yield Change(kind="torch", to=found.torch, situation=freed, keeps_request=False)
    if situation.backend not in ("auto", "cpu"):
        freed = replace(situation, backend="auto")
        found = best_build(freed, catalog)
        if found is not None:
            yield Change(kind="backend", to=found.backend, situation=freed, keeps_request=False)


def _drivers(situation: Situation, catalog: Catalog) -> Iterator[Change]:
    """Every floor above the present driver, and what the GPUs need, lowest first."""
    if situation.jetpack is not None:
        yield from _jetpacks(situation)
        return
    least = situation.driver or situation.assumed_driver
    if least is None and situation.driver_cuda is None:
        return
    now = parsed(least or "0")
    floors = {build.driver_floor for build in in_scope(situation, catalog) if build.driver_floor}
    floors |= {first for _, first in situation.first_drivers}
    for floor in sorted(floors, key=parsed):
        cuda = catalog.driver_cuda(floor, situation.family)
        ends = catalog.ends_before(situation.gpus, floor)
        if parsed(floor) > now and cuda is not None and not ends:
            above = replace(
                situation, driver=floor, assumed_driver=None, driver_cuda=cuda, trusts_cuda=False
            )
            yield Change(kind="driver", to=floor, situation=above)


def _jetpacks(situation: Situation) -> Iterator[Change]:
    """The newer releases of a Jetson that serve its chip: its driver comes with them."""
    chips = {gpu.compute_capability for gpu in situation.gpus if gpu.compute_capability}
    for row in JETPACKS if chips <= set(JETPACKS[-1].torch_for) else ():
        newer = situation.jetpack is None or row.l4t > situation.jetpack.l4t
        if newer and row.wheels is None and runs_ordinary_wheels(row, chips):
            above = replace(
                situation, jetpack=row, driver=None, driver_cuda=row.cuda, python=row.python
            )
            yield Change(kind="driver", to=row.name, situation=above)


def _pythons(situation: Situation, catalog: Catalog) -> Iterator[Change]:
    """Every other Python that has wheels, nearest to the present one first."""
    if situation.python is None:
        return
    if situation.python_bits == 32:
        wide = replace(situation, python_bits=64)
        yield Change(kind="python", to=f"{situation.python} (64-bit)", situation=wide)
    known = {python for build in in_scope(situation, catalog) for python in build.pythons}
    now = _minor(situation.python)
    others = [p for p in known if not p.endswith("t") and p != situation.python]
    for python in sorted(others, key=lambda p: (abs(_minor(p) - now), _minor(p))):
        yield Change(kind="python", to=python, situation=replace(situation, python=python))


def _minor(python: str) -> int:
    return int(python.rstrip("t").partition(".")[2] or 0)


def _fewer_gpus(situation: Situation) -> Iterator[Change]:
    """The machine without the GPUs of one name."""
    names = dict.fromkeys(gpu.name for gpu in situation.gpus)
    for name in names if len(names) > 1 else ():
        kept: tuple[Gpu, ...] = tuple(gpu for gpu in situation.gpus if gpu.name != name)
        yield Change(kind="gpu", to=f"without {name}", situation=replace(situation, gpus=kept))
