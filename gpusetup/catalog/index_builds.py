"""Builds of torch as the file names of an index tell them.

A name says the torch, the backend, the Python and the platform, and nothing of the kernels: those
are taken from the most similar build that the catalog knows, so such a build is *inferred*.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from gpusetup.accelerators.makers import LABEL, NVIDIA, maker_of
from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.kernels import release
from gpusetup.catalog.rows import OtherMakers
from gpusetup.model.builds import TorchBuild
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.versions import cuda_of, parsed

PLATFORM = re.compile(
    r"(?P<many>manylinux\w*?|linux)_(?P<linux>x86_64|aarch64)|(?P<win>win_amd64)"
    r"|macosx_(?P<macos>\d+_\d+)_(?P<mac>arm64|x86_64)"
)
OLDEST_GLIBC = "2.17"
"""What torch's wheels of a platform without a number (`linux_x86_64`, `manylinux2014`) need."""
Family = Literal["linux", "windows", "macos"]
Place = tuple[str, str, str, str]
"""Torch, backend, system and machine of a build."""
LONGEST_NAME = 200
"""Letters of a wheel's name: torch's have about 80. Longer ones are not torch's."""


def new_builds(names: Iterable[tuple[str, str]], catalog: Catalog) -> tuple[TorchBuild, ...]:
    """The builds of torch that the catalog lacks, each for the Pythons of all its wheels.

    `names` are file names, each with the folder that it lies in (`cu134`). Pre-releases, releases
    older than the catalog, and names that are not torch's are left out: an index may list anything.
    """
    builds: dict[Place, TorchBuild] = {}
    for name, folder in names:
        build = build_named(name, folder, catalog)
        if build is None:
            continue
        place = (build.torch, build.backend, build.os, build.machine)
        pythons = {*build.pythons, *builds.get(place, build).pythons}
        ordered = sorted(pythons, key=lambda python: (len(python.rstrip("t")), python))
        builds[place] = replace(build, pythons=tuple(ordered))
    return tuple(build for place, build in builds.items() if catalog.row_of(*place) is None)


def family_of(platform: re.Match[str]) -> Family:
    """The system of a wheel's platform tag."""
    if platform["linux"]:
        return "linux"
    return "windows" if platform["win"] else "macos"


class NamedWheel(Frozen):
    """What the file name of a wheel of torch says."""

    torch: str
    label: str
    python: str
    """`3.11`, `3.13t`."""
    family: Family
    machine: str
    glibc: str | None = None
    macos: str | None = None


def wheel_named(name: str, catalog: Catalog) -> NamedWheel | None:
    """What a file name says; None if it is no release of torch that the catalog's table covers."""
    if len(name) > LONGEST_NAME:
        return None
    try:
        project, version, _, _ = parse_wheel_filename(name)
    except InvalidWheelFilename:
        return None
    is_old = version < parsed(catalog.releases[0].torch)
    if project != "torch" or version.is_prerelease or is_old:
        return None
    *_, python, abi, tag = name.removesuffix(".whl").split("-")
    platform = PLATFORM.search(tag)
    if platform is None or not re.fullmatch(r"cp3\d{1,2}", python):
        return None
    many = platform["many"]
    return NamedWheel(
        torch=version.public,
        label=version.local or "",
        python=f"3.{python[3:]}{'t' if abi.endswith('t') else ''}",
        family=family_of(platform),
        machine=(platform["linux"] or platform["mac"] or "x86_64").replace("arm64", "aarch64"),
        glibc=(".".join(many.split("_")[1:3]) or OLDEST_GLIBC) if many else None,
        macos=(platform["macos"] or "").replace("_", ".") or None,
    )


def build_named(name: str, folder: str, catalog: Catalog) -> TorchBuild | None:
    """The build of the CPU or of NVIDIA's GPUs that a wheel's file name means; None for others.

    A wheel without a label (macOS, old aarch64) is of the backend in whose folder it lies.
    """
    wheel = wheel_named(name, catalog)
    if wheel is None:
        return None
    backend = wheel.label or (folder if folder in catalog.backends else "cpu")
    if not re.fullmatch(LABEL, backend):
        return None
    similar = most_similar(catalog, backend, wheel.family, wheel.machine)
    if similar is None:
        return None
    known, last = catalog.release_of(wheel.torch), catalog.releases[-1]
    torchvision = known.torchvision if known else None
    accepted = last.torchvision_needs
    if known is None and accepted and wheel.torch in SpecifierSet(accepted):
        torchvision = last.torchvision
    cuda = cuda_of(backend)
    return replace(
        similar,
        torch=wheel.torch,
        backend=backend,
        cuda=cuda,
        pythons=(wheel.python,),
        glibc=wheel.glibc,
        macos=wheel.macos,
        driver_floor=catalog.driver_floor(cuda, wheel.family) if cuda else None,
        labelled=bool(wheel.label),
        torchvision=torchvision,
        torchaudio=known.torchaudio if known else None,
        released=known.released if known else None,
    )


def with_other_makers(
    names: Iterable[tuple[str, str]], catalog: Catalog
) -> tuple[tuple[OtherMakers, ...], frozenset[Place]]:
    """The table of the builds for other makers' GPUs with those that these names add, and what is
    new of them. Only a torch whose CPU build the catalog knows is added: it tells the Pythons."""
    known = {row.torch: dict(row.seen) for row in catalog.other_makers}
    added: set[Place] = set()
    for name, _ in names:
        wheel = wheel_named(name, catalog)
        is_other = wheel and maker_of(wheel.label) not in (None, NVIDIA.id)
        if wheel is None or not is_other or not re.fullmatch(LABEL, wheel.label):
            continue
        if catalog.row_of(wheel.torch, "cpu", wheel.family, wheel.machine) is None:
            continue
        platforms = known.setdefault(wheel.torch, {})
        platform = f"{wheel.family}-{wheel.machine}"
        backends = platforms.get(platform, "").split()
        if wheel.label not in backends:
            platforms[platform] = " ".join((*backends, wheel.label))
            added.add((wheel.torch, wheel.label, wheel.family, wheel.machine))
    oldest_first = sorted(known, key=parsed)
    rows = tuple(OtherMakers(torch=torch, seen=known[torch]) for torch in oldest_first)
    return rows, frozenset(added)


def most_similar(catalog: Catalog, backend: str, family: str, machine: str) -> TorchBuild | None:
    """The build that tells most of another one on a platform: the same backend's newest, else one
    of its CUDA major, else that of the highest CUDA."""
    cuda = cuda_of(backend)
    rows = [
        row
        for row in catalog.builds
        if (row.os, row.machine, row.channel) == (family, machine, "pytorch")
        and (row.backend == backend or (cuda and row.cuda))
    ]

    def similarity(row: TorchBuild) -> tuple[object, ...]:
        has = release(row.cuda or "0")
        is_of_major = bool(cuda) and has[0] == release(cuda or "0")[0]
        return row.backend == backend, is_of_major, parsed(row.torch), has

    return max(rows, key=similarity, default=None)
