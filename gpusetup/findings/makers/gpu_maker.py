"""Whose GPU it is: Apple's, AMD's, Intel's, or none at all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from gpusetup.accelerators.makers import BY_WORD, is_seen_only, maker_of, other_maker
from gpusetup.evidence.context import (
    RuleContext,
    asked_for_cuda,
    event_evidence,
    events,
    has_nvidia,
    in_container,
    is_report,
    on,
    value_evidence,
)
from gpusetup.findings.layers import Layer
from gpusetup.findings.programs import is_beside_torch
from gpusetup.findings.record import Cause
from gpusetup.fixes import other_makers, paste
from gpusetup.model.finding import Evidence, Finding, Fix
from gpusetup.model.shell import Line


def serves_its_maker(context: RuleContext) -> bool:
    """Whether the installed torch is for the GPU that is there, as far as its files say: ROCm's
    beside AMD's, XPU's beside Intel's, the ordinary one on a Mac. A text complains of something."""
    torch = context.snapshot.torch
    # No order: whoever sends a text has a complaint, so a fitting build proves nothing.
    if is_report(context) or not torch.installed or torch.import_error or context.snapshot.gpus:
        return False
    if events(context, *LOOKED_FOR_CUDA):
        return False
    if _apple(context):
        return True
    on_bus = {device.vendor for device in context.snapshot.pci_devices or ()}
    maker = maker_of(torch.backend)
    return is_seen_only(maker) and maker in on_bus


APPLE_SILICON = Cause(
    id="apple-silicon",
    place=(Layer.NO_GPU, 10),
    title="a Mac with an Apple GPU: there is no CUDA",
    means="Apple's GPUs are used by torch as device mps; CUDA builds do not exist for macOS.",
    proven_by="macOS on arm64",
    way_out="Use device mps or cpu; the ordinary wheel has both",
    source="torch documentation, MPS backend",
)


def apple_silicon(context: RuleContext) -> Iterator[Finding]:
    """A Mac with an Apple GPU: there is no CUDA."""
    if _apple(context):
        in_passing = (
            _cuda_runs(context) or serves_its_maker(context) or _shows_its_paths_alone(context)
        )
        yield _as_grave(context, APPLE_SILICON, in_passing=in_passing)(
            f"This is a Mac{' with an Apple GPU' if context.snapshot.os.machine else ''}: "
            "there is no CUDA",
            evidence=(
                *event_evidence(events(context, *LOOKED_FOR_CUDA)),
                value_evidence(
                    context, "os.machine", f"macOS on {context.snapshot.os.machine or 'a Mac'}"
                ),
            ),
            fix=other_makers.apple(context),
        )


def no_nvidia_gpu(context: RuleContext) -> Iterator[Finding]:
    """No NVIDIA GPU: and who made the one that is there."""
    machine = context.snapshot
    foreign = is_seen_only(maker_of(machine.torch.backend))
    looked = foreign or bool(events(context, *OF_ANOTHER_MAKER, "gpu-not-chosen"))
    looked = looked or (bool(events(context, "program-lib-missing")) and _has_a_card(context))
    unknown = has_nvidia(context) is None and not machine.driver.version
    absent = has_nvidia(context) is False or (looked and unknown)
    if not absent or _apple(context):
        return
    yield from _other_maker(context, _makers(context))


def _makers(context: RuleContext) -> set[str]:
    """Who made the GPUs that are there."""
    on_bus = {device.vendor for device in context.snapshot.pci_devices or ()}
    named = {e.values.get("vendor", "") for e in events(context, "foreign-gpu")}
    listed = {other_maker(gpu.name) or "" for gpu in context.snapshot.gpus or ()}
    return {BY_WORD.get(one, one) for one in on_bus | named | listed}


def _apple(context: RuleContext) -> bool:
    """A Mac whose machine is Apple's, or one of which a text says only that it is a Mac."""
    # No order: a live machine always knows its architecture.
    own = ("aarch64", "arm64", *((None,) if is_report(context) else ()))
    metal = bool(events(context, "mps-lacks")) and has_nvidia(context) is not True
    # No order: where a notebook is lent, the Mac is what its user sits at.
    lent = is_report(context) and events(context, "hosted-notebook")
    if lent and not events(context, *LOOKED_FOR_CUDA):
        return False
    return metal or (on(context, "macos") and context.snapshot.os.machine in own)


# No order: these events prove that a program wanted CUDA, which makes its absence a failure.
OF_ANOTHER_MAKER = ("no-hip-gpus", "hip-kernel-missing", "no-xpu")

LOOKED_FOR_CUDA = (
    "mps-lacks",
    "gpu-not-chosen",
    "hip-kernel-missing",
    "torch-not-compiled-with-cuda",
    "no-nvidia-driver",
    "no-nvidia-gpu",
    "cuda-unavailable",
    "no-hip-gpus",
    "no-xpu",
    "foreign-gpu",
    "cuda-toolkit-missing",
)

STOPS_EARLIER = (
    "no-matching-distribution",
    "python-no-wheel",
    "wheel-not-supported",
    "no-wheel-for-platform",
    "wrong-index",
    "resolver-conflict",
    "conda-not-found",
    "pip-cache-disk-full",
    "download-hash-mismatch",
    "download-network-error",
    "build-isolation-no-torch",
    "module-shadowed",
    "numpy-abi-mismatch",
    "torch-missing",
    "glibc-too-old",
    "ld-library-path-conflict",
    "extension-abi-mismatch",
    "torchvision-mismatch",
    "torchaudio-mismatch",
    "windows-dll-missing",
    "windows-pagefile-too-small",
)
"""Events of programs that fail with any GPU or none: then its absence is only worth knowing.

The order of causes cannot say it: a machine without torch lacks its GPU first, while a text in
which an installer finds no torch is not about a GPU at all."""


def _as_grave(context: RuleContext, cause: Cause, *, in_passing: bool) -> Callable[..., Finding]:
    in_passing = in_passing or bool(events(context, *STOPS_EARLIER))
    return cause.as_note if in_passing else cause.found


CUDA_RAN = ("out-of-memory", "no-kernel-image")
"""What only a program with CUDA and an NVIDIA GPU says."""


NOT_READY = 802
"""The code of a board with NVSwitch, which no Mac has."""


def _cuda_runs(context: RuleContext) -> bool:
    """A text of a Mac and of another machine, or of a Mac with an NVIDIA GPU: CUDA ran there."""
    return is_report(context) and (
        context.snapshot.torch.cuda_available is True
        or bool(events(context, *CUDA_RAN))
        or context.snapshot.cuda_api.init_code == NOT_READY
    )


def _shows_its_paths_alone(context: RuleContext) -> bool:
    """A text with a Mac's paths in a traceback, in which nothing looked for a GPU of any kind."""
    # No order: a text that names its system, or CUDA, complains of it.
    machine = context.snapshot
    told = machine.os.machine or machine.os.name or machine.torch.version or asked_for_cuda(context)
    program = machine.failing.program or events(context, *LOOKED_FOR_CUDA)
    by_a_path = machine.python.version is not None  # the folder of a traceback names both
    return is_report(context) and by_a_path and not (told or program)


def _nobody_complains(context: RuleContext) -> bool:
    """A text that shows a build for another maker's GPU, and nothing that looked in vain."""
    machine = context.snapshot
    listed = machine.pci_devices or machine.gpus
    if not is_report(context) or events(context, *LOOKED_FOR_CUDA):
        return False
    works = machine.torch.cuda_available if not machine.cuda_api.init_code else False
    return works is True or (works is None and not listed)


IMAGE = (
    "; `gpusetup doctor --for-gpu NAME --for-driver VERSION` judges this image for its host instead"
)
NO_NVIDIA_GPU = Cause(
    id="no-nvidia-gpu",
    place=(Layer.NO_GPU, 10),
    title="the machine has no NVIDIA GPU",
    means="CUDA needs an NVIDIA GPU; torch's CPU build works without one.",
    proven_by="A PCI bus without NVIDIA's vendor id, no driver, no GPU listed",
    not_when="A container that was not given its host's GPU; a GPU that is there without its "
    "driver",
    way_out="Use the CPU build, or another machine",
    source="PCI ids: vendor 10de",
)


AMD_GPU = Cause(
    id="amd-gpu",
    place=(Layer.NO_GPU, 10),
    title="the GPU is AMD's",
    means="CUDA builds do not use it; ROCm builds exist for Linux.",
    proven_by="An AMD display controller and none of NVIDIA, or a ROCm build without an NVIDIA GPU",
    not_when="A ROCm build on a machine that has an NVIDIA GPU",
    way_out="Install the ROCm build where ROCm supports the GPU",
    source="torch's index, labels rocm*",
)


INTEL_GPU = Cause(
    id="intel-gpu",
    place=(Layer.NO_GPU, 10),
    title="the GPU is Intel's and torch an XPU build",
    means="No prescription for NVIDIA applies.",
    proven_by="An XPU build of torch and no NVIDIA GPU",
    not_when="An Intel GPU beside an NVIDIA one",
    way_out="Use device xpu",
    source="torch documentation, XPU backend",
)


def _other_maker(context: RuleContext, vendors: set[str]) -> Iterator[Finding]:
    maker = maker_of(context.snapshot.torch.backend)
    quiet = _nobody_complains(context) or serves_its_maker(context)
    listed = event_evidence(events(context, *LOOKED_FOR_CUDA)) + tuple(
        value_evidence(
            context,
            "pci_devices",
            f"{d.vendor} {d.name or d.device_id or 'device'} at {d.bus_id or 'PCI'}",
        )
        for d in context.snapshot.pci_devices or ()
    ) or (_nothing_listed(context),)
    amd = "amd" in (maker, *vendors) or events(context, "no-hip-gpus", "hip-kernel-missing")
    if amd:
        yield _as_grave(context, AMD_GPU, in_passing=quiet)(
            _unused(context, "AMD"),
            evidence=listed,
            fix=other_makers.amd(context),
        )
    elif maker == "intel" or events(context, "no-xpu") or _has_arc(context):
        yield _as_grave(context, INTEL_GPU, in_passing=quiet)(
            _unused(context, "Intel"),
            evidence=listed,
            fix=other_makers.intel(context),
        )
    else:
        yield _as_grave(context, NO_NVIDIA_GPU, in_passing=quiet)(
            "This machine has no NVIDIA GPU",
            detail="Training on the CPU works, slowly.",
            evidence=listed,
            fix=Fix(
                text="Use the CPU build of torch here, or go to a machine with an NVIDIA GPU"
                + (IMAGE if in_container(context) else ""),
                commands=_cpu_commands(context),
            ),
        )


def _has_a_card(context: RuleContext) -> bool:
    """A card of another maker's that somebody names, and not what many processors have."""
    named = [event.values.get("name", "") for event in events(context, "foreign-gpu")]
    return any(re.search(r"\bArc\b|\b[Rr][Xx] ?\d{4}|\bInstinct\b", name) for name in named)


def _has_arc(context: RuleContext) -> bool:
    """A card of Intel's, and not the graphics that most of its processors have."""
    names = (event.values.get("name", "") for event in events(context, "foreign-gpu"))
    return any(re.search(r"\bArc\b|(?:A[357]|B5)\d0", name) for name in names)


def _unused(context: RuleContext, maker: str) -> str:
    """Whose GPU it is, and what that means to the program that a text is about."""
    own = maker_of(context.snapshot.torch.backend)
    if is_beside_torch(context):
        name = context.snapshot.failing.program
        return f"The GPU is {maker}'s: what {name} has for CUDA does not use it"
    if own and own == {"AMD": "amd", "Intel": "intel"}[maker]:
        return f"The GPU is {maker}'s, and torch's build is made for it; CUDA is not used"
    return f"The GPU is {maker}'s: CUDA builds of torch do not use it"


def _nothing_listed(context: RuleContext) -> Evidence:
    if on(context, "macos"):
        return value_evidence(
            context, "os.family", "macOS, for which NVIDIA's last driver is of 2018"
        )
    torch = context.snapshot.torch
    if context.snapshot.pci_devices is None and torch.version:
        return value_evidence(context, "torch.version", f"torch {torch.version}")
    return value_evidence(context, "pci_devices", "no display controller of NVIDIA on the PCI bus")


def _cpu_commands(context: RuleContext) -> tuple[Line, ...]:
    """How to get the CPU build, unless a torch that works on the CPU is there."""
    torch = context.snapshot.torch
    speaks = is_report(context) and bool(events(context, "cuda-error"))
    if torch.installed or torch.version or speaks:
        return ()
    build = paste.chosen(context)
    asked = ("--torch", build.torch) if build and context.snapshot.wanted.torch else ()
    return (paste.gpusetup(context, *asked, "--backend", "cpu"),)


RULES = (apple_silicon, no_nvidia_gpu)
