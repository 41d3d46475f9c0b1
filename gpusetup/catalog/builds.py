"""The dated table of torch builds, GPUs and drivers (`data/catalog.json`), and what it answers.

`catalog_file.py` reads it. A build is a row of torch x backend x platform; GPUs are found by
name (`gpus.py`); a driver's CUDA and the floors follow from the driver's branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Literal

from gpusetup.accelerators.makers import identified
from gpusetup.catalog.gpus import (
    GpuRow,
    one_capability,
    one_memory,
    rows_or_none,
    tokens,
)
from gpusetup.catalog.kernels import release
from gpusetup.catalog.rows import (
    Branch,
    Companion,
    Compiler,
    DefaultWheel,
    Dropped,
    FirstDriver,
    Floor,
    Milestone,
    OlderKernels,
    OlderRelease,
    Release,
    Retired,
)
from gpusetup.errors import UsageError
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Gpu, Reading, Snapshot
from gpusetup.model.resolution import TorchBuild
from gpusetup.model.versions import Capability, cuda_of, parsed

SOURCE = "catalog"
INDEX_ROOT = "https://download.pytorch.org/whl"

Channel = Literal["pytorch", "conda-pytorch", "conda-forge"]


class Catalog(Frozen):
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
    default_wheels: tuple[DefaultWheel, ...] = ()
    compilers: tuple[Compiler, ...] = ()
    older_releases: tuple[OlderRelease, ...] = ()
    older_kernels: tuple[OlderKernels, ...] = ()
    milestones: tuple[Milestone, ...] = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def is_newer_gpu(self, capability: Capability) -> bool:
        """Whether a GPU is newer than every one that the catalog knows."""
        return capability > max(row.capability for row in self.gpus)

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
        exact = [row for row in self.families if row.cuda == cuda]
        same = exact or [row for row in self.families if row.cuda == cuda.split(".")[0]]
        return same[0].on(family) if same else self.toolkit_driver(cuda, family)

    @property
    def minors_serve_from(self) -> int:
        """The first CUDA whose minor versions run on the driver of any of them."""
        return min(int(row.cuda) for row in self.families if row.cuda.isdigit())

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

    def ends_before(self, gpus: Iterable[Gpu], driver: str | None) -> bool:
        """Whether the last branch of each of these GPUs is older than a driver."""
        ends = [g.compute_capability and self.last_branch(g.compute_capability) for g in gpus]
        # Windows' drivers of a branch run up to 9 above its number.
        return bool(driver and ends) and all(e and e + 9 < parsed(driver).major for e in ends)

    def never_serves(self, gpus: Iterable[Gpu]) -> bool:
        """Whether these GPUs are older than every kernel that torch's wheels ever had."""
        oldest = min((row.oldest for row in self.older_kernels), default=Capability(0, 0))
        return {bool((c := g.compute_capability) and c < oldest) for g in gpus} == {True}

    def first_driver(self, gpu: Gpu, family: str = "linux") -> str | None:
        """The least driver that knows a GPU: a branch (`570`), for some products a version."""
        rows = (row for row in self.first_drivers if row.capability == gpu.compute_capability)
        known = (row.on(family) for row in rows if row.gpu is None or _names(row.gpu, gpu.name))
        return max(known, key=parsed, default=None)

    def milestone(self, name: str) -> str:
        """The version with which something changed: `torch with cudnn 9`."""
        return next(row.version for row in self.milestones if row.name == name)

    def last_python(self, torch_version: str) -> str | None:
        """The last Python of a release that is older than the table of builds."""
        rows = (row for row in self.older_releases if parsed(torch_version) < parsed(row.before))
        return next((row.python for row in rows), None)

    def compiler_for(self, arch: str) -> Compiler | None:
        """Which toolkits compile for an architecture: `sm_86`, `compute_90a`."""
        sm = "sm_" + arch.partition("_")[2].rstrip("af")
        return next((row for row in self.compilers if row.sm == sm), None)

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
        return _by_place(self).get((public, backend, family, machine, channel))

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


@lru_cache(maxsize=8)
def _by_place(catalog: Catalog) -> Mapping[tuple[str, ...], TorchBuild]:
    """The builds by torch, backend and platform; of two the first."""
    rows = reversed(catalog.builds)
    return {(row.torch, row.backend, row.os, row.machine, row.channel): row for row in rows}


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
        for row in _builds_of(catalog, public, backend)
        if on.family in (None, row.os) and on.machine in (None, row.machine)
    )
    wheels = tuple(row for row in rows if row.channel == "pytorch")
    if snapshot.torch.installer != "conda":
        return wheels
    return tuple(row for row in rows if row.channel != "pytorch") or wheels


@lru_cache(maxsize=512)
def _builds_of(catalog: Catalog, public: str, backend: str | None) -> tuple[TorchBuild, ...]:
    return tuple(r for r in catalog.builds if r.torch == public and r.backend == backend)


def _with_gpus(snapshot: Snapshot, catalog: Catalog) -> Snapshot:
    if not snapshot.gpus:
        return snapshot
    gpus, readings = [], [*snapshot.readings]
    for gpu in snapshot.gpus:
        filled, problem = completed(gpu, catalog)
        gpus.append(identified(filled))
        if problem:
            readings.append(Reading(subject=f"gpu {gpu.name}", source=SOURCE, problem=problem))
        for name in ("compute_capability", "memory_total_bytes"):
            value, subject = getattr(filled, name), f"gpu {gpu.name} {name}"
            if value is not None and getattr(gpu, name) is None:
                readings.append(Reading(subject=subject, source=SOURCE, value=str(value)))
    return replace(snapshot, gpus=tuple(gpus), readings=tuple(readings))


@lru_cache(maxsize=1024)
def rows_of_gpu(name: str, catalog: Catalog) -> tuple[GpuRow, ...]:
    """The rows that a GPU's name means, with a memory: many reports are about the same GPUs."""
    return rows_or_none(name, catalog.gpus)


def completed(gpu: Gpu, catalog: Catalog) -> tuple[Gpu, str | None]:
    """A GPU with the capability and the memory that its name means; or why it means none."""
    if gpu.compute_capability and gpu.memory_total_bytes:
        return gpu, None
    hits = rows_of_gpu(gpu.name, catalog)
    if not hits:
        return gpu, f"No GPU is called {gpu.name!r}"
    try:
        capability = gpu.compute_capability or one_capability(gpu.name, hits)
    except UsageError as problem:
        return gpu, problem.message
    memory = gpu.memory_total_bytes or one_memory(hits)
    return replace(gpu, compute_capability=capability, memory_total_bytes=memory), None


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
