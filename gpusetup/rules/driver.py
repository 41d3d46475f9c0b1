"""The driver: is it there at all, loaded, and allowed to have the GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from gpusetup.model import Event, Evidence, Finding, Fix
from gpusetup.rules import drivers, packages, ways, which
from gpusetup.rules.case import (
    Case,
    answering,
    asked_for_cuda,
    cuda_needed,
    driver_answers,
    error,
    events,
    gpus,
    has_nvidia,
    in_container,
    is_report,
    kernel_driver_spoke,
    nvidia_on_pci,
    on,
    problems,
    shown,
    told,
)
from gpusetup.rules.plausible import is_a_kernel
from gpusetup.shell import Line, filled, lines

NVML_DRIVER_NOT_LOADED = 9
NVML_LIBRARY_NOT_FOUND = 12

PASSED_THROUGH = ("vfio-pci", "pci-stub", "xen-pciback")
"""Kernel drivers that hold a GPU for a virtual machine."""


def absent_here(case: Case) -> bool:
    """Whether the driver is missing from this machine itself, not from around it."""
    return not (case.other_host or in_container(case) or case.snapshot.os.wsl or on(case, "macos"))


PACKAGES_ARE_THERE = ("driver-not-loaded", "module-not-inserted", "module-key-rejected")
"""Events of the driver's own programs: torch's "no NVIDIA driver" then means none is loaded."""


def driver_missing(case: Case) -> Iterator[Finding]:
    """An NVIDIA GPU, or a program that looked for one, and no NVIDIA driver at all."""
    driver = case.snapshot.driver
    said = (*events(case, "no-nvidia-driver"), *_looked_in_vain(case))
    here = absent_here(case) or _of_the_host(said)
    if driver_answers(case) or kernel_driver_spoke(case) or driver.module_loaded or not here:
        return
    proven = has_nvidia(case) and driver.library_found is False and not driver.module_version
    suspected = has_nvidia(case) is None and driver.library_found is False and _wants_cuda(case)
    meant = said and has_nvidia(case) is not False and not events(case, *PACKAGES_ARE_THERE)
    if not (proven or suspected or meant):
        return
    held = [d.driver for d in nvidia_on_pci(case) if d.driver]
    notebook = _notebook(case)
    yield error(
        "driver-missing",
        f"{notebook} gave this notebook no GPU: there is no NVIDIA driver"
        if notebook
        else f"No NVIDIA driver is installed for {which.names(case)}",
        detail=f"The GPU is on the PCI bus, bound to {held[0]}." if held else "",
        evidence=(
            *told(said),
            *on_the_bus(case),
            *_no_library(case),
            *problems(case, "driver.version", "driver"),
        ),
        fix=Fix(text=GIVES_A_GPU[notebook])
        if notebook
        else drivers.driver(case, "Install the NVIDIA driver"),
    )


GIVES_A_GPU = {
    "Google Colab": "Choose a runtime with a GPU (Runtime, Change runtime type); it starts anew",
    "Kaggle": "Choose a GPU for the session (Settings, Accelerator); it starts anew",
    "SageMaker": "Choose an instance with a GPU (ml.g or ml.p) and its GPU image",
}
"""Who lends notebooks -> how one gets a GPU there: nobody installs a driver in them."""


def _notebook(case: Case) -> str | None:
    named = (e.values.get("service", "") for e in events(case, "hosted-notebook"))
    return next((service for service in named if service in GIVES_A_GPU), None)


def _of_the_host(said: tuple[Event, ...]) -> bool:
    """Whether a container's toolkit says it, which asks the driver of the host."""
    return any(event.values.get("place") == "host" for event in said)


def _looked_in_vain(case: Case) -> tuple[Event, ...]:
    """nvidia-smi or the driver's library is not there, where something looked for CUDA."""
    libraries = tuple(
        event
        for event in events(case, "library-missing", "cuda-lib-missing")
        if event.values.get("library", "").startswith(DRIVER_LIBRARIES)
    )
    needs_it = asked_for_cuda(case) and not events(case, *FAILS_WITHOUT_GPU)
    no_smi = events(case, "smi-not-found") if needs_it else ()
    return (*libraries, *no_smi)


FAILS_WITHOUT_GPU = ("torchvision-mismatch", "torchaudio-mismatch", "extension-abi-mismatch")
"""What fails at its import: a text about it is no text about the driver, on a login node say."""

DRIVER_LIBRARIES = ("libcuda.so", "nvcuda.dll", "libnvidia-ml.so", "nvml.dll")


def _no_library(case: Case) -> tuple[Evidence, ...]:
    if case.snapshot.driver.library_found is not False:
        return ()
    libraries = "nvcuda.dll" if on(case, "windows") else "libcuda, no libnvidia-ml"
    return (shown(case, "driver.library_found", f"no {libraries}"),)


def _wants_cuda(case: Case) -> bool:
    return cuda_needed(case.snapshot.torch) is not None


def on_the_bus(case: Case) -> tuple[Evidence, ...]:
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
    nvml_silent = driver.nvml_code == NVML_DRIVER_NOT_LOADED
    installed = (
        driver.library_found or driver.module_version or driver.library_version or nvml_silent
    )
    silent = (driver.module_loaded is False and not kernel_driver_spoke(case)) or nvml_silent
    said = events(case, *NOT_LOADED, *_module_not_found(case))
    answers = bool(answering(case)) if is_report(case) else driver_answers(case)
    here = absent_here(case) or _of_the_host(said)
    if not here or answers or has_nvidia(case) is False:
        return
    if not (said or (installed and silent)):
        return
    yield error(
        "driver-not-loaded",
        "The NVIDIA driver is installed, but "
        + ("does not run" if on(case, "windows") else "its kernel module is not loaded"),
        detail=_why_not_loaded(case),
        evidence=(
            *told(said),
            *nvml_said(case),
            *on_the_bus(case),
            *_module_facts(case),
        ),
        fix=_load_fix(case),
    )


NOT_LOADED = ("driver-not-loaded", "nouveau-in-the-way", "module-not-inserted")


def _module_not_found(case: Case) -> tuple[str, ...]:
    """The kind of event that says so of the driver's own module, not of its unified memory's."""
    names = {e.values.get("module", "nvidia") for e in events(case, "module-not-found")}
    return ("module-not-found",) if any("uvm" not in name for name in names) else ()


def nvml_said(case: Case) -> tuple[Evidence, ...]:
    driver = case.snapshot.driver
    if not driver.nvml_code:
        return ()
    if is_report(case) and driver.nvml_message:
        return (shown(case, "driver.nvml_code", driver.nvml_message),)
    return (
        Evidence(source="NVML", text=f"{driver.nvml_code}: {driver.nvml_message or 'an error'}"),
    )


def _module_facts(case: Case) -> tuple[Evidence, ...]:
    driver = case.snapshot.driver
    if driver.module_loaded is not False:
        return ()
    on_disk = f", {driver.module_version} on disk" if driver.module_version else ""
    return (shown(case, "driver.module_loaded", f"module nvidia is not loaded{on_disk}"),)


def _nouveau_holds_it(case: Case, held: list[str]) -> bool:
    loaded = case.snapshot.driver.nouveau_loaded
    return bool(loaded or "nouveau" in held or events(case, "nouveau-in-the-way"))


def _why_not_loaded(case: Case) -> str:
    held = [d.driver for d in nvidia_on_pci(case) if d.driver]
    if _nouveau_holds_it(case, held):
        return "The open nouveau driver holds the GPU; NVIDIA's module cannot take it."
    if case.snapshot.os.secure_boot:
        return (
            "Secure Boot is on: the kernel loads the module only if it is signed with an enrolled "
            "key (`sudo mokutil --list-enrolled`)."
        )
    here = " doctor itself loads nothing: where the driver comes on demand, `nvidia-smi` once does."
    live = case.snapshot.origin == "live" and case.snapshot.driver.module_version
    return f"Often after a kernel update for which no module was built.{here if live else ''}"


NOUVEAU_COMMANDS = lines(
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
    family = packages.distribution(case) or ""
    if _nouveau_holds_it(case, held):
        rebuild = REBUILD_INITRD.get(family)
        anew = lines(rebuild) if rebuild else ()
        commands = (*NOUVEAU_COMMANDS, *anew, *lines("sudo reboot"))
        text = "Keep nouveau from the GPU, rebuild the initial RAM disk and reboot"
        return Fix(text=text, commands=commands, needs_root=True, needs_reboot=True)
    key = case.snapshot.os.secure_boot and not events(case, "module-not-found")
    build = lines("sudo akmods --force" if family == "fedora" else "sudo dkms autoinstall")
    if key and (enrolment := mok_command(case)):
        return Fix(
            text="Build the module for this kernel and enroll the key that signed it: the firmware "
            "asks for it at the next start (Enroll MOK, with the password that mokutil asked for). "
            "Afterwards `nvidia-smi` lists the GPU",
            commands=(*build, *enrolment, *lines("sudo reboot")),
            needs_root=True,
            needs_reboot=True,
        )
    if is_report(case):
        return Fix(
            text="Build the module for this kernel, if it is not, and start the machine anew, "
            "which loads it; `nvidia-smi` then lists the GPU",
            commands=(*build, *lines("sudo reboot")),
            alternatives=ways.other(
                "load it without a new start", *build, *lines("sudo modprobe nvidia", "nvidia-smi")
            ),
            needs_root=True,
            needs_reboot=True,
        )
    return Fix(
        text="Build the module for this kernel, if it is not, and load it; `nvidia-smi` then lists "
        "the GPU",
        commands=(*build, *lines("sudo modprobe nvidia", "nvidia-smi")),
        alternatives=ways.other("start the machine anew, which loads it", *lines("sudo reboot")),
        needs_root=True,
    )


NEWER_KERNEL = (
    "Mostly the kernel is newer than the driver: each branch builds against the kernels of its "
    "time. Else headers or the kernel's own compiler are missing (see make.log)."
)
BUILD_LACKS = {
    "headers": "The kernel's headers are not installed.",
    "compiler": "The compiler (gcc, make) is not installed.",
}


def driver_build_failed(case: Case) -> Iterator[Finding]:
    """The kernel module does not compile against the running kernel."""
    said = events(case, "module-build-failed")
    if not said or answering(case):
        return
    named = {name: value for event in said for name, value in event.values.items()}
    version = named.get("driver") or case.snapshot.driver.version or named.get("branch")
    kernel = named.get("kernel") or case.snapshot.os.kernel
    why = BUILD_LACKS.get(named.get("why", ""), NEWER_KERNEL)
    yield error(
        "driver-build-failed",
        f"The kernel module of {f'driver {version}' if version else 'the NVIDIA driver'} was not "
        f"built for {f'kernel {kernel}' if kernel else 'the kernel that runs'}",
        detail=why,
        evidence=told(said),
        fix=Fix(
            text="Install the headers of this kernel, and a driver release that is as new as the "
            "kernel (an old branch that a GPU needs: an older kernel); until then start the former "
            "kernel",
            commands=(
                *_headers(kernel),
                *(packages.compiler(case) if why == BUILD_LACKS["compiler"] else ()),
                *drivers.driver_commands(case),
                *lines("sudo reboot"),
            ),
            needs_root=True,
            needs_reboot=True,
        ),
    )


HEADERS = (
    (r"-zen\d", "sudo pacman -S --noconfirm linux-zen-headers"),
    (r"-lts$", "sudo pacman -S --noconfirm linux-lts-headers"),
    (r"-arch\d", "sudo pacman -S --noconfirm linux-headers"),
    (r"\.(?:fc|el|amzn)\d", "sudo dnf install -y kernel-devel-{kernel}"),
    (r"\+deb|-(?:cloud-)?(?:amd|arm)64$", "sudo apt install -y linux-headers-{kernel}"),
    (
        r"-(?:generic|lowlatency|aws|azure|gcp|oracle|oem|nvidia\w*|raspi)(?:-64k)?$",
        "sudo apt install -y linux-headers-{kernel}",
    ),
)
"""How distributions name their kernels, and where the headers of one are."""


def _headers(kernel: str | None) -> tuple[Line, ...]:
    """The command for the headers of a kernel, by whose kernel it is.

    >>> _headers("6.17.0-8-generic"), _headers("6.17.0-custom")
    (('sudo apt install -y linux-headers-6.17.0-8-generic',), ())
    """
    if kernel is None or not is_a_kernel(kernel):
        return ()
    known = (command for pattern, command in HEADERS if re.search(pattern, kernel))
    return tuple(filled(command, kernel=kernel) for command in islice(known, 1))


def secure_boot_rejected(case: Case) -> Iterator[Finding]:
    """The kernel refused the module's signature."""
    said = tuple(e for e in events(case, "module-key-rejected") if _of_nvidia(e))
    if said and not answering(case):
        yield error(
            "secure-boot-rejected",
            "Secure Boot rejects the NVIDIA kernel module: its key is not enrolled",
            evidence=told(said),
            fix=Fix(
                text="Enroll the key that signed the module: the firmware asks for it at the next "
                "start (Enroll MOK, with the password that mokutil asked for); or switch Secure "
                "Boot off in the firmware",
                commands=(*mok_command(case), *lines("sudo reboot")),
                needs_root=True,
                needs_reboot=True,
            ),
        )


def _of_nvidia(event: Event) -> bool:
    """Whether the module is NVIDIA's, or none is named: other modules are refused as well."""
    return "nvidia" in event.values.get("module", "nvidia")


KEYS = {
    "ubuntu": "/var/lib/shim-signed/mok/MOK.der",
    "pop": "/var/lib/shim-signed/mok/MOK.der",
    "fedora": "/etc/pki/akmods/certs/public_key.der",
}
"""Where a distribution keeps the key that it signs modules with; dkms' own elsewhere."""


WHICHEVER_IS_THERE = (
    'sudo mokutil --import "$(ls /var/lib/shim-signed/mok/MOK.der '
    '/etc/pki/akmods/certs/public_key.der /var/lib/dkms/mok.pub 2>/dev/null | head -n 1)"'
)


def mok_command(case: Case) -> tuple[Line, ...]:
    """The key goes to the firmware; where the distribution is not known, the one that is there."""
    family = packages.distribution(case)
    if family is None:
        return lines(WHICHEVER_IS_THERE)
    key = KEYS.get(family, "/var/lib/dkms/mok.pub")
    return (filled("sudo mokutil --import {key}", key=key),)


def hybrid_gpu_off(case: Case) -> Iterator[Finding]:
    """A laptop's switch has turned the NVIDIA GPU off."""
    said = events(case, "hybrid-gpu-off")
    if said and not answering(case):
        tool = said[0].values.get("tool")
        commands = HYBRID_ON.get(tool or "", ())
        yield error(
            "hybrid-gpu-off",
            f"The NVIDIA GPU is switched off by {tool or 'the hybrid graphics setting'}",
            evidence=told(said),
            fix=Fix(
                text="Switch the NVIDIA GPU on and reboot",
                commands=lines(*commands, "sudo reboot") if commands else (),
                needs_root=True,
                needs_reboot=True,
            ),
        )


HYBRID_ON = {
    "bbswitch": ("echo ON | sudo tee /proc/acpi/bbswitch",),
    "prime-select": ("sudo prime-select on-demand",),
    "asusctl": ("supergfxctl --mode Hybrid",),
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
            evidence=on_the_bus(case),
            fix=Fix(
                text="Use the GPU in the virtual machine, or remove its ids from the vfio "
                "options in "
                "/etc/modprobe.d and the kernel command line, and reboot",
                needs_root=True,
                needs_reboot=True,
            ),
        )


RULES = (
    driver_missing,
    driver_not_loaded,
    driver_build_failed,
    secure_boot_rejected,
    hybrid_gpu_off,
    gpu_passed_through,
)
