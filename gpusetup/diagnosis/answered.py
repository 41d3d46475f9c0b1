"""Whether a text already shows the output of a command that doctor would ask for, and which command
to ask for next.

A value may come from a tool's table, `collect_env`, a list of packages, a version's label or a
sentence. The snapshot keeps it in the same field in all cases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpusetup.causes import alike
from gpusetup.evidence.context import events, listed_gpus
from gpusetup.evidence.gpu_facts import kernels_that_a_text_prints
from gpusetup.evidence.maker_facts import rocm_lists_the_gpu, whys
from gpusetup.model.frozen import Frozen

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext


class Answered(Frozen):
    """A command, the check whether the text already shows its output, and the command to ask for
    instead."""

    part: str
    """A part of the command by which it is recognized."""
    is_shown: Callable[[RuleContext], bool]
    following: str


def _printed(*outputs: str) -> Callable[[RuleContext], bool]:
    """Whether a text contains the output of a tool."""

    def is_printed(context: RuleContext) -> bool:
        """Whether the text contains the output of one of these tools."""
        printed_outputs = [event.values.get("what") for event in events(context, "output-shown")]
        return not set(outputs).isdisjoint(printed_outputs)

    return is_printed


def _build_is_known(context: RuleContext) -> bool:
    """Whether torch's version and its build are known, from any source."""
    return bool(context.torch.version and context.torch.backend)


def _torch_answered(context: RuleContext) -> bool:
    """Whether torch's build is known, and whether torch sees a GPU."""
    return _build_is_known(context) and context.torch.cuda_available is not None


def _kernels_are_listed(context: RuleContext) -> bool:
    """Whether the text prints the kernels that torch has."""
    return kernels_that_a_text_prints(context)


def _gpus_are_listed(context: RuleContext) -> bool:
    """Whether a driver's tool listed the GPUs."""
    return bool(listed_gpus(context))


def _target_is_printed(context: RuleContext) -> bool:
    """Whether a text shows the target of its AMD GPU (such as gfx1100), and a kernel for that
    target is missing."""
    if not events(context, "hip-kernel-missing") or _printed("devices")(context):
        return False
    names = [event.values.get("name", "") for event in events(context, "foreign-gpu")]
    return any("gfx" in name for name in names)


def _crashed_after_collect_env(context: RuleContext) -> bool:
    """Whether the text shows torch's environment report, and the program nevertheless crashes."""
    is_printed = _printed("collect-env")(context)
    return is_printed and bool(events(context, "program-crashed", "silent-crash"))


def _rocm_lists_the_gpu(context: RuleContext) -> bool:
    """Whether ROCm's own tools list the GPU that torch does not find."""
    return bool(rocm_lists_the_gpu(context))


def _xpu_is_counted(context: RuleContext) -> bool:
    """Whether the text shows what torch says of its XPU devices."""
    return _printed("xpu")(context) or "count" in whys(context, "no-xpu")


def _import_fails(context: RuleContext) -> bool:
    """Whether torch cannot be imported, so that torch's own tools fail in the same way."""
    return bool(context.torch.import_error)


ANSWERED: tuple[Answered, ...] = (
    Answered(
        part="NCCL",
        is_shown=lambda context: bool(events(context, "nccl-on-a-bridge")),
        following=alike.INTERFACES,
    ),
    Answered(part="NCCL_DEBUG=INFO", is_shown=_printed("nccl"), following=alike.TOPOLOGY),
    Answered(part=alike.KERNEL_LOG, is_shown=_printed("kernel"), following=alike.WHICH_STACK),
    Answered(part=alike.KERNEL_OF_MAKER, is_shown=_printed("kernel"), following=alike.WHICH_STACK),
    # The target is known; the open question is which kernels the installed torch has.
    Answered(part=alike.AMD_TARGETS, is_shown=_target_is_printed, following=alike.THIS_TORCH),
    Answered(
        part=alike.AMD_TARGETS, is_shown=_rocm_lists_the_gpu, following=alike.HIDDEN_FROM_TORCH
    ),
    Answered(part=alike.AMD_TARGETS, is_shown=_printed("devices"), following=alike.ONE_GPU_OF_AMD),
    Answered(
        part=alike.MPS_FALLBACK, is_shown=_printed("mps-fallback"), following=alike.TORCHS_MPS
    ),
    Answered(part=alike.TORCHS_MPS, is_shown=_printed("mps"), following=alike.MPS_FALLBACK),
    Answered(part=alike.TORCHS_XPU, is_shown=_xpu_is_counted, following=alike.XPU_SEES),
    Answered(part=alike.XPU_SEES, is_shown=_printed("sycl"), following=alike.INTEL_RUNTIME),
    Answered(
        part=alike.COLLECT_ENV, is_shown=_printed("collect-env-fails"), following=alike.WHICH_ROCM
    ),
    Answered(part=alike.COLLECT_ENV, is_shown=_import_fails, following=alike.IMPORT_FAULT),
    Answered(part=alike.COLLECT_ENV, is_shown=_crashed_after_collect_env, following=alike.FAULTS),
    Answered(
        part=alike.COLLECT_ENV, is_shown=_printed("collect-env"), following=alike.WHILE_IT_RUNS
    ),
    Answered(part=alike.ASK_TORCH, is_shown=_torch_answered, following=alike.WHILE_IT_RUNS),
    Answered(part=alike.TORCHS_CUDA, is_shown=_build_is_known, following=alike.THIS_TORCH),
    Answered(part=alike.TORCHS_KERNELS, is_shown=_kernels_are_listed, following=alike.BLOCKING_RUN),
    Answered(part=alike.WHILE_IT_RUNS, is_shown=_printed("processes"), following=alike.MONITOR),
    Answered(part=alike.STACK, is_shown=_printed("threads"), following=alike.KERNEL_LOG),
    Answered(part="faulthandler", is_shown=_printed("threads"), following=alike.WHICH_TORCH),
    Answered(part="PYTHONFAULTHANDLER", is_shown=_printed("threads"), following=alike.KERNEL_LOG),
    Answered(part="py-spy", is_shown=_printed("threads"), following=alike.KERNEL_LOG),
    Answered(part="nvidia-smi topo", is_shown=_printed("topology"), following=alike.STACK),
    Answered(part=alike.BLOCKING_RUN, is_shown=_printed("blocking"), following=alike.WHAT_LOADS),
)
"""All commands in the order in which they are checked. The output of the next command may be in the
text too."""


def beyond_what_was_printed(context: RuleContext, reading: str) -> str | None:
    """The command, or the next one whose output the text does not show; None if it shows them all.

    Each command is visited at most once, so two commands that lead to each other end the search.
    """
    tried: set[str] = set()
    while reading not in tried:
        tried.add(reading)
        following = _following(context, reading)
        if following is None:
            return reading
        reading = following
    return None


def _following(context: RuleContext, reading: str) -> str | None:
    """The command to ask for next if the text shows the output of this one."""
    for row in ANSWERED:
        if row.part in reading and row.is_shown(context):
            return row.following
    return None
