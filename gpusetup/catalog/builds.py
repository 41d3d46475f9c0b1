"""The dated table of torch builds, GPUs and drivers (`data/catalog.json`), and what it answers.

A build is a row of torch x backend x platform; GPUs are found by name (`gpus.py`); a driver's CUDA
and the floors follow from the driver's branch.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Literal

from gpusetup.accelerators.makers import identified, is_judged
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
    FirstDriver,
    Floor,
    Milestone,
    Nightly,
    OlderKernels,
    OlderRelease,
    OtherMakers,
    Release,
    Retired,
)
from gpusetup.errors import UsageError
from gpusetup.model.builds import TorchBuild
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Gpu, Reading, Snapshot, Torch
from gpusetup.model.versions import Capability, cuda_of, parsed

INDEX_ROOT = "https://download.pytorch.org/whl"
WINDOWS_ABOVE = 9
"""How far Windows' drivers of a branch run above its number."""

Channel = Literal["pytorch", "conda-pytorch", "conda-forge"]


class Catalog(Frozen):
    as_of: str
    releases: tuple[Release, ...]
    gpus: tuple[GpuRow, ...]
    branches: tuple[Branch, ...]
    families: tuple[Floor, ...]
    toolkits: tuple[Floor, ...]
    other_backends: tuple[str, ...]
    """Index labels that exist but are not fitted to NVIDIA GPUs: ROCm, XPU, older torch's."""
    retired: tuple[Retired, ...]
    first_drivers: tuple[FirstDriver, ...]
    companions: tuple[Companion, ...]
    """Those that serve more than the torch that they were released with."""
    default_wheels: tuple[DefaultWheel, ...]
    compilers: tuple[Compiler, ...]
    older_releases: tuple[OlderRelease, ...]
    older_kernels: tuple[OlderKernels, ...]
    milestones: tuple[Milestone, ...]
    other_makers: tuple[OtherMakers, ...] = ()
    """torch's builds for the GPUs of AMD and Intel, oldest torch first."""
    nightly: tuple[Nightly, ...] = ()
    builds: tuple[TorchBuild, ...] = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def is_newer_gpu(self, capability: Capability) -> bool:
        """Whether a GPU is newer than every one that the catalog knows."""
        return all(row.capability < capability for row in self.gpus)

    @property
    def backends(self) -> tuple[str, ...]:
        """Every backend that ever was."""
        return tuple(dict.fromkeys((*(b.backend for b in self.builds), *self.other_backends)))

    def driver_cuda(self, driver_version: str) -> str | None:
        """What `nvidia-smi` prints as CUDA version; a newer driver counts as the newest row.

        None for a driver older than the oldest row, and for a text that is no version.
        """
        major = parsed(driver_version).major
        known = [row for row in self.branches if row.branch <= major]
        return max(known, key=lambda row: row.branch).cuda if known else None

    def driver_is_newer(self, driver_version: str) -> bool:
        """Whether a driver's branch is newer than any that the catalog knows."""
        newest = max(row.branch for row in self.branches)
        return parsed(driver_version).major > newest + WINDOWS_ABOVE

    def driver_floor(self, cuda: str, family: str = "linux") -> str | None:
        """The least driver for a CUDA version, by minor-version compatibility from 11 on.

        `family` is `windows` for Windows drivers, WSL's included.
        """
        floors = {row.cuda: row for row in self.families}
        row = floors.get(cuda) or floors.get(cuda.partition(".")[0])
        return row.on(family) if row else self.toolkit_driver(cuda, family)

    @property
    def minors_serve_from(self) -> int:
        """The first CUDA whose minor versions run on the driver of any of them."""
        return min(int(row.cuda) for row in self.families if row.cuda.isdigit())

    def toolkit_driver(self, cuda: str, family: str = "linux") -> str | None:
        """The driver that first served a CUDA version fully (needed to compile its PTX)."""
        rows = [row for row in self.toolkits if release(row.cuda) == release(cuda)]
        return min((f for row in rows if (f := row.on(family))), key=parsed, default=None)

    def last_branch(self, capability: Capability | None) -> int | None:
        """The last driver branch for a GPU; None while drivers still support it."""
        own = capability
        for row in self.retired:
            if own and own.major == row.major and row.minor in (None, own.minor):
                return row.last_branch
        return None

    def ends_before(self, gpus: Iterable[Gpu], driver: str | None) -> bool:
        """Whether the last branch of each of these GPUs is older than a driver."""
        ends = [self.last_branch(gpu.compute_capability) for gpu in gpus]
        major = parsed(driver or "0").major
        return bool(ends) and all(end and end + WINDOWS_ABOVE < major for end in ends)

    def never_serves(self, gpus: Iterable[Gpu]) -> bool:
        """Whether these GPUs are older than every kernel that torch's wheels ever had."""
        oldest = min(row.oldest for row in self.older_kernels)
        return {bool((c := g.compute_capability) and c < oldest) for g in gpus} == {True}

    def too_new(self, driver: str | None, gpus: Iterable[Gpu]) -> list[str]:
        """Of each GPU whose last branch is older than a driver: what to install instead."""
        return [
            f"driver {driver} does not drive {gpu.name}: install branch "
            f"{self.last_branch(gpu.compute_capability)} (its last)"
            for gpu in gpus
            if self.ends_before((gpu,), driver)
        ]

    def first_driver(self, gpu: Gpu, family: str = "linux") -> str | None:
        """The least driver that knows a GPU: a branch (`570`), for some products a version."""
        known = (
            (family == "windows" and row.windows) or row.linux
            for row in self.first_drivers
            if row.capability == gpu.compute_capability
            and (row.gpu is None or tokens(row.gpu) <= tokens(gpu.name))
        )
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
        self, torch: str, backend: str, family: str, machine: str, channel: Channel = "pytorch"
    ) -> TorchBuild | None:
        """The row of a torch (with or without its local label) on a backend and platform."""
        public = torch.partition("+")[0]
        return _by_place(self).get((public, backend, family, machine, channel))

    def nightly_on(self, platform: str) -> Nightly | None:
        """What has nightly builds on a platform: `linux-x86_64`."""
        return next((row for row in self.nightly if row.on == platform), None)

    def release_of(self, torch_version: str) -> Release | None:
        public = torch_version.partition("+")[0]
        return next((row for row in self.releases if row.torch == public), None)


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


# --- completing a snapshot ----------------------------------------------------------------------


def with_catalog(snapshot: Snapshot, catalog: Catalog) -> Snapshot:
    """A snapshot completed from the catalog, with a reading of what it said, or does not know.

    Filled where no source answered: torch's kernels from its row, a GPU's capability and memory
    from its name, the driver's CUDA from its version.
    """
    driver, gpus = snapshot.driver, [completed(gpu, catalog) for gpu in snapshot.gpus or ()]
    cuda = driver.cuda or (catalog.driver_cuda(driver.version) if driver.version else None)
    full = replace(
        snapshot,
        torch=_torch(snapshot, catalog),
        driver=replace(driver, cuda=cuda),
        gpus=tuple(identified(gpu) for gpu, _ in gpus) or snapshot.gpus,
    )
    problems = ((f"gpu {gpu.name}", problem) for gpu, problem in gpus if problem)
    said = [Reading(subject=who, source="catalog", problem=why) for who, why in problems]
    if full.torch.kernels != snapshot.torch.kernels:
        codes = " ".join(full.torch.kernels or ()) or "none (CPU build)"
        said.append(Reading(subject="torch.kernels", source="catalog", value=codes))
    return replace(full, readings=(*snapshot.readings, *said))


def _torch(snapshot: Snapshot, catalog: Catalog) -> Torch:
    """The installed torch with the backend that its label names, and with the kernels of its build:
    if the system is unknown, those for Linux, as the resolver takes it. conda's builds have others
    than the wheels.
    """
    torch, on = snapshot.torch, snapshot.os
    public, _, label = (torch.version or "").partition("+")
    if not torch.backend and (label.lower() == "cpu" or cuda_of(label.lower())):
        torch = replace(torch, backend=label.lower(), cuda=torch.cuda or cuda_of(label.lower()))
    if torch.kernels is not None or not (public and torch.backend):
        return torch
    rows = [
        row
        for row in catalog.builds
        if (row.torch, row.backend) == (public, torch.backend)
        and row.os == (on.family or "linux")
        and on.machine in (None, row.machine)
    ]
    wheels = [row for row in rows if row.channel == "pytorch"]
    conda = [row for row in rows if row not in wheels] if torch.installer == "conda" else []
    if not (rows := conda or wheels):
        return torch
    kernels = dict.fromkeys(kernel for row in rows for kernel in (*row.kernels, *row.ptx))
    return replace(torch, kernels=tuple(kernels), cuda=torch.cuda or rows[0].cuda)


@lru_cache(maxsize=1024)
def _rows_of_gpu(name: str, catalog: Catalog) -> tuple[GpuRow, ...]:
    """The rows that a GPU's name means, with a memory: many reports are about the same GPUs."""
    return rows_or_none(name, catalog.gpus)


def completed(gpu: Gpu, catalog: Catalog) -> tuple[Gpu, str | None]:
    """A GPU with the capability and the memory that its name means; or why it means none."""
    is_others = gpu.maker is not None and not is_judged(gpu.maker)
    if is_others or (gpu.compute_capability and gpu.memory_total_bytes):
        return gpu, None
    hits = _rows_of_gpu(gpu.name, catalog)
    if not hits:
        return gpu, f"No GPU is called {gpu.name!r}"
    try:
        capability = gpu.compute_capability or one_capability(gpu.name, hits)
    except UsageError as problem:
        return gpu, problem.message
    memory = gpu.memory_total_bytes or one_memory(hits)
    return replace(gpu, compute_capability=capability, memory_total_bytes=memory), None
