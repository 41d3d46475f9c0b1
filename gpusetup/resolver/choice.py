"""Which of the builds that fit is the best: the platform's rows, in the order of preference."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.kernels import release
from gpusetup.model.frozen import replace
from gpusetup.model.resolution import TorchBuild
from gpusetup.model.versions import parsed
from gpusetup.resolver.constraints import fits
from gpusetup.resolver.situation import CHANNELS, Situation, is_allowed


def in_scope(situation: Situation, catalog: Catalog) -> tuple[TorchBuild, ...]:
    """The rows of this platform and of the installer's channels, newest torch first."""
    place = (situation.family, situation.machine, situation.channels, situation.wsl)
    return _in_scope(catalog, *place)


@lru_cache(maxsize=32)
def _in_scope(
    catalog: Catalog, family: str, machine: str, channels: tuple[str, ...], wsl: bool
) -> tuple[TorchBuild, ...]:
    rows = (
        _on_wsl(build, catalog) if wsl else build
        for build in catalog.builds
        if build.os == family and build.machine == machine and build.channel in channels
    )
    return tuple(sorted(rows, key=lambda build: newest_first(build.torch)))


def _on_wsl(build: TorchBuild, catalog: Catalog) -> TorchBuild:
    """A Linux build with the floor of the Windows driver that serves it."""
    if build.cuda is None:
        return build
    return replace(build, driver_floor=catalog.driver_floor(build.cuda, "windows"))


def best_build(situation: Situation, catalog: Catalog) -> TorchBuild | None:
    """The build that `resolve` would choose, and nothing else."""
    any_torch = situation.assumed_driver is not None
    torch = refused = None
    fitting: list[TorchBuild] = []
    for build in in_scope(situation, catalog):
        if build.torch == refused:
            continue
        if torch is not None and build.torch != torch and not any_torch:
            break
        if not is_allowed(build.torch, situation):
            refused = build.torch
        elif fits(build, situation):
            torch = build.torch
            fitting.append(build)
    return min(fitting, key=preference(situation), default=None)


OF_2020 = 11
"""The CUDA from which on any driver of a major serves all of it."""


def preference(situation: Situation) -> Callable[[TorchBuild], tuple[int, ...]]:
    """A sort key: newest torch, channel, the CUDA nearest below the driver's own, then above.

    Of an unknown driver it is taken that it serves the last CUDA major but one: what needs a newer
    one comes after all that does not. CUDA 10 and older come last, whose builds have no kernels for
    Ampere and what came after it.
    """
    own = release(situation.driver_cuda) if situation.driver_cuda else None

    def key(build: TorchBuild) -> tuple[int, ...]:
        cuda = release(build.cuda) if build.cuda else (0, 0)
        channel = CHANNELS.index(build.channel)
        if own is None:
            old = int(0 < cuda[0] < OF_2020)
            late = int(is_beyond(build, situation))
            return (late, *newest_first(build.torch), channel, old, *cuda)
        return (*newest_first(build.torch), channel, int(cuda > own), -cuda[0], -cuda[1])

    return key


def is_beyond(build: TorchBuild, situation: Situation) -> bool:
    """Whether a build needs a driver of a later branch than an unknown one is taken to be of."""
    floor, assumed = build.driver_floor, situation.assumed_driver
    return bool(floor and assumed and parsed(floor).major > parsed(assumed).major)


@lru_cache(maxsize=512)
def newest_first(torch: str) -> tuple[int, ...]:
    return tuple(-part for part in (*parsed(torch).release, 0, 0, 0)[:4])
