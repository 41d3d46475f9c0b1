"""Drivers by distribution: what its package tool takes from which repository, and leaves.

A package that no enabled repository has is not found; a tool that asks takes the next pasted line
for its answer (`simulator.paste` refuses that); what dkms or akmods builds is signed by the
machine's own key, which Secure Boot takes once it is enrolled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from closing import facts
from closing.kernel import staged
from closing.shells import Refused
from closing.world import DriverPackage, World

UBUNTU = ("ubuntu", "linuxmint", "zorin", "elementary", "neon")
RHEL = ("rhel", "rocky", "almalinux", "centos", "ol", "amzn")
SUSE = ("opensuse", "opensuse-leap", "opensuse-tumbleweed", "sles")
ARCH = ("arch", "manjaro", "endeavouros", "cachyos")
FEDORA = ("fedora", "nobara")
DEBIAN = ("debian", "kali")

TOOLS = {
    "apt": (*UBUNTU, *DEBIAN, "pop"),
    "apt-get": (*UBUNTU, *DEBIAN, "pop"),
    "ubuntu-drivers": UBUNTU,
    "dnf": (*FEDORA, *RHEL),
    "crb": RHEL,
    "subscription-manager": ("rhel",),
    "zypper": SUSE,
    "pacman": ARCH,
    "mhwd": ("manjaro",),
    "kmodgenca": FEDORA,
    "nixos-rebuild": ("nixos",),
    "apk": ("alpine",),
}
"""Package tool -> the distributions (os-release ID) that have it."""

INSTALLS = {"apt": "install", "apt-get": "install", "dnf": "install", "zypper": "install",
            "pacman": "-S", "apk": "add"}  # fmt: skip
REMOVES = ("purge", "remove", "-Rs", "-Rns")
YES = ("-y", "--yes", "--noconfirm", "--assumeyes", "--non-interactive", "-n")


def asks(tool: str, words: Sequence[str]) -> bool:
    """Whether a call asks before it does it.

    >>> asks("apt", ("install", "gcc")), asks("apt", ("install", "-y", "gcc"))
    (True, False)
    """
    if tool == "apk" or set(words) & set(YES):
        return False
    return any(w.startswith(INSTALLS.get(tool, "?")) or w in REMOVES for w in words)


def package_tool(world: World, tool: str, words: Sequence[str]) -> World:
    """One call of a package tool; Refused where this distribution has another one."""
    name = (world.os.id or "").lower()
    if name not in TOOLS[tool]:
        raise Refused(f"{tool}: command not found on {name or 'this system'}")
    plain = [word for word in words if not (word.startswith("-") and not word.startswith("-S"))]
    if tool in INSTALLS and plain and plain[0].startswith(INSTALLS[tool]):
        world = installed(world, plain[1:])
        # A rolling release brings a kernel along: the one that runs has no modules any more.
        return world.having(kernel_updated=plain[0] == "-Syu" or world.kernel_updated)
    return repository(world, tool, words)


# --- repositories -------------------------------------------------------------------------------

MAKES_KNOWN = (
    (r"epel", "epel"),
    (r"rpmfusion-nonfree-release", "rpmfusion"),
    (r"developer\.download\.nvidia\.com.*\.repo", "nvidia"),
    (r"cuda-keyring", "nvidia"),
    (r"download\.nvidia\.com/(?:opensuse|suse)", "nvidia"),
    (r"nvidia-driver:(?:latest-dkms|open-dkms)", "stream open"),
    (r"nvidia-driver:580-dkms|^\*nvidia\*580\*$", "stream 580"),
)
"""A word of a command -> the repository that it makes known."""


def repository(world: World, tool: str, words: Sequence[str]) -> World:
    """`update`, `config-manager`, `module enable`, `addrepo`: what can be installed afterwards."""
    if "enable" in words and any(w.startswith("nvidia-driver:") for w in words):
        stream = next(w for w in words if w.startswith("nvidia-driver:"))
        if "nvidia" not in world.repositories:
            raise Refused(f"dnf: no module {stream}: its repository is not known")
    return known(world, words)


def known(world: World, words: Sequence[str]) -> World:
    new = {name for pattern, name in MAKES_KNOWN for word in words if re.search(pattern, word)}
    return world.having(repositories=world.repositories | new)


# --- packages -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """What a package's name says of the driver in it."""

    pattern: str
    distributions: tuple[str, ...]
    needs: tuple[str, ...] = ()
    """The repositories that must be known."""
    branch: str | None = None
    """The branch; None where the name says it, or the newest."""
    open: bool = False
    signed: bool = False
    building: bool = False
    """Whether the module is built after the install, in the background."""


NEWEST = "595"

ROWS = (
    Row(r"nvidia-driver-(?P<branch>\d{3})(?:-server)?", (*UBUNTU, "pop")),
    Row(r"nvidia-driver-(?P<branch>\d{3})(?:-server)?-open", (*UBUNTU, "pop"), open=True),
    Row(r"system76-driver-nvidia", ("pop",), branch="580", open=True),
    Row(r"nvidia-driver", DEBIAN, ("non-free",), branch="of the release"),
    Row(r"nvidia-tesla-470-driver", DEBIAN, ("non-free",), branch="470"),
    Row(r"nvidia-open", DEBIAN, ("nvidia",), branch=NEWEST, open=True),
    Row(r"cuda-drivers-(?P<branch>\d{3})", (*DEBIAN, *RHEL), ("nvidia",)),
    Row(r"akmod-nvidia", FEDORA, ("rpmfusion",), branch=NEWEST, building=True),
    Row(r"akmod-nvidia-(?P<branch>\d{3})xx", FEDORA, ("rpmfusion",), building=True),
    Row(r"kmod-nvidia-open-dkms", RHEL, ("nvidia", "epel"), branch=NEWEST, open=True),
    Row(r"kmod-nvidia-latest-dkms", RHEL, ("nvidia", "epel"), branch="of the stream"),
    Row(r"nvidia-open", RHEL, ("nvidia",), branch=NEWEST, open=True),
    Row(r"nvidia-open-dkms", ARCH, branch=NEWEST, open=True),
    Row(r"nvidia-open-driver-G0[67]-signed[\w-]*", SUSE, ("nvidia",), branch=NEWEST, open=True,
        signed=True),
    Row(r"nvidia-driver-G06-kmp[\w-]*", SUSE, ("nvidia",), branch="580"),
)  # fmt: skip

UBUNTU_HAS = ("470", "535", "550", "570", "580", "590")
OF_THE_RELEASE = {"11": "470", "12": "535", "13": "550"}
"""Debian's release -> the branch in its own packages."""


def installed(world: World, names: Sequence[str]) -> World:
    """A call of `install` with these names: a driver among them is staged."""
    world = known(world, names)
    fabric(world, names)
    if "kernel-devel-matched" in names and (world.os.version or "").startswith("8"):
        raise Refused("dnf: no package kernel-devel-matched: it begins with EL 9")
    for name in names:
        for row in ROWS:
            found = re.fullmatch(row.pattern, name.partition("=")[0])
            if found and (world.os.id or "") in row.distributions:
                package = _package(world, row, found, name)
                signed = row.signed or any("linux-modules-nvidia" in n for n in names)
                closed_kmp = row.pattern.startswith("nvidia-driver-G06-kmp")
                pending = world.key_pending or closed_kmp
                world = world.having(building=row.building, key_pending=pending)
                return staged(world, DriverPackage(package, _is_open(world, row), signed))
    return world


def _package(world: World, row: Row, found: re.Match[str], name: str) -> str:
    lacking = [need for need in row.needs if need not in world.repositories]
    if lacking:
        raise Refused(f"no package {name}: {', '.join(lacking)} is not known to the package tool")
    branch = row.branch or found.group("branch")
    if world.os.id in UBUNTU and branch not in UBUNTU_HAS:
        raise Refused(f"E: Unable to locate package {name}")
    exact = re.search(r"=(\d+\.\d+(?:\.\d+)?)", name)
    return exact.group(1) if exact else facts.NEWEST_OF_BRANCH[branch]


def _is_open(world: World, row: Row) -> bool:
    return row.open or (row.building and "open macro" in world.repositories)


def fabric(world: World, names: Sequence[str]) -> None:
    """A Fabric Manager of another version than the driver does not start the fabric."""
    for name in names:
        if re.match(r"nvidia-fabric-?manager-\d", name):
            exact = name.rpartition("=" if "=" in name else "-")[2].rstrip("*")
            if exact != world.snapshot.driver.version:
                raise Refused(f"{name} is not of driver {world.snapshot.driver.version}")


AUR = re.compile(r"nvidia-(\d{3})xx-utils")
