"""The dated table of torch builds, GPUs and drivers (`data/catalog.json`): the classes of its rows,
and functions to query it.

Each build is a row, for one torch version, backend and platform. GPUs are found by name
(`gpus.py`). The CUDA version of a driver and the oldest driver for a build follow from the driver's
branch.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Literal

from gpusetup.accelerators.makers import identified, is_seen_only
from gpusetup.catalog.gpus import GpuRow, one_memory, rows_or_none, shares_memory, tokens
from gpusetup.catalog.kernels import release
from gpusetup.model.builds import TorchBuild
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Gpu, Reading, Snapshot, Torch
from gpusetup.model.versions import Capability, cuda_of, parsed

INDEX_ROOT = "https://download.pytorch.org/whl"
WINDOWS_ABOVE = 9
"""A Windows driver's major number may be higher than its branch's by up to this much: 581.29
belongs to branch 580."""

OLDEST_SERVED = Capability(3, 7)
"""The oldest GPU, a Tesla K80, for which torch's wheels since 1.7 contain kernels."""

Channel = Literal["pytorch", "conda-pytorch", "conda-forge"]
Name = Literal["torchvision", "torchaudio"]


class TorchRelease(Frozen):
    """One torch release and the companions that belong to it."""

    torch: str
    released: str
    torchvision: str | None = None
    torchvision_needs: str | None = None
    """The torch versions that this torchvision accepts, if they are a range such as `>=2.14.0`;
    otherwise None."""
    torchaudio: str | None = None


class Floor(Frozen):
    """The oldest driver for a CUDA version (`12.4.1`) or a whole major version (`12`)."""

    cuda: str
    linux: str
    windows: str | None = None

    def on(self, family: str) -> str | None:
        """The driver version for an operating system; WSL uses the Windows driver."""
        return self.windows if family == "windows" else self.linux


class Branch(Frozen):
    """A driver branch and the CUDA version that its `nvidia-smi` shows."""

    branch: int
    cuda: str


class Retired(Frozen):
    """The last driver branch that supports an architecture. If `minor` is None, this applies to the
    whole major version."""

    major: int
    last_branch: int
    minor: int | None = None


class FirstDriver(Frozen):
    """The first driver that supports an architecture.

    A bare branch (`570`) means every driver of that branch, on Windows too.
    """

    capability: Capability
    linux: str
    windows: str | None = None
    gpu: str | None = None
    """The product's name, as words that its full name contains."""


class DefaultWheel(Frozen):
    """The first torch version for which the default package index has a backend on a platform."""

    on: str
    """The platform, such as `linux-x86_64`, or only a system."""
    from_torch: str
    backend: str


class OtherMakers(Frozen):
    """The builds of some torch versions for GPUs from makers other than NVIDIA."""

    torch: str
    """The versions that have these backends, such as `2.5.0 2.5.1`."""
    seen: Mapping[str, str]
    """Maps a platform to its backends, such as `linux-x86_64` to `rocm7.1 rocm7.2 xpu`."""


class AmdRelease(Frozen):
    """A torch release on AMD's own index, whose extras choose the kernels for a target."""

    torch: str
    torchvision: str
    torchaudio: str
    rocm: str
    """The ROCm version, as in the label of the torch version: `10.0.0`."""
    pythons: str
    """The Python versions, such as `3.11 3.12`."""
    on: str
    """The platforms, such as `linux-x86_64 windows-x86_64`. On Windows, only Radeon and Ryzen are
    supported."""


class CompanionRelease(Frozen):
    """One release of torchvision or torchaudio, and the torch versions that it supports."""

    name: Name
    version: str
    torch: str
    """The torch versions that it supports, such as `>=2.11.0`."""
    cuda: Literal["label", "major", "release"] = "label"
    """What must match between this release and torch: the whole label, the CUDA major version, or
    the CUDA major and minor version."""
    built_with: str | None = None
    """The torch version whose platforms and backends this release was built for; None if no index
    was read."""
    seen: Mapping[str, str] = {}
    """Maps each platform whose index was read to the backends that list this release: `cpu cu130
    cu132`."""
    unlabelled: Mapping[str, str] = {}
    """Maps a platform to the backend of the wheel without a label."""


# --- the catalog ----------------------------------------------------------------------------------


class Catalog(Frozen):
    """All tables of the dated catalog, with methods to query them."""

    as_of: str
    releases: tuple[TorchRelease, ...]
    gpus: tuple[GpuRow, ...]
    branches: tuple[Branch, ...]
    families: tuple[Floor, ...]
    """The oldest driver for each CUDA major version."""
    toolkits: tuple[Floor, ...]
    """The driver that came with each CUDA toolkit. A patch release has a row only if its driver is
    the first of a branch."""
    other_backends: tuple[str, ...]
    """Index labels that exist but have no build in the catalog: those of older torch versions, of
    nightly builds, and of ROCm versions for which no torch was released."""
    retired: tuple[Retired, ...]
    first_drivers: tuple[FirstDriver, ...]
    companions: tuple[CompanionRelease, ...]
    """The companion releases that work with several torch versions, not only with the one that they
    were released with."""
    default_wheels: tuple[DefaultWheel, ...]
    other_makers: tuple[OtherMakers, ...] = ()
    """torch's builds for the GPUs of AMD and Intel, oldest torch first."""
    amd_index: tuple[AmdRelease, ...] = ()
    """The torch releases on AMD's own index, oldest first."""
    builds: tuple[TorchBuild, ...] = ()

    # Compare catalogs by identity: cached functions use a catalog as a key, and comparing thousands
    # of rows would take longer than computing the result again.
    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def is_newer_gpu(self, capability: Capability) -> bool:
        """Whether a GPU is newer than all GPUs in the catalog."""
        return all(row.capability < capability for row in self.gpus)

    @property
    @lru_cache(maxsize=4)  # noqa: B019  (catalogs live as long as the process)
    def backends(self) -> tuple[str, ...]:
        """All backends for which a torch build has ever existed, without duplicates."""
        of_builds = (build.backend for build in self.builds)
        return tuple(dict.fromkeys((*of_builds, *self.without_build)))

    @property
    def without_build(self) -> tuple[str, ...]:
        """The backends of which no build is for NVIDIA's GPUs or the CPU."""
        of_pytorch = (label for row in self.other_makers for label in row.seen.values())
        of_amd = (f"rocm{release.rocm}" for release in self.amd_index)
        return (*self.other_backends, *" ".join(of_pytorch).split(), *of_amd)

    def driver_cuda(self, driver_version: str) -> str | None:
        """The CUDA version that `nvidia-smi` shows for a driver. A driver newer than the catalog
        counts as the newest branch in it. None for a driver older than the oldest branch, and for a
        text that is not a version."""
        major = parsed(driver_version).major
        not_newer = {row.branch: row.cuda for row in self.branches if row.branch <= major}
        return not_newer[max(not_newer)] if not_newer else None

    def driver_floor(self, cuda: str, family: str = "linux") -> str | None:
        """The oldest driver that runs a CUDA version, assuming minor-version compatibility from
        CUDA 11 on. `family` is `windows` for Windows drivers, including those under WSL."""
        floors = {row.cuda: row for row in self.families}
        floor = floors.get(cuda) or floors.get(cuda.partition(".")[0])
        # Before CUDA 11, each version needs the driver that came with its own toolkit.
        return floor.on(family) if floor else self.toolkit_driver(cuda, family)

    def toolkit_driver(self, cuda: str, family: str = "linux") -> str | None:
        """The first driver that fully supported a CUDA version, which is needed to compile PTX of
        that version."""
        # A toolkit's patch release (12.4.1) came with a later driver, but the driver of the first
        # release (12.4.0) is enough.
        rows = (row for row in self.toolkits if release(row.cuda) == release(cuda))
        return min(filter(None, (row.on(family) for row in rows)), key=parsed, default=None)

    def last_branch(self, capability: Capability | None) -> int | None:
        """The last driver branch that supports a GPU; None if current drivers still support it."""
        if capability is None:
            return None
        major, minor = capability.major, capability.minor
        rows = (row for row in self.retired if row.major == major and row.minor in (None, minor))
        return next((row.last_branch for row in rows), None)

    def ends_before(self, gpus: Iterable[Gpu], driver: str | None) -> bool:
        """Whether a driver is too new for each of these GPUs, because their support ended with an
        older branch; False without a GPU."""
        last_branches = [self.last_branch(gpu.compute_capability) for gpu in gpus]
        driver_branch = parsed(driver or "0").major
        return bool(last_branches) and all(
            branch is not None and branch + WINDOWS_ABOVE < driver_branch
            for branch in last_branches
        )

    def never_serves(self, gpus: Iterable[Gpu]) -> bool:
        """Whether all GPUs are older than the oldest one for which the catalog's wheels contain
        kernels; False without a GPU, or if one is unknown."""
        capabilities = [gpu.compute_capability for gpu in gpus]
        return bool(capabilities) and all(
            capability is not None and capability < OLDEST_SERVED for capability in capabilities
        )

    def too_new(self, driver: str | None, gpus: Iterable[Gpu]) -> list[str]:
        """For each GPU that the driver no longer supports, a sentence that says which driver to
        install."""
        return [
            f"driver {driver} does not drive {gpu.name}: install branch "
            f"{self.last_branch(gpu.compute_capability)} (its last)"
            for gpu in gpus
            if self.ends_before((gpu,), driver)
        ]

    def first_driver(self, gpu: Gpu, family: str = "linux") -> str | None:
        """The oldest driver that supports a GPU: a branch (`570`) or, for some products, a full
        version."""
        drivers = []
        for row in self.first_drivers:
            if row.capability != gpu.compute_capability:
                continue
            # A product may need a later driver than other GPUs of its architecture.
            if row.gpu is None or tokens(row.gpu) <= tokens(gpu.name):
                of_windows = row.windows if family == "windows" else None
                drivers.append(of_windows or row.linux)
        return max(drivers, key=parsed, default=None)

    def name_on_pci(self, device_id: str | None) -> str | None:
        """The name of the NVIDIA GPU with this PCI device id; None if no row has it."""
        hexadecimal = (device_id or "").lower()
        names = (row.smi_names[0] for row in self.gpus if hexadecimal in row.pci.split())
        return next(names, None)

    def row_of(self, torch: str, backend: str, family: str, machine: str) -> TorchBuild | None:
        """PyTorch's own build for a torch version (with or without label), backend and platform."""
        return _wheels_by_key(self).get((torch.partition("+")[0], backend, family, machine))

    def release_of(self, torch_version: str) -> TorchRelease | None:
        """The release of a torch version (with or without label)."""
        public = torch_version.partition("+")[0]
        return next((row for row in self.releases if row.torch == public), None)


def index_url(backend: str, root: str = INDEX_ROOT) -> str:
    """Returns the URL of the index with the wheels for a backend.

    >>> index_url("cu124", "http://mirror/whl/")
    'http://mirror/whl/cu124'
    """
    return f"{root.rstrip('/')}/{backend}"


@lru_cache(maxsize=8)
def _wheels_by_key(catalog: Catalog) -> Mapping[tuple[str, ...], TorchBuild]:
    """Maps torch version, backend, system and machine to PyTorch's wheel, or to the first of
    several."""
    wheels: dict[tuple[str, ...], TorchBuild] = {}
    for build in catalog.builds:
        if build.channel == "pytorch":
            key = (build.torch, build.backend, build.os, build.machine)
            wheels.setdefault(key, build)
    return wheels


# --- completing a snapshot ----------------------------------------------------------------------


def completed_from_catalog(snapshot: Snapshot, catalog: Catalog) -> Snapshot:
    """Complete a snapshot from the catalog, and add a reading for the kernels of torch. These
    values are added if no source gave them: torch's kernels from its build, a GPU's capability and
    memory from its name (or the machine's memory, if the GPU shares it), and the driver's CUDA
    version from the driver version."""
    readings = [*snapshot.readings]
    gpus = []
    for gpu in snapshot.gpus or ():
        # If the GPU shares the machine's memory, the driver prints "N/A".
        size = gpu.memory_total_bytes
        if not size and shares_memory(gpu.name, snapshot.os.jetson):
            size = snapshot.memory.total_bytes
        gpus.append(identified(completed(replace(gpu, memory_total_bytes=size), catalog)))

    torch = _completed_torch(snapshot, catalog)
    if torch.kernels != snapshot.torch.kernels:
        kernels = " ".join(torch.kernels or ()) or "none (CPU build)"
        readings.append(Reading(subject="torch.kernels", source="catalog", value=kernels))

    driver = snapshot.driver
    if not driver.cuda and driver.version:
        driver = replace(driver, cuda=catalog.driver_cuda(driver.version))
    return replace(
        snapshot,
        torch=torch,
        driver=driver,
        # Keep an empty tuple (no GPUs) and None (unknown GPUs) as they are.
        gpus=tuple(gpus) or snapshot.gpus,
        readings=tuple(readings),
    )


def _completed_torch(snapshot: Snapshot, catalog: Catalog) -> Torch:
    """The installed torch, completed with the backend in its label and the kernels of its build."""
    torch = snapshot.torch
    public, _, label = (torch.version or "").partition("+")
    label = label.lower()
    label_cuda = cuda_of(label)
    if not torch.backend and (label == "cpu" or label_cuda):
        torch = replace(torch, backend=label, cuda=torch.cuda or label_cuda)
    if torch.kernels is not None or not public or not torch.backend:
        return torch

    # If the system is unknown, the builds are those for Linux, as when a build is chosen.
    key = (public, torch.backend, snapshot.os.family or "linux")
    builds = [
        build
        for build in catalog.builds
        if (build.torch, build.backend, build.os) == key
        and snapshot.os.machine in (None, build.machine)
    ]
    # conda's builds have other kernels than the wheels.
    of_conda = [build for build in builds if build.channel != "pytorch"]
    if torch.installer == "conda" and of_conda:
        builds = of_conda
    else:
        builds = [build for build in builds if build.channel == "pytorch"]
    if not builds:
        return torch
    # Use a dict instead of a set, to keep the order in which the builds list their kernels.
    kernels = dict.fromkeys(code for build in builds for code in (*build.kernels, *build.ptx))
    return replace(torch, kernels=tuple(kernels), cuda=torch.cuda or builds[0].cuda)


def completed(gpu: Gpu, catalog: Catalog) -> Gpu:
    """The GPU with the capability and memory that its name implies, if it implies them."""
    if is_seen_only(gpu.maker) or (gpu.compute_capability and gpu.memory_total_bytes):
        return gpu
    rows = _rows_of_gpu(gpu.name, catalog)
    capabilities = {row.capability for row in rows}
    # A name may stand for cards of different generations.
    implied = capabilities.pop() if len(capabilities) == 1 else None
    return replace(
        gpu,
        compute_capability=gpu.compute_capability or implied,
        memory_total_bytes=gpu.memory_total_bytes or (one_memory(rows) if implied else None),
    )


@lru_cache(maxsize=1024)
def _rows_of_gpu(name: str, catalog: Catalog) -> tuple[GpuRow, ...]:
    """The rows for a GPU's name. Cached, because many reports are about the same GPUs."""
    return rows_or_none(name, catalog.gpus)
