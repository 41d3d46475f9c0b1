"""Whose GPU it is: Apple's, AMD's, Intel's, or none at all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from gpusetup.accelerators.makers import is_seen_only, maker_of
from gpusetup.evidence.context import (
    RuleContext,
    event_evidence,
    events,
    has_nvidia,
    in_container,
    is_report,
    on,
    value_evidence,
)
from gpusetup.evidence.places import gpu_is_listed
from gpusetup.findings import alike
from gpusetup.findings.layers import Layer
from gpusetup.findings.record import Alike, Cause
from gpusetup.fixes import other_makers, paste
from gpusetup.model.finding import Finding, Fix
from gpusetup.model.shell import Line
from gpusetup.resolver.held import vendors_of


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
        machine = context.snapshot.os.machine or "a Mac"
        yield _as_grave(context, APPLE_SILICON, in_passing=in_passing)(
            "This is a Mac: there is no CUDA",
            evidence=(
                *event_evidence(events(context, *LOOKED_FOR_CUDA)),
                value_evidence(context, "os.machine", f"macOS on {machine}"),
            ),
            fix=other_makers.apple(context),
        )


def no_nvidia_gpu(context: RuleContext) -> Iterator[Finding]:
    """No NVIDIA GPU: and who made the one that is there."""
    machine = context.snapshot
    named = " ".join(e.values.get("name", "") for e in events(context, "foreign-gpu"))
    # A card of another maker's that somebody names, and not what many processors have.
    card = re.search(r"\bArc\b|\b[Rr][Xx] ?\d{4}|\bInstinct\b", named)
    looked = (
        is_seen_only(maker_of(machine.torch.backend))
        or events(context, *OF_ANOTHER_MAKER, "gpu-not-chosen")
        or (card and events(context, "program-lib-missing"))
    )
    unknown = has_nvidia(context) is None and not machine.driver.version
    absent = has_nvidia(context) is False or (looked and unknown)
    if absent and not _apple(context):
        yield from _other_maker(context, named)


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


def _cuda_runs(context: RuleContext) -> bool:
    """A text of a Mac and of another machine, or of a Mac with an NVIDIA GPU: CUDA ran there."""
    ran = context.snapshot.torch.cuda_available or events(context, *CUDA_RAN)
    return is_report(context) and bool(ran)


def _shows_its_paths_alone(context: RuleContext) -> bool:
    """A text with a Mac's paths in a traceback, in which nothing looked for a GPU of any kind."""
    # No order: a text that names its system, or CUDA, complains of it.
    machine = context.snapshot
    named = machine.os.machine or machine.os.name or machine.torch.version
    told = named or machine.failing.program or events(context, *LOOKED_FOR_CUDA)
    by_a_path = machine.python.version is not None  # the folder of a traceback names both
    return is_report(context) and by_a_path and not told


def _nobody_complains(context: RuleContext) -> bool:
    """A text that shows a build for another maker's GPU, and nothing that looked in vain."""
    machine = context.snapshot
    listed = machine.pci_devices or machine.gpus
    if not is_report(context) or events(context, *LOOKED_FOR_CUDA) or machine.cuda_api.init_code:
        return False
    works = machine.torch.cuda_available
    return works is True or (works is None and not listed)


IMAGE = (
    "; `gpusetup doctor --for-gpu NAME --for-driver VERSION` judges this image for its host instead"
)
NO_NVIDIA_GPU = Cause(
    id="no-nvidia-gpu",
    lacks="gpu",
    impossible=(gpu_is_listed,),
    place=(Layer.NO_GPU, 10),
    title="the machine has no NVIDIA GPU",
    means="CUDA needs an NVIDIA GPU; torch's CPU build works without one.",
    proven_by="A PCI bus without NVIDIA's vendor id, no driver, no GPU listed",
    not_when="A container that was not given its host's GPU; a GPU that is there without its "
    "driver",
    way_out="Use the CPU build, or another machine",
    source="PCI ids: vendor 10de",
    alike=(
        Alike(
            causes=("driver-missing", "container-no-gpu"),
            asks=alike.ON_THE_BUS,
            settled_by=("gpus", "bus"),
            unless=alike.is_a_notebooks,
        ),
    ),
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


def _other_maker(context: RuleContext, named: str) -> Iterator[Finding]:
    maker = maker_of(context.snapshot.torch.backend)
    quiet = _nobody_complains(context) or serves_its_maker(context)
    seen = tuple(
        value_evidence(context, "pci_devices", f"{d.vendor} {d.name or d.device_id} at {d.bus_id}")
        for d in context.snapshot.pci_devices or ()
    )
    none = value_evidence(context, "pci_devices", "no GPU of NVIDIA's is listed")
    listed = (*event_evidence(events(context, *LOOKED_FOR_CUDA)), *seen) or (none,)
    if "amd" in (maker, *vendors_of(context.snapshot)) or events(context, *OF_ANOTHER_MAKER[:2]):
        yield _as_grave(context, AMD_GPU, in_passing=quiet)(
            "The GPU is AMD's: CUDA is not used", evidence=listed, fix=other_makers.amd(context)
        )
    elif maker == "intel" or events(context, "no-xpu") or re.search(other_makers.ARC, named):
        yield _as_grave(context, INTEL_GPU, in_passing=quiet)(
            "The GPU is Intel's: CUDA is not used", evidence=listed, fix=other_makers.intel(context)
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


def _cpu_commands(context: RuleContext) -> tuple[Line, ...]:
    """How to get the CPU build, unless a torch that works on the CPU is there."""
    torch = context.snapshot.torch
    speaks = is_report(context) and events(context, "cuda-error")
    if torch.installed or torch.version or speaks:
        return ()
    build = paste.chosen(context)
    asked = ("--torch", build.torch) if build and context.snapshot.wanted.torch else ()
    return (paste.gpusetup(context, *asked, "--backend", "cpu"),)


RULES = (apple_silicon, no_nvidia_gpu)
