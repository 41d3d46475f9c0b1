"""The record of a machine: what its sources answered.

Every value is frozen. `None` means that no source answered; the snapshot's readings say why.
Sizes are bytes, versions are the text that was printed (`parsed(...)` compares them).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from gpusetup.model.failing import Failing
from gpusetup.model.frozen import Frozen
from gpusetup.model.versions import Capability


class Reading(Frozen):
    """One source's answer about one subject, or why it has none."""

    subject: str
    source: str
    value: str | None = None
    problem: str | None = None


class Os(Frozen):
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


class Python(Frozen):
    """The target interpreter."""

    version: str | None = None
    executable: str | None = None
    prefix: str | None = None
    manager: str | None = None
    """Who made it: `venv`, `uv`, `virtualenv`, `conda`, `pipx`, `uv tool`, `system`; of a text
    also `uv project`, whose `uv sync` takes away what its pyproject.toml does not name."""
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


class Driver(Frozen):
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


class CudaApi(Frozen):
    """What the CUDA driver API (libcuda) itself answers."""

    init_code: int | None = None
    """What cuInit returned: 0, 100 no device, 101, 304, 802, 803, 804, 999…"""
    init_name: str | None = None
    device_count: int | None = None
    version: str | None = None


class GpuProcess(Frozen):
    """A process that holds a GPU's memory."""

    pid: int | None = None
    name: str | None = None
    """Its program, without folders and arguments."""
    kind: str | None = None
    """`C` computes, `G` draws, `C+G` does both; as nvidia-smi writes it."""
    memory_bytes: int | None = None


class Gpu(Frozen):
    """One GPU (or, where `mig_of` is set, one MIG instance of it)."""

    name: str
    maker: str | None = None
    """`nvidia`, `amd`, `intel`, `apple`; None in snapshots of the first edition."""
    target: str | None = None
    """What a kernel for it is compiled for: `sm_86`, `gfx1201`."""
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
    clock_sm_max_mhz: int | None = None
    clock_memory_max_mhz: int | None = None
    clock_sm_application_mhz: int | None = None
    """What the SMs run at under load where somebody set it; else what the maker set."""
    vbios_version: str | None = None
    """The card's own firmware: `96.00.89.00.01`."""
    inforom_version: str | None = None
    """The image of the board's configuration and error memory: `G520.0200.00.05`."""
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


class PciDevice(Frozen):
    """A display or 3D controller on the PCI bus, whoever made it."""

    vendor: str
    """`nvidia`, `amd`, `intel`, or the hexadecimal id."""
    bus_id: str | None = None
    device_id: str | None = None
    name: str | None = None
    driver: str | None = None
    """The kernel driver bound to it: `nvidia`, `nouveau`, `vfio-pci`, …; None when none is."""


class Package(Frozen):
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


class Torch(Frozen):
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


class Container(Frozen):
    kind: str | None = None
    """`docker`, `podman`, `kubernetes`, `lxc`, `singularity`; `none` when it is no container."""
    nvidia_requested: bool | None = None
    """Whether the container was started with GPUs (NVIDIA_VISIBLE_DEVICES, mounted nodes)."""
    cuda_compat_path: str | None = None
    """A cuda-compat (forward compatibility) library found before the driver's."""


class Conda(Frozen):
    prefix: str | None = None
    """Of the environment that is active, or that the target is."""


class Toolkit(Frozen):
    """A CUDA toolkit on the machine (not needed to run wheels)."""

    nvcc: str | None = None
    """What the first `nvcc` on PATH says: `12.4`."""
    compiler: str | None = None
    """The first C compiler on PATH."""


class Memory(Frozen):
    total_bytes: int | None = None
    available_bytes: int | None = None
    cgroup_limit_bytes: int | None = None
    shm_total_bytes: int | None = None
    memlock_bytes: int | None = None
    """RLIMIT_MEMLOCK; None where unlimited or unknown."""


class Disk(Frozen):
    subject: str
    """`site-packages`, `uv-cache`, `pip-cache`, `tmp`."""
    path: str
    free_bytes: int | None = None
    writable: bool | None = None


class DeviceNode(Frozen):
    path: str
    mode: str | None = None
    """`crw-rw-rw-`."""
    readable: bool | None = None
    writable: bool | None = None


class Cpu(Frozen):
    name: str | None = None
    logical_cores: int | None = None
    usable_cores: int | None = None
    """After affinity and cgroup quota."""


class Wanted(Frozen):
    """The request that the machine or the text itself shows; all None when it shows none."""

    torch: str | None = None
    """A specifier: `==2.5.1`."""
    companion: str | None = None
    """A companion whose release says which torch it belongs to: `torchvision==0.21.0`."""
    backend: str | None = None
    """A wheel tag or index: `cu121`."""
    cuda: str | None = None
    """The CUDA of an extension build: `11.8`."""
    python: str | None = None
    source: str | None = None


class Event(Frozen):
    """Something a program said, as a typed fact: an Xid, a missing library, two versions.

    Readers (of dmesg, of a traceback, of a log) make events; rules judge them by `kind` and
    `values` and never look at `text`, which is kept as evidence.
    """

    kind: str
    """Kebab-case: the name of the finding that it shows, or its own where it may show several."""
    values: Mapping[str, str] = {}
    source: str | None = None
    text: str | None = None


class Snapshot(Frozen):
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
    failing: Failing = Failing()
    """The program that somebody's text is about."""
    events: tuple[Event, ...] = ()
    readings: tuple[Reading, ...] = ()


def visible_gpus(snapshot: Snapshot) -> tuple[Gpu, ...]:
    """The GPUs that a program started here would see."""
    return tuple(gpu for gpu in snapshot.gpus or () if gpu.visible is not False and not gpu.lost)
