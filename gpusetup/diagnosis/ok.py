"""When the answer may be `ok`, and what proves it. Only this module decides this.

`ok` needs a proof, and nothing may speak against it. On a probed machine every reading was taken. A
text must contain no complaint, no failure and no `False` from torch, because most texts with a
healthy `nvidia-smi` come from people whose program does not work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.accelerators.makers import BY_ID, maker_of
from gpusetup.diagnosis.answers import plain_answer
from gpusetup.diagnosis.working_stack import answer_to_a_working_stack, shows_a_working_gpu
from gpusetup.evidence.context import (
    driver_answers,
    events,
    gpus,
    is_cuda_build,
    is_report,
    on,
    readings,
    says_nothing_else,
    serving,
)
from gpusetup.findings.presence import serves_its_maker
from gpusetup.model.finding import COMPLAINT
from gpusetup.model.machine import visible_gpus

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext
    from gpusetup.model.machine import Gpu, Snapshot

CUDA_NOT_REACHED = ("no-nvidia-driver", "cuda-unavailable", "cuda-error", "driver-check-failed")
"""Events of a program that did not find the driver or CUDA. A driver that responds elsewhere in the
text, for example on the host, does not prove that the program can use it."""


def may_be_ok(context: RuleContext) -> bool:
    """Whether a working stack is shown and the text contains no complaint."""
    if is_report(context) and is_answered(context):
        return True
    complains = is_report(context) and complains_of_something(context)
    # If a CUDA library fails, earlier successes in the text prove nothing.
    library_fails = events(context, "cuda-library-error", "cuda-call-not-supported")
    if complains or library_fails or torch_said_false(context.snapshot):
        return False
    if serves_its_maker(context):
        return True
    if is_report(context):
        return _report_is_healthy(context)
    return _machine_is_healthy(context)


def complains_of_something(context: RuleContext) -> bool:
    """Whether a program's line or a person reports a failure."""
    return bool(readings(context, COMPLAINT) or events(context, "names-failure"))


def is_answered(context: RuleContext) -> bool:
    """Whether nothing in the text remains open.

    The text's plain question has an answer, its run ended normally, or its GPU computes.
    """
    if plain_answer(context) or _ended_well(context):
        return True
    return shows_a_working_gpu(context) and not torch_said_false(context.snapshot)


def _ended_well(context: RuleContext) -> bool:
    """Whether a program with a CUDA build ran to its end on a machine whose GPU is named.

    Messages that it printed before the end are not failures.
    """
    if not events(context, "run-finished") or events(context, "gpu-unused", "gpu-starved"):
        return False
    return is_cuda_build(context.torch) and bool(gpus(context))


def torch_said_false(machine: Snapshot) -> bool:
    """Whether torch answered `False` anywhere in the text."""
    # With an XPU build or on a Mac, CUDA is never available, so `False` is normal.
    if machine.torch.backend == "xpu" or machine.os.family == "macos":
        return False
    # A program may print False for CUDA next to True for HIP.
    if maker_of(machine.torch.backend) == "amd" and machine.torch.cuda_available:
        return False
    if machine.origin != "report":
        return False
    for reading in machine.readings:
        if reading.subject == "torch.cuda_available" and reading.value == "False":
            return True
    return False


def _report_is_healthy(context: RuleContext) -> bool:
    """Whether something computed on the GPU, or everything that the text shows is in order.

    A build that fits the driver does not prove that torch computes.
    """
    if computed(context) or _only_warned_of_capability(context):
        return True
    torch = context.torch
    if torch.version or torch.installed:
        return False
    names_no_failure = events(context, "names-no-failure")
    # If a person is about to install torch, only the driver can be judged.
    if torch.installed is False and not names_no_failure:
        return False
    program = context.snapshot.failing.program
    is_plain_about_torch = program == "torch" and names_no_failure
    if program and not is_plain_about_torch:
        return False
    return _driver_listed_a_gpu(context) and not events(context, *CUDA_NOT_REACHED)


def is_proven(context: RuleContext) -> bool:
    """Whether nothing is left to ask: the GPU works, or a plain question is answered."""
    return computed(context) or is_answered(context)


def computed(context: RuleContext) -> bool:
    """Whether the text shows a working GPU: torch sees it, a program computed on it, or another
    maker's backend runs."""
    if context.torch.cuda_available or events(context, "gpu-computes"):
        return True
    return _makers_backend_runs(context)


def _makers_backend_runs(context: RuleContext) -> bool:
    """Whether mps, XPU or ROCm runs on a machine whose torch is not a build for NVIDIA GPUs."""
    if not events(context, "backend-runs"):
        return False
    maker = maker_of(context.torch.backend)
    return maker not in (None, "nvidia") or on(context, "macos")


def _only_warned_of_capability(context: RuleContext) -> bool:
    """Whether the text only shows torch's warning about a GPU although torch has kernels for its
    major version."""
    return says_nothing_else(context) and bool(events(context, "capability-warning"))


def _driver_listed_a_gpu(context: RuleContext) -> bool:
    """Whether a driver listed a GPU. A GPU that is only mentioned has no index, UUID or address."""

    def is_listed(gpu: Gpu) -> bool:
        """Whether a driver's tool listed the GPU."""
        return gpu.nvml_index is not None or bool(gpu.uuid or gpu.pci_bus_id)

    return any(map(is_listed, gpus(context)))


def _machine_is_healthy(context: RuleContext) -> bool:
    """Whether a driver answered for a GPU, and torch sees it or has kernels for every GPU."""
    machine = context.snapshot
    torch, visible = machine.torch, visible_gpus(machine)
    # The driver of another host cannot be queried here.
    if not context.other_host and not (visible and _driver_answered(context)):
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


def _driver_answered(context: RuleContext) -> bool:
    """Whether NVML or CUDA answered; files of the kernel alone are not enough."""
    machine = context.snapshot
    if 0 in (machine.driver.nvml_code, machine.cuda_api.init_code):
        return True
    indices = [(gpu.nvml_index, gpu.cuda_index) for gpu in gpus(context)]
    return any(of_nvml is not None or of_cuda is not None for of_nvml, of_cuda in indices)


def proof(context: RuleContext) -> str:
    """What was shown to work, in one line."""
    torch, visible = context.torch, visible_gpus(context.snapshot)
    if answer := _answer_without_a_gpu(context):
        return answer
    build = f"torch {torch.version}" if torch.version else "torch"
    names = ", ".join(dict.fromkeys(gpu.name for gpu in visible)) or "the GPU"
    has_kernels = False
    if torch.version and visible:
        has_kernels = all(serving(context, gpu) for gpu in visible)
    if serves_its_maker(context):
        return (
            f"{build} is the right build for this GPU{_device_name(context)}; not tested: run "
            "`gpusetup verify`"
        )
    if has_kernels and context.other_host:
        return f"{build} has kernels for {names}, but gpusetup did not test the driver there"
    driver_is_there = driver_answers(context) or not is_report(context)
    if has_kernels and is_cuda_build(torch) and driver_is_there:
        return f"{build} can use {names}"
    for event in events(context, "bare-yes"):
        word = event.values["bare"]
        return f"if torch printed `{word}`, it sees the GPU; to test it, run `gpusetup verify`"
    if torch.cuda_available:
        return f"{build} reports that it sees {names}"
    if computed(context):
        return f"a program computed on {names}"
    if _only_warned_of_capability(context):
        return (
            f"torch has kernels that run on {names}, so you can ignore its warning; the text "
            "shows no computation"
        )
    return (
        "the driver works and reports no fault, but the text does not show "
        f"torch{_two_numbers(context)}"
    )


def _device_name(context: RuleContext) -> str:
    """torch's name for another maker's GPU, if the text shows it; programs often say `cuda`."""
    stack = context.snapshot.makers
    return f', device "{BY_ID[stack.maker].device}"' if stack else ""


def _answer_without_a_gpu(context: RuleContext) -> str:
    """The answer if no GPU was judged: to a question, about a run, or about a machine without a
    GPU."""
    torch = context.torch
    if answer := plain_answer(context):
        return answer
    waits = events(context, "gpu-starved") and events(context, "names-no-failure")
    if is_report(context) and (shows_a_working_gpu(context) or waits):
        return answer_to_a_working_stack(context)
    if is_report(context) and _ended_well(context):
        return (
            f"torch {torch.version} works here: the program finished. You can ignore the messages "
            "before that"
        )
    if serves_its_maker(context) and torch.backend == "cpu" and not on(context, "macos"):
        return (
            f"this machine has no GPU that torch supports, and torch {torch.version} is the right "
            "build for its CPU. A program that needs CUDA must run on another machine"
        )
    return ""


def _two_numbers(context: RuleContext) -> str:
    """Why nvidia-smi and nvcc show different CUDA versions, if the text shows both."""
    by_driver, by_nvcc = context.driver.cuda, context.snapshot.toolkit.nvcc
    if by_driver is None or by_nvcc is None or by_driver == by_nvcc:
        return ""
    return (
        f". nvidia-smi shows the newest CUDA that the driver supports ({by_driver}), nvcc the "
        f"toolkit's own ({by_nvcc}): the two may differ, and programs of CUDA {by_nvcc} run if the "
        "driver is of the same major version or newer"
    )
