"""Builds of torch that cannot use the machine's GPU: a CPU build, or a build for another maker's
GPUs."""

from __future__ import annotations

import re

from gpusetup.accelerators.makers import LABEL
from gpusetup.causes import alike
from gpusetup.causes.record import Cause, CheckCommand, Message
from gpusetup.evidence import proofs
from gpusetup.evidence.command_values import is_a_version
from gpusetup.evidence.context import RuleContext, events, is_report
from gpusetup.evidence.places import ON_LINUX
from gpusetup.fixes import paste
from gpusetup.model.finding import Fix


def _replace_cpu_build(context: RuleContext, text: str) -> Fix:
    """Install a CUDA build in place of the CPU build, if one works on this machine.

    If a text shows the command that installed the CPU build, the fix is to correct that command.
    """
    build = context.choice.build
    if is_report(context) and context.snapshot.wanted.backend == "cpu":
        return Fix(
            text="The command that installs torch uses the index of the CPU builds (`whl/cpu`). "
            "Replace it with an index of CUDA builds (in a Dockerfile too, then rebuild the "
            "image). `gpusetup resolve` on the machine with the GPU shows which index fits"
        )
    if build and build.backend == "cpu":
        return Fix(text="No CUDA build works on this machine: see the other findings")
    return paste.another_torch(context, text)


def _release_that_works(context: RuleContext, text: str) -> Fix:
    """Install the release that worked. If a nightly build fails, install the newest stable release
    instead."""
    regressions = events(context, "release-regressed")
    values = regressions[0].values if regressions else {}
    good_release = values.get("good", "")
    is_nightly = ".dev" in values.get("bad", "")
    if is_nightly:
        sentence = f"{text}Install the newest stable release"
    elif good_release:
        sentence = f"{text}Install torch {good_release} again"
    else:
        sentence = f"{text}Install the release that worked again"
    backend = context.torch.backend or ""
    # If the installed build is unknown, the right index is unknown too.
    # PyTorch has an index for each label.
    if not (re.fullmatch(LABEL, backend) is not None):
        return Fix(text=sentence)
    is_exact = not is_nightly and is_a_version(good_release)
    requirement = f"torch=={good_release}" if is_exact else "torch"
    words = ("install", "--force-reinstall", requirement, "--index-url", f"{INDEX}/{backend}")
    return Fix(text=sentence, commands=(paste.pip(context, *words),))


INDEX = "https://download.pytorch.org/whl"


CAUSES = (
    Cause(
        "torch-release-regressed",
        title="torch {good} works here but torch {bad} does not: the build is at fault",
        plain="One release of torch works on this machine, but another does not",
        means="The GPU and the driver work with one release of torch, so neither of them is the "
        "cause.",
        text="Keep the driver, and report the release that fails to PyTorch. ",
        # Source: pytorch/pytorch, issues of regressed nightlies.
        events=("release-regressed",),
        explains=("torch-sees-no-gpu", "gpu-check-failed", "torch-import-failed"),
        way=_release_that_works,
    ),
    Cause(
        "torch-cpu-build",
        cases=(
            Message(
                where=(ON_LINUX,),
                way=_replace_cpu_build,
                means="Usually conda picked a CPU build because it saw no driver, the image came "
                "with a CPU build, or installing another package replaced the CUDA build.",
            ),
        ),
        certain_if=proofs.cpu_build_beside_a_gpu,
        check=CheckCommand(alike.TORCHS_CUDA, "2.5.1+cpu None"),
        title="{who} is a CPU build and cannot use {gpu}",
        plain="torch is a CPU build on a machine with an NVIDIA GPU",
        means="On Windows, `pip install torch` installs a CPU build, because the default index "
        "has only CPU builds there. Installing another package can also replace a CUDA build with "
        "a CPU build.",
        text="Replace the CPU build with a CUDA build. ",
        # Source: the wheels and indexes of torch, read for the catalog.
        explains=("extension-abi-mismatch",),
        way=_replace_cpu_build,
        alike={alike.LIST_GPUS: ("no-nvidia-gpu",)},
    ),
    Cause(
        "rocm-wheel-on-nvidia",
        certain_if=proofs.build_of_one_maker_beside_a_gpu_of_another,
        title="{who} is a build for {maker} GPUs: it cannot use {gpus}",
        plain="torch is a build for another maker's GPUs on a machine with an NVIDIA GPU",
        means="ROCm builds are for AMD's GPUs, and XPU builds for Intel's.",
        text="Replace this build. ",
        # Source: the wheels and indexes of torch, read for the catalog.
        way=paste.another_torch,
    ),
)  # fmt: skip
