"""The layers below a GPU program, and which faults in higher layers a fault in a lower layer
explains.

The process's settings, its container, the driver, CUDA's start on the driver, the GPU, torch's
build and the other libraries depend on each other in this order. The root cause is the fault that
comes first.
"""

from __future__ import annotations

import enum


class Layer(enum.IntEnum):
    """The layer that a cause belongs to. If neither of two causes explains the other, the cause in
    the lower layer is the root cause."""

    UNFINISHED = enum.auto()
    """An interrupted installation. Nothing else about the environment can be judged before it is
    completed."""
    NO_GPU = enum.auto()
    """The machine has no GPU that CUDA can use."""
    PLATFORM = enum.auto()
    """PyTorch publishes no wheels for this system."""
    PROCESS = enum.auto()
    """Settings of the process: environment variables, a stub library, or a local file that hides
    torch."""
    BOUNDARY = enum.auto()
    """The container, pod or WSL in which the process runs."""
    HARDWARE = enum.auto()
    DRIVER = enum.auto()
    READINESS = enum.auto()
    """The driver runs but CUDA cannot start: device nodes, compute modes, errors of cuInit."""
    INSTALL = enum.auto()
    WHEEL = enum.auto()
    """The build of torch: whether it fits the machine, is complete, and is the only one."""
    LIBRARIES = enum.auto()
    RUNNING = enum.auto()
    LOSSES = enum.auto()
    """Warnings that are the root cause if nothing else is wrong: everything works, but more slowly
    than it could."""


NO_DEVICE = ("cuda-sees-no-device", "torch-sees-no-gpu", "gpu-check-failed")
"""Findings that appear if CUDA has no device, whatever the reason."""

INIT_FAILS = ("cuda-unknown-error", "os-call-failed", "cuda-init-failed")
"""Errors of cuInit that do not name their reason."""

NO_INIT = (*NO_DEVICE, *INIT_FAILS)

NO_DRIVER = (
    "uvm-missing", "libcuda-missing", "nvml-mismatch", "libcuda-driver-mismatch", "driver-too-old",
    "driver-does-not-answer", "driver-missing", "driver-not-loaded", "device-permission",
    "gpu-init-failed", "container-hook-failed",
)  # fmt: skip
"""Findings that appear if the driver cannot be reached, including the container toolkit's, which
queries the driver before a container starts."""

BROKEN_TORCH = ("torch-sees-no-gpu", "torch-import-failed", "gpu-check-failed", "cuda-lib-missing")

NO_TORCH = ("torch-missing", "torch-half-installed", "torch-import-failed")
"""Findings that a failed installation can cause."""

UNINSTALLABLE = (
    *NO_TORCH, "resolver-conflict", "wrong-index", "python-no-wheel", "download-hash-mismatch",
)  # fmt: skip
"""Errors in a later step of an installation that only follow from an earlier failed step."""

COMPANIONS = ("torchvision-mismatch", "torchaudio-mismatch", "numpy-abi-mismatch")

OF_THE_DRIVER = (Layer.HARDWARE, Layer.DRIVER, Layer.READINESS)
"""The layers that only the machine's owner can fix."""

SHOWS: dict[Layer, tuple[str, ...]] = {
    Layer.UNFINISHED: (*BROKEN_TORCH, *COMPANIONS, *NO_TORCH, "torch-cpu-build"),
    # The fix of a program that finds no GPU is the program's own CUDA build.
    Layer.NO_GPU: (
        *NO_INIT, "program-sees-no-gpu", "program-without-gpu-support", "cuda-lib-missing",
        "no-kernel-image",
    ),
    Layer.PLATFORM: UNINSTALLABLE,
    Layer.PROCESS: (*NO_INIT, *BROKEN_TORCH, *NO_TORCH),
    Layer.BOUNDARY: (*NO_INIT, *NO_DRIVER, "container-no-gpu"),
    Layer.HARDWARE: (
        *NO_INIT, "driver-does-not-answer",
        "container-hook-failed", "gpu-init-failed", "cuda-library-error", "cuda-program-error",
        "nccl-error",
    ),
    Layer.DRIVER: (*NO_INIT, *NO_DRIVER),
    Layer.READINESS: NO_INIT,
    Layer.INSTALL: UNINSTALLABLE,
    Layer.WHEEL: (*BROKEN_TORCH, *COMPANIONS),
    Layer.LIBRARIES: ("torch-import-failed", "gpu-check-failed", "cuda-library-error"),
    Layer.RUNNING: ("nccl-error",),
}  # fmt: skip
"""A layer -> the later findings that every cause in this layer explains."""

ORDER: dict[Layer, tuple[str, ...]] = {
    Layer.UNFINISHED: ("install-unfinished",),
    Layer.NO_GPU: (
        "rocm-override-wrong",
        "amd-gpu", "apple-silicon", "intel-gpu",
        "no-nvidia-gpu",
    ),
    Layer.PLATFORM: ("no-wheel-for-platform",),
    Layer.PROCESS: (
        "module-shadowed", "libcuda-stub",
        "cuda-visible-devices-hidden",
    ),
    Layer.BOUNDARY: (
        "container-toolkit-missing", "container-runtime-not-default", "docker-other-daemon",
        "container-cdi-unresolvable", "k8s-gpu-not-allocatable", "container-no-gpu",
        "container-nvml-lost", "container-driver-capability-missing", "wsl-driver",
    ),
    Layer.HARDWARE: ("gpu-fell-off-bus", "gsp-timeout", "hardware-fault", "ecc-error"),
    Layer.DRIVER: (
        "hybrid-gpu-off", "secure-boot-rejected", "driver-missing",
        "driver-not-loaded", "nvml-mismatch", "gpu-init-failed",
        "libcuda-missing", "driver-does-not-answer",
        "container-hook-failed",
    ),
    Layer.READINESS: (
        "device-permission", "uvm-missing", "mig-misconfigured",
        "vgpu-no-compute", "system-not-ready-fabric-manager",
        "libcuda-driver-mismatch", "forward-compat-unsupported", "mps-server",
        "wrong-libcuda-loaded", "cuda-init-out-of-memory", "os-call-failed",
        "invalid-device-ordinal", "compute-mode-exclusive",
        "cuda-unknown-error", "cuda-init-failed", "cuda-sees-no-device",
    ),
    Layer.INSTALL: (
        "python-32bit", "wrong-index", "python-no-wheel", "download-network-error",
        "download-hash-mismatch", "pip-cache-disk-full", "windows-path-too-long", "pip-missing",
        "externally-managed", "conda-cuda-virtual-missing",
        "resolver-conflict", "build-isolation-no-torch",
        "cuda-toolkit-mismatch-extension-build", "cuda-toolkit-missing",
        "compiler-too-new", "compiler-missing", "cxx-standard-too-old",
    ),
    Layer.WHEEL: (
        "glibc-too-old", "windows-pagefile-too-small", "dll-load-order", "windows-dll-missing",
        "other-torch-imported", "jetson-wrong-wheel",
        "mixed-conda-pip", "torch-half-installed",
        "rocm-wheel-on-nvidia", "torch-cpu-build", "driver-too-old",
        "arch-too-new-for-wheel", "arch-too-old-for-wheel", "torch-missing",
    ),
    Layer.LIBRARIES: (
        "mkl-version-mismatch", "ld-library-path-conflict", "extension-abi-mismatch",
        "torchvision-mismatch", "torchaudio-mismatch", "cuda-lib-missing", "library-not-on-path",
        "extension-needs-libcuda", "numpy-abi-mismatch", "torch-import-failed",
        "extension-not-built", "extension-arch-mismatch", "no-kernel-image",
        "jit-arch-rejected", "ptx-unsupported-toolchain", "gpu-too-old-for-triton",
        "triton-build-failed", "triton-no-compiler", "triton-missing",
        "triton-missing-windows", "library-missing",
    ),
    Layer.RUNNING: (
        "shm-too-small", "cuda-fork-reinit", "local-rank-argument",
        "nccl-unavailable-windows", "nccl-duplicate-gpu",
        "nccl-no-socket-interface", "nccl-shm-error", "nccl-p2p-failure",
        "bf16-unsupported", "out-of-memory",
        "host-out-of-memory", "dataloader-worker-killed", "tf32-precision", "open-files-limit",
        "cuda-call-not-supported",
        "nccl-error", "torch-sees-no-gpu",
        "gpu-check-failed",
    ),
    Layer.LOSSES: (
        "vgpu-unlicensed", "power-thermal-throttle",
        "pcie-degraded", "mixed-precision-no-gain", "conda-missing",
    ),
}  # fmt: skip
"""All causes that can be the root, by layer. If several remain unexplained, the first one in this
order is the root."""

PLACES = {id: (layer, rank) for layer, ids in ORDER.items() for rank, id in enumerate(ids)}
