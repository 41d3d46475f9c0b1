"""Which of several findings is the root: the order of the layers, as tuples one can read.

A GPU program passes these layers from the outside in: what the process is told, the boundary around
it, the driver, the driver's readiness, the device, the wheel, the libraries beside it. What fails
first in that order is the root; `EXPLAINS` says which findings are only its consequences.
"""

from __future__ import annotations

UNFINISHED = ("install-unfinished",)
"""While an environment is between two states, nothing else says anything about it."""

NO_GPU = ("apple-silicon", "no-nvidia-gpu", "amd-gpu", "intel-gpu")

PLATFORM = ("no-wheel-for-platform",)

PROCESS = (
    "module-shadowed",
    "libcuda-stub",
    "wsl-linux-driver",
    "cuda-visible-devices-hidden",
)

BOUNDARY = (
    "container-toolkit-missing",
    "container-cdi-unresolvable",
    "k8s-gpu-not-allocatable",
    "container-hook-failed",
    "container-no-gpu",
    "container-nvml-lost",
    "container-driver-capability-missing",
    "wsl-driver",
)

HARDWARE = (
    "gpu-fell-off-bus",
    "gsp-timeout",
    "hardware-fault",
    "ecc-error",
    "gpu-hang",
)

DRIVER = (
    "hybrid-gpu-off",
    "gpu-passed-through",
    "secure-boot-rejected",
    "driver-missing",
    "driver-build-failed",
    "driver-not-loaded",
    "nvml-mismatch",
    "gpu-not-supported-by-driver",
    "gpu-init-failed",
    "libcuda-missing",
    "driver-does-not-answer",
    "nvml-init-failed",
    "gpu-does-not-answer",
)

READINESS = (
    "device-permission",
    "uvm-missing",
    "mig-misconfigured",
    "vgpu-no-compute",
    "compute-mode-prohibited",
    "system-not-ready-fabric-manager",
    "libcuda-driver-mismatch",
    "forward-compat-unsupported",
    "mps-server",
    "cuda-init-out-of-memory",
    "os-call-failed",
    "invalid-device-ordinal",
    "compute-mode-exclusive",
    "driver-call-unsupported",
    "cuda-unknown-error",
    "cuda-sees-no-device",
    "cuda-init-failed",
    "cuda-misses-gpu",
)

INSTALL = (
    "python-32bit",
    "wrong-index",
    "python-no-wheel",
    "download-network-error",
    "download-hash-mismatch",
    "pip-cache-disk-full",
    "windows-path-too-long",
    "pip-missing",
    "externally-managed",
    "site-not-writable",
    "installed-by-two",
    "conda-cuda-virtual-missing",
    "resolver-conflict",
    "package-not-found",
    "build-isolation-no-torch",
    "cuda-toolkit-mismatch-extension-build",
    "cuda-toolkit-missing",
    "compiler-too-new",
    "compiler-missing",
    "ninja-missing",
    "build-without-gpu",
    "cxx-standard-too-old",
    "extension-too-old-for-torch",
    "smi-banner-misread",
)

WHEEL = (
    "glibc-too-old",
    "windows-pagefile-too-small",
    "windows-dll-missing",
    "jetson-wrong-wheel",
    "torch-outside-environment",
    "two-torch-installs",
    "mixed-conda-pip",
    "torch-half-installed",
    "rocm-wheel-on-nvidia",
    "xpu-wheel-on-nvidia",
    "torch-cpu-build",
    "driver-too-old",
    "arch-too-new-for-wheel",
    "arch-too-old-for-wheel",
    "torch-missing",
)

LIBRARIES = (
    "mkl-version-mismatch",
    "ld-library-path-conflict",
    "extension-abi-mismatch",
    "torchvision-mismatch",
    "torchaudio-mismatch",
    "cuda-lib-missing",
    "numpy-abi-mismatch",
    "torch-import-failed",
    "extension-not-built",
    "extension-arch-mismatch",
    "no-kernel-image",
    "gpu-too-old-for-flash-attention",
    "kernel-image-invalid",
    "jit-arch-rejected",
    "ptx-unsupported-toolchain",
    "gpu-too-old-for-triton",
    "triton-build-failed",
    "triton-no-compiler",
    "triton-missing-windows",
    "triton-missing",
    "library-missing",
    "openmp-twice",
    "static-tls-full",
)

RUNNING = (
    "shm-too-small",
    "cuda-fork-reinit",
    "nccl-unavailable-windows",
    "port-in-use",
    "nccl-duplicate-gpu",
    "nccl-no-socket-interface",
    "nccl-shm-error",
    "nccl-p2p-failure",
    "rdma-memlock",
    "bf16-unsupported",
    "out-of-memory",
    "host-out-of-memory",
    "dataloader-worker-killed",
    "tf32-precision",
    "open-files-limit",
    "nccl-timeout",
    "nccl-error",
    "torch-sees-no-gpu",
    "gpu-check-failed",
)

LOSSES = (
    "vgpu-unlicensed",
    "power-thermal-throttle",
    "fabric-unhealthy",
    "nvlink-degraded",
    "pcie-degraded",
)
"""Warnings that are a root of their own: the stack works, and loses speed now."""

ORDER = (
    *UNFINISHED,
    *NO_GPU,
    *PLATFORM,
    *PROCESS,
    *BOUNDARY,
    *HARDWARE,
    *DRIVER,
    *READINESS,
    *INSTALL,
    *WHEEL,
    *LIBRARIES,
    *RUNNING,
    *LOSSES,
)

NO_DEVICE = ("cuda-sees-no-device", "torch-sees-no-gpu", "gpu-check-failed")
"""What everything sees that runs above a missing device."""

NO_INIT = (*NO_DEVICE, "cuda-unknown-error", "os-call-failed", "cuda-init-failed")

SILENCE = ("driver-does-not-answer", "gpu-does-not-answer", "nvml-init-failed", "cuda-misses-gpu")
"""What asking a driver or a GPU ends with that something above it took away."""

NO_DRIVER = (
    *NO_INIT,
    "uvm-missing",
    "nvml-mismatch",
    "libcuda-driver-mismatch",
    "driver-too-old",
    "nvml-init-failed",
)

BROKEN_TORCH = ("torch-sees-no-gpu", "torch-import-failed", "gpu-check-failed", "cuda-lib-missing")

NO_TORCH = ("torch-missing", "torch-half-installed", "torch-import-failed")
"""What an install that failed leaves behind."""

UNINSTALLABLE = (*NO_TORCH, "resolver-conflict", "package-not-found")

KERNELS_FAIL = ("cuda-library-error", "cuda-program-error")

NCCL_SAYS = ("nccl-error", "nccl-timeout")

COMPANIONS = ("torchvision-mismatch", "torchaudio-mismatch", "numpy-abi-mismatch")

EXPLAINS: dict[str, tuple[str, ...]] = {
    "install-unfinished": (*BROKEN_TORCH, *COMPANIONS, *NO_TORCH, "torch-cpu-build"),
    "apple-silicon": NO_DEVICE,
    "no-nvidia-gpu": NO_DEVICE,
    "amd-gpu": NO_DEVICE,
    "intel-gpu": NO_DEVICE,
    "module-shadowed": (*BROKEN_TORCH, "torch-missing", "torch-half-installed"),
    "libcuda-stub": (*NO_DRIVER, "driver-missing"),
    "cuda-visible-devices-hidden": (*NO_DEVICE, "invalid-device-ordinal", "mig-misconfigured"),
    "container-no-gpu": (*NO_DRIVER, "driver-missing", "driver-not-loaded", "device-permission"),
    "container-nvml-lost": (
        *NO_DRIVER,
        "driver-not-loaded",
        "device-permission",
        "gpu-init-failed",
    ),
    "container-driver-capability-missing": (*NO_DRIVER, "driver-missing"),
    "wsl-driver": (*NO_DRIVER, "driver-missing", "driver-not-loaded", "gpu-init-failed"),
    "gpu-fell-off-bus": (
        *NO_INIT,
        *SILENCE,
        "gpu-init-failed",
        "driver-not-loaded",
        "pcie-degraded",
        "nvlink-degraded",
        "fabric-unhealthy",
        "gpu-hang",
        *KERNELS_FAIL,
    ),
    "gsp-timeout": (*NO_INIT, *SILENCE, "gpu-init-failed", "driver-slow", "gpu-hang"),
    "hardware-fault": (
        *NO_INIT,
        *SILENCE,
        "gpu-init-failed",
        "gpu-hang",
        "compute-mode-exclusive",
        "nvlink-degraded",
        "fabric-unhealthy",
        *KERNELS_FAIL,
        *NCCL_SAYS,
    ),
    "fabric-unhealthy": ("nvlink-degraded", *NCCL_SAYS),
    "nvlink-degraded": NCCL_SAYS,
    "ecc-error": (*NO_INIT, "gpu-init-failed", "gpu-hang", *KERNELS_FAIL),
    "gpu-hang": (*NO_INIT, *KERNELS_FAIL, *NCCL_SAYS),
    "hybrid-gpu-off": (*NO_DRIVER, "driver-missing", "driver-not-loaded", "gpu-init-failed"),
    "gpu-passed-through": (*NO_DRIVER, "driver-missing", "driver-not-loaded", "gpu-init-failed"),
    "secure-boot-rejected": (*NO_DRIVER, "driver-missing", "driver-not-loaded"),
    "driver-build-failed": (*NO_DRIVER, "driver-not-loaded", "gpu-init-failed"),
    "driver-missing": (*NO_DRIVER, "driver-not-loaded", "container-hook-failed"),
    "driver-not-loaded": (*NO_DRIVER, "gpu-init-failed", "container-hook-failed"),
    "nvml-mismatch": (*NO_INIT, *SILENCE, "libcuda-driver-mismatch", "forward-compat-unsupported"),
    "gpu-not-supported-by-driver": (*NO_INIT, "gpu-init-failed", "driver-not-loaded"),
    "gpu-init-failed": (*NO_INIT, "uvm-missing"),
    "libcuda-missing": (*NO_INIT, "nvml-init-failed"),
    "driver-does-not-answer": (*NO_INIT, "gpu-does-not-answer", "cuda-misses-gpu"),
    "nvml-init-failed": NO_INIT,
    "gpu-does-not-answer": (*NO_INIT, "cuda-misses-gpu"),
    "wsl-linux-driver": (*NO_INIT, "wsl-driver", "driver-not-loaded", "nvml-mismatch"),
    "device-permission": (*NO_INIT, "driver-not-loaded"),
    "uvm-missing": NO_INIT,
    "mig-misconfigured": (*NO_INIT, "invalid-device-ordinal", "torch-internal-error"),
    "vgpu-no-compute": (*NO_INIT, "compute-mode-prohibited"),
    "vgpu-unlicensed": (*NO_INIT, "compute-mode-exclusive"),
    "compute-mode-prohibited": NO_INIT,
    "system-not-ready-fabric-manager": NO_DEVICE,
    "libcuda-driver-mismatch": NO_DEVICE,
    "forward-compat-unsupported": NO_DEVICE,
    "mps-server": NO_DEVICE,
    "cuda-init-out-of-memory": (*NO_DEVICE, "out-of-memory"),
    "os-call-failed": NO_DEVICE,
    "invalid-device-ordinal": NO_DEVICE,
    "compute-mode-exclusive": NO_DEVICE,
    "driver-call-unsupported": NO_DEVICE,
    "cuda-unknown-error": NO_DEVICE,
    "cuda-sees-no-device": ("torch-sees-no-gpu", "gpu-check-failed"),
    "cuda-init-failed": NO_DEVICE,
    "container-toolkit-missing": (*NO_DRIVER, "container-no-gpu", "driver-missing"),
    "container-cdi-unresolvable": (*NO_DRIVER, "container-no-gpu", "driver-missing"),
    "k8s-gpu-not-allocatable": (*NO_DRIVER, "container-no-gpu"),
    "container-hook-failed": NO_INIT,
    "python-32bit": (*UNINSTALLABLE, "python-no-wheel", "wrong-index"),
    "wrong-index": (*UNINSTALLABLE, "python-no-wheel"),
    "python-no-wheel": UNINSTALLABLE,
    "no-wheel-for-platform": (*UNINSTALLABLE, "python-no-wheel", "wrong-index"),
    "download-network-error": (*UNINSTALLABLE, "download-hash-mismatch", "python-no-wheel"),
    "download-hash-mismatch": NO_TORCH,
    "pip-cache-disk-full": (*NO_TORCH, "download-hash-mismatch"),
    "windows-path-too-long": NO_TORCH,
    "pip-missing": ("torch-missing",),
    "externally-managed": ("torch-missing",),
    "site-not-writable": ("torch-missing",),
    "conda-cuda-virtual-missing": ("resolver-conflict",),
    "resolver-conflict": ("torch-missing",),
    "build-isolation-no-torch": ("torch-missing",),
    "cuda-toolkit-missing": ("build-isolation-no-torch",),
    "glibc-too-old": (*NO_TORCH, "cuda-lib-missing", "library-missing"),
    "windows-pagefile-too-small": (
        *BROKEN_TORCH,
        "windows-dll-missing",
        "dataloader-worker-killed",
    ),
    "windows-dll-missing": ("torch-import-failed", "cuda-lib-missing"),
    "jetson-wrong-wheel": (
        *BROKEN_TORCH,
        "torch-cpu-build",
        "arch-too-old-for-wheel",
        "arch-too-new-for-wheel",
    ),
    "torch-outside-environment": (
        *BROKEN_TORCH,
        *COMPANIONS,
        *("torch-half-installed", "two-torch-installs", "torch-cpu-build"),
        *("rocm-wheel-on-nvidia", "xpu-wheel-on-nvidia", "arch-too-new-for-wheel"),
        *("arch-too-old-for-wheel", "driver-too-old"),
    ),
    "two-torch-installs": (*BROKEN_TORCH, *COMPANIONS, "torch-half-installed", "mixed-conda-pip"),
    "mixed-conda-pip": (*BROKEN_TORCH, *COMPANIONS, "torch-cpu-build"),
    "torch-half-installed": (*BROKEN_TORCH, *COMPANIONS),
    "rocm-wheel-on-nvidia": (*BROKEN_TORCH, *COMPANIONS),
    "xpu-wheel-on-nvidia": (*BROKEN_TORCH, *COMPANIONS),
    "torch-cpu-build": (*BROKEN_TORCH, "extension-abi-mismatch"),
    "driver-too-old": (*NO_DEVICE, "container-hook-failed", "resolver-conflict"),
    "arch-too-new-for-wheel": (
        "gpu-check-failed",
        "no-kernel-image",
        "extension-arch-mismatch",
        "cuda-library-error",
    ),
    "arch-too-old-for-wheel": (
        "gpu-check-failed",
        "torch-sees-no-gpu",
        "no-kernel-image",
        "extension-arch-mismatch",
        "cuda-library-error",
    ),
    "torch-missing": ("torchvision-mismatch", "torchaudio-mismatch"),
    "ld-library-path-conflict": (
        "torch-import-failed",
        "gpu-check-failed",
        "library-missing",
        "cuda-library-error",
    ),
    "extension-abi-mismatch": ("torch-import-failed", "extension-arch-mismatch"),
    "extension-arch-mismatch": ("no-kernel-image", "gpu-check-failed"),
    "triton-build-failed": ("triton-no-compiler",),
    "shm-too-small": ("dataloader-worker-killed", "nccl-shm-error", *NCCL_SAYS),
    "port-in-use": NCCL_SAYS,
    "nccl-duplicate-gpu": NCCL_SAYS,
    "nccl-no-socket-interface": NCCL_SAYS,
    "nccl-shm-error": NCCL_SAYS,
    "nccl-p2p-failure": NCCL_SAYS,
    "rdma-memlock": NCCL_SAYS,
    "bf16-unsupported": ("cuda-library-error",),
    "cuda-fork-reinit": ("cuda-init-failed", "torch-sees-no-gpu"),
    "out-of-memory": (
        "gpu-check-failed",
        "cuda-library-error",
        "torch-internal-error",
        *NCCL_SAYS,
    ),
    "host-out-of-memory": ("dataloader-worker-killed",),
    "nccl-timeout": ("nccl-error",),
    "cuda-lib-missing": ("torch-import-failed", "gpu-check-failed"),
    "mkl-version-mismatch": ("torch-import-failed",),
    "numpy-abi-mismatch": ("torch-import-failed",),
}
"""A finding -> the findings that are its consequences, where both are there."""
