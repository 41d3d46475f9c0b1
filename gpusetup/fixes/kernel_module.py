"""Ways to a driver's kernel module: built, signed, loaded, without nouveau."""

from __future__ import annotations

import re

from gpusetup.evidence.context import RuleContext, events, is_report, nvidia_on_pci, on
from gpusetup.evidence.plausible import is_a_kernel
from gpusetup.fixes import drivers, packages
from gpusetup.model.finding import Fix
from gpusetup.model.shell import Lines, filled, lines

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
    family = packages.distribution(context)
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
    signed = context.os.secure_boot and not unbuilt
    key = (*mok_command(context), REBOOT) if signed else ("sudo modprobe nvidia", "nvidia-smi")
    otherwise = "" if first else f" (where the message is `not found`, build it first: `{build}`)"
    return Fix(
        text=f"Load the module{otherwise}; `nvidia-smi` then lists the GPU. Where Secure Boot is "
        f"on, {ENROLL}",
        commands=lines(*first, *key),
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
        *(packages.compiler(context) if no_compiler else ()),
        *drivers.driver_commands(context),
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
    family = packages.distribution(context)
    found = f'"$(ls {" ".join(sorted({*KEYS.values(), DKMS}))} 2>/dev/null | head -n 1)"'
    return lines(f"sudo mokutil --import {KEYS.get(family, DKMS) if family else found}")
