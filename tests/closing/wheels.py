"""What an index has: the wheels of the torch family, from the catalog's rows alone."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from closing import facts
from closing.shells import Refused
from closing.world import FAMILY, World
from gpusetup.catalog.file import load_catalog
from gpusetup.model.builds import TorchBuild

TORCH_INDEX = "https://download.pytorch.org/whl/"


@dataclass(frozen=True)
class Wheel:
    name: str
    version: str
    backend: str | None = None
    torch: str | None = None
    """The torch that it requires, by its metadata; None where it takes any."""


def label_of(url: str | None) -> str:
    """Which index a URL means: torch's own of one backend, or the default one."""
    if not url.startswith(TORCH_INDEX):
        raise Refused(f"no such index: {url}")
    return url.removeprefix(TORCH_INDEX).strip("/")


def wheels(world: World, name: str, index: str) -> tuple[Wheel, ...]:
    """All the wheels of one name that fit this interpreter, the newest last."""
    rows = (row for row in load_catalog().builds if row.channel == "pytorch" and fits(world, row))
    found = tuple(w for row in rows for w in _of_row(world, name, index, row))
    return tuple(sorted(found, key=lambda wheel: Version(wheel.version)))


def fits(world: World, row: TorchBuild) -> bool:
    """The platform, the interpreter and the libc of a wheel."""
    machine = world.snapshot
    python = ".".join((machine.python.version or "0").split(".")[:2])
    python += "t" if machine.python.free_threaded else ""
    libc = (machine.os.libc or "").removeprefix("glibc ")
    there = machine.os.family == row.os and machine.os.machine == row.machine
    if not there or python not in row.pythons or machine.python.bits == 32:
        return False
    if row.os != "linux" or row.glibc is None:
        return True
    return libc[:1].isdigit() and Version(libc) >= Version(row.glibc)


def _of_row(world: World, name: str, index: str, row: TorchBuild) -> tuple[Wheel, ...]:
    public = getattr(row, name)
    if public is None:
        return ()
    if row.backend != index:
        return ()
    label = f"+{row.backend}" if row.labelled else ""
    return (Wheel(name, f"{public}{label}", row.backend, _requires(name, row)),)


def _requires(name: str, row: TorchBuild) -> str | None:
    """torchvision names one torch (0.29: the least one), torchaudio one until 2.10, then none."""
    if name == "torch" or (name == "torchaudio" and Version(row.torch) >= Version("2.11")):
        return None
    release = load_catalog().release_of(row.torch)
    least = release.torchvision_needs if name == "torchvision" and release else None
    return least or f"=={row.torch}"


def requirement(text: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement as problem:
        raise Refused(f"no requirement: {text!r}") from problem


def best(world: World, wanted: Requirement, index: str) -> Wheel:
    """The newest wheel that a requirement allows; Refused where the index has none."""
    if wanted.name not in FAMILY:
        return _other(wanted, index)
    known = [w for w in wheels(world, wanted.name, index) if wanted.specifier.contains(w.version)]
    if not known:
        raise Refused(f"No matching distribution found for {wanted} in {index}")
    return known[-1]


def _other(wanted: Requirement, index: str) -> Wheel:
    """A package that is not of the family: the version that is asked for, if the index has any."""
    if index != facts.DEFAULT_INDEX and not wanted.name.startswith(("nvidia-", "numpy", "triton")):
        raise Refused(f"No matching distribution found for {wanted} in {index}")
    versions = [s.version for s in wanted.specifier if s.operator == "=="]
    below = [s.version for s in wanted.specifier if s.operator == "<"]
    version = versions[0] if versions else ("1.26.4" if below == ["2"] else "99.0")
    pins = facts.PINS.get(wanted.name, {})
    needs = pins.get(version)
    return Wheel(wanted.name, version, None, f"=={needs}" if needs else None)
