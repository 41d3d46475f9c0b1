"""The rows of the quick level, in running order."""

from __future__ import annotations

from typing import Tuple

from ..values import Check

QUICK: Tuple[Check, ...] = (
    Check(
        "import",
        "device.importing:torch_imports",
        on=("host:auto", "host:cuda", "host:cpu", "host:none"),
        proves="`import torch` works, and what imports is PyTorch",
        means="nothing that uses torch can start in this environment",
        then="`gpusetup doctor` names the cause",
    ),
    Check(
        "gpu",
        "device.devices:gpus_detected",
        on=("host:auto", "host:cuda"),
        needs=("import",),
        proves="torch sees a CUDA device",
        means="training would run on the CPU, or stop with an error",
        then="`gpusetup doctor` names the cause",
    ),
    Check(
        "libraries",
        "device.libraries:libraries_load",
        on=("host:none",),
        needs=("import",),
        proves="every CUDA library of this torch loads, with no GPU at hand",
        means="the image would fail on a GPU host at the first use of that library",
        then="install torch anew: `gpusetup install`",
    ),
    Check(
        "properties",
        "device.devices:properties",
        on=("cuda", "cpu"),
        needs=("import", "gpu"),
        proves="the device tells what it is, and gives back what was written to it",
        means="the device cannot be used at all",
        then="`gpusetup doctor` names the cause",
    ),
    Check(
        "arch",
        "device.devices:arch_in_build",
        on=("cuda",),
        needs=("properties",),
        proves="the build carries a kernel, or PTX, for this GPU, and one runs",
        means="every operation on this GPU would fail",
        then="`gpusetup resolve` names the build that serves this GPU",
    ),
    Check(
        "matmul",
        "checks.computing:matmul",
        on=("cuda", "cpu"),
        needs=("properties", "arch"),
        proves="a 1000 x 1000 product in float32 agrees with float64 at every element",
        means="every model would compute wrong numbers here",
        then="run it again; where it fails again, look for Xid and ECC in `dmesg`",
    ),
    Check(
        "amp",
        "checks.computing:amp",
        on=("cuda", "cpu"),
        needs=("properties", "arch"),
        proves="a few steps of mixed-precision training lower the loss and stay finite",
        means="mixed-precision training cannot be trusted here",
        then="`gpusetup doctor`, then another build of torch",
    ),
)
