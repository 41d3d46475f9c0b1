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
from gpusetup.findings import alike
from gpusetup.findings.driver.presence import absent_here, nvml_said, on_the_bus
from gpusetup.findings.layers import SILENCE, Layer
from gpusetup.findings.record import Alike, Cause
from gpusetup.fixes import drivers, paste, which
from gpusetup.model.finding import Finding, Fix
from gpusetup.model.machine import Event
from gpusetup.model.shell import lines
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
    machine, driver = context.snapshot, context.snapshot.driver
    kernel, library = driver.version or driver.module_version, driver.library_version
    said = events(context, "nvml-mismatch")
    differ = bool(kernel and library and parsed(kernel) != parsed(library))
    # No order: the versions in a text may be of different days.
    elsewhere = is_report(context) or context.other_host or machine.os.jetson
    works = driver.nvml_code == 0
    if works:
        # NVML that answers proves that its library fits, though of another release.
        differ = differ and not elsewhere and on(context, "linux")
    if machine.os.wsl or not (said or differ or driver.nvml_code == NVML_LIBRARY_MISMATCH):
        return
    make = NVML_MISMATCH.as_warning if works and not said else NVML_MISMATCH.found
    facts = {"driver.version": f"kernel module {kernel or '?'}"}
    facts["driver.library_version"] = f"library {library or '?'}"
    # No order: a text from a container may still show the host, so the fix names both.
    inside = in_container(context) and not is_report(context)
    yield make(
        f"Kernel module and driver library are of different versions ({', '.join(facts.values())})",
        detail="Usually the driver's packages were updated while the old module stayed loaded.",
        evidence=(
            *event_evidence(said),
            *nvml_said(context),
            *(
                value_evidence(context, name, text)
                for name, text in facts.items()
                if text[-1] != "?"
            ),
        ),
        fix=IN_A_CONTAINER if inside else ON_THE_HOST,
    )


IN_A_CONTAINER = Fix(
    text="Restart the container, so that it gets the libraries of the host's driver; remove driver "
    "packages from the image"
)
ON_THE_HOST = Fix(
    text="Reboot the host, or unload and load the nvidia modules, so that the kernel module and "
    "the libraries are of one version (a container: restart it, and keep driver packages out of "
    "its image)",
    commands=lines("sudo reboot"),
    looks=paste.look(
        "where a reboot changed nothing, see which module lies on the disk (install the driver's "
        "module and libraries anew where its version is the old one)",
        *lines("modinfo -F version nvidia", "cat /proc/driver/nvidia/version"),
    ),
    needs_root=True,
    needs_reboot=True,
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
    alike=(
        Alike(
            causes=("gpu-fell-off-bus", "gpu-not-supported-by-driver", "device-permission"),
            asks=alike.KERNEL_LOG,
            unless=alike.kernel_says_it,
        ),
    ),
)


def gpu_init_failed(context: RuleContext) -> Iterator[Finding]:
    """The module runs, the GPU is bound to it, and yet the driver lists no device, or not it."""
    machine = context.snapshot
    unlisted = events(context, "gpu-not-listed")
    left_out = tuple(e for e in unlisted if not e.values.get("why", "").startswith("CUDA"))
    said = events(context, "gpu-init-failed", "no-devices-found")
    bound = [d for d in nvidia_on_pci(context) if d.driver == "nvidia"]
    empty = machine.gpus == () and machine.driver.module_loaded and not machine.driver.nvml_code
    if not_asked_for(context) or answering(context):
        said, empty = (), False
    if context.other_host or not (said or left_out or (absent_here(context) and bound and empty)):
        return
    version = machine.driver.version
    who = ", ".join(f"GPU {e.values.get('place')} ({e.values.get('bus')})" for e in left_out)
    lacks = any(event.values.get("lacks") for event in said)
    yield GPU_INIT_FAILED.found(
        f"{f'Driver {version}' if version else 'The driver'} is loaded but cannot start "
        f"{who or which.names(context)}",
        detail="The kernel log (`sudo dmesg | grep -i nvrm`) holds the reason: a GPU that the "
        "driver does not support, power or seating, firmware (GSP), or too little PCI address "
        "space. A cluster's job that asked for no GPU is shown none either: ask for one first "
        "(Slurm: --gres=gpu:1).",
        evidence=(*event_evidence((*said, *left_out)), *on_the_bus(context)),
        fix=ADDRESS_SPACE if lacks else _anew(context),
    )


def _anew(context: RuleContext) -> Fix:
    install = drivers.driver_commands(context) if on(context, "linux") else ()
    return Fix(
        text="Shut the machine down fully and start it again; if that does not help, install the "
        "driver anew, in the flavour that the GPU needs",
        commands=(*install, *lines("sudo reboot")) if install else (),
        looks=paste.look("see first what the kernel says", *lines("sudo dmesg | grep -i nvrm")),
        needs_root=True,
        needs_reboot=True,
    )


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
    alike=(
        Alike(
            causes=("driver-not-loaded", "gpu-init-failed"),
            asks=alike.KERNEL_LOG,
            unless=alike.driver_says_it,
        ),
    ),
)


def gpu_not_supported_by_driver(context: RuleContext) -> Iterator[Finding]:
    """The loaded driver does not know the GPU: dropped as legacy, too new, or the wrong flavour."""
    said = events(context, "gpu-not-supported-by-driver")
    machine, driver = context.snapshot, context.snapshot.driver
    opened, want = driver.open_module, drivers.wanted_driver(context)
    wrong = (want.only_open and opened is False) or (opened and not want.is_open)
    # No order: that no GPU is listed is proven live only; a text may leave the list out.
    unlisted = not is_report(context) and absent_here(context) and not machine.gpus
    if not (said or (unlisted and wrong and driver.module_loaded)) or _is_listed(context, said):
        return
    named = {name: value for event in said for name, value in event.values.items() if value}
    branch, _, rest = named.get("driver", "").partition(".")
    loaded = named.get("driver") or (wrong and ("open" if opened else "closed")) or ""
    needs = FLAVOURS.get(loaded, "branch and flavour")
    version = driver.version or driver.module_version
    yield GPU_NOT_SUPPORTED_BY_DRIVER.found(
        f"{f'Driver {version}' if version else 'The driver as loaded'} does not support "
        f"{named.get('name') or which.names(context)}",
        detail="GPUs before Turing need the closed kernel modules, from Blackwell on the open "
        "ones; old GPUs end with an old driver branch.",
        evidence=event_evidence(said)
        or (value_evidence(context, "driver.open_module", f"open kernel modules: {opened}"),),
        fix=Fix(
            text=f"Install the driver of the {branch} branch, the last one for this GPU, in place "
            f"of the newer one (packages named so, or {drivers.DRIVER_SITE}), then reboot; newer "
            "kernels may not take it",
            needs_root=True,
            needs_reboot=True,
        )
        if rest == "xx"
        else drivers.driver(
            context,
            f"Install the driver's {needs}, which this GPU needs",
        ),
    )


FLAVOURS = {"open": "closed (proprietary) kernel modules", "closed": "open kernel modules"}
"""The kernel modules that are loaded -> those that the GPU needs."""


def _is_listed(context: RuleContext, said: tuple[Event, ...]) -> bool:
    """Whether the driver lists the GPU; beside mere words its name is not enough."""
    words = said and all(event.values.get("said") for event in said)
    return any(
        not words or gpu.nvml_index is not None or gpu.uuid or gpu.pci_bus_id
        for gpu in answering(context)
    )


RULES = (
    nvml_mismatch,
    gpu_init_failed,
    gpu_not_supported_by_driver,
)
