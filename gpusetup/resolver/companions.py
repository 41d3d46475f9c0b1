"""What stands beside torch in the target and must move with it, or cannot. Pure.

Companions are torchvision, torchaudio, and every installed distribution whose METADATA names the
torch that it takes (`Requires-Dist: torch==2.5.1`); the probe reads those without a network.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from gpusetup.catalog.companions import serves_backend, serves_torch
from gpusetup.catalog.default_wheels import UNREAD
from gpusetup.catalog.rows import Name
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Package, Snapshot
from gpusetup.model.resolution import TorchBuild
from gpusetup.model.versions import parsed
from gpusetup.readings.packages import normalised

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from gpusetup.catalog.builds import Catalog

FAMILY = ("torch", "torchvision", "torchaudio")
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


def versions_of(build: TorchBuild) -> dict[str, str]:
    """The versions of the family that belong to a build."""
    known = {"torch": build.torch, "torchvision": build.torchvision, "torchaudio": build.torchaudio}
    return {name: version for name, version in known.items() if version}


def left_behind(
    machine: Snapshot, torch: str, backend: str | None, catalog: Catalog
) -> tuple[str, ...]:
    """torchvision and torchaudio that are there and do not belong to a torch."""
    there, platform = installed(machine), f"{machine.os.family}-{machine.os.machine}"

    def belongs(name: Name, package: Package) -> bool:
        """Whether nothing that is known speaks against it."""
        if serves_torch(catalog, name, package.version, torch) is False:
            return False
        where = None if package.installer == "conda" else platform
        known = backend not in (None, UNREAD) and backend
        return (
            not known or serves_backend(catalog, name, package.version, known, where) is not False
        )

    return tuple(name for name in COMPANIONS if name in there and not belongs(name, there[name]))


def pinned(machine: Snapshot, build: TorchBuild) -> tuple[Companion, ...]:
    """The other installed distributions that take another torch than a build's."""
    comes = versions_of(build)
    moved = {name: comes[name] for name in family_there(machine) if name in comes}
    return tuple(
        Companion(
            name=name,
            version=package.version,
            needs=need,
            can_follow=not package.direct
            and package.installer not in ("conda", "develop")
            and "@" not in need,
        )
        for name, package in installed(machine).items()
        if name not in FAMILY and (need := _broken(package, moved, machine)) is not None
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


def label_of_build(version: str) -> str | None:
    """The backend in the label of an extension's version.

    >>> label_of_build("2.1.2+pt25cpu"), label_of_build("2.1.2+pt25cu124"), label_of_build("2.7.4")
    ('cpu', 'cu124', None)
    """
    found = re.search(r"(cpu|cu\d{2,3})(?!\w)", version.partition("+")[2])
    return found[1] if found else None


def left_in_words(machine: Snapshot, build: TorchBuild, catalog: Catalog) -> tuple[str, ...]:
    """What stays beside a torch that comes and does not belong to it, and what that means."""
    there, comes = installed(machine), f"torch {build.torch}"
    said = [
        f"{name} {there[name].version} cannot follow: no release of it belongs to {comes} "
        f"from {build.backend}; it stays, and may fail when it is imported"
        for name in left_behind(machine, build.torch, build.backend, catalog)
        if name not in versions_of(build)
    ]
    own = machine.torch.version
    moves = bool(own) and parsed(own or "").release[:2] != parsed(build.torch).release[:2]
    told = {one.name for one in pinned(machine, build)}
    for name in (name for name in there if name in COMPILED and name not in told):
        version = there[name].version
        if moves or label_of_build(version) not in (None, build.backend):
            said.append(
                f"{name} {version} was compiled against torch {own}: install or build it again "
                f"for {comes} ({build.backend}), before that it may fail"
            )
    return tuple(said)


def pinned_in_words(machine: Snapshot, build: TorchBuild) -> tuple[str, ...]:
    """What takes another torch than the one that comes: whether it follows, and what else."""
    return tuple(
        f"{one.name} {one.version} requires {one.needs}: "
        + (
            f"it is requested again with torch {build.torch}"
            if one.can_follow
            else "it cannot follow, and may fail when it is used"
        )
        for one in pinned(machine, build)
    )


def _broken(package: Package, moved: Mapping[str, str], machine: Snapshot) -> str | None:
    """The first requirement of a distribution that the new versions do not meet."""
    for text, asked in _requirements(package, moved):
        version = moved.get(normalised(asked.name))
        if version is None or (asked.marker and not asked.marker.evaluate(environment_of(machine))):
            continue
        named = asked.url is None or f"{normalised(asked.name)}-{version}" in asked.url
        if not named or not asked.specifier.contains(version, prereleases=True):
            return text
    return None


NAME = r"\s*([A-Za-z0-9._-]+)"


def _requirements(package: Package, moved: Mapping[str, str]) -> Iterator[tuple[str, Requirement]]:
    """Those that name what moves; the others are not worth the import of their parser."""
    names = ((text, re.match(NAME, text)) for text in package.requires)
    concerned = [text for text, named in names if named and normalised(named[1]) in moved]
    if not concerned:
        return
    from packaging.requirements import InvalidRequirement, Requirement

    for text in concerned:
        try:
            yield text, Requirement(text)
        except InvalidRequirement:
            continue


SYSTEMS = {"linux": ("linux", "Linux"), "windows": ("win32", "Windows"), "macos": ("darwin", "")}


def environment_of(machine: Snapshot) -> dict[str, str]:
    """The markers' variables on that machine, as far as they are known; no extra is chosen."""
    platform, system = SYSTEMS.get(machine.os.family or "", (sys.platform, ""))
    version = machine.python.version or ".".join(map(str, sys.version_info[:3]))
    known = {
        "extra": "",
        "python_version": ".".join(version.split(".")[:2]),
        "python_full_version": version,
        "sys_platform": platform,
        "platform_system": system or "Darwin",
        "platform_machine": machine.os.machine or "",
    }
    return {name: value for name, value in known.items() if value or name == "extra"}
