"""The last look at a fix before it is shown: what can be pasted here, and what then holds.

A block is shown whole or not at all: without the one command whose value is no plausible one, the
others would do something else.
"""

from __future__ import annotations

import re

from gpusetup.model import Alternative, Finding, Fix
from gpusetup.rules.case import Case, on
from gpusetup.shell import Line, is_speakable, sets_a_variable
from gpusetup.value import replace


def pasted(case: Case, finding: Finding) -> Finding:
    """The finding with a fix that its reader can paste."""
    fix = finding.fix
    if fix is None:
        return finding
    kept = replace(
        fix,
        commands=_block(case, fix.commands),
        alternatives=_blocks(case, fix.alternatives),
        looks=_blocks(case, fix.looks),
    )
    shown = replace(kept, text=f"{fix.text}{_holds(case, kept)}")
    return finding if shown == fix else replace(finding, fix=shown)


def _blocks(case: Case, titled: tuple[Alternative, ...]) -> tuple[Alternative, ...]:
    return tuple(one for one in titled if _block(case, one.commands))


def _block(case: Case, lines: tuple[Line, ...]) -> tuple[Line, ...]:
    windows = on(case, "windows")
    whole = all(is_speakable(line) and not (windows and _of_posix(line)) for line in lines)
    return lines if whole else ()


OF_POSIX = (
    r"(?:sudo|export|unset|rm|ls|df|free|ulimit|ldconfig|echo|ip|ss|curl|cd|source|modinfo) "
    r"|.*\| (?:grep|sudo|sed) "
)
"""How a line begins, or goes on, that no PowerShell takes."""


def _of_posix(line: Line) -> bool:
    """
    >>> from gpusetup.shell import lines
    >>> [_of_posix(line) for line in lines("sudo reboot", "nvidia-smi -q | grep MIG", "wsl -l")]
    [True, True, False]
    """
    return bool(re.match(OF_POSIX, line))


FOR_ONE_RUN = (
    r"\b(?:CUDA_LAUNCH_BLOCKING|NCCL_DEBUG|TORCH_NCCL_TRACE_BUFFER_SIZE|TORCH_CUDA_ARCH_LIST"
    r"|MASTER_PORT|CC|NVCC_PREPEND_FLAGS|CONDA_OVERRIDE_CUDA)\b"
)
"""Variables that nobody keeps."""


def _holds(case: Case, fix: Fix) -> str:
    """How long a changed variable holds, and what makes it last."""
    changed = [
        one for one in fix.commands if sets_a_variable(one) and not re.search(FOR_ONE_RUN, one)
    ]
    if not changed or fix.needs_reboot:
        return ""
    if on(case, "windows"):
        return (
            ". What is set or unset holds in this PowerShell; for good, change it under "
            "System, Environment Variables, and open a new PowerShell"
        )
    profile = "~/.zshrc" if on(case, "macos") else "~/.bashrc"
    return (
        f". What is set or unset holds in this shell; for good, change it in "
        f"{profile} (or where it is set) and open a new shell"
    )
