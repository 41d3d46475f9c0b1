"""What an `unknown` answer asks for: one output whose answers lead to different causes, by stage.

A stage asks only for what the text does not hold, and only for what belongs to it: a build asks for
its whole output, several GPUs for NCCL's log, a container for its hook's words. `nvidia-smi` tells
whether a driver answers, and nothing of a program that has one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpusetup.causes import alike
from gpusetup.diagnosis.program import program_of
from gpusetup.evidence.context import driver_answers, events, gpus, is_report
from gpusetup.fixes import paste
from gpusetup.fixes.extension_packages import distribution_of
from gpusetup.model.finding import COMPLAINT
from gpusetup.model.frozen import Frozen
from gpusetup.model.versions import Capability

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext

INSTALLER_OUTPUT = "python -V  # and the installer's command, with its whole output"
HOOK_LOG = "nvidia-container-cli -k -d /dev/stderr info"
"""What the container's hook asks, with its own words on the screen."""


class StageQuestion(Frozen):
    """One stage at which a program may have failed, and what tells more about it."""

    name: str
    is_reached: Callable[[RuleContext], bool]
    reading: Callable[[RuleContext], str | None]
    """The command; None if the text holds its answer already."""


# --- install and build ----------------------------------------------------------------------------


def _fails_in_a_build(context: RuleContext) -> bool:
    return context.snapshot.failing.stage == "build"


def _build_again(context: RuleContext) -> str | None:
    """Once more with all that it prints; what lies in this folder, of an unnamed distribution."""
    program, failing = program_of(context), context.snapshot.failing
    modules = (failing.program or "", *(program.packages if program else ()))
    name = next(filter(None, map(distribution_of, modules)), None)
    if not (name or program or not failing.program):
        return INSTALLER_OUTPUT
    options = () if program and not program.on_torch else ("--no-build-isolation",)
    return paste.pip(context, "install", "-v", *options, name or ".")


# --- containers, several GPUs, other programs -----------------------------------------------------


def _a_container_does_not_start(context: RuleContext) -> bool:
    return bool(events(context, "container-start-failed"))


def _runs_on_several_gpus(context: RuleContext) -> bool:
    hangs = events(context, "run-hangs") and events(context, "several-gpus")
    nccl = events(context, "nccl-hangs", "nccl-error", "nccl-connect-failed")
    # torch sees the GPUs, and what is said to fail has several of them.
    complains = any(reading.subject == COMPLAINT for reading in context.snapshot.readings)
    several_fail = events(context, "several-gpus") and complains and context.torch.cuda_available
    return bool(hangs or nccl or several_fail)


def _has_its_own_question(context: RuleContext) -> bool:
    program = program_of(context)
    return bool(program and program.reading)


def _programs_own(context: RuleContext) -> str | None:
    program = program_of(context)
    return program.reading if program else None


# --- torch, the driver ----------------------------------------------------------------------------

USUAL = (Capability(7, 5), Capability(9, 0))
"""GPUs between these have kernels in every build of the last years: of others the list is asked."""


def _is_about_torch(context: RuleContext) -> bool:
    """Whether the text is about a GPU and shows no torch: whatever fails, its build decides."""
    if context.torch.version or context.torch.installed is False:
        return False
    names_a_gpu = bool(gpus(context)) or bool(events(context, "gpu-unused"))
    on_torch = program_of(context) is None or bool(program_of(context).on_torch)  # type: ignore[union-attr]
    complains = any(reading.subject == COMPLAINT for reading in context.snapshot.readings)
    return on_torch and names_a_gpu and complains


def _torchs_build(context: RuleContext) -> str | None:
    known = [gpu.compute_capability for gpu in gpus(context) if gpu.compute_capability]
    if any(not USUAL[0] <= capability <= USUAL[1] for capability in known):
        return alike.TORCHS_KERNELS
    return alike.ASK_TORCH


def _shows_torch_or_driver(context: RuleContext) -> bool:
    return bool(context.torch.version) or driver_answers(context)


def _all_of_torch(context: RuleContext) -> str | None:
    python = context.snapshot.python.version
    all_shown = context.torch.version and python and driver_answers(context)
    return None if all_shown else alike.COLLECT_ENV


def _says_something_of_a_gpu(context: RuleContext) -> bool:
    machine = context.snapshot
    return bool(machine.failing.program or machine.events or machine.gpus)


def _driver_answer(_: RuleContext) -> str | None:
    return "nvidia-smi"


STAGES: tuple[StageQuestion, ...] = (
    StageQuestion(name="build", is_reached=_fails_in_a_build, reading=_build_again),
    StageQuestion(
        name="container", is_reached=_a_container_does_not_start, reading=lambda _: HOOK_LOG
    ),
    StageQuestion(
        name="several GPUs", is_reached=_runs_on_several_gpus, reading=lambda _: alike.NCCL_LOG
    ),
    StageQuestion(name="program", is_reached=_has_its_own_question, reading=_programs_own),
    StageQuestion(name="torch", is_reached=_is_about_torch, reading=_torchs_build),
    StageQuestion(
        name="torch and driver", is_reached=_shows_torch_or_driver, reading=_all_of_torch
    ),
    StageQuestion(name="driver", is_reached=_says_something_of_a_gpu, reading=_driver_answer),
)
"""From the narrowest: the first that is reached asks."""


def reading_of_unknown(context: RuleContext) -> str | None:
    """The command whose answer tells most at the stage that failed; None if only the program's
    whole error does."""
    if not is_report(context):
        return None
    reached = next((stage for stage in STAGES if stage.is_reached(context)), None)
    return reached.reading(context) if reached else None
