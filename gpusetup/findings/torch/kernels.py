"""Kernels: does the wheel, or an extension beside it, hold code for this GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

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
from gpusetup.evidence.wording import sentence
from gpusetup.findings.layers import Layer
from gpusetup.findings.programs import is_beside_torch
from gpusetup.findings.record import Cause
from gpusetup.findings.sources import CPP_EXTENSION, CUDA_RUNTIME, WHEELS
from gpusetup.findings.torch.build import version_evidence
from gpusetup.fixes import paste, which
from gpusetup.model.finding import Evidence, Finding, Fix
from gpusetup.model.machine import Event, Gpu, Torch, visible_gpus
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
)


ARCH_TOO_OLD_FOR_WHEEL = Cause(
    id="arch-too-old-for-wheel",
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
)


def arch_not_in_wheel(context: RuleContext) -> Iterator[Finding]:
    """A visible GPU that no kernel of the installed torch serves."""
    torch = context.snapshot.torch
    messages = events(context, "gpu-not-in-wheel")
    if messages:
        yield _said_unserved(context, messages)
    if board_of(context.snapshot):
        return  # jetson_wrong_wheel says it, with where its torch comes from
    old = gpus(context)
    if not messages and context.catalog.never_serves(old) and not is_beside_torch(context):
        yield ARCH_TOO_OLD_FOR_WHEEL.found(
            f"No torch serves {which.names(context)}",
            detail="It is older than the oldest GPU of torch's wheels; no driver, CUDA toolkit or "
            "other version of torch changes that.",
            evidence=_gpu_lines(old),
            fix=_other_wheel(context),
        )
        return
    # No order: a text may list the kernels and not the CUDA of its torch.
    if messages or not torch.kernels or not (is_cuda_build(torch) or is_report(context)):
        return
    known = tuple(gpu for gpu in visible_gpus(context.snapshot) if gpu.compute_capability)
    unserved = tuple(gpu for gpu in known if serving(context, gpu) is None)
    for cause, older in ((ARCH_TOO_OLD_FOR_WHEEL, True), (ARCH_TOO_NEW_FOR_WHEEL, False)):
        concerned = tuple(gpu for gpu in unserved if _is_older(torch, gpu) is older)
        if concerned:
            yield _unserved(context, cause, concerned)


def _said_unserved(context: RuleContext, messages: tuple[Event, ...]) -> Finding:
    """torch's own warning, which names the GPU and at times the kernels."""
    values = max(messages, key=lambda event: len(event.values)).values
    older = _said_older(context, values)
    side = "older" if older else "newer"
    name, capability = values.get("gpu") or which.names(context), values.get("capability")
    cause = ARCH_TOO_OLD_FOR_WHEEL if older else ARCH_TOO_NEW_FOR_WHEEL
    who = context.snapshot.failing.program if is_beside_torch(context) else None
    build = who or f"torch {context.snapshot.torch.version or ''}".strip()
    return cause.found(
        f"{build} has no kernels for {name}"
        + (f" ({capability})" if capability else "")
        + f": the GPU is {side} than what it was built for",
        evidence=(*event_evidence(messages), *version_evidence(context)),
        fix=_other_wheel(context),
    )


def _said_older(context: RuleContext, values: Mapping[str, str]) -> bool:
    """Which side the GPU stands on: by its capability and the kernels, else as the words say."""
    known = [Capability.parse(k) for k in readable(tuple(values.get("kernels", "").split()))]
    known += [Capability.parse(k) for k in readable(context.snapshot.torch.kernels or ())]
    stated = _capability(values.get("capability", ""))
    listed = [g.compute_capability for g in gpus(context) if g.compute_capability]
    own = stated or min(listed, default=None)
    if known and own:
        return own < max(known)
    return values.get("side", "").startswith("old")


def _capability(text: str) -> Capability | None:
    try:
        return Capability.parse(text)
    except ValueError:
        return None


def _other_wheel(context: RuleContext) -> Fix:
    """The torch that serves the GPU; where none does, what can be done without."""
    build = paste.chosen(context)
    if build is not None and build.backend != "cpu":
        return paste.install_torch(context)
    known = all(gpu.compute_capability for gpu in visible_gpus(context.snapshot))
    if build is None and known and context.resolution.advice is not None:
        return paste.install_torch(context)
    return Fix(
        text="No wheel in the catalog serves this GPU: use the CPU build, a newer or a rented GPU"
        + ("" if context.catalog.never_serves(gpus(context)) else ", or a torch built from source"),
        commands=(paste.gpusetup(context, "--backend", "cpu"),),
    )


def _is_older(torch: Torch, gpu: Gpu) -> bool:
    """Whether the GPU stands below the wheel's oldest kernel, or in a gap under its newest."""
    known = [Capability.parse(kernel) for kernel in readable(torch.kernels or ())]
    return (
        bool(known) and gpu.compute_capability is not None and gpu.compute_capability < max(known)
    )


def _unserved(context: RuleContext, cause: Cause, concerned: tuple[Gpu, ...]) -> Finding:
    torch = context.snapshot.torch
    gpu = concerned[0]
    capability = gpu.compute_capability
    assert capability is not None
    side = "older" if cause is ARCH_TOO_OLD_FOR_WHEEL else "newer"
    names = one_of(tuple(g.name for g in concerned))
    return cause.found(
        f"torch {torch.version or 'here'} has no kernels for {names} ({capability.sm}): the GPU is "
        f"{side} than what it was built for",
        detail="What works on a CPU fails on the GPU with `no kernel image is available for "
        f"execution on the device`.{_and_dropped(context, capability)}",
        evidence=(
            value_evidence(context, "torch.kernels", f"kernels: {' '.join(torch.kernels or ())}"),
            value_evidence(context, "gpus", f"{gpu.name}: compute capability {capability}"),
        ),
        fix=_other_wheel(context),
    )


def _and_dropped(context: RuleContext, capability: Capability) -> str:
    because = context.catalog.why_dropped(capability, context.snapshot.torch.version or "0")
    return f" {sentence(because)}." if because else ""


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
)


NO_KERNEL_IMAGE = Cause(
    id="no-kernel-image",
    symptom=True,
    place=(Layer.LIBRARIES, 100),
    title="a kernel for the GPU is missing, in torch or an extension",
    means="Neither the GPU nor who raised it is known.",
    proven_by="Error 209 (48, 8 and 98 in the older runtime) alone",
    not_when="extension-arch-mismatch, arch-too-new-for-wheel, arch-too-old-for-wheel",
    way_out="See which of them, then rebuild or reinstall",
    source=CUDA_RUNTIME,
)


def no_kernel_image(context: RuleContext) -> Iterator[Finding]:
    """A kernel for this GPU is missing: in torch itself, or in an extension beside it."""
    messages = (*events(context, "no-kernel-image"), *cuda_errors(context, *NO_IMAGE))
    if messages and not _torch_lacks_it(context):
        cause = _who_lacks_the_kernel(context, messages)
        yield _no_kernel(context, cause, messages)


def _torch_lacks_it(context: RuleContext) -> bool:
    """Whether another finding says it already: torch's kernels and the GPU are known."""
    known = [g for g in gpus(context) if g.compute_capability]
    kernels = context.snapshot.torch.kernels
    lacks = kernels and known and any(serving(context, gpu) is None for gpu in known)
    return bool(lacks) or bool(events(context, "gpu-not-in-wheel"))


def _who_lacks_the_kernel(context: RuleContext, messages: tuple[Event, ...]) -> Cause:
    known = [g for g in gpus(context) if g.compute_capability]
    if _extension(context, messages) or (context.snapshot.torch.kernels and known):
        return EXTENSION_ARCH_MISMATCH
    return _by_age(context, known)


def _by_age(context: RuleContext, known: list[Gpu]) -> Cause:
    """Where the wheel's kernels are not known, the GPU's age says which way it fails."""
    torch = context.snapshot.torch
    capabilities = [g.compute_capability for g in known if g.compute_capability]
    oldest, newest = _usual_range(context, torch)
    if not capabilities:
        return NO_KERNEL_IMAGE
    if _may_be_for_cuda_10(torch) and newest >= max(capabilities) > LAST_OF_CUDA_10:
        return NO_KERNEL_IMAGE
    if max(capabilities) > newest:
        return ARCH_TOO_NEW_FOR_WHEEL
    if min(capabilities) < oldest:
        return ARCH_TOO_OLD_FOR_WHEEL
    return EXTENSION_ARCH_MISMATCH


LAST_OF_CUDA_10 = Capability(7, 5)


def _may_be_for_cuda_10(torch: Torch) -> bool:
    """A release whose default wheels were for CUDA 10.2, and no word on its CUDA."""
    old = torch.version is not None and parsed(torch.version) < parsed("1.13")
    return old and cuda_needed(torch) is None


def _usual_range(context: RuleContext, torch: Torch) -> tuple[Capability, Capability]:
    if torch.version is None:
        return IN_EVERY_WHEEL
    needed = cuda_needed(torch)
    for row in context.catalog.older_kernels:
        if parsed(torch.version) < parsed(row.before):
            old_cuda = needed is not None and parsed(needed) < parsed("11")
            return row.oldest, LAST_OF_CUDA_10 if old_cuda else row.newest
    return IN_EVERY_WHEEL


def _extension(context: RuleContext, messages: tuple[Event, ...]) -> str | None:
    """The extension that raised it, or that was built for other architectures only."""
    for event in messages:
        module = event.values.get("module", "")
        if module and module.partition(".")[0] not in TORCH_ITSELF:
            return module
    for event in events(context, "extension-installed") if not gpus(context) else ():
        return event.values.get("module") or "an extension"
    for event in events(context, "extension-arch"):
        if not _built_for(context, event.values.get("arches", "")):
            return event.values.get("module") or "an extension"
    return None


def _built_for(context: RuleContext, arches: str) -> bool:
    """Whether a list such as `7.5 8.6` or `sm_75,sm_86` names every GPU; yes if none is known."""
    listed = set()
    for word in arches.replace(",", " ").replace(";", " ").split():
        try:
            listed.add(Capability.parse(word.partition("+")[0]))
        except ValueError:
            continue
    known = [g.compute_capability for g in gpus(context) if g.compute_capability]
    return not listed or all(any(a.major == c.major and a <= c for a in listed) for c in known)


def _no_kernel(context: RuleContext, cause: Cause, messages: tuple[Event, ...]) -> Finding:
    known = [g for g in gpus(context) if g.compute_capability]
    of = one_of(tuple(f"{g.name} ({g.compute_capability})" for g in known)) or "this GPU"
    if cause is EXTENSION_ARCH_MISMATCH:
        module = _extension(context, messages) or "an extension"
        title = f"{module} has no kernel for {of}" + ("; torch itself supports it" if known else "")
        fix = _rebuild(context, module)
    elif cause is NO_KERNEL_IMAGE:
        title = "torch, or an extension beside it, has no kernel for this GPU"
        compute = "import torch; print((torch.ones(9, device='cuda') * 2).sum().item())"
        ask = paste.command(context, paste.python(context), "-c", compute)
        title_of_ask = "see first which of them: a number means that torch works, and that an "
        title_of_ask += "extension beside it must be built anew"
        fix = Fix(
            text="Install a torch made for this GPU; where torch itself works, build the extension "
            "anew",
            commands=(paste.gpusetup_install(context),),
            looks=paste.look(title_of_ask, ask),
        )
    else:
        side = "newer" if cause is ARCH_TOO_NEW_FOR_WHEEL else "older"
        who = context.snapshot.failing.program if is_beside_torch(context) else None
        title = f"{who or 'The installed torch'} has no kernel for {of}: the GPU is {side} than it "
        title += "was built for"
        fix = paste.install_torch(context)
    built = events(context, "extension-arch")
    evidence = (*event_evidence(messages), *event_evidence(built), *_gpu_lines(known))
    return cause.found(title, evidence=evidence, fix=fix)


def _gpu_lines(known: Sequence[Gpu]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(source="catalog", text=f"{g.name}: compute capability {g.compute_capability}")
        for g in known[:2]
    )


def _rebuild(context: RuleContext, module: str) -> Fix:
    from gpusetup.findings.libraries.distributions import distribution_of

    if is_beside_torch(context):
        return Fix(
            text="Install the program's newest release, or build it with kernels for this GPU"
        )
    anew = ("install", "--no-build-isolation", "--no-deps", paste.anew(context), "--no-cache-dir")
    source = distribution_of(module) if module != "an extension" else None
    return Fix(
        text="Build the extension anew for this GPU (or install its wheel for a newer release)",
        commands=(
            *paste.build_for(context),
            *((paste.pip(context, *anew, source),) if source else ()),
        ),
    )


RULES = (
    arch_not_in_wheel,
    no_kernel_image,
)
