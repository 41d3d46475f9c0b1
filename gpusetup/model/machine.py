"""The record of a machine: what its sources reported.

Every value is frozen. `None` means that no source reported the value; the snapshot's readings say
why. Sizes are in bytes. Versions are kept as printed; use `parsed(...)` to compare them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from gpusetup.model.finding import Failing
from gpusetup.model.frozen import Amount, Flag, Frozen, Number, Size, Text
from gpusetup.model.versions import Capability


class Reading(Frozen):
    """One source's answer about one subject, or the reason why there is none."""

    subject: str
    source: str
    value: Text = None
    problem: Text = None


class Os(Frozen):
    family: Literal["linux", "windows", "macos"] | None = None
    name: Text = None
    """The system's own name: `Ubuntu 24.04.1 LTS`."""
    id: Text = None
    """The distribution's id (`ubuntu`, `fedora`, `arch`), which determines the commands for
    packages."""
    like: tuple[str, ...] = ()
    """The ids of the distributions that it derives from, the closest one first."""
    version: Text = None
    kernel: Text = None
    machine: Text = None
    """The processor architecture: `x86_64`, `aarch64`, `i686`…; Windows' `AMD64` is written as
    `x86_64`."""
    libc: Text = None
    """The C library and its version: `glibc 2.35`, `musl 1.2.5`; None if there is none (Windows,
    macOS) or if it is unknown."""
    wsl: Flag = None
    jetson: Text = None
    """The board's L4T release (`R36.4.0`) or model; None if the machine is not a Jetson."""
    secure_boot: Flag = None


class Python(Frozen):
    """The Python interpreter of the environment."""

    version: Text = None
    executable: Text = None
    prefix: Text = None
    manager: Text = None
    """The program that created the environment: `venv`, `uv`, `virtualenv`, `conda`, `pipx`, `uv
    tool` or `system`. For a text it can also be `uv project`, in which `uv sync` removes every
    package that the project file does not list."""
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
    """The newest CUDA API that the driver supports; nvidia-smi prints it as "CUDA Version"."""
    library_version: Text = None
    """The version of the driver's user-space library (libnvidia-ml, libcuda)."""
    module_loaded: Flag = None
    module_version: Text = None
    """The version of the nvidia kernel module on disk or in /sys; None if it was not read."""
    open_module: Flag = None
    uvm_loaded: Flag = None
    library_found: Flag = None
    """Whether this machine has a driver library (libcuda, nvcuda.dll)."""
    libcuda_path: Text = None
    nouveau_loaded: Flag = None
    nvml_code: Number = None
    """The return code of nvmlInit: 0 for success, 9 driver not loaded, 12 library not found, 18
    version mismatch, 999 unknown error…"""
    nvml_message: Text = None
    persistence: Flag = None


class CudaApi(Frozen):
    """What the CUDA driver API (libcuda) returned."""

    init_code: Number = None
    """What cuInit returned: 0 for success, 100 for no device, or another error code (101, 304, 802,
    803, 804, 999…)."""
    init_name: Text = None
    device_count: Number = None
    version: Text = None


class GpuProcess(Frozen):
    """A process that uses a GPU's memory."""

    pid: Number = None
    name: Text = None
    """The name of the program, without folders and arguments."""
    kind: Text = None
    """`C` for a process that computes, `G` for one that draws, `C+G` for both, as in nvidia-smi."""
    memory_bytes: Number = None


class Gpu(Frozen):
    """A GPU, or a MIG instance."""

    name: str
    maker: Text = None
    """The GPU's vendor: `nvidia`, `amd`, `intel` or `apple`; None in snapshots of the first
    version."""
    target: Text = None
    """The target that kernels for it are compiled for: `sm_86`, `gfx1201`."""
    uuid: Text = None
    memory_total_bytes: Size = None
    memory_used_bytes: Size = None
    compute_capability: Capability | None = None
    nvml_index: Number = None
    cuda_index: Number = None
    pci_bus_id: Text = None
    visible: Flag = None
    """False if CUDA_VISIBLE_DEVICES hides the GPU; None if unknown."""
    mig_enabled: Flag = None
    mig_instances: tuple[str, ...] = ()
    mig_count: Number = None
    """The number of MIG instances on the GPU, for sources that only count them: most outputs of
    nvidia-smi do not list their UUIDs."""
    compute_mode: Text = None
    """Which processes may compute on the GPU, in nvidia-smi's words: `Default`, `Exclusive_Process`
    or `Prohibited`."""
    ecc_enabled: Flag = None
    ecc_uncorrected: Number = None
    retired_pending: Flag = None
    remap_failed: Flag = None
    retired_pages: Number = None
    """The number of memory pages that are no longer used (GPUs before Ampere)."""
    sram_threshold_exceeded: Flag = None
    recovery_action: Text = None
    """What the driver recommends: `none`, `gpu_reset`, `node_reboot`, `drain_p2p`,
    `drain_and_reset`, `recover_imex_domain`, `bus_reset`, `system_reboot`."""
    temperature_celsius: Number = None
    power_watts: Amount = None
    power_limit_watts: Amount = None
    power_limit_default_watts: Amount = None
    throttle_reasons: tuple[str, ...] | None = None
    """The reasons for lower clocks: `sw_power_cap`, `hw_thermal_slowdown`, … ; () if none is
    active."""
    utilization_percent: Number = None
    clock_sm_max_mhz: Number = None
    vbios_version: Text = None
    """The version of the card's firmware: `96.00.89.00.01`."""
    pcie_generation: Number = None
    pcie_generation_max: Number = None
    pcie_width: Number = None
    pcie_width_max: Number = None
    virtualization: Text = None
    """How the GPU is virtualized, as NVML reports it: `none`, `passthrough`, `vgpu`…"""
    fabric_state: Text = None
    """On systems with NVSwitch, the state of the GPU's registration with the fabric: `completed`,
    `in_progress` or `not_started`. None on other systems."""
    nvlinks_active: Number = None
    processes: tuple[GpuProcess, ...] | None = None
    driver_model: Text = None
    """The driver model on Windows: `WDDM`, `TCC` or `MCDM`; elsewhere None."""
    lost: Flag = None
    numa_node: Number = None
    """The NUMA node whose CPUs and memory are closest; None if the machine has only one."""


class GpuLink(Frozen):
    """How two GPUs of a machine are connected."""

    first: int
    second: int
    """`first` and `second` are NVML's indices of the two GPUs."""
    kind: str
    """The link as in `nvidia-smi topo -m`: `NV12` (12 NVLinks) or, without NVLink, where their PCIe
    paths meet: `PIX`, `PXB`, `PHB`, `NODE`, `SYS`."""


class PciDevice(Frozen):
    """A display or 3D controller on the PCI bus, from any vendor."""

    vendor: str
    """The vendor: `nvidia`, `amd`, `intel`, or the hexadecimal id of another one."""
    bus_id: Text = None
    device_id: Text = None
    name: Text = None
    driver: Text = None
    """The kernel driver bound to it: `nvidia`, `nouveau`, `vfio-pci`, …; None if there is none."""


class Package(Frozen):
    """An installed distribution that gpusetup watches (the torch family, nvidia-*, triton,
    numpy…)."""

    name: str
    version: str
    installer: Text = None
    """The installer according to INSTALLER or conda-meta: `pip`, `uv` or `conda`."""
    build: Text = None
    """The build string of a conda package."""
    location: Text = None
    intact: Flag = None
    """False if files of the package are missing, for example after an interrupted installation."""
    requires: tuple[str, ...] = ()
    """The package's requirements for torch or a companion, from its METADATA: `torch==2.5.1`."""
    direct: Flag = None
    """Whether it was installed from a folder, file or repository, and not by name from an index."""


class Torch(Frozen):
    """The torch that the environment's interpreter would import."""

    installed: Flag = None
    version: Text = None
    """The version, with the local label if it is known: `2.5.1+cu124`."""
    cuda: Text = None
    """The CUDA version that it was built with; None for CPU builds or if unknown (see `backend`).
    """
    backend: Text = None
    """The kind of build: `cpu`, `cu124`, `rocm6.4`, `xpu`; None if unknown."""
    hip: Text = None
    installer: Text = None
    location: Text = None
    kernels: tuple[str, ...] | None = None
    """The architectures that it contains code for, such as `sm_80` or `compute_90`; from the build
    itself or from the catalog."""
    cuda_available: Flag = None
    """What torch printed for `is_available()`, if a report shows it."""
    import_error: Text = None
    cudnn: Text = None


class Container(Frozen):
    kind: Text = None
    """The kind of container: `docker`, `podman`, `kubernetes`, `lxc` or `singularity`; `none`
    outside of a container."""
    nvidia_requested: Flag = None
    """Whether the container was started with GPUs (NVIDIA_VISIBLE_DEVICES, mounted nodes)."""
    cuda_compat_path: Text = None
    """The path of a cuda-compat (forward compatibility) library that is found before the driver's.
    """


class Conda(Frozen):
    prefix: Text = None
    """The active environment, or the one that is being examined."""


class Toolkit(Frozen):
    """A CUDA toolkit on the machine (not needed for running wheels)."""

    nvcc: Text = None
    """The version that the first `nvcc` on PATH prints: `12.4`."""


class Memory(Frozen):
    total_bytes: Size = None
    available_bytes: Size = None
    cgroup_limit_bytes: Size = None
    shm_total_bytes: Size = None


class Disk(Frozen):
    subject: str
    """What the folder is for: `site-packages`, `uv-cache`, `pip-cache` or `tmp`."""
    path: str
    free_bytes: Number = None


class DeviceNode(Frozen):
    path: str
    mode: Text = None
    """The permissions as `ls -l` shows them: `crw-rw-rw-`."""
    readable: Flag = None
    writable: Flag = None


class MakerStack(Frozen):
    """GPUs from AMD, Intel or Apple in a machine without NVIDIA GPUs, and the state of their
    driver."""

    maker: str
    """The GPUs' vendor: `amd`, `intel` or `apple`."""
    gpus: tuple[Gpu, ...] = ()
    kernel_driver: Text = None
    """The kernel driver that is bound to the GPUs: `amdgpu`, `xe`; None if none is."""
    driver_version: Text = None
    runtime: Text = None
    """The version of ROCm that is installed on the machine: `6.4.1`. torch's wheels contain their
    own."""
    nodes: tuple[DeviceNode, ...] | None = None
    """The device nodes `/dev/kfd` and `/dev/dri/renderD*`; None if gpusetup did not look for them.
    """
    translated: Flag = None
    """Whether Python is built for Intel processors but runs on an Apple chip, through Rosetta."""


class Cpu(Frozen):
    logical_cores: Number = None
    usable_cores: Number = None
    """The number of cores that this process may use, given its affinity and cgroup quota."""


class Wanted(Frozen):
    """What the user wants, as far as the machine or the text shows it, such as a torch version; all
    fields are None if it shows nothing."""

    torch: Text = None
    """A specifier for the torch version: `==2.5.1`."""
    companion: Text = None
    """The requested release of a companion, which determines the torch version:
    `torchvision==0.21.0`."""
    backend: Text = None
    """The label of a wheel or index: `cu121`."""
    cuda: Text = None
    """The CUDA version for building an extension: `11.8`."""
    source: Text = None


class Event(Frozen):
    """Something that a program reported, as a typed fact: an Xid, a missing library, two
    conflicting versions.

    Readers (of dmesg, tracebacks, logs) create events. Rules judge them by `kind` and `values`, and
    never look at `text`, which is kept as evidence.
    """

    kind: str
    """A name in kebab-case: the id of the finding that it shows, or its own name if it may show
    several findings."""
    values: Mapping[str, str] = {}
    source: Text = None
    text: Text = None


Events = tuple[Event, ...]


class Snapshot(Frozen):
    """Everything that was read about a machine, from any source. Unknown values are None, never
    guesses."""

    schema: Literal["gpusetup.snapshot/1"] = "gpusetup.snapshot/1"
    taken_at: Text = None
    origin: Literal["live", "report", "recorded", "composed"] = "live"
    os: Os = Os()
    python: Python = Python()
    driver: Driver = Driver()
    cuda_api: CudaApi = CudaApi()
    gpus: tuple[Gpu, ...] | None = None
    """The GPUs; None if no source reported any, () if a source reported that there is none."""
    gpu_links: tuple[GpuLink, ...] | None = None
    """The link between each pair of NVIDIA GPUs; None if there are fewer than two GPUs, or if no
    source shows the links."""
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
    """The `/dev/nvidia*` nodes; None if gpusetup did not look for them."""
    makers: MakerStack | None = None
    """GPUs of another vendor; None if there are NVIDIA GPUs, or if none were found."""
    environment: Mapping[str, str] = {}
    """The environment variables that are on the allow-list."""
    wanted: Wanted = Wanted()
    failing: Failing = Failing()
    """The program that the user's text is about."""
    events: tuple[Event, ...] = ()
    readings: tuple[Reading, ...] = ()


def visible_gpus(snapshot: Snapshot) -> tuple[Gpu, ...]:
    """The GPUs that a program started here can see, that is, neither hidden nor lost ones."""
    # Count a GPU with unknown visibility (None) as visible, because most reports do not show
    # whether a GPU is hidden.
    return tuple(gpu for gpu in snapshot.gpus or () if gpu.visible is not False and not gpu.lost)
