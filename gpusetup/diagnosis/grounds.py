"""What an answer about a text rests on: one record, and the questions that decide how sure it is.

Each question is true where something is missing or speaks against the cause; `diagnosis.certainty`
gives it its sentence. Pure.
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
from gpusetup.evidence.wording import is_program_output
from gpusetup.fixes import owners
from gpusetup.model.finding import Finding
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Event, Events


class Grounds(Frozen, kw_only=False):
    """What the answer about a text rests on."""

    context: RuleContext
    root: Finding

    @property
    def cause(self) -> Cause:
        return RECORDS[self.root.id]

    @property
    def layer(self) -> Layer | None:
        return self.cause.place[0] if self.cause.place else None

    def is_one_of(self, causes: tuple[str, ...]) -> bool:
        return self.root.id in causes

    def shows(self, *kinds: str) -> bool:
        return bool(events(self.context, *kinds))


# --- 0. the cause is not proven by itself ---------------------------------------------------------


def cause_is_not_proven(grounds: Grounds) -> bool:
    """Whether the cause's record names no proof, or the text does not hold it."""
    is_proven = grounds.cause.certain_if
    return is_proven is None or not is_proven(grounds.context)


# --- 1. what decides was not read -----------------------------------------------------------------

OF_KERNELS = ("arch-too-new-for-wheel", "arch-too-old-for-wheel", "extension-arch-mismatch")
"""Causes that the build of torch decides."""
OF_TORCHS_BUILD = (*OF_KERNELS, "torch-cpu-build", "driver-too-old", "torchvision-mismatch")
"""Causes that mean another one where the torch that runs is not the torch that was read."""


def only_a_person_says_it(grounds: Grounds) -> bool:
    """Whether no line of a program stands behind the cause.

    "It falls off the bus" is what somebody concluded; the kernel's line is what happened.
    """
    quotes = [quote for quote in grounds.root.evidence if line_of(quote.source)]
    own_lines = lines_of_a_person(grounds.context)
    for quote in quotes:
        is_own_line = line_of(quote.source) in own_lines
        if not is_own_line or is_program_output(quote.text):
            return False
    return bool(quotes)


def two_runs_are_compared_in_words(grounds: Grounds) -> bool:
    return grounds.root.id == "torch-release-regressed"


WARNING = "gpu-not-in-wheel"


def torch_said_it(context: RuleContext) -> bool:
    """Whether torch itself said which kernels it lacks, the text prints its list, or a program
    printed the exact build, whose kernels the catalog knows."""
    warned = any(event.values.get("said") != "in words" for event in events(context, WARNING))
    exact_build = context.torch.kernels is not None and not events(context, "torch-only-named")
    return warned or kernels_that_a_text_prints(context) or exact_build


def build_was_not_read(grounds: Grounds) -> bool:
    return grounds.is_one_of(OF_KERNELS) and not torch_said_it(grounds.context)


def gpu_is_a_family(grounds: Grounds) -> bool:
    named = gpus(grounds.context)
    return grounds.is_one_of(OF_KERNELS) and bool(named) and named[0].name.startswith("a ")


def pair_was_not_read(grounds: Grounds) -> bool:
    """Whether torchvision is blamed although both versions were not read, or although they are a
    pair: then a second copy of one of them is loaded."""
    if grounds.root.id != "torchvision-mismatch":
        return False
    torch, beside = grounds.context.torch.version, package(grounds.context, "torchvision")
    differ = any("torchvision " in quote.text for quote in grounds.root.evidence if torch)
    return torch is None or beside is None or not differ


def python_was_not_read(grounds: Grounds) -> bool:
    wheels_of_one_python = grounds.is_one_of(("jetson-wrong-wheel", "python-no-wheel"))
    return wheels_of_one_python and grounds.context.snapshot.python.version is None


def boards_support_was_not_read(grounds: Grounds) -> bool:
    """An AMD GPU on Windows: whether AMD's builds serve it depends on its target."""
    return grounds.root.id == "amd-gpu" and grounds.context.os.family == "windows"


def it_may_never_have_worked(grounds: Grounds) -> bool:
    """Whether a loss is claimed of which no text shows the time before."""
    is_new = not any(event.values.get("said") for event in events(grounds.context, NVML_LOST))
    return grounds.root.id == NVML_LOST and is_new


NVML_LOST = "container-nvml-lost"


# --- 2. the message has several meanings, or its owner is not known -------------------------------

SEVERAL_REASONS = (
    *("cuda-init-out-of-memory", "cuda-unknown-error", "cuda-init-failed", "gpu-gives-no-memory"),
    *("k8s-gpu-not-allocatable", "nvml-init-failed", "driver-does-not-answer", "gpu-init-failed"),
    *("cuda-sees-no-device", "cuda-misses-gpu", "gpu-does-not-answer", "driver-call-unsupported"),
    *("container-hook-failed", "gpu-hang", "nccl-p2p-failure", "nccl-timeout"),
)
"""Causes that say where it stopped; what stopped it can be several things."""
FIRMWARE = ("hardware-fault", "gpu-fault", "gsp-timeout")
MAKERS = ("amd-gpu", "intel-gpu")
MISSING_LIBRARY = ("cuda-lib-missing", "library-missing")


def message_has_several_reasons(grounds: Grounds) -> bool:
    return grounds.is_one_of(SEVERAL_REASONS)


def firmware_may_be_at_fault(grounds: Grounds) -> bool:
    return grounds.is_one_of(FIRMWARE)


def driver_of_another_maker(grounds: Grounds) -> bool:
    """torch's XPU or ROCm build is there and finds no GPU: driver, rights, or the build."""
    return grounds.root.id == "intel-gpu" and grounds.shows("no-xpu")


def only_the_maker_was_read(grounds: Grounds) -> bool:
    """Whether no build for another maker was read.

    Who has a build of torch for this maker has another problem than the maker's name.
    """
    backend = grounds.context.torch.backend or ""
    is_build_of_another_maker = backend == "cpu" or backend.startswith("cu")
    return grounds.is_one_of(MAKERS) and not is_build_of_another_maker


BY_MAKER = (*MAKERS, "maker-wrong-build", "rocm-wheel-on-nvidia", "xpu-wheel-on-nvidia")
"""Causes that say that a build is for another maker's GPU."""


def gpus_of_two_makers(grounds: Grounds) -> bool:
    """An NVIDIA GPU and another maker's in one text: a laptop, or a second machine."""
    others = vendors_of(grounds.context.snapshot) - {"nvidia"}
    return grounds.is_one_of(BY_MAKER) and bool(others) and bool(gpus(grounds.context))


def cuda_is_translated(grounds: Grounds) -> bool:
    """Whether a text is about ZLUDA: its CUDA build on an AMD GPU is meant so."""
    return grounds.is_one_of((*BY_MAKER, "torch-cpu-build")) and bool(
        owners.translation_layer(grounds.context)
    )


def package_may_be_mended(grounds: Grounds) -> bool:
    """A program that is on mps already: what it lacks there may be in a newer release."""
    return grounds.root.id == "apple-silicon" and grounds.shows("mps-lacks")


def nobody_is_known_to_ask_for_it(grounds: Grounds) -> bool:
    """Whether no package is known that needs the missing library, or torch itself needs it: its
    wheel brings the library, so something else keeps it away."""
    if not grounds.is_one_of(MISSING_LIBRARY):
        return False
    named = [e.values.get("module", "") for e in events(grounds.context, *grounds.cause.kinds)]
    owner = facts.failing_package(grounds.context) or next(filter(None, named), "")
    return owner in ("", "torch", "nvidia")


# --- 3. something else in the text speaks against it ----------------------------------------------


def several_torches(grounds: Grounds) -> bool:
    """Two releases are called torch's: one is of another environment, or only wished for."""
    said_by_torch = grounds.shows("torch-not-compiled-with-cuda", WARNING)
    is_named_twice = len(releases_of_torch(grounds.context)) > 1
    return grounds.is_one_of(OF_TORCHS_BUILD) and is_named_twice and not said_by_torch


def another_python_was_asked(grounds: Grounds) -> bool:
    return bool(facts.another_python_was_asked(grounds.context))


def person_has_no_nvidia_gpu(grounds: Grounds) -> bool:
    """Whether a person says that the machine has no NVIDIA GPU, and the cause presumes one."""
    presumes_one = grounds.layer not in (Layer.NO_GPU, Layer.PLATFORM, Layer.INSTALL, None)
    return presumes_one and grounds.shows("no-nvidia-gpu") and not gpus(grounds.context)


LINES_OF_ONE_MESSAGE = 6
"""How far apart the first and the last line of one message may stand: a hint, a few frames."""


def text_ends_with_another_failure(grounds: Grounds) -> bool:
    """Whether the last failure of the text is none of the messages that were judged."""
    last = next(iter(events(grounds.context, "program-failed")), None)
    messages = judged_messages(grounds)
    if last is None or not messages:
        return False
    place = line_of(last.source)
    for message in messages:
        is_near = abs(line_of(message.source) - place) <= LINES_OF_ONE_MESSAGE
        if is_near or says_the_same(message.text or "", last.text or ""):
            return False
    return True


def judged_messages(grounds: Grounds) -> Events:
    """The messages that were judged: the root's evidence, and every known message of a failure.

    What such a message means is a finding of its own, which the root explains or leaves open.
    """
    quoted = tuple(
        Event(kind="quote", source=quote.source, text=quote.text) for quote in grounds.root.evidence
    )
    known = (e for e in grounds.context.snapshot.events if e.kind not in NO_FAILURES)
    return (*quoted, *known)


SHARED_WORDS = 0.6
"""The share of the shorter message's words that two quotes of one message have in common."""


def says_the_same(first: str, second: str) -> bool:
    """Whether two quotes are of one message.

    >>> says_the_same("No module named 'torch', even", "Error: No module named 'torch'")
    True
    """
    words = [set(re.findall(r"\w{3,}", quote.lower())) for quote in (first, second)]
    fewest = min(map(len, words))
    return bool(fewest) and len(words[0] & words[1]) >= SHARED_WORDS * fewest


def works_elsewhere(grounds: Grounds) -> bool:
    """The same GPU computes for another program: driver and GPU are well."""
    below_torch = grounds.layer is not None and Layer.HARDWARE <= grounds.layer <= Layer.READINESS
    return below_torch and grounds.shows("gpu-computes")


# --- 4. the cure was tried ------------------------------------------------------------------------

REMEDIES = {
    "torch": OF_TORCHS_BUILD,
    "driver": ("driver-too-old", "driver-missing", "driver-not-loaded", "libcuda-driver-mismatch"),
    "reboot": ("driver-not-loaded", "libcuda-driver-mismatch", "cuda-unknown-error"),
    "vc-runtime": ("windows-dll-missing",),
    "package": ("extension-abi-mismatch", "torchvision-mismatch", "extension-not-built"),
}
"""What was tried -> the causes that it would have cured."""


def remedy_was_tried(grounds: Grounds) -> bool:
    tried = (event.values.get("what", "") for event in events(grounds.context, "remedy-tried"))
    return any(grounds.is_one_of(REMEDIES.get(what, ())) for what in tried)
