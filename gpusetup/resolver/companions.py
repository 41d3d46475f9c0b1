"""What stands beside torch in the target and must move with it, or cannot. Pure.

Companions are torchvision, torchaudio, and every installed distribution whose METADATA names the
torch that it takes (`Requires-Dist: torch==2.5.1`); the probe reads those without a network.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from gpusetup.catalog.companions import UNREAD, serves_backend, serves_torch
from gpusetup.catalog.rows import Name
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Package, Snapshot
from gpusetup.model.resolution import FAMILY, TorchBuild
from gpusetup.model.versions import parsed
from gpusetup.readings.packages import normalised

if TYPE_CHECKING:
    from gpusetup.catalog.builds import Catalog

COMPANIONS: tuple[Name, ...] = ("torchvision", "torchaudio")


class Companion(Frozen):
    """An installed distribution that does not take the torch that is to come."""

    name: str
    version: str
    needs: str | None = None
    """The requirement that no longer holds; None: it has no release for that torch."""
    can_follow: bool = True
    """Whether an index can be asked for another release of it by its name."""


def installed(machine: Snapshot) -> dict[str, Package]:
    """What is installed, by name; of two of one name the first, which is imported."""
    found: dict[str, Package] = {}
    for package in machine.packages or ():
        found.setdefault(normalised(package.name), package)
    return found


def family_there(machine: Snapshot) -> tuple[str, ...]:
    """torch, and those of its companions that the target holds."""
    there = installed(machine)
    return tuple(name for name in FAMILY if name == "torch" or name in there)


def left_behind(
    machine: Snapshot, torch: str, backend: str | None, catalog: Catalog
) -> tuple[str, ...]:
    """torchvision and torchaudio that are there and are known not to belong to a torch."""
    there, platform = installed(machine), f"{machine.os.family}-{machine.os.machine}"
    found = []
    for name in (name for name in COMPANIONS if name in there):
        version = there[name].version
        where = None if there[name].installer == "conda" else platform
        fits = serves_torch(catalog, name, version, torch)
        if backend not in (None, UNREAD) and fits is not False:
            fits = serves_backend(catalog, name, version, backend or "", where)
        if fits is False:
            found.append(name)
    return tuple(found)


def pinned(machine: Snapshot, build: TorchBuild) -> tuple[Companion, ...]:
    """The other installed distributions that take another torch than a build's."""
    there, comes = family_there(machine), build.family()
    moved = {name: version for name, version in comes.items() if name in there}
    broken = (
        (name, package, _broken(package, moved, machine))
        for name, package in installed(machine).items()
        if name not in FAMILY
    )
    return tuple(
        Companion(
            name=name,
            version=package.version,
            needs=need,
            can_follow=not (package.direct or package.installer in ("conda", "develop"))
            and "@" not in need,
        )
        for name, package, need in broken
        if need is not None
    )


def moved_with(machine: Snapshot, build: TorchBuild | None) -> tuple[str, ...]:
    """torch and what moves with it, by name; a text shows no whole target, so the whole family."""
    if machine.packages is None or machine.origin == "report":
        return FAMILY
    others = pinned(machine, build) if build is not None else ()
    return (*family_there(machine), *(one.name for one in others if one.can_follow))


COMPILED = frozenset(
    "apex auto-gptq autoawq detectron2 exllamav2 flash-attn flash-attn-3 mmcv natten pyg-lib "  # noqa: SIM905
    "sgl-kernel torch-cluster torch-scatter torch-sparse torchcodec torchtext transformer-engine "
    "vllm xformers".split()
)
"""Distributions whose libraries are compiled against one minor version of torch."""


def beside_in_words(machine: Snapshot, build: TorchBuild, catalog: Catalog) -> Iterator[str]:
    """What does not belong to a torch that comes, and what becomes of it."""
    there, own = installed(machine), machine.torch.version or ""
    comes, named = f"torch {build.torch} ({build.backend})", set()
    for one in pinned(machine, build):
        named.add(one.name)
        way = f"without a release for {comes} it stays" if one.can_follow else "it stays"
        yield f"{one.name} {one.version} requires {one.needs}: {way}, and may fail"
    for name in left_behind(machine, build.torch, build.backend, catalog):
        if name not in build.family():
            yield f"{name} {there[name].version} has no release for {comes}: it stays, and may fail"
    moves = bool(own) and parsed(own).release[:2] != parsed(build.torch).release[:2]
    for name in sorted(COMPILED & there.keys() - named):
        label = re.search(r"\+.*?(cpu|cu\d{2,3})(?!\w)", there[name].version)
        if moves or (label and label[1] != build.backend):
            said = f"{name} {there[name].version} was compiled against torch {own}"
            yield f"{said}: install or build it again for {comes}, before that it may fail"


def _broken(package: Package, moved: Mapping[str, str], machine: Snapshot) -> str | None:
    """The first requirement of a distribution that the new versions do not meet."""
    for text in package.requires:
        named = re.match(r"\s*([A-Za-z0-9._-]+)", text)
        version = moved.get(normalised(named[1])) if named else None
        if version is None:  # most are: their parser costs an import
            continue
        from packaging.requirements import InvalidRequirement, Requirement

        with suppress(InvalidRequirement):
            asked = Requirement(text)
            if asked.marker and not asked.marker.evaluate(environment_of(machine)):
                continue
            is_it = not asked.url or f"{normalised(asked.name)}-{version}" in asked.url
            if not is_it or not asked.specifier.contains(version, prereleases=True):
                return text
    return None


SYSTEMS = {
    "linux": ("linux", "Linux"),
    "windows": ("win32", "Windows"),
    "macos": ("darwin", "Darwin"),
}


def environment_of(machine: Snapshot) -> dict[str, str]:
    """The markers' variables on that machine, as far as they are known; no extra is chosen."""
    platform, system = SYSTEMS.get(machine.os.family or "", ("", ""))
    version = machine.python.version or ""
    known = {
        "python_version": ".".join(version.split(".")[:2]),
        "python_full_version": version,
        "sys_platform": platform,
        "platform_system": system,
        "platform_machine": machine.os.machine or "",
    }
    return {"extra": "", **{name: value for name, value in known.items() if value}}
