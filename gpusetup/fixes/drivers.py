"""Installs the driver that a machine's GPUs need, in the right place, and builds, signs and loads
its kernel module instead of nouveau.

A row of `STEPS` is a step of a distribution's own guide: the facts that must hold (`!` before a
fact that must not), and the command. Looked up in November 2026. Only the command for the key asks
a question, because a line that is pasted after a question would become its answer.
"""

from __future__ import annotations

import re

from gpusetup.catalog.facts import Debian, driver_branch, facts, generation_of, has_repository
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
from gpusetup.evidence.facts import complaints_of_the_driver
from gpusetup.fixes import gpu_naming
from gpusetup.fixes.system_packages import compiler, is_unsupported_release, linux_family
from gpusetup.model.finding import Fix
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Gpu, Os
from gpusetup.model.shell import Lines, filled, lines
from gpusetup.model.versions import Capability, parsed

OPEN_FROM = Capability(7, 5)
"""Turing: the first generation that NVIDIA's open kernel modules support (their README)."""
ONLY_OPEN_FROM = Capability(10, 0)
"""Blackwell: the closed kernel modules do not support it."""


def last_closed() -> int:
    """The last driver branch that has closed kernel modules, which GPUs before Turing need."""
    return driver_branch("last closed")


def branch_of(floor: str | None) -> int:
    """The branch of a driver version, its first number; 0 without a version."""
    return parsed(floor).major if floor else 0


class DriverRequest(Frozen):
    """The driver that a machine needs, and the system on which it is installed."""

    os: Os
    branch: int
    needed_branch: int
    """The driver branch that is certainly needed; 0 if there is none."""
    capability: Capability | None
    """The lowest compute capability of the GPUs; None if unknown."""
    newest: Capability | None
    """The highest of them."""

    @property
    def takes_open(self) -> bool:
        """Whether the open kernel modules support the GPU; True if its compute capability is
        unknown."""
        return self.capability is None or self.capability >= OPEN_FROM

    @property
    def needs_open(self) -> bool:
        """Whether one of the GPUs is so new that only the open kernel modules support it."""
        return self.newest is not None and self.newest >= ONLY_OPEN_FROM


UPDATE = "sudo apt update"
CODENAME = "$(. /etc/os-release; echo $VERSION_CODENAME)"
# Uses the mirror that this machine is already configured for.
NON_FREE = (
    "echo \"deb $(apt-get indextargets --format '$(REPO_URI)' 'Component: main' "
    f'"Codename: {CODENAME}" | head -n 1) {CODENAME} '
    'contrib non-free non-free-firmware" | sudo tee /etc/apt/sources.list.d/nvidia-non-free.list'
)
KEY_OF_DKMS = "sudo mokutil --import /var/lib/dkms/mok.pub"
"""dkms signs the modules with its own key, which must be enrolled in the firmware once."""
FUSION = (
    "https://mirrors.rpmfusion.org/{0}/fedora/rpmfusion-{0}-release-$(rpm -E %fedora).noarch.rpm"
)
PACMAN = "sudo pacman -Syu --needed --noconfirm"

STEPS: dict[str, tuple[tuple[str, str], ...]] = {
    # Ubuntu Server documentation, "NVIDIA drivers installation". Canonical has signed the modules,
    # so Secure Boot takes them without a key of one's own.
    "ubuntu": (
        ("", UPDATE),
        ("!gpu-known", "sudo ubuntu-drivers install"),
        ("gpu-known !secure-boot", "sudo apt install -y {ubuntu}"),
        ("gpu-known secure-boot", 'sudo apt install -y {ubuntu} {ubuntu_modules}-"$(uname -r)"'),
    ),
    # Debian's wiki, NvidiaGraphicsDrivers. NVIDIA's own repository (its Driver Installation Guide,
    # r580) where Debian's packages are too old.
    "debian": (
        ("", NON_FREE),
        ("packaged", UPDATE),
        ("packaged", "sudo apt install -y {debian_headers} nvidia-driver firmware-misc-nonfree"),
        ("!packaged", "REPOSITORY"),
        ("!packaged", 'sudo apt install -y "linux-headers-$(uname -r)" {nvidias_debian}'),
        ("secure-boot", KEY_OF_DKMS),
    ),
    # RPM Fusion, Howto/NVIDIA, "Kernel Open", and Howto/Secure Boot: the key before the module is
    # built; `akmods --force` ends when it is built. 580xx is the branch for GPUs before Turing.
    "fedora": (
        ("", f'sudo dnf install -y "{FUSION.format("free")}" "{FUSION.format("nonfree")}"'),
        ("secure-boot", "sudo dnf install -y akmods mokutil openssl"),
        ("secure-boot", "sudo kmodgenca -a"),
        ("secure-boot", "sudo mokutil --import /etc/pki/akmods/certs/public_key.der"),
        (
            "needs-open",
            "echo '%_with_kmod_nvidia_open 1' | sudo tee /etc/rpm/macros.nvidia-kmod",
        ),
        ("open", "sudo dnf install -y akmod-nvidia xorg-x11-drv-nvidia-cuda"),
        ("!open", "sudo dnf install -y {akmod} {cuda_of_fusion}"),
        ("", "sudo akmods --force"),
        ("", "modinfo -F version nvidia"),
    ),
    # NVIDIA's Driver Installation Guide r580, chapter on RHEL and its kin, and Fedora's EPEL page:
    # EPEL (for dkms), the repository, the headers, the module stream (10 has none).
    "rhel": (
        ("rhel", "sudo subscription-manager repos --enable {codeready}"),
        ("rhel", "sudo dnf install -y {epel}"),
        ("!rhel", "sudo dnf install -y epel-release dnf-plugins-core"),
        ("!rhel", "sudo crb enable"),
        ("", "REPOSITORY"),
        ("8", 'sudo dnf install -y "kernel-devel-$(uname -r)" kernel-headers'),
        ("!8", "sudo dnf install -y kernel-devel-matched kernel-headers"),
        ("!10", "sudo dnf module enable -y {stream}"),
        ("open", "sudo dnf install -y nvidia-driver-cuda kmod-nvidia-open-dkms"),
        ("!open", "sudo dnf install -y nvidia-driver-cuda kmod-nvidia-latest-dkms"),
        ("secure-boot", KEY_OF_DKMS),
    ),
    # Arch's news of December 2025: from 590 on the open modules only; the AUR builds what GPUs
    # before Turing take. Its kernel asks no module for a key under Secure Boot (no lockdown patch).
    "arch": (
        ("open", f"{PACMAN} {{arch_headers}} nvidia-open-dkms nvidia-utils"),
        ("!open", f"{PACMAN} base-devel git {{arch_headers}}"),
        ("!open", "git clone {aur_url}"),
        ("!open", "cd {aur} && makepkg -si --noconfirm"),
    ),
}
"""A family of distributions -> its steps, each with the facts that must be true (`!`: false) for
it. REPOSITORY stands for NVIDIA's own repository."""

ARCH_KERNELS = {
    "-lts": "linux-lts",
    "-zen": "linux-zen",
    "-hardened": "linux-hardened",
    "cachyos": "linux-cachyos",
}
"""A part of a kernel's name -> the kernel's package, because dkms needs the headers of that
package."""
PACKAGE_LEGACY_DRIVERS = ("ubuntu", "fedora", "arch")
"""Families that still package the last driver branch for GPUs that need one before 580 (Kepler:
470)."""
SIGN_WITH_OWN_KEY = ("debian", "fedora", "rhel")
"""Families on which the module is signed with a key that is created on the machine."""


def install_driver(family: str, request: DriverRequest) -> Lines:
    """The commands that install a driver on a family of distributions; () if there is no way with
    packages."""
    repository = cuda_repository(request.os)
    holds, values = _facts_of(request), _names_of(request)
    commands: Lines = ()
    for condition, step in STEPS.get(family, ()):
        if any((fact.lstrip("!") in holds) == fact.startswith("!") for fact in condition.split()):
            continue
        if step == "REPOSITORY" and not repository:
            return ()
        commands += repository if step == "REPOSITORY" else (filled(step, **values),)
    return commands


def _facts_of(request: DriverRequest) -> set[object]:
    """The facts in the conditions of `STEPS` that hold: the distribution's id, its release, and
    what is known of GPU and firmware."""
    os, major = request.os, _major(request.os)
    packaged = {row.release: row.branch for row in facts(Debian)}
    # A Debian that is not listed (testing) counts as the newest listed one.
    is_packaged = request.needed_branch <= packaged.get(major, max(packaged.values()))
    return {
        _id(os),
        major,
        request.takes_open and "open",
        request.needs_open and "needs-open",
        request.capability is not None and "gpu-known",
        os.secure_boot and "secure-boot",
        is_packaged and "packaged",
    }


def _names_of(request: DriverRequest) -> dict[str, str]:
    """The packages and addresses that the steps name, as they are called for this driver."""
    os, major = request.os, _major(request.os)
    # The last branch with closed modules, if the requested one has none.
    closed = min(request.branch, last_closed())
    ubuntu = f"{request.branch}-open" if request.takes_open else f"{request.branch}"
    kernels = (name for part, name in ARCH_KERNELS.items() if part in (os.kernel or ""))
    aur = f"nvidia-{closed}xx-utils"
    return {
        "ubuntu": f"nvidia-driver-{ubuntu}",
        "ubuntu_modules": f"linux-modules-nvidia-{ubuntu}",
        "debian_headers": f"linux-headers-{'arm64' if os.machine == 'aarch64' else 'amd64'}",
        "nvidias_debian": "nvidia-open" if request.takes_open else f"cuda-drivers-{last_closed()}",
        "akmod": f"akmod-nvidia-{closed}xx",
        "cuda_of_fusion": f"xorg-x11-drv-nvidia-{closed}xx-cuda",
        "codeready": f"codeready-builder-for-rhel-{major}-{os.machine or 'x86_64'}-rpms",
        "epel": f"https://dl.fedoraproject.org/pub/epel/epel-release-latest-{major}.noarch.rpm",
        "stream": f"nvidia-driver:{'open' if request.takes_open else last_closed()}-dkms",
        "arch_headers": f"{next(kernels, 'linux')}-headers",
        "aur": aur,
        "aur_url": f"https://aur.archlinux.org/{aur}.git",
    }


def _id(os: Os) -> str:
    """os-release's ID, or ""."""
    return (os.id or "").lower()


def _major(os: Os) -> str:
    """The first number of the distribution's release: "9" of "9.4"."""
    return (os.version or "").partition(".")[0]


def cuda_repository(os: Os) -> Lines:
    """NVIDIA's own repository, for drivers and toolkits (its CUDA Installation Guide); () if it
    has none for this system."""
    system, release = _id(os), _major(os)
    if system in ("rocky", "almalinux", "centos"):
        system = "rhel"
    elif system == "ubuntu":
        release = (os.version or "").replace(".", "")
    if system not in ("ubuntu", "debian", "rhel") or not has_repository(system, release):
        return ()
    # NVIDIA calls Arm servers "sbsa": Server Base System Architecture.
    machine = "sbsa" if os.machine == "aarch64" else "x86_64"
    repositories = "https://developer.download.nvidia.com/compute/cuda/repos"
    folder = f"{repositories}/{system}{release}/{machine}"
    if system == "rhel":
        file = f"{folder}/cuda-rhel{release}.repo"
        return (filled("sudo dnf config-manager --add-repo {file}", file=file),)
    keyring = "cuda-keyring_1.1-1_all.deb"
    return (
        filled("wget {url}", url=f"{folder}/{keyring}"),
        filled("sudo apt install -y {file}", file=f"./{keyring}"),
        filled(UPDATE),
    )


def asks_for_a_key(family: str, request: DriverRequest) -> bool:
    """Whether the firmware asks to enroll a new key at the next start."""
    return bool(request.os.secure_boot) and family in SIGN_WITH_OWN_KEY


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
    first, last = _branches(context)
    capabilities = [gpu.compute_capability for gpu in known_gpus(context) if gpu.compute_capability]
    branch = max(driver_branch("good"), branch_of(floor))
    return DriverRequest(
        os=context.os,
        # A newer branch than the last one would not support the oldest of the GPUs.
        branch=branch if last is None else min(branch, last),
        needed_branch=max(branch_of(floor), first),
        capability=min(capabilities, default=None),
        newest=max(capabilities, default=None),
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
    # One GPU may run only with open modules and another only with closed ones, or one may need a
    # newer branch than the last for another.
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
    commands = driver_commands(context, floor) if on(context, "linux") else ()
    reboots = needs_reboot(context, request)
    source = "" if commands else f". Download the driver from {DRIVER_SITE}"
    # On these, a file from that page would break what the package tool manages.
    if family in ("suse", "nixos"):
        source = " with your distribution's own packages (its wiki: NVIDIA)"
    then = "load it (or reboot); afterwards `nvidia-smi` lists the GPU"
    if on(context, "windows"):
        then = "restart the machine if the installer asks you to"
    elif commands and asks_for_a_key(family, request):
        then = (
            "reboot: the firmware asks for the new key (Enroll MOK) with the password that "
            "`mokutil` asked for. Afterwards `nvidia-smi` lists the GPU"
        )
    elif reboots:
        then = "reboot; afterwards `nvidia-smi` lists the GPU"
    start = lines(REBOOT) if reboots else lines("sudo modprobe nvidia", "nvidia-smi")
    return Fix(
        text=f"{text}{source}, then {then}",
        commands=(*commands, *start) if commands else (),
        min_driver=floor,
        needs_root=True,
        needs_reboot=reboots,
    )


def needs_reboot(context: RuleContext, request: DriverRequest) -> bool:
    """Whether the new driver needs a reboot: an old module is loaded, the firmware must accept a
    key, or the update installs another kernel."""
    driver = context.driver
    is_bound = any(device.driver for device in nvidia_on_pci(context))
    # A driver that reports its version or refuses a program is loaded. `modprobe` would leave it
    # so, and `nvidia-smi` would then fail with a version mismatch.
    is_running = driver.version or driver.cuda or complaints_of_the_driver(context)
    is_loaded = is_bound or is_running or driver.module_loaded or driver.nouveau_loaded
    if is_loaded or events(context, "nouveau-in-use", "ptx-unsupported-toolchain"):
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
"""Where a distribution keeps the key with which it signs modules."""
DKMS = "/var/lib/dkms/mok.pub"
"""The key of dkms, which all other distributions use."""
EVERY_KEY = " ".join(sorted((*KEYS.values(), DKMS)))


def mok_command(context: RuleContext) -> Lines:
    """The command that asks the firmware to accept the key with which the modules are signed.

    If the distribution is not known, the shell looks which of the usual files exists.
    """
    family = linux_family(context)
    if family:
        return lines(f"sudo mokutil --import {KEYS.get(family, DKMS)}")
    return lines(f'sudo mokutil --import "$(ls {EVERY_KEY} 2>/dev/null | head -n 1)"')
