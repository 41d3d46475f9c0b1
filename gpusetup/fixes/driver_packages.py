"""How each Linux distribution installs the NVIDIA driver: one function for each family, following
the family's own guide.

Each function returns every step from a bare system: the repositories, the packages with the kernel
modules that the GPU needs, waiting for the module build, and the key if Secure Boot is on. Looked
up in November 2026. Only the command for the key asks a question, because a line that is pasted
after a question would become its answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gpusetup.catalog.facts import Debian, driver_branch, facts, has_repository
from gpusetup.model.frozen import Frozen
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
    def closed_branch(self) -> int:
        """The driver branch with closed modules: the requested one, or the last one that has
        them."""
        return min(self.branch, last_closed())

    @property
    def major(self) -> str:
        """The first number of the distribution's release: "9" of "9.4"."""
        return self.version.partition(".")[0]


Way = Callable[[DriverRequest], Lines]


NVIDIA_REPOS = "https://developer.download.nvidia.com/compute/cuda/repos"
KEY_OF_DKMS = "sudo mokutil --import /var/lib/dkms/mok.pub"
"""dkms signs the modules with its own key, which must be enrolled in the firmware once."""
UPDATE = "sudo apt update"


def _filled_lines(*patterns: str, **values: str) -> Lines:
    """The command lines with the values filled in; empty patterns are left out."""
    patterns_with_text = filter(None, patterns)
    return tuple(filled(pattern, **values) for pattern in patterns_with_text)


def ubuntu(request: DriverRequest) -> Lines:
    """Ubuntu Server documentation, "NVIDIA drivers installation": `ubuntu-drivers`, or apt with
    the modules that Canonical has signed, which Secure Boot takes without a key of one's own."""
    name = f"{request.branch}-open" if request.takes_open else f"{request.branch}"
    signed = ' {modules}-"$(uname -r)"' if request.secure_boot else ""
    return _filled_lines(
        UPDATE,
        "sudo ubuntu-drivers install"
        if request.capability is None
        else f"sudo apt install -y {{driver}}{signed}",
        driver=f"nvidia-driver-{name}",
        modules=f"linux-modules-nvidia-{name}",
    )


CODENAME = "$(. /etc/os-release; echo $VERSION_CODENAME)"
NON_FREE = (
    "echo \"deb $(apt-get indextargets --format '$(REPO_URI)' 'Component: main' "
    f'"Codename: {CODENAME}" | head -n 1) {CODENAME} '
    'contrib non-free non-free-firmware" | sudo tee /etc/apt/sources.list.d/nvidia-non-free.list'
)
"""Uses the mirror that this machine is already configured for."""


def debian(request: DriverRequest) -> Lines:
    """Debian's wiki, NvidiaGraphicsDrivers: contrib and non-free; NVIDIA's own repository (its
    Driver Installation Guide, r580) where Debian's packages are too old."""
    packaged = {row.release: row.branch for row in facts(Debian)}
    # A release that is not listed (testing, Kali) counts as the newest listed one.
    packaged_branch = packaged.get(request.major, max(packaged.values()))
    # Kali has these sections by default.
    non_free = "" if request.id == "kali" else NON_FREE
    key = KEY_OF_DKMS if request.secure_boot else ""
    if request.needed_branch <= packaged_branch:
        headers = "linux-headers-arm64" if request.machine == "aarch64" else "linux-headers-amd64"
        install = "sudo apt install -y {headers} nvidia-driver firmware-misc-nonfree"
        return _filled_lines(non_free, UPDATE, install, key, headers=headers)
    repository = cuda_repository(request)
    if not repository:
        return ()
    driver = "nvidia-open" if request.takes_open else f"cuda-drivers-{last_closed()}"
    install = 'sudo apt install -y "linux-headers-$(uname -r)" {driver}'
    return (
        *_filled_lines(non_free),
        *repository,
        *_filled_lines(install, key, driver=driver),
    )


LIKE_RHEL = ("rocky", "almalinux", "rhel", "centos", "ol")
KEYRING = "cuda-keyring_1.1-1_all.deb"


def cuda_repository(request: DriverRequest) -> Lines:
    """NVIDIA's own repository, for drivers and toolkits (its CUDA Installation Guide); () if it
    has none for this system."""
    if request.id in LIKE_RHEL:
        system, release = "rhel", request.major
    elif request.id == "ubuntu":
        system, release = "ubuntu", request.version.replace(".", "")
    else:
        system, release = request.id, request.major
    if system not in ("ubuntu", "debian", "rhel") or not has_repository(system, release):
        return ()
    # NVIDIA calls Arm servers "sbsa": Server Base System Architecture.
    machine = "sbsa" if request.machine == "aarch64" else "x86_64"
    folder = f"{NVIDIA_REPOS}/{system}{release}/{machine}"
    if system == "rhel":
        repository = f"{folder}/cuda-rhel{release}.repo"
        return _filled_lines("sudo dnf config-manager --add-repo {repo}", repo=repository)
    patterns = ("wget {url}", "sudo apt install -y {file}", UPDATE)
    return _filled_lines(*patterns, url=f"{folder}/{KEYRING}", file=f"./{KEYRING}")


FUSION = (
    "https://mirrors.rpmfusion.org/{0}/fedora/rpmfusion-{0}-release-$(rpm -E %fedora).noarch.rpm"
)
"""RPM Fusion's Configuration page."""
FUSIONS = f'"{FUSION.format("free")}" "{FUSION.format("nonfree")}"'
KEY_OF_AKMODS = (
    "sudo dnf install -y akmods mokutil openssl",
    "sudo kmodgenca -a",
    "sudo mokutil --import /etc/pki/akmods/certs/public_key.der",
)


def fedora(request: DriverRequest) -> Lines:
    """RPM Fusion, Howto/NVIDIA, "Kernel Open", and Howto/Secure Boot: the key before the module is
    built; `akmods --force` builds it and ends when it is built; 580xx is the branch for GPUs before
    Turing."""
    legacy = "" if request.takes_open else f"-{request.closed_branch}xx"
    macro = "echo '%_with_kmod_nvidia_open 1' | sudo tee /etc/rpm/macros.nvidia-kmod"
    return _filled_lines(
        f"sudo dnf install -y {FUSIONS}",
        *(KEY_OF_AKMODS if request.secure_boot else ()),
        macro if request.needs_open else "",
        "sudo dnf install -y {module} {cuda}",
        "sudo akmods --force",
        "modinfo -F version nvidia",
        module=f"akmod-nvidia{legacy}",
        cuda=f"xorg-x11-drv-nvidia{legacy}-cuda",
    )


EPEL = {
    "rhel": (
        "sudo subscription-manager repos --enable {builder}",
        "sudo dnf install -y {page}",
    ),
    "ol": ("sudo dnf install -y {oracle}", "sudo dnf config-manager --enable {olbuilder}"),
}
"""Fedora's EPEL page: RHEL itself, Oracle Linux; others carry the release package."""


def rhel(request: DriverRequest) -> Lines:
    """NVIDIA's Driver Installation Guide r580, chapter on RHEL and its kin: EPEL (for dkms), the
    repository, the headers, the module stream (RHEL 8 and 9; 10 has a version lock), the compute
    packages."""
    repository = cuda_repository(request)
    if not repository:
        return ()
    ten, major = request.major == "10", request.major
    lock = ("sudo dnf install -y python3-dnf-plugin-versionlock", "sudo dnf versionlock add {lock}")
    stream = ("sudo dnf module enable -y {stream}",)
    headers = "kernel-devel-matched" if major != "8" else '"kernel-devel-$(uname -r)"'
    others = ("sudo dnf install -y epel-release dnf-plugins-core", "sudo crb enable")
    values = {
        "builder": f"codeready-builder-for-rhel-{major}-{request.machine}-rpms",
        "page": f"https://dl.fedoraproject.org/pub/epel/epel-release-latest-{major}.noarch.rpm",
        "oracle": f"oracle-epel-release-el{major}",
        "olbuilder": f"ol{major}_codeready_builder",
        "lock": f"*nvidia*{last_closed()}*",
        "stream": f"nvidia-driver:{'open' if request.takes_open else last_closed()}-dkms",
        "module": f"kmod-nvidia-{'open' if request.takes_open else 'latest'}-dkms",
    }
    return (
        *_filled_lines(*EPEL.get(request.id, others), **values),
        *repository,
        *_filled_lines(
            f"sudo dnf install -y {headers} kernel-headers",
            *(stream if not ten else () if request.takes_open else lock),
            "sudo dnf install -y nvidia-driver-cuda {module}",
            KEY_OF_DKMS if request.secure_boot else "",
            **values,
        ),
    )


def suse(request: DriverRequest) -> Lines:
    """The SUSE maintainer's page on the G07 packages (2026-02-22): signed open modules for Turing
    and later, which Secure Boot takes; G06 with a closed module for what is older."""
    major, _, minor = request.version.partition(".")
    folder = f"opensuse/leap/{request.version}"
    if request.id == "opensuse-tumbleweed":
        folder = "opensuse/tumbleweed"
    elif not re.fullmatch(r"1[5-9](\.\d)?", request.version):
        return ()
    elif request.id == "sles":
        folder = f"suse/sle{major}" + (f"sp{minor}" if major == "15" else "")
    signed = "nvidia-open-driver-G07-signed-kmp-meta nvidia-compute-utils-G07"
    closed = "nvidia-driver-G06-kmp-default nvidia-compute-utils-G06"
    packages = signed if request.takes_open else closed
    return _filled_lines(
        "sudo zypper addrepo --refresh {url} nvidia",
        "sudo zypper --gpg-auto-import-keys refresh",
        f"sudo zypper install -y --auto-agree-with-licenses {packages}",
        url=f"https://download.nvidia.com/{folder}/",
    )


ARCH_KERNELS = {
    "-lts": "linux-lts",
    "-zen": "linux-zen",
    "-hardened": "linux-hardened",
    "cachyos": "linux-cachyos",
}
"""A part of a kernel's name -> the kernel's package, because dkms needs the headers of that
package."""


def arch(request: DriverRequest) -> Lines:
    """Arch's news of December 2025: from 590 on the open modules only; GPUs before Turing take
    nvidia-580xx-dkms, which the AUR builds from nvidia-580xx-utils. Its kernel asks no module for
    a key under Secure Boot (no lockdown patch), and it boots without shim."""
    if request.id == "manjaro":
        return lines("sudo mhwd --auto pci nonfree 0300")
    kernel = next((name for part, name in ARCH_KERNELS.items() if part in request.kernel), "linux")
    utils = f"nvidia-{request.closed_branch}xx-utils"
    install = "sudo pacman -Syu --needed --noconfirm"
    by_hand = (
        f"{install} base-devel git {{headers}}",
        "git clone {url}",
        "cd {folder} && makepkg -si --noconfirm",
    )
    return _filled_lines(
        *(
            (f"{install} {{headers}} nvidia-open-dkms nvidia-utils",)
            if request.takes_open
            else by_hand
        ),
        headers=f"{kernel}-headers",
        url=f"https://aur.archlinux.org/{utils}.git",
        folder=utils,
    )


WAYS_BY_FAMILY: dict[str, Way] = {
    "ubuntu": ubuntu,
    "debian": debian,
    "fedora": fedora,
    "rhel": rhel,
    "suse": suse,
    "arch": arch,
}
"""A family of distributions -> the function that installs the driver on it."""

PACKAGE_LEGACY_DRIVERS = ("ubuntu", "fedora", "arch")
"""Families that still package the last driver branch for GPUs that need one before 580 (Kepler:
470)."""

SIGN_WITH_OWN_KEY = ("debian", "fedora", "rhel")
"""Families on which the module is signed with a key that is created on the machine."""


def asks_for_a_key(family: str, request: DriverRequest) -> bool:
    """Whether the firmware asks to enroll a new key at the next start. SUSE's closed package
    creates a key and registers it itself."""
    return request.secure_boot and (
        family in SIGN_WITH_OWN_KEY or (family == "suse" and not request.takes_open)
    )
