"""How each Linux distribution installs the NVIDIA driver: every step from a bare system.

A row is a step of the distribution's own guide: the facts that must hold (`!` before a fact that
must not), and the command. Looked up in November 2026. Only the command for the key asks a
question, because a line that is pasted after a question would become its answer.
"""

from __future__ import annotations

import re

from gpusetup.catalog.facts import Debian, driver_branch, facts, has_repository
from gpusetup.model.frozen import Frozen
from gpusetup.model.shell import Lines, filled
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

    branch: int
    capability: Capability | None
    """The lowest compute capability of the GPUs; None if unknown."""
    newest: Capability | None
    """The highest of them."""
    id: str
    """os-release's ID."""
    version: str
    """os-release's VERSION_ID, or ""."""
    machine: str
    kernel: str
    secure_boot: bool
    needed_branch: int = 0
    """The driver branch that is certainly needed; 0 if there is none."""

    @property
    def takes_open(self) -> bool:
        """Whether the open kernel modules support the GPU; True if its compute capability is
        unknown."""
        return self.capability is None or self.capability >= OPEN_FROM

    @property
    def needs_open(self) -> bool:
        """Whether one of the GPUs is so new that only the open kernel modules support it."""
        return self.newest is not None and self.newest >= ONLY_OPEN_FROM

    @property
    def major(self) -> str:
        """The first number of the distribution's release: "9" of "9.4"."""
        return self.version.partition(".")[0]


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
LOCK = "python3-dnf-plugin-versionlock"

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
    # r580) where Debian's packages are too old. Kali has the sections by default.
    "debian": (
        ("!kali", NON_FREE),
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
    # EPEL (for dkms), the repository, the headers, the module stream (10 has a version lock).
    "rhel": (
        ("rhel", "sudo subscription-manager repos --enable {codeready}"),
        ("rhel", "sudo dnf install -y {epel}"),
        ("ol", "sudo dnf install -y {oracles_epel}"),
        ("ol", "sudo dnf config-manager --enable {oracles_codeready}"),
        ("!rhel !ol", "sudo dnf install -y epel-release dnf-plugins-core"),
        ("!rhel !ol", "sudo crb enable"),
        ("", "REPOSITORY"),
        ("8", 'sudo dnf install -y "kernel-devel-$(uname -r)" kernel-headers'),
        ("!8", "sudo dnf install -y kernel-devel-matched kernel-headers"),
        ("!10", "sudo dnf module enable -y {stream}"),
        ("10 !open", f"sudo dnf install -y {LOCK}"),
        ("10 !open", "sudo dnf versionlock add {lock}"),
        ("open", "sudo dnf install -y nvidia-driver-cuda kmod-nvidia-open-dkms"),
        ("!open", "sudo dnf install -y nvidia-driver-cuda kmod-nvidia-latest-dkms"),
        ("secure-boot", KEY_OF_DKMS),
    ),
    # The SUSE maintainer's page on the G07 packages (2026-02-22): signed open modules for Turing
    # and later, which Secure Boot takes; G06 with a closed module for what is older.
    "suse": (
        ("", "sudo zypper addrepo --refresh {zypper_url} nvidia"),
        ("", "sudo zypper --gpg-auto-import-keys refresh"),
        (
            "open",
            "sudo zypper install -y --auto-agree-with-licenses "
            "nvidia-open-driver-G07-signed-kmp-meta nvidia-compute-utils-G07",
        ),
        (
            "!open",
            "sudo zypper install -y --auto-agree-with-licenses nvidia-driver-G06-kmp-default "
            "nvidia-compute-utils-G06",
        ),
    ),
    # Arch's news of December 2025: from 590 on the open modules only; the AUR builds what GPUs
    # before Turing take. Its kernel asks no module for a key under Secure Boot (no lockdown patch).
    "arch": (
        ("manjaro", "sudo mhwd --auto pci nonfree 0300"),
        ("!manjaro open", f"{PACMAN} {{arch_headers}} nvidia-open-dkms nvidia-utils"),
        ("!manjaro !open", f"{PACMAN} base-devel git {{arch_headers}}"),
        ("!manjaro !open", "git clone {aur_url}"),
        ("!manjaro !open", "cd {aur} && makepkg -si --noconfirm"),
    ),
}
"""A family of distributions -> its steps. REPOSITORY stands for NVIDIA's own repository."""

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
    repository, folder = cuda_repository(request), _folder_for_zypper(request)
    packaged = {row.release: row.branch for row in facts(Debian)}
    # A Debian that is not listed (testing, Kali) counts as the newest listed one.
    is_packaged = request.needed_branch <= packaged.get(request.major, max(packaged.values()))
    true_facts = {
        request.id,
        request.major,
        request.takes_open and "open",
        request.needs_open and "needs-open",
        request.capability is not None and "gpu-known",
        request.secure_boot and "secure-boot",
        is_packaged and "packaged",
    }
    # The last branch with closed modules, if the requested one has none.
    closed = min(request.branch, last_closed())
    ubuntu = f"{request.branch}-open" if request.takes_open else f"{request.branch}"
    kernels = (name for part, name in ARCH_KERNELS.items() if part in request.kernel)
    major, aur = request.major, f"nvidia-{closed}xx-utils"
    values = {
        "ubuntu": f"nvidia-driver-{ubuntu}",
        "ubuntu_modules": f"linux-modules-nvidia-{ubuntu}",
        "debian_headers": f"linux-headers-{'arm64' if request.machine == 'aarch64' else 'amd64'}",
        "nvidias_debian": "nvidia-open" if request.takes_open else f"cuda-drivers-{last_closed()}",
        "akmod": f"akmod-nvidia-{closed}xx",
        "cuda_of_fusion": f"xorg-x11-drv-nvidia-{closed}xx-cuda",
        "codeready": f"codeready-builder-for-rhel-{major}-{request.machine}-rpms",
        "epel": f"https://dl.fedoraproject.org/pub/epel/epel-release-latest-{major}.noarch.rpm",
        "oracles_epel": f"oracle-epel-release-el{major}",
        "oracles_codeready": f"ol{major}_codeready_builder",
        "lock": f"*nvidia*{last_closed()}*",
        "stream": f"nvidia-driver:{'open' if request.takes_open else last_closed()}-dkms",
        "zypper_url": f"https://download.nvidia.com/{folder}/",
        "arch_headers": f"{next(kernels, 'linux')}-headers",
        "aur": aur,
        "aur_url": f"https://aur.archlinux.org/{aur}.git",
    }
    if family == "suse" and not folder:
        return ()
    commands: Lines = ()
    for condition, step in STEPS.get(family, ()):
        wanted = condition.split()
        if any((fact.lstrip("!") in true_facts) == fact.startswith("!") for fact in wanted):
            continue
        if step == "REPOSITORY" and not repository:
            return ()
        commands += repository if step == "REPOSITORY" else (filled(step, **values),)
    return commands


def _folder_for_zypper(request: DriverRequest) -> str:
    """The folder of NVIDIA's repository for a release of SUSE; "" if there is none."""
    major, _, minor = request.version.partition(".")
    if request.id == "opensuse-tumbleweed":
        return "opensuse/tumbleweed"
    if not re.fullmatch(r"1[5-9](\.\d)?", request.version):
        return ""
    if request.id != "sles":
        return f"opensuse/leap/{request.version}"
    return f"suse/sle{major}" + (f"sp{minor}" if major == "15" else "")


def cuda_repository(request: DriverRequest) -> Lines:
    """NVIDIA's own repository, for drivers and toolkits (its CUDA Installation Guide); () if it
    has none for this system."""
    system, release = request.id, request.major
    if system in ("rocky", "almalinux", "centos", "ol"):
        system = "rhel"
    elif system == "ubuntu":
        release = request.version.replace(".", "")
    if system not in ("ubuntu", "debian", "rhel") or not has_repository(system, release):
        return ()
    # NVIDIA calls Arm servers "sbsa": Server Base System Architecture.
    machine = "sbsa" if request.machine == "aarch64" else "x86_64"
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
    """Whether the firmware asks to enroll a new key at the next start. SUSE's closed package
    creates a key and registers it itself."""
    return request.secure_boot and (
        family in SIGN_WITH_OWN_KEY or (family == "suse" and not request.takes_open)
    )
