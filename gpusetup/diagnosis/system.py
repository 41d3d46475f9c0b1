"""What a system lacks: no command of an answer types it there, and no sentence speaks of it.

The rules write for Linux with its own driver. A line or a clause that names a part of Linux is
taken out on Windows and macOS; one that names a kernel module or a device node, in WSL, whose
driver is Windows'.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpusetup.findings.layers import Layer
from gpusetup.findings.record import RECORDS
from gpusetup.model.finding import Alternative, Finding, Fix, typed
from gpusetup.model.frozen import replace

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext

OF_LINUX = (
    r"\b(?:sudo|ldconfig|ulimit|rmmod|systemctl|dmesg|lspci|LD_PRELOAD|(?:nvidia-)?modprobe)\b"
    r"|(?:apt|apt-get|dnf|pacman) install|(?<!\w)/(?:dev|etc|proc)/|libcuda\.so|^chmod "
)
"""What neither Windows nor macOS has, in a line or a sentence."""
OF_KERNEL_MODULES = (
    r"modprobe|\brmmod\b|\b(?<!no-)dkms\b|akmod|mokutil|MOK\b|\b[Rr]eboot|/dev/nvidia|nouveau|NVreg_"
    r"|kernel modules?|linux-headers|kernel-devel|nvrm|(?:NVIDIA|nvidia)-(?:gridd|fabricmanager"
    r"|persistenced|suspend|powerd|bug-report)|install .*(?:nvidia-(?:driver|utils|compute|dkms"
    r"|open)|libnvidia|cuda-drivers)|--gpu-reset|envycontrol|system76-power|bbswitch|prime-select"
    r"|(?<!wsl )(?<!wsl\.exe )-mig\b|dmesg \| grep -iE? '?(?:xid|aer)|restart a? ?Linux"
)
"""What WSL has none of: the GPU's driver, its modules and its services are Windows'."""
LISTS_OF_FOLDERS = {"windows": "PATH", "macos": "DYLD_LIBRARY_PATH"}
"""The variable that names folders of libraries, where it is not LD_LIBRARY_PATH."""
ELSEWHERE = "In the Linux that prints this (WSL, a container, another machine): "
RESTART_WINDOWS = "Restart Windows, which holds the GPU. If it comes back: "
OF_THE_DRIVER = (Layer.HARDWARE, Layer.DRIVER, Layer.READINESS)


def on_this_system(context: RuleContext, finding: Finding) -> Finding:
    """The finding with what can be done under the system that it is about."""
    os = context.snapshot.os
    fix = finding.fix
    if os.wsl:
        return replace(finding, fix=_in_wsl(context, finding, fix)) if fix else finding
    if os.family not in LISTS_OF_FOLDERS:
        return finding
    named = LISTS_OF_FOLDERS[os.family]
    said = {name: _renamed(getattr(finding, name), named) for name in ("title", "detail")}
    return replace(finding, **said, fix=_without_linux(fix, named) if fix else None)


SHELLS = r"(?:export|unset|lspci) "
"""How a line begins that PowerShell writes in another way."""


def is_of_one_shell(context: RuleContext, finding: Finding) -> bool:
    """Whether a line is of bash, while the text does not say on which system it was written."""
    machine = context.snapshot
    unknown = machine.origin == "report" and machine.os.family is None
    lines = finding.fix.commands if finding.fix else ()
    return (
        unknown and machine.container.kind is None and any(re.match(SHELLS, line) for line in lines)
    )


def on_windows(context: RuleContext) -> RuleContext:
    machine = context.snapshot
    return replace(context, snapshot=replace(machine, os=replace(machine.os, family="windows")))


def in_either_shell(context: RuleContext, finding: Finding, there: Finding | None) -> Finding:
    """The finding with what is typed on Windows, or that its lines are of other systems."""
    fix = finding.fix
    if fix is None or not is_of_one_shell(context, finding):
        return finding
    lines = there.fix.commands if there and there.fix else ()
    if not lines or lines == fix.commands:
        only = ". The command is for Linux; on Windows leave it out"
        return replace(finding, fix=replace(fix, text=f"{fix.text}{only}"))
    also = Alternative(title="on Windows, in PowerShell", commands=lines)
    return replace(finding, fix=replace(fix, alternatives=(also, *fix.alternatives)))


def _renamed(text: str, variable: str) -> str:
    """
    >>> _renamed("LD_LIBRARY_PATH, not DYLD_LIBRARY_PATH", "PATH")
    'PATH, not DYLD_LIBRARY_PATH'
    """
    return re.sub(r"\bLD_LIBRARY_PATH", variable, text)


def _without_linux(fix: Fix, variable: str) -> Fix:
    foreign = rf"{OF_LINUX}|\bLD_LIBRARY_PATH"
    text = _renamed(fix.text, variable)
    return replace(
        _lines_without(fix, foreign),
        text=clauses_without(text, OF_LINUX) or f"{ELSEWHERE}{text}",
    )


def _in_wsl(context: RuleContext, finding: Finding, fix: Fix) -> Fix:
    """Without kernel modules; by Windows' driver where the way out was one of the driver's."""
    from gpusetup.findings.container.wsl import driver_of_windows

    shown = (fix.text, *typed(fix))
    if not any(re.search(OF_KERNEL_MODULES, text) for text in shown):
        return fix
    place = RECORDS[finding.id].place
    kept, text = (
        _lines_without(fix, OF_KERNEL_MODULES),
        clauses_without(fix.text, OF_KERNEL_MODULES),
    )
    if (place and place[0] in OF_THE_DRIVER) or not text or (fix.commands and not kept.commands):
        device = place is not None and place[0] is Layer.HARDWARE
        return driver_of_windows(context, fix.min_driver, RESTART_WINDOWS if device else "")
    return replace(kept, text=text)


def _lines_without(fix: Fix, foreign: str) -> Fix:
    """The fix without each block in which a line names what is foreign."""

    def is_whole(lines: tuple[str, ...]) -> bool:
        return not any(re.search(foreign, line) for line in lines)

    def kept(titled: tuple[Alternative, ...]) -> tuple[Alternative, ...]:
        return tuple(one for one in titled if is_whole((one.title, *one.commands)))

    return replace(
        fix,
        commands=fix.commands if is_whole(fix.commands) else (),
        alternatives=kept(fix.alternatives),
        looks=kept(fix.looks),
    )


BETWEEN_CLAUSES = r"(; |\. )(?![^()]*\))"


def clauses_without(text: str, foreign: str) -> str:
    """A text without the remarks and the clauses that name what is foreign.

    >>> clauses_without("Start it again (`sudo x`); see /etc/x. Else install y (or z)", OF_LINUX)
    'Start it again. Else install y (or z)'
    >>> clauses_without("See /etc/x; then install y", OF_LINUX)
    'Then install y'
    """
    bare = re.sub(r" \(([^()]*)\)", lambda m: "" if re.search(foreign, m[1]) else m[0], text)
    first, *rest = re.split(BETWEEN_CLAUSES, bare)
    pairs = (("", first), *zip(rest[::2], rest[1::2], strict=True))
    kept = [(mark, clause) for mark, clause in pairs if not re.search(foreign, clause)]
    whole = "".join(f"{mark}{clause}" for mark, clause in kept)
    if not kept or not kept[0][0]:
        return whole
    whole = whole.removeprefix(kept[0][0])
    return whole[:1].upper() + whole[1:]
