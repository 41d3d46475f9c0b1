"""Kernels: does the wheel, or an extension beside it, hold code for this GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpusetup.catalog.jetpack import board_of
from gpusetup.catalog.kernels import readable
from gpusetup.evidence.context import (
    RuleContext,
    cuda_errors,
    cuda_needed,
    event_evidence,
    events,
    gpus,
    is_cuda_build,
    is_report,
    one_of,
    serving,
    value_evidence,
)
from gpusetup.findings import alike
from gpusetup.findings.layers import Layer
from gpusetup.findings.libraries.distributions import built_anew
from gpusetup.findings.programs import is_beside_torch
from gpusetup.findings.record import Alike, Cause, Likelier
from gpusetup.findings.sources import CPP_EXTENSION, CUDA_RUNTIME, WHEELS
from gpusetup.findings.torch.build import named, version_evidence
from gpusetup.fixes import paste, which
from gpusetup.model.finding import Evidence, Finding, Fix
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
)


def arch_not_in_wheel(context: RuleContext) -> Iterator[Finding]:
    """A visible GPU that no kernel of the installed torch serves."""
    torch = context.snapshot.torch
    messages = events(context, "gpu-not-in-wheel")
    kernels = _capabilities(torch.kernels or ())
    if messages:
        values = max(messages, key=lambda event: len(event.values)).values
        name, older = values.get("gpu") or which.names(context), _said_older(context, values)
        evidence = (*event_evidence(messages), *version_evidence(context))
        yield _unserved(context, name, evidence, older=older)
    elif board_of(context.snapshot):
        return  # jetson_wrong_wheel says it, with where its torch comes from
    elif context.catalog.never_serves(gpus(context)) and not is_beside_torch(context):
        yield _unserved(context, which.names(context), _gpu_lines(context), older=True)
    # No order: a text may list the kernels and not the CUDA of its torch.
    elif kernels and (is_cuda_build(torch) or is_report(context)):
        for older in (True, False):
            concerned = tuple(
                g.name
                for g in visible_gpus(context.snapshot)
                if (own := g.compute_capability)
                and serving(context, g) is None
                and (own < max(kernels)) is older
            )
            if concerned:
                yield _unserved(context, one_of(concerned), _gpu_lines(context), older=older)


def _unserved(
    context: RuleContext, name: str, evidence: tuple[Evidence, ...], *, older: bool
) -> Finding:
    who = context.snapshot.failing.program if is_beside_torch(context) else named(context)
    side = "older" if older else "newer"
    cause = ARCH_TOO_OLD_FOR_WHEEL if older else ARCH_TOO_NEW_FOR_WHEEL
    return cause.found(
        f"{who} has no kernels for {name}: the GPU is {side} than what it was built for",
        evidence=evidence,
        fix=_other_wheel(context),
    )


def _capabilities(kernels: tuple[str, ...]) -> list[Capability]:
    return [Capability.parse(kernel) for kernel in readable(kernels)]


def _said_older(context: RuleContext, values: Mapping[str, str]) -> bool:
    """Which side the GPU stands on: by its capability and the kernels, else as the words say."""
    known = _capabilities(tuple(values.get("kernels", "").split()))
    known += _capabilities(context.snapshot.torch.kernels or ())
    stated = re.fullmatch(r"\d+\.\d", values.get("capability", ""))
    own = [Capability.parse(stated[0])] if stated else _known(context)
    if known and own:
        return min(own) < max(known)
    return values.get("side", "").startswith("old")


def _known(context: RuleContext) -> list[Capability]:
    return [g.compute_capability for g in gpus(context) if g.compute_capability]


def _gpu_lines(context: RuleContext) -> tuple[Evidence, ...]:
    of = ((g.name, g.compute_capability) for g in gpus(context)[:2] if g.compute_capability)
    kernels = " ".join(context.snapshot.torch.kernels or ())
    built = (value_evidence(context, "torch.kernels", f"kernels: {kernels}"),) if kernels else ()
    text = "{}: compute capability {}"
    return (*built, *(Evidence(source="catalog", text=text.format(*one)) for one in of))


def _other_wheel(context: RuleContext) -> Fix:
    """The torch that serves the GPU; where none does, what can be done without."""
    build = paste.chosen(context)
    known = all(gpu.compute_capability for gpu in visible_gpus(context.snapshot))
    if build.backend != "cpu" if build else known and context.resolution.advice:
        return paste.install_torch(context)
    return Fix(
        text="No wheel in the catalog serves this GPU: use the CPU build, a newer or a rented GPU"
        + ("" if context.catalog.never_serves(gpus(context)) else ", or a torch built from source"),
        commands=(paste.gpusetup(context, "--backend", "cpu"),),
    )


TORCH_ITSELF = ("torch", "aten", "c10", "functorch")
IN_EVERY_WHEEL = (Capability(7, 5), Capability(9, 0))
"""Turing to Hopper: wheels of the last years hold a kernel for each of them."""


NO_IMAGE = (8, 48, 98, 209)
"""Invalid device function and no binary for the GPU, in the numbers of both runtimes."""


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
)


def no_kernel_image(context: RuleContext) -> Iterator[Finding]:
    """A kernel for this GPU is missing: in torch itself, or in an extension beside it."""
    messages = (*events(context, "no-kernel-image"), *cuda_errors(context, *NO_IMAGE))
    kernels, known = context.snapshot.torch.kernels, _known(context)
    lacks = kernels and any(
        g.compute_capability and serving(context, g) is None for g in gpus(context)
    )
    if not messages or lacks or events(context, "gpu-not-in-wheel"):
        return  # torch lacks it: the other rule says so
    module = _extension(context, messages)
    cause = EXTENSION_ARCH_MISMATCH if module or (kernels and known) else _by_age(context, known)
    built = events(context, "extension-arch")
    evidence = (*event_evidence(messages), *event_evidence(built), *_gpu_lines(context))
    if cause in (ARCH_TOO_NEW_FOR_WHEEL, ARCH_TOO_OLD_FOR_WHEEL):
        older = cause is ARCH_TOO_OLD_FOR_WHEEL
        yield _unserved(context, which.names(context), evidence, older=older)
        return
    who = module or (
        "torch, or an extension beside it," if cause is NO_KERNEL_IMAGE else "an extension"
    )
    yield cause.found(
        f"{who} has no kernel for {which.names(context) if known else 'this GPU'}",
        evidence=evidence,
        fix=_either(context) if cause is NO_KERNEL_IMAGE else _rebuild(context, module),
    )


def _either(context: RuleContext) -> Fix:
    compute = "import torch; print((torch.ones(9, device='cuda') * 2).sum().item())"
    return Fix(
        text="Install a torch made for this GPU; where torch itself works, build the extension "
        "anew",
        commands=(paste.gpusetup_install(context),),
        looks=paste.look(
            "see first which of them: a number means that torch works",
            paste.command(context, paste.python(context), "-c", compute),
        ),
    )


def _by_age(context: RuleContext, known: list[Capability]) -> Cause:
    """Where the wheel's kernels are not known, the GPU's age says which way it fails."""
    torch = context.snapshot.torch
    oldest, newest = IN_EVERY_WHEEL
    version = parsed(torch.version or "99")
    older = [row for row in context.catalog.older_kernels if version < parsed(row.before)]
    if older:
        oldest, newest = older[0].oldest, older[0].newest
    cuda = cuda_needed(torch)
    ten = older and version < parsed("1.13") and (cuda is None or parsed(cuda) < parsed("11"))
    if not known or (ten and cuda is None and newest >= max(known) > LAST_OF_CUDA_10):
        return NO_KERNEL_IMAGE
    if max(known) > (LAST_OF_CUDA_10 if ten and cuda else newest):
        return ARCH_TOO_NEW_FOR_WHEEL
    return ARCH_TOO_OLD_FOR_WHEEL if min(known) < oldest else EXTENSION_ARCH_MISMATCH


LAST_OF_CUDA_10 = Capability(7, 5)
"""Before 1.13 a release's default wheels were for CUDA 10.2."""


def _extension(context: RuleContext, messages: tuple[Event, ...]) -> str | None:
    """The extension that raised it, or that was built for other architectures only."""
    modules = (event.values.get("module", "") for event in messages)
    raised = [m for m in modules if m and m.partition(".")[0] not in TORCH_ITSELF]
    installed = events(context, "extension-installed") if not gpus(context) else ()
    built = (
        event
        for event in events(context, "extension-arch")
        if not _built_for(context, event.values.get("arches", ""))
    )
    others = (event.values.get("module") or "an extension" for event in (*installed, *built))
    return next(iter((*raised, *others)), None)


def _built_for(context: RuleContext, arches: str) -> bool:
    """Whether a list such as `7.5 8.6` or `sm_75,sm_86` names every GPU; yes if none is known."""
    listed = [
        Capability.parse(word)
        for word in re.findall(r"(?<![\w.])(?:sm_\d+|\d+\.\d)(?![\w.])", arches)
    ]
    return not listed or all(
        any(a.major == c.major and a <= c for a in listed) for c in _known(context)
    )


def _rebuild(context: RuleContext, module: str | None) -> Fix:
    if is_beside_torch(context):
        return Fix(
            text="Install the program's newest release, or build it with kernels for this GPU"
        )
    return Fix(
        text="Build the extension anew for this GPU (or install its wheel for a newer release)",
        commands=(*paste.build_for(context), *built_anew(context, module)),
    )


RULES = (
    arch_not_in_wheel,
    no_kernel_image,
)
