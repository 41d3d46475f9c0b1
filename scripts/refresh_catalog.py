#!/usr/bin/env python3
"""Show what the live torch indexes have that `gpusetup/data/catalog.json` lacks, and write it.

    python scripts/refresh_catalog.py            # the difference, as a diff
    python scripts/refresh_catalog.py --write    # and write it
    python scripts/refresh_catalog.py --tidy     # only bring the file into its form; asks nobody

Everything it needs is in the repository and on the public index: the base is the catalog itself.
Builds that the index has and the catalog lacks are added with the kernels of the newest release
of the same backend (for a new backend: of the nearest CUDA), marked `inferred` until somebody
reads the wheel. An index that cannot be reached ends it.

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
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import requests
from index_builds import new_builds

from gpusetup.catalog.builds import Catalog
from gpusetup.catalog.file import read_catalog
from gpusetup.model.builds import TorchBuild
from gpusetup.model.versions import Capability, parsed

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
