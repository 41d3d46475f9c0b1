"""Whose GPU it is: Apple's, AMD's, Intel's, or none at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpusetup.model import Evidence, Finding, Fix
from gpusetup.resolver.held import maker_of
from gpusetup.rules import ways
from gpusetup.rules.case import (
    Case,
    error,
    events,
    has_nvidia,
    is_report,
    note,
    of_other_maker,
    on,
    shown,
    told,
)
from gpusetup.shell import Line


def serves_its_maker(case: Case) -> bool:
    """Whether the installed torch is for the GPU that is there, as far as its files say: ROCm's
    beside AMD's, XPU's beside Intel's, the ordinary one on a Mac. A text complains of something."""
    torch = case.snapshot.torch
    if is_report(case) or not torch.installed or torch.import_error or case.snapshot.gpus:
        return False
    if events(case, *LOOKED_FOR_CUDA):
        return False
    if _apple(case):
        return True
    on_bus = {device.vendor for device in case.snapshot.pci_devices or ()}
    return maker_of(torch.backend) in on_bus & {"amd", "intel"}


def apple_silicon(case: Case) -> Iterator[Finding]:
    """A Mac with an Apple GPU: there is no CUDA."""
    if _apple(case):
        yield _stop_or_note(case, in_passing=_cuda_runs(case) or serves_its_maker(case))(
            "apple-silicon",
            f"This is a Mac{' with an Apple GPU' if case.snapshot.os.machine else ''}: "
            "there is no CUDA",
            evidence=(
                *told(events(case, *LOOKED_FOR_CUDA)),
                shown(case, "os.machine", f"macOS on {case.snapshot.os.machine or 'a Mac'}"),
            ),
            fix=Fix(
                text='The ordinary wheel uses an Apple GPU as device "mps"; code that asks for '
                '"cuda" must '
                'ask for "mps" or "cpu"',
                commands=()
                if case.snapshot.torch.installed
                else (ways.pip(case, "install", "torch", "torchvision"),),
            ),
        )


def no_nvidia_gpu(case: Case) -> Iterator[Finding]:
    """No NVIDIA GPU: and who made the one that is there."""
    machine = case.snapshot
    foreign = (machine.torch.backend or "").startswith(("rocm", "xpu"))
    looked = foreign or bool(events(case, "no-hip-gpus", "no-xpu"))
    unknown = has_nvidia(case) is None and not machine.driver.version
    absent = has_nvidia(case) is False or (looked and unknown)
    if not absent or _apple(case):
        return
    yield from _other_maker(case, _makers(case))


def _makers(case: Case) -> set[str]:
    """Who made the GPUs that are there."""
    on_bus = {device.vendor for device in case.snapshot.pci_devices or ()}
    named = {e.values.get("vendor", "") for e in events(case, "foreign-gpu")}
    listed = {of_other_maker(gpu.name) or "" for gpu in case.snapshot.gpus or ()}
    return {"amd" if one in ("radeon", "instinct") else one for one in on_bus | named | listed}


def _apple(case: Case) -> bool:
    """A Mac whose machine is Apple's, or one of which a text says only that it is a Mac."""
    own = ("aarch64", "arm64", *((None,) if is_report(case) else ()))
    return on(case, "macos") and case.snapshot.os.machine in own


LOOKED_FOR_CUDA = (
    "torch-not-compiled-with-cuda",
    "no-nvidia-driver",
    "no-nvidia-gpu",
    "cuda-unavailable",
    "no-hip-gpus",
    "no-xpu",
    "foreign-gpu",
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
    "library-conflict",
    "extension-abi-mismatch",
    "torchvision-mismatch",
    "torchaudio-mismatch",
    "dll-missing",
    "pagefile-too-small",
)
"""Events of programs that fail with any GPU or none: then its absence is only worth knowing."""


def _stop_or_note(case: Case, *, in_passing: bool) -> Callable[..., Finding]:
    return note if events(case, *STOPS_EARLIER) or in_passing else error


CUDA_RAN = ("cuda-out-of-memory", "no-kernel-image")
"""What only a program with CUDA and an NVIDIA GPU says."""


def _cuda_runs(case: Case) -> bool:
    """A text of a Mac and of another machine, or of a Mac with an NVIDIA GPU: CUDA ran there."""
    return is_report(case) and (
        case.snapshot.torch.cuda_available is True or bool(events(case, *CUDA_RAN))
    )


def _nobody_complains(case: Case) -> bool:
    """A text that shows a build for another maker's GPU, and nothing that looked in vain."""
    machine = case.snapshot
    listed = machine.pci_devices or machine.gpus
    if not is_report(case) or events(case, *LOOKED_FOR_CUDA):
        return False
    works = machine.torch.cuda_available if not machine.cuda_api.init_code else False
    return works is True or (works is None and not listed)


def _other_maker(case: Case, vendors: set[str]) -> Iterator[Finding]:
    backend = case.snapshot.torch.backend or ""
    quiet = _nobody_complains(case) or serves_its_maker(case)
    make = _stop_or_note(case, in_passing=quiet)
    listed = told(events(case, *LOOKED_FOR_CUDA)) + tuple(
        shown(
            case,
            "pci_devices",
            f"{d.vendor} {d.name or d.device_id or 'device'} at {d.bus_id or 'PCI'}",
        )
        for d in case.snapshot.pci_devices or ()
    ) or (_nothing_listed(case),)
    amd = backend.startswith("rocm") or "amd" in vendors or events(case, "no-hip-gpus")
    if amd:
        yield make(
            "amd-gpu",
            "The GPU is AMD's: CUDA builds of torch do not use it",
            evidence=listed,
            fix=Fix(
                text="On Linux install AMD's ROCm build of torch, if ROCm supports the GPU; "
                "otherwise the "
                "CPU build works"
            ),
        )
    elif backend == "xpu" or events(case, "no-xpu"):
        yield make(
            "intel-gpu",
            "The GPU is Intel's: CUDA builds of torch do not use it",
            evidence=listed,
            fix=_xpu_fix(case),
        )
    else:
        yield make(
            "no-nvidia-gpu",
            "This machine has no NVIDIA GPU",
            detail="Training on the CPU works, slowly.",
            evidence=listed,
            fix=Fix(
                text="Use the CPU build of torch here, or go to a machine with an NVIDIA GPU",
                commands=_cpu_commands(case),
            ),
        )


XPU_INDEX = "https://download.pytorch.org/whl/xpu"


def _xpu_fix(case: Case) -> Fix:
    """The driver where torch did not start it, the XPU build where that lacks, else the name."""
    why = {event.values.get("why") for event in events(case, "no-xpu")}
    if "build" in why:
        return Fix(
            text='Install torch\'s XPU build; code must ask for the device "xpu"',
            commands=(ways.pip(case, "install", "torch", "torchvision", "--index-url", XPU_INDEX),),
        )
    if "driver" in why:
        return Fix(
            text="Install or update Intel's GPU driver (on Linux the Level Zero and compute "
            'runtime packages too, and the group `render`); torch then finds the device "xpu"',
            needs_root=True,
        )
    return Fix(text='torch uses it as device "xpu"; code that asks for "cuda" must ask for that')


def _nothing_listed(case: Case) -> Evidence:
    if on(case, "macos"):
        return shown(case, "os.family", "macOS, for which NVIDIA's last driver is of 2018")
    torch = case.snapshot.torch
    if case.snapshot.pci_devices is None and torch.version:
        return shown(case, "torch.version", f"torch {torch.version}")
    return shown(case, "pci_devices", "no display controller of NVIDIA on the PCI bus")


def _cpu_commands(case: Case) -> tuple[Line, ...]:
    """How to get the CPU build, unless a torch that works on the CPU is there."""
    if case.snapshot.torch.installed or case.snapshot.torch.version:
        return ()
    return (ways.gpusetup(case, "--backend", "cpu"),)


RULES = (apple_silicon, no_nvidia_gpu)
