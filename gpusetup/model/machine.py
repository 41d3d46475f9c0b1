"""The record of a machine: what its sources reported.

Every value is frozen. `None` means that no source answered; the snapshot's readings say why.
Sizes are bytes, versions are the text that was printed (`parsed(...)` compares them).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from gpusetup.model.finding import Failing
from gpusetup.model.frozen import Amount, Flag, Frozen, Number, Text
from gpusetup.model.versions import Capability


class Reading(Frozen):
    """One source's answer about one subject, or why there is none."""

    subject: str
    source: str
    value: Text = None
    problem: Text = None


class Os(Frozen):
    family: Literal["linux", "windows", "macos"] | None = None
    name: Text = None
    """The name that the system uses for itself: `Ubuntu 24.04.1 LTS`."""
    id: Text = None
    """The distribution's id (`ubuntu`, `fedora`, `arch`), for package commands."""
    like: tuple[str, ...] = ()
    """The ids of the distributions that it derives from, the nearest first."""
    version: Text = None
    kernel: Text = None
    machine: Text = None
    """`x86_64`, `aarch64`, `i686`…; Windows' `AMD64` is written `x86_64`."""
    libc: Text = None
    """`glibc 2.35`, `musl 1.2.5`; None where there is none (Windows, macOS) or it is unknown."""
    wsl: Flag = None
    jetson: Text = None
    """The board's L4T release (`R36.4.0`) or model; None when it is no Jetson."""
    secure_boot: Flag = None


class Python(Frozen):
    """The Python interpreter of the environment."""

    version: Text = None
    executable: Text = None
    prefix: Text = None
    manager: Text = None
    """The program that created the environment: `venv`, `uv`, `virtualenv`, `conda`, `pipx`, `uv
    tool`, `system`; in a text also `uv project`, whose `uv sync` removes everything that is not in
    its pyproject.toml."""
    chosen_by: Text = None
    """Why this environment was chosen: `--python`, `VIRTUAL_ENV`, `CONDA_PREFIX`, `.venv`,
    `self`."""
    bits: Number = None
    free_threaded: Flag = None
    externally_managed: Flag = None
    has_pip: Flag = None
    site_packages: Text = None
    site_writable: Flag = None


class Driver(Frozen):
    version: Text = None
    """The kernel driver's version, as printed."""
    cuda: Text = None
    """The newest CUDA API that the driver supports; `nvidia-smi` calls it CUDA Version."""
    library_version: Text = None
    """The version of the driver's user-space library (libnvidia-ml, libcuda)."""
    module_loaded: Flag = None
    module_version: Text = None
    """The version of the nvidia kernel module on disk or in /sys, where it was read."""
    open_module: Flag = None
    uvm_loaded: Flag = None
    library_found: Flag = None
    """Whether a driver library (libcuda, nvcuda.dll) is on this machine."""
    libcuda_path: Text = None
    nouveau_loaded: Flag = None
    nvml_code: Number = None
    """The return code of nvmlInit: 0, 9 not loaded, 12 no library, 18 mismatch, 999 unknown…"""
    nvml_message: Text = None
    seconds: Amount = None
    """How many seconds the slowest response of the driver took."""
    persistence: Flag = None


class CudaApi(Frozen):
    """The answers of the CUDA driver API (libcuda)."""

    init_code: Number = None
    """What cuInit returned: 0, 100 no device, 101, 304, 802, 803, 804, 999…"""
    init_name: Text = None
    device_count: Number = None
    version: Text = None


class GpuProcess(Frozen):
    """A process that uses the memory of a GPU."""

    pid: Number = None
    name: Text = None
    """The name of its program, without folders and arguments."""
    kind: Text = None
    """`C` computes, `G` draws, `C+G` does both, as in nvidia-smi."""
    memory_bytes: Number = None


class Gpu(Frozen):
    """A GPU, or a MIG instance."""

    name: str
    maker: Text = None
    """`nvidia`, `amd`, `intel`, `apple`; None in snapshots of the first edition."""
    target: Text = None
    """What a kernel for it is compiled for: `sm_86`, `gfx1201`."""
    uuid: Text = None
    memory_total_bytes: Number = None
    memory_used_bytes: Number = None
    compute_capability: Capability | None = None
    nvml_index: Number = None
    cuda_index: Number = None
    pci_bus_id: Text = None
    visible: Flag = None
    """False if CUDA_VISIBLE_DEVICES hides the GPU; None if unknown."""
    mig_enabled: Flag = None
    mig_instances: tuple[str, ...] = ()
    mig_count: Number = None
    """How many instances a source counts; most outputs of nvidia-smi name none by UUID."""
    compute_mode: Text = None
    """`Default`, `Exclusive_Process`, `Prohibited`."""
    ecc_enabled: Flag = None
    ecc_uncorrected: Number = None
    retired_pending: Flag = None
    remap_failed: Flag = None
    retired_pages: Number = None
    """Pages of memory that are no longer used (before Ampere)."""
    sram_threshold_exceeded: Flag = None
    recovery_action: Text = None
    """What the driver recommends: `none`, `gpu_reset`, `node_reboot`, `drain_p2p`,
    `drain_and_reset`, `recover_imex_domain`, `bus_reset`, `system_reboot`."""
    temperature_celsius: Number = None
    power_watts: Amount = None
    power_limit_watts: Amount = None
    power_limit_default_watts: Amount = None
    throttle_reasons: tuple[str, ...] | None = None
    """`sw_power_cap`, `hw_thermal_slowdown`, … ; () when none is active."""
    utilization_percent: Number = None
    clock_sm_max_mhz: Number = None
    clock_memory_max_mhz: Number = None
    clock_sm_application_mhz: Number = None
    """What the SMs run at under load where somebody set it; else what the maker set."""
    vbios_version: Text = None
    """The card's own firmware: `96.00.89.00.01`."""
    inforom_version: Text = None
    """The image of the board's configuration and error memory: `G520.0200.00.05`."""
    pcie_generation: Number = None
    pcie_generation_max: Number = None
    pcie_width: Number = None
    pcie_width_max: Number = None
    virtualization: Text = None
    """`none`, `passthrough`, `vgpu`…"""
    licensed: Flag = None
    fabric_state: Text = None
    """NVSwitch systems: `completed`, `in_progress`, `not_started`; None elsewhere."""
    fabric_status: Text = None
    """How the GPU's registration with the fabric went: `success`, or the error's name."""
    fabric_faults: tuple[str, ...] | None = None
    """`bandwidth_degraded`, `route_unhealthy`, `no_partition`…; () when the fabric is healthy."""
    nvlinks_active: Number = None
    nvlinks_inactive: tuple[int, ...] | None = None
    """The numbers of the inactive NVLinks."""
    processes: tuple[GpuProcess, ...] | None = None
    driver_model: Text = None
    """Windows: `WDDM`, `TCC`, `MCDM`."""
    lost: Flag = None
    numa_node: Number = None
    """The NUMA node whose CPUs and memory are nearest; None where the machine has only one."""


class GpuLink(Frozen):
    """How two GPUs of a machine are connected."""

    first: int
    second: int
    """Their numbers by NVML."""
    kind: str
    """As `nvidia-smi topo -m` writes it: `NV12` (12 NVLinks), else where their PCIe paths meet:
    `PIX`, `PXB`, `PHB`, `NODE`, `SYS`."""


class PciDevice(Frozen):
    """A display or 3D controller on the PCI bus, from any maker."""

    vendor: str
    """`nvidia`, `amd`, `intel`, or the hexadecimal id."""
    bus_id: Text = None
    device_id: Text = None
    name: Text = None
    driver: Text = None
    """The kernel driver bound to it: `nvidia`, `nouveau`, `vfio-pci`, …; None when none is."""
    numa_node: Number = None


class Package(Frozen):
    """An installed distribution that gpusetup watches (the torch family, nvidia-*, triton,
    numpy…)."""

    name: str
    version: str
    installer: Text = None
    """`pip`, `uv`, `conda`, as INSTALLER or conda-meta says."""
    build: Text = None
    """conda's build string."""
    channel: Text = None
    location: Text = None
    intact: Flag = None
    """False if files are missing after an interrupted installation."""
    requires: tuple[str, ...] = ()
    """Its requirement for torch or a companion, from its METADATA: `torch==2.5.1`."""
    direct: Flag = None
    """Whether it was installed from a folder, file or repository, not by its name from an index."""


class Torch(Frozen):
    """The torch that the environment's interpreter would import."""

    installed: Flag = None
    version: Text = None
    """The version, with the local label if it is known: `2.5.1+cu124`."""
    cuda: Text = None
    """The CUDA version it was built with; None for CPU builds or if unknown (see `backend`)."""
    backend: Text = None
    """`cpu`, `cu124`, `rocm6.4`, `xpu`; None when unknown."""
    hip: Text = None
    debug: Flag = None
    installer: Text = None
    location: Text = None
    kernels: tuple[str, ...] | None = None
    """The architectures that it contains code for: `sm_80`, `compute_90`; read from the build or
    the catalog."""
    cuda_available: Flag = None
    """What torch printed for `is_available()`, if a report shows it."""
    import_error: Text = None
    cudnn: Text = None


class Container(Frozen):
    kind: Text = None
    """`docker`, `podman`, `kubernetes`, `lxc`, `singularity`; `none` when it is no container."""
    nvidia_requested: Flag = None
    """Whether the container was started with GPUs (NVIDIA_VISIBLE_DEVICES, mounted nodes)."""
    cuda_compat_path: Text = None
    """A cuda-compat (forward compatibility) library found before the driver's."""


class Conda(Frozen):
    prefix: Text = None
    """The active environment, or the one that is examined."""


class Toolkit(Frozen):
    """A CUDA toolkit on the machine (not needed to run wheels)."""

    nvcc: Text = None
    """What the first `nvcc` on PATH says: `12.4`."""
    compiler: Text = None
    """The first C compiler on PATH."""


class Memory(Frozen):
    total_bytes: Number = None
    available_bytes: Number = None
    cgroup_limit_bytes: Number = None
    shm_total_bytes: Number = None
    memlock_bytes: Number = None
    """RLIMIT_MEMLOCK; None where unlimited or unknown."""


class Disk(Frozen):
    subject: str
    """`site-packages`, `uv-cache`, `pip-cache`, `tmp`."""
    path: str
    free_bytes: Number = None
    writable: Flag = None


class DeviceNode(Frozen):
    path: str
    mode: Text = None
    """`crw-rw-rw-`."""
    readable: Flag = None
    writable: Flag = None


class MakerStack(Frozen):
    """GPUs from AMD, Intel or Apple in a machine without NVIDIA GPUs, and the state of their
    driver."""

    maker: str
    """`amd`, `intel`, `apple`."""
    gpus: tuple[Gpu, ...] = ()
    kernel_driver: Text = None
    """The kernel driver that is bound to the GPUs: `amdgpu`, `xe`; None if none is."""
    driver_version: Text = None
    runtime: Text = None
    """The ROCm of the machine itself: `6.4.1`. torch's wheels bring their own."""
    nodes: tuple[DeviceNode, ...] | None = None
    """`/dev/kfd` and the render nodes; None where they were not looked for."""
    bundles_runtime: Flag = None
    """Whether the installed torch brings HIP in its own folder."""
    translated: Flag = None
    """Whether this is a Python for Intel's processors on a chip of Apple (Rosetta)."""


class Cpu(Frozen):
    name: Text = None
    logical_cores: Number = None
    usable_cores: Number = None
    """The cores that remain after affinity and cgroup quota."""


class Wanted(Frozen):
    """What the machine or the text itself requests, e.g. a torch version; all None if it requests
    nothing."""

    torch: Text = None
    """A specifier: `==2.5.1`."""
    companion: Text = None
    """A companion whose release says which torch it belongs to: `torchvision==0.21.0`."""
    backend: Text = None
    """A wheel tag or index: `cu121`."""
    cuda: Text = None
    """The CUDA of an extension build: `11.8`."""
    python: Text = None
    source: Text = None


class Event(Frozen):
    """Something that a program reported, as a typed fact: an Xid, a missing library, two
    conflicting versions.

    Readers (of dmesg, of a traceback, of a log) make events; rules judge them by `kind` and
    `values` and never look at `text`, which is kept as evidence.
    """

    kind: str
    """Kebab-case: the name of the finding that it shows, or its own where it may show several."""
    values: Mapping[str, str] = {}
    source: Text = None
    text: Text = None


Events = tuple[Event, ...]


class Snapshot(Frozen):
    """Everything that was read about a machine, from any source; unknown values are None, never
    guesses."""

    schema: Literal["gpusetup.snapshot/1"] = "gpusetup.snapshot/1"
    taken_at: Text = None
    origin: Literal["live", "report", "recorded", "composed"] = "live"
    os: Os = Os()
    python: Python = Python()
    driver: Driver = Driver()
    cuda_api: CudaApi = CudaApi()
    gpus: tuple[Gpu, ...] | None = None
    """None if no source could tell; () if a source reported that there is none."""
    gpu_links: tuple[GpuLink, ...] | None = None
    """Each pair of NVIDIA GPUs; None where fewer than two are there, or no source tells."""
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
    makers: MakerStack | None = None
    """GPUs of another maker; None if there are NVIDIA GPUs, or if none were found."""
    environment: Mapping[str, str] = {}
    """The environment variables of the allow-list."""
    wanted: Wanted = Wanted()
    failing: Failing = Failing()
    """The program that a person's text is about."""
    events: tuple[Event, ...] = ()
    readings: tuple[Reading, ...] = ()


def visible_gpus(snapshot: Snapshot) -> tuple[Gpu, ...]:
    """The GPUs that a program started here can see: not hidden and not lost."""
    visible = []
    for gpu in snapshot.gpus or ():
        # An unknown visibility (None) counts as visible: most reports do not tell it.
        is_hidden = gpu.visible is False
        if not is_hidden and not gpu.lost:
            visible.append(gpu)
    return tuple(visible)
