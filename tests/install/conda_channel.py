"""A conda channel on disk: true names, versions, build strings and dependencies, no files behind.

The shapes follow conda-forge's recipes (pytorch-cpu-feedstock, cuda-version-feedstock): a CUDA
build of `pytorch` needs the virtual package `__cuda`, `cuda-version` constrains it by its major,
and `pytorch-gpu` is a metapackage that wants a CUDA build.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PYTHONS = ("3.11", "3.12")
CUDA = {"12.9": "cuda129", "13.0": "cuda130"}
TORCH = {"2.12.1": "0.27.1", "2.13.0": "0.28.0"}
"""torch -> the torchvision built for it."""


def package(name: str, version: str, build: str, *depends: str, **more: Any) -> dict[str, Any]:
    digits = "".join(c for c in build.rpartition("_")[2] if c.isdigit())
    return {
        "name": name,
        "version": version,
        "build": build,
        "build_number": int(digits or 0),
        "depends": list(depends),
        "subdir": "linux-64",
        "sha256": "0" * 64,
        "timestamp": 1_780_000_000_000,
        **more,
    }


def packages() -> Iterator[dict[str, Any]]:
    for python in PYTHONS:
        yield package("python", f"{python}.9", "h0_0_cpython", "__glibc >=2.17,<3.0.a0")
    for cuda in CUDA:
        major = cuda.partition(".")[0]
        yield package("cuda-version", cuda, "h0_3", constrains=[f"__cuda >={major}"])
    for torch, vision in TORCH.items():
        for cuda, tag in CUDA.items():
            yield from _family(torch, vision, cuda, tag)
        yield from _family(torch, vision, None, "cpu")


def _family(torch: str, vision: str, cuda: str | None, tag: str) -> Iterator[dict[str, Any]]:
    flavour = tag if cuda is None else f"{tag}_mkl"
    number = "100" if cuda is None else "300"
    glibc = "__glibc >=2.28,<3.0.a0" if cuda == "13.0" else "__glibc >=2.17,<3.0.a0"
    needs = (glibc,) if cuda is None else (glibc, "__cuda", f"cuda-version >={cuda},<{cuda}.1")
    meta = "pytorch-cpu" if cuda is None else "pytorch-gpu"
    for python in PYTHONS:
        short = f"py{python.replace('.', '')}"
        pinned = f"python {python}.*"
        build = f"{flavour}_{short}_h0_{number}"
        yield package("pytorch", torch, build, pinned, *needs)
        wants = f"pytorch {torch} {tag}*"
        yield package("torchvision", vision, f"{tag}_{short}_h1_{number}", pinned, wants)
    yield package(meta, torch, f"{flavour}_h2_{number}", f"pytorch {torch} {tag}*{number}")


def write_channel(folder: Path) -> str:
    """Write the channel's `repodata.json`; the channel's address."""
    for subdir, found in (("linux-64", list(packages())), ("noarch", [])):
        rows = {f"{p['name']}-{p['version']}-{p['build']}.conda": p for p in found}
        path = folder / subdir / "repodata.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        document = {
            "info": {"subdir": subdir},
            "packages": {},
            "packages.conda": rows,
            "repodata_version": 1,
        }
        path.write_text(json.dumps(document), encoding="utf-8")
    return folder.as_uri()
