"""Which command decides on a machine with an AMD or Intel GPU, where CUDA's commands tell nothing.

A ROCm build calls its device `cuda`, so torch's questions work there; an XPU build has another
device. A program without torch answers in its own log. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.accelerators.amd import gfx_of
from gpusetup.accelerators.makers import maker_of
from gpusetup.causes import alike
from gpusetup.choose.installed import vendors_of
from gpusetup.diagnosis.contrast_questions import is_of_another_maker
from gpusetup.diagnosis.program import program_of
from gpusetup.evidence.context import events, has_nvidia, in_container, on
from gpusetup.evidence.maker_facts import xpu_counts_none
from gpusetup.evidence.places import is_beside_torch
from gpusetup.fixes import owners

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext
    from gpusetup.messages.programs import Program

OF_TORCH = (
    *(alike.ASK_TORCH, alike.TORCH_SEES, alike.TORCHS_CUDA, alike.THIS_TORCH, alike.LIST_GPUS),
    *(alike.WHICH_ROCM, alike.TORCHS_KERNELS),
)
"""Commands that ask a torch for CUDA or ROCm, or NVIDIA's driver."""
ONLY_ON_INTEL = ("no-xpu", "xpu-no-float64", "sycl-finds-none")
"""Events that only Intel's runtime causes."""


def is_of_intel(context: RuleContext) -> bool:
    """Whether the text is about torch on an Intel GPU."""
    maker_of_build = maker_of(context.torch.backend)
    if maker_of_build == "intel" or events(context, *ONLY_ON_INTEL):
        return True
    return vendors_of(context.snapshot) == {"intel"} and not has_nvidia(context)


def fails_while_it_runs(context: RuleContext) -> bool:
    """Whether a program on such a GPU crashed or hangs, or its driver was reset."""
    lost = any(event.values.get("why") == "lost" for event in events(context, "no-xpu"))
    return lost or bool(
        events(context, "program-crashed", "run-hangs", "silent-crash")
        or events(context, "graphics-crash", "machine-powers-off")
    )


def reading_of_amd(context: RuleContext) -> str | None:
    """The command that decides for an AMD GPU: which torch runs, which GPUs ROCm or DirectML lists,
    or where the program crashed. None if the text shows a working GPU and no error."""
    # ZLUDA names the GPU, so torch reached it. Only the missing error tells what failed.
    is_reached_by_zluda = bool(owners.translation_layer(context))
    if is_reached_by_zluda and not events(context, *FAILURES_WITH_ZLUDA):
        return None
    shown = [event.values.get("what") for event in events(context, "output-shown")]
    # The host's kernel refuses the device, so the container's packages tell nothing.
    if "kfd" in shown and in_container(context):
        return alike.ROCM_ON_THE_HOST
    if "kernel" in shown:
        return alike.WHICH_STACK
    # rocminfo itself was refused, so only the kernel's messages tell why.
    if "kfd" in shown:
        return alike.KERNEL_OF_MAKER
    on_windows = context.os.family == "windows"
    # The program's own process crashed: a kernel for another target, or a library of another ROCm.
    if events(context, "program-crashed") and not context.os.wsl:
        return alike.ROCM_STARTS if on_windows else alike.CRASH_ON_ROCM
    if fails_while_it_runs(context):
        return alike.ROCM_STARTS if on_windows else alike.KERNEL_OF_MAKER
    if _hip_failed(context) and "collect-env" not in shown:
        return alike.ROCM_COMPUTES
    # ROCm found the GPU, so what counts is which call on it failed.
    fails = "collect-env" in shown or events(context, "program-failed")
    if context.torch.cuda_available and fails:
        return alike.ROCM_BLOCKING
    program = program_of(context)
    if is_beside_torch(context) and program and not events(context, "no-hip-gpus"):
        return _first_lines_of(program)
    if _build_is_open(context):
        return alike.WHICH_ROCM
    if context.os.wsl:
        return alike.AMD_IN_WSL
    # Windows has neither rocminfo nor grep.
    return alike.WHICH_ROCM if on(context, "windows") else alike.AMD_TARGETS


def _hip_failed(context: RuleContext) -> bool:
    """Whether a call of HIP failed, which shows that torch is a ROCm build and found a GPU."""
    return bool(events(context, "hip-failed")) and not events(context, "no-hip-gpus")


def _target_is_open(context: RuleContext) -> bool:
    """Whether HIP found no kernel for a GPU whose target the text does not show."""
    lacking = events(context, "hip-kernel-missing")
    if not lacking or is_beside_torch(context):
        return False
    names = [event.values.get("gfx") or event.values.get("name", "") for event in lacking]
    names += [gpu.values.get("name", "") for gpu in events(context, "foreign-gpu")]
    return not any(map(gfx_of, names))


def _build_is_open(context: RuleContext) -> bool:
    """Whether the text shows neither which build of torch runs nor a message of ROCm, so that the
    build may be one for CUDA or the CPU. Then ROCm's list of GPUs would not show the cause."""
    if context.torch.backend or is_beside_torch(context) or _hip_failed(context):
        return False
    return not events(context, "no-hip-gpus", "hip-kernel-missing", "backend-runs")


FAILURES_WITH_ZLUDA = (
    *("program-crashed", "silent-crash", "run-hangs", "program-failed", "gpu-unused"),
    *("cuda-unavailable", "no-hip-gpus", "hip-kernel-missing", "graphics-crash"),
)
"""Events of a program that fails although ZLUDA is installed."""


def reading_of_intel(context: RuleContext) -> str:
    """The command that shows whether torch reaches the GPU; if it does, the kernel's messages."""
    shown = [event.values.get("what") for event in events(context, "output-shown")]
    if "kernel" in shown:
        return alike.WHICH_STACK
    asks_sycl = events(context, "sycl-finds-none")
    if asks_sycl:
        return alike.INTELS_NODES if in_container(context) else alike.WHICH_STACK
    if xpu_counts_none(context) and not in_container(context):
        return alike.XPU_SEES
    # The program may have a torch of its own, which is not the one that works.
    if events(context, "gpu-unused") and not fails_while_it_runs(context):
        return alike.TORCHS_XPU
    # "I use XPU" beside torch's complaint about CUDA says only what the person wants.
    lacks_cuda = events(context, "torch-not-compiled-with-cuda")
    runs = events(context, "backend-runs") and not lacks_cuda
    works = runs or fails_while_it_runs(context)
    return alike.KERNEL_OF_MAKER if works else alike.TORCHS_XPU


def _first_lines_of(program: Program) -> str:
    """What to look at in a program without torch, to see which of its builds runs and which GPUs it
    lists."""
    return IN_SETTINGS.get(program.name, FIRST_LINES.format(program.name))


def for_the_maker(context: RuleContext, reading: str) -> str:
    """The command to ask in place of one for CUDA or torch, if the GPU is from AMD or Intel."""
    asks_rocm = reading in (alike.WHICH_ROCM, alike.AMD_TARGETS)
    is_directml = events(context, "directml") and not context.os.wsl
    if asks_rocm and is_directml and not context.torch.backend:
        return alike.DIRECTMLS_GPUS
    if asks_rocm and context.os.wsl:
        return alike.AMD_IN_WSL
    if reading == alike.AMD_TARGETS and on(context, "windows"):
        return alike.WHICH_ROCM
    if not is_of_another_maker(context) and not is_of_intel(context):
        return reading
    if has_nvidia(context):
        return reading
    program = program_of(context)
    if reading in OF_TORCH and program is not None and is_beside_torch(context):
        # A program without a command of its own has no torch to ask either. The text names the GPU,
        # so the open question is which of the program's builds runs, and whether it lists the GPU.
        reading = program.reading or _first_lines_of(program)
    # The server in a container writes to docker's log, and no journal has it.
    if reading in OLLAMAS and in_container(context) and not on(context, "windows"):
        return alike.OLLAMA_IN_DOCKER
    # A fix that depends on torch's version needs the version, whatever failed.
    if reading == alike.TORCHS_CUDA and is_of_intel(context):
        return alike.TORCHS_XPU
    if reading in OF_TORCH and is_of_intel(context):
        return reading_of_intel(context)
    # The build is known and finds nothing, so the device's rights come before its kernels.
    reaches_none = context.torch.cuda_available is False and not has_nvidia(context)
    is_rocm = maker_of(context.torch.backend) == "amd"
    if reading == alike.THIS_TORCH and is_rocm and reaches_none and on(context, "linux"):
        return alike.AMD_IN_WSL if context.os.wsl else alike.ROCM_REACHES
    # With the card unknown, its target is as open as torch's list of kernels.
    if reading == alike.THIS_TORCH and _target_is_open(context):
        return alike.ROCM_COMPUTES
    # torch's list of kernels tells nothing while neither its build nor the GPU is known.
    if reading in (alike.THIS_TORCH, alike.TORCHS_CUDA) and _build_is_open(context):
        return alike.WHICH_ROCM
    return reading


FIRST_LINES = (
    "# start {} in a terminal: which library (ROCm, Vulkan, SYCL, CPU) and which GPUs do its first "
    "lines name?"
)
"""What to show for a program without torch, whose own start lists the GPUs."""
IN_SETTINGS = {
    "LM Studio": "# LM Studio: which GPUs does Settings, Hardware list, and which runtime is "
    "selected under Settings, Runtime?"
}
"""A program with windows only -> where it lists the GPUs."""
OLLAMAS = (alike.PROGRAMS_LOG, "OLLAMA_DEBUG=1 ollama serve")
"""Commands that show how ollama chose its device, outside of a container."""
