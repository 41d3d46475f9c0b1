"""Whether torch and its extensions have kernels for this GPU, and whether a Jetson has the wheel
made for it."""

from __future__ import annotations

from collections.abc import Iterable

from gpusetup.catalog.builds import OLDEST_SERVED
from gpusetup.catalog.jetpack import (
    FIRST_OF_THOR,
    UNDECLARED,
    UNIFIED,
    board_of,
)
from gpusetup.catalog.kernels import readable
from gpusetup.causes.extensions import extension_of, kernel_messages
from gpusetup.causes.record import RECORDS
from gpusetup.evidence.context import (
    RuleContext,
    capabilities,
    event_evidence,
    events,
    gpus,
    is_cuda_build,
    is_report,
    serving,
    value_evidence,
)
from gpusetup.evidence.places import uses_no_torch
from gpusetup.findings.environment import torch_in_words
from gpusetup.findings.message_rules import finding, shown
from gpusetup.fixes import gpu_naming, paste
from gpusetup.model.finding import Finding, Findings
from gpusetup.model.machine import Event, Events, visible_gpus
from gpusetup.model.versions import Capability, parsed


def jetson_wrong_wheel(context: RuleContext) -> Findings:
    """A Jetson has a torch that was not built for its JetPack."""
    board, torch = board_of(context.snapshot), context.torch
    if not board:
        return
    asked_in_vain = any(event.values.get("asked") for event in events(context, "cuda-unavailable"))
    sees_no_gpu = torch.backend == "cpu" or torch.cuda_available is False or asked_in_vain
    # A text about torch may not show that torch is installed. On a probed machine, the probe looked
    # for torch.
    may_be_installed = torch.installed or (torch.installed is None and is_report(context))
    # NVIDIA's own wheel needs some libraries without declaring them, so where only these are
    # missing, torch is the right one.
    missing = events(context, "cuda-lib-missing")
    declared = tuple(e for e in missing if not e.values.get("library", "").startswith(UNDECLARED))
    if missing and not declared:
        return
    if not ((sees_no_gpu and may_be_installed) or declared or _cannot_run_on_board(context)):
        return
    yield RECORDS["jetson-wrong-wheel"].found(
        f"{torch_in_words(context)} is not made for this Jetson ({board})",
        detail=f"torch's aarch64 wheels run on Thor with CUDA {FIRST_OF_THOR.cuda} or newer, and "
        f"on Orin with {UNIFIED.cuda} or newer. With an older CUDA, a Jetson needs NVIDIA's "
        "wheels for its JetPack.",
        evidence=(
            *event_evidence(declared),
            value_evidence(context, "torch.version", torch_in_words(context)),
        ),
        fix=paste.jetson_fix(context),
    )


def _cannot_run_on_board(context: RuleContext) -> bool:
    """Whether torch lists no kernel for this Jetson's GPU."""
    kernels = [serving(context, gpu) for gpu in gpus(context) if gpu.compute_capability]
    return bool(context.torch.kernels and kernels) and not any(kernels)


def arch_not_in_wheel(context: RuleContext) -> Findings:
    """The installed torch has no kernel for a visible GPU."""
    torch = context.torch
    messages = events(context, "gpu-not-in-wheel")
    kernels = [Capability.parse(name) for name in readable(torch.kernels or ())]
    if messages:
        # The message with the most values describes the GPU and the kernels most exactly.
        fullest = max(messages, key=lambda event: len(event.values))
        older = fullest.values.get("side", "").startswith("old")
        yield _unserved(context, messages, fullest.values.get("gpu"), older=older)
    # On a Jetson, jetson_wrong_wheel makes the finding and names the source of the right wheel.
    elif board_of(context.snapshot):
        return
    elif context.catalog.never_serves(gpus(context)) and not uses_no_torch(context):
        yield _unserved(context, (), None, older=True)
    # A text may list the kernels of a torch without its CUDA version.
    elif kernels and (is_cuda_build(torch) or is_report(context)):
        for gpu in visible_gpus(context.snapshot):
            capability = gpu.compute_capability
            if capability and serving(context, gpu) is None:
                yield _unserved(context, (), gpu.name, older=capability < max(kernels))


def _unserved(
    context: RuleContext, messages: Iterable[Event], gpu: str | None, *, older: bool
) -> Finding:
    """The finding that a torch (or a program) has no kernels for a GPU.

    `older` says that the GPU is older than the kernels; `gpu` is its name, None for all GPUs.
    """
    # The text may name one torch while another one prints the message.
    of_torch = "The torch that runs" if messages else torch_in_words(context)
    who = _program_beside_torch(context) or of_torch
    cause = "arch-too-old-for-wheel" if older else "arch-too-new-for-wheel"
    name = gpu or gpu_naming.gpu_names(context)
    return finding(context, cause, (*messages, *_seen(context)), who=who, gpu=name)


def _program_beside_torch(context: RuleContext) -> str:
    """The name of a program that uses the GPU without torch; "" if it is built on torch."""
    if not uses_no_torch(context):
        return ""
    return context.snapshot.failing.program or "The program"


def _seen(context: RuleContext) -> Events:
    """One message as evidence, with the GPUs and torch's kernels."""
    kernels = " ".join(context.torch.kernels or ("unknown",))
    names = gpu_naming.gpu_names(context)
    return (shown(context, "torch.kernels", f"{names}; kernels: {kernels}"),)


def no_kernel_image(context: RuleContext) -> Findings:
    """torch, or an extension, has no kernel for this GPU."""
    messages = kernel_messages(context)
    torch_lacks_it = context.torch.kernels and any(
        gpu.compute_capability and serving(context, gpu) is None for gpu in gpus(context)
    )
    # If torch itself lacks the kernel, arch_not_in_wheel finds it.
    if not messages or torch_lacks_it or events(context, "gpu-not-in-wheel"):
        return
    module, gpus_read = extension_of(messages), capabilities(context)
    # If torch's list contains the kernel, the record's `refuted_by` removes the finding.
    cause = "extension-arch-mismatch" if module else _by_age(context, gpus_read)
    gpu_name = gpu_naming.gpu_names(context) if gpus_read else "this GPU"
    who = module or _program_beside_torch(context)
    if cause == "arch-too-new-for-wheel":
        who = who or torch_in_words(context)
    evidence = (*messages, *_seen(context))
    yield finding(context, cause, evidence, who=who or "an extension", gpu=gpu_name)


def _by_age(context: RuleContext, gpus_read: list[Capability]) -> str:
    """The cause if the wheel's kernels are unknown: newer wheels dropped old GPUs, and older wheels
    do not support new ones yet."""
    version = context.torch.version
    is_before_hopper = version is not None and parsed(version) < parsed("1.13")
    oldest, newest = SERVED_BEFORE_HOPPER if is_before_hopper else SERVED_SINCE
    if not gpus_read:
        return "no-kernel-image"
    if max(gpus_read) > newest:
        return "arch-too-new-for-wheel"
    if min(gpus_read) < oldest:
        return "arch-too-old-for-wheel"
    # torch's own wheels support these GPUs, so the kernel that failed is not torch's.
    return "extension-arch-mismatch"


SERVED_BEFORE_HOPPER = (OLDEST_SERVED, Capability(8, 6))
"""The oldest and the newest GPUs for which torch 1.12 and older have kernels."""
SERVED_SINCE = (Capability(7, 5), Capability(9, 0))
"""The oldest and the newest GPUs for which all recent CUDA builds of torch have kernels."""


RULES = (
    jetson_wrong_wheel,
    arch_not_in_wheel,
    no_kernel_image,
)
