"""Whether torch and its extensions have kernels for this GPU, and a Jetson the wheel for it."""

from __future__ import annotations

from collections.abc import Iterable

from gpusetup.catalog.jetpack import FIRST_OF_THOR, UNDECLARED, UNIFIED, board_of
from gpusetup.catalog.kernels import readable, served_by
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
    source_of,
)
from gpusetup.evidence.places import uses_no_torch
from gpusetup.findings.environment import torch_in_words
from gpusetup.findings.message_rules import finding, shown
from gpusetup.fixes import gpu_naming, paste
from gpusetup.model.finding import Evidence, Finding, Findings
from gpusetup.model.machine import Event, Events, visible_gpus
from gpusetup.model.versions import Capability, parsed


def jetson_wrong_wheel(context: RuleContext) -> Findings:
    """A Jetson has a torch that was not built for its JetPack."""
    board, torch = board_of(context.snapshot), context.torch
    if not board:
        return
    missing = events(context, "cuda-lib-missing")
    # NVIDIA's own wheel needs some libraries without declaring them, so where only these are
    # missing, torch is the right one.
    proof = tuple(
        event for event in missing if not event.values.get("library", "").startswith(UNDECLARED)
    )
    if missing and not proof:
        return
    # `asked`: the text contains a call such as is_available() and that it printed False.
    printed_false = any(event.values.get("asked") for event in events(context, "cuda-unavailable"))
    sees_no_gpu = torch.backend == "cpu" or torch.cuda_available is False or printed_false
    # A text about torch may not show that torch is installed. On a probed machine, the probe looked
    # for torch.
    may_be_installed = torch.installed or (torch.installed is None and is_report(context))
    kernels = [serving(context, gpu) for gpu in gpus(context) if gpu.compute_capability]
    lacks_kernels = bool(torch.kernels and kernels) and not any(kernels)
    if not ((sees_no_gpu and may_be_installed) or proof or lacks_kernels):
        return
    yield RECORDS["jetson-wrong-wheel"].found(
        f"{torch_in_words(context)} was not built for this Jetson ({board})",
        detail=f"torch's aarch64 wheels run on Thor with CUDA {FIRST_OF_THOR.cuda} or newer, and "
        f"on Orin with {UNIFIED.cuda} or newer. With an older CUDA, a Jetson needs NVIDIA's "
        "wheels for its JetPack.",
        evidence=(
            *event_evidence(proof),
            Evidence(source=source_of(context, "torch.version"), text=torch_in_words(context)),
        ),
        fix=paste.jetson_fix(context),
    )


def arch_not_in_wheel(context: RuleContext) -> Findings:
    """The installed torch has no kernel for a visible GPU."""
    torch = context.torch
    messages = events(context, "gpu-not-in-wheel")
    kernels = [Capability.parse(name) for name in readable(torch.kernels or ())]
    if messages:
        # The message with the most values describes the GPU and the kernels most exactly.
        fullest = max(messages, key=lambda event: len(event.values))
        is_older = fullest.values.get("side") == "old"
        yield _finding_without_kernels(context, messages, fullest.values.get("gpu"), is_older)
    # On a Jetson, jetson_wrong_wheel makes the finding and names the source of the right wheel.
    elif board_of(context.snapshot):
        return
    # No build in the catalog has kernels for these GPUs.
    elif context.catalog.never_serves(gpus(context)) and not uses_no_torch(context):
        yield _finding_without_kernels(context, (), None, is_older=True)
    # A text may list the kernels of a torch without its CUDA version.
    elif kernels and (is_cuda_build(torch) or is_report(context)):
        for gpu in visible_gpus(context.snapshot):
            capability = gpu.compute_capability
            if capability and serving(context, gpu) is None:
                is_older = capability < max(kernels)
                yield _finding_without_kernels(context, (), gpu.name, is_older)


def _finding_without_kernels(
    context: RuleContext, messages: Iterable[Event], gpu: str | None, is_older: bool
) -> Finding:
    """The finding that a torch (or a program) has no kernels for a GPU.

    `is_older` says that the GPU is older than the kernels; `gpu` is its name, None for all GPUs.
    """
    # The text may name one torch while another one prints the message.
    of_torch = "The torch that the program runs" if messages else torch_in_words(context)
    who = _program_beside_torch(context) or of_torch
    cause = "arch-too-old-for-wheel" if is_older else "arch-too-new-for-wheel"
    name = gpu or gpu_naming.gpu_names(context)
    evidence = (*messages, *_gpus_and_kernels(context))
    return finding(context, cause, evidence, who=who, gpu=name)


def _program_beside_torch(context: RuleContext) -> str:
    """The name of a program that uses the GPU without torch; "" if it is built on torch."""
    if not uses_no_torch(context):
        return ""
    return context.snapshot.failing.program or "The program"


def _gpus_and_kernels(context: RuleContext) -> Events:
    """One event as evidence, with the GPUs and torch's kernels."""
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
    cause = "extension-arch-mismatch" if module else _cause_by_release(context, gpus_read)
    gpu_name = gpu_naming.gpu_names(context) if gpus_read else "this GPU"
    # By its release, torch may lack the kernel itself; otherwise it may be an extension.
    is_by_release = cause in ("arch-too-new-for-wheel", "arch-too-old-for-wheel")
    of_torch = torch_in_words(context) if is_by_release else "an extension"
    who = module or _program_beside_torch(context) or of_torch
    evidence = (*messages, *_gpus_and_kernels(context))
    yield finding(context, cause, evidence, who=who, gpu=gpu_name)


ALL_HAVE_HOPPER = "2.1"
"""Since this release, each CUDA build of torch has kernels up to Hopper (9.0), and the builds of
all releases since then stand for a torch of an unknown release."""


def _cause_by_release(context: RuleContext, gpus_read: list[Capability]) -> str:
    """The cause if torch's list of kernels is unknown: the CUDA builds of its release tell whether
    the GPU is too old or too new for one of them."""
    if not gpus_read:
        return "no-kernel-image"
    release, first = (context.torch.version or "").partition("+")[0], context.catalog.releases[0]
    # The builds before the catalog's first release had kernels for the same old GPUs.
    if release and parsed(release) < parsed(first.torch):
        release = first.torch
    cuda_builds = [build for build in context.catalog.builds if build.kernels]
    builds = [build for build in cuda_builds if build.torch == release] or [
        build for build in cuda_builds if parsed(build.torch) >= parsed(ALL_HAVE_HOPPER)
    ]
    for build in builds:
        for capability in gpus_read:
            if served_by(build.kernels, capability, build.cuda, build.cuda) is None:
                newest = max(map(Capability.parse, readable(build.kernels)))
                is_older = capability < newest
                return "arch-too-old-for-wheel" if is_older else "arch-too-new-for-wheel"
    # All of these builds support the GPUs, so the kernel that failed is not torch's.
    return "extension-arch-mismatch"


RULES = (
    jetson_wrong_wheel,
    arch_not_in_wheel,
    no_kernel_image,
)
