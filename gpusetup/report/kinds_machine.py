"""The kinds of event about the machine: driver and container."""

from __future__ import annotations

from gpusetup.report.kind import kinds

DRIVER = kinds(
    (
        "xid",
        "bus_id bus_ids number recovery",
        "NVRM: Xid (PCI:...): N; of Xid 154 what the driver recommends: OS Reboot",
    ),
    ("sxid", "bus_id bus_ids number", "nvidia-nvswitch: SXid (PCI:...): N, fatal"),
    (
        "nvrm-api-mismatch",
        "client kernel",
        "NVRM: API mismatch: the client has version A, this kernel module B",
    ),
    ("nvml-mismatch", "kernel library", "Driver/library version mismatch"),
    ("gpu-init-failed", "bus_id code lacks", "NVRM: RmInitAdapter failed"),
    (
        "gpu-fell-off-bus",
        "bus_id",
        "GPU has fallen off the bus; GPU is lost; pciehp: Card not present",
    ),
    (
        "gpu-not-supported-by-driver",
        "bus_id driver name",
        "NVRM: not supported by the `open` module, by the `closed` one; legacy driver needed",
    ),
    ("gsp-timeout", "", "NVRM: Timeout waiting for RPC from GSP; _kgspBootGspRm failed"),
    (
        "module-key-rejected",
        "module",
        "modprobe: Key was rejected by service; Loading of unsigned module is rejected",
    ),
    ("module-not-found", "module", "modprobe: FATAL: Module nvidia not found in directory"),
    ("module-not-inserted", "module why", "modprobe: could not insert 'nvidia': No such device"),
    (
        "module-build-failed",
        "kernel driver branch why",
        "dkms: Bad return status for module build; NVIDIA's installer: Unable to build",
    ),
    ("nouveau-in-the-way", "", "NVRM: nouveau holds the GPU; lspci: Kernel driver in use: nouveau"),
    (
        "no-nvidia-driver",
        "library",
        "Found no NVIDIA driver on your system; torch, nvidia-smi not found",
    ),
    ("smi-not-found", "", "nvidia-smi: command not found, is not recognized"),
    (
        "driver-not-loaded",
        "",
        "NVIDIA-SMI has failed because it couldn't communicate with the driver",
    ),
    ("no-devices-found", "", "nvidia-smi: No devices were found"),
    (
        "driver-too-old",
        "found cuda driver_cuda",
        "torch: driver too old (found version 11040); insufficient for CUDA runtime version (35)",
    ),
    (
        "image-needs-newer-driver",
        "cuda driver_cuda needs_driver driver",
        "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4",
    ),
    (
        "hybrid-gpu-off",
        "tool mode",
        "supergfxctl, prime-select, envycontrol: integrated; blacklisted modules",
    ),
    ("driver-does-not-answer", "how", "nvidia-smi hangs; Timeout"),
    ("hardware-error", "what", "NVLink, PCIe AER or machine check lines beside the GPU"),
    ("ecc-error", "count", "uncorrectable ECC error encountered"),
    ("gpu-requires-reset", "", "GPU requires reset"),
    (
        "vgpu-unlicensed",
        "state",
        "Unlicensed (Unrestricted), vGPU restricted; gridd: failed to acquire licence",
    ),
    (
        "vgpu-no-compute",
        "profile code",
        "a profile without compute; operation not supported on a vGPU (801)",
    ),
    (
        "smi-banner-misread",
        "program",
        "a tool could not find `CUDA Version` in the newer banner and took CPU or its oldest build",
    ),
    ("new-smi-banner", "", "nvidia-smi from 610 on: KMD Version, CUDA UMD Version"),
    (
        "cuda-version-err",
        "why",
        "nvidia-smi: CUDA Version: ERR! (under WSL the kind is wsl-driver)",
    ),
    ("throttled", "reason", "clocks are held down: SW Power Cap, HW Slowdown, thermal"),
    (
        "pcie-limited",
        "width width_max",
        "kernel: available PCIe bandwidth, limited by an x4 link; lspci: LnkSta ... (downgraded)",
    ),
    ("uvm-missing", "", "modprobe: nvidia-uvm not found; /dev/nvidia-uvm: no such file"),
    (
        "fabric-manager-failed",
        "version driver",
        "nv-fabricmanager: failed to start; version mismatch with the driver",
    ),
    ("no-nvswitch", "", "nv-fabricmanager: NV_WARN_NOTHING_TO_DO, there is no NVSwitch"),
    ("mps-server", "code", "MPS daemon messages, errors 805 to 809"),
    ("mig-assert", "", "torch: device >= 0 && device < num_gpus INTERNAL ASSERT with MIG on"),
    ("device-permission", "path", "Insufficient Permissions; permission denied: /dev/nvidia*"),
)
"""The kernel, the driver, NVML, nvidia-smi."""


CONTAINER = kinds(
    (
        "container-no-gpu",
        "lacks",
        "The NVIDIA Driver was not detected (NGC banner); no GPU in the container",
    ),
    ("hosted-notebook", "service", "paths of Google Colab, Kaggle, SageMaker in a traceback"),
    ("container-nvml-lost", "", "Failed to initialize NVML: Unknown Error, in a running container"),
    (
        "container-toolkit-missing",
        "runtime",
        'could not select device driver "" with capabilities: [[gpu]]; unknown runtime nvidia',
    ),
    ("container-cdi-unresolvable", "device", "unresolvable CDI devices nvidia.com/gpu=all"),
    ("container-hook-failed", "problem", "nvidia-container-cli: initialization error: ..."),
    (
        "container-capability-missing",
        "capability",
        "libcuda.so.1 not found where nvidia-smi works; NVIDIA_DRIVER_CAPABILITIES=utility",
    ),
    ("k8s-gpu-not-allocatable", "asked", "Insufficient nvidia.com/gpu; UnexpectedAdmissionError"),
    ("wsl-driver", "why", "GPU access blocked by the operating system; WSL without /dev/dxg"),
    (
        "libcuda-stub",
        "folder",
        "You should always run with libnvidia-ml.so installed with your NVIDIA Driver; stubs/ folder",
    ),
)
"""docker, podman, kubernetes, WSL."""
