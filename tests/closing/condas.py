"""conda: what an install or a remove leaves, by the channels' rows of the catalog."""

from __future__ import annotations

import re
from collections.abc import Sequence

from packaging.version import Version

from closing.seen import importing
from closing.shells import Refused
from closing.wheels import fits
from closing.world import CONDA, World, named, packages_of
from gpusetup.catalog.file import load_catalog
from gpusetup.model.machine import Package
from gpusetup.model.resolution import TorchBuild

VALUED = {"--prefix", "-p", "--name", "-n", "--channel", "-c"}
FLAGS = {"--yes", "-y", "--override-channels", "--force", "--force-remove", "--all"}
SPEC = re.compile(r"(?:(?P<channel>[\w-]+)::)?(?P<name>[\w.-]+?)(?P<spec>(?:[=<>!]=?|=).*)?")
FAMILY = {"pytorch", "pytorch-gpu", "pytorch-cpu", "torchvision", "torchaudio", "pytorch-cuda",
          "cuda-version", "cpuonly"}  # fmt: skip


def conda(world: World, verb: str, words: Sequence[str]) -> World:
    if world.snapshot.conda.prefix is None:
        raise Refused("conda: command not found")
    flags, values, specs = _sorted(words)
    if verb in ("list", "info", "clean", "search", "config"):
        return world
    if verb in ("remove", "uninstall"):
        return _removed(world, specs)
    if verb != "install":
        raise Refused(f"conda knows no {verb} {flags or ''}")
    return _installed(world, specs, values.get("--channel", ()) + values.get("-c", ()))


def _sorted(
    words: Sequence[str],
) -> tuple[set[str], dict[str, tuple[str, ...]], tuple[str, ...]]:
    flags: set[str] = set()
    values: dict[str, tuple[str, ...]] = {}
    specs: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in VALUED:
            if not rest:
                raise Refused(f"conda: {word} takes a value")
            values[word] = (*values.get(word, ()), rest.pop(0))
        elif word in FLAGS:
            flags.add(word)
        elif word.startswith("-"):
            raise Refused(f"conda knows no {word}")
        else:
            specs.append(word)
    return flags, values, tuple(specs)


def _removed(world: World, specs: tuple[str, ...]) -> World:
    """conda's own of that name go, with the files in site-packages that they brought."""
    gone = set(specs)
    if "pytorch" in gone:
        gone |= {"torch", "pytorch-cuda", "pytorch-gpu"}
    missing = [s for s in specs if not [p for p in named(packages_of(world), s, "torch") if p]]
    if missing:
        raise Refused(f"PackagesNotFoundError: {', '.join(missing)}")
    kept = tuple(p for p in packages_of(world) if not (p.name in gone and p.installer in CONDA))
    return importing(world.showing(packages=kept))


def _parsed(spec: str) -> tuple[str, str]:
    found = SPEC.fullmatch(spec)
    if found is None:
        raise Refused(f"conda: no match spec: {spec}")
    return found.group("name"), (found.group("spec") or "").lstrip("=")


def _installed(world: World, specs: tuple[str, ...], channels: tuple[str, ...]) -> World:
    wanted = dict(_parsed(spec) for spec in specs)
    torch = next((n for n in ("pytorch", "pytorch-gpu", "pytorch-cpu") if n in wanted), None)
    for name, spec in wanted.items():
        if name not in FAMILY:
            world = _put(world, name, _some_version(spec))
    if torch is None:
        return world
    row = _row(world, torch, wanted, channels)
    companions = {"torchvision": row.torchvision, "torchaudio": row.torchaudio}
    there = {p.name for p in packages_of(world) if p.installer in CONDA}
    world = _put(world, "pytorch", row.torch, _build_of(row), row.channel)
    world = _put(world, "torch", row.torch, _build_of(row), row.channel)
    for name, version in companions.items():
        if version and (name in wanted or name in there):
            world = _put(world, name, version, _build_of(row), row.channel)
    return importing(world)


def _row(world: World, torch: str, wanted: dict[str, str], channels: tuple[str, ...]) -> TorchBuild:
    """The row that conda's solver would take: the newest on the channels that are named."""
    names = {"pytorch": "conda-pytorch", "conda-forge": "conda-forge"}
    allowed = [names[c] for c in channels if c in names] or ["conda-forge"]
    cuda = wanted.get("pytorch-cuda") or wanted.get("cuda-version")
    if torch == "pytorch-cpu" or "cpuonly" in wanted:
        cuda = None
    known = [
        row
        for row in load_catalog().builds
        if row.channel in allowed
        and fits(world, row)
        and (not wanted[torch] or row.torch == wanted[torch])
        and (row.cuda or "") == (cuda or "")
    ]
    if not known:
        raise Refused(f"LibMambaUnsatisfiableError: {torch} {wanted}")
    return max(known, key=lambda row: Version(row.torch))


def _build_of(row: TorchBuild) -> str:
    return f"py3_cuda{row.cuda}_0" if row.cuda else "py3_cpu_0"


def _some_version(spec: str) -> str:
    """A version that a spec allows: under `<2024.1` an older one."""
    if spec.startswith("<"):
        least = Version(spec.lstrip("<="))
        return "2023.1.0" if least >= Version("2000") else "1.26.4"
    return spec.lstrip("=<>!").split(",")[0] or "99.0"


def _put(
    world: World, name: str, version: str, build: str | None = None, channel: str | None = None
) -> World:
    kept = tuple(p for p in packages_of(world) if not (p.name == name and p.installer in CONDA))
    site = world.snapshot.python.site_packages
    if name in ("pytorch", "torchvision", "torchaudio"):
        record = Package(name=name, version=version, installer="conda", build=build,
                         channel=channel, location=world.snapshot.conda.prefix)  # fmt: skip
        kept = (*kept, record)
    if name == "pytorch":
        return world.showing(packages=kept)
    new = Package(
        name=name,
        version=version,
        installer="conda",
        build=build,
        channel=channel,
        location=site,
    )
    return world.showing(packages=(*kept, new))
