"""Facts about the software of AMD and Intel: kernels that a build lacks, and Intel's extension.

Each fact is a sentence, or "" if it does not hold.
"""

from __future__ import annotations

import re

from gpusetup.accelerators.amd import BUILT_FOR, gfx_of, has_kernels
from gpusetup.accelerators.amd_devices import AmdDevice, amd_device
from gpusetup.accelerators.other_gpus import SMALL_TARGETS, is_discrete_arc
from gpusetup.evidence.context import RuleContext, events
from gpusetup.evidence.facts import Fact
from gpusetup.model.machine import Events, Snapshot


def intels_extension_fails(context: RuleContext) -> str:
    """Returns a sentence if Intel's extension for PyTorch, or the torch that Intel built for it,
    cannot be loaded, finds no GPU, crashes or hangs, else ""."""
    # Where the extension has no kernels for a GPU, it compiles all of them at the first use, which
    # looks like a hang.
    breaks_off = events(context, "run-hangs", "program-crashed", "silent-crash")
    if not (breaks_off or events(context, "windows-dll-missing", "no-xpu")):
        return ""
    for event in events(context, "ipex"):
        return f"Intel's extension for PyTorch is in use ({event.text})"
    return ""


def except_for_ipex(fact: Fact) -> Fact:
    """A fact that does not count if Intel's ended extension is in use: its own kernels fail on a
    GPU that the driver and simple operations of torch reach."""

    def fact_without_ipex(context: RuleContext) -> str:
        return "" if intels_extension_fails(context) else fact(context)

    return fact_without_ipex


def crashes_without_kernels(context: RuleContext) -> str:
    """Returns a sentence if a program crashes on an AMD GPU whose target the installed ROCm build
    has no kernels for, else ""."""
    rocm = re.match(r"rocm(\d+\.\d+)", context.torch.backend or "")
    crashes = events(context, "program-crashed", "silent-crash")
    # With the variable, ROCm runs the kernels of a related target.
    if rocm is None or not crashes or "HSA_OVERRIDE_GFX_VERSION" in context.snapshot.environment:
        return ""
    names = [event.values.get("name", "") for event in events(context, "foreign-gpu")]
    targets = {target for target in map(gfx_of, names) if target}
    version = context.torch.version or ""
    # A text may also name the processor's integrated graphics, so one target with kernels counts.
    if not targets or any(has_kernels(target, rocm[1], version) is not False for target in targets):
        return ""
    return f"torch {version} has no kernels for {' or '.join(sorted(targets))}"


def level_zero_missing(context: RuleContext) -> str:
    """The library of Level Zero that the system lacks; "" if the text names none."""
    for event in events(context, "no-xpu"):
        library = event.values.get("library", "")
        if library.startswith(("libze_loader", "libze_intel_gpu")):
            return library
    return ""


def onednn_failed(context: RuleContext) -> bool:
    """Whether oneDNN could not start on an Intel GPU that torch had already reached."""
    return any("call" in event.values for event in events(context, "no-xpu"))


def xpu_counts_none(context: RuleContext) -> str:
    """Returns a sentence if torch's XPU build runs and counts no Intel GPU, else ""."""
    reasons = {event.values.get("why") for event in events(context, "no-xpu")}
    # A message without a reason says nothing against the count.
    return "torch.xpu counts no GPU" if reasons - {None} == {"count"} else ""


def rocm_lists_the_gpu(context: RuleContext) -> str:
    """Returns a sentence if ROCm's own tools list the AMD GPU that torch's ROCm build does not
    find, else "".

    rocminfo opens /dev/kfd, so then the kernel driver, its nodes and the permissions work. The
    other tools read the driver's files only, which every user may.
    """
    if not _rocm_build_finds_none(context) or events(context, "works-as-root"):
        return ""
    tools = [event.values.get("tool", "").lower() for event in events(context, "rocm-lists-gpu")]
    if not tools:
        return ""
    tool = next(
        (name for name in tools if name.replace("-", "").replace("_", "") == "rocminfo"), ""
    )
    return f"{tool or tools[0]} lists the GPU"


def _rocm_build_finds_none(context: RuleContext) -> bool:
    """Whether torch's ROCm build runs and finds no GPU."""
    # If one of ROCm's libraries is missing, HIP was not asked.
    if any(event.values.get("why") != "driver" for event in events(context, "no-hip-gpus")):
        return True
    is_rocm = (context.torch.backend or "").startswith("rocm")
    finds_none = context.torch.cuda_available is False or events(context, "cuda-unavailable")
    return is_rocm and bool(finds_none)


def devices_in_rocms_list(context: RuleContext) -> list[AmdDevice]:
    """The GPUs that rocminfo lists, by their PCI ids."""
    devices = []
    for event in events(context, "rocm-lists-gpu"):
        device = amd_device(event.values.get("chip"))
        if device is not None:
            devices.append(device)
    return devices


def rocm_of_wheel(context: RuleContext) -> str:
    """The ROCm release that the installed wheel of torch is for (`6.2`), or that the text installs;
    "" if neither is known."""
    for backend in (context.torch.backend, context.snapshot.wanted.backend):
        label = re.match(r"rocm(\d+\.\d+)", backend or "")
        if label is not None:
            return label[1]
    return ""


def may_be_another_makers(machine: Snapshot) -> bool:
    """Whether a text names an NVIDIA card and a card of AMD's or Intel's that torch has a build
    for, and shows no driver, so that either card may be the one in use.

    The graphics of a processor do not count: they are beside most NVIDIA cards.
    """
    if machine.origin != "report" or not machine.gpus or machine.driver.version:
        return False
    names = [gpu.values.get("name", "") for gpu in cards_of_other_makers(machine)]
    if any(map(is_discrete_arc, names)):
        return True
    targets = {gfx_of(name) for name in names}
    return bool(targets & {*BUILT_FOR} - {*SMALL_TARGETS})


def cards_of_other_makers(machine: Snapshot) -> Events:
    """The cards of other makers that a text names, also those named beside an NVIDIA card."""
    kinds = ("foreign-gpu", "card-beside-nvidia")
    return tuple(event for event in machine.events if event.kind in kinds)
