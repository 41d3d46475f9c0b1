"""The plain values that travel between the steps: machine, builds, request, answer.

Every value is frozen. `None` means that no source answered; the snapshot's readings say why.
Sizes are bytes, versions are the text that was printed (`parsed(...)` compares them).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from functools import total_ordering
from typing import TYPE_CHECKING, Literal

from gpusetup.shell import Line
from gpusetup.value import Value

if TYPE_CHECKING:
    from packaging.version import Version


def parsed(version: str) -> Version:
    """The comparable form of a version text; "0" where the text is no version.

    >>> parsed("550.144.03") < parsed("550.144.10")
    True
    """
    from packaging.version import InvalidVersion, Version

    try:
        return Version(version)
    except InvalidVersion:
        return Version("0")


@total_ordering
class Capability:
    """A compute capability: `Capability(8, 6)` prints as `8.6`, its kernels are `sm_86`.

    >>> Capability.parse("12.1").sm
    'sm_121'
    >>> Capability.parse("sm_90") > Capability(8, 9)
    True
    """

    __slots__ = ("major", "minor")

    def __init__(self, major: int, minor: int) -> None:
        object.__setattr__(self, "major", major)
        object.__setattr__(self, "minor", minor)

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> Capability:
        """Read `8.6`, `86`, `sm_86`, `sm_90a`, `compute_86`; ValueError on anything else."""
        digits = text.strip().lower().removeprefix("sm_").removeprefix("compute_").rstrip("af")
        major, dot, minor = digits.partition(".")
        if not dot:
            major, minor = digits[:-1], digits[-1:]
        if not (major.isascii() and major.isdigit() and minor.isascii() and minor.isdigit()):
            raise ValueError(f"not a compute capability: {text!r}")
        return cls(int(major), int(minor))

    @property
    def sm(self) -> str:
        return f"sm_{self.major}{self.minor}"

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Capability is frozen")

    def __reduce__(self) -> tuple[type[Capability], tuple[int, int]]:
        return (Capability, (self.major, self.minor))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    def __repr__(self) -> str:
        return f"Capability({self.major}, {self.minor})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Capability):
            return NotImplemented
        return (self.major, self.minor) == (other.major, other.minor)

    def __lt__(self, other: Capability) -> bool:
        return (self.major, self.minor) < (other.major, other.minor)

    def __hash__(self) -> int:
        return hash((self.major, self.minor))


# --- the record of a machine -------------------------------------------------------------------


class Reading(Value):
    """One source's answer about one subject, or why it has none."""

    subject: str
    source: str
    value: str | None = None
    problem: str | None = None


class Os(Value):
    family: Literal["linux", "windows", "macos"] | None = None
    name: str | None = None
    """What the system calls itself: `Ubuntu 24.04.1 LTS`."""
    id: str | None = None
    """The distribution's id (`ubuntu`, `fedora`, `arch`), for package commands."""
    version: str | None = None
    kernel: str | None = None
    machine: str | None = None
    """`x86_64`, `aarch64`, `i686`…; Windows' `AMD64` is written `x86_64`."""
    libc: str | None = None
    """`glibc 2.35`, `musl 1.2.5`; None where there is none (Windows, macOS) or it is unknown."""
    wsl: bool | None = None
    jetson: str | None = None
    """The board's L4T release (`R36.4.0`) or model; None when it is no Jetson."""
    secure_boot: bool | None = None


class Python(Value):
    """The target interpreter."""

    version: str | None = None
    executable: str | None = None
    prefix: str | None = None
    manager: str | None = None
    """Who made it: `venv`, `uv`, `virtualenv`, `conda`, `pipx`, `uv tool`, `system`."""
    chosen_by: str | None = None
    """Why this is the target: `--python`, `VIRTUAL_ENV`, `CONDA_PREFIX`, `.venv`, `self`."""
    bits: int | None = None
    free_threaded: bool | None = None
    externally_managed: bool | None = None
    has_pip: bool | None = None
    site_packages: str | None = None
    site_writable: bool | None = None
    others: tuple[str, ...] = ()
    """Other interpreters on PATH, in PATH's order."""


class Driver(Value):
    version: str | None = None
    """The kernel driver's version, as printed."""
    cuda: str | None = None
    """The newest CUDA API the driver serves, what `nvidia-smi` calls CUDA Version."""
    library_version: str | None = None
    """The version of the driver's user-space library (libnvidia-ml, libcuda)."""
    module_loaded: bool | None = None
    module_version: str | None = None
    """The version of the nvidia kernel module on disk or in /sys, where it was read."""
    open_module: bool | None = None
    uvm_loaded: bool | None = None
    library_found: bool | None = None
    """Whether a driver library (libcuda, nvcuda.dll) is on this machine."""
    libcuda_path: str | None = None
    nouveau_loaded: bool | None = None
    nvml_code: int | None = None
    """What nvmlInit answered: 0, 9 not loaded, 12 no library, 18 mismatch, 999 unknown…"""
    nvml_message: str | None = None
    seconds: float | None = None
    """How long the slowest answer of the driver took."""
    persistence: bool | None = None


class CudaApi(Value):
    """What the CUDA driver API (libcuda) itself answers."""

    init_code: int | None = None
    """What cuInit returned: 0, 100 no device, 101, 304, 802, 803, 804, 999…"""
    init_name: str | None = None
    device_count: int | None = None
    version: str | None = None


class GpuProcess(Value):
    """A process that holds a GPU's memory."""

    pid: int | None = None
    name: str | None = None
    """Its program, without folders and arguments."""
    kind: str | None = None
    """`C` computes, `G` draws, `C+G` does both; as nvidia-smi writes it."""
    memory_bytes: int | None = None


class Gpu(Value):
    """One NVIDIA GPU (or, where `mig_of` is set, one MIG instance of it)."""

    name: str
    uuid: str | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    compute_capability: Capability | None = None
    nvml_index: int | None = None
    cuda_index: int | None = None
    pci_bus_id: str | None = None
    visible: bool | None = None
    """False where CUDA_VISIBLE_DEVICES hides it; None where nothing says."""
    mig_enabled: bool | None = None
    mig_pending: bool | None = None
    """MIG after the next reset, where it will be another than now."""
    mig_instances: tuple[str, ...] = ()
    mig_count: int | None = None
    """How many instances a source counts; most outputs of nvidia-smi name none by UUID."""
    compute_mode: str | None = None
    """`Default`, `Exclusive_Process`, `Prohibited`."""
    ecc_enabled: bool | None = None
    ecc_uncorrected: int | None = None
    retired_pending: bool | None = None
    remap_failed: bool | None = None
    remapped_rows: int | None = None
    """Rows of memory that were replaced for errors that could not be corrected."""
    retired_pages: int | None = None
    """Pages of memory that are no longer used (before Ampere)."""
    sram_threshold_exceeded: bool | None = None
    recovery_action: str | None = None
    """What the driver recommends: `none`, `gpu_reset`, `node_reboot`, `drain_p2p`,
    `drain_and_reset`, `recover_imex_domain`, `bus_reset`, `system_reboot`."""
    temperature_celsius: int | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    power_limit_default_watts: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    """`sw_power_cap`, `hw_thermal_slowdown`, … ; () when none is active."""
    utilization_percent: int | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    virtualization: str | None = None
    """`none`, `passthrough`, `vgpu`…"""
    licensed: bool | None = None
    fabric_state: str | None = None
    """NVSwitch systems: `completed`, `in_progress`, `not_started`; None elsewhere."""
    fabric_status: str | None = None
    """How the GPU's registration with the fabric went: `success`, or the error's name."""
    fabric_faults: tuple[str, ...] | None = None
    """`bandwidth_degraded`, `route_unhealthy`, `no_partition`…; () when the fabric is healthy."""
    nvlinks_active: int | None = None
    nvlinks_inactive: tuple[int, ...] | None = None
    """The numbers of the links that carry nothing."""
    nvlink_errors: int | None = None
    """Replays, CRC errors and recoveries of all links since the driver was loaded."""
    nvlink_recoveries: int | None = None
    """How often a link had to be trained anew."""
    processes: tuple[GpuProcess, ...] | None = None
    driver_model: str | None = None
    """Windows: `WDDM`, `TCC`, `MCDM`."""
    lost: bool | None = None
    display_active: bool | None = None


class PciDevice(Value):
    """A display or 3D controller on the PCI bus, whoever made it."""

    vendor: str
    """`nvidia`, `amd`, `intel`, or the hexadecimal id."""
    bus_id: str | None = None
    device_id: str | None = None
    name: str | None = None
    driver: str | None = None
    """The kernel driver bound to it: `nvidia`, `nouveau`, `vfio-pci`, …; None when none is."""
    power_state: str | None = None


class Package(Value):
    """One installed distribution that matters here (the torch family, nvidia-*, triton, numpy…)."""

    name: str
    version: str
    installer: str | None = None
    """`pip`, `uv`, `conda`, as INSTALLER or conda-meta says."""
    build: str | None = None
    """conda's build string."""
    channel: str | None = None
    location: str | None = None
    intact: bool | None = None
    """False where its files are not all there (a cut install)."""
    requires: tuple[str, ...] = ()
    """What it asks of the torch family, as its METADATA says: `torch==2.5.1`."""
    direct: bool | None = None
    """Whether it came from a folder, a file or a repository, and not by its name from an index."""


class Torch(Value):
    """The torch that the target interpreter would import."""

    installed: bool | None = None
    version: str | None = None
    """With the local label where one is known: `2.5.1+cu124`."""
    cuda: str | None = None
    """The CUDA it was built with; None in CPU builds or when unknown (`backend` tells)."""
    backend: str | None = None
    """`cpu`, `cu124`, `rocm6.4`, `xpu`; None when unknown."""
    hip: str | None = None
    debug: bool | None = None
    installer: str | None = None
    location: str | None = None
    kernels: tuple[str, ...] | None = None
    """The architectures it carries: `sm_80`, `compute_90`; from the build, or the catalog's row."""
    cuda_available: bool | None = None
    """What torch itself said, where it was asked (`--deep`, a report)."""
    import_error: str | None = None
    cudnn: str | None = None


class Container(Value):
    kind: str | None = None
    """`docker`, `podman`, `kubernetes`, `lxc`, `singularity`; `none` when it is no container."""
    nvidia_requested: bool | None = None
    """Whether the container was started with GPUs (NVIDIA_VISIBLE_DEVICES, mounted nodes)."""
    cuda_compat_path: str | None = None
    """A cuda-compat (forward compatibility) library found before the driver's."""


class Conda(Value):
    prefix: str | None = None
    name: str | None = None
    executable: str | None = None
    cuda_virtual_package: str | None = None
    """The version of `__cuda`, where the text or the override shows it."""


class Toolkit(Value):
    """A CUDA toolkit on the machine (not needed to run wheels)."""

    nvcc: str | None = None
    """What the first `nvcc` on PATH says: `12.4`."""
    nvcc_path: str | None = None
    home: str | None = None
    """CUDA_HOME or CUDA_PATH."""
    home_exists: bool | None = None
    home_version: str | None = None
    compiler: str | None = None
    """The first C compiler on PATH."""


class Memory(Value):
    total_bytes: int | None = None
    available_bytes: int | None = None
    cgroup_limit_bytes: int | None = None
    shm_total_bytes: int | None = None
    shm_free_bytes: int | None = None
    memlock_bytes: int | None = None
    """RLIMIT_MEMLOCK; None where unlimited or unknown."""
    address_space_bytes: int | None = None
    """RLIMIT_AS; None where unlimited or unknown."""


class Disk(Value):
    subject: str
    """`site-packages`, `uv-cache`, `pip-cache`, `tmp`."""
    path: str
    free_bytes: int | None = None
    writable: bool | None = None


class DeviceNode(Value):
    path: str
    mode: str | None = None
    """`crw-rw-rw-`."""
    readable: bool | None = None
    writable: bool | None = None


class Cpu(Value):
    name: str | None = None
    logical_cores: int | None = None
    usable_cores: int | None = None
    """After affinity and cgroup quota."""


class Wanted(Value):
    """The request that the machine or the text itself shows; all None when it shows none."""

    torch: str | None = None
    """A specifier: `==2.5.1`."""
    backend: str | None = None
    """A wheel tag or index: `cu121`."""
    cuda: str | None = None
    """The CUDA of an extension build: `11.8`."""
    python: str | None = None
    source: str | None = None


class Event(Value):
    """Something a program said, as a typed fact: an Xid, a missing library, two versions.

    Readers (of dmesg, of a traceback, of a log) make events; rules judge them by `kind` and
    `values` and never look at `text`, which is kept as evidence.
    """

    kind: str
    """Kebab-case, from the tables of `report/kinds.py` or the reader that makes it: `xid`, …"""
    values: Mapping[str, str] = {}
    source: str | None = None
    text: str | None = None


class Snapshot(Value):
    """What was read of one machine, from whatever sources; unknown is None, never a guess."""

    schema: Literal["gpusetup.snapshot/1"] = "gpusetup.snapshot/1"
    taken_at: str | None = None
    origin: Literal["live", "report", "recorded", "composed"] = "live"
    os: Os = Os()
    python: Python = Python()
    driver: Driver = Driver()
    cuda_api: CudaApi = CudaApi()
    gpus: tuple[Gpu, ...] | None = None
    """None: no source could tell. (): a source answered that there is none."""
    pci_devices: tuple[PciDevice, ...] | None = None
    torch: Torch = Torch()
    packages: tuple[Package, ...] | None = None
    container: Container = Container()
    conda: Conda = Conda()
    toolkit: Toolkit = Toolkit()
    cpu: Cpu = Cpu()
    memory: Memory = Memory()
    disks: tuple[Disk, ...] = ()
    devices: tuple[DeviceNode, ...] | None = None
    """The `/dev/nvidia*` nodes; None where they were not looked for."""
    environment: Mapping[str, str] = {}
    """The environment variables of the allow-list."""
    wanted: Wanted = Wanted()
    events: tuple[Event, ...] = ()
    readings: tuple[Reading, ...] = ()


def visible_gpus(snapshot: Snapshot) -> tuple[Gpu, ...]:
    """The GPUs that a program started here would see."""
    return tuple(gpu for gpu in snapshot.gpus or () if gpu.visible is not False and not gpu.lost)


# --- builds, requests, answers ------------------------------------------------------------------


class TorchBuild(Value):
    """One row of the catalog: a torch on a backend for a platform."""

    torch: str
    backend: str
    cuda: str | None
    os: Literal["linux", "windows", "macos"]
    machine: str
    """`x86_64` or `aarch64` (macOS' arm64 is `aarch64`)."""
    pythons: tuple[str, ...]
    """`3.11`, and `3.13t` for free-threaded."""
    kernels: tuple[str, ...]
    """`sm_80`, …; () for CPU builds."""
    ptx: tuple[str, ...] = ()
    """`compute_90`, …"""
    driver_floor: str | None = None
    glibc: str | None = None
    macos: str | None = None
    torchvision: str | None = None
    torchaudio: str | None = None
    released: str | None = None
    channel: Literal["pytorch", "conda-pytorch", "conda-forge"] = "pytorch"
    labelled: bool = True
    """Whether its version carries the backend (`2.5.1+cu124`); macOS' wheels do not."""
    status: str = "sourced"
    """How sure the row is: `verified`, `sourced`, `inferred`."""
    note: str | None = None


class Request(Value):
    """What was asked of the resolver beyond the machine itself."""

    torch: str | None = None
    """A specifier or a bare version: `2.5.1`, `>=2.6,<2.9`."""
    backend: str = "auto"
    installer: str = "auto"


class Rejection(Value):
    torch: str
    backend: str
    reason: str


class Served(Value):
    """How one GPU is served by the chosen build."""

    gpu: str
    compute_capability: Capability
    by: str
    """The kernel (`sm_86`) or the PTX (`compute_90`)."""


class Choice(Value):
    """A build one can fall back to."""

    torch: str
    backend: str
    index_url: str


class Advice(Value):
    """The single change that would help most."""

    change: Literal["driver", "python", "gpu", "torch", "os", "backend"]
    to: str
    gives: str


class Resolution(Value):
    """The chosen build, or none, and why not the others.

    `build` is None when nothing fits; then `advice` names the change that would help most.
    """

    build: TorchBuild | None
    index_url: str | None = None
    index_root: str | None = None
    """The mirror that commands and files name instead of torch's own index."""
    served: tuple[Served, ...] = ()
    fallbacks: tuple[Choice, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    advice: Advice | None = None
    conda: TorchBuild | None = None
    """What conda's channels have for the same question (an older torch at times)."""
    notes: tuple[str, ...] = ()
    """What a reader should know: a driver newer than the catalog, a guessed platform…"""
    catalog_as_of: str = ""


class Severity(str, enum.Enum):
    """error: will not work; warning: works with loss; note: worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Evidence(Value):
    source: str
    text: str


class Alternative(Value):
    """Another way to the same end, whole in itself; or, under `looks`, what shows more."""

    title: str
    """What follows the word "or": `the same by pip`."""
    commands: tuple[Line, ...]


class Fix(Value):
    """A way out."""

    text: str
    commands: tuple[Line, ...] = ()
    """The way, in order, to be pasted as one block; what must come first comes first."""
    alternatives: tuple[Alternative, ...] = ()
    looks: tuple[Alternative, ...] = ()
    """What shows more and changes nothing; each title is a sentence: `see the counters`."""
    needs_root: bool = False
    needs_reboot: bool = False
    min_driver: str | None = None
    python: str | None = None


def typed(fix: Fix | None) -> tuple[Line, ...]:
    """Every line that a fix gives to type, the other ways' too."""
    if fix is None:
        return ()
    others = (*fix.alternatives, *fix.looks)
    return (*fix.commands, *(line for other in others for line in other.commands))


class Finding(Value):
    """A fact about a machine with its values, its evidence and a way out."""

    id: str
    severity: Severity
    title: str
    detail: str = ""
    root: bool = False
    explained_by: str | None = None
    evidence: tuple[Evidence, ...] = ()
    fix: Fix | None = None


class Step(Value):
    """One command to run, as data: shown, tested and run from the same value."""

    argv: tuple[str, ...]
    title: str = ""
    environment: Mapping[str, str] = {}
    timeout_seconds: float = 3600.0
