"""Whose GPU it is, and whether its driver is there at all and allowed to have the GPU."""

from __future__ import annotations

import re
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
from gpusetup.evidence.places import in_an_image_build
from gpusetup.findings import maker_stacks
from gpusetup.findings.message_rules import finding, shown
from gpusetup.fixes import gpu_naming, other_makers, paste
from gpusetup.fixes.lenders import has_a_scheduler, lender_of
from gpusetup.messages.cuda_codes import BY_PROGRAMS
from gpusetup.model.finding import Findings, Fix, Severity
from gpusetup.model.machine import Event, Events

NVML_DRIVER_NOT_LOADED = 9


NVML_UNKNOWN = 999


def absent_here(context: RuleContext) -> bool:
    """Whether the driver is missing from this machine itself, not from around it."""
    around = in_container(context) or in_an_image_build(context) or context.os.wsl
    return not (context.other_host or around or on(context, "macos"))


PACKAGES_ARE_THERE = ("driver-not-loaded", "secure-boot-rejected", "nouveau-in-the-way")
"""Events of the driver's own programs: torch's "no NVIDIA driver" then means none is loaded."""


def driver_missing(context: RuleContext) -> Findings:
    """An NVIDIA GPU, or a program that looked for one, and no NVIDIA driver at all."""
    driver, there = context.driver, has_nvidia(context)
    # nouveau has each GPU that no driver of NVIDIA's was ever installed for.
    said = (*events(context, "no-nvidia-driver", "nouveau-in-use"), *_looked_in_vain(context))
    runs = driver_answers(context) or kernel_driver_spoke(context) or driver.module_loaded
    if runs or there is False or not (absent_here(context) or said_on_the_host(said)):
        return
    no_library = driver.library_found is False
    suspected = not driver.module_version if there else cuda_needed(context.torch)
    meant = said and not events(context, *PACKAGES_ARE_THERE)
    if (no_library and suspected) or meant:
        library = (shown(context, "driver.library_found", "no library of a driver"),)
        seen = (*said, *on_the_bus(context), *(library if no_library else ()))
        lender = lender_of(context)
        fix = Fix(text=lender.gives_a_gpu) if lender else _install(context)
        who = gpu_naming.gpu_names(context) if there and not has_a_scheduler(context) else ""
        who = f"{lender.name} gave this notebook no GPU" if lender else who
        yield finding(context, "driver-missing", seen, fix=fix, who=who)


def _install(context: RuleContext) -> Fix:
    from gpusetup.fixes import drivers

    return drivers.driver_fix(context, "Install the NVIDIA driver")


def said_on_the_host(messages: Iterable[Event]) -> bool:
    """Whether a container's toolkit says it, which asks the driver of the host."""
    return any(event.values.get("place") == "host" for event in messages)


def _looked_in_vain(context: RuleContext) -> Events:
    """nvidia-smi or the driver's library is not there, where something looked for CUDA."""
    libraries = (
        event
        for event in events(context, "library-missing", "cuda-lib-missing")
        if event.values.get("library", "").startswith(DRIVER_LIBRARIES)
    )
    no_smi = () if events(context, *FAILS_WITHOUT_GPU) else events(context, "smi-not-found")
    return (*libraries, *no_smi)


FAILS_WITHOUT_GPU = ("torchvision-mismatch", "torchaudio-mismatch", "extension-abi-mismatch")
"""What fails at its import: a text about it is no text about the driver, on a login node say.

The order of causes cannot say it: where a PCI bus shows a GPU without a driver, that is first."""


DRIVER_LIBRARIES = ("libcuda.so", "nvcuda.dll", "libnvidia-ml.so", "nvml.dll")


def on_the_bus(context: RuleContext) -> Events:
    return tuple(
        shown(context, "pci_devices", f"{d.name or 'NVIDIA device'}, driver: {d.driver or 'none'}")
        for d in nvidia_on_pci(context)[:2]
    )


NOT_LOADED = ("driver-not-loaded", "nouveau-in-the-way")


def nvml_said(context: RuleContext) -> Events:
    """NVML's own error; a text has it in its words, with its source."""
    driver = context.driver
    text = driver.nvml_message or f"error {driver.nvml_code}"
    return (shown(context, "driver.nvml_code", text),) if driver.nvml_code else ()


def serves_its_maker(context: RuleContext) -> bool:
    """Whether the installed torch is for the GPU that is there, as far as its files say: ROCm's
    beside AMD's, XPU's beside Intel's, the ordinary one on a Mac. A text complains of something."""
    torch = context.torch
    # No order: whoever sends a text has a complaint, so a fitting build proves nothing.
    if is_report(context) or not torch.installed or torch.import_error or context.snapshot.gpus:
        return False
    if events(context, *LOOKED_FOR_CUDA):
        return False
    if _apple(context):
        return True
    if torch.backend == "cpu" and has_nvidia(context) is False and not torch.cuda_available:
        # No GPU that torch has a build for: the CPU's is the right one.
        return not torch_has_another_build(context)
    on_bus = {device.vendor for device in context.snapshot.pci_devices or ()}
    stack = context.snapshot.makers
    if stack is not None:
        on_bus.add(stack.maker)
    maker = maker_of(torch.backend)
    return is_seen_only(maker) and maker in on_bus


def torch_has_another_build(context: RuleContext) -> bool:
    """Whether torch has a build for a GPU of AMD or Intel that is there.

    Old cards of AMD, and the graphics of most processors, have none that pays.
    """
    stack = context.snapshot.makers
    if stack is not None:
        return has_a_build(stack) and not is_small(stack)
    for device in context.snapshot.pci_devices or ():
        if device.vendor == "intel" and device_has_xpu(device.device_id, device.name):
            return True
        # An id that no table has may be a new card.
        known = amd_device(device.device_id, device.name)
        if device.vendor == "amd" and (known is None or known.target in BUILT_FOR):
            return True
    return False


def no_nvidia_gpu(context: RuleContext) -> Findings:
    """No NVIDIA GPU: and who made the one that is there. A note where no program wanted CUDA."""
    if _in_use(context) or not (_apple(context) or _is_absent(context)):
        return
    # What is wrong with another maker's stack that was read has causes of its own.
    if maker_stacks.stack_of(context) is not None:
        return
    # An error of CUDA comes from NVIDIA's driver: the Mac in the text is where somebody sits.
    if _apple(context) and is_report(context) and events(context, "cuda-error"):
        return
    cause, fix = _of_whom(context)
    machine = context.snapshot
    named = (f"{d.vendor} {d.name or d.device_id} at {d.bus_id}" for d in machine.pci_devices or ())
    seen = "; ".join(named) or "no source lists an NVIDIA GPU"
    about = ("pci_devices", seen)
    if cause == "apple-silicon":
        about = ("os.machine", f"macOS on {machine.os.machine or 'a Mac'}")
    said = (*events(context, *LOOKED_FOR_CUDA)[:3], shown(context, *about))
    passing = events(context, *STOPS_EARLIER) or serves_its_maker(context) or _runs(context)
    boards = (event.values.get("name", "") for event in events(context, "foreign-gpu"))
    board = next((f"{name} ({gfx_of(name)})" for name in boards if gfx_of(name)), "")
    yield finding(
        context, cause, said, fix=fix, board=board, severity=Severity.NOTE if passing else None
    )


def _in_use(context: RuleContext) -> bool:
    """Whether the maker's own backend runs in a text, and nothing asks for CUDA or lacks it."""
    torch = context.torch
    if is_seen_only(maker_of(torch.backend)) and torch.cuda_available and is_report(context):
        asks = events(context, *LOOKED_FOR_CUDA[1:], "cuda-lib-missing", "extension-not-built")
        boards = (event.values.get("name", "") for event in events(context, "foreign-gpu"))
        # torch lists a GPU that its wheel has no kernels for, and fails at the first one.
        unserved = [name for name in boards if gfx_of(name) not in (None, *BUILT_FOR)]
        return not (asks or unserved)
    ran = events(context, "backend-runs", "ran-first") or cuda_errors(context, *BY_PROGRAMS)
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
    return metal or (on(context, "macos") and context.os.machine in own)


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


IMAGE = "; `gpusetup doctor --gpu NAME --driver VERSION` judges this image for its host instead"


def _of_whom(context: RuleContext) -> tuple[str, Fix]:
    named = " ".join(e.values.get("name", "") for e in events(context, "foreign-gpu"))
    maker = maker_of(context.torch.backend)
    if _apple(context):
        return "apple-silicon", other_makers.apple(context)
    # Neither ROCm nor torch's wheels for macOS use the Radeon of an older Mac.
    if on(context, "macos"):
        return _without_a_gpu(context)
    if "amd" in (maker, *vendors_of(context.snapshot)) or events(context, *OF_ANOTHER_MAKER[:2]):
        return "amd-gpu", other_makers.amd(context)
    if maker == "intel" or events(context, "no-xpu") or re.search(other_makers.ARC, named):
        return "intel-gpu", other_makers.intel(context)
    return _without_a_gpu(context)


def _without_a_gpu(context: RuleContext) -> tuple[str, Fix]:
    torch, said = context.torch, events(context, "cuda-error")
    build = context.snapshot.wanted.torch and paste.chosen_build(context)
    asked = ("--torch", build.torch) if build else ()
    cpu = paste.gpusetup(context, *asked, "--backend", "cpu")
    return "no-nvidia-gpu", Fix(
        text="Use the CPU build of torch here, or go to a machine with an NVIDIA GPU"
        + (IMAGE if in_container(context) else ""),
        commands=() if torch.installed or torch.version or said else (cpu,),
    )


OF_THE_DRIVER = (driver_missing,)
RULES = (*OF_THE_DRIVER, no_nvidia_gpu)
