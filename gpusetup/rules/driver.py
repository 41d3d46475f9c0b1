"""The driver: is it there, loaded, of one version, ready, and what does the CUDA API answer."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.model import Evidence, Finding, Fix, parsed
from gpusetup.rules import ways
from gpusetup.rules.case import (
    Case,
    cuda_needed,
    driver_answers,
    error,
    events,
    gpus,
    has_nvidia,
    in_container,
    note,
    nvidia_on_pci,
    on,
    problems,
    shown,
    told,
    warning,
)

NVML_DRIVER_NOT_LOADED = 9
NVML_LIBRARY_NOT_FOUND = 12
NVML_LIBRARY_MISMATCH = 18
NVML_UNKNOWN = 999

SLOW_SECONDS = 5.0

PASSED_THROUGH = ("vfio-pci", "pci-stub", "xen-pciback")
"""Kernel drivers that hold a GPU for a virtual machine."""


def absent_here(case: Case) -> bool:
    """Whether the driver is missing from this machine itself, not from around it."""
    return not (case.other_host or in_container(case) or case.snapshot.os.wsl or on(case, "macos"))


def driver_missing(case: Case) -> Iterator[Finding]:
    """An NVIDIA GPU, or a program that looked for one, and no NVIDIA driver at all."""
    driver = case.snapshot.driver
    said = events(case, "no-nvidia-driver")
    if driver_answers(case) or driver.module_loaded or not absent_here(case):
        return
    proven = has_nvidia(case) and driver.library_found is False and not driver.module_version
    suspected = has_nvidia(case) is None and driver.library_found is False and _wants_cuda(case)
    if not (proven or suspected or (said and has_nvidia(case) is not False)):
        return
    held = [d.driver for d in nvidia_on_pci(case) if d.driver]
    yield error(
        "driver-missing",
        f"No NVIDIA driver is installed for {ways.names(case)}",
        detail=f"The GPU is on the PCI bus, bound to {held[0]}." if held else "",
        evidence=(
            *told(said),
            *_on_the_bus(case),
            shown(case, "driver.library_found", "no libcuda, no libnvidia-ml (nvcuda.dll)"),
            *problems(case, "driver.version", "driver"),
        ),
        fix=ways.driver(case, "Install the NVIDIA driver"),
    )


def _wants_cuda(case: Case) -> bool:
    return cuda_needed(case.snapshot.torch) is not None


def _on_the_bus(case: Case) -> tuple[Evidence, ...]:
    return tuple(
        shown(
            case,
            "pci_devices",
            f"{d.bus_id or 'PCI'} {d.name or 'NVIDIA device'}, driver: {d.driver or 'none'}",
        )
        for d in nvidia_on_pci(case)[:2]
    )


def driver_not_loaded(case: Case) -> Iterator[Finding]:
    """The driver's packages are here, its kernel module does not answer."""
    driver = case.snapshot.driver
    installed = driver.library_found or driver.module_version or driver.library_version
    silent = driver.module_loaded is False or driver.nvml_code == NVML_DRIVER_NOT_LOADED
    said = events(case, "driver-not-loaded")
    if not absent_here(case) or driver_answers(case) or has_nvidia(case) is False:
        return
    if not (said or (installed and silent)):
        return
    yield error(
        "driver-not-loaded",
        "The NVIDIA driver is installed, but its kernel module is not loaded",
        detail=_why_not_loaded(case),
        evidence=(
            *told(said),
            *_nvml_said(case),
            *_on_the_bus(case),
            *_module_facts(case),
        ),
        fix=_load_fix(case),
    )


def _nvml_said(case: Case) -> tuple[Evidence, ...]:
    driver = case.snapshot.driver
    if not driver.nvml_code:
        return ()
    return (
        Evidence(source="NVML", text=f"{driver.nvml_code}: {driver.nvml_message or 'an error'}"),
    )


def _module_facts(case: Case) -> tuple[Evidence, ...]:
    driver = case.snapshot.driver
    if driver.module_loaded is not False:
        return ()
    on_disk = f", {driver.module_version} on disk" if driver.module_version else ""
    return (shown(case, "driver.module_loaded", f"module nvidia is not loaded{on_disk}"),)


def _why_not_loaded(case: Case) -> str:
    driver, held = case.snapshot.driver, [d.driver for d in nvidia_on_pci(case) if d.driver]
    if driver.nouveau_loaded or "nouveau" in held:
        return "The open nouveau driver holds the GPU; NVIDIA's module cannot take it."
    if case.snapshot.os.secure_boot:
        return (
            "Secure Boot is on: the kernel loads the module only if it is signed with an enrolled "
            "key (`sudo mokutil --list-enrolled`)."
        )
    return "Often after a kernel update for which no module was built."


NOUVEAU_COMMANDS = (
    "printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' "
    "| sudo tee /etc/modprobe.d/blacklist-nouveau.conf",
)
REBUILD_INITRD = {
    "ubuntu": "sudo update-initramfs -u",
    "debian": "sudo update-initramfs -u",
    "pop": "sudo update-initramfs -u",
    "fedora": "sudo dracut --force",
    "rhel": "sudo dracut --force",
    "suse": "sudo dracut --force",
    "arch": "sudo mkinitcpio -P",
}


def _load_fix(case: Case) -> Fix:
    if on(case, "windows"):
        text = "Enable the GPU in the Device Manager, or install its driver again"
        return Fix(text=text, needs_root=True, needs_reboot=True)
    held = [d.driver for d in nvidia_on_pci(case) if d.driver]
    if case.snapshot.driver.nouveau_loaded or "nouveau" in held:
        rebuild = REBUILD_INITRD.get(ways.distribution(case) or "")
        commands = (*NOUVEAU_COMMANDS, *((rebuild,) if rebuild else ()), "sudo reboot")
        text = "Keep nouveau from the GPU, rebuild the initial RAM disk and reboot"
        return Fix(text=text, commands=commands, needs_root=True, needs_reboot=True)
    return Fix(
        text="Load the module; where modprobe does not find it, build it for this kernel, "
        "then reboot",
        commands=("sudo modprobe nvidia", "sudo dkms autoinstall", "sudo reboot"),
        needs_root=True,
        needs_reboot=True,
    )


def secure_boot_rejected(case: Case) -> Iterator[Finding]:
    """The kernel refused the module's signature."""
    said = events(case, "module-key-rejected")
    if said and not driver_answers(case):
        yield error(
            "secure-boot-rejected",
            "Secure Boot rejects the NVIDIA kernel module: its key is not enrolled",
            evidence=told(said),
            fix=Fix(
                text="Enroll the key that signed the module (the firmware asks at the next "
                "start), or "
                "switch Secure Boot off",
                commands=(_mok_command(case), "sudo reboot"),
                needs_root=True,
                needs_reboot=True,
            ),
        )


def _mok_command(case: Case) -> str:
    ubuntu = ways.distribution(case) in ("ubuntu", "pop")
    key = "/var/lib/shim-signed/mok/MOK.der" if ubuntu else "/var/lib/dkms/mok.pub"
    return f"sudo mokutil --import {key}"


def hybrid_gpu_off(case: Case) -> Iterator[Finding]:
    """A laptop's switch has turned the NVIDIA GPU off."""
    said = events(case, "hybrid-gpu-off")
    if said and not driver_answers(case):
        tool = said[0].values.get("tool")
        commands = HYBRID_ON.get(tool or "", ())
        yield error(
            "hybrid-gpu-off",
            f"The NVIDIA GPU is switched off by {tool or 'the hybrid graphics setting'}",
            evidence=told(said),
            fix=Fix(
                text="Switch the NVIDIA GPU on, then log in again or reboot",
                commands=commands,
                needs_root=True,
                needs_reboot=True,
            ),
        )


HYBRID_ON = {
    "prime-select": ("sudo prime-select on-demand",),
    "supergfxctl": ("supergfxctl --mode Hybrid",),
    "envycontrol": ("sudo envycontrol --switch hybrid",),
    "system76-power": ("sudo system76-power graphics hybrid",),
    "optimus-manager": ("optimus-manager --switch hybrid",),
}
"""The tool that switched the GPU off -> what switches it on."""


def gpu_passed_through(case: Case) -> Iterator[Finding]:
    """The GPU is reserved for a virtual machine."""
    held = [d for d in nvidia_on_pci(case) if d.driver in PASSED_THROUGH]
    if held and len(held) == len(nvidia_on_pci(case)) and not gpus(case):
        yield error(
            "gpu-passed-through",
            f"{held[0].name or 'The NVIDIA GPU'} is bound to {held[0].driver}: kept for a "
            "virtual machine",
            evidence=_on_the_bus(case),
            fix=Fix(
                text="Use the GPU in the virtual machine, or remove its ids from the vfio "
                "options in "
                "/etc/modprobe.d and the kernel command line, and reboot",
                needs_root=True,
                needs_reboot=True,
            ),
        )


def nvml_mismatch(case: Case) -> Iterator[Finding]:
    """The kernel module in memory and the driver's libraries on disk are of two versions."""
    driver = case.snapshot.driver
    kernel, library = driver.version or driver.module_version, driver.library_version
    # NVML that answers proves that its library fits: then another copy of libcuda is meant.
    asked = driver.nvml_code != 0
    differ = bool(asked and kernel and library and parsed(kernel) != parsed(library))
    said = events(case, "nvml-mismatch", "nvrm-api-mismatch")
    if case.snapshot.os.wsl or not (driver.nvml_code == NVML_LIBRARY_MISMATCH or differ or said):
        return
    pair = f" {kernel}" if kernel else "", f" {library}" if library else ""
    yield error(
        "nvml-mismatch",
        f"Kernel module{pair[0]} and driver library{pair[1]} are of different versions",
        detail="Usually the driver's packages were updated while the old module stayed loaded.",
        evidence=(*told(said), *_nvml_said(case), *_two_versions(case, kernel, library)),
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
    if in_container(case):
        return Fix(
            text="Restart the container, so that it gets the libraries of the host's "
            "driver; remove "
            "driver packages from the image",
            needs_reboot=False,
        )
    return Fix(
        text="Reboot, so that the new kernel module is loaded",
        commands=("sudo reboot",),
        needs_root=True,
        needs_reboot=True,
    )


def gpu_init_failed(case: Case) -> Iterator[Finding]:
    """The module runs, the GPU is bound to it, and yet the driver lists no device."""
    machine = case.snapshot
    said = events(case, "gpu-init-failed")
    bound = [d for d in nvidia_on_pci(case) if d.driver == "nvidia"]
    empty = machine.gpus == () and machine.driver.module_loaded and not machine.driver.nvml_code
    if not absent_here(case) or gpus(case) or not (said or (bound and empty)):
        return
    version = machine.driver.version
    yield error(
        "gpu-init-failed",
        f"Driver {version or ''} is loaded but cannot start {ways.names(case)}".replace("  ", " "),
        detail="The kernel log (`sudo dmesg | grep -i nvrm`) holds the reason: a GPU that "
        "the driver "
        "does not support, power or seating, firmware (GSP), or too little PCI address space.",
        evidence=(
            *told(said),
            *_on_the_bus(case),
            shown(case, "gpus", "the driver lists no device"),
        ),
        fix=Fix(
            text="Shut the machine down fully and start it again; if that does not help, "
            "install the "
            "driver anew, in the flavour that the GPU needs",
            commands=("sudo dmesg | grep -i nvrm", *ways.driver_commands(case)),
            needs_root=True,
            needs_reboot=True,
        ),
    )


def gpu_not_supported_by_driver(case: Case) -> Iterator[Finding]:
    """The loaded driver does not know the GPU: dropped as legacy, too new, or the wrong flavour."""
    said = events(case, "gpu-not-supported-by-driver")
    if said and not gpus(case):
        version = case.snapshot.driver.version or case.snapshot.driver.module_version
        yield error(
            "gpu-not-supported-by-driver",
            f"Driver {version or 'as loaded'} does not support {ways.names(case)}",
            detail="GPUs before Turing need the closed kernel modules, from Blackwell on the "
            "open ones; "
            "old GPUs end with an old driver branch.",
            evidence=told(said),
            fix=ways.driver(case, "Install the driver branch and flavour that this GPU needs"),
        )


def driver_too_old(case: Case) -> Iterator[Finding]:
    """The driver serves less CUDA than the installed torch, or any torch, needs."""
    machine = case.snapshot
    torch, driver = machine.torch, machine.driver
    said = events(case, "driver-too-old")
    if not driver.version and not said:
        return
    needed = cuda_needed(case.snapshot.torch) or next(
        (e.values["cuda"] for e in said if "cuda" in e.values), None
    )
    floor = case.catalog.driver_floor(needed, machine.os.family or "linux") if needed else None
    short = bool(driver.version and floor and parsed(driver.version) < parsed(floor))
    short = short and not _serves_anyway(case, needed)
    if short or said:
        what = f"torch {torch.version}" if torch.version else "the program"
        has = f"driver {driver.version}" if driver.version else "this driver"
        serves = f" (CUDA {driver.cuda})" if driver.cuda else ""
        yield error(
            "driver-too-old",
            f"{what} needs driver {floor or 'newer'} (CUDA {needed or '?'}), found {has}{serves}",
            evidence=(*told(said), *_driver_and_torch(case)),
            fix=_driver_or_torch(case, floor),
        )
    elif _no_build_for(case):
        yield _no_torch_for_this_driver(case)


def _serves_anyway(case: Case, needed: str | None) -> bool:
    """The driver says itself that it serves this CUDA (WSL, cuda-compat)."""
    says = case.snapshot.driver.cuda
    lifted = case.snapshot.container.cuda_compat_path and case.snapshot.cuda_api.init_code == 0
    return bool(lifted or (says and needed and parsed(says) >= parsed(needed)))


def _driver_and_torch(case: Case) -> tuple[Evidence, ...]:
    driver, torch = case.snapshot.driver, case.snapshot.torch
    lines = (
        (driver.version, "driver.version", f"driver {driver.version}"),
        (
            torch.version,
            "torch.version",
            f"torch {torch.version}, CUDA {cuda_needed(case.snapshot.torch)}",
        ),
    )
    return tuple(shown(case, subject, text) for known, subject, text in lines if known)


def _driver_or_torch(case: Case, floor: str | None) -> Fix:
    newer = ways.driver(case, f"Update the driver to {floor or 'the newest'} or newer", floor)
    build = case.resolution.build
    if build is None or build.backend == "cpu":
        return newer
    return Fix(
        text=f"{newer.text}. Or keep the driver and install torch {build.torch} from "
        f"{build.backend}, "
        "which it serves: the commands below",
        commands=ways.install_commands(case),
        needs_root=False,
        needs_reboot=False,
        min_driver=floor,
    )


def _no_build_for(case: Case) -> bool:
    advice = case.resolution.advice
    chosen = case.resolution.build
    nothing = chosen is None or chosen.backend == "cpu"
    here = bool(gpus(case)) and not case.snapshot.os.jetson
    return nothing and here and advice is not None and advice.change == "driver"


def _no_torch_for_this_driver(case: Case) -> Finding:
    advice = case.resolution.advice
    assert advice is not None
    driver = case.snapshot.driver
    return error(
        "driver-too-old",
        f"No torch build runs on driver {driver.version}; {advice.to} gives {advice.gives}",
        evidence=_driver_and_torch(case),
        fix=ways.driver(case, f"Update the driver to {advice.to} or newer", advice.to),
    )


def driver_newer_than_catalog(case: Case) -> Iterator[Finding]:
    """The driver is newer than every row: it counts as the newest row."""
    version = case.snapshot.driver.version
    if version and case.catalog.driver_is_newer(version):
        yield note(
            "driver-newer-than-catalog",
            f"Driver {version} is newer than the catalog of {case.catalog.as_of}: it counts as its "
            "newest row",
            evidence=(shown(case, "driver.version", f"driver {version}"),),
        )


def driver_slow(case: Case) -> Iterator[Finding]:
    """The driver took long to answer."""
    seconds = case.snapshot.driver.seconds
    if seconds is not None and seconds > SLOW_SECONDS:
        yield warning(
            "driver-slow",
            f"The driver took {seconds:.0f} s to answer",
            detail="Without persistence mode it starts every GPU anew for each program.",
            evidence=(shown(case, "driver.seconds", f"{seconds:.1f} s"),),
            fix=Fix(
                text="Keep the driver loaded between programs",
                commands=("sudo systemctl enable --now nvidia-persistenced",)
                if on(case, "linux")
                else (),
                needs_root=True,
            ),
        )


def floor_for_the_other_host(case: Case) -> Iterator[Finding]:
    """A GPU was named, no driver: what driver this torch needs there."""
    needed = cuda_needed(case.snapshot.torch)
    if not case.other_host or case.snapshot.driver.version or not needed:
        return
    floor = case.catalog.driver_floor(needed, case.snapshot.os.family or "linux")
    if floor:
        yield note(
            "driver-to-expect",
            f"torch {case.snapshot.torch.version} needs driver {floor} or newer on that host",
            fix=Fix(text="Check it with `--for-driver VERSION`", min_driver=floor),
        )


RULES = (
    driver_missing,
    driver_not_loaded,
    secure_boot_rejected,
    hybrid_gpu_off,
    gpu_passed_through,
    nvml_mismatch,
    gpu_init_failed,
    gpu_not_supported_by_driver,
    driver_too_old,
    driver_newer_than_catalog,
    driver_slow,
    floor_for_the_other_host,
)
