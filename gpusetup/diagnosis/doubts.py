"""Why an answer is only likely: the reasons for doubt, each a question with a name.

An answer is certain where the facts that decide were read of the environment that failed, in a
program's own words, and nothing else in the text speaks against it. Each reason here is one way in
which that fails; its sentence says what else it could be. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gpusetup.causes import alike
from gpusetup.evidence.context import RuleContext, events, gpus, is_report, readings
from gpusetup.evidence.gpu_facts import kernels_that_a_text_prints
from gpusetup.model.finding import Finding
from gpusetup.model.frozen import Frozen

OF_KERNELS = ("arch-too-new-for-wheel", "arch-too-old-for-wheel", "extension-arch-mismatch")
"""Causes that the build of torch decides."""
OF_TORCHS_BUILD = (*OF_KERNELS, "torch-cpu-build", "driver-too-old", "torchvision-mismatch")
"""Causes that mean another one where the torch that runs is not the torch that was read."""


class Doubt(Frozen):
    """One reason why an answer is only likely."""

    reason: str
    """Its name: what was not read, or what speaks against the cause."""
    sentence: str
    """What is open, and what it could be instead."""
    holds: Callable[[RuleContext, Finding], bool]
    asks: str = ""
    """The command whose output settles it."""


def torch_said_it(context: RuleContext) -> bool:
    """Whether torch itself said which kernels it lacks, the text prints its list, or a program
    printed the exact build, whose kernels the catalog knows."""
    warned = any(event.values.get("said") != "in words" for event in events(context, WARNING))
    exact_build = context.torch.kernels is not None and not events(context, "torch-only-named")
    return warned or kernels_that_a_text_prints(context) or exact_build


WARNING = "gpu-not-in-wheel"


def _build_was_not_read(context: RuleContext, root: Finding) -> bool:
    return root.id in OF_KERNELS and not torch_said_it(context)


def _gpu_is_a_family(context: RuleContext, root: Finding) -> bool:
    named = gpus(context)
    return root.id in OF_KERNELS and bool(named) and named[0].name.startswith("a ")


def _several_torches(context: RuleContext, root: Finding) -> bool:
    """Two releases are called torch's: one is of another environment, or only wished for."""
    releases = {
        (reading.value or "").partition("+")[0] for reading in readings(context, "torch.version")
    }
    said_by_torch = events(context, "torch-not-compiled-with-cuda", "gpu-not-in-wheel")
    return root.id in OF_TORCHS_BUILD and len(releases - {""}) > 1 and not said_by_torch


REMEDIES = {
    "torch": OF_TORCHS_BUILD,
    "driver": ("driver-too-old", "driver-missing", "driver-not-loaded", "libcuda-driver-mismatch"),
    "reboot": ("driver-not-loaded", "libcuda-driver-mismatch", "cuda-unknown-error"),
    "vc-runtime": ("windows-dll-missing",),
    "package": ("extension-abi-mismatch", "torchvision-mismatch", "extension-not-built"),
}
"""What was tried -> the causes that it would have cured."""


def _remedy_was_tried(context: RuleContext, root: Finding) -> bool:
    tried = (event.values.get("what", "") for event in events(context, "remedy-tried"))
    return any(root.id in REMEDIES.get(what, ()) for what in tried)


def _works_elsewhere(context: RuleContext, root: Finding) -> bool:
    """The same GPU computes for another program: driver and GPU are well."""
    from gpusetup.causes.layers import Layer
    from gpusetup.causes.record import RECORDS

    place = RECORDS[root.id].place
    below_torch = bool(place) and Layer.HARDWARE <= place[0] <= Layer.READINESS  # type: ignore[index]
    return below_torch and bool(events(context, "gpu-computes"))


FIRMWARE = ("hardware-fault", "gpu-fault", "gsp-timeout")


def _firmware_may_be_at_fault(_: RuleContext, root: Finding) -> bool:
    return root.id in FIRMWARE


def _python_was_not_read(context: RuleContext, root: Finding) -> bool:
    wheels_of_one_python = root.id in ("jetson-wrong-wheel", "python-no-wheel")
    return wheels_of_one_python and context.snapshot.python.version is None


def _start_leaves_it_open(_: RuleContext, root: Finding) -> bool:
    return root.id in (
        "cuda-init-out-of-memory",
        "cuda-unknown-error",
        "cuda-init-failed",
        "gpu-gives-no-memory",
    )


def _driver_of_another_maker(context: RuleContext, root: Finding) -> bool:
    """torch's XPU or ROCm build is there and finds no GPU: driver, rights, or the build."""
    return root.id == "intel-gpu" and bool(events(context, "no-xpu"))


def _boards_support_was_not_read(context: RuleContext, root: Finding) -> bool:
    """An AMD GPU on Windows: whether AMD's builds serve it depends on its target."""
    return root.id == "amd-gpu" and context.os.family == "windows"


MAKERS = ("amd-gpu", "intel-gpu")


def _only_the_maker_was_read(context: RuleContext, root: Finding) -> bool:
    """Whether a build for another maker was not read.

    Who has a build of torch for this maker has another problem than the maker's name.
    """
    backend = context.torch.backend or ""
    is_build_of_another_maker = backend == "cpu" or backend.startswith("cu")
    return root.id in MAKERS and not is_build_of_another_maker


VIRTUAL_GPU = re.compile(r"\b(?:GRID|vGPU|[A-Z]\d{1,3}-\d{1,2}[ABCQ])\b")
"""How NVIDIA names the profiles of virtual GPUs: `GRID T4-8Q`, `A40-12B`."""


def _no_virtual_gpu_was_read(context: RuleContext, root: Finding) -> bool:
    names = [gpu.name or "" for gpu in gpus(context)]
    return root.id == "vgpu-no-compute" and not any(map(VIRTUAL_GPU.search, names))


def _only_a_person_says_it(_: RuleContext, root: Finding) -> bool:
    return root.id == "torch-release-regressed"


DOUBTS: tuple[Doubt, ...] = (
    Doubt(
        reason="said-in-words",
        sentence="the text does not show that nothing else differed between the two",
        holds=_only_a_person_says_it,
    ),
    Doubt(
        reason="build-not-read",
        sentence="torch did not print its list of kernels here, so an extension, or the torch of "
        "another Python, may be what lacks them",
        holds=_build_was_not_read,
        asks=alike.THIS_TORCH,
    ),
    Doubt(
        reason="gpu-not-named",
        sentence="the text names a family of GPUs and no model",
        holds=_gpu_is_a_family,
    ),
    Doubt(
        reason="several-torches",
        sentence="the text names several releases of torch, and does not show which of them runs",
        holds=_several_torches,
    ),
    Doubt(
        reason="remedy-tried",
        sentence="what cures this was tried already, so the program may use another environment",
        holds=_remedy_was_tried,
    ),
    Doubt(
        reason="works-elsewhere",
        sentence="another program computes on this GPU, so driver and GPU may be well",
        holds=_works_elsewhere,
    ),
    Doubt(
        reason="firmware-or-hardware",
        sentence="the driver's firmware may be at fault as well as the GPU: another driver branch "
        "tells them apart",
        holds=_firmware_may_be_at_fault,
    ),
    Doubt(
        reason="python-not-read",
        sentence="which Python it is decides which wheels exist, and the text does not show it",
        holds=_python_was_not_read,
    ),
    Doubt(
        reason="start-leaves-it-open",
        sentence="this message has several reasons",
        holds=_start_leaves_it_open,
    ),
    Doubt(
        reason="driver-of-the-maker",
        sentence="Intel's driver, the rights on its device, or this release of torch may be at "
        "fault",
        holds=_driver_of_another_maker,
    ),
    Doubt(
        reason="only-the-maker",
        sentence="a GPU of another maker explains no failure alone: the installed build, the "
        "maker's driver or the rights on the device may be at fault",
        holds=_only_the_maker_was_read,
        asks=alike.THIS_TORCH,
    ),
    Doubt(
        reason="no-virtual-gpu",
        sentence="no virtual GPU is named, and a driver that is too old answers alike",
        holds=_no_virtual_gpu_was_read,
        asks="nvidia-smi",
    ),
    Doubt(
        reason="support-not-read",
        sentence="on Windows it depends on the model whether AMD's builds support it",
        holds=_boards_support_was_not_read,
    ),
)
"""All of them; the first sentences are shown."""


def doubts(context: RuleContext, root: Finding | None) -> tuple[Doubt, ...]:
    """The reasons why the root of a text is only likely; none for a machine, which was asked."""
    if root is None or not is_report(context):
        return ()
    return tuple(doubt for doubt in DOUBTS if doubt.holds(context, root))
