"""The format of `data/catalog.json`: groups of rows, each with a date, a certainty and sources.

The row of a wheel or a conda package names all torch versions that have such a build. Architectures
are written as in torch's own builds. `scripts/refresh_catalog.py` writes the file.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, get_args

from gpusetup.catalog.builds import Catalog, Channel
from gpusetup.model.builds import TorchBuild
from gpusetup.model.codec import from_json, from_plain
from gpusetup.model.frozen import replace
from gpusetup.model.versions import cuda_of
from gpusetup.named_file import shipped

if TYPE_CHECKING:
    from pathlib import Path

DATA: "str | Path" = "catalog.json"
JsonRow = Mapping[str, Any]
"""A row of a table, as it is in the JSON."""


@lru_cache(maxsize=1)
def load_catalog() -> Catalog:
    """The catalog that comes with this gpusetup."""
    return read_catalog(shipped(DATA))


def read_catalog(raw: bytes) -> Catalog:
    """Read a catalog from JSON text. Raises BadInput, which names the wrong line or key."""
    document = from_json(raw, dict[str, Any], what="the catalog")
    # Only groups are tables with a date and sources. Skip plain texts such as `as_of`.
    groups = {name: group for name, group in document.items() if isinstance(group, dict)}
    tables: dict[str, Any] = {name: group["rows"] for name, group in groups.items()}
    gpus = [*tables.get("gpus", ())]
    # Of some GPUs, only the name and the compute capability are known.
    for row in tables.pop("gpu_names", ()):
        gpus += [{"name": name, "capability": row["capability"]} for name in row["names"]]
    tables["gpus"] = gpus
    tables["other_backends"] = [row["backend"] for row in tables.get("other_backends", ())]

    # A build's row needs the catalog's drivers, so the builds are added to the catalog afterwards.
    catalog = from_plain({**document, **tables}, Catalog, what="the catalog")
    builds = tuple(_build(row, catalog) for row in _build_rows(tables))
    return replace(catalog, builds=builds)


def _build_rows(tables: Mapping[str, list[JsonRow]]) -> list[JsonRow]:
    """A row for each build, with the values of its release: PyTorch's wheels, then conda's
    packages, oldest torch first."""
    releases = {release["torch"]: release for release in tables["releases"]}
    # conda's release dates differ from PyTorch's and are not needed, so leave them out.
    conda = [{"released": None, **row} for row in tables["conda"]]
    rows = [
        {**releases[torch], **row, "torch": torch}
        for row in (*tables["wheels"], *conda)
        for torch in row["torch"].split()
    ]
    oldest_first = list(releases)
    channels = get_args(Channel)
    return sorted(
        rows,
        key=lambda row: (
            channels.index(row.get("channel", "pytorch")),
            oldest_first.index(row["torch"]),
        ),
    )


FIELDS = (
    "torch", "backend", "torchvision", "torchaudio", "released", "channel", "labelled",
    "glibc", "macos",
)  # fmt: skip
"""The fields of a row that a build also has, under the same names."""


def _build(row: JsonRow, catalog: Catalog) -> TorchBuild:
    """A build from its row. `catalog` has the oldest driver for the build's CUDA version."""
    family, _, machine = row["on"].partition("-")  # `linux-x86_64`
    cuda = cuda_of(row["backend"])
    kernels, ptx = codes(row.get("arch", ""))
    values = {name: row[name] for name in FIELDS if name in row}
    return TorchBuild(
        **values,
        os=family,
        machine=machine,
        pythons=tuple(row["pythons"].split()),
        cuda=cuda,
        kernels=kernels,
        ptx=ptx,
        driver_floor=catalog.driver_floor(cuda, family) if cuda else None,
    )


@lru_cache(maxsize=256)
def codes(arch: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The kernels and PTX in an architecture list, in the notation of torch's builds.

    >>> codes("8.0 12.0+PTX")
    (('sm_80', 'sm_120'), ('compute_120',))
    """
    kernels = []
    ptx = []
    for word in arch.replace(".", "").split():
        digits, _, also_ptx = word.partition("+")
        kernels.append(f"sm_{digits}")
        if also_ptx:
            ptx.append(f"compute_{digits}")
    return tuple(kernels), tuple(ptx)
