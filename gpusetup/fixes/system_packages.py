"""The names of packages on each distribution, and the commands that install them.

The names are in tables. A system that is not in them gets instructions in words instead of
commands.
"""

from __future__ import annotations

import re

from gpusetup.evidence.context import RuleContext
from gpusetup.model.shell import Lines, filled

INSTALL = {
    "ubuntu": "sudo apt install -y {name}",
    "debian": "sudo apt install -y {name}",
    "fedora": "sudo dnf install -y {name}",
    "rhel": "sudo dnf install -y {name}",
    "arch": "sudo pacman -S --noconfirm {name}",
    "suse": "sudo zypper install -y {name}",
    "alpine": "sudo apk add {name}",
}

COMPILER = {"arch": "gcc", "alpine": "build-base", "ubuntu": "build-essential"}
"""Families whose C compiler package is not called `gcc` -> the package's name."""

FAMILIES_BY_NAME = (
    (r"pop|(?:l|k|x)?ubuntu|linux ?mint|zorin|elementary|neon", "ubuntu"),
    (r"debian|kali", "debian"),
    (r"fedora|nobara", "fedora"),
    (r"red hat|rhel|centos|rocky|alma ?linux|oracle linux|ol$|amzn", "rhel"),
    (r"arch$|arch linux|manjaro|endeavouros|cachyos", "arch"),
    (r"opensuse|suse linux|sles", "suse"),
    (r"nixos", "nixos"),
    (r"alpine", "alpine"),
)
"""The beginning of os-release's ID, or of a system's name in a text (a text may lack the ID) -> the
family whose package commands work there."""


def linux_family(context: RuleContext) -> str | None:
    """The family of distributions whose package commands work on this machine; None if unknown.

    The distribution's id decides, then the ids in its ID_LIKE, so that unlisted derivatives work
    too. A pasted text rarely contains an id, so the system's name decides there.
    """
    os = context.os
    is_other_system = not os.id and os.family not in (None, "linux")
    if is_other_system:
        return None
    names = (os.id, *os.like) if os.id else (os.name,)
    for name in names:
        for pattern, family in FAMILIES_BY_NAME:
            if re.match(pattern, (name or "").lower()):
                return family
    return None


def system_package(context: RuleContext, name: str) -> Lines:
    """The command that installs a system package; () if the package tool is not known."""
    return package_of(linux_family(context) or "", name)


def package_of(family: str, name: str) -> Lines:
    """The command that installs a package on a family of distributions; () for an unknown one."""
    return (filled(INSTALL[family], name=name),) if family in INSTALL else ()


def compiler(context: RuleContext) -> Lines:
    """The command that installs a C compiler; () if the package tool is not known."""
    return system_package(context, COMPILER.get(linux_family(context) or "", "gcc"))
