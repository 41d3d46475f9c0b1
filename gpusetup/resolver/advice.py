"""The single change that would help most: a driver, a Python, one GPU less, another torch.

It follows from the constraints: the newest build that only one kind of them keeps from the machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal

from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.jetpack import JETPACKS, runs_ordinary_wheels
from gpusetup.model.frozen import replace
from gpusetup.model.resolution import Advice, TorchBuild
from gpusetup.model.versions import parsed
from gpusetup.resolver import constraints
from gpusetup.resolver.choice import best_build, in_scope, is_beyond
from gpusetup.resolver.situation import Situation

if TYPE_CHECKING:
    from packaging.version import Version

Kind = Literal["driver", "python", "gpu", "torch", "backend"]
CHANGES: Mapping[constraints.Constraint, Kind] = {
    constraints.driver_reaches: "driver",
    constraints.driver_knows_every_gpu: "driver",
    constraints.has_this_python: "python",
    constraints.covers_every_gpu: "gpu",
    constraints.is_asked_torch: "torch",
    constraints.is_asked_backend: "backend",
}
"""What a person can change so that a constraint holds; the others are the machine's nature."""
Change = tuple[Kind, str, Situation]


def best_change(situation: Situation, chosen: TorchBuild | None, catalog: Catalog) -> Advice | None:
    """The change that gives the newest torch, one that keeps the request before one that does not.

    With an answer already there, only a change that would give a newer torch counts.
    """
    found: list[tuple[bool, Version, Advice]] = []
    for kind, to, changed in _changes(situation, catalog):
        keeps = kind not in ("torch", "backend")
        build = best_build(changed, catalog) if keeps or chosen is None else None
        if build is not None and (chosen is None or parsed(build.torch) > parsed(chosen.torch)):
            gives = f"torch {build.torch} ({build.backend})"
            said = to or (build.torch if kind == "torch" else build.backend)
            found.append((keeps, parsed(build.torch), Advice(change=kind, to=said, gives=gives)))
    return max(found, key=lambda row: row[:2])[2] if found else None


def _changes(situation: Situation, catalog: Catalog) -> Iterator[Change]:
    """Each change that gives a build, the least costly first (of two equally good the first
    wins)."""
    alone: dict[Kind | None, list[TorchBuild]] = {}
    for build in in_scope(situation, catalog):
        kinds = {CHANGES.get(one) for one in constraints.CONSTRAINTS if one(build, situation)}
        if is_beyond(build, situation):
            kinds.add("driver")
        if len(kinds) == 1:
            alone.setdefault(kinds.pop(), []).append(build)
    yield from _jetpacks(situation) if situation.jetpack else ()
    yield from _drivers(situation, alone.get("driver", []), catalog)
    if situation.python_bits == 32:
        wide = replace(situation, python_bits=64)
        yield "python", f"{situation.python} (64-bit)", wide
    for build in alone.get("python", [])[:1]:
        others = [python for python in build.pythons if not python.endswith("t")]
        nearest = min(others, key=lambda one: abs(_minor(one) - _minor(situation.python or "")))
        yield "python", nearest, replace(situation, python=nearest)
    names = dict.fromkeys(gpu.name for gpu in situation.gpus)
    for name in names if len(names) > 1 else ():
        kept = tuple(gpu for gpu in situation.gpus if gpu.name != name)
        yield "gpu", f"without {name}", replace(situation, gpus=kept)
    if situation.torch is not None:
        yield "torch", "", replace(situation, torch=None, torch_text=None)
    if situation.backend not in ("auto", "cpu"):
        yield "backend", "", replace(situation, backend="auto")


def _drivers(situation: Situation, builds: list[TorchBuild], catalog: Catalog) -> Iterator[Change]:
    """The least driver for the newest torch among builds that nothing else speaks against; its
    GPUs need one that knows them."""
    firsts = [first for _, first in situation.first_drivers]
    needed = [
        max((*firsts, build.driver_floor), key=parsed)
        for build in builds
        if build.driver_floor and build.torch == builds[0].torch
    ]
    for floor in sorted(needed, key=parsed)[:1]:
        cuda = catalog.driver_cuda(floor, situation.family)
        if cuda is not None and not catalog.ends_before(situation.gpus, floor):
            above = replace(situation, driver=floor, assumed_driver=None, driver_cuda=cuda)
            yield "driver", floor, replace(above, trusts_cuda=False)


def _jetpacks(situation: Situation) -> Iterator[Change]:
    """The newer releases of a Jetson that serve its chip: its driver comes with them."""
    chips = {gpu.compute_capability for gpu in situation.gpus if gpu.compute_capability}
    for row in JETPACKS if chips <= set(JETPACKS[-1].torch_for) else ():
        newer = situation.jetpack is None or row.l4t > situation.jetpack.l4t
        if newer and row.wheels is None and runs_ordinary_wheels(row, chips):
            above = replace(situation, jetpack=row, driver=None, driver_cuda=row.cuda)
            yield "driver", row.name, replace(above, python=row.python)


def _minor(python: str) -> int:
    return int(python.rstrip("t").partition(".")[2] or 0)
