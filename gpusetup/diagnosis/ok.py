"""When the answer is `ok`, and what proves it. Only this module decides this.

On a probed machine every reading was taken, so `ok` needs a proof. For a text it means that no
failure was found in what was read: no program's failure, no statement of a person that something
fails, no `False` from torch, and no two facts that contradict each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.accelerators.makers import BY_ID, maker_of
from gpusetup.diagnosis.fit import facts_read
from gpusetup.evidence.context import (
    events,
    gpus,
    is_cuda_build,
    is_report,
    on,
    says_nothing_else,
    serving,
)
from gpusetup.findings.other_makers import serves_its_maker
from gpusetup.model.machine import visible_gpus

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext
    from gpusetup.model.documents import Fit
    from gpusetup.model.machine import Snapshot

FAILURES = (
    *("gpu-unused", "run-hangs", "program-crashed", "silent-crash", "machine-powers-off"),
    *("container-start-failed", "names-failure"),
)
"""Events that report a failure without its cause. Messages of known causes are no part of them."""
NO_STACK_OF_NVIDIA = (
    *("foreign-gpu", "no-nvidia-gpu", "smi-sees-it", "cuda-toolkit-missing", "bare-yes"),
)
"""Events that describe the machine. Where nothing fails they are no complaint."""


def may_be_ok(context: RuleContext, fits: tuple[Fit, ...]) -> bool:
    """Whether nothing was found that fails: on a machine with a proof, in a text with at least one
    fact."""
    if is_report(context):
        read = bool(
            facts_read(context) or events(context, "run-finished", "gpu-computes", "bare-yes")
        )
        return read and not failure_is_open(context) and all(fit.fits for fit in fits)
    return serves_its_maker(context) or _machine_is_healthy(context)


def failure_is_open(context: RuleContext) -> bool:
    """Whether a text shows a failure, whatever its cause is."""
    if events(context, "program-failed") and not ran_to_its_end(context):
        return True
    if events(context, *FAILURES) or torch_said_false(context.snapshot):
        return True
    return not (ran_to_its_end(context) or says_nothing_else(context, *NO_STACK_OF_NVIDIA))


def ran_to_its_end(context: RuleContext) -> bool:
    """Whether the last thing that the text shows is a run that ended normally."""
    return bool(events(context, "run-finished"))


def torch_said_false(machine: Snapshot) -> bool:
    """Whether torch answered `False` anywhere in the text."""
    # With an XPU build or on a Mac, CUDA is never available, so `False` is normal. A program may
    # print False for CUDA next to True for HIP.
    torch = machine.torch
    is_normal = torch.backend == "xpu" or machine.os.family == "macos"
    is_normal = is_normal or (maker_of(torch.backend) == "amd" and bool(torch.cuda_available))
    if is_normal or machine.origin != "report":
        return False
    answers = [one.value for one in machine.readings if one.subject == "torch.cuda_available"]
    return "False" in answers


def _machine_is_healthy(context: RuleContext) -> bool:
    """Whether a driver answered for a GPU, and torch sees it or has kernels for every GPU."""
    machine = context.snapshot
    torch, visible = machine.torch, visible_gpus(machine)
    # NVML or CUDA must have answered; files of the kernel alone are not enough. The driver of
    # another host cannot be queried here.
    answered = 0 in (machine.driver.nvml_code, machine.cuda_api.init_code) or any(
        {gpu.nvml_index, gpu.cuda_index} != {None} for gpu in gpus(context)
    )
    if not context.other_host and not (visible and answered):
        return False
    if torch.cuda_available:
        return True
    if not is_cuda_build(torch):
        return False
    # If the build's kernels or a GPU's compute capability are unknown, assume that the build
    # supports the GPU.
    if torch.kernels is None:
        return True
    return all(serving(context, gpu) for gpu in visible if gpu.compute_capability)


def proof(context: RuleContext, fits: tuple[Fit, ...]) -> str:
    """What was shown to work, in one line."""
    if is_report(context):
        return _what_a_text_shows(context, fits)
    torch, visible = context.torch, visible_gpus(context.snapshot)
    build = f"torch {torch.version}" if torch.version else "torch"
    names = ", ".join(dict.fromkeys(gpu.name for gpu in visible)) or "the GPU"
    if serves_its_maker(context) and torch.backend == "cpu" and not on(context, "macos"):
        return (
            f"this machine has no GPU that torch supports, and torch {torch.version} is the right "
            "build for its CPU. A program that needs CUDA must run on another machine"
        )
    if serves_its_maker(context):
        # torch's name for another maker's GPU, if it is known; programs often say `cuda`.
        stack = context.snapshot.makers
        device = f', device "{BY_ID[stack.maker].device}"' if stack else ""
        return f"{build} is the right build for this GPU{device}; not tested: run `gpusetup verify`"
    has_kernels = torch.version and visible and all(serving(context, gpu) for gpu in visible)
    if has_kernels and context.other_host:
        return f"{build} has kernels for {names}, but gpusetup did not test the driver there"
    if has_kernels and is_cuda_build(torch):
        return f"{build} can use {names}"
    return "the driver works and reports no fault, but gpusetup did not see torch"


def _what_a_text_shows(context: RuleContext, fits: tuple[Fit, ...]) -> str:
    """That the text shows no failure, and what fits together in it."""
    for event in events(context, "bare-yes"):
        word = event.values["bare"]
        return f"if torch printed `{word}`, it sees the GPU; to test it, run `gpusetup verify`"
    if not fits:
        return "no failure that gpusetup knows is in this text"
    sentences = "; ".join(fit.sentence for fit in fits)
    return f"no failure that gpusetup knows; what was read fits together: {sentences}"
