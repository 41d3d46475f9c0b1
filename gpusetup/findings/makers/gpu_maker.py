"""Whose GPU it is: Apple's, AMD's, Intel's, or none at all."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.accelerators.makers import is_seen_only, maker_of
from gpusetup.evidence.context import (
    RuleContext,
    cuda_errors,
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
    title="this is a Mac: there is no CUDA",
    means="Apple's GPUs are used by torch as device mps; CUDA builds do not exist for macOS.",
    proven_by="macOS on arm64",
    way_out="Use device mps or cpu; the ordinary wheel has both",
    source="torch documentation, MPS backend",
)


def no_nvidia_gpu(context: RuleContext) -> Iterator[Finding]:
    """No NVIDIA GPU: and who made the one that is there. A note where no program wanted CUDA."""
    if _in_use(context) or not (_apple(context) or _is_absent(context)):
        return
    cause, fix = _of_whom(context)
    machine = context.snapshot
    named = (f"{d.vendor} {d.name or d.device_id} at {d.bus_id}" for d in machine.pci_devices or ())
    seen = "; ".join(named) or "no GPU of NVIDIA's is listed"
    about = ("pci_devices", seen)
    if cause is APPLE_SILICON:
        about = ("os.machine", f"macOS on {machine.os.machine or 'a Mac'}")
    wanted = event_evidence(events(context, *LOOKED_FOR_CUDA))
    passing = events(context, *STOPS_EARLIER) or serves_its_maker(context) or _runs(context)
    found = cause.as_note if passing else cause.found
    yield found(cause.title, evidence=(*wanted, value_evidence(context, *about)), fix=fix)


def _in_use(context: RuleContext) -> bool:
    """Whether the maker's own backend runs in a text, and nothing asks for CUDA or lacks it."""
    ran = events(context, "backend-runs", "ran-first") or cuda_errors(context, *KERNELS_RAN)
    return bool(ran and not events(context, *LOOKED_FOR_CUDA[1:]))


def _is_absent(context: RuleContext) -> bool:
    machine, has = context.snapshot, has_nvidia(context)
    looked = (
        is_seen_only(maker_of(machine.torch.backend))
        or events(context, *OF_ANOTHER_MAKER, "gpu-not-chosen")
        or (events(context, "foreign-gpu") and events(context, "program-lib-missing"))
    )
    return has is False or bool(looked and has is None and not machine.driver.version)


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
    "foreign-gpu",
    "mps-lacks",
    "gpu-not-chosen",
    "hip-kernel-missing",
    "torch-not-compiled-with-cuda",
    "no-nvidia-driver",
    "no-nvidia-gpu",
    "cuda-unavailable",
    "no-hip-gpus",
    "no-xpu",
    "cuda-toolkit-missing",
)

STOPS_EARLIER = (
    "out-of-memory",
    "no-kernel-image",
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


KERNELS_RAN = (700, 701, 702, 710, 715, 716, 718, 719)
"""What a program's own kernel did wrong (an assertion, a bad address): it ran, so that the stack
under it works."""


def _runs(context: RuleContext) -> bool:
    """A text in which CUDA ran, or that shows a build and nothing that looked for a GPU in vain; of
    a Mac one that shows its paths alone."""
    machine, mac = context.snapshot, _apple(context)
    looked = events(context, *LOOKED_FOR_CUDA) or machine.cuda_api.init_code
    works = machine.torch.cuda_available
    if not is_report(context) or (looked and not mac):
        return False
    if not mac:
        return bool(works or (works is None and not (machine.pci_devices or machine.gpus)))
    named = machine.os.machine or machine.os.name or machine.torch.version
    told = named or machine.failing.program or looked or machine.python.version is None
    return bool(works or not told)


IMAGE = (
    "; `gpusetup doctor --for-gpu NAME --for-driver VERSION` judges this image for its host instead"
)
NO_NVIDIA_GPU = Cause(
    id="no-nvidia-gpu",
    lacks="gpu",
    impossible=(gpu_is_listed,),
    place=(Layer.NO_GPU, 10),
    title="this machine has no NVIDIA GPU",
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
    title="the GPU is AMD's: CUDA is not used",
    means="CUDA builds do not use it; ROCm builds exist for Linux.",
    proven_by="An AMD display controller and none of NVIDIA, or a ROCm build without an NVIDIA GPU",
    not_when="A ROCm build on a machine that has an NVIDIA GPU",
    way_out="Install the ROCm build where ROCm supports the GPU",
    source="torch's index, labels rocm*",
)


INTEL_GPU = Cause(
    id="intel-gpu",
    place=(Layer.NO_GPU, 10),
    title="the GPU is Intel's: CUDA is not used",
    means="No prescription for NVIDIA applies.",
    proven_by="An XPU build of torch and no NVIDIA GPU",
    not_when="An Intel GPU beside an NVIDIA one",
    way_out="Use device xpu",
    source="torch documentation, XPU backend",
)


def _of_whom(context: RuleContext) -> tuple[Cause, Fix]:
    named = " ".join(e.values.get("name", "") for e in events(context, "foreign-gpu"))
    maker = maker_of(context.snapshot.torch.backend)
    if _apple(context):
        return APPLE_SILICON, other_makers.apple(context)
    if "amd" in (maker, *vendors_of(context.snapshot)) or events(context, *OF_ANOTHER_MAKER[:2]):
        return AMD_GPU, other_makers.amd(context)
    if maker == "intel" or events(context, "no-xpu") or re.search(other_makers.ARC, named):
        return INTEL_GPU, other_makers.intel(context)
    torch, said = context.snapshot.torch, events(context, "cuda-error")
    build = context.snapshot.wanted.torch and paste.chosen(context)
    asked = ("--torch", build.torch) if build else ()
    cpu = paste.gpusetup(context, *asked, "--backend", "cpu")
    return NO_NVIDIA_GPU, Fix(
        text="Use the CPU build of torch here, or go to a machine with an NVIDIA GPU"
        + (IMAGE if in_container(context) else ""),
        commands=() if torch.installed or torch.version or said else (cpu,),
    )


RULES = (no_nvidia_gpu,)
