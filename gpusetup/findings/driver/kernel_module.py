"""The driver's kernel module: not loaded, not built, not signed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from gpusetup.evidence.context import (
    RuleContext,
    answering,
    driver_answers,
    event_evidence,
    events,
    has_nvidia,
    is_report,
    kernel_driver_spoke,
    nvidia_on_pci,
    on,
    value_evidence,
)
from gpusetup.evidence.plausible import is_a_kernel
from gpusetup.findings.driver.presence import (
    NOT_LOADED,
    NVML_DRIVER_NOT_LOADED,
    absent_here,
    nvml_said,
    on_the_bus,
    said_on_the_host,
)
from gpusetup.findings.layers import NO_DRIVER, Layer
from gpusetup.findings.record import Cause
from gpusetup.fixes import drivers, packages, paste
from gpusetup.model.finding import Evidence, Finding, Fix
from gpusetup.model.machine import Event
from gpusetup.model.shell import Line, filled, lines

DRIVER_NOT_LOADED = Cause(
    id="driver-not-loaded",
    place=(Layer.DRIVER, 60),
    title="the driver is installed, its kernel module is not loaded",
    means="After a kernel update without a rebuilt module, with nouveau in the way, or a "
    "module that Secure Boot refuses.",
    proven_by="Libraries or a module on disk and no loaded module; NVML code 9",
    not_when="driver-missing: nothing is installed",
    way_out="Load or rebuild the module; keep nouveau away; reboot",
    source='NVML API reference, nvmlReturn_t (DRIVER_NOT_LOADED); NVIDIA, "Driver '
    'Installation Guide"',
    explains=(*NO_DRIVER, "gpu-init-failed", "container-hook-failed"),
)


def driver_not_loaded(context: RuleContext) -> Iterator[Finding]:
    """The driver's packages are here, its kernel module does not answer."""
    driver = context.snapshot.driver
    nvml_silent = driver.nvml_code == NVML_DRIVER_NOT_LOADED
    installed = (
        driver.library_found or driver.module_version or driver.library_version or nvml_silent
    )
    silent = (driver.module_loaded is False and not kernel_driver_spoke(context)) or nvml_silent
    messages = events(context, *NOT_LOADED, *_module_not_found(context))
    # No order: the driver version in a text may be of a package, and no proof that it runs.
    answers = bool(answering(context)) if is_report(context) else driver_answers(context)
    here = absent_here(context) or said_on_the_host(messages)
    if not here or answers or has_nvidia(context) is False:
        return
    if not (messages or (installed and silent)):
        return
    yield DRIVER_NOT_LOADED.found(
        "The NVIDIA driver is installed, but "
        + ("does not run" if on(context, "windows") else "its kernel module is not loaded"),
        detail=_why_not_loaded(context),
        evidence=(
            *event_evidence(messages),
            *nvml_said(context),
            *on_the_bus(context),
            *_module_facts(context),
        ),
        fix=_load_fix(context),
    )


def _module_not_found(context: RuleContext) -> tuple[str, ...]:
    """The kind of event that says so of the driver's own module, not of its unified memory's."""
    names = {e.values.get("module", "nvidia") for e in events(context, "module-not-found")}
    return ("module-not-found",) if any("uvm" not in name for name in names) else ()


def _module_facts(context: RuleContext) -> tuple[Evidence, ...]:
    driver = context.snapshot.driver
    if driver.module_loaded is not False:
        return ()
    on_disk = f", {driver.module_version} on disk" if driver.module_version else ""
    return (
        value_evidence(context, "driver.module_loaded", f"module nvidia is not loaded{on_disk}"),
    )


def _nouveau_holds_it(context: RuleContext, held: list[str]) -> bool:
    loaded = context.snapshot.driver.nouveau_loaded
    return bool(loaded or "nouveau" in held or events(context, "nouveau-in-the-way"))


def _why_not_loaded(context: RuleContext) -> str:
    held = [d.driver for d in nvidia_on_pci(context) if d.driver]
    if _nouveau_holds_it(context, held):
        return "The open nouveau driver holds the GPU; NVIDIA's module cannot take it."
    if context.snapshot.os.secure_boot:
        return (
            "Secure Boot is on: the kernel loads the module only if it is signed with an enrolled "
            "key (`sudo mokutil --list-enrolled`)."
        )
    here = " doctor itself loads nothing: where the driver comes on demand, `nvidia-smi` once does."
    live = context.snapshot.origin == "live" and context.snapshot.driver.module_version
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


BY_DKMS = "sudo dkms autoinstall"
REBUILD_MODULE = {"fedora": "sudo akmods --force"}
WHICHEVER_BUILDS = "if command -v akmods; then sudo akmods --force; else sudo dkms autoinstall; fi"
"""For a system whose distribution is not shown: Fedora's kin build by akmods, others by dkms."""


def _load_fix(context: RuleContext) -> Fix:
    if on(context, "windows"):
        text = "Enable the GPU in the Device Manager, or install its driver again"
        return Fix(text=text, needs_root=True, needs_reboot=True)
    held = [d.driver for d in nvidia_on_pci(context) if d.driver]
    family = packages.distribution(context) or ""
    if _nouveau_holds_it(context, held):
        rebuild = REBUILD_INITRD.get(family)
        anew = lines(rebuild) if rebuild else ()
        commands = (*NOUVEAU_COMMANDS, *anew, *lines("sudo reboot"))
        text = "Keep nouveau from the GPU, rebuild the initial RAM disk and reboot"
        return Fix(text=text, commands=commands, needs_root=True, needs_reboot=True)
    key = context.snapshot.os.secure_boot and not events(context, "module-not-found")
    builds = REBUILD_MODULE.get(family, WHICHEVER_BUILDS if not family else BY_DKMS)
    build = lines(builds)
    if key and (enrolment := mok_command(context)):
        return Fix(
            text="Build the module for this kernel and enroll the key that signed it: the firmware "
            "asks for it at the next start (Enroll MOK, with the password that mokutil asked for). "
            "Afterwards `nvidia-smi` lists the GPU",
            commands=(*build, *enrolment, *lines("sudo reboot")),
            needs_root=True,
            needs_reboot=True,
        )
    # Few texts show whether the module is built: loading it says what is wrong.
    if is_report(context) and not events(context, "module-not-found"):
        return Fix(
            text="Load the module: `nvidia-smi` then lists the GPU. If it does not load, the "
            "message says why: `not found` means that it is not built for this kernel, `Key was "
            "rejected` is Secure Boot",
            commands=lines("sudo modprobe nvidia", "nvidia-smi", "sudo dmesg | grep -i nvidia"),
            alternatives=paste.other(
                "if it was not found, build it and reboot", *build, *lines("sudo reboot")
            ),
            needs_root=True,
            needs_reboot=True,
        )
    return Fix(
        text="Build the module for this kernel, if it is not, and load it; `nvidia-smi` then lists "
        "the GPU",
        commands=(*build, *lines("sudo modprobe nvidia", "nvidia-smi")),
        alternatives=paste.other("start the machine anew, which loads it", *lines("sudo reboot")),
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


DRIVER_BUILD_FAILED = Cause(
    id="driver-build-failed",
    kind_of="driver-not-loaded",
    place=(Layer.DRIVER, 50),
    title="the driver's kernel module does not build",
    means="dkms or NVIDIA's installer compiles it for each kernel; a newer kernel than the "
    "driver knows, or missing headers, stop that.",
    proven_by="dkms: bad return status for a module of nvidia; the installer's build step",
    not_when="A GPU that nvidia-smi lists; the build of another module",
    way_out="Headers and a newer driver, or the former kernel",
    source="dkms's manual page; messages of nvidia-installer",
    explains=(*NO_DRIVER, "driver-not-loaded", "gpu-init-failed"),
)


def driver_build_failed(context: RuleContext) -> Iterator[Finding]:
    """The kernel module does not compile against the running kernel."""
    messages = events(context, "driver-build-failed")
    # No order: a text may list the GPU that it bought; one that answers has its driver shown too.
    works = context.snapshot.driver.version or context.snapshot.torch.cuda_available
    if not messages or (answering(context) and works):
        return
    named = {name: value for event in messages for name, value in event.values.items()}
    version = named.get("driver") or context.snapshot.driver.version or named.get("branch")
    kernel = named.get("kernel") or context.snapshot.os.kernel
    why = BUILD_LACKS.get(named.get("why", ""), NEWER_KERNEL)
    yield DRIVER_BUILD_FAILED.found(
        f"The kernel module of {f'driver {version}' if version else 'the NVIDIA driver'} was not "
        f"built for {f'kernel {kernel}' if kernel else 'the kernel that runs'}",
        detail=why,
        evidence=event_evidence(messages),
        fix=Fix(
            text="Install the headers of this kernel, and a driver release that is as new as the "
            "kernel (an old branch that a GPU needs: an older kernel); until then start the former "
            "kernel",
            commands=(
                *_headers(kernel),
                *(packages.compiler(context) if why == BUILD_LACKS["compiler"] else ()),
                *drivers.driver_commands(context),
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


SECURE_BOOT_REJECTED = Cause(
    id="secure-boot-rejected",
    place=(Layer.DRIVER, 30),
    title="Secure Boot rejects the kernel module",
    means="The module's signature is by a key that the firmware does not know.",
    proven_by="The kernel log says `Key was rejected by service`",
    not_when="A module that is not there at all",
    way_out="Enroll the key (mokutil) or switch Secure Boot off",
    source="Linux kernel, module signing",
    explains=(*NO_DRIVER, "driver-missing", "driver-not-loaded"),
)


def secure_boot_rejected(context: RuleContext) -> Iterator[Finding]:
    """The kernel refused the module's signature."""
    messages = tuple(e for e in events(context, "secure-boot-rejected") if _of_nvidia(e))
    if messages and not answering(context):
        yield SECURE_BOOT_REJECTED.found(
            "Secure Boot rejects the NVIDIA kernel module: its key is not enrolled",
            evidence=event_evidence(messages),
            fix=Fix(
                text="Enroll the key that signed the module: the firmware asks for it at the next "
                "start (Enroll MOK, with the password that mokutil asked for); or switch Secure "
                "Boot off in the firmware",
                commands=(*mok_command(context), *lines("sudo reboot")),
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


def mok_command(context: RuleContext) -> tuple[Line, ...]:
    """The key goes to the firmware; where the distribution is not known, the one that is there."""
    family = packages.distribution(context)
    if family is None:
        return lines(WHICHEVER_IS_THERE)
    key = KEYS.get(family, "/var/lib/dkms/mok.pub")
    return (filled("sudo mokutil --import {key}", key=key),)


RULES = (
    driver_not_loaded,
    driver_build_failed,
    secure_boot_rejected,
)
