"""The form of `data/catalog.json`: groups of rows, each with its date, certainty and sources.

One release is a row with its platforms, one platform a row with its builds; architectures are
written as torch's own builds write them. `scripts/refresh_catalog.py` writes the file.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gpusetup.catalog.builds import Catalog
from gpusetup.model.builds import TorchBuild
from gpusetup.model.codec import from_json, from_plain
from gpusetup.model.frozen import replace
from gpusetup.model.versions import cuda_of
from gpusetup.named_file import shipped

if TYPE_CHECKING:
    from pathlib import Path

DATA: "str | Path" = "catalog.json"
Row = Mapping[str, Any]


@lru_cache(maxsize=1)
def load_catalog() -> Catalog:
    """The catalog inside the package."""
    return read_catalog(shipped(DATA))


def read_catalog(raw: bytes) -> Catalog:
    """A catalog from its JSON text; BadInput names the place that is wrong."""
    document = from_json(raw, dict[str, Any], what="the catalog")
    rows = {name: group["rows"] for name, group in document.items() if isinstance(group, dict)}
    named = [
        {"name": name, "capability": row["capability"]}
        for row in rows.pop("gpu_names", ())
        for name in row["names"]
    ]
    others = [row["backend"] for row in rows.get("other_backends", ())]
    tables = {**rows, "gpus": [*rows.get("gpus", ()), *named], "other_backends": others}
    catalog = from_plain({**document, **tables}, Catalog, what="the catalog")
    return replace(catalog, builds=tuple(_build(row, catalog) for row in _flat(rows)))


def _flat(rows: Mapping[str, list[Row]]) -> Iterator[Row]:
    """A row for each build, with what its platform and its release say; conda's come last."""
    releases = {row["torch"]: {**row, "platforms": ()} for row in rows["releases"]}
    for release in rows["releases"]:
        for platform in release["platforms"]:
            for build in platform["builds"]:
                yield {**releases[release["torch"]], **platform, **build}
    for build in rows["conda"]:
        yield {**releases.get(build["torch"], {}), **build, "released": None}


FIELDS = (
    "torch", "backend", "torchvision", "torchaudio", "released", "channel", "labelled",
    "glibc", "macos",
)  # fmt: skip
"""What a row says as a build has it."""


def _build(row: Row, catalog: Catalog) -> TorchBuild:
    family, _, machine = row["on"].partition("-")
    cuda = cuda_of(row["backend"])
    kernels, ptx = codes(row.get("arch", ""))
    told = {name: row[name] for name in FIELDS if name in row}
    told |= {"os": family, "machine": machine, "pythons": tuple(row["pythons"].split())}
    floor = catalog.driver_floor(cuda, family) if cuda else None
    return TorchBuild(
        **{**told, "cuda": cuda, "kernels": kernels, "ptx": ptx, "driver_floor": floor}
    )


@lru_cache(maxsize=256)
def codes(arch: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Kernels and PTX of an architecture list as torch's builds write it.

    >>> codes("8.0 12.0+PTX")
    (('sm_80', 'sm_120'), ('compute_120',))
    """
    words = [word.partition("+") for word in arch.replace(".", "").split()]
    kernels = tuple(f"sm_{digits}" for digits, *_ in words)
    return kernels, tuple(f"compute_{digits}" for digits, _, ptx in words if ptx)
