"""Installs the driver that a machine's GPUs need, in the right place, and builds, signs and loads
its kernel module instead of nouveau.

Where a few commands of a distribution's own guide are enough, they are written out (looked up in
November 2026); everything else gets the address of the guide.
"""

from __future__ import annotations

import re

from gpusetup.choose.host import gpus_to_serve
from gpusetup.evidence.context import (
    RuleContext,
    events,
    gpus,
    in_container,
    is_report,
    nvidia_on_pci,
    on,
)
from gpusetup.evidence.facts import old_driver_messages
from gpusetup.fixes.system_packages import compiler, linux_family
from gpusetup.model.finding import Fix
from gpusetup.model.machine import Gpu
from gpusetup.model.shell import Lines, filled, lines
from gpusetup.model.versions import Capability, parsed

LONG_TERM_BRANCH = 580
"""The driver branch with long-term support: it supports Maxwell to Blackwell and CUDA 13."""
OPEN_FROM = Capability(7, 5)
"""Turing: the first generation that NVIDIA's open kernel modules support (their README)."""


UPDATE = "sudo apt update"
SIGNED_ON_UBUNTU = (
    'sudo apt install -y nvidia-driver-{name} linux-modules-nvidia-{name}-"$(uname -r)"'
)
"""The driver with modules that Canonical has signed, so that Secure Boot accepts them without a key
of your own (Ubuntu Server documentation, "NVIDIA drivers installation")."""
FIRST_PACKAGED_ON_UBUNTU = parsed("22.04")
"""The first release of Ubuntu whose archive has today's branches."""
GUIDES = {
    "debian": "https://wiki.debian.org/NvidiaGraphicsDrivers",
    "fedora": "https://rpmfusion.org/Howto/NVIDIA",
    "rhel": "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide",
    "arch": "https://wiki.archlinux.org/title/NVIDIA",
    "suse": "https://en.opensuse.org/SDB:NVIDIA_drivers",
    "nixos": "https://wiki.nixos.org/wiki/NVIDIA",
}
"""A family of distributions -> the guide to its own packages of the driver."""


DRIVER_SITE = "https://www.nvidia.com/drivers"


def known_gpus(context: RuleContext) -> tuple[Gpu, ...]:
    """The GPUs of this machine whose compute capability is known, by their driver or the PCI bus.

    A device on the bus counts as the oldest generation that its id can mean.
    """
    listed = gpus(context) or gpus_to_serve(context.snapshot, context.catalog)
    return tuple(gpu for gpu in listed if gpu.compute_capability)


def known_capabilities(context: RuleContext) -> list[Capability]:
    """The compute capabilities of this machine's GPUs, as far as they are known."""
    # The condition always holds; it is there for mypy.
    return [gpu.compute_capability for gpu in known_gpus(context) if gpu.compute_capability]


def last_branch(context: RuleContext) -> int | None:
    """The last driver branch that supports all GPUs; None if current drivers do."""
    branches = map(context.catalog.last_branch, known_capabilities(context))
    return min(filter(None, branches), default=None)


def driver_commands(context: RuleContext, floor: str | None = None) -> Lines:
    """The commands that install a driver on Ubuntu: the branch with long-term support, or a newer
    or older one if `floor` or the GPUs need it.

    () on another system, for which `driver_fix` names the guide, and if the driver must be
    installed elsewhere (a container's is its host's).
    """
    os = context.os
    if where_driver_lives(context) or linux_family(context) != "ubuntu":
        return ()
    # `Ubuntu 20.04.6 LTS`.
    release = re.search(r"ubuntu\D{0,3}(\d+\.\d+)", (os.name or "").lower())
    # Only a text has a name without an id; a probed machine may have NVIDIA's repository too.
    if release and not os.id and parsed(release[1]) < FIRST_PACKAGED_ON_UBUNTU:
        return ()
    # Ubuntu's own tool chooses a driver for GPUs whose generation is unknown.
    if not known_capabilities(context):
        return lines(UPDATE, "sudo ubuntu-drivers install")
    # A newer branch than the last one would not support the oldest of the GPUs.
    branch = max(LONG_TERM_BRANCH, parsed(floor or "0").major)
    branch = min(branch, last_branch(context) or branch)
    takes_open = all(capability >= OPEN_FROM for capability in known_capabilities(context))
    name = f"{branch}-open" if takes_open else f"{branch}"
    install = SIGNED_ON_UBUNTU if os.secure_boot else "sudo apt install -y nvidia-driver-{name}"
    return (*lines(UPDATE), filled(install, name=name))


def driver_fix(context: RuleContext, text: str, floor: str | None = None) -> Fix:
    """Install or update the driver where it belongs: on the host of a container, in Windows for
    WSL, with JetPack on a Jetson."""
    if elsewhere := where_driver_lives(context):
        sentence = f"{text}. {elsewhere}"
        return Fix(text=sentence, min_driver=floor, needs_root=True, needs_reboot=True)
    if context.catalog.ends_before(known_gpus(context), floor):
        return Fix(
            text=f"No driver from {floor} on supports this GPU (its last driver branch is "
            f"{last_branch(context)}). Use a build for an older CUDA, the CPU, or a newer GPU"
        )
    commands = driver_commands(context, floor)
    guide = GUIDES.get(linux_family(context) or "")
    if commands:
        source = ""
    # A file from NVIDIA's page would break what the distribution's package tool manages.
    elif guide:
        source = f" with your distribution's own packages ({guide})"
    else:
        source = f". Download the driver from {DRIVER_SITE}"
    reboots = _needs_reboot(context)
    if on(context, "windows"):
        then = "restart the machine if the installer asks you to"
    elif reboots:
        then = "reboot. After that, `nvidia-smi` should list the GPU"
    else:
        then = "load it (or reboot). After that, `nvidia-smi` should list the GPU"
    start = lines(REBOOT) if reboots else lines("sudo modprobe nvidia", "nvidia-smi")
    return Fix(
        text=f"{text}{source}, then {then}",
        commands=(*commands, *start) if commands else (),
        min_driver=floor,
        needs_root=True,
        needs_reboot=reboots,
    )


def _needs_reboot(context: RuleContext) -> bool:
    """Whether the new driver needs a reboot because an old module is loaded."""
    driver = context.driver
    is_bound = any(device.driver for device in nvidia_on_pci(context))
    # A driver that reports its version or refuses a program is loaded. `modprobe` would leave it
    # so, and `nvidia-smi` would then fail with a version mismatch.
    is_running = driver.version or driver.cuda or old_driver_messages(context)
    is_loaded = is_bound or is_running or driver.module_loaded or driver.nouveau_loaded
    return bool(is_loaded or events(context, "nouveau-in-use", "ptx-unsupported-toolchain"))


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

BUILD_MODULE = "if command -v akmods; then sudo akmods --force; else sudo dkms autoinstall; fi"
"""Fedora and its relatives build modules with akmods, the others with dkms."""


def load_fix(context: RuleContext, _text: str) -> Fix:
    """Load the installed driver's kernel module instead of nouveau. `_text` is not needed: this
    text depends on the machine."""
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
    # modprobe finds no module for the running kernel.
    unbuilt = events(context, "module-not-found")
    # Few texts show whether the module is built. Loading the module shows what is wrong.
    build = (BUILD_MODULE,) if unbuilt or not is_report(context) else ()
    headers = _headers(context) if unbuilt else ()
    # With Secure Boot, a module that was built but does not load lacks a known key.
    lacks_key = context.os.secure_boot and not unbuilt
    load = (ENROLL_KEY, REBOOT) if lacks_key else ("sudo modprobe nvidia", "nvidia-smi")
    return Fix(
        text="Load the driver's module (if modprobe prints `not found`, build the module first: "
        f"`{BUILD_MODULE}`). After that, `nvidia-smi` should list the GPU. If Secure Boot is on, "
        f"{ENROLL}",
        commands=(*headers, *lines(*build, *load)),
        needs_root=True,
        needs_reboot=bool(lacks_key),
    )


REBOOT = "sudo reboot"

ENROLL = (
    "enroll the key that signed the module. At the next start, choose Enroll MOK on the blue "
    "screen and enter the password that you gave to mokutil"
)


HEADERS = {
    **dict.fromkeys(("ubuntu", "debian"), 'sudo apt install -y linux-headers-"$(uname -r)"'),
    **dict.fromkeys(("fedora", "rhel"), 'sudo dnf install -y kernel-devel-"$(uname -r)"'),
    "arch": "sudo pacman -S --noconfirm linux-headers",
}
"""A family of distributions -> the command that installs the headers of the running kernel."""


def _headers(context: RuleContext) -> Lines:
    """The command that installs the kernel's headers, without which no module can be built; () if
    it is not known for this distribution."""
    command = HEADERS.get(linux_family(context) or "")
    return lines(command) if command else ()


def rebuild_with_headers(context: RuleContext) -> Lines:
    """Install the kernel's headers, a compiler and the driver, whose module is built again."""
    return (*_headers(context), *compiler(context), *driver_commands(context), *lines(REBOOT))


KEYS = "/etc/pki/akmods/certs/public_key.der /var/lib/dkms/mok.pub /var/lib/shim-signed/mok/MOK.der"
"""The keys with which akmods, dkms and Ubuntu sign modules. A machine has one of them."""
ENROLL_KEY = f"sudo mokutil --import $(sudo ls {KEYS} 2>/dev/null)"
"""Asks the firmware to accept the key with which the modules are signed."""
