"""Recognises torch builds by the file names on an index.

A file name shows the torch version, backend, Python and platform, but not the kernels. Those are
taken from the most similar build in the catalog, so such a build is marked as *inferred*.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from gpusetup.accelerators.makers import LABEL
from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.kernels import release as cuda_release
from gpusetup.model.builds import TorchBuild
from gpusetup.model.frozen import replace
from gpusetup.model.versions import cuda_of, parsed

PLATFORM = re.compile(
    # On Linux: `manylinux_2_28_x86_64`, `manylinux2014_aarch64` or `linux_x86_64`.
    r"(?P<many>manylinux\w*?|linux)_(?P<linux>x86_64|aarch64)"
    r"|(?P<win>win_amd64)"
    # On macOS: `macosx_11_0_arm64`.
    r"|macosx_(?P<macos>\d+_\d+)_(?P<mac>arm64|x86_64)"
)
"""The platform tag of a wheel's name."""
OLDEST_GLIBC = "2.17"
"""The glibc that torch's wheels need if their platform tag has no number (`linux_x86_64`,
`manylinux2014`)."""
Place = tuple[str, str, str, str]
"""The torch version, backend, system and machine of a build."""
LONGEST_NAME = 200
"""The maximum length of a wheel's name; torch's have about 80 characters."""


def new_builds(names: Iterable[tuple[str, str]], catalog: Catalog) -> tuple[TorchBuild, ...]:
    """The torch builds that the catalog does not contain, each with the Python versions of all its
    wheels.

    `names` are file names, each with its folder (`cu134`). An index may list anything, so
    pre-releases, releases older than the catalog, and names that are not torch's are left out.
    """
    builds: dict[Place, TorchBuild] = {}
    for name, folder in names:
        build = build_named(name, folder, catalog)
        if build is None:
            continue
        place = (build.torch, build.backend, build.os, build.machine)
        pythons = {*build.pythons, *builds.get(place, build).pythons}
        # 3.9 comes before 3.13, and 3.13 before 3.13t.
        in_order = sorted(pythons, key=lambda python: (len(python.rstrip("t")), python))
        builds[place] = replace(build, pythons=tuple(in_order))

    return tuple(build for place, build in builds.items() if catalog.row_of(*place) is None)


def build_named(name: str, folder: str, catalog: Catalog) -> TorchBuild | None:
    """The CPU or NVIDIA build with this file name; None for other builds, and for what is not a
    torch release that the catalog covers.

    A wheel without a label (macOS, old aarch64) has the backend of its folder.
    """
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
    is_cpython_3 = re.fullmatch(r"cp3\d{1,2}", python)
    if platform is None or not is_cpython_3:
        return None

    backend = version.local or (folder if folder in catalog.backends else "cpu")
    if not re.fullmatch(LABEL, backend):
        return None
    family = "linux" if platform["linux"] else "windows" if platform["win"] else "macos"
    machine = (platform["linux"] or platform["mac"] or "x86_64").replace("arm64", "aarch64")
    similar = most_similar(catalog, backend, family, machine)
    if similar is None:
        return None

    torch, many, cuda = version.public, platform["many"], cuda_of(backend)
    # `cp313t` is the ABI of the free-threaded Python.
    free_threaded = "t" if abi.endswith("t") else ""
    release, newest = catalog.release_of(torch), catalog.releases[-1]
    torchvision = release.torchvision if release else None
    # A torchvision that does not accept a range of torch versions only works with its own torch,
    # which is older than a torch that is not in the catalog.
    accepted = None if release else newest.torchvision_needs
    if accepted and torch in SpecifierSet(accepted):
        torchvision = newest.torchvision
    return replace(
        similar,
        torch=torch,
        backend=backend,
        cuda=cuda,
        pythons=(f"3.{python[3:]}{free_threaded}",),
        # `2.28` for `manylinux_2_28_x86_64`.
        glibc=".".join(many.split("_")[1:3]) or OLDEST_GLIBC if many else None,
        macos=(platform["macos"] or "").replace("_", ".") or None,
        driver_floor=catalog.driver_floor(cuda, family) if cuda else None,
        labelled=bool(version.local),
        torchvision=torchvision,
        torchaudio=release.torchaudio if release else None,
        released=release.released if release else None,
    )


def most_similar(catalog: Catalog, backend: str, family: str, machine: str) -> TorchBuild | None:
    """The most similar build on a platform, from which the missing facts are taken.

    This is the newest build for the same backend. If there is none, it is the newest one for the
    same CUDA major version, otherwise the one for the highest CUDA version.
    """
    cuda = cuda_of(backend)
    candidates = [
        build
        for build in catalog.builds
        if (build.os, build.machine, build.channel) == (family, machine, "pytorch")
        and (build.backend == backend or (cuda and build.cuda))
    ]

    def similarity(build: TorchBuild) -> tuple[object, ...]:
        build_cuda = cuda_release(build.cuda or "0")
        has_same_major = cuda is not None and build_cuda[0] == cuda_release(cuda)[0]
        return build.backend == backend, has_same_major, parsed(build.torch), build_cuda

    return max(candidates, key=similarity, default=None)
