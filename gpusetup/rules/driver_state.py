"""A driver that is loaded: is it of one version, and can it start the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model import Event, Evidence, Finding, Fix, parsed
from gpusetup.rules import drivers, ways, which
from gpusetup.rules.case import (
    Case,
    answering,
    error,
    events,
    in_container,
    is_report,
    nvidia_on_pci,
    on,
    shown,
    told,
    warning,
)
from gpusetup.rules.driver import absent_here, nvml_said, on_the_bus
from gpusetup.shell import Line, lines

NVML_LIBRARY_MISMATCH = 18
NVML_UNKNOWN = 999


def nvml_mismatch(case: Case) -> Iterator[Finding]:
    """The kernel module in memory and the driver's libraries on disk are of two versions."""
    driver = case.snapshot.driver
    kernel, library = driver.version or driver.module_version, driver.library_version
    # NVML that answers proves that its library fits: then another copy of libcuda is meant.
    asked = driver.nvml_code != 0
    differ = bool(asked and kernel and library and parsed(kernel) != parsed(library))
    said = events(case, "nvml-mismatch", "nvrm-api-mismatch")
    if case.snapshot.os.wsl or not (driver.nvml_code == NVML_LIBRARY_MISMATCH or differ or said):
        yield from _answers_all_the_same(case, kernel, library)
        return
    pair = f" {kernel}" if kernel else "", f" {library}" if library else ""
    yield error(
        "nvml-mismatch",
        f"Kernel module{pair[0]} and driver library{pair[1]} are of different versions",
        detail="Usually the driver's packages were updated while the old module stayed loaded.",
        evidence=(*told(said), *nvml_said(case), *_two_versions(case, kernel, library)),
        fix=_mismatch_fix(case),
    )


def _answers_all_the_same(case: Case, kernel: str | None, library: str | None) -> Iterator[Finding]:
    """NVML starts, and is of another release than the driver: an update that is half done."""
    known = kernel and library and case.snapshot.driver.nvml_code == 0
    elsewhere = is_report(case) or case.other_host or case.snapshot.os.wsl
    if not known or elsewhere or case.snapshot.os.jetson or not on(case, "linux"):
        return
    if parsed(kernel or "") != parsed(library or ""):
        yield warning(
            "nvml-mismatch",
            f"NVML is of version {library}, the driver of {kernel}: it starts all the same",
            detail="Usually the driver's packages were updated while the old module stayed loaded.",
            evidence=_two_versions(case, kernel, library),
            fix=_mismatch_fix(case),
        )


def _two_versions(case: Case, kernel: str | None, library: str | None) -> tuple[Evidence, ...]:
    pairs = (
        ("driver.version", "kernel module", kernel),
        ("driver.library_version", "library", library),
    )
    return tuple(
        shown(case, subject, f"{what} {version}") for subject, what, version in pairs if version
    )


def _mismatch_fix(case: Case) -> Fix:
    if in_container(case) and not is_report(case):
        return Fix(
            text="Restart the container, so that it gets the libraries of the host's driver; "
            "remove driver packages from the image",
            needs_reboot=False,
        )
    inside = " (in a container: restart it, and keep driver packages out of the image)"
    return Fix(
        text="Reboot the host, or unload and load the nvidia modules, so that the kernel module "
        f"and the libraries are of one version{inside if in_container(case) else ''}",
        commands=lines("sudo reboot"),
        needs_root=True,
        needs_reboot=True,
    )


def libcuda_missing(case: Case) -> Iterator[Finding]:
    """nvidia-smi works and finds no libcuda to ask for its CUDA version."""
    said = events(case, "cuda-version-err")
    if said and not in_container(case) and not case.snapshot.os.wsl:
        yield error(
            "libcuda-missing",
            "The driver's libcuda is missing or does not load: nvidia-smi prints CUDA Version ERR!",
            detail="nvidia-smi talks to the kernel driver through another library. Server "
            "installs and containers at times leave the compute libraries out.",
            evidence=told(said),
            fix=compute_libraries(case),
        )


def compute_libraries(case: Case) -> Fix:
    """The libraries of the driver that CUDA needs, where only the others are installed."""
    return Fix(
        text="Install the compute libraries of exactly this driver version (libnvidia-"
        "compute, nvidia-driver-cuda-libs); in a container give it the capability compute",
        commands=drivers.driver_commands(case),
        looks=ways.look(
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
    looks=ways.look("see what the kernel says of it", *lines("sudo dmesg | grep -iE 'nvrm|BAR'")),
    needs_root=True,
    needs_reboot=True,
)


def gpu_init_failed(case: Case) -> Iterator[Finding]:
    """The module runs, the GPU is bound to it, and yet the driver lists no device."""
    machine = case.snapshot
    said = events(case, "gpu-init-failed", "no-devices-found")
    bound = [d for d in nvidia_on_pci(case) if d.driver == "nvidia"]
    empty = machine.gpus == () and machine.driver.module_loaded and not machine.driver.nvml_code
    if answering(case) or not (said or (absent_here(case) and bound and empty)):
        return
    version = machine.driver.version
    yield error(
        "gpu-init-failed",
        f"{f'Driver {version}' if version else 'The driver'} is loaded but cannot start "
        f"{which.names(case)}",
        detail="The kernel log (`sudo dmesg | grep -i nvrm`) holds the reason: a GPU that "
        "the driver "
        "does not support, power or seating, firmware (GSP), or too little PCI address space. "
        "A cluster's job that asked for no GPU is shown none either: ask for one first "
        "(Slurm: --gres=gpu:1).",
        evidence=(
            *told(said),
            *on_the_bus(case),
            *((shown(case, "gpus", "the driver lists no device"),) if empty else ()),
        ),
        fix=ADDRESS_SPACE
        if any(event.values.get("lacks") for event in said)
        else Fix(
            text="Shut the machine down fully and start it again; if that does not help, "
            "install the "
            "driver anew, in the flavour that the GPU needs",
            commands=_anew(case),
            looks=ways.look("see first what the kernel says", *lines("sudo dmesg | grep -i nvrm")),
            needs_root=True,
            needs_reboot=True,
        ),
    )


def _anew(case: Case) -> tuple[Line, ...]:
    """The driver installed anew, and a start after it."""
    install = drivers.driver_commands(case) if on(case, "linux") else ()
    return (*install, *lines("sudo reboot")) if install else ()


def gpu_not_supported_by_driver(case: Case) -> Iterator[Finding]:
    """The loaded driver does not know the GPU: dropped as legacy, too new, or the wrong flavour."""
    said = events(case, "gpu-not-supported-by-driver")
    flavour = None if is_report(case) or not absent_here(case) else _wrong_flavour(case)
    if (said or flavour) and not answering(case):
        version = case.snapshot.driver.version or case.snapshot.driver.module_version
        spoken = next((e.values["name"] for e in said if e.values.get("name")), None)
        yield error(
            "gpu-not-supported-by-driver",
            f"{f'Driver {version}' if version else 'The driver as loaded'} does not support "
            f"{spoken or which.names(case)}",
            detail="GPUs before Turing need the closed kernel modules, from Blackwell on the "
            "open ones; "
            "old GPUs end with an old driver branch.",
            evidence=(*told(said), *_seen(case, flavour)),
            fix=_legacy(said)
            if _branch(said)
            else drivers.driver(case, _which_driver(said, flavour or "")),
        )


def _wrong_flavour(case: Case) -> str | None:
    """The kernel modules that are loaded, where the GPUs on the bus need the other ones."""
    machine = case.snapshot
    opened, want = machine.driver.open_module, drivers.wanted_driver(case)
    if machine.gpus or not machine.driver.module_loaded or opened is None:
        return None
    if want.only_open and not opened:
        return "the closed kernel modules are loaded"
    return "the open kernel modules are loaded" if opened and not want.is_open else None


def _branch(said: tuple[Event, ...]) -> str | None:
    """The legacy branch that the kernel driver names.

    >>> _branch((Event(kind="gpu-not-supported-by-driver", values={"driver": "470.xx"}),))
    '470'
    """
    named = (e.values.get("driver", "").partition(".") for e in said)
    return next((branch for branch, _, rest in named if rest == "xx"), None)


def _legacy(said: tuple[Event, ...]) -> Fix:
    """An old branch is packaged by few distributions, and under many names."""
    return Fix(
        text=f"Install the driver of the {_branch(said)} branch, the last one for this GPU, in "
        f"place of the newer one (packages named so, or {drivers.DRIVER_SITE}), then reboot; newer "
        "kernels may not take it",
        needs_root=True,
        needs_reboot=True,
    )


def _seen(case: Case, flavour: str | None) -> tuple[Evidence, ...]:
    return (shown(case, "driver.open_module", flavour),) if flavour else ()


def _which_driver(said: tuple[Event, ...], loaded: str) -> str:
    flavours = {e.values.get("driver") for e in said}
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
