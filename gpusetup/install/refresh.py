"""The catalog brought up to what the live index has today (`resolve --refresh`), by the one page of
all torch wheels.

Wheels that the index lists and the catalog lacks become builds, with the kernels of the newest
release on the same backend: inferred, and each says so. Builds that the index no longer lists go.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Literal

from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.kernels import release
from gpusetup.catalog.rows import Release
from gpusetup.errors import Blocked, Unsatisfiable
from gpusetup.install.credentials import without_credentials
from gpusetup.install.fetching.page import ask_page
from gpusetup.install.fetching.wheels import Wheel
from gpusetup.model.frozen import replace
from gpusetup.model.resolution import TorchBuild
from gpusetup.model.versions import cuda_of, parsed

LABEL = re.compile(r"cu\d{2,4}")
PLATFORM = re.compile(
    r"(?P<many>manylinux\w*?|linux)_(?P<linux>x86_64|aarch64)|(?P<win>win_amd64)"
    r"|macosx_(?P<macos>\d+_\d+)_(?P<mac>arm64|x86_64)"
)
OLDEST_GLIBC = "2.17"
"""What torch's wheels of a platform without a number (`linux_x86_64`, `manylinux2014`) need."""


def refreshed(
    catalog: Catalog, root: str, notify: Callable[[str], None], wanted: str = "cpu"
) -> Catalog:
    """The catalog with what the index lists; Unsatisfiable if neither has the backend that is
    wanted. A backend of which the index lists nothing changes nothing."""
    shown = without_credentials(root)
    notify(f"asking {shown}")
    listed = listed_builds(root, catalog)
    if not listed:
        raise Blocked(
            f"{shown} has no index of torch: torch/ lists no wheels",
            hint="name the right one: `--index URL`",
        )
    asked, there = {build.backend for build in listed}, {*map(_key, listed)}
    if LABEL.fullmatch(wanted) and wanted not in {*catalog.backends, *asked}:
        raise Unsatisfiable(f"{shown} lists no torch for {wanted!r}")
    kept = tuple(
        build
        for build in catalog.builds
        if build.channel != "pytorch" or build.backend not in asked or _key(build) in there
    )
    known = {_key(build) for build in kept if build.channel == "pytorch"}
    added = tuple(build for build in listed if _key(build) not in known)
    releases = {build.torch: _following(build.torch, catalog) for build in added}
    releases |= {row.torch: row for row in catalog.releases}
    return replace(
        catalog,
        as_of=date.today().isoformat(),
        builds=(*kept, *added),
        releases=tuple(sorted(releases.values(), key=lambda row: parsed(row.torch))),
        other_backends={b: t for b, t in catalog.other_backends.items() if b not in asked},
    )


def _key(build: TorchBuild) -> tuple[str, str, str, str]:
    return build.torch, build.backend, build.os, build.machine


def listed_builds(root: str, catalog: Catalog) -> tuple[TorchBuild, ...]:
    """The torch builds that the page of all wheels lists, prereleases left aside: the catalog's
    own, and inferred ones. One without a label (macOS, old aarch64) is of the backend in whose
    folder it lies."""
    found: dict[tuple[str, str, str, str], TorchBuild] = {}
    for wheel in ask_page(f"{root.rstrip('/')}/torch/"):
        folder, label = wheel.url.split("/")[-2], wheel.version.partition("+")[2]
        backend = label or (folder if folder in catalog.backends else "cpu")
        build = _build(wheel, backend, catalog)
        if build is not None:
            had = found.get(_key(build), build)
            pythons = {*build.pythons, *had.pythons}
            ordered = tuple(sorted(pythons, key=lambda one: (len(one.rstrip("t")), one)))
            found[_key(build)] = replace(had, pythons=ordered)
    return tuple(catalog.row_of(*_key(one)) or one for one in found.values())


def _build(wheel: Wheel, backend: str, catalog: Catalog) -> TorchBuild | None:
    """The build of one wheel, its kernels inferred; None if nothing tells them, and for torch older
    than the catalog."""
    torch, _, label = wheel.version.partition("+")
    *_, python, abi, tag = wheel.filename.removesuffix(".whl").split("-")
    platform, version = PLATFORM.search(tag), parsed(torch)
    if wheel.name != "torch" or platform is None:
        return None
    if version.is_prerelease or version < parsed(catalog.releases[0].torch):
        return None
    family: Literal["linux", "windows", "macos"]
    family = "linux" if platform["linux"] else "windows" if platform["win"] else "macos"
    machine = (platform["linux"] or platform["mac"] or "x86_64").replace("arm64", "aarch64")
    like = _nearest(backend, family, machine, catalog)
    if like is None or not re.fullmatch(r"cp3\d+", python):
        return None
    many, cuda = platform["many"] or "", cuda_of(backend)
    numbers = ".".join(many.split("_")[1:3]) or OLDEST_GLIBC
    same = catalog.release_of(torch) or _following(torch, catalog)
    return replace(
        like,
        torch=torch,
        backend=backend,
        cuda=cuda,
        pythons=(f"3.{python[3:]}{'t' if abi.endswith('t') else ''}",),
        glibc=numbers if many else None,
        macos=(platform["macos"] or "").replace("_", ".") or None,
        labelled=bool(label),
        driver_floor=catalog.driver_floor(cuda, family) if cuda else None,
        torchvision=same.torchvision,
        torchaudio=same.torchaudio,
        released=same.released or None,
        status="inferred",
        note=f"seen on the index; its kernels are inferred from {like.torch} {like.backend}",
    )


def _nearest(backend: str, family: str, machine: str, catalog: Catalog) -> TorchBuild | None:
    """The build that tells most: the same backend's newest, else that of its CUDA major, else the
    highest CUDA."""
    cuda = cuda_of(backend)
    rows = [
        b
        for b in catalog.builds
        if (b.os, b.machine, b.channel) == (family, machine, "pytorch")
        and (b.backend == backend or (cuda and b.cuda))
    ]

    def tells(b: TorchBuild) -> tuple[object, ...]:
        has = release(b.cuda or "0")
        major = bool(cuda) and has[0] == release(cuda or "0")[0]
        return b.backend == backend, major, parsed(b.torch), has

    return max(rows, key=tells, default=None)


def _following(torch: str, catalog: Catalog) -> Release:
    """A release that the catalog lacks: the newest torchvision if it accepts later torch."""
    from packaging.specifiers import SpecifierSet

    last = catalog.releases[-1]
    fits = last.torchvision_needs and torch in SpecifierSet(last.torchvision_needs)
    return Release(
        torch=torch,
        released="",
        torchvision=last.torchvision if fits else None,
        torchvision_needs=last.torchvision_needs if fits else None,
    )
