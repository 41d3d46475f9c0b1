"""Builds of torch that cannot use the GPU that is there: the CPU's, or another maker's."""

from __future__ import annotations

from gpusetup.causes import alike
from gpusetup.causes.record import Cause, Message
from gpusetup.evidence.context import RuleContext
from gpusetup.evidence.places import ON_LINUX, ON_WINDOWS
from gpusetup.fixes import paste
from gpusetup.model.finding import Fix


def _replace_it(context: RuleContext, text: str) -> Fix:
    build = context.resolution.build
    if build and build.backend == "cpu":
        return Fix(text="No CUDA build works on this machine: see the other findings")
    return paste.another_torch(context, text)


CAUSES = (
    Cause(
        "torch-cpu-build",
        title="{who} is a CPU build: it cannot use {gpu}",
        plain="torch is a CPU build on a machine with an NVIDIA GPU",
        means="For Windows the default index has only CPU builds. conda picks a CPU build if it "
        "sees no driver. Installing another package may replace a CUDA build.",
        cases=(
            Message(
                where=(ON_LINUX,),
                way=_replace_it,
                means="conda picks a CPU build if it sees no driver, an image may bring one, and "
                "installing another package may replace a CUDA build.",
            ),
            Message(
                where=(ON_WINDOWS,),
                way=_replace_it,
                means="For Windows the default index has only CPU builds, so `pip install torch` "
                "installs one, and another package may replace a CUDA build by one.",
            ),
        ),
        text="Replace the CPU build. ",
        proven_by="torch/version.py names no CUDA version, and there is an NVIDIA GPU",
        not_when="If cuda-visible-devices-hidden or driver-missing was found too, fix that first",
        # Source: the wheels and indexes of torch, read for the catalog.
        explains=("extension-abi-mismatch",),
        way=_replace_it,
        alike={alike.LIST_GPUS: ("no-nvidia-gpu",)},
    ),
    Cause(
        "rocm-wheel-on-nvidia",
        title="{who} is a ROCm build: it cannot use {gpus}",
        plain="torch is a ROCm build on a machine with an NVIDIA GPU",
        means="ROCm builds are for AMD's GPUs.",
        text="Replace it. ",
        proven_by="torch's version ends in +rocm…, and there is an NVIDIA GPU",
        not_when="If there is no NVIDIA GPU, the cause is amd-gpu",
        # Source: the wheels and indexes of torch, read for the catalog.
        way=paste.another_torch,
    ),
    Cause(
        "xpu-wheel-on-nvidia",
        title="{who} is an XPU build: it cannot use {gpus}",
        plain="torch is an XPU build on a machine with an NVIDIA GPU",
        means="XPU builds are for Intel's GPUs.",
        text="Replace it. ",
        proven_by="torch's version ends in +xpu, and there is an NVIDIA GPU",
        not_when="If there is no NVIDIA GPU, the cause is intel-gpu",
        # Source: the wheels and indexes of torch, read for the catalog.
        way=paste.another_torch,
    ),
)
