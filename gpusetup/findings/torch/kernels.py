"""Kernels: does the wheel, or an extension beside it, hold code for this GPU."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpusetup.catalog.jetpack import board_of
from gpusetup.catalog.kernels import readable
from gpusetup.evidence.context import (
    RuleContext,
    cuda_errors,
    cuda_needed,
    events,
    gpus,
    is_cuda_build,
    is_report,
    serving,
)
from gpusetup.findings import alike
from gpusetup.findings.layers import Layer
from gpusetup.findings.libraries.distributions import built_anew
from gpusetup.findings.message_rules import finding, shown
from gpusetup.findings.programs import is_beside_torch
from gpusetup.findings.record import Alike, Cause, Likelier, Message
from gpusetup.findings.sources import CPP_EXTENSION, CUDA_RUNTIME, WHEELS
from gpusetup.findings.torch.build import named
from gpusetup.fixes import paste, which
from gpusetup.model.finding import Finding, Fix
from gpusetup.model.machine import Event, visible_gpus
from gpusetup.model.versions import Capability, parsed

ARCH_TOO_NEW_FOR_WHEEL = Cause(
    id="arch-too-new-for-wheel",
    place=(Layer.WHEEL, 130),
    title="the GPU is newer than every kernel of the build",
    means="No kernel of its major version and no PTX that the driver compiles.",
    proven_by="The build's architectures and the GPU's capability",
    not_when="A harmless warning about a capability that a kernel of the same major serves",
    way_out="A newer torch",
    source="CUDA C++ Programming Guide, application compatibility",
    explains=(
        "gpu-check-failed",
        "cuda-library-error",
    ),
    stage="first-kernel",
    alike=(
        Alike(causes=("cuda-lib-missing",), asks=alike.BESIDE_TORCH, unless=alike.kernels_are_said),
    ),
    message=Message(
        title="{who} has no kernels for {gpu}: the GPU is newer than what it was built for",
        way=lambda context, _: _other_wheel(context),
    ),
)
ARCH_TOO_OLD_FOR_WHEEL = Cause(
    id="arch-too-old-for-wheel",
    beside_torch="Newer releases hold no kernels for this GPU either: build the program from "
    "source for its compute capability, take a release or an image that was made for older GPUs, "
    "use a program that still has kernels for it, or run this one on the CPU. No newer driver and "
    "no newer cuDNN changes that, and no torch, which this program does not use",
    place=(Layer.WHEEL, 140),
    title="the build has no kernels for this old GPU",
    means="Newer builds drop old architectures.",
    proven_by="The build's architectures and the GPU's capability",
    way_out="The backend that still has them: cu126 for Maxwell to Volta",
    source=WHEELS,
    explains=(
        "gpu-check-failed",
        "torch-sees-no-gpu",
        "cuda-library-error",
    ),
    stage="first-kernel",
    message=Message(
        title="{who} has no kernels for {gpu}: the GPU is older than what it was built for",
        way=lambda context, _: _other_wheel(context),
    ),
)


def arch_not_in_wheel(context: RuleContext) -> Iterator[Finding]:
    """A visible GPU that no kernel of the installed torch serves."""
    torch, beside = context.snapshot.torch, is_beside_torch(context)
    said = events(context, "gpu-not-in-wheel")
    kernels = _capabilities(torch.kernels or ())
    if said:
        told = max(said, key=lambda event: len(event.values))
        yield _unserved(context, said, told.values.get("gpu"), older=_said_older(context, told))
    elif board_of(context.snapshot):
        return  # jetson_wrong_wheel says it, with where its torch comes from
    elif context.catalog.never_serves(gpus(context)) and not beside:
        yield _unserved(context, (), None, older=True)
    # No order: a text may list the kernels and not the CUDA of its torch.
    elif kernels and (is_cuda_build(torch) or is_report(context)):
        for gpu in visible_gpus(context.snapshot):
            own = gpu.compute_capability
            if own and serving(context, gpu) is None:
                yield _unserved(context, (), gpu.name, older=own < max(kernels))


def _unserved(
    context: RuleContext, said: Iterable[Event], gpu: str | None, *, older: bool
) -> Finding:
    who = context.snapshot.failing.program if is_beside_torch(context) else named(context)
    cause = ARCH_TOO_OLD_FOR_WHEEL if older else ARCH_TOO_NEW_FOR_WHEEL
    name = gpu or which.names(context)
    seen = (*said, *_seen(context))
    return finding(context, cause, seen, who=who or "torch", gpu=name)


def _capabilities(kernels: Iterable[str]) -> list[Capability]:
    return [Capability.parse(kernel) for kernel in readable(tuple(kernels))]


def _said_older(context: RuleContext, said: Event) -> bool:
    """Which side the GPU stands on: by its capability and the kernels, else as the words say."""
    listed = said.values.get("kernels", "").split()
    known = _capabilities((*listed, *(context.snapshot.torch.kernels or ())))
    stated = re.fullmatch(r"\d+\.\d", said.values.get("capability", ""))
    own = [Capability.parse(stated[0])] if stated else _known(context)
    if known and own:
        return min(own) < max(known)
    return said.values.get("side", "").startswith("old")


def _known(context: RuleContext) -> list[Capability]:
    return [g.compute_capability for g in gpus(context) if g.compute_capability]


def _seen(context: RuleContext) -> tuple[Event, ...]:
    kernels = " ".join(context.snapshot.torch.kernels or ("unknown",))
    text = f"{which.names(context)}; kernels: {kernels}"
    return (shown(context, "torch.kernels", text),)


def _other_wheel(context: RuleContext) -> Fix:
    """The torch that serves the GPU; where none does, what can be done without."""
    build = paste.chosen(context)
    if build.backend != "cpu" if build else context.resolution.advice:
        return paste.install_torch(context)
    return Fix(
        text="No wheel in the catalog serves this GPU: use the CPU build, a newer or a rented GPU",
        commands=(paste.gpusetup(context, "--backend", "cpu"),),
    )


EXTENSION_ARCH_MISMATCH = Cause(
    id="extension-arch-mismatch",
    place=(Layer.LIBRARIES, 100),
    title="an extension has no kernel for the GPU, torch has",
    means="It was compiled for the GPUs of another machine.",
    proven_by="No kernel image, where torch's own kernels serve the GPU or the extension's "
    "list does not",
    not_when="arch-too-new-for-wheel, arch-too-old-for-wheel",
    way_out="Build it anew with TORCH_CUDA_ARCH_LIST",
    source=CPP_EXTENSION,
    explains=("gpu-check-failed",),
    stage="first-kernel",
    alike=(
        Alike(
            causes=("arch-too-old-for-wheel", "arch-too-new-for-wheel"),
            asks=alike.TORCHS_KERNELS,
            settled_by=("gpus", "kernels"),
            unless=alike.raised_by_an_extension,
        ),
    ),
    message=Message(
        title="{who} has no kernel for {gpu}",
        text="Build the extension anew for this GPU (or install its wheel for a newer release)",
        way=lambda context, text: Fix(
            text=text,
            commands=(
                *paste.build_for(context),
                *built_anew(context, _extension(context, _messages(context))),
            ),
        ),
        cases=(
            Message(
                where=(is_beside_torch,),
                text="Install the program's newest release, or build it with kernels for this GPU",
            ),
        ),
    ),
)
NO_KERNEL_IMAGE = Cause(
    id="no-kernel-image",
    symptom=True,
    likelier=(
        Likelier(
            cause="extension-arch-mismatch",
            shown=is_beside_torch,
            because="a program's own build has kernels for some GPUs only",
        ),
    ),
    place=(Layer.LIBRARIES, 100),
    title="a kernel for the GPU is missing, in torch or an extension",
    means="Neither the GPU nor who raised it is known.",
    proven_by="Error 209 (48, 8 and 98 in the older runtime) alone",
    not_when="extension-arch-mismatch, arch-too-new-for-wheel, arch-too-old-for-wheel",
    way_out="See which of them, then rebuild or reinstall",
    source=CUDA_RUNTIME,
    stage="first-kernel",
    alike=(
        Alike(
            causes=("arch-too-old-for-wheel", "arch-too-new-for-wheel", "extension-arch-mismatch"),
            asks=alike.TORCHS_KERNELS,
            settled_by=("kernels",),
        ),
    ),
    message=Message(
        title="torch, or an extension beside it, has no kernel for {gpu}",
        text="Install a torch made for this GPU; where torch itself works, build the extension "
        "anew",
        commands=("gpusetup install",),
        look=(
            "python -c \"import torch; print((torch.ones(9, device='cuda') * 2).sum().item())\"",
        ),
        see="see first which of them: a number means that torch works",
    ),
)


def no_kernel_image(context: RuleContext) -> Iterator[Finding]:
    """A kernel for this GPU is missing: in torch itself, or in an extension beside it."""
    said, kernels = _messages(context), context.snapshot.torch.kernels
    lacks = kernels and any(
        g.compute_capability and serving(context, g) is None for g in gpus(context)
    )
    if not said or lacks or events(context, "gpu-not-in-wheel"):
        return  # torch lacks it: the other rule says so
    module, known = _extension(context, said), _known(context)
    cause = EXTENSION_ARCH_MISMATCH if module or (kernels and known) else _by_age(context, known)
    gpu = which.names(context) if known else "this GPU"
    who = module or named(context) if cause.place == ARCH_TOO_NEW_FOR_WHEEL.place else module
    seen = (*said, *events(context, "extension-arch"), *_seen(context))
    yield finding(context, cause, seen, who=who or "an extension", gpu=gpu)


def _messages(context: RuleContext) -> tuple[Event, ...]:
    """Invalid device function and no binary for the GPU, in the numbers of both runtimes."""
    return (*events(context, "no-kernel-image"), *cuda_errors(context, 8, 48, 98, 209))


def _by_age(context: RuleContext, known: list[Capability]) -> Cause:
    """Where the wheel's kernels are not known, the GPU's age says which way it fails."""
    torch = context.snapshot.torch
    version = parsed(torch.version or "99")
    oldest, newest = Capability(7, 5), Capability(9, 0)  # what every wheel of the last years holds
    for row in context.catalog.older_kernels[::-1]:
        if version < parsed(row.before):
            oldest, newest = row.oldest, row.newest
    # Before 1.13 a release's default wheels were for CUDA 10.2, which ends with Turing.
    cuda, ten = cuda_needed(torch), Capability(7, 5)
    default = version < parsed("1.13")
    if not known or (default and cuda is None and newest >= max(known) > ten):
        return NO_KERNEL_IMAGE
    if default and parsed(cuda or "99") < parsed("11"):
        newest = ten
    if max(known) > newest:
        return ARCH_TOO_NEW_FOR_WHEEL
    return ARCH_TOO_OLD_FOR_WHEEL if min(known) < oldest else EXTENSION_ARCH_MISMATCH


def _extension(context: RuleContext, messages: tuple[Event, ...]) -> str | None:
    """The extension that raised it, or that was built for other architectures only."""
    raised = [event.values.get("module", "") for event in messages]
    own = [
        m for m in raised if m.partition(".")[0] not in ("", "torch", "aten", "c10", "functorch")
    ]
    installed = events(context, "extension-installed") if not gpus(context) else ()
    built = [e for e in events(context, "extension-arch") if not _built_for(context, e)]
    others = [event.values.get("module") or "an extension" for event in (*installed, *built)]
    return next(iter((*own, *others)), None)


def _built_for(context: RuleContext, said: Event) -> bool:
    """Whether a list such as `7.5 8.6` or `sm_75,sm_86` names every GPU; yes if none is known."""
    words = re.findall(r"(?<![\w.])(?:sm_\d+|\d+\.\d)(?![\w.])", said.values.get("arches", ""))
    listed = [Capability.parse(word) for word in words]
    return not listed or all(
        any(a.major == c.major and a <= c for a in listed) for c in _known(context)
    )


RULES = (
    arch_not_in_wheel,
    no_kernel_image,
)
