"""A driver that is loaded: is it of one version, and can it start the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    answering,
    cuda_errors,
    events,
    is_report,
    nvidia_on_pci,
    on,
)
from gpusetup.evidence.given import not_asked_for
from gpusetup.evidence.places import IN_A_CONTAINER
from gpusetup.findings import alike
from gpusetup.findings.driver.presence import absent_here, nvml_said, on_the_bus
from gpusetup.findings.layers import SILENCE, Layer
from gpusetup.findings.message_rules import finding, shown
from gpusetup.findings.record import Alike, Cause, Message
from gpusetup.fixes import drivers, paste, which
from gpusetup.model.finding import Finding, Fix, Severity
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
    message=Message(
        title="Kernel module and driver library are of different versions",
        detail="Usually the driver's packages were updated while the old module stayed loaded.",
        text="Reboot the host, or unload and load the nvidia modules, so that the kernel module "
        "and the libraries are of one version (a container: restart it, and keep driver packages "
        "out of its image)",
        commands=("sudo reboot",),
        look=("modinfo -F version nvidia", "cat /proc/driver/nvidia/version"),
        see="where a reboot changed nothing, see which module lies on the disk (install the "
        "driver's module and libraries anew where its version is the old one)",
        needs_root=True,
        needs_reboot=True,
        cases=(
            Message(
                where=(IN_A_CONTAINER,),
                text="Restart the container, so that it gets the libraries of the host's driver; "
                "remove driver packages from the image",
            ),
        ),
    ),
)


def nvml_mismatch(context: RuleContext) -> Iterator[Finding]:
    """The kernel module in memory and the driver's libraries on disk are of two versions."""
    machine, driver = context.snapshot, context.snapshot.driver
    kernel, library = driver.version or driver.module_version, driver.library_version
    said, works = events(context, "nvml-mismatch"), driver.nvml_code == 0
    if kernel and library and parsed(kernel) != parsed(library):
        # No order: the versions in a text may be of different days.
        elsewhere = is_report(context) or context.other_host or machine.os.jetson
        # NVML that answers proves that its library fits, though of another release.
        if not works or (on(context, "linux") and not elsewhere):
            said += (shown(context, "driver.library_version", f"library {library}"),)
    if driver.nvml_code == NVML_LIBRARY_MISMATCH:
        said += nvml_said(context)
    if said and kernel:
        said += (shown(context, "driver.version", f"kernel module {kernel}"),)
    if said and not machine.os.wsl:
        works = works and not events(context, "nvml-mismatch")
        # CUDA's own code says which library it is.
        only = Severity.WARNING if works or cuda_errors(context, 803, 804) else None
        yield finding(context, NVML_MISMATCH, said, severity=only)


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
    message=Message(
        title="The driver is loaded but cannot start {who}",
        detail="The kernel log (`sudo dmesg | grep -i nvrm`) holds the reason: a GPU that the "
        "driver does not support, power or seating, firmware (GSP), or too little PCI address "
        "space. A cluster's job that asked for no GPU is shown none either: ask for one first "
        "(Slurm: --gres=gpu:1).",
        text="Shut the machine down fully and start it again; if that does not help, install the "
        "driver anew, in the flavour that the GPU needs",
        way=lambda context, text: Fix(
            text=text,
            commands=drivers.driver_commands(context),
            looks=paste.look("see first what the kernel says", *lines("sudo dmesg | grep -i nvrm")),
            needs_root=True,
            needs_reboot=True,
        ),
        cases=(
            Message(
                having={"lacks": ""},
                text="Give the GPU its PCI address space: switch Above 4G Decoding on in the "
                "firmware; a virtual machine needs UEFI and 64-bit MMIO larger than the GPU's "
                "memory (VMware: pciPassthru.use64bitMMIO and 64bitMMIOSizeGB); else put "
                "pci=realloc on the kernel's command line",
                look=("sudo dmesg | grep -iE 'nvrm|BAR'",),
                see="see what the kernel says of it",
                needs_root=True,
                needs_reboot=True,
            ),
        ),
    ),
)


def gpu_init_failed(context: RuleContext) -> Iterator[Finding]:
    """The module runs, the GPU is bound to it, and yet the driver lists no device, or not it."""
    machine = context.snapshot
    unlisted = events(context, "gpu-not-listed")
    left_out = tuple(e for e in unlisted if not e.values.get("why", "").startswith("CUDA"))
    said = events(context, "gpu-init-failed", "no-devices-found")
    bound = any(d.driver == "nvidia" for d in nvidia_on_pci(context)) and absent_here(context)
    empty = machine.gpus == () and machine.driver.module_loaded and not machine.driver.nvml_code
    if not_asked_for(context) or answering(context):
        said, empty = (), False
    if (said or left_out or (bound and empty)) and not context.other_host:
        places = [f"GPU {e.values.get('place')} ({e.values.get('bus')})" for e in left_out]
        who = ", ".join(places) or which.names(context)
        yield finding(context, GPU_INIT_FAILED, (*said, *left_out, *on_the_bus(context)), who=who)


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
    message=Message(
        title="The driver as loaded does not support {gpus}",
        detail="GPUs before Turing need the closed kernel modules, from Blackwell on the open "
        "ones; old GPUs end with an old driver branch.",
        text="Install the driver's branch and flavour, which this GPU needs",
        way=drivers.driver,
        cases=(
            Message(
                having={"driver": r"\.xx$"},
                text="Install the driver of the branch that the message names, the last one for "
                "this GPU, in place of the newer one (packages named so, or "
                f"{drivers.DRIVER_SITE}), then reboot; newer kernels may not take it",
                needs_root=True,
                needs_reboot=True,
            ),
            Message(
                having={"driver": "open"},
                text="Install the driver's closed (proprietary) kernel modules, which this GPU "
                "needs",
                way=drivers.driver,
            ),
            Message(
                having={"driver": "closed"},
                text="Install the driver's open kernel modules, which this GPU needs",
                way=drivers.driver,
            ),
        ),
    ),
)


def gpu_not_supported_by_driver(context: RuleContext) -> Iterator[Finding]:
    """The loaded driver does not know the GPU: dropped as legacy, too new, or the wrong flavour."""
    said, driver = events(context, "gpu-not-supported-by-driver"), context.snapshot.driver
    opened, want = driver.open_module, drivers.wanted_driver(context)
    wrong = (want.only_open and opened is False) or (opened and not want.is_open)
    # No order: that no GPU is listed is proven live only; a text may leave the list out.
    live = driver.module_loaded and absent_here(context) and not is_report(context)
    if not said and wrong and live:
        loaded = "open" if opened else "closed"
        said = (shown(context, "driver.open_module", f"{loaded} kernel modules", driver=loaded),)
    # Beside mere words the name of a GPU is no list of the driver's.
    words = all(event.values.get("said") for event in said)
    listed = any(not words or g.uuid or g.pci_bus_id for g in answering(context))
    if said and not listed:
        yield finding(context, GPU_NOT_SUPPORTED_BY_DRIVER, said, gpus=which.names(context))


RULES = (
    nvml_mismatch,
    gpu_init_failed,
    gpu_not_supported_by_driver,
)
