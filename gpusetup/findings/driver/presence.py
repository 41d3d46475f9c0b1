"""The driver: is it there at all, loaded, and allowed to have the GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpusetup.evidence.context import (
    RuleContext,
    answering,
    asked_for_cuda,
    cuda_needed,
    driver_answers,
    events,
    gpus,
    has_nvidia,
    in_container,
    is_report,
    kernel_driver_spoke,
    nvidia_on_pci,
    on,
)
from gpusetup.evidence.places import in_wsl
from gpusetup.findings import alike
from gpusetup.findings.layers import NO_DRIVER, Layer
from gpusetup.findings.lenders import lender_of
from gpusetup.findings.message_rules import finding, from_messages, shown
from gpusetup.findings.record import Alike, Cause, Message
from gpusetup.fixes import which
from gpusetup.model.finding import Finding, Fix
from gpusetup.model.machine import Event
from gpusetup.model.shell import lines

NVML_DRIVER_NOT_LOADED = 9
NVML_UNKNOWN = 999

PASSED_THROUGH = {"vfio-pci", "pci-stub", "xen-pciback"}
"""Kernel drivers that hold a GPU for a virtual machine."""


def absent_here(context: RuleContext) -> bool:
    """Whether the driver is missing from this machine itself, not from around it."""
    return not (
        context.other_host
        or in_container(context)
        or context.snapshot.os.wsl
        or on(context, "macos")
    )


PACKAGES_ARE_THERE = ("driver-not-loaded", "secure-boot-rejected")
"""Events of the driver's own programs: torch's "no NVIDIA driver" then means none is loaded."""


DRIVER_MISSING = Cause(
    id="driver-missing",
    lacks="gpu",
    impossible=(in_wsl,),
    place=(Layer.DRIVER, 40),
    title="an NVIDIA GPU and no NVIDIA driver",
    means="The GPU is on the bus, and neither the kernel module nor the libraries are installed.",
    proven_by="NVIDIA on the PCI bus, no libcuda, no module on disk",
    not_when="driver-not-loaded: something of a driver is installed; a container; WSL",
    way_out="Install the distribution's driver package and reboot",
    source='NVIDIA, "Driver Installation Guide"',
    explains=(*NO_DRIVER, "driver-not-loaded", "container-hook-failed"),
    alike=(
        Alike(
            causes=("no-nvidia-gpu", "container-no-gpu"),
            asks=alike.ON_THE_BUS,
            settled_by=("gpus", "driver"),
        ),
    ),
    message=Message(title="{who}: there is no NVIDIA driver", plain="No NVIDIA driver was found"),
)


def driver_missing(context: RuleContext) -> Iterator[Finding]:
    """An NVIDIA GPU, or a program that looked for one, and no NVIDIA driver at all."""
    driver, there = context.snapshot.driver, has_nvidia(context)
    said = (*events(context, "no-nvidia-driver"), *_looked_in_vain(context))
    runs = driver_answers(context) or kernel_driver_spoke(context) or driver.module_loaded
    if runs or there is False or not (absent_here(context) or said_on_the_host(said)):
        return
    no_library = driver.library_found is False
    suspected = not driver.module_version if there else cuda_needed(context.snapshot.torch)
    meant = said and not events(context, *PACKAGES_ARE_THERE)
    if (no_library and suspected) or meant:
        library = (shown(context, "driver.library_found", "no library of a driver"),)
        seen = (*said, *on_the_bus(context), *(library if no_library else ()))
        lender = lender_of(context)
        fix = Fix(text=lender.gives_a_gpu) if lender else _install(context)
        who = which.names(context) if there else ""
        who = f"{lender.name} gave this notebook no GPU" if lender else who
        yield finding(context, DRIVER_MISSING, seen, fix=fix, who=who)


def _install(context: RuleContext) -> Fix:
    from gpusetup.fixes import drivers

    return drivers.driver(context, "Install the NVIDIA driver")


def said_on_the_host(messages: Iterable[Event]) -> bool:
    """Whether a container's toolkit says it, which asks the driver of the host."""
    return any(event.values.get("place") == "host" for event in messages)


def _looked_in_vain(context: RuleContext) -> tuple[Event, ...]:
    """nvidia-smi or the driver's library is not there, where something looked for CUDA."""
    libraries = (
        event
        for event in events(context, "library-missing", "cuda-lib-missing")
        if event.values.get("library", "").startswith(DRIVER_LIBRARIES)
    )
    said = events(context, "program-lib-missing")
    open_ = any(event.values.get("or_else") == "driver-missing" for event in said)
    asked = asked_for_cuda(context) or says_only_no_smi(context) or open_
    needs_it = asked and not events(context, *FAILS_WITHOUT_GPU)
    no_smi = events(context, "smi-not-found") if needs_it or lender_of(context) else ()
    return (*libraries, *no_smi)


def says_only_no_smi(context: RuleContext) -> bool:
    """A text that says that nvidia-smi is not found and shows nothing else of the machine's stack:
    somebody asks for it."""
    machine = context.snapshot
    shown = machine.torch.version or machine.driver.version or machine.gpus or machine.packages
    kinds = {event.kind for event in machine.events}
    return is_report(context) and kinds == {"smi-not-found"} and not shown


FAILS_WITHOUT_GPU = ("torchvision-mismatch", "torchaudio-mismatch", "extension-abi-mismatch")
"""What fails at its import: a text about it is no text about the driver, on a login node say.

The order of causes cannot say it: where a PCI bus shows a GPU without a driver, that is first."""

DRIVER_LIBRARIES = ("libcuda.so", "nvcuda.dll", "libnvidia-ml.so", "nvml.dll")


def on_the_bus(context: RuleContext) -> tuple[Event, ...]:
    return tuple(
        shown(context, "pci_devices", f"{d.name or 'NVIDIA device'}, driver: {d.driver or 'none'}")
        for d in nvidia_on_pci(context)[:2]
    )


NOT_LOADED = ("driver-not-loaded", "nouveau-in-the-way")


def nvml_said(context: RuleContext) -> tuple[Event, ...]:
    """NVML's own error; a text has it in its words, with its source."""
    driver = context.snapshot.driver
    text = driver.nvml_message or f"error {driver.nvml_code}"
    return (shown(context, "driver.nvml_code", text),) if driver.nvml_code else ()


HYBRID_GPU_OFF = Cause(
    id="hybrid-gpu-off",
    place=(Layer.DRIVER, 10),
    title="a laptop's switch has the NVIDIA GPU off",
    means="supergfxctl, prime-select, envycontrol and others remove the GPU from the bus "
    "or blacklist its module.",
    proven_by="The tool's state or its configuration says so",
    not_when="A driver that is missing",
    way_out="Switch to hybrid, reboot",
    source="the tools' own documentation",
    explains=(*NO_DRIVER, "driver-missing", "driver-not-loaded", "gpu-init-failed"),
    holds=(lambda context: not answering(context),),
    message=Message(
        title="The NVIDIA GPU is switched off by {tool}",
        plain="The NVIDIA GPU is switched off by the hybrid graphics setting",
        text="Switch the NVIDIA GPU on and reboot",
        way=lambda context, text: _switch_on(context, text),
    ),
)


def hybrid_gpu_off(context: RuleContext) -> Iterator[Finding]:
    yield from from_messages(context, (HYBRID_GPU_OFF,))


def _switch_on(context: RuleContext, text: str) -> Fix:
    tool = events(context, "hybrid-gpu-off")[0].values.get("tool", "")
    commands = lines(HYBRID_ON[tool], "sudo reboot") if tool in HYBRID_ON else ()
    return Fix(text=text, commands=commands, needs_root=True, needs_reboot=True)


HYBRID_ON = {
    "bbswitch": "echo ON | sudo tee /proc/acpi/bbswitch",
    "prime-select": "sudo prime-select on-demand",
    "asusctl": "supergfxctl --mode Hybrid",
    "supergfxctl": "supergfxctl --mode Hybrid",
    "envycontrol": "sudo envycontrol --switch hybrid",
    "system76-power": "sudo system76-power graphics hybrid",
    "optimus-manager": "optimus-manager --switch hybrid",
}
"""The tool that switched the GPU off -> what switches it on."""


GPU_PASSED_THROUGH = Cause(
    id="gpu-passed-through",
    kind_of="driver-not-loaded",
    place=(Layer.DRIVER, 20),
    title="the GPU is kept for a virtual machine",
    means="vfio-pci holds the device, so the NVIDIA driver cannot.",
    proven_by="Every NVIDIA device on the bus is bound to vfio-pci or pci-stub",
    way_out="Use it in the guest, or take it out of the vfio options",
    source="Linux kernel, VFIO",
    explains=(*NO_DRIVER, "driver-missing", "driver-not-loaded", "gpu-init-failed"),
    message=Message(
        text="Use the GPU in the virtual machine, or remove its ids from the vfio options in "
        "/etc/modprobe.d and the kernel command line, and reboot",
        needs_root=True,
        needs_reboot=True,
    ),
)


def gpu_passed_through(context: RuleContext) -> Iterator[Finding]:
    """The GPU is reserved for a virtual machine."""
    holders = {device.driver for device in nvidia_on_pci(context)}
    if holders and holders <= PASSED_THROUGH and not gpus(context):
        yield finding(context, GPU_PASSED_THROUGH, on_the_bus(context))


RULES = (
    driver_missing,
    hybrid_gpu_off,
    gpu_passed_through,
)
