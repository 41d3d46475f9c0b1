"""What a distribution calls a package, and what installs it.

Facts are rows; a system that is not in them gets words in place of commands.
"""

from __future__ import annotations

from gpusetup.evidence.context import RuleContext
from gpusetup.model.shell import Line, filled

FAMILY_OF = {
    "ubuntu": "ubuntu",
    "pop": "pop",
    "linuxmint": "ubuntu",
    "zorin": "ubuntu",
    "elementary": "ubuntu",
    "neon": "ubuntu",
    "debian": "debian",
    "kali": "debian",
    "fedora": "fedora",
    "nobara": "fedora",
    "rhel": "rhel",
    "centos": "rhel",
    "rocky": "rhel",
    "almalinux": "rhel",
    "ol": "rhel",
    "amzn": "rhel",
    "arch": "arch",
    "manjaro": "arch",
    "endeavouros": "arch",
    "cachyos": "arch",
    "opensuse-tumbleweed": "suse",
    "opensuse-leap": "suse",
    "opensuse": "suse",
    "sles": "suse",
    "nixos": "nixos",
}
"""os-release ID -> whose package commands it takes."""

INSTALL = {
    "ubuntu": "sudo apt install -y {name}",
    "pop": "sudo apt install -y {name}",
    "debian": "sudo apt install -y {name}",
    "fedora": "sudo dnf install -y {name}",
    "rhel": "sudo dnf install -y {name}",
    "arch": "sudo pacman -S --noconfirm {name}",
    "suse": "sudo zypper install -y {name}",
    "alpine": "sudo apk add {name}",
}

COMPILER = {"arch": "gcc", "alpine": "build-base", "ubuntu": "build-essential"}
"""Who packages a C compiler under another name than `gcc`."""


def distribution(context: RuleContext) -> str | None:
    """The family of distributions whose commands this machine takes."""
    name = (context.snapshot.os.id or "").lower()
    return FAMILY_OF.get(name) or (name if name in INSTALL else None)


def system_package(context: RuleContext, name: str) -> tuple[Line, ...]:
    """The command that installs a system package; () where the package tool is not known."""
    pattern = INSTALL.get(distribution(context) or "")
    return (filled(pattern, name=name),) if pattern else ()


def compiler(context: RuleContext) -> tuple[Line, ...]:
    return system_package(context, COMPILER.get(distribution(context) or "", "gcc"))
