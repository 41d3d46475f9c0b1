"""A driver that is loaded: is it of one version, and can it start the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    answering,
    event_evidence,
    events,
    in_container,
    is_report,
    nvidia_on_pci,
    on,
    value_evidence,
)
from gpusetup.evidence.given import not_asked_for
from gpusetup.findings.driver.presence import absent_here, nvml_said, on_the_bus
from gpusetup.findings.layers import SILENCE, Layer
from gpusetup.findings.record import Cause
from gpusetup.fixes import drivers, paste, which
from gpusetup.model.finding import Evidence, Finding, Fix
from gpusetup.model.machine import Event
from gpusetup.model.shell import Line, lines
from gpusetup.model.versions import parsed

NVML_LIBRARY_MISMATCH = 18


NVML_MISMATCH = Cause(
    id="nvml-mismatch",
    place=(Layer.DRIVER, 70),
    title="kernel module and driver library are of two versions",
    means="The packages were updated while the old module stayed in memory.",
    proven_by="NVML code 18, or two versions read",
    not_when="WSL, where the two have versions of their own",
    way_out="Reboot",
    source="NVML API reference, nvmlReturn_t (LIB_RM_VERSION_MISMATCH)",
    explains=(
        *SILENCE,
        "libcuda-driver-mismatch",
        "forward-compat-unsupported",
        "container-hook-failed",
    ),
)


def nvml_mismatch(context: RuleContext) -> Iterator[Finding]:
    """The kernel module in memory and the driver's libraries on disk are of two versions."""
    driver = context.snapshot.driver
    kernel, library = driver.version or driver.module_version, driver.library_version
    # NVML that answers proves that its library fits: then another copy of libcuda is meant.
    asked = driver.nvml_code != 0
    differ = bool(asked and kernel and library and parsed(kernel) != parsed(library))
    messages = events(context, "nvml-mismatch")
    if context.snapshot.os.wsl or not (
        driver.nvml_code == NVML_LIBRARY_MISMATCH or differ or messages
    ):
        yield from _answers_all_the_same(context, kernel, library)
        return
    pair = f" {kernel}" if kernel else "", f" {library}" if library else ""
    yield NVML_MISMATCH.found(
        f"Kernel module{pair[0]} and driver library{pair[1]} are of different versions",
        detail="Usually the driver's packages were updated while the old module stayed loaded.",
        evidence=(
            *event_evidence(messages),
            *nvml_said(context),
            *_two_versions(context, kernel, library),
        ),
        fix=_mismatch_fix(context),
    )


def _answers_all_the_same(
    context: RuleContext, kernel: str | None, library: str | None
) -> Iterator[Finding]:
    """NVML starts, and is of another release than the driver: an update that is half done."""
    known = kernel and library and context.snapshot.driver.nvml_code == 0
    # No order: the versions in a text may be of different days.
    elsewhere = is_report(context) or context.other_host or context.snapshot.os.wsl
    if not known or elsewhere or context.snapshot.os.jetson or not on(context, "linux"):
        return
    if parsed(kernel or "") != parsed(library or ""):
        yield NVML_MISMATCH.as_warning(
            f"NVML is of version {library}, the driver of {kernel}: it starts all the same",
            detail="Usually the driver's packages were updated while the old module stayed loaded.",
            evidence=_two_versions(context, kernel, library),
            fix=_mismatch_fix(context),
        )


def _two_versions(
    context: RuleContext, kernel: str | None, library: str | None
) -> tuple[Evidence, ...]:
    pairs = (
        ("driver.version", "kernel module", kernel),
        ("driver.library_version", "library", library),
    )
    return tuple(
        value_evidence(context, subject, f"{what} {version}")
        for subject, what, version in pairs
        if version
    )


def _mismatch_fix(context: RuleContext) -> Fix:
    # No order: a text from a container may still show the host, so the fix names both.
    if in_container(context) and not is_report(context):
        return Fix(
            text="Restart the container, so that it gets the libraries of the host's driver; "
            "remove driver packages from the image",
            needs_reboot=False,
        )
    inside = " (in a container: restart it, and keep driver packages out of the image)"
    return Fix(
        text="Reboot the host, or unload and load the nvidia modules, so that the kernel module "
        f"and the libraries are of one version{inside if in_container(context) else ''}",
        commands=lines("sudo reboot"),
        looks=paste.look(
            "where a reboot changed nothing, see which module lies on the disk (install the "
            "driver's module and libraries anew where its version is the old one)",
            *lines("modinfo -F version nvidia", "cat /proc/driver/nvidia/version"),
        ),
        needs_root=True,
        needs_reboot=True,
    )


LIBCUDA_MISSING = Cause(
    id="libcuda-missing",
    kind_of="driver-missing",
    place=(Layer.DRIVER, 100),
    title="the driver's libcuda is missing or does not load",
    means="nvidia-smi works without it, CUDA does not.",
    proven_by="nvidia-smi prints CUDA Version ERR!",
    not_when="wsl-driver; container-driver-capability-missing (in a container)",
    way_out="The driver's compute libraries, of its exact version",
    source="nvidia-smi's manual page; NVIDIA, driver README, installed components",
    explains=("nvml-init-failed",),
)


def libcuda_missing(context: RuleContext) -> Iterator[Finding]:
    """nvidia-smi works and finds no libcuda to ask for its CUDA version."""
    messages = events(context, "cuda-version-err")
    if messages and not in_container(context) and not context.snapshot.os.wsl:
        yield LIBCUDA_MISSING.found(
            "The driver's libcuda is missing or does not load: nvidia-smi prints CUDA Version ERR!",
            detail="nvidia-smi talks to the kernel driver through another library. Server "
            "installs and containers at times leave the compute libraries out.",
            evidence=event_evidence(messages),
            fix=compute_libraries(context),
        )


def compute_libraries(context: RuleContext) -> Fix:
    """The libraries of the driver that CUDA needs, where only the others are installed."""
    if on(context, "windows") or context.snapshot.os.wsl:
        return drivers.driver(context, "Install the NVIDIA driver again")
    return Fix(
        text="Install the compute libraries of exactly this driver version (libnvidia-"
        "compute, nvidia-driver-cuda-libs); in a container give it the capability compute",
        commands=drivers.driver_commands(context),
        looks=paste.look(
            "see first which libcuda the loader finds",
            *lines("ldconfig -p | grep libcuda"),
        ),
        needs_root=True,
    )


ADDRESS_SPACE = Fix(
    text="Give the GPU its PCI address space: switch Above 4G Decoding on in the firmware; a "
    "virtual machine needs UEFI and 64-bit MMIO larger than the GPU's memory (VMware: "
    "pciPassthru.use64bitMMIO and 64bitMMIOSizeGB); else put pci=realloc on the kernel's command "
    "line",
    looks=paste.look("see what the kernel says of it", *lines("sudo dmesg | grep -iE 'nvrm|BAR'")),
    needs_root=True,
    needs_reboot=True,
)


GPU_INIT_FAILED = Cause(
    id="gpu-init-failed",
    place=(Layer.DRIVER, 90),
    title="the driver is loaded and cannot start the GPU",
    means="RmInitAdapter failed: firmware, power, seating, address space, or a GPU that "
    "the driver does not support.",
    proven_by="The module is bound to the GPU and it is not listed, or the kernel log says so",
    not_when="A GPU that fell off the bus later",
    way_out="Full power-off; the right driver flavour",
    source="messages of NVIDIA's open kernel modules",
    explains=("uvm-missing",),
)


def gpu_init_failed(context: RuleContext) -> Iterator[Finding]:
    """The module runs, the GPU is bound to it, and yet the driver lists no device."""
    machine = context.snapshot
    messages = events(context, "gpu-init-failed", "no-devices-found")
    bound = [d for d in nvidia_on_pci(context) if d.driver == "nvidia"]
    empty = machine.gpus == () and machine.driver.module_loaded and not machine.driver.nvml_code
    if not_asked_for(context) or answering(context):
        return
    if not (messages or (absent_here(context) and bound and empty)):
        return
    version = machine.driver.version
    yield GPU_INIT_FAILED.found(
        f"{f'Driver {version}' if version else 'The driver'} is loaded but cannot start "
        f"{which.names(context)}",
        detail="The kernel log (`sudo dmesg | grep -i nvrm`) holds the reason: a GPU that the "
        "driver does not support, power or seating, firmware (GSP), or too little PCI address "
        "space. A cluster's job that asked for no GPU is shown none either: ask for one first "
        "(Slurm: --gres=gpu:1).",
        evidence=(
            *event_evidence(messages),
            *on_the_bus(context),
            *((value_evidence(context, "gpus", "the driver lists no device"),) if empty else ()),
        ),
        fix=ADDRESS_SPACE
        if any(event.values.get("lacks") for event in messages)
        else Fix(
            text="Shut the machine down fully and start it again; if that does not help, install "
            "the driver anew, in the flavour that the GPU needs",
            commands=_anew(context),
            looks=paste.look("see first what the kernel says", *lines("sudo dmesg | grep -i nvrm")),
            needs_root=True,
            needs_reboot=True,
        ),
    )


def _anew(context: RuleContext) -> tuple[Line, ...]:
    """The driver installed anew, and a start after it."""
    install = drivers.driver_commands(context) if on(context, "linux") else ()
    return (*install, *lines("sudo reboot")) if install else ()


GPU_NOT_SUPPORTED_BY_DRIVER = Cause(
    id="gpu-not-supported-by-driver",
    kind_of="gpu-init-failed",
    place=(Layer.DRIVER, 80),
    title="the loaded driver does not know the GPU",
    means="Old GPUs end with a driver branch; GPUs before Turing need the closed modules,"
    " from Blackwell on the open ones.",
    proven_by="The kernel log says that the GPU is not supported or legacy",
    way_out="Install the branch and flavour that the GPU needs",
    source='NVIDIA, "Driver Installation Guide"; the catalog\'s table of last branches',
    explains=("gpu-init-failed", "driver-not-loaded"),
)


def gpu_not_supported_by_driver(context: RuleContext) -> Iterator[Finding]:
    """The loaded driver does not know the GPU: dropped as legacy, too new, or the wrong flavour."""
    messages = events(context, "gpu-not-supported-by-driver")
    # No order: that no GPU is listed is proven live only; a text may leave the list out.
    flavour = None if is_report(context) or not absent_here(context) else _wrong_flavour(context)
    if (messages or flavour) and not _is_listed(context, messages):
        version = context.snapshot.driver.version or context.snapshot.driver.module_version
        spoken = next((e.values["name"] for e in messages if e.values.get("name")), None)
        yield GPU_NOT_SUPPORTED_BY_DRIVER.found(
            f"{f'Driver {version}' if version else 'The driver as loaded'} does not support "
            f"{spoken or which.names(context)}",
            detail="GPUs before Turing need the closed kernel modules, from Blackwell on the open "
            "ones; old GPUs end with an old driver branch.",
            evidence=(*event_evidence(messages), *_seen(context, flavour)),
            fix=_legacy(messages)
            if _branch(messages)
            else drivers.driver(context, _which_driver(messages, flavour or "")),
        )


def _is_listed(context: RuleContext, messages: tuple[Event, ...]) -> bool:
    """Whether the driver lists the GPU; beside mere words its name is not enough."""
    listed = answering(context)
    if messages and all(event.values.get("said") for event in messages):
        return any(gpu.nvml_index is not None or gpu.uuid or gpu.pci_bus_id for gpu in listed)
    return bool(listed)


def _wrong_flavour(context: RuleContext) -> str | None:
    """The kernel modules that are loaded, where the GPUs on the bus need the other ones."""
    machine = context.snapshot
    opened, want = machine.driver.open_module, drivers.wanted_driver(context)
    if machine.gpus or not machine.driver.module_loaded or opened is None:
        return None
    if want.only_open and not opened:
        return "the closed kernel modules are loaded"
    return "the open kernel modules are loaded" if opened and not want.is_open else None


def _branch(messages: tuple[Event, ...]) -> str | None:
    """The legacy branch that the kernel driver names.

    >>> _branch((Event(kind="gpu-not-supported-by-driver", values={"driver": "470.xx"}),))
    '470'
    """
    named = (e.values.get("driver", "").partition(".") for e in messages)
    return next((branch for branch, _, rest in named if rest == "xx"), None)


def _legacy(messages: tuple[Event, ...]) -> Fix:
    """An old branch is packaged by few distributions, and under many names."""
    return Fix(
        text=f"Install the driver of the {_branch(messages)} branch, the last one for this GPU, in "
        f"place of the newer one (packages named so, or {drivers.DRIVER_SITE}), then reboot; newer "
        "kernels may not take it",
        needs_root=True,
        needs_reboot=True,
    )


def _seen(context: RuleContext, flavour: str | None) -> tuple[Evidence, ...]:
    return (value_evidence(context, "driver.open_module", flavour),) if flavour else ()


def _which_driver(messages: tuple[Event, ...], loaded: str) -> str:
    flavours = {e.values.get("driver") for e in messages}
    if "open" in flavours or "open" in loaded:
        return "Install the driver's closed (proprietary) kernel modules: this GPU has no GSP"
    if "closed" in flavours or "closed" in loaded:
        return "Install the driver's open kernel modules, which this GPU needs"
    return "Install the driver branch and flavour that this GPU needs"


RULES = (
    nvml_mismatch,
    libcuda_missing,
    gpu_init_failed,
    gpu_not_supported_by_driver,
)
