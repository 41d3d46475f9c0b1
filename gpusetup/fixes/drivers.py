"""Installs the driver that a machine's GPUs need, in the right place, and builds, signs and loads
its kernel module instead of nouveau."""

from __future__ import annotations

import re

from gpusetup.catalog.facts import driver_branch, generation_of
from gpusetup.evidence.command_values import is_a_kernel
from gpusetup.evidence.context import (
    RuleContext,
    events,
    gpus,
    in_container,
    is_report,
    nvidia_on_pci,
    on,
)
from gpusetup.fixes import gpu_naming
from gpusetup.fixes.driver_packages import (
    PACKAGE_LEGACY_DRIVERS,
    DriverRequest,
    asks_for_a_key,
    branch_of,
    install_driver,
    last_closed,
)
from gpusetup.fixes.system_packages import compiler, is_unsupported_release, linux_family
from gpusetup.model.finding import Fix
from gpusetup.model.machine import Gpu
from gpusetup.model.shell import Lines, filled, lines

DRIVER_SITE = "https://www.nvidia.com/drivers"


def known_gpus(context: RuleContext) -> tuple[Gpu, ...]:
    """The GPUs of this machine whose compute capability is known, by their driver or the PCI bus.

    A driver lists only the GPUs that it supports, so the PCI bus counts if it shows more. A device
    on the bus counts as the oldest generation that its id can mean.
    """
    from gpusetup.choose.host import gpus_to_serve

    listed = gpus(context) or gpus_to_serve(context.snapshot, context.catalog)
    known = [gpu for gpu in listed if gpu.compute_capability]
    on_bus = nvidia_on_pci(context)
    if len(known) < len(on_bus):
        known += [
            Gpu(name=gpu_naming.name_on_bus(device), compute_capability=capability)
            for device in on_bus
            if (capability := generation_of(device.device_id))
        ]
    return tuple(known)


def _branches(context: RuleContext) -> tuple[int, int | None]:
    """The first and the last driver branch that support all of this machine's GPUs; 0 if there are
    none, None if current drivers still support them."""
    here, catalog = known_gpus(context), context.catalog
    first = max((branch_of(catalog.first_driver(gpu)) for gpu in here), default=0)
    last = [catalog.last_branch(gpu.compute_capability) for gpu in here if gpu.compute_capability]
    return first, min(filter(None, last), default=None)


def driver_request(context: RuleContext, floor: str | None = None) -> DriverRequest:
    """The driver that this machine's GPUs need, from a branch with long-term support.

    `floor`: the oldest driver version that will do, if something else needs one.
    """
    os, (first, last) = context.os, _branches(context)
    capabilities = [gpu.compute_capability for gpu in known_gpus(context) if gpu.compute_capability]
    branch = max(driver_branch("good"), branch_of(floor))
    return DriverRequest(
        # A newer branch than the last one would not support the oldest of the GPUs.
        branch=branch if last is None else min(branch, last),
        needed_branch=max(branch_of(floor), first),
        capability=min(capabilities, default=None),
        newest=max(capabilities, default=None),
        id=(os.id or "").lower(),
        version=os.version or "",
        machine=os.machine or "x86_64",
        kernel=os.kernel or "",
        secure_boot=bool(os.secure_boot),
    )


def driver_commands(context: RuleContext, floor: str | None = None) -> Lines:
    """The commands that install a driver on this distribution. () if a download page is the only
    way, or if the driver must be installed elsewhere (a container's driver is its host's)."""
    request, family = driver_request(context, floor), linux_family(context) or ""
    is_packaged = request.branch >= last_closed() or family in PACKAGE_LEGACY_DRIVERS
    if where_driver_lives(context) or is_unsupported_release(context) or not is_packaged:
        return ()
    return install_driver(family, request)


def driver_fix(context: RuleContext, text: str, floor: str | None = None) -> Fix:
    """Install or update the driver where it belongs: on the host of a container, in Windows for
    WSL, with JetPack on a Jetson."""
    if place := where_driver_lives(context):
        return Fix(text=f"{text}. {place}", min_driver=floor, needs_root=True, needs_reboot=True)
    request, (first, last) = driver_request(context, floor), _branches(context)
    no_common_module = not request.takes_open and request.needs_open
    if on(context, "linux") and (no_common_module or (last and last < first)):
        return Fix(
            text=f"{text}: no driver supports all of these GPUs ({gpu_naming.gpu_names(context)}). "
            "Choose which ones to use, and install the driver for these",
            needs_root=True,
            needs_reboot=True,
        )
    if context.catalog.ends_before(known_gpus(context), floor):
        return Fix(
            text=f"No driver since {floor} supports this GPU ({last} is the last branch "
            "that does): use a build for an older CUDA, the CPU, or a newer GPU"
        )
    family = linux_family(context) or ""
    if family == "nixos":
        return Fix(
            text=f"{text}: add `nixpkgs.config.allowUnfree = true; "
            "hardware.graphics.enable = true; "
            'services.xserver.videoDrivers = [ "nvidia" ]; hardware.nvidia.open = '
            f"{str(request.takes_open).lower()};` to /etc/nixos/configuration.nix, then type "
            "`sudo nixos-rebuild boot` and `sudo reboot`; afterwards `nvidia-smi` lists the GPU",
            needs_root=True,
            needs_reboot=True,
        )
    commands = driver_commands(context, floor) if on(context, "linux") else ()
    reboots = needs_reboot(context, request)
    then = THEN_LOAD
    if on(context, "windows"):
        then = "restart the machine if the installer asks you to"
    elif commands and asks_for_a_key(family, request):
        whose = "of root" if family == "suse" else "that `mokutil` asked for"
        then = (
            f"reboot: the firmware asks for the new key (Enroll MOK) with the password {whose}. "
            "Afterwards `nvidia-smi` lists the GPU"
        )
    elif reboots:
        then = "reboot; afterwards `nvidia-smi` lists the GPU"
    source = "" if commands else f". Download the driver from {DRIVER_SITE}"
    start = lines(REBOOT) if reboots else lines("sudo modprobe nvidia", "nvidia-smi")
    return Fix(
        text=f"{text}{source}, then {then}",
        commands=(*commands, *start) if commands else (),
        min_driver=floor,
        needs_root=True,
        needs_reboot=reboots,
    )


THEN_LOAD = "load it (or reboot); afterwards `nvidia-smi` lists the GPU"


def needs_reboot(context: RuleContext, request: DriverRequest) -> bool:
    """Whether the new driver needs a reboot: an old module is loaded, the firmware must accept a
    key, or the update installs another kernel."""
    driver = context.driver
    is_bound = any(device.driver for device in nvidia_on_pci(context))
    is_loaded = is_bound or driver.module_loaded or driver.nouveau_loaded
    if is_loaded or events(context, "nouveau-in-use"):
        return True
    family = linux_family(context) or ""
    # Arch's command updates the whole system, and with it the kernel.
    return family == "arch" or asks_for_a_key(family, request)


def where_driver_lives(context: RuleContext) -> str | None:
    """Where this system's driver must be installed, in words; None if it is this system itself."""
    if context.os.wsl:
        return (
            f"Do this in Windows (driver from {DRIVER_SITE}), then run `wsl --shutdown`. Do not "
            "install a Linux driver inside WSL"
        )
    if context.os.jetson:
        return "On a Jetson the driver comes with JetPack: flash a newer JetPack with SDK Manager"
    if in_container(context):
        return "Do this on the host, not in this container. Then start the container again"
    return None


# --- the kernel module --------------------------------------------------------------------------

NOUVEAU_COMMANDS = lines(
    "printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' "
    "| sudo tee /etc/modprobe.d/blacklist-nouveau.conf",
)

REBUILD_INITRD = {
    **dict.fromkeys(("ubuntu", "debian"), ("sudo update-initramfs -u",)),
    **dict.fromkeys(("fedora", "rhel", "suse"), ("sudo dracut --force",)),
    "arch": ("sudo mkinitcpio -P",),
}

BUILD_MODULE: dict[str | None, str] = {
    None: "if command -v akmods; then sudo akmods --force; else sudo dkms autoinstall; fi",
    "fedora": "sudo akmods --force",
}
"""Fedora and its relatives build modules with akmods, the others with dkms. None is for an unknown
distribution."""


def load_fix(context: RuleContext, _text: str) -> Fix:
    """Load the installed driver's kernel module instead of nouveau."""
    if on(context, "windows"):
        text = "Enable the GPU in the Device Manager, or reinstall its driver"
        return Fix(text=text, needs_root=True, needs_reboot=True)
    family = linux_family(context)
    drives_a_gpu = any(device.driver == "nouveau" for device in nvidia_on_pci(context))
    nouveau_events = events(context, "nouveau-in-the-way", "nouveau-in-use")
    if drives_a_gpu or context.driver.nouveau_loaded or nouveau_events:
        return Fix(
            text="Block nouveau (the open-source driver), rebuild the initial RAM disk and reboot",
            commands=(*NOUVEAU_COMMANDS, *lines(*REBUILD_INITRD.get(family or "", ()), REBOOT)),
            needs_root=True,
            needs_reboot=True,
        )
    build = BUILD_MODULE.get(family, "sudo dkms autoinstall")
    unbuilt = events(context, "module-not-found")
    # Few texts show whether the module is built. Loading the module shows what is wrong.
    first = (build,) if unbuilt or not is_report(context) else ()
    # A module can only be built with the headers of the running kernel.
    headers = _headers(context.os.kernel or "") if unbuilt else ()
    signed = context.os.secure_boot and not unbuilt
    key = (*mok_command(context), REBOOT) if signed else ("sudo modprobe nvidia", "nvidia-smi")
    otherwise = (
        "" if first else f" (if the message is `not found`, build the module first: `{build}`)"
    )
    return Fix(
        text=f"Load the module{otherwise}; `nvidia-smi` then lists the GPU. If Secure Boot is on, "
        f"{ENROLL}",
        commands=(*headers, *lines(*first, *key)),
        needs_root=True,
        needs_reboot=bool(signed),
    )


REBOOT = "sudo reboot"

ENROLL = (
    "enroll the key that signed the module: the firmware asks for the key at the next start "
    "(Enroll MOK, with the password that mokutil asked for)"
)


def rebuild_with_headers(context: RuleContext) -> Lines:
    """Build the driver's kernel module again, after the kernel's headers and a compiler are
    installed."""
    failures = events(context, "driver-build-failed")
    failed_kernels = [event.values["kernel"] for event in failures if event.values.get("kernel")]
    # The failed build may be for a different kernel from the running one.
    kernel = failed_kernels[0] if failed_kernels else context.os.kernel
    lacks_compiler = any(event.values.get("why") == "compiler" for event in failures)
    return (
        *_headers(kernel or ""),
        *(compiler(context) if lacks_compiler else ()),
        *driver_commands(context),
        *lines(REBOOT),
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
"""How distributions name their kernels, and the packages with a kernel's headers."""


def _headers(kernel: str) -> Lines:
    """The command that installs the headers of a kernel, which depends on who built the kernel.

    >>> _headers("6.17.0-8-generic"), _headers("6.17.0-custom")
    (('sudo apt install -y linux-headers-6.17.0-8-generic',), ())
    """
    # A name from a text goes into a shell command, so it must have the form of a kernel's name.
    if not is_a_kernel(kernel):
        return ()
    for pattern, command in HEADERS:
        if re.search(pattern, kernel):
            return (filled(command, kernel=kernel),)
    return ()


KEYS = {
    "ubuntu": "/var/lib/shim-signed/mok/MOK.der",
    "fedora": "/etc/pki/akmods/certs/public_key.der",
}

DKMS = "/var/lib/dkms/mok.pub"
"""Where each distribution keeps the key with which it signs modules. The others use dkms's key."""


def mok_command(context: RuleContext) -> Lines:
    """The command that asks the firmware to accept the key with which the modules are signed.

    If the distribution is not known, the shell looks which of the usual files exists.
    """
    family = linux_family(context)
    if family:
        return lines(f"sudo mokutil --import {KEYS.get(family, DKMS)}")
    usual_keys = " ".join(sorted({*KEYS.values(), DKMS}))
    return lines(f'sudo mokutil --import "$(ls {usual_keys} 2>/dev/null | head -n 1)"')
