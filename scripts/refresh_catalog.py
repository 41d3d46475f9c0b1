#!/usr/bin/env python3
"""Show what the live torch indexes have that `gpusetup/data/catalog.json` lacks, and write it.

    python scripts/refresh_catalog.py            # the difference, as a diff
    python scripts/refresh_catalog.py --write    # and write it
    python scripts/refresh_catalog.py --tidy     # only bring the file into its form; asks nobody

Everything it needs is in the repository and on the public index: the base is the catalog itself.
Builds that the index has and the catalog lacks are added with the kernels of the newest release
of the same backend (for a new backend: of the nearest CUDA), marked `inferred` until somebody
reads the wheel. What the METADATA of the newest torchvision and torchaudio declares is read there
too (`refresh_companions.py`). An index that cannot be reached ends it.

By hand, one row each: a release (`releases`), what the default package index has for a platform
(`default_wheels`), a CUDA release (`toolkits`, `branches`, `compilers`), a GPU (`gpus`). Then
`pytest --accept tests/test_catalog.py` shows which answers changed, in `tests/golden.json`.
"""

from __future__ import annotations

import argparse
import datetime
import difflib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from packaging.specifiers import SpecifierSet
from refresh_companions import wheels_on, with_companions

from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.file import read_catalog
from gpusetup.catalog.kernels import release
from gpusetup.install.wheels import Wheel
from gpusetup.model.frozen import replace
from gpusetup.model.resolution import TorchBuild
from gpusetup.model.versions import Capability, cuda_of, parsed

RECENT = 3
"""Of how many of the newest releases the companions are asked for."""
CATALOG = Path(__file__).resolve().parent.parent / "gpusetup" / "data" / "catalog.json"


def main() -> int:
    options = _options()
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


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tidy", action="store_true", help="ask no index; one row a line")
    parser.add_argument("--index", default="https://download.pytorch.org/whl")
    parser.add_argument("--write", action="store_true", help="write the catalog")
    return parser.parse_args()


def written(document: dict[str, Any]) -> str:
    """The catalog as text: one row a line, one platform of a release a line."""
    parts = [f'"schema": {document["schema"]}', f'"as_of": {json.dumps(document["as_of"])}']
    for name, group in document.items():
        if not isinstance(group, dict):
            continue
        head = {key: value for key, value in group.items() if key != "rows"}
        lines = ",\n".join(f"  {_row(row)}" for row in group["rows"])
        parts.append(
            f'"{name}": {json.dumps(head, ensure_ascii=False)[:-1]}, "rows": [\n{lines}\n]}}'
        )
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _row(row: dict[str, Any]) -> str:
    if "platforms" not in row:
        return json.dumps(row, ensure_ascii=False)
    head = json.dumps({k: v for k, v in row.items() if k != "platforms"}, ensure_ascii=False)
    platforms = ",\n".join(f"    {_platform(platform)}" for platform in row["platforms"])
    return f'{head[:-1]}, "platforms": [\n{platforms}]}}'


def _platform(platform: dict[str, Any]) -> str:
    head = json.dumps({k: v for k, v in platform.items() if k != "builds"}, ensure_ascii=False)
    builds = ",\n".join(
        f"      {json.dumps(build, ensure_ascii=False)}" for build in platform["builds"]
    )
    return f'{head[:-1]}, "builds": [\n{builds}]}}'


def with_live_indexes(document: dict[str, Any], root: str) -> dict[str, Any]:
    """The document with the builds that the live index has and the catalog lacks."""
    catalog = read_catalog(written(document).encode())
    recent = {row.torch for row in catalog.releases[-RECENT:]}
    new = [*new_builds(root, catalog)]
    for build in new:
        add(document, build)
        document["as_of"] = datetime.date.today().isoformat()
    both = (*catalog.builds, *new)
    backends = sorted({b.backend for b in both if b.torch in recent and b.channel == "pytorch"})
    if with_companions(document, root, backends):
        document["companions"]["as_of"] = datetime.date.today().isoformat()
    return document


PLATFORM = re.compile(
    r"(?P<many>manylinux\w*?|linux)_(?P<linux>x86_64|aarch64)|(?P<win>win_amd64)"
    r"|macosx_(?P<macos>\d+_\d+)_(?P<mac>arm64|x86_64)"
)
OLDEST_GLIBC = "2.17"
"""What torch's wheels of a platform without a number (`linux_x86_64`, `manylinux2014`) need."""


def new_builds(root: str, catalog: Catalog) -> Iterator[TorchBuild]:
    """The torch builds of the page of all wheels that the catalog lacks, prereleases and releases
    older than it left aside. Each is of the Pythons of all its wheels."""
    found: dict[tuple[str, str, str, str], TorchBuild] = {}
    for wheel in wheels_on(f"{root.rstrip('/')}/torch/"):
        build = _build(wheel, catalog)
        if build is not None:
            key = (build.torch, build.backend, build.os, build.machine)
            pythons = {*build.pythons, *found.get(key, build).pythons}
            ordered = tuple(sorted(pythons, key=lambda one: (len(one.rstrip("t")), one)))
            found[key] = replace(build, pythons=ordered)
    return (build for key, build in found.items() if catalog.row_of(*key) is None)


def _build(wheel: Wheel, catalog: Catalog) -> TorchBuild | None:
    """The build of one wheel, its kernels inferred; None if nothing tells them. One without a label
    (macOS, old aarch64) is of the backend in whose folder it lies."""
    torch, _, label = wheel.version.partition("+")
    folder = wheel.url.split("/")[-2]
    backend = label or (folder if folder in catalog.backends else "cpu")
    *_, python, abi, tag = wheel.filename.removesuffix(".whl").split("-")
    platform, version, last = PLATFORM.search(tag), parsed(torch), catalog.releases[-1]
    is_old = version.is_prerelease or version < parsed(catalog.releases[0].torch)
    if platform is None or is_old or not re.fullmatch(r"cp3\d+", python):
        return None
    family = "linux" if platform["linux"] else "windows" if platform["win"] else "macos"
    machine = (platform["linux"] or platform["mac"] or "x86_64").replace("arm64", "aarch64")
    like, many = _nearest(catalog, backend, family, machine), platform["many"]
    if like is None:
        return None
    fits = last.torchvision_needs and torch in SpecifierSet(last.torchvision_needs)
    own = catalog.release_of(torch)
    return replace(
        like,
        torch=torch,
        backend=backend,
        cuda=cuda_of(backend),
        pythons=(f"3.{python[3:]}{'t' if abi.endswith('t') else ''}",),
        glibc=(".".join(many.split("_")[1:3]) or OLDEST_GLIBC) if many else None,
        macos=(platform["macos"] or "").replace("_", ".") or None,
        labelled=bool(label),
        torchvision=own.torchvision if own else last.torchvision if fits else None,
        torchaudio=own.torchaudio if own else None,
        released=own.released if own else None,
    )


def _nearest(catalog: Catalog, backend: str, family: str, machine: str) -> TorchBuild | None:
    """The build that tells most: the same backend's newest, else that of its CUDA major, else the
    highest CUDA."""
    cuda, place = cuda_of(backend), (family, machine, "pytorch")
    rows = [
        row
        for row in catalog.builds
        if (row.os, row.machine, row.channel) == place
        and (row.backend == backend or (cuda and row.cuda))
    ]

    def tells(row: TorchBuild) -> tuple[object, ...]:
        has = release(row.cuda or "0")
        major = bool(cuda) and has[0] == release(cuda or "0")[0]
        return row.backend == backend, major, parsed(row.torch), has

    return max(rows, key=tells, default=None)


def add(document: dict[str, Any], build: TorchBuild) -> None:
    """Put a build where it belongs, with its release and platform where they are new."""
    rows = document["releases"]["rows"]
    release = next((row for row in rows if row["torch"] == build.torch), None)
    if release is None:
        release = {"torch": build.torch, "released": build.released or ""}
        release |= {"torchvision": build.torchvision, "torchaudio": build.torchaudio}
        release["platforms"] = []
        rows.append(release)
        rows.sort(key=lambda row: parsed(row["torch"]))
    on = f"{build.os}-{build.machine}"
    platform = next((p for p in release["platforms"] if p["on"] == on), None)
    if platform is None:
        platform = {"on": on, "pythons": " ".join(build.pythons)}
        platform |= {k: v for k in ("glibc", "macos") if (v := getattr(build, k))}
        if not build.labelled:
            platform["labelled"] = False
        platform["builds"] = []
        release["platforms"].append(platform)
    row = {"backend": build.backend}
    if build.kernels:
        row["arch"] = " ".join(arch_list(build.kernels, build.ptx))
    platform["builds"].append({**row, "status": "inferred"})
    platform["builds"].sort(key=lambda row: (row["backend"] != "cpu", row["backend"]))


def arch_list(kernels: tuple[str, ...], ptx: tuple[str, ...]) -> list[str]:
    """Kernels and PTX as torch's builds write them: `8.0 12.0+PTX`."""
    plus = {code.replace("compute_", "sm_") for code in ptx}
    return [f"{Capability.parse(sm)}{'+PTX' if sm in plus else ''}" for sm in kernels]


if __name__ == "__main__":
    sys.exit(main())
