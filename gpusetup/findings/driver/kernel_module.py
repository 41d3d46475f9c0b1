"""The driver's kernel module: not loaded, not built, not signed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    answering,
    driver_answers,
    events,
    has_nvidia,
    is_report,
    kernel_driver_spoke,
    nvidia_on_pci,
    on,
)
from gpusetup.evidence.places import gpu_is_listed, in_windows_itself, in_wsl
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
from gpusetup.findings.lenders import is_lent
from gpusetup.findings.message_rules import finding, from_messages, shown
from gpusetup.findings.record import Cause, Message
from gpusetup.fixes import drivers, packages
from gpusetup.model.finding import Finding, Fix
from gpusetup.model.shell import Line, filled, lines

DRIVER_NOT_LOADED = Cause(
    id="driver-not-loaded",
    lacks="gpu",
    impossible=(gpu_is_listed, in_windows_itself, in_wsl, is_lent),
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
    message=Message(
        title="The NVIDIA driver is installed, but its kernel module is not loaded",
        detail="Often after a kernel update for which no module was built; with nouveau in the "
        "way; or Secure Boot loads no module whose key is not enrolled. doctor itself loads "
        "nothing: where the driver comes on demand, `nvidia-smi` once does.",
        way=lambda context, _: _load_fix(context),
    ),
)


def driver_not_loaded(context: RuleContext) -> Iterator[Finding]:
    """The driver's packages are here, its kernel module does not answer."""
    driver = context.snapshot.driver
    kinds = (*NOT_LOADED, "module-not-found")
    said = [e for e in events(context, *kinds) if "uvm" not in e.values.get("module", "")]
    installed = driver.library_found or driver.module_version or driver.library_version
    if installed and driver.module_loaded is False and not kernel_driver_spoke(context):
        on_disk = f"module nvidia is not loaded; on disk: {driver.module_version or 'unknown'}"
        said.append(shown(context, "driver.module_loaded", on_disk))
    # No order: the driver version in a text may be of a package, and no proof that it runs.
    answers = answering(context) if is_report(context) else driver_answers(context)
    proven = said or driver.nvml_code == NVML_DRIVER_NOT_LOADED
    here = absent_here(context) or said_on_the_host(said)
    if proven and here and not answers and has_nvidia(context) is not False:
        evidence = (*said, *nvml_said(context), *on_the_bus(context))
        yield finding(context, DRIVER_NOT_LOADED, evidence)


NOUVEAU_COMMANDS = lines(
    "printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' "
    "| sudo tee /etc/modprobe.d/blacklist-nouveau.conf",
)


REBUILD_INITRD = {
    **dict.fromkeys(("ubuntu", "debian", "pop"), ("sudo update-initramfs -u",)),
    **dict.fromkeys(("fedora", "rhel", "suse"), ("sudo dracut --force",)),
    "arch": ("sudo mkinitcpio -P",),
}


BUILDS: dict[str | None, str] = {
    None: "if command -v akmods; then sudo akmods --force; else sudo dkms autoinstall; fi",
    "fedora": "sudo akmods --force",
}
"""Fedora's kin build by akmods, others by dkms; None: the distribution is not shown."""


def _load_fix(context: RuleContext) -> Fix:
    if on(context, "windows"):
        text = "Enable the GPU in the Device Manager, or install its driver again"
        return Fix(text=text, needs_root=True, needs_reboot=True)
    family = packages.distribution(context)
    nouveau = any(device.driver == "nouveau" for device in nvidia_on_pci(context))
    if nouveau or context.snapshot.driver.nouveau_loaded or events(context, "nouveau-in-the-way"):
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
    signed = context.snapshot.os.secure_boot and not unbuilt
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
    # No order: a text may list the GPU that it bought; one that answers has its driver shown too.
    holds=(
        lambda context: (
            not (answering(context) and context.snapshot.driver.version)
            and not context.snapshot.torch.cuda_available
        ),
    ),
    message=Message(
        title="The kernel module of driver {driver} was not built for kernel {kernel}",
        plain="The kernel module of the NVIDIA driver was not built for the kernel that runs",
        detail="Mostly the kernel is newer than the driver: each branch builds against the kernels "
        "of its time. Else headers or a compiler (gcc, make) are missing (see make.log).",
        text="Install the headers of this kernel, and a driver release that is as new as the "
        "kernel (an old branch that a GPU needs: an older kernel); until then start the former "
        "kernel",
        way=lambda context, text: _with_headers(context, text),
    ),
    stage="build",
)


def _with_headers(context: RuleContext, text: str) -> Fix:
    values = [e.values for e in events(context, "driver-build-failed")]
    kernel = next(
        (one["kernel"] for one in values if one.get("kernel")), context.snapshot.os.kernel
    )
    no_compiler = any(one.get("why") == "compiler" for one in values)
    return Fix(
        text=text,
        commands=(
            *_headers(kernel or ""),
            *(packages.compiler(context) if no_compiler else ()),
            *drivers.driver_commands(context),
            *lines(REBOOT),
        ),
        needs_root=True,
        needs_reboot=True,
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


def _headers(kernel: str) -> tuple[Line, ...]:
    """The command for the headers of a kernel, by whose kernel it is.

    >>> _headers("6.17.0-8-generic"), _headers("6.17.0-custom")
    (('sudo apt install -y linux-headers-6.17.0-8-generic',), ())
    """
    known = (command for pattern, command in HEADERS if re.search(pattern, kernel))
    return tuple(filled(one, kernel=kernel) for one in known if is_a_kernel(kernel))[:1]


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
    holds=(
        lambda context: not answering(context),
        lambda context: any(
            "nvidia" in event.values.get("module", "nvidia")
            for event in events(context, "secure-boot-rejected")
        ),
    ),
    message=Message(
        title="Secure Boot rejects the NVIDIA kernel module: its key is not enrolled",
        text=f"{ENROLL[0].upper()}{ENROLL[1:]}; or switch Secure Boot off in the firmware",
        way=lambda context, text: Fix(
            text=text,
            commands=(*mok_command(context), *lines(REBOOT)),
            needs_root=True,
            needs_reboot=True,
        ),
    ),
)


def kernel_module_messages(context: RuleContext) -> Iterator[Finding]:
    yield from from_messages(context, (DRIVER_BUILD_FAILED, SECURE_BOOT_REJECTED))


KEYS = {
    "ubuntu": "/var/lib/shim-signed/mok/MOK.der",
    "pop": "/var/lib/shim-signed/mok/MOK.der",
    "fedora": "/etc/pki/akmods/certs/public_key.der",
}
DKMS = "/var/lib/dkms/mok.pub"
"""Where a distribution keeps the key that it signs modules with; dkms' own elsewhere."""


def mok_command(context: RuleContext) -> tuple[Line, ...]:
    """The key goes to the firmware; where the distribution is not known, the one that is there."""
    family = packages.distribution(context)
    found = f'"$(ls {" ".join(sorted({*KEYS.values(), DKMS}))} 2>/dev/null | head -n 1)"'
    return lines(f"sudo mokutil --import {KEYS.get(family, DKMS) if family else found}")


RULES = (
    driver_not_loaded,
    kernel_module_messages,
)
