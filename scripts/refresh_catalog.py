#!/usr/bin/env python3
"""Show what the live torch indexes have that `gpusetup/data/catalog.json` lacks, and write it.

    python scripts/refresh_catalog.py            # the difference, as a diff
    python scripts/refresh_catalog.py --write    # and write it
    python scripts/refresh_catalog.py --tidy     # only bring the file into its form; asks nobody

Everything it needs is in the repository and on the public index: the base is the catalog itself.
Builds that the index has and the catalog lacks are added with the kernels of the newest release
of the same backend (for a new backend: of the nearest CUDA), marked `inferred` until somebody
reads the wheel. If it is like an earlier release's, its version then joins that row (`"torch":
"2.14.0 2.14.1"`). An index that cannot be reached ends it.

By hand, one row each: a release (`releases`), what the default package index has for a platform
(`default_wheels`), a torchvision or torchaudio (`companions`), a CUDA release (`toolkits`,
`branches`), a GPU (`gpus`). Then
`pytest --accept tests/catalog/test_catalog.py` shows which answers changed, in `tests/golden.json`.
"""

from __future__ import annotations

import argparse
import datetime
import difflib
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import requests
from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from gpusetup.accelerators.makers import LABEL
from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.file import read_catalog
from gpusetup.catalog.kernels import release as cuda_release
from gpusetup.model.builds import TorchBuild
from gpusetup.model.frozen import replace
from gpusetup.model.versions import Capability, cuda_of, parsed

CATALOG = Path(__file__).resolve().parent.parent / "gpusetup" / "data" / "catalog.json"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tidy", action="store_true", help="ask no index; one row a line")
    parser.add_argument("--index", default="https://download.pytorch.org/whl")
    parser.add_argument("--write", action="store_true", help="write the catalog")
    options = parser.parse_args()

    before = CATALOG.read_text(encoding="utf-8")
    document = json.loads(before)
    if not options.tidy:
        document = with_live_indexes(document, options.index)
    after = written(document)
    sys.stdout.writelines(
        difflib.unified_diff(
            before.splitlines(True), after.splitlines(True), "catalog", "rebuilt", n=1
        )
    )
    if options.write or options.tidy:
        CATALOG.write_text(after, encoding="utf-8")
    return 0


def written(document: dict[str, Any]) -> str:
    """The catalog as text: one row a line."""
    parts = [f'"schema": {document["schema"]}', f'"as_of": {json.dumps(document["as_of"])}']
    for name, group in document.items():
        if not isinstance(group, dict):
            continue
        head = {key: value for key, value in group.items() if key != "rows"}
        lines = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in group["rows"])
        parts.append(
            f'"{name}": {json.dumps(head, ensure_ascii=False)[:-1]}, "rows": [\n{lines}\n]}}'
        )
    return "{\n" + ",\n".join(parts) + "\n}\n"


def with_live_indexes(document: dict[str, Any], root: str) -> dict[str, Any]:
    """The document with the builds that the live index has and the catalog lacks."""
    catalog = read_catalog(written(document).encode())
    for build in builds_on(root, catalog):
        add(document, build)
        document["as_of"] = datetime.date.today().isoformat()
    return document


def builds_on(root: str, catalog: Catalog) -> tuple[TorchBuild, ...]:
    """The builds on the page of all wheels that the catalog lacks."""
    page = requests.get(f"{root.rstrip('/')}/torch/", timeout=20)
    page.raise_for_status()
    links = re.findall(r'<a (?![^>]*data-yanked)[^>]*href="([^"#]+\.whl)', page.text)
    # The folder of a URL names the backend: `/whl/cu130/torch-2.9.0%2Bcu130-cp313-...whl`.
    urls = (urljoin(page.url, link).split("/") for link in links)
    return new_builds(((unquote(url[-1]), url[-2]) for url in urls), catalog)


def add(document: dict[str, Any], build: TorchBuild) -> None:
    """Add a row for a build, and one for its release if that is new."""
    releases = document["releases"]["rows"]
    if build.torch not in [release["torch"] for release in releases]:
        release: dict[str, Any] = {"torch": build.torch, "released": build.released or ""}
        release |= {"torchvision": build.torchvision, "torchaudio": build.torchaudio}
        releases.append(release)
        releases.sort(key=lambda row: parsed(row["torch"]))
    row: dict[str, Any] = {"torch": build.torch, "on": f"{build.os}-{build.machine}"}
    row["pythons"] = " ".join(build.pythons)
    row |= {k: v for k in ("glibc", "macos") if (v := getattr(build, k))}
    if not build.labelled:
        row["labelled"] = False
    row["backend"] = build.backend
    if build.kernels:
        row["arch"] = " ".join(arch_list(build.kernels, build.ptx))
    wheels = document["wheels"]["rows"]
    wheels.append({**row, "status": "inferred"})
    platforms = list(dict.fromkeys(wheel["on"] for wheel in wheels))
    # "cpu" comes before "cu130". The sort is stable, so the oldest torch stays first.
    wheels.sort(key=lambda wheel: (platforms.index(wheel["on"]), wheel["backend"]))


def arch_list(kernels: tuple[str, ...], ptx: tuple[str, ...]) -> list[str]:
    """Kernels and PTX as torch's builds write them: `8.0 12.0+PTX`."""
    plus = {code.replace("compute_", "sm_") for code in ptx}
    return [f"{Capability.parse(sm)}{'+PTX' if sm in plus else ''}" for sm in kernels]


# --- the builds that an index lists ---------------------------------------------------------------

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


if __name__ == "__main__":
    sys.exit(main())
