"""The dated table of torch builds, GPUs and drivers (`data/catalog.json`), and what it answers.

`catalog_file.py` reads it. A build is a row of torch x backend x platform; GPUs are found by
name (`gpus.py`); a driver's CUDA and the floors follow from the driver's branch.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from gpusetup.catalog_companions import Companion
from gpusetup.gpus import (
    GpuRow,
    one_capability,
    one_memory,
    rows_named,
    rows_or_none,
    tokens,
)
from gpusetup.kernels import release
from gpusetup.model import Capability, Gpu, Reading, Snapshot, TorchBuild, parsed
from gpusetup.value import Value, replace

SOURCE = "catalog"
INDEX_ROOT = "https://download.pytorch.org/whl"

Channel = Literal["pytorch", "conda-pytorch", "conda-forge"]


class Release(Value):
    """One torch release and the companions that belong to it."""

    torch: str
    released: str
    torchvision: str | None = None
    torchvision_needs: str | None = None
    """The torch that this torchvision accepts where that is a range: `>=2.14.0`."""
    torchvision_excludes: str | None = None
    """The one Python that its torchvision refuses: `3.14.1`."""
    torchaudio: str | None = None


class Floor(Value):
    """The least driver for a CUDA version (`12.4.1`) or a whole family (`12`)."""

    cuda: str
    linux: str
    windows: str | None = None

    def on(self, family: str) -> str | None:
        return self.windows if family == "windows" else self.linux


class Branch(Value):
    """A driver branch and the CUDA version that its `nvidia-smi` prints."""

    branch: int
    cuda: str


class Retired(Value):
    """The last driver branch that knows an architecture; `minor` None means the whole major."""

    architecture: str
    major: int
    last_branch: int
    minor: int | None = None


class Dropped(Value):
    """From which torch on a library that it carries leaves an architecture out, and which."""

    architecture: str
    major: int
    from_torch: str
    because: str
    source: str


class FirstDriver(Value):
    """The first driver that knows an architecture, or one product where a later one is needed.

    A branch alone (`570`) means every driver of it, on Windows too.
    """

    architecture: str
    capability: Capability
    linux: str
    windows: str | None = None
    gpu: str | None = None
    """The product's name, in words that its full name holds."""
    source: str

    def on(self, family: str) -> str:
        return self.windows if self.windows and family == "windows" else self.linux


class Catalog(Value):
    as_of: str
    builds: tuple[TorchBuild, ...]
    releases: tuple[Release, ...]
    gpus: tuple[GpuRow, ...]
    branches: tuple[Branch, ...]
    families: tuple[Floor, ...]
    toolkits: tuple[Floor, ...]
    other_backends: Mapping[str, tuple[str, ...]]
    """Index labels that exist but are not fitted to NVIDIA GPUs: ROCm, XPU, older torch's."""
    retired: tuple[Retired, ...]
    first_drivers: tuple[FirstDriver, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    companions: tuple[Companion, ...] = ()
    """Those that serve more than the torch that they were released with."""

    def is_newer_gpu(self, capability: Capability) -> bool:
        """Whether a GPU is newer than every one that the catalog knows."""
        return capability > _newest(Same(self))

    @property
    def backends(self) -> tuple[str, ...]:
        """Every backend that ever was."""
        return tuple(dict.fromkeys((*(b.backend for b in self.builds), *self.other_backends)))

    def driver_cuda(self, driver_version: str, family: str = "linux") -> str | None:
        """What `nvidia-smi` prints as CUDA version; a newer driver counts as the newest row.

        None for a driver older than the oldest row, and for a text that is no version. Windows'
        numbers run a little higher inside the same branches.
        """
        major = parsed(driver_version).major
        known = [row for row in self.branches if row.branch <= major]
        return max(known, key=lambda row: row.branch).cuda if known else None

    def driver_is_newer(self, driver_version: str) -> bool:
        """Whether a driver's branch is newer than any that the catalog knows.

        Windows drivers of a branch run up to 9 above its number.
        """
        return parsed(driver_version).major >= max(row.branch for row in self.branches) + 10

    def driver_floor(self, cuda: str, family: str = "linux") -> str | None:
        """The least driver for a CUDA version, by minor-version compatibility from 11 on.

        `family` is `windows` for Windows drivers, WSL's included.
        """
        return _floor_of(cuda, family, self.families, self.toolkits)

    def toolkit_driver(self, cuda: str, family: str = "linux") -> str | None:
        """The driver that first served a CUDA version fully (needed to compile its PTX)."""
        rows = [row for row in self.toolkits if release(row.cuda) == release(cuda)]
        return min((f for row in rows if (f := row.on(family))), key=parsed, default=None)

    def last_branch(self, capability: Capability) -> int | None:
        """The last driver branch for a GPU; None while drivers still support it."""
        for row in self.retired:
            if row.major == capability.major and row.minor in (None, capability.minor):
                return row.last_branch
        return None

    def first_driver(self, gpu: Gpu, family: str = "linux") -> str | None:
        """The least driver that knows a GPU: a branch (`570`), for some products a version."""
        rows = (row for row in self.first_drivers if row.capability == gpu.compute_capability)
        known = (row.on(family) for row in rows if row.gpu is None or _names(row.gpu, gpu.name))
        return max(known, key=parsed, default=None)

    def why_dropped(self, capability: Capability, torch_version: str) -> str | None:
        """Why a torch does not serve a GPU, beyond the kernels of its own."""
        public = parsed(torch_version.partition("+")[0])
        for row in self.dropped:
            if row.major == capability.major and public >= parsed(row.from_torch):
                return row.because
        return None

    def gpus_named(self, text: str) -> tuple[GpuRow, ...]:
        """The GPUs that a text names; UsageError with the nearest names when there is none."""
        return rows_named(text, self.gpus)

    def row_of(
        self,
        torch_version: str,
        backend: str,
        family: str,
        machine: str,
        channel: Channel = "pytorch",
    ) -> TorchBuild | None:
        """The row of a torch (with or without its local label) on a backend and platform."""
        public = torch_version.partition("+")[0]
        place = (family, machine, channel)
        for row in self.builds:
            same = row.torch == public and row.backend == backend
            if same and (row.os, row.machine, row.channel) == place:
                return row
        return None

    def release_of(self, torch_version: str) -> Release | None:
        public = torch_version.partition("+")[0]
        return next((row for row in self.releases if row.torch == public), None)


def _names(product: str, name: str) -> bool:
    """Whether a GPU's name holds all words of a product's: `B200` is not in `GB200`."""
    return tokens(product) <= tokens(name)


def index_url(backend: str, root: str = INDEX_ROOT) -> str:
    """The index of one backend's wheels.

    >>> index_url("cu124", "http://mirror/whl/")
    'http://mirror/whl/cu124'
    """
    return f"{root.rstrip('/')}/{backend}"


def cuda_of(backend: str) -> str | None:
    """The CUDA version of a wheel tag.

    >>> cuda_of("cu124"), cuda_of("cu92"), cuda_of("cpu"), cuda_of("rocm6.4")
    ('12.4', '9.2', None, None)
    """
    digits = backend.removeprefix("cu")
    if digits == backend or not digits.isdigit():
        return None
    return f"{digits[:-1]}.{digits[-1]}"


@lru_cache(maxsize=256)
def _floor_of(
    cuda: str, family: str, families: tuple[Floor, ...], toolkits: tuple[Floor, ...]
) -> str | None:
    exact = [row for row in families if row.cuda == cuda]
    same = exact or [row for row in families if row.cuda == cuda.split(".")[0]]
    if same:
        return same[0].on(family)
    older = [row for row in toolkits if release(row.cuda) == release(cuda)]
    return min((f for row in older if (f := row.on(family))), key=parsed, default=None)


class Same:
    """A catalog as a key of a cache: equal to itself only (it has no hash of its own)."""

    __slots__ = ("catalog",)

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    def __hash__(self) -> int:
        return id(self.catalog)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.catalog is self.catalog


def with_catalog(snapshot: Snapshot, catalog: Catalog) -> Snapshot:
    """A snapshot completed from the catalog, each value with a reading that says so.

    Filled where no source answered: torch's kernels from its row, a GPU's capability and memory
    from its name, the driver's CUDA from its version.
    """
    snapshot = _with_kernels(_with_backend(snapshot), catalog)
    return _with_driver_cuda(_with_gpus(snapshot, catalog), catalog)


# --- completing a snapshot ----------------------------------------------------------------------


def _with_backend(snapshot: Snapshot) -> Snapshot:
    """The backend that the label of the installed version names, where no source said it."""
    torch = snapshot.torch
    label = (torch.version or "").partition("+")[2].lower()
    if torch.backend or not (label == "cpu" or cuda_of(label)):
        return snapshot
    named = replace(torch, backend=label, cuda=torch.cuda or cuda_of(label))
    return replace(snapshot, torch=named)


def _with_kernels(snapshot: Snapshot, catalog: Catalog) -> Snapshot:
    """The kernels of the installed build; where the platform is unknown, all that it has on any."""
    torch = snapshot.torch
    if torch.kernels is not None or not (torch.version and torch.backend):
        return snapshot
    rows = _rows_of(snapshot, catalog, torch.version.partition("+")[0])
    if not rows:
        return snapshot
    kernels = tuple(dict.fromkeys(kernel for row in rows for kernel in (*row.kernels, *row.ptx)))
    value = " ".join(kernels) or "none (CPU build)"
    return replace(
        snapshot,
        torch=replace(torch, kernels=kernels, cuda=torch.cuda or rows[0].cuda),
        readings=(*snapshot.readings, Reading(subject="torch.kernels", source=SOURCE, value=value)),
    )


def _rows_of(snapshot: Snapshot, catalog: Catalog, public: str) -> tuple[TorchBuild, ...]:
    """The rows of the installed torch on this platform, as far as that is known.

    conda's channels build for other architectures than the wheels are built for.
    """
    backend, on = snapshot.torch.backend, snapshot.os
    rows = tuple(
        row
        for row in catalog.builds
        if (row.torch, row.backend) == (public, backend)
        and on.family in (None, row.os)
        and on.machine in (None, row.machine)
    )
    wheels = tuple(row for row in rows if row.channel == "pytorch")
    if snapshot.torch.installer != "conda":
        return wheels
    return tuple(row for row in rows if row.channel != "pytorch") or wheels


def _with_gpus(snapshot: Snapshot, catalog: Catalog) -> Snapshot:
    if snapshot.gpus is None or all(
        g.compute_capability and g.memory_total_bytes for g in snapshot.gpus
    ):
        return snapshot
    filled = [_completed(gpu, catalog) for gpu in snapshot.gpus]
    return replace(
        snapshot,
        gpus=tuple(gpu for gpu, _ in filled),
        readings=(*snapshot.readings, *(reading for _, readings in filled for reading in readings)),
    )


@lru_cache(maxsize=4)
def _newest(known: Same) -> Capability:
    return max(row.capability for row in known.catalog.gpus)


@lru_cache(maxsize=1024)
def _rows_of_gpu(name: str, known: Same) -> tuple[GpuRow, ...]:
    """The rows that a GPU's name means, with a memory: many reports are about the same GPUs."""
    return rows_or_none(name, known.catalog.gpus)


def _completed(gpu: Gpu, catalog: Catalog) -> tuple[Gpu, tuple[Reading, ...]]:
    from gpusetup.errors import UsageError

    if gpu.compute_capability and gpu.memory_total_bytes:
        return gpu, ()
    hits = _rows_of_gpu(gpu.name, Same(catalog))
    if not hits:
        said = Reading(
            subject=f"gpu {gpu.name}", source=SOURCE, problem=f"No GPU is called {gpu.name!r}"
        )
        return gpu, (said,)
    try:
        capability = gpu.compute_capability or one_capability(gpu.name, hits)
    except UsageError as problem:
        said = Reading(subject=f"gpu {gpu.name}", source=SOURCE, problem=problem.message)
        return gpu, (said,)
    memory = gpu.memory_total_bytes or one_memory(hits)
    readings = []
    if gpu.compute_capability is None:
        subject = f"gpu {gpu.name} compute_capability"
        readings.append(Reading(subject=subject, source=SOURCE, value=str(capability)))
    if gpu.memory_total_bytes is None and memory is not None:
        subject = f"gpu {gpu.name} memory_total_bytes"
        readings.append(Reading(subject=subject, source=SOURCE, value=str(memory)))
    filled = replace(gpu, compute_capability=capability, memory_total_bytes=memory)
    return filled, tuple(readings)


def _with_driver_cuda(snapshot: Snapshot, catalog: Catalog) -> Snapshot:
    driver = snapshot.driver
    if driver.cuda is not None or driver.version is None:
        return snapshot
    cuda = catalog.driver_cuda(driver.version, snapshot.os.family or "linux")
    if cuda is None:
        return snapshot
    reading = Reading(subject="driver.cuda", source=SOURCE, value=f"{cuda} (from {driver.version})")
    filled = replace(driver, cuda=cuda)
    return replace(snapshot, driver=filled, readings=(*snapshot.readings, reading))
