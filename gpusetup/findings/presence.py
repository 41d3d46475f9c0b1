"""Findings about a missing NVIDIA driver, and about machines without an NVIDIA GPU."""

from __future__ import annotations

from collections.abc import Iterable

from gpusetup.accelerators.amd import BUILT_FOR, gfx_of
from gpusetup.accelerators.amd_devices import amd_device
from gpusetup.accelerators.intel import device_has_xpu
from gpusetup.accelerators.makers import is_seen_only, maker_of
from gpusetup.accelerators.other_gpus import has_a_build, is_small
from gpusetup.choose.installed import vendors_of
from gpusetup.evidence.context import (
    RuleContext,
    cuda_errors,
    cuda_needed,
    driver_answers,
    events,
    has_nvidia,
    in_container,
    is_report,
    kernel_driver_spoke,
    nvidia_on_pci,
    on,
)
from gpusetup.evidence.maker_facts import crashes_without_kernels, intels_extension_fails
from gpusetup.evidence.places import in_an_image_build, is_beside_torch
from gpusetup.findings import maker_stacks
from gpusetup.findings.message_rules import finding, shown
from gpusetup.fixes import drivers, gpu_naming, makers, paste
from gpusetup.fixes.owners import has_a_scheduler, lender_of
from gpusetup.messages.cuda_codes import BY_PROGRAMS
from gpusetup.model.finding import Findings, Fix, Severity
from gpusetup.model.machine import Event, Events

NVML_DRIVER_NOT_LOADED = 9


NVML_UNKNOWN = 999


def driver_belongs_here(context: RuleContext) -> bool:
    """Whether the machine itself must have the NVIDIA driver, so that its absence is a fault.

    False if the driver belongs to another machine, or on macOS, which has none.
    """
    if context.other_host or on(context, "macos"):
        return False
    # Containers, image builds and WSL use the driver of their host.
    return not (in_container(context) or in_an_image_build(context) or context.os.wsl)


PACKAGES_ARE_THERE = ("driver-not-loaded", "secure-boot-rejected", "nouveau-in-the-way")
"""Events that show an installed driver: torch's "no NVIDIA driver" then means that none is
loaded."""


def driver_missing(context: RuleContext) -> Findings:
    """There is an NVIDIA GPU, or a program that needs one, but no NVIDIA driver at all."""
    driver, has_gpu = context.driver, has_nvidia(context)
    # nouveau drives every GPU for which NVIDIA's driver was never installed.
    messages = (*events(context, "no-nvidia-driver", "nouveau-in-use"), *_looked_in_vain(context))
    driver_runs = driver_answers(context) or kernel_driver_spoke(context) or driver.module_loaded
    is_ours = driver_belongs_here(context) or said_on_the_host(messages)
    if driver_runs or has_gpu is False or not is_ours:
        return
    lacks_library = driver.library_found is False
    # On a machine with a GPU, a kernel module on the disk means an installed driver. Without a
    # known GPU, torch's build must need CUDA.
    is_suspected = not driver.module_version if has_gpu else bool(cuda_needed(context.torch))
    is_said = messages and not events(context, *PACKAGES_ARE_THERE)
    if not is_said and not (lacks_library and is_suspected):
        return
    evidence = [*messages, *on_the_bus(context)]
    if lacks_library:
        evidence.append(shown(context, "driver.library_found", "no library of a driver"))
    if lender := lender_of(context):
        fix = Fix(text=lender.gives_a_gpu)
        subject = f"{lender.name} gave this notebook no GPU"
    else:
        fix = drivers.driver_fix(context, "Install the NVIDIA driver")
        # A cluster job may run on a node with a different GPU from the one in the text.
        names_gpu = has_gpu and not has_a_scheduler(context)
        subject = gpu_naming.gpu_names(context) if names_gpu else ""
    yield finding(context, "driver-missing", evidence, fix=fix, who=subject)


def said_on_the_host(messages: Iterable[Event]) -> bool:
    """Whether one of the messages comes from a container toolkit, which uses the host's driver."""
    return any(event.values.get("place") == "host" for event in messages)


def _looked_in_vain(context: RuleContext) -> Events:
    """The messages of programs that needed CUDA but did not find nvidia-smi or the driver's
    library."""
    messages = tuple(
        event
        for event in events(context, "library-missing", "cuda-lib-missing")
        if event.values.get("library", "").startswith(DRIVER_LIBRARIES)
    )
    if events(context, *FAILS_WITHOUT_GPU):
        return messages
    return (*messages, *events(context, "smi-not-found"))


FAILS_WITHOUT_GPU = ("torchvision-mismatch", "torchaudio-mismatch", "extension-abi-mismatch")
"""Failures of an import, which also happen without a GPU, for example on a login node. So a missing
nvidia-smi in such a text is not the cause. (A GPU without a driver on the PCI bus comes first in
the order of causes.)"""
DRIVER_LIBRARIES = ("libcuda.so", "nvcuda.dll", "libnvidia-ml.so", "nvml.dll")


def on_the_bus(context: RuleContext) -> Events:
    """Evidence from the PCI bus: the first two NVIDIA devices with their drivers."""
    return tuple(
        shown(
            context,
            "pci_devices",
            f"{device.name or 'NVIDIA device'}, driver: {device.driver or 'none'}",
        )
        for device in nvidia_on_pci(context)[:2]
    )


NOT_LOADED = ("driver-not-loaded", "nouveau-in-the-way")


def nvml_said(context: RuleContext) -> Events:
    """NVML's error as evidence; empty if it reported none."""
    driver = context.driver
    if not driver.nvml_code:
        return ()
    return (shown(context, "driver.nvml_code", driver.nvml_message or f"error {driver.nvml_code}"),)


def serves_its_maker(context: RuleContext) -> bool:
    """Whether the installed torch is a build for this machine's GPU: ROCm for AMD, XPU for Intel,
    the ordinary one on a Mac, the CPU build without a GPU."""
    torch = context.torch
    # The author of a text has a problem, so a build that fits proves nothing.
    if is_report(context) or not torch.installed or torch.import_error or context.snapshot.gpus:
        return False
    if events(context, *LOOKED_FOR_CUDA):
        return False
    if _apple(context):
        return True
    if torch.backend == "cpu" and has_nvidia(context) is False and not torch.cuda_available:
        # If torch has no build for the GPU, the CPU build is the right one.
        return not torch_has_another_build(context)
    vendors = {device.vendor for device in context.snapshot.pci_devices or ()}
    stack = context.snapshot.makers
    if stack is not None:
        vendors.add(stack.maker)
    maker_of_build = maker_of(torch.backend)
    return is_seen_only(maker_of_build) and maker_of_build in vendors


def torch_has_another_build(context: RuleContext) -> bool:
    """Whether torch has a build for one of this machine's AMD or Intel GPUs.

    For old AMD cards and most integrated graphics there is no build, or none that is worth
    installing.
    """
    stack = context.snapshot.makers
    if stack is not None:
        return has_a_build(stack) and not is_small(stack)
    for device in context.snapshot.pci_devices or ():
        if device.vendor == "intel" and device_has_xpu(device.device_id, device.name):
            return True
        # An unknown id may be a new card, so it counts as supported.
        known = amd_device(device.device_id, device.name)
        if device.vendor == "amd" and (known is None or known.target in BUILT_FOR):
            return True
    return False


def no_nvidia_gpu(context: RuleContext) -> Findings:
    """This machine has no NVIDIA GPU; the finding names the maker of its GPU. It is only a note if
    no program needed CUDA."""
    is_a_mac = _apple(context)
    if _in_use(context) or not (is_a_mac or _is_absent(context)):
        return
    # Other rules report problems with another maker's drivers and builds.
    if maker_stacks.stack_of(context) is not None:
        return
    # A CUDA error comes from NVIDIA's driver, so the Mac in the text is only the person's terminal.
    if is_a_mac and is_report(context) and events(context, "cuda-error"):
        return
    cause, fix = _of_whom(context)
    maker_is_at_fault = (
        intels_extension_fails(context)
        or crashes_without_kernels(context)
        or events(context, "hip-kernel-missing")
    )
    is_only_a_note = not maker_is_at_fault and (
        events(context, *STOPS_EARLIER) or serves_its_maker(context) or _runs(context)
    )
    # A program that filled the GPU's memory, or that runs on the Mac's own device, needs no word on
    # which build fits.
    used_it = events(context, "out-of-memory", "backend-runs", "mps-lacks")
    if is_only_a_note and is_report(context) and cause != "no-nvidia-gpu" and used_it:
        return
    board = ""
    for event in events(context, "foreign-gpu"):
        name = event.values.get("name", "")
        target = gfx_of(name)
        # The target decides which build has kernels for the card. A text often has it with and
        # without the card's name.
        if target and board in ("", target):
            board = target if name == target else f"{name} ({target})"
    program = context.snapshot.failing.program if is_beside_torch(context) else None
    # A card is quoted too, so not every quote may be an error.
    errors = events(context, *LOOKED_FOR_CUDA[1:])[: QUOTES - 1]
    cards = events(context, "foreign-gpu")[: QUOTES - len(errors)]
    yield finding(
        context,
        cause,
        (*errors, *cards, *_what_is_there(context, cause)),
        fix=fix,
        severity=Severity.NOTE if is_only_a_note else None,
        board=board,
        build=f"{program or 'torch'}'s ROCm build",
    )


QUOTES = 3
"""How many messages the evidence quotes."""


def _what_is_there(context: RuleContext, cause: str) -> Events:
    """The devices on the bus, or the Mac, as evidence that no GPU is NVIDIA's; () for a text that
    names its GPU but lists no devices."""
    machine = context.snapshot
    if cause == "apple-silicon":
        return (shown(context, "os.machine", f"macOS on {machine.os.machine or 'a Mac'}"),)
    if is_report(context) and not machine.pci_devices and events(context, *LOOKED_FOR_CUDA):
        return ()
    devices = "; ".join(
        f"{device.vendor} {device.name or device.device_id} at {device.bus_id}"
        for device in machine.pci_devices or ()
    )
    return (shown(context, "pci_devices", devices or "no NVIDIA GPU found"),)


def _in_use(context: RuleContext) -> bool:
    """Whether a text shows that another maker's backend runs, and that nothing needs CUDA."""
    torch = context.torch
    # Intel's ended extension is at fault although it sees the GPU.
    if intels_extension_fails(context) or events(context, *LOOKED_FOR_CUDA[1:]):
        return False
    if is_seen_only(maker_of(torch.backend)) and torch.cuda_available and is_report(context):
        # torch also lists a GPU without kernels in its wheel, and fails at the first kernel.
        names = [event.values.get("name", "") for event in events(context, "foreign-gpu")]
        targets = {target for name in names if (target := gfx_of(name))}
        needs_cuda = events(context, "cuda-lib-missing", "extension-not-built")
        return not needs_cuda and targets <= {*BUILT_FOR}
    return bool(events(context, "backend-runs", "ran-first") or cuda_errors(context, *BY_PROGRAMS))


def _is_absent(context: RuleContext) -> bool:
    """Whether there is no NVIDIA GPU: a source says so, or everything points to another maker."""
    machine, has_gpu = context.snapshot, has_nvidia(context)
    if has_gpu is not None or machine.driver.version:
        return has_gpu is False
    is_another_makers = is_seen_only(maker_of(machine.torch.backend))
    if is_another_makers or events(context, *OF_ANOTHER_MAKER) or intels_extension_fails(context):
        return True
    return bool(events(context, "foreign-gpu") and events(context, "program-lib-missing"))


OF_ANOTHER_MAKER = ("no-hip-gpus", "hip-kernel-missing", "no-xpu", "gpu-not-chosen")
"""Events that only another maker's software reports, or a machine without a GPU."""


def _apple(context: RuleContext) -> bool:
    """Whether the machine is a Mac with an Apple chip; a Mac of unknown architecture in a text
    counts too."""
    # The user of a hosted notebook sits at the Mac, but the program runs elsewhere.
    is_lent = is_report(context) and events(context, "hosted-notebook")
    if is_lent and not events(context, *LOOKED_FOR_CUDA):
        return False
    if events(context, "mps-lacks") and not has_nvidia(context):
        return True
    machine = context.os.machine
    is_apples = machine in ("aarch64", "arm64") or (machine is None and is_report(context))
    return on(context, "macos") and is_apples


# The first event names a GPU. The others prove that a program needed one, so its absence is a
# failure.
LOOKED_FOR_CUDA = (
    "foreign-gpu", "mps-lacks", "gpu-not-chosen", "hip-kernel-missing",
    "torch-not-compiled-with-cuda", "no-nvidia-driver", "no-nvidia-gpu", "cuda-unavailable",
    "no-hip-gpus", "no-xpu", "cuda-toolkit-missing",
)  # fmt: skip


STOPS_EARLIER = (
    "out-of-memory", "no-kernel-image", "no-matching-distribution", "python-no-wheel",
    "wheel-not-supported", "no-wheel-for-platform", "wrong-index", "resolver-conflict",
    "conda-not-found", "pip-cache-disk-full", "download-hash-mismatch", "download-network-error",
    "build-isolation-no-torch", "module-shadowed", "numpy-abi-mismatch", "torch-missing",
    "glibc-too-old", "ld-library-path-conflict", "extension-abi-mismatch", "torchvision-mismatch",
    "torchaudio-mismatch", "windows-dll-missing", "windows-pagefile-too-small",
    "worker-cannot-pickle",
)  # fmt: skip
"""Failures that happen with or without a GPU: then a missing GPU is only a note.

The order of causes cannot express this: on a machine without torch, the missing GPU comes first,
while a text in which an installer finds no torch is not about a GPU at all."""


WITHOUT_ITS_GPU = (
    *("gpu-unused", "cuda-lib-missing", "extension-not-built"),
    "built-for-another-processor",
)
"""Events of a program that ran without the GPU, or that needed a part of CUDA's."""


def _runs(context: RuleContext) -> bool:
    """Whether CUDA ran according to a text, or nothing in the text failed because it needed a GPU.

    The second covers texts that only show a build of torch or, from a Mac, only paths.
    """
    machine = context.snapshot
    if not is_report(context):
        return False
    looked_in_vain = events(context, *LOOKED_FOR_CUDA) or machine.cuda_api.init_code
    torch_sees_gpu = machine.torch.cuda_available
    if on(context, "macos"):
        # Every Mac has no CUDA, so this explains only a failure in which something looked for it.
        needs_a_gpu = events(context, *LOOKED_FOR_CUDA[1:], *WITHOUT_ITS_GPU)
        return bool(torch_sees_gpu or not (needs_a_gpu or torch_sees_gpu is False))
    if looked_in_vain or torch_sees_gpu is False:
        return False
    return bool(torch_sees_gpu or not (machine.pci_devices or machine.gpus))


def _of_whom(context: RuleContext) -> tuple[str, Fix]:
    """The id of the finding for the GPU's maker, and the fix for such a GPU."""
    if _apple(context):
        return "apple-silicon", makers.for_mac(context)
    maker_of_build = maker_of(context.torch.backend)
    # Neither ROCm nor torch's wheels for macOS use the Radeon of an older Mac.
    if not on(context, "macos"):
        has_amd = maker_of_build == "amd" or "amd" in vendors_of(context.snapshot)
        if has_amd or events(context, "no-hip-gpus", "hip-kernel-missing"):
            return "amd-gpu", makers.for_amd(context)
        needs_xpu = events(context, "no-xpu") or intels_extension_fails(context)
        if maker_of_build == "intel" or needs_xpu or makers.names_gpu_with_xpu(context):
            return "intel-gpu", makers.for_intel(context)
    torch = context.torch
    text = "Use the CPU build of torch here, or go to a machine with an NVIDIA GPU"
    if older := makers.graphics_without_xpu(context):
        text = (
            f"PyTorch's list of Intel GPUs does not have {older}: use the CPU build of torch, "
            "OpenVINO for inference, or a machine with another GPU"
        )
    if in_container(context):
        text += IMAGE
    # An installed torch is kept. A CUDA error comes from another machine, which has a GPU.
    if torch.installed or torch.version or events(context, "cuda-error"):
        return "no-nvidia-gpu", Fix(text=text)
    build = paste.chosen_build(context) if context.snapshot.wanted.torch else None
    words = ("--torch", build.torch) if build else ()
    return "no-nvidia-gpu", Fix(
        text=text, commands=(paste.gpusetup(context, *words, "--backend", "cpu"),)
    )


IMAGE = "; to check this image for another host, run `gpusetup doctor --gpu NAME --driver VERSION`"

OF_THE_DRIVER = (driver_missing,)
RULES = (*OF_THE_DRIVER, no_nvidia_gpu)
