"""All records of causes, and all known messages of programs."""

from __future__ import annotations

from importlib import import_module

from gpusetup.causes.record import Cause
from gpusetup.messages import boundary, driver, makers, outputs, packages, torch, trainers

FILES = (
    "companions", "containers", "cuda_start", "driver", "environments", "extensions", "gpu_faults",
    "host", "libraries", "makers", "memory", "parallel", "programs", "torch", "wheels", "windows",
)  # fmt: skip
_known = (cause for file in FILES for cause in import_module(f"gpusetup.causes.{file}").CAUSES)
CAUSES: tuple[Cause, ...] = tuple(sorted(_known, key=lambda cause: cause.order))
FACTS = (
    *driver.ROWS,
    *boundary.ROWS,
    *torch.ROWS,
    *packages.ROWS,
    *makers.ROWS,
    *trainers.ROWS,
    *outputs.ROWS,
)
"""Messages that prove a fact but not a cause."""
ROWS = (*FACTS, *(row for cause in CAUSES for row in cause.rows))
BY_CHECK = frozenset((
    "compute-mode-exclusive", "container-driver-capability-missing",
    "container-no-gpu", "container-no-maker-gpu", "container-nvml-lost",
    "container-runtime-not-default", "cuda-home-unset", "cuda-init-out-of-memory",
    "cuda-visible-devices-hidden", "device-permission", "dll-load-order", "docker-other-daemon",
    "driver-does-not-answer", "driver-missing", "driver-not-loaded", "driver-too-old", "ecc-error",
    "gpu-does-not-answer", "gpu-fell-off-bus", "gpu-init-failed",
    "gpu-not-supported-by-driver", "gpu-works-little", "gsp-timeout", "hardware-fault",
    "invalid-device-ordinal", "libcuda-missing", "library-not-on-path", "maker-device-permission",
    "maker-driver-not-loaded", "maker-wrong-build", "mig-misconfigured", "mps-server",
    "no-kernel-image", "no-nvidia-gpu", "no-target", "no-wheel-for-platform", "nvml-mismatch",
    "other-torch-imported", "out-of-memory", "pip-cache-disk-full",
    "power-thermal-throttle", "program-failed", "program-sees-no-gpu",
    "program-without-gpu-support", "python-no-wheel", "rocm-arch-missing", "rocm-override-wrong",
    "source-checkout-imported", "system-not-ready-fabric-manager", "torch-missing",
    "torch-sees-no-gpu", "torchaudio-mismatch", "torchvision-mismatch", "uvm-missing",
    "vgpu-no-compute", "vgpu-unlicensed", "wrong-index", "wrong-libcuda-loaded", "wsl-driver",
))  # fmt: skip
"""Causes that a message alone does not prove: a function of `findings` decides about them."""
