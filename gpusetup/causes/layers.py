"""The layers that a GPU program passes, and what each broken layer shows in those above it.

What the process is told, the boundary around it, the driver, its readiness, the device, the wheel,
the libraries beside it: what fails first in that order is the root cause.
"""

from __future__ import annotations

import enum

from gpusetup.model.failing import Stage


class Layer(enum.IntEnum):
    """Where a cause acts. Of two unexplained causes the one of the earlier layer is the root."""

    UNFINISHED = enum.auto()
    """An environment between two states: nothing else says anything about it."""
    NO_GPU = enum.auto()
    """There is no GPU that CUDA drives."""
    PLATFORM = enum.auto()
    """torch does not exist for this system."""
    PROCESS = enum.auto()
    """What the process is told: variables, a stub, a module that stands before torch."""
    BOUNDARY = enum.auto()
    """The container, the pod, WSL."""
    HARDWARE = enum.auto()
    DRIVER = enum.auto()
    READINESS = enum.auto()
    """A driver that runs and does not let CUDA start: nodes, modes, codes of cuInit."""
    INSTALL = enum.auto()
    WHEEL = enum.auto()
    """The build of torch: for this machine, whole, alone."""
    LIBRARIES = enum.auto()
    RUNNING = enum.auto()
    LOSSES = enum.auto()
    """Warnings that are a root of their own: the stack works, and loses speed now."""


NO_DEVICE = ("cuda-sees-no-device", "torch-sees-no-gpu", "gpu-check-failed")
"""What everything sees that runs above a missing device."""

INIT_FAILS = ("cuda-unknown-error", "os-call-failed", "cuda-init-failed")

NO_INIT = (*NO_DEVICE, *INIT_FAILS)

SILENCE = ("driver-does-not-answer", "gpu-does-not-answer", "nvml-init-failed", "cuda-misses-gpu")
"""What asking a driver or a GPU ends with that something above it took away."""

NO_DRIVER = (
    "uvm-missing",
    "libcuda-missing",
    "nvml-mismatch",
    "libcuda-driver-mismatch",
    "driver-too-old",
    "nvml-init-failed",
)

BROKEN_TORCH = ("torch-sees-no-gpu", "torch-import-failed", "gpu-check-failed", "cuda-lib-missing")

NO_TORCH = ("torch-missing", "torch-half-installed", "torch-import-failed")
"""What an install that failed leaves behind."""

UNINSTALLABLE = (*NO_TORCH, "resolver-conflict", "package-not-found")

NEED_A_GPU = ("program-sees-no-gpu", "program-without-gpu-support", "cuda-lib-missing")
"""What programs say whose way out is their build for CUDA."""

KERNELS_FAIL = ("cuda-library-error", "cuda-program-error")

NCCL_SAYS = ("nccl-error", "nccl-timeout")

COMPANIONS = ("torchvision-mismatch", "torchaudio-mismatch", "numpy-abi-mismatch")

OF_THE_DRIVER = (Layer.HARDWARE, Layer.DRIVER, Layer.READINESS)
"""The layers of what belongs to the machine's owner."""

STAGES: dict[Layer, Stage] = {
    **dict.fromkeys((Layer.UNFINISHED, Layer.PLATFORM, Layer.INSTALL), "install"),
    Layer.LIBRARIES: "import",
    **dict.fromkeys((Layer.HARDWARE, Layer.RUNNING, Layer.LOSSES), "running"),
}
"""The stage at which the causes of a layer usually make a program fail; else at its start."""

SHOWS: dict[Layer, tuple[str, ...]] = {
    Layer.NO_GPU: (*NO_INIT, *NEED_A_GPU),
    Layer.BOUNDARY: NO_INIT,
    Layer.HARDWARE: NO_INIT,
    Layer.DRIVER: NO_INIT,
    Layer.READINESS: NO_DEVICE,
}
"""A layer -> what every cause in it explains of the findings that come after it in the order."""
