"""What an answer about a text is based on, and the questions that decide how sure it is.

Each question is true if something is missing or speaks against the cause. `diagnosis.certainty` has
the sentence for each one.
"""

from __future__ import annotations

import re

from gpusetup.causes.layers import Layer
from gpusetup.causes.record import RECORDS, Cause
from gpusetup.choose.installed import vendors_of
from gpusetup.evidence import facts
from gpusetup.evidence.context import (
    NO_FAILURES,
    RuleContext,
    events,
    gpus,
    line_of,
    lines_of_a_person,
    package,
    releases_of_torch,
)
from gpusetup.evidence.gpu_facts import kernels_that_a_text_prints
from gpusetup.evidence.maker_facts import may_be_another_makers, rocm_lists_the_gpu
from gpusetup.evidence.places import is_beside_torch
from gpusetup.evidence.wording import is_program_output
from gpusetup.fixes import owners
from gpusetup.model.finding import Finding
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Event, Events


class Grounds(Frozen, kw_only=False):
    """What the answer about a text is based on."""

    context: RuleContext
    root: Finding

    @property
    def cause(self) -> Cause:
        """The record of the root cause."""
        return RECORDS[self.root.id]

    @property
    def layer(self) -> Layer | None:
        """The layer of the root cause; None for a cause without a place in the order."""
        return self.cause.place[0] if self.cause.place else None

    def is_one_of(self, causes: tuple[str, ...]) -> bool:
        """Whether the root cause is one of these."""
        return self.root.id in causes

    def shows(self, *kinds: str) -> bool:
        """Whether the text contains events of one of these kinds."""
        return bool(events(self.context, *kinds))


# --- 0. the cause is not proven by itself ---------------------------------------------------------


def cause_is_not_proven(grounds: Grounds) -> bool:
    """Whether the cause's record names no proof, or the text does not contain it."""
    is_proven = grounds.cause.certain_if
    return is_proven is None or not is_proven(grounds.context)


# --- 1. what decides was not read -----------------------------------------------------------------

OF_KERNELS = ("arch-too-new-for-wheel", "arch-too-old-for-wheel", "extension-arch-mismatch")
"""Causes that depend on the kernels in torch's build."""
OF_TORCHS_BUILD = (*OF_KERNELS, "torch-cpu-build", "driver-too-old", "torchvision-mismatch")
"""Causes that would be different if another torch runs than the one in the text."""


def only_a_person_says_it(grounds: Grounds) -> bool:
    """Whether only a person's words support the cause, and no line of a program.

    "It falls off the bus" is a person's conclusion, but a line of the kernel log is a fact.
    """
    quotes = [quote for quote in grounds.root.evidence if line_of(quote.source)]
    own_lines = lines_of_a_person(grounds.context)
    for quote in quotes:
        is_own_line = line_of(quote.source) in own_lines
        if not is_own_line or is_program_output(quote.text):
            return False
    return bool(quotes)


def two_runs_are_compared_in_words(grounds: Grounds) -> bool:
    """Whether the text says in words that one release of torch works and another does not."""
    return grounds.root.id == "torch-release-regressed"


WARNING = "gpu-not-in-wheel"


def torch_said_it(context: RuleContext) -> bool:
    """Whether the text itself shows which kernels torch has; otherwise they are inferred from the
    catalog.

    It does if torch printed a warning or its list of kernels, or if a program printed the exact
    build, whose kernels are in the catalog.
    """
    for warning in events(context, WARNING):
        # A person may describe it in their own words; only torch's warning counts.
        if warning.values.get("said") != "in words":
            return True
    if kernels_that_a_text_prints(context):
        return True
    return context.torch.kernels is not None and not events(context, "torch-only-named")


def build_was_not_read(grounds: Grounds) -> bool:
    """Whether torch is blamed for a missing kernel although it did not list its kernels."""
    if is_beside_torch(grounds.context):
        return False
    return grounds.is_one_of(OF_KERNELS) and not torch_said_it(grounds.context)


def programs_build_was_not_read(grounds: Grounds) -> bool:
    """Whether a program without torch is blamed for a missing kernel."""
    return grounds.is_one_of(OF_KERNELS) and is_beside_torch(grounds.context)


def gpu_is_a_family(grounds: Grounds) -> bool:
    """Whether kernels are missing for a GPU of which only the family is named ("a Blackwell
    GPU")."""
    named_gpus = gpus(grounds.context)
    if not named_gpus or not grounds.is_one_of(OF_KERNELS):
        return False
    return named_gpus[0].name.startswith("a ")


def pair_was_not_read(grounds: Grounds) -> bool:
    """Whether torchvision is blamed although a version is unknown, or although both versions fit
    (then a second copy of one is loaded)."""
    if grounds.root.id != "torchvision-mismatch":
        return False
    torch = grounds.context.torch.version
    torchvision = package(grounds.context, "torchvision")
    if torch is None or torchvision is None:
        return True
    # The evidence contains both versions only if they do not match.
    quotes = [quote.text for quote in grounds.root.evidence]
    return not any("torchvision " in quote for quote in quotes)


def python_was_not_read(grounds: Grounds) -> bool:
    """Whether the cause depends on the version of Python, which the text does not show."""
    wheels_of_one_python = grounds.is_one_of(("jetson-wrong-wheel", "python-no-wheel"))
    return wheels_of_one_python and grounds.context.snapshot.python.version is None


def boards_support_was_not_read(grounds: Grounds) -> bool:
    """Whether an AMD GPU is on Windows, where support by AMD's builds depends on its target."""
    is_on_windows = grounds.context.os.family == "windows"
    return is_on_windows and grounds.root.id == "amd-gpu"


def it_may_never_have_worked(grounds: Grounds) -> bool:
    """Whether a person says that something stopped working, but the text does not show that it ever
    worked."""
    if grounds.root.id != NVML_LOST:
        return False
    messages = events(grounds.context, NVML_LOST)
    # The event keeps the person's words, for example "it worked until the reload".
    return not any(message.values.get("said") for message in messages)


NVML_LOST = "container-nvml-lost"


# --- 2. the message has several meanings, or its owner is not known -------------------------------

SEVERAL_REASONS = (
    *("cuda-init-out-of-memory", "cuda-unknown-error", "cuda-init-failed", "gpu-gives-no-memory"),
    *("k8s-gpu-not-allocatable", "nvml-init-failed", "driver-does-not-answer", "gpu-init-failed"),
    *("cuda-sees-no-device", "cuda-misses-gpu", "gpu-does-not-answer", "driver-call-unsupported"),
    *("container-hook-failed", "gpu-hang", "nccl-p2p-failure", "nccl-timeout"),
)
"""Causes that state where something stopped, although it can have stopped for several reasons."""
FIRMWARE = ("hardware-fault", "gpu-fault", "gsp-timeout")
MAKERS = ("amd-gpu", "intel-gpu")
MISSING_LIBRARY = ("cuda-lib-missing", "library-missing")


def message_has_several_reasons(grounds: Grounds) -> bool:
    """Whether programs print the message of this cause for several reasons."""
    return grounds.is_one_of(SEVERAL_REASONS)


def firmware_may_be_at_fault(grounds: Grounds) -> bool:
    """Whether the firmware's settings may be the reason, which no text shows."""
    return grounds.is_one_of(FIRMWARE)


def driver_of_another_maker(grounds: Grounds) -> bool:
    """Whether torch's XPU or ROCm build finds no GPU, which may be due to the driver, permissions,
    or the build."""
    return grounds.root.id == "intel-gpu" and grounds.shows("no-xpu")


def rocm_lists_what_torch_misses(grounds: Grounds) -> bool:
    """Whether ROCm's own tools list the GPU, so that its driver is no reason to doubt."""
    return grounds.root.id == "amd-gpu" and bool(rocm_lists_the_gpu(grounds.context))


def only_the_maker_was_read(grounds: Grounds) -> bool:
    """Whether the text names the maker of the GPU, and no build of torch for another maker.

    A person with a build of torch for this maker has a different problem.
    """
    torch = grounds.context.torch
    backend = torch.backend or ""
    is_build_of_another_maker = backend == "cpu" or backend.startswith("cu")
    if rocm_lists_what_torch_misses(grounds):
        return False
    # XPU builds also answer "Torch not compiled with CUDA enabled", so without a version this
    # message does not show a CPU build.
    if grounds.root.id == "intel-gpu" and torch.version is None:
        is_build_of_another_maker = False
    return grounds.is_one_of(MAKERS) and not is_build_of_another_maker


BY_MAKER = (*MAKERS, "maker-wrong-build", "rocm-wheel-on-nvidia", "xpu-wheel-on-nvidia")
"""Causes in which a build is for another maker's GPU."""


def gpus_of_two_makers(grounds: Grounds) -> bool:
    """Whether a text shows an NVIDIA GPU and another maker's: in a laptop, or in a second
    machine."""
    if grounds.is_one_of(("torch-cpu-build",)):
        return may_be_another_makers(grounds.context.snapshot)
    if not grounds.is_one_of(BY_MAKER):
        return False
    other_makers = vendors_of(grounds.context.snapshot) - {"nvidia"}
    return bool(other_makers) and bool(gpus(grounds.context))


def cuda_is_translated(grounds: Grounds) -> bool:
    """Whether the text is about ZLUDA, which runs CUDA builds on AMD GPUs on purpose."""
    return grounds.is_one_of((*BY_MAKER, "torch-cpu-build")) and bool(
        owners.translation_layer(grounds.context)
    )


def package_may_be_mended(grounds: Grounds) -> bool:
    """Whether the text reports that mps lacks something, without a reason, so that a newer release
    of a package may add it.
    """
    if grounds.root.id != "apple-silicon":
        return False
    lacks = events(grounds.context, "mps-lacks")
    return bool(lacks) and not any(event.values.get("why") for event in lacks)


def nobody_is_known_to_ask_for_it(grounds: Grounds) -> bool:
    """Whether it is unknown which package needs the missing library, or torch itself needs it
    although its wheel brings it."""
    if not grounds.is_one_of(MISSING_LIBRARY):
        return False
    owner: str | None = facts.failing_package(grounds.context)
    for message in events(grounds.context, *grounds.cause.kinds):
        owner = owner or message.values.get("module")
    return owner in (None, "", "torch", "nvidia")


# --- 3. something else in the text speaks against it ----------------------------------------------


def several_torches(grounds: Grounds) -> bool:
    """Whether the text names two releases of torch: one belongs to another environment, or is only
    wished for."""
    said_by_torch = grounds.shows("torch-not-compiled-with-cuda", WARNING)
    is_named_twice = len(releases_of_torch(grounds.context)) > 1
    return grounds.is_one_of(OF_TORCHS_BUILD) and is_named_twice and not said_by_torch


def another_python_was_asked(grounds: Grounds) -> bool:
    """Whether torch's output comes from another Python than the one in which the program fails."""
    return bool(facts.another_python_was_asked(grounds.context))


def person_has_no_nvidia_gpu(grounds: Grounds) -> bool:
    """Whether a person says that the machine has no NVIDIA GPU although the cause assumes one."""
    if grounds.layer in (Layer.NO_GPU, Layer.PLATFORM, Layer.INSTALL, None):
        return False
    return grounds.shows("no-nvidia-gpu") and not gpus(grounds.context)


LINES_OF_ONE_MESSAGE = 6
"""The most lines between the first and the last line of one message, because a hint or a few stack
frames may be between them."""


def text_ends_with_another_failure(grounds: Grounds) -> bool:
    """Whether the last failure in the text is not one of the messages that the answer rests on."""
    failures = events(grounds.context, "program-failed")
    messages = judged_messages(grounds)
    if not failures or not messages:
        return False
    last_failure = failures[0]
    last_line = line_of(last_failure.source)
    for message in messages:
        is_near = abs(line_of(message.source) - last_line) <= LINES_OF_ONE_MESSAGE
        if is_near or says_the_same(message.text or "", last_failure.text or ""):
            return False
    return True


def judged_messages(grounds: Grounds) -> Events:
    """The messages that the answer rests on: the root's evidence, and every known failure message.

    Each such message has its own finding, which the root explains or leaves open.
    """
    messages = []
    for quote in grounds.root.evidence:
        messages.append(Event(kind="quote", source=quote.source, text=quote.text))
    for event in grounds.context.snapshot.events:
        if event.kind not in NO_FAILURES:
            messages.append(event)
    return tuple(messages)


SHARED_WORDS = 0.6
"""Two quotes count as the same message if they share at least this part of the shorter one's words.
"""


def says_the_same(first: str, second: str) -> bool:
    """Whether two quotes come from the same message.

    >>> says_the_same("No module named 'torch', even", "Error: No module named 'torch'")
    True
    """
    words_of_first = words_in(first)
    words_of_second = words_in(second)
    shared_words = words_of_first & words_of_second
    fewest = min(len(words_of_first), len(words_of_second))
    return fewest > 0 and len(shared_words) >= SHARED_WORDS * fewest


def words_in(quote: str) -> set[str]:
    """The words of a quote in lower case; words of one or two letters are left out."""
    return set(re.findall(r"\w{3,}", quote.lower()))


def works_elsewhere(grounds: Grounds) -> bool:
    """Whether the same GPU works in another program, so that the driver and the GPU are fine."""
    if grounds.layer is None or not grounds.shows("gpu-computes"):
        return False
    return Layer.HARDWARE <= grounds.layer <= Layer.READINESS


# --- 4. the cure was tried ------------------------------------------------------------------------

REMEDIES = {
    "torch": OF_TORCHS_BUILD,
    "driver": ("driver-too-old", "driver-missing", "driver-not-loaded", "libcuda-driver-mismatch"),
    "reboot": ("driver-not-loaded", "libcuda-driver-mismatch", "cuda-unknown-error"),
    "vc-runtime": ("windows-dll-missing",),
    "package": ("extension-abi-mismatch", "torchvision-mismatch", "extension-not-built"),
}
"""What the person tried -> the causes that it would have fixed."""


def remedy_was_tried(grounds: Grounds) -> bool:
    """Whether the text says that this cause's remedy was tried without success."""
    for event in events(grounds.context, "remedy-tried"):
        remedy = event.values.get("what", "")
        cured_causes = REMEDIES.get(remedy, ())
        if grounds.is_one_of(cured_causes):
            return True
    return False
