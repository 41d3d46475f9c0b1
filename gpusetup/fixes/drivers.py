"""The driver that a machine's GPUs ask for, installed where it lives; its kernel module: built,
signed, loaded, without nouveau."""

from __future__ import annotations

import re

from gpusetup.catalog.facts import driver_branch, generation_of
from gpusetup.evidence.context import (
    RuleContext,
    events,
    gpus,
    in_container,
    is_report,
    nvidia_on_pci,
    on,
)
from gpusetup.evidence.plausible import is_a_kernel
from gpusetup.fixes import which
from gpusetup.fixes.driver_packages import (
    LEGACY,
    ONLY_OPEN_FROM,
    OPEN_FROM,
    WAYS,
    Wanted,
    asks_for_a_key,
    at_least,
    last_closed,
)
from gpusetup.fixes.packages import compiler, distribution, is_past
from gpusetup.model.finding import Fix
from gpusetup.model.machine import Gpu
from gpusetup.model.shell import Lines, filled, lines
from gpusetup.model.versions import Capability

DRIVER_SITE = "https://www.nvidia.com/drivers"


def gpus_of(context: RuleContext) -> tuple[Gpu, ...]:
    """The GPUs of this machine whose generation is known: by their driver, or by the PCI bus; a
    driver lists none that it does not drive, so the bus counts where it has more, each as the
    oldest that its id may mean."""
    from gpusetup.resolver.situation import gpus_to_serve

    listed = gpus(context) or gpus_to_serve(context.snapshot, context.catalog)
    known = [gpu for gpu in listed if gpu.compute_capability]
    on_bus = nvidia_on_pci(context)
    for device in on_bus if len(known) < len(on_bus) else ():
        if found := generation_of(device.device_id):
            known.append(Gpu(name=which.on_the_bus(device), compute_capability=found))
    return tuple(known)


def _capabilities(found: tuple[Gpu, ...]) -> tuple[Capability, ...]:
    return tuple(gpu.compute_capability for gpu in found if gpu.compute_capability)


def _last_branch(context: RuleContext, found: tuple[Gpu, ...]) -> int | None:
    """The last branch that drives all of these; None while drivers still support them."""
    ends = (context.catalog.last_branch(one) for one in _capabilities(found))
    return min((last for last in ends if last), default=None)


def _first_branch(context: RuleContext, found: tuple[Gpu, ...]) -> int:
    """The first branch that drives all of these."""
    return max((at_least(context.catalog.first_driver(gpu)) for gpu in found), default=0)


def wanted_driver(context: RuleContext, floor: str | None = None) -> Wanted:
    """The driver that the GPUs of this machine and the floor ask for: of a long-lived branch that
    serves them and reaches the floor."""
    os = context.os
    found = gpus_of(context)
    branch, last = max(driver_branch("good"), at_least(floor)), _last_branch(context, found)
    return Wanted(
        branch=min(branch, last or branch),
        at_least=max(at_least(floor), _first_branch(context, found)),
        capability=min(_capabilities(found), default=None),
        newest=max(_capabilities(found), default=None),
        id=(os.id or "").lower(),
        version=os.version or "",
        machine=os.machine or "x86_64",
        kernel=os.kernel or "",
        secure_boot=bool(os.secure_boot),
    )


def driver_commands(context: RuleContext, floor: str | None = None) -> Lines:
    """How this distribution installs a driver; () where only a download page does it, and where
    the driver lives elsewhere: the distribution of a container is not its host's."""
    if elsewhere(context) or is_past(context):
        return ()
    want = wanted_driver(context, floor)
    family = distribution(context) or ""
    way = WAYS.get(family) if want.branch >= last_closed() or family in LEGACY else None
    return way(want) if way else ()


def driver(context: RuleContext, text: str, floor: str | None = None) -> Fix:
    """Install or update the driver where this machine's driver lives: on the host of a container,
    in Windows for WSL, with JetPack on a Jetson."""
    if place := elsewhere(context):
        return Fix(text=f"{text}. {place}", min_driver=floor, needs_root=True, needs_reboot=True)
    found = gpus_of(context)
    seen, last = _capabilities(found), _last_branch(context, found)
    closed = seen and min(seen) < OPEN_FROM and max(seen) >= ONLY_OPEN_FROM
    if on(context, "linux") and (closed or (last and last < _first_branch(context, found))):
        return Fix(
            text=f"{text}: no driver drives all of these GPUs ({which.names(context)}). Choose "
            "which ones to use, and install the driver for these",
            needs_root=True,
            needs_reboot=True,
        )
    if context.catalog.ends_before(found, floor):
        return Fix(
            text=f"No driver from {floor} on knows this GPU ({_last_branch(context, found)} is its "
            "last branch): use a build for an older CUDA, the CPU, or a newer GPU"
        )
    want, family = wanted_driver(context, floor), distribution(context) or ""
    commands = driver_commands(context, floor) if on(context, "linux") else ()
    if family == "nixos":
        return Fix(
            text=f"{text}: add `nixpkgs.config.allowUnfree = true; "
            "hardware.graphics.enable = true; "
            'services.xserver.videoDrivers = [ "nvidia" ]; hardware.nvidia.open = '
            f"{str(want.is_open).lower()};` to /etc/nixos/configuration.nix, then type "
            "`sudo nixos-rebuild boot` and `sudo reboot`; afterwards `nvidia-smi` lists the GPU",
            needs_root=True,
            needs_reboot=True,
        )
    if not commands:
        text = f"{text}. Download it from {DRIVER_SITE}"
    anew = starts_anew(context, want)
    then = "reboot; afterwards `nvidia-smi` lists the GPU" if anew else LOAD
    if on(context, "windows"):
        then = "restart where its installer asks for that"
    elif commands and asks_for_a_key(family, want):
        whose = "of root" if family == "suse" else "that `mokutil` asked for"
        then = (
            f"reboot: the firmware asks for the new key (Enroll MOK) with the password {whose}. "
            "Afterwards `nvidia-smi` lists the GPU"
        )
    start = lines("sudo reboot") if anew else lines("sudo modprobe nvidia", "nvidia-smi")
    return Fix(
        text=f"{text}, then {then}",
        commands=(*commands, *start) if commands else (),
        min_driver=floor,
        needs_root=True,
        needs_reboot=anew,
    )


LOAD = "load it (or reboot); `nvidia-smi` lists the GPU"


def starts_anew(context: RuleContext, want: Wanted) -> bool:
    """Whether only a start of the machine loads what was installed: a module that is loaded now
    stands in its way, a key is asked for, or an update brings another kernel."""
    driver, family = context.driver, distribution(context) or ""
    held = any(device.driver for device in nvidia_on_pci(context))
    loaded = held or driver.module_loaded or driver.nouveau_loaded
    return bool(loaded or family == "arch" or asks_for_a_key(family, want))


def elsewhere(context: RuleContext) -> str | None:
    if context.os.wsl:
        return (
            f"Do it in Windows (from {DRIVER_SITE}), then `wsl --shutdown`; install no "
            "Linux driver "
            "inside WSL"
        )
    if context.os.jetson:
        return "On a Jetson the driver comes with JetPack: flash a newer JetPack with SDK Manager"
    if in_container(context):
        return "Do it on the host, not in this container, and start the container again"
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

BUILDS: dict[str | None, str] = {
    None: "if command -v akmods; then sudo akmods --force; else sudo dkms autoinstall; fi",
    "fedora": "sudo akmods --force",
}
"""Fedora's kin build by akmods, others by dkms; None: the distribution is not shown."""


def load_fix(context: RuleContext, _: str) -> Fix:
    if on(context, "windows"):
        text = "Enable the GPU in the Device Manager, or install its driver again"
        return Fix(text=text, needs_root=True, needs_reboot=True)
    family = distribution(context)
    nouveau = any(device.driver == "nouveau" for device in nvidia_on_pci(context))
    if nouveau or context.driver.nouveau_loaded or events(context, "nouveau-in-the-way"):
        return Fix(
            text="Keep nouveau from the GPU, rebuild the initial RAM disk and reboot",
            commands=(*NOUVEAU_COMMANDS, *lines(*REBUILD_INITRD.get(family or "", ()), REBOOT)),
            needs_root=True,
            needs_reboot=True,
        )
    build = BUILDS.get(family, "sudo dkms autoinstall")
    unbuilt = events(context, "module-not-found")
    # Few texts show whether the module is built: loading it says what is wrong.
    first = (build,) if unbuilt or not is_report(context) else ()
    # Nothing is built without the headers of the kernel that runs.
    headers = _headers(context.os.kernel or "") if unbuilt else ()
    signed = context.os.secure_boot and not unbuilt
    key = (*mok_command(context), REBOOT) if signed else ("sudo modprobe nvidia", "nvidia-smi")
    otherwise = "" if first else f" (where the message is `not found`, build it first: `{build}`)"
    return Fix(
        text=f"Load the module{otherwise}; `nvidia-smi` then lists the GPU. "
        f"Where Secure Boot is on, {ENROLL}",
        commands=(*headers, *lines(*first, *key)),
        needs_root=True,
        needs_reboot=bool(signed),
    )


REBOOT = "sudo reboot"

ENROLL = (
    "enroll the key that signed it: the firmware asks for it at the next start (Enroll MOK, with "
    "the password that mokutil asked for)"
)


def with_headers(context: RuleContext) -> Lines:
    values = [e.values for e in events(context, "driver-build-failed")]
    kernel = next((one["kernel"] for one in values if one.get("kernel")), context.os.kernel)
    no_compiler = any(one.get("why") == "compiler" for one in values)
    return (
        *_headers(kernel or ""),
        *(compiler(context) if no_compiler else ()),
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
"""How distributions name their kernels, and where the headers of one are."""


def _headers(kernel: str) -> Lines:
    """The command for the headers of a kernel, by whose kernel it is.

    >>> _headers("6.17.0-8-generic"), _headers("6.17.0-custom")
    (('sudo apt install -y linux-headers-6.17.0-8-generic',), ())
    """
    known = (command for pattern, command in HEADERS if re.search(pattern, kernel))
    return tuple(filled(one, kernel=kernel) for one in known if is_a_kernel(kernel))[:1]


KEYS = {
    "ubuntu": "/var/lib/shim-signed/mok/MOK.der",
    "fedora": "/etc/pki/akmods/certs/public_key.der",
}

DKMS = "/var/lib/dkms/mok.pub"
"""Where a distribution keeps the key that it signs modules with; dkms' own elsewhere."""


def mok_command(context: RuleContext) -> Lines:
    """The key goes to the firmware; where the distribution is not known, the one that is there."""
    family = distribution(context)
    found = f'"$(ls {" ".join(sorted({*KEYS.values(), DKMS}))} 2>/dev/null | head -n 1)"'
    return lines(f"sudo mokutil --import {KEYS.get(family, DKMS) if family else found}")
