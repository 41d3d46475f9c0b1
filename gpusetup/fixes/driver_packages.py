"""How each distribution installs the NVIDIA driver: one function a family, as its own guide says.

Every one is the whole way from a bare system: repositories, the packages in the flavour that the
GPU needs, the wait for the module, the key where Secure Boot is on. Looked up in November 2026.
No line but the key's asks anything: what is pasted after a question would be its answer.
"""

from __future__ import annotations

import re

from gpusetup.catalog.facts import Debian, facts, has_repository
from gpusetup.fixes.wanted_driver import Wanted, Way, last_closed
from gpusetup.model.shell import Line, filled, lines

NVIDIA_REPOS = "https://developer.download.nvidia.com/compute/cuda/repos"


def ubuntu(want: Wanted) -> tuple[Line, ...]:
    """Ubuntu Server documentation, "NVIDIA drivers installation": `ubuntu-drivers`, or apt with
    the modules that Canonical has signed, which Secure Boot takes without a key of one's own."""
    if want.capability is None:
        return lines("sudo apt update", "sudo ubuntu-drivers install")
    name = f"{want.branch}-open" if want.is_open else f"{want.branch}"
    update = lines("sudo apt update")
    if not want.secure_boot:
        return (*update, filled("sudo apt install -y {driver}", driver=f"nvidia-driver-{name}"))
    signed = 'sudo apt install -y {driver} {modules}-"$(uname -r)"'
    modules = f"linux-modules-nvidia-{name}"
    return (*update, filled(signed, driver=f"nvidia-driver-{name}", modules=modules))


def pop(want: Wanted) -> tuple[Line, ...]:
    """System76's support pages: one package that follows the release, built by dkms; GPUs before
    Turing take the closed driver by its branch."""
    driver = "system76-driver-nvidia" if want.is_open else f"nvidia-driver-{want.branch}"
    key = "sudo mokutil --import /var/lib/shim-signed/mok/MOK.der"
    install = filled("sudo apt install -y {driver}", driver=driver)
    return (*lines("sudo apt update"), install, *(lines(key) if want.secure_boot else ()))


CODENAME = "$(. /etc/os-release; echo $VERSION_CODENAME)"
NON_FREE = (
    "echo \"deb $(apt-get indextargets --format '$(REPO_URI)' 'Component: main' "
    f'"Codename: {CODENAME}" | head -n 1) {CODENAME} '
    'contrib non-free non-free-firmware" | sudo tee /etc/apt/sources.list.d/nvidia-non-free.list'
)
"""From the mirror that this machine uses already."""


def _packaged_in_debian(release: str) -> int:
    """The branch in a Debian's own packages; the newest known one where the release is not."""
    rows = {row.release: row.branch for row in facts(Debian)}
    return rows.get(release, max(rows.values()))


def debian(want: Wanted) -> tuple[Line, ...]:
    """Debian's wiki, NvidiaGraphicsDrivers: contrib and non-free; NVIDIA's own repository (its
    Driver Installation Guide, r580) where Debian's packages are too old."""
    packaged = _packaged_in_debian(want.major)
    needed = want.at_least
    headers = f"linux-headers-{'arm64' if want.machine == 'aarch64' else 'amd64'}"
    free = () if want.id == "kali" else lines(NON_FREE)
    if needed > packaged:
        theirs = _from_nvidia(want)
        return (*free, *theirs, *_key_of_dkms(want)) if theirs else ()
    driver = "sudo apt install -y {headers} nvidia-driver firmware-misc-nonfree"
    return (
        *free,
        *lines("sudo apt update"),
        filled(driver, headers=headers),
        *_key_of_dkms(want),
    )


def _from_nvidia(want: Wanted) -> tuple[Line, ...]:
    driver = "nvidia-open" if want.is_open else f"cuda-drivers-{last_closed()}"
    repository = cuda_repository(want)
    if not repository:
        return ()
    return (
        *repository,
        filled('sudo apt install -y "linux-headers-$(uname -r)" {driver}', driver=driver),
    )


def cuda_repository(want: Wanted) -> tuple[Line, ...]:
    """NVIDIA's own repository, for drivers and toolkits (its CUDA Installation Guide); () where it
    has none for this system."""
    machine = "sbsa" if want.machine == "aarch64" else "x86_64"
    if want.id in ("ubuntu", "debian"):
        release = want.version.replace(".", "") if want.id == "ubuntu" else want.major
        known = has_repository(want.id, release)
        return _by_keyring(f"{want.id}{release}", machine) if known else ()
    if want.id in LIKE_RHEL and has_repository("rhel", want.major):
        repo = f"{NVIDIA_REPOS}/rhel{want.major}/{machine}/cuda-rhel{want.major}.repo"
        return (filled("sudo dnf config-manager --add-repo {repo}", repo=repo),)
    return ()


LIKE_RHEL = ("rocky", "almalinux", "rhel", "centos", "ol")
KEYRING = "cuda-keyring_1.1-1_all.deb"


def _by_keyring(system: str, machine: str) -> tuple[Line, ...]:
    return (
        filled("wget {url}", url=f"{NVIDIA_REPOS}/{system}/{machine}/{KEYRING}"),
        filled("sudo apt install -y {file}", file=f"./{KEYRING}"),
        *lines("sudo apt update"),
    )


FUSION = (
    "https://mirrors.rpmfusion.org/{0}/fedora/rpmfusion-{0}-release-$(rpm -E %fedora).noarch.rpm"
)
"""RPM Fusion's Configuration page."""


def kepler_in_debian(want: Wanted) -> tuple[Line, ...]:
    """The 470 branch ends with Debian 12, where its package has a name of its own."""
    name = next((r.kepler for r in facts(Debian) if r.release == want.major), None)
    if name is None:
        return ()
    driver = "sudo apt install -y linux-headers-amd64 {name} firmware-misc-nonfree"
    return (
        *lines(NON_FREE, "sudo apt update"),
        filled(driver, name=name),
        *_key_of_dkms(want),
    )


def fedora(want: Wanted) -> tuple[Line, ...]:
    """RPM Fusion, Howto/NVIDIA and Howto/Secure Boot: the key before the module is built; `akmods
    --force` builds it and ends when it is built; 580xx is the branch for GPUs before Turing."""
    if want.is_image:
        return () if want.secure_boot else _of_an_image(want)
    legacy = "" if want.is_open else f"-{want.closed_branch}xx"
    key = lines(
        "sudo dnf install -y akmods mokutil openssl",
        "sudo kmodgenca -a",
        "sudo mokutil --import /etc/pki/akmods/certs/public_key.der",
    )
    return (
        *lines(f'sudo dnf install -y "{FUSION.format("free")}" "{FUSION.format("nonfree")}"'),
        *(key if want.secure_boot else ()),
        *(lines(OPEN_MACRO) if want.only_open else ()),
        filled("sudo dnf install -y {module} {cuda}",
               module=f"akmod-nvidia{legacy}", cuda=f"xorg-x11-drv-nvidia{legacy}-cuda"),
        *lines("sudo akmods --force", "modinfo -F version nvidia"),
    )  # fmt: skip


def _of_an_image(want: Wanted) -> tuple[Line, ...]:
    """RPM Fusion, Howto/NVIDIA, "OSTree": packages are layered, and nouveau is kept away."""
    legacy = "" if want.is_open else f"-{want.closed_branch}xx"
    return (
        *lines(
            "sudo rpm-ostree install --apply-live "
            f'"{FUSION.format("free")}" "{FUSION.format("nonfree")}"'
        ),
        *(lines(OPEN_MACRO) if want.only_open else ()),
        filled("sudo rpm-ostree install {module} {cuda}",
               module=f"akmod-nvidia{legacy}", cuda=f"xorg-x11-drv-nvidia{legacy}-cuda"),
        *lines("sudo rpm-ostree kargs --append=rd.driver.blacklist=nouveau,nova_core "
               "--append=modprobe.blacklist=nouveau,nova_core"),
    )  # fmt: skip


OPEN_MACRO = "echo '%_with_kmod_nvidia_open 1' | sudo tee /etc/rpm/macros.nvidia-kmod"
"""What makes RPM Fusion's akmod build the open modules (Howto/NVIDIA, "Kernel Open")."""


def rhel(want: Wanted) -> tuple[Line, ...]:
    """NVIDIA's Driver Installation Guide r580, chapter on RHEL and its kin: EPEL (for dkms), the
    repository, the headers, the module stream (RHEL 8 and 9; 10 has none), the compute packages."""
    if want.id == "amzn":
        return _amazon(want)
    if not has_repository("rhel", want.major):
        return ()
    module = "kmod-nvidia-open-dkms" if want.is_open else "kmod-nvidia-latest-dkms"
    return (
        *_epel(want),
        *cuda_repository(want),
        *lines(KERNEL_DEVEL_OF_EL8 if want.major == "8" else KERNEL_DEVEL),
        *_of_one_branch(want),
        filled("sudo dnf install -y nvidia-driver-cuda {module}", module=module),
        *_key_of_dkms(want),
    )


KERNEL_DEVEL = "sudo dnf install -y kernel-devel-matched kernel-headers"
KERNEL_DEVEL_OF_EL8 = 'sudo dnf install -y "kernel-devel-$(uname -r)" kernel-headers'


def _of_one_branch(want: Wanted) -> tuple[Line, ...]:
    """The guide's table of kernel modules: a module stream (RHEL 8 and 9), a version lock (10)."""
    if want.major == "10":
        lock = ("sudo dnf install -y python3-dnf-plugin-versionlock",
                f"sudo dnf versionlock add '*nvidia*{last_closed()}*'")  # fmt: skip
        return () if want.is_open else lines(*lock)
    stream = "open-dkms" if want.is_open else f"{last_closed()}-dkms"
    return (filled("sudo dnf module enable -y {stream}", stream=f"nvidia-driver:{stream}"),)


def _epel(want: Wanted) -> tuple[Line, ...]:
    """Fedora's EPEL page: RHEL itself, Oracle Linux, and those that carry the release package."""
    release = want.major
    if want.id == "rhel":
        page = f"https://dl.fedoraproject.org/pub/epel/epel-release-latest-{release}.noarch.rpm"
        builder = f"codeready-builder-for-rhel-{release}-{want.machine}-rpms"
        return (
            filled("sudo subscription-manager repos --enable {builder}", builder=builder),
            filled("sudo dnf install -y {page}", page=page),
        )
    if want.id == "ol":
        builder = f"ol{release}_codeready_builder"
        return (
            filled("sudo dnf install -y {epel}", epel=f"oracle-epel-release-el{release}"),
            filled("sudo dnf config-manager --enable {builder}", builder=builder),
        )
    return lines("sudo dnf install -y epel-release dnf-plugins-core", "sudo crb enable")


def _amazon(want: Wanted) -> tuple[Line, ...]:
    """NVIDIA's guide, chapter on Amazon Linux 2023; for Amazon Linux 2 there is none."""
    if want.major != "2023" or not want.is_open:
        return ()
    machine = "sbsa" if want.machine == "aarch64" else "x86_64"
    repo = f"{NVIDIA_REPOS}/amzn2023/{machine}/cuda-amzn2023.repo"
    return (
        filled("sudo dnf config-manager --add-repo {repo}", repo=repo),
        *lines(
            'sudo dnf install -y "kernel-devel-$(uname -r)" kernel-modules-extra',
            "sudo dnf module enable -y nvidia-driver:open-dkms",
            "sudo dnf install -y nvidia-open",
        ),
    )


ZYPPER = "sudo zypper install -y --auto-agree-with-licenses"


def suse(want: Wanted) -> tuple[Line, ...]:
    """The SUSE maintainer's page on the G07 packages (2026-02-22): signed open modules for Turing
    and later, which Secure Boot takes; G06 with a closed module for what is older."""
    folder = _suse_folder(want)
    if folder is None:
        return ()
    signed = "nvidia-open-driver-G07-signed-kmp-meta nvidia-compute-utils-G07"
    closed = "nvidia-driver-G06-kmp-default nvidia-compute-utils-G06"
    return (
        filled(
            "sudo zypper addrepo --refresh {url} nvidia",
            url=f"https://download.nvidia.com/{folder}/",
        ),
        *lines(
            "sudo zypper --gpg-auto-import-keys refresh",
            f"{ZYPPER} {signed if want.is_open else closed}",
        ),
    )


def _suse_folder(want: Wanted) -> str | None:
    major, _, minor = want.version.partition(".")
    if want.id == "opensuse-tumbleweed":
        return "opensuse/tumbleweed"
    if not re.fullmatch(r"1[5-9](\.\d)?", want.version):
        return None
    if want.id == "sles":
        return f"suse/sle{major}" + (f"sp{minor}" if major == "15" else "")
    return f"opensuse/leap/{want.version}"


ARCH_KERNELS = (("-lts", "linux-lts"), ("-zen", "linux-zen"), ("-hardened", "linux-hardened"))
"""The end of a kernel's name -> its package, whose headers dkms needs."""


def arch(want: Wanted) -> tuple[Line, ...]:
    """Arch's news of December 2025: from 590 on the open modules only; GPUs before Turing take
    nvidia-580xx-dkms, which the AUR builds from nvidia-580xx-utils. Its kernel asks no module for
    a key under Secure Boot (no lockdown patch), and it boots without shim."""
    if want.id == "manjaro":
        return lines("sudo mhwd --auto pci nonfree 0300")
    kernel = next((name for end, name in ARCH_KERNELS if end in want.kernel), "linux")
    kernel = "linux-cachyos" if "cachyos" in want.kernel else kernel
    headers = f"{kernel}-headers"
    utils = f"nvidia-{want.closed_branch}xx-utils"
    if want.is_open:
        return (
            filled("sudo pacman -Syu --needed --noconfirm {headers} nvidia-open-dkms nvidia-utils",
                   headers=headers),
        )  # fmt: skip
    return (
        filled("sudo pacman -Syu --needed --noconfirm base-devel git {headers}", headers=headers),
        filled("git clone {url}", url=f"https://aur.archlinux.org/{utils}.git"),
        filled("cd {folder} && makepkg -si --noconfirm", folder=utils),
    )


def nixos(_: Wanted) -> tuple[Line, ...]:
    """NixOS' manual: the driver is a line of the configuration (`nixos_lines`)."""
    return lines("sudo nixos-rebuild boot")


def nixos_line(is_open: bool) -> str:
    """The NixOS manual and wiki, "NVIDIA": what /etc/nixos/configuration.nix needs."""
    return (
        "nixpkgs.config.allowUnfree = true; hardware.graphics.enable = true; "
        'services.xserver.videoDrivers = [ "nvidia" ]; '
        f"hardware.nvidia.open = {'true' if is_open else 'false'};"
    )


def _key_of_dkms(want: Wanted) -> tuple[Line, ...]:
    """dkms signs what it builds with a key of its own, which the firmware must be shown once."""
    return lines("sudo mokutil --import /var/lib/dkms/mok.pub") if want.secure_boot else ()


WAYS: dict[str, Way] = {
    "ubuntu": ubuntu,
    "pop": pop,
    "debian": debian,
    "fedora": fedora,
    "rhel": rhel,
    "suse": suse,
    "arch": arch,
    "nixos": nixos,
}
"""A family of distributions -> its way."""

LEGACY: dict[str, Way] = {
    "ubuntu": ubuntu,
    "debian": kepler_in_debian,
    "fedora": fedora,
    "arch": arch,
}
"""The same for a GPU whose last branch is older than 580 (Kepler: 470): who still packages it."""

ENROLS = ("pop", "debian", "fedora", "rhel")
"""Where the module is signed with a key that is made on the machine."""


def asks_for_a_key(family: str, want: Wanted) -> bool:
    """Whether the firmware asks for a new key at the next start."""
    if want.secure_boot and family == "suse":
        return not want.is_open  # the closed package makes a key and asks for it by itself
    return want.secure_boot and family in ENROLS and want.id != "amzn"
