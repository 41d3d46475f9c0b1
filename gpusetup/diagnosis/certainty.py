"""How sure the answer about a text is. Only this module decides between `certain` and `likely`.

An answer about a text is certain only if the text proves the cause by itself (the record's
`certain_if`: a message that states the cause, or two values that do not fit together), and if four
conditions hold. The groups of doubts below check them one after another:

1. a program printed the deciding facts, about the environment that failed;
2. the message has one meaning, and its owner is known;
3. nothing else in the text speaks against the cause;
4. the person has not already tried the fix.

Each doubt that applies makes the answer only likely, and its sentence names what else it could be.
There are no doubts about a probed machine.
"""

from __future__ import annotations

from collections.abc import Callable

from gpusetup.causes import alike
from gpusetup.causes.layers import Layer
from gpusetup.diagnosis import grounds as ask
from gpusetup.diagnosis.grounds import Grounds
from gpusetup.evidence.context import RuleContext, is_report
from gpusetup.model.finding import Finding
from gpusetup.model.frozen import Frozen, replace


class Doubt(Frozen):
    """One reason why an answer is only likely."""

    reason: str
    """The doubt's name: what was not read, or what speaks against the cause."""
    sentence: str
    """A sentence that states what is open, and what else the cause could be."""
    holds: Callable[[Grounds], bool]
    asks: str = ""
    """The command whose output settles the doubt."""


NOT_READ = (
    Doubt(
        reason="said-in-words",
        sentence="the text describes this problem, but no line of it looks like a program's output",
        holds=ask.only_a_person_says_it,
    ),
    Doubt(
        reason="compared-in-words",
        sentence="the text does not show whether anything else differed between the two",
        holds=ask.two_runs_are_compared_in_words,
    ),
    Doubt(
        reason="build-not-read",
        sentence="torch did not print its list of kernels here, so an extension or the torch of "
        "another Python may lack them instead",
        holds=ask.build_was_not_read,
        asks=alike.THIS_TORCH,
    ),
    Doubt(
        reason="programs-build-not-read",
        sentence="the text does not show for which GPUs the program was built",
        holds=ask.programs_build_was_not_read,
        asks=alike.BESIDE_TORCH,
    ),
    Doubt(
        reason="gpu-not-named",
        sentence="the text names a GPU family but no model",
        holds=ask.gpu_is_a_family,
    ),
    Doubt(
        reason="pair-not-read",
        sentence="the text does not show both versions (torch and torchvision), and a second "
        "copy of one of them fails in the same way",
        holds=ask.pair_was_not_read,
        asks=alike.BOTH_VERSIONS,
    ),
    Doubt(
        reason="python-not-read",
        sentence="which wheels exist depends on the Python version, which the text does not show",
        holds=ask.python_was_not_read,
    ),
    Doubt(
        reason="support-not-read",
        sentence="on Windows, AMD's builds support only some models",
        holds=ask.boards_support_was_not_read,
    ),
    Doubt(
        reason="time-not-read",
        sentence="the text does not show that the GPU worked before, and a container that was "
        "never given a GPU prints the same message",
        holds=ask.it_may_never_have_worked,
        asks=alike.NODES,
    ),
)
"""1. The deciding facts were not read."""

OPEN = (
    Doubt(
        reason="several-reasons",
        sentence="this message has several reasons",
        holds=ask.message_has_several_reasons,
    ),
    Doubt(
        reason="firmware-or-hardware",
        sentence="the GPU or the driver's firmware may be at fault: try another driver branch to "
        "find out which",
        holds=ask.firmware_may_be_at_fault,
    ),
    Doubt(
        reason="driver-of-the-maker",
        sentence="Intel's driver, the permissions on its device, or this release of torch may be "
        "at fault",
        holds=ask.driver_of_another_maker,
    ),
    Doubt(
        reason="hidden-from-torch",
        sentence="a variable may hide the GPU, or the program may run another Python or a torch "
        "without kernels for it",
        holds=ask.rocm_lists_what_torch_misses,
        asks=alike.HIDDEN_FROM_TORCH,
    ),
    Doubt(
        reason="only-the-maker",
        sentence="a GPU from another maker does not explain the failure by itself: the installed "
        "build, the maker's driver or the permissions on the device may be at fault",
        holds=ask.only_the_maker_was_read,
        asks=alike.THIS_TORCH,
    ),
    Doubt(
        reason="two-makers",
        sentence="the text names GPUs of two makers, and the program may use the other one",
        holds=ask.gpus_of_two_makers,
    ),
    Doubt(
        reason="translation-layer",
        sentence="a layer runs CUDA programs on this GPU, so the CUDA build may be the right one",
        holds=ask.cuda_is_translated,
    ),
    Doubt(
        reason="package-on-mps",
        sentence="a newer release of the package that needs it may no longer do so",
        holds=ask.package_may_be_mended,
    ),
    Doubt(
        reason="owner-not-known",
        sentence="the text does not show which package needs the library, or why torch's own is "
        "not loaded",
        holds=ask.nobody_is_known_to_ask_for_it,
    ),
)
"""2. The message has several meanings, or its owner is not known."""

AGAINST = (
    Doubt(
        reason="several-torches",
        sentence="the text names several releases of torch but does not show which of them runs",
        holds=ask.several_torches,
    ),
    Doubt(
        reason="another-environment",
        sentence="the facts about torch come from another Python, not from the one that fails",
        holds=ask.another_python_was_asked,
        asks=alike.THIS_TORCH,
    ),
    Doubt(
        reason="no-nvidia-gpu-said",
        sentence="the text also says that there is no NVIDIA GPU, and without one no CUDA "
        "library helps",
        holds=ask.person_has_no_nvidia_gpu,
    ),
    Doubt(
        reason="another-failure",
        sentence="the text ends with another failure that this cause does not explain",
        holds=ask.text_ends_with_another_failure,
    ),
    Doubt(
        reason="works-elsewhere",
        sentence="another program computes on this GPU, so the driver and the GPU may be fine",
        holds=ask.works_elsewhere,
    ),
)
"""3. Something else in the text speaks against it."""

TRIED = (
    Doubt(
        reason="remedy-tried",
        sentence="the fix for this was already tried, so the program may use another environment",
        holds=ask.remedy_was_tried,
    ),
)
"""4. The fix was already tried."""

DOUBTS: tuple[Doubt, ...] = (*NOT_READ, *OPEN, *AGAINST, *TRIED)
"""All doubts in order. doctor shows the first sentences."""


UNPROVEN = Doubt(
    reason="not-proven-by-itself",
    sentence="the message can have other causes too, for example in the program itself",
    holds=ask.cause_is_not_proven,
)
"""The doubt if the message suggests the cause but does not state it."""

WHAT_ELSE: dict[Layer, str] = {
    Layer.BOUNDARY: "the host's driver or the container's options may be at fault as well",
    Layer.HARDWARE: "power, the slot or the driver may be at fault as well",
    Layer.LOSSES: "power, the slot or the driver may be at fault as well",
    Layer.DRIVER: "a driver that is installed but not loaded, or a missing GPU, looks the same",
    Layer.READINESS: "the driver's state, a container or another libcuda may be at fault as well",
    Layer.PROCESS: "another environment or one of its variables may be at fault as well",
    Layer.NO_GPU: "the program's own choice of a device, the maker's driver or the permissions "
    "on the device may be at fault as well",
    Layer.PLATFORM: "the index or a version pin of the project may be at fault as well",
    Layer.INSTALL: "another Python, the index, or a version pin of the project may be at fault "
    "as well",
    Layer.WHEEL: "the program may run in a different environment from the one that gpusetup "
    "checked",
    Layer.LIBRARIES: "the program may load a second copy of a library or use another environment",
    Layer.RUNNING: "the program itself, a library or the driver may be at fault as well",
}
"""Layer -> what else the cause could be, if no other doubt names it."""


def doubts(context: RuleContext, main: Finding | None) -> tuple[Doubt, ...]:
    """The reasons why the cause in a text is only likely; () for a probed machine."""
    if main is None or not is_report(context):
        return ()
    grounds = Grounds(context, main)
    particular = tuple(doubt for doubt in DOUBTS if doubt.holds(grounds))
    # Prefer the cause's own doubts, because they name what else it could be. The layer's sentence
    # is for the other causes.
    if particular or not UNPROVEN.holds(grounds):
        return particular
    what_else = WHAT_ELSE.get(grounds.layer) if grounds.layer is not None else None
    return (replace(UNPROVEN, sentence=what_else or UNPROVEN.sentence),)
