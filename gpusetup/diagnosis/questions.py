"""Which command an `unknown` answer asks for, by the stage that failed: its possible outputs point
to different causes.

A stage asks only for output that the text lacks and that belongs to the stage: the whole output of
a build, NCCL's log for several GPUs, the hook's log for a container. `nvidia-smi` shows whether a
driver responds, but nothing about the program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpusetup.accelerators.makers import maker_of
from gpusetup.causes import alike
from gpusetup.choose.installed import vendors_of
from gpusetup.diagnosis.contrast_questions import (
    is_of_another_maker,
    names_a_contrast,
    reading_by_contrast,
)
from gpusetup.diagnosis.program import program_of
from gpusetup.evidence.context import (
    driver_answers,
    events,
    gpus,
    has_nvidia,
    in_container,
    is_report,
    listed_gpus,
    on,
)
from gpusetup.evidence.places import is_beside_torch
from gpusetup.fixes import paste
from gpusetup.fixes.extension_packages import distribution_of
from gpusetup.messages import working
from gpusetup.model.finding import COMPLAINT
from gpusetup.model.frozen import Frozen
from gpusetup.model.patterns import lazy
from gpusetup.model.versions import Capability

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext

INSTALLER_OUTPUT = "python -V  # and the installer's command, with its whole output"
HOOK_LOG = "nvidia-container-cli -k -d /dev/stderr info"
"""Runs what the container's hook runs, with the hook's log on the screen."""


class StageQuestion(Frozen):
    """One stage at which a program may have failed, and the command that tells more about it."""

    name: str
    is_reached: Callable[[RuleContext], bool]
    reading: Callable[[RuleContext], str | None]
    """A function that returns the command; None if the text already contains its output."""


# --- install and build ----------------------------------------------------------------------------


def _fails_in_a_build(context: RuleContext) -> bool:
    """Whether the text is about a build that fails."""
    return context.snapshot.failing.stage == "build"


def _build_again(context: RuleContext) -> str | None:
    """The build command with its whole output; for an unnamed package the folder is built."""
    program, failing = program_of(context), context.snapshot.failing
    modules = [failing.program or ""]
    if program:
        modules += program.packages
    distributions = [distribution_of(module) for module in modules]
    known_distributions = [distribution for distribution in distributions if distribution]
    # The name of an unknown program may not be a package that an installer can find.
    if failing.program and not known_distributions and not program:
        return INSTALLER_OUTPUT
    is_built_on_torch = program is None or program.on_torch
    options = ("--no-build-isolation",) if is_built_on_torch else ()
    what_to_build = known_distributions[0] if known_distributions else "."
    return paste.pip(context, "install", "-v", *options, what_to_build)


def _fails_in_an_install(context: RuleContext) -> bool:
    """Whether a person's sentence mentions an installer's command and its failure."""
    lines_with_installer = {event.source for event in events(context, "install-typed")}
    lines_with_failure = {event.source for event in events(context, "names-failure")}
    return not lines_with_installer.isdisjoint(lines_with_failure)


# --- the machine, several GPUs --------------------------------------------------------------------


def _shows(*kinds: str) -> Callable[[RuleContext], bool]:
    """Whether one of these events is in the text."""
    return lambda context: bool(events(context, *kinds))


def complains(context: RuleContext) -> bool:
    """Whether somebody says that something fails."""
    subjects = [reading.subject for reading in context.snapshot.readings]
    return COMPLAINT in subjects or bool(events(context, "names-failure"))


def _runs_on_several_gpus(context: RuleContext) -> bool:
    """Whether a run on several GPUs hangs or fails."""
    if not events(context, "several-gpus"):
        return bool(events(context, "nccl-hangs", "nccl-error", "nccl-connect-failed"))
    if events(context, "run-hangs"):
        return True
    # torch sees the GPUs, and the failing run uses several of them.
    gpus_are_seen = context.torch.cuda_available or events(context, "works-there", "gpu-trains")
    return complains(context) and bool(gpus_are_seen)


def _lacks_an_instruction(context: RuleContext) -> bool:
    """Whether the processor lacks an instruction that a wheel uses."""
    crashes = events(context, "program-crashed")
    return any(event.values.get("what") == "instruction" for event in crashes)


def _hangs_on_a_gpu_of_nvidia(context: RuleContext) -> bool:
    """Whether a run hangs, and the GPU is not another maker's."""
    return bool(events(context, "run-hangs")) and not is_of_another_maker(context)


# --- containers, other programs -------------------------------------------------------------------


def is_given_a_gpu_in_vain(context: RuleContext) -> bool:
    """Whether a container requests a GPU, and nothing shows that it gets one."""
    container = context.snapshot.container
    if not in_container(context) or container.kind != "docker":
        return False
    return bool(container.nvidia_requested) and not driver_answers(context)


def _has_its_own_question(context: RuleContext) -> bool:
    """Whether the table of programs has a command for the program."""
    program = program_of(context)
    return bool(program and program.reading)


def _programs_own(context: RuleContext) -> str | None:
    """The command that the table of programs has for the program."""
    program = program_of(context)
    return program.reading if program else None


# --- other makers ---------------------------------------------------------------------------------


def _is_of_intel(context: RuleContext) -> bool:
    """Whether the text is about torch on an Intel GPU."""
    if maker_of(context.torch.backend) == "intel" or events(context, "no-xpu"):
        return True
    return vendors_of(context.snapshot) == {"intel"} and not has_nvidia(context)


def is_of_amd(context: RuleContext) -> bool:
    """Whether torch's build or a device is from AMD."""
    maker_of_build = maker_of(context.torch.backend)
    return maker_of_build == "amd" or "amd" in vendors_of(context.snapshot)


def _is_a_mac(context: RuleContext) -> bool:
    """Whether the text comes from a Mac."""
    return on(context, "macos")


# --- torch, the driver ----------------------------------------------------------------------------

USUAL = (Capability(7, 5), Capability(9, 0))
"""Every build of the last years has kernels for GPUs between these two. For other GPUs, doctor asks
for torch's list of kernels."""


def _torch_answers_both(context: RuleContext) -> bool:
    """Whether torch sees the GPU in one place and not in another, so that there are two
    environments."""
    answers = set()
    for reading in context.snapshot.readings:
        if reading.subject == "torch.cuda_available":
            answers.add(reading.value)
    if events(context, "cuda-unavailable") or "False" in _quoted_complaint(context):
        answers.add("False")
    return {"True", "False"} <= answers


def _torch_sees_the_gpu(context: RuleContext) -> bool:
    """Whether torch or a program shows the GPU, and something fails nevertheless."""
    if not complains(context):
        return False
    if context.torch.cuda_available or events(context, "device-taken"):
        return True
    return names_its_device(context)


def names_its_device(context: RuleContext) -> bool:
    """Whether a complaint quotes the device that the program chose: "Using device: cuda"."""
    return working.DEVICE_SHOWN.search(_quoted_complaint(context)) is not None


def _quoted_complaint(context: RuleContext) -> str:
    """The sentences in which a person says what fails."""
    return " ".join(event.text or "" for event in events(context, "names-failure"))


ON_ANOTHER_DEVICE = lazy(
    r"(?i)\b(?:on|uses?|using|only) (?:the |my )?(?:\w+ )?(?:cpu|processor|igpu|intel|integrated)\b"
    r"|100 ?% (?:on|of) the (?:cpu|processor)"
)
"""Words that show that a program does not work on the GPU that torch sees."""


def _what_it_does(context: RuleContext) -> str | None:
    """The command that shows whether the program uses the GPU, or what ended its run."""
    is_elsewhere = ON_ANOTHER_DEVICE.search(_quoted_complaint(context))
    if events(context, "gpu-unused") or is_elsewhere:
        return alike.WHILE_IT_RUNS
    if ends_in_a_crash(context):
        return alike.FAULTS
    # With an exception, the text already has a traceback. The open question is which GPU call
    # raised it.
    if events(context, "program-failed"):
        return alike.BLOCKING_RUN
    return alike.MONITOR


def ends_in_a_crash(context: RuleContext) -> bool:
    """Whether the process crashes, so that only its native stack shows where."""
    if events(context, "program-crashed", "silent-crash"):
        return True
    return working.CRASH.search(_quoted_complaint(context)) is not None


def _is_slow(context: RuleContext) -> bool:
    """Whether the only complaint is slowness, with an NVIDIA GPU."""
    complaint = _quoted_complaint(context)
    # A person who compares with the CPU or reports an error complains about more than slowness.
    names_more_than_slowness = "cpu" in complaint.lower() or events(context, "program-failed")
    is_slow = working.SLOW.search(complaint) or _is_slower_than_hoped(context)
    return bool(gpus(context) and is_slow and not names_more_than_slowness)


def _is_slower_than_hoped(context: RuleContext) -> bool:
    """Whether the person mentions a speed or load and asks whether it is normal."""
    complaint = _quoted_complaint(context)
    names_a_speed = working.SPEED.search(complaint) or events(context, "speed-named")
    names_a_load = LOAD.search(complaint)
    return bool((names_a_speed or names_a_load) and working.WORRY.search(complaint))


LOAD = lazy(
    r"(?i)\d ?% (?:GPU|util|usage|load)|\b(?:gpu|util\w*|usage|load) (?:\w+ ){0,2}\d{1,3} ?%"
)
"""A sentence about how busy a GPU is: `30% usage`, `GPU util only 20 %`."""


GROWS = lazy(r"(?i)\b(?:grows?|growing|leak\w*|keeps? (?:increasing|rising|climbing)|fills? up)\b")


def _memory_grows(context: RuleContext) -> bool:
    """Whether the complaint is that the used memory grows."""
    return GROWS.search(_quoted_complaint(context)) is not None


OTHER_GPU = lazy(r"(?i)\b(?:second|other|both|all) (?:\w+ )?(?:gpus?|cards?)\b")


def _leaves_a_gpu_idle(context: RuleContext) -> bool:
    """Whether somebody wants torch to use more of several GPUs, and no run on all of them
    fails."""
    if is_beside_torch(context):
        return False
    fails = events(context, "run-hangs", "nccl-error", "program-failed")
    return OTHER_GPU.search(_quoted_complaint(context)) is not None and not fails


def _is_about_torch(context: RuleContext) -> bool:
    """Whether the text is about a GPU but does not show torch, so that the build of torch
    decides."""
    if context.torch.version or context.torch.installed is False:
        return False
    program = program_of(context)
    on_torch = program is None or bool(program.on_torch)
    names_a_gpu = bool(gpus(context)) or bool(events(context, "gpu-unused"))
    return on_torch and names_a_gpu and complains(context)


def _torchs_build(context: RuleContext) -> str | None:
    """The command that shows which torch is installed; for a GPU that not every build supports, the
    one that shows its kernels too."""
    oldest, newest = USUAL
    for gpu in gpus(context):
        capability = gpu.compute_capability
        if capability and not oldest <= capability <= newest:
            return alike.TORCHS_KERNELS
    return alike.ASK_TORCH


def _shows_torch_or_driver(context: RuleContext) -> bool:
    """Whether the text shows the version of torch, or a driver that works."""
    return bool(context.torch.version) or driver_answers(context)


def _all_of_torch(context: RuleContext) -> str | None:
    """The command for torch's report of the environment; None if the text shows torch, Python and
    the driver."""
    python = context.snapshot.python.version
    all_shown = context.torch.version and python and driver_answers(context)
    return None if all_shown else alike.COLLECT_ENV


def _says_something_of_a_gpu(context: RuleContext) -> bool:
    """Whether the text names a program, a GPU, a message or a failure."""
    machine = context.snapshot
    if machine.failing.program or machine.events or machine.gpus:
        return True
    return complains(context)


def _command_for_the_driver(context: RuleContext) -> str | None:
    """The command that shows the driver: torch's own report or, for a program without torch,
    nvidia-smi."""
    if is_beside_torch(context):
        # If the text already shows the driver's GPUs, nvidia-smi would show nothing new.
        return None if listed_gpus(context) else "nvidia-smi"
    # collect_env also shows torch and the rest of the environment, so it is useful even if the GPUs
    # are known.
    return alike.COLLECT_ENV


def _asks(reading: str) -> Callable[[RuleContext], str | None]:
    """Returns a function that always returns this command (`reading`)."""
    return lambda _context: reading


STAGES: tuple[StageQuestion, ...] = (
    StageQuestion(name="build", is_reached=_fails_in_a_build, reading=_build_again),
    StageQuestion(name="install", is_reached=_fails_in_an_install, reading=_asks(INSTALLER_OUTPUT)),
    StageQuestion(
        name="container", is_reached=_shows("container-start-failed"), reading=_asks(HOOK_LOG)
    ),
    StageQuestion(
        name="power", is_reached=_shows("machine-powers-off"), reading=_asks(alike.LAST_BOOT)
    ),
    StageQuestion(
        name="graphics", is_reached=_shows("graphics-crash"), reading=_asks(alike.KERNEL_LOG)
    ),
    StageQuestion(
        name="instructions", is_reached=_lacks_an_instruction, reading=_asks(alike.CPU_FLAGS)
    ),
    StageQuestion(name="contrast", is_reached=names_a_contrast, reading=reading_by_contrast),
    StageQuestion(
        name="memory that grows", is_reached=_memory_grows, reading=_asks(alike.MEMORY_OVER_TIME)
    ),
    StageQuestion(
        name="GPU left idle", is_reached=_leaves_a_gpu_idle, reading=_asks(alike.TORCHS_DEVICES)
    ),
    StageQuestion(
        name="several GPUs", is_reached=_runs_on_several_gpus, reading=_asks(alike.NCCL_LOG)
    ),
    StageQuestion(name="hang", is_reached=_hangs_on_a_gpu_of_nvidia, reading=_asks(alike.STACK)),
    StageQuestion(
        name="GPU of a container",
        is_reached=is_given_a_gpu_in_vain,
        reading=_asks(alike.GPU_BY_DOCKER),
    ),
    StageQuestion(
        name="Level Zero", is_reached=_shows("sycl-finds-none"), reading=_asks(alike.WHICH_STACK)
    ),
    StageQuestion(name="program", is_reached=_has_its_own_question, reading=_programs_own),
    StageQuestion(
        name="two environments", is_reached=_torch_answers_both, reading=_asks(alike.THIS_TORCH)
    ),
    StageQuestion(name="AMD", is_reached=is_of_amd, reading=_asks(alike.WHICH_ROCM)),
    StageQuestion(name="Intel", is_reached=_is_of_intel, reading=_asks(alike.TORCHS_XPU)),
    StageQuestion(name="Apple", is_reached=_is_a_mac, reading=_asks(alike.TORCHS_MPS)),
    StageQuestion(name="speed", is_reached=_is_slow, reading=_asks(alike.MONITOR)),
    StageQuestion(name="crash", is_reached=_torch_sees_the_gpu, reading=_what_it_does),
    StageQuestion(
        name="crash without a word", is_reached=_shows("silent-crash"), reading=_asks(alike.FAULTS)
    ),
    StageQuestion(
        name="numbers", is_reached=_shows("wrong-numbers"), reading=_asks(alike.BOTH_MACHINES)
    ),
    StageQuestion(name="torch", is_reached=_is_about_torch, reading=_torchs_build),
    StageQuestion(
        name="torch and driver", is_reached=_shows_torch_or_driver, reading=_all_of_torch
    ),
    StageQuestion(
        name="driver", is_reached=_says_something_of_a_gpu, reading=_command_for_the_driver
    ),
)
"""From the most specific stage to the most general: the first one that the text has reached decides
which command to ask for."""


def reading_of_unknown(context: RuleContext) -> str | None:
    """The command whose output tells most at the failed stage; None if only the program's complete
    error does."""
    if not is_report(context):
        return None
    for stage in STAGES:
        if stage.is_reached(context):
            return stage.reading(context)
    return None
