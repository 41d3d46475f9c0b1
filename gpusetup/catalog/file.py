"""The form of `data/catalog.json`: groups of rows, each with its date, certainty and sources.

One release is a row with its platforms, one platform a row with its builds; architectures are
written as torch's own builds write them. `scripts/refresh_catalog.py` writes the file.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gpusetup.catalog.builds import Catalog, Channel
from gpusetup.catalog.gpus import GpuRow
from gpusetup.catalog.rows import (
    Branch,
    Companion,
    Compiler,
    DefaultWheel,
    Dropped,
    FirstDriver,
    Floor,
    Group,
    Milestone,
    OlderKernels,
    OlderRelease,
    Release,
    Retired,
)
from gpusetup.model.codec import from_json
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.resolution import TorchBuild
from gpusetup.model.versions import Capability, cuda_of
from gpusetup.named_file import shipped

if TYPE_CHECKING:
    from pathlib import Path

DATA: "str | Path" = "catalog.json"


@lru_cache(maxsize=1)
def load_catalog() -> Catalog:
    """The catalog inside the package."""
    return read_catalog(shipped(DATA))


def read_catalog(raw: bytes) -> Catalog:
    """A catalog from its JSON text; BadInput names the place that is wrong."""
    document = from_json(raw, _Document, what="the catalog")
    tables = {name: getattr(document, name).rows for name in SAME}
    named = (gpu for names in document.gpu_names.rows for gpu in names.gpus())
    others = {row.backend: tuple(row.torch.split()) for row in document.other_backends.rows}
    catalog = Catalog(
        as_of=document.as_of,
        builds=(),
        gpus=(*document.gpus.rows, *named),
        other_backends=others,
        **tables,
    )
    return replace(catalog, builds=tuple(_builds(document, catalog)))


SAME = (
    "releases", "branches", "families", "toolkits", "retired", "first_drivers", "dropped",
    "companions", "default_wheels", "compilers", "older_releases", "older_kernels", "milestones",
)  # fmt: skip
"""Groups whose rows are the catalog's as they stand."""


class _Build(Frozen):
    backend: str
    arch: str = ""
    """As in TORCH_CUDA_ARCH_LIST: `8.0 9.0 12.0+PTX`."""
    status: str
    glibc: str | None = None
    note: str | None = None


class _Platform(Frozen):
    on: str
    """`linux-x86_64`."""
    pythons: str
    builds: tuple[_Build, ...]
    glibc: str | None = None
    macos: str | None = None
    labelled: bool = True


class _Release(Release):
    platforms: tuple[_Platform, ...]


class _CondaBuild(Frozen):
    torch: str
    channel: Channel
    on: str
    pythons: str
    backend: str
    status: str
    arch: str = ""
    glibc: str | None = None


class _Other(Frozen):
    backend: str
    torch: str


class _Names(Frozen):
    capability: Capability
    names: tuple[str, ...]

    def gpus(self) -> tuple[GpuRow, ...]:
        return tuple(GpuRow(name=name, capability=self.capability) for name in self.names)


class _Document(Frozen):
    """The file: groups of rows, each with its date, certainty and sources."""

    as_of: str
    releases: Group[_Release]
    conda: Group[_CondaBuild]
    other_backends: Group[_Other]
    families: Group[Floor]
    toolkits: Group[Floor]
    branches: Group[Branch]
    retired: Group[Retired]
    first_drivers: Group[FirstDriver]
    dropped: Group[Dropped]
    companions: Group[Companion]
    gpus: Group[GpuRow]
    gpu_names: Group[_Names]
    default_wheels: Group[DefaultWheel]
    compilers: Group[Compiler]
    older_releases: Group[OlderRelease]
    older_kernels: Group[OlderKernels]
    milestones: Group[Milestone]


def _builds(document: _Document, catalog: Catalog) -> Iterator[TorchBuild]:
    for row in document.releases.rows:
        for platform in row.platforms:
            for build in platform.builds:
                yield _build(
                    build,
                    platform,
                    row,
                    catalog,
                    glibc=build.glibc or platform.glibc,
                    macos=platform.macos,
                    released=row.released,
                    labelled=platform.labelled,
                    note=build.note,
                )
    for wheel in document.conda.rows:
        same = catalog.release_of(wheel.torch)
        channel = wheel.channel
        yield _build(
            wheel, wheel, same, catalog, torch=wheel.torch, channel=channel, glibc=wheel.glibc
        )


def _build(build: Any, platform: Any, row: Any, catalog: Catalog, **more: Any) -> TorchBuild:
    """A build of one platform, beside the companions of its release."""
    family, _, machine = platform.on.partition("-")
    cuda = cuda_of(build.backend)
    kernels, ptx = codes(build.arch)
    names = ("torch", "torchvision", "torchaudio")
    return TorchBuild(
        backend=build.backend,
        cuda=cuda,
        os=family,
        machine=machine,
        pythons=_pythons(platform.pythons),
        kernels=kernels,
        ptx=ptx,
        driver_floor=catalog.driver_floor(cuda, family) if cuda else None,
        status=build.status,
        **{**{name: getattr(row, name, None) for name in names}, **more},
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


@lru_cache(maxsize=64)
def _pythons(text: str) -> tuple[str, ...]:
    return tuple(text.split())
