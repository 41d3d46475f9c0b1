"""Adapts a fix to its platform: Windows, macOS, WSL, a notebook, or a cluster's job.

No command or sentence of an answer refers to something that the system does not have.

The rules write fixes for Linux with its own driver. On Windows and macOS, commands and clauses
about parts of Linux are removed. In WSL, which uses the Windows driver, those about kernel modules
and device nodes are removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gpusetup.accelerators.makers import maker_of
from gpusetup.causes.layers import OF_THE_DRIVER, Layer
from gpusetup.causes.record import RECORDS
from gpusetup.evidence.context import events, is_report
from gpusetup.evidence.places import IN_KUBERNETES
from gpusetup.fixes import paste
from gpusetup.fixes.clauses import clauses_without
from gpusetup.fixes.lenders import Lender, has_a_scheduler, lender_of
from gpusetup.model.finding import Alternative, Finding, Fix, Severity, command_lines, map_blocks
from gpusetup.model.frozen import replace
from gpusetup.model.shell import Line, lines

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext


LINUX_ONLY = (
    r"\b(?:sudo|ldconfig|ulimit|rmmod|systemctl|dmesg|lspci|LD_PRELOAD|(?:nvidia-)?modprobe)\b"
    r"|(?:apt|apt-get|dnf|pacman) install|(?<!\w)/(?:dev|etc|proc)/|libcuda\.so|^chmod "
)
"""A pattern for parts of Linux that neither Windows nor macOS has."""
KERNEL_MODULES = (
    r"modprobe|\brmmod\b|\b(?<!no-)dkms\b|akmod|mokutil|MOK\b|\b[Rr]eboot|/dev/nvidia|nouveau|NVreg_"
    r"|kernel modules?|linux-headers|kernel-devel|nvrm|(?:NVIDIA|nvidia)-(?:gridd|fabricmanager"
    r"|persistenced|suspend|powerd|bug-report)|install .*(?:nvidia-(?:driver|utils|compute|dkms"
    r"|open)|libnvidia|cuda-drivers)|--gpu-reset|envycontrol|system76-power|bbswitch|prime-select"
    r"|(?<!wsl )(?<!wsl\.exe )-mig\b|dmesg \| grep -iE? '?(?:xid|aer)|restart a? ?Linux"
)
"""A pattern for what does not exist in WSL, because the driver, its modules and its services belong
to Windows."""
LIBRARY_PATHS = {"windows": "PATH", "macos": "DYLD_LIBRARY_PATH"}
"""The variable with the folders of libraries, on systems where it is not LD_LIBRARY_PATH."""
IN_ITS_LINUX = "In the Linux system of this message (WSL, a container, another machine): "
RESTART_WINDOWS = "Restart Windows, which controls the GPU. If the error comes back: "


def fit_to_system(context: RuleContext, finding: Finding) -> Finding:
    """The finding with only what can be done on its operating system."""
    os, fix = context.os, finding.fix
    if os.wsl:
        if fix and names_any(KERNEL_MODULES, (fix.text, *command_lines(fix))):
            return replace(finding, fix=_in_wsl(context, finding, fix))
        return finding
    if os.family not in LIBRARY_PATHS:
        return finding
    variable = LIBRARY_PATHS[os.family]
    title, detail, text = (
        re.sub(r"\bLD_LIBRARY_PATH", variable, sentence)
        for sentence in (finding.title, finding.detail, fix.text if fix else "")
    )
    if fix:
        text = clauses_without(text, LINUX_ONLY) or f"{IN_ITS_LINUX}{text}"
        fix = replace(lines_without(fix, rf"{LINUX_ONLY}|\bLD_LIBRARY_PATH"), text=text)
    return replace(finding, title=title, detail=detail, fix=fix)


def _in_wsl(context: RuleContext, finding: Finding, fix: Fix) -> Fix:
    """The fix for WSL: without kernel modules, and with the Windows driver in place of a Linux
    driver."""
    from gpusetup.causes.windows import driver_of_windows

    place = RECORDS[finding.id].place
    layer = place[0] if place else None
    text = clauses_without(fix.text, KERNEL_MODULES)
    without_modules = lines_without(fix, KERNEL_MODULES)
    lost_all_commands = bool(fix.commands) and not without_modules.commands
    if layer not in OF_THE_DRIVER and text and not lost_all_commands:
        return replace(without_modules, text=text)
    before = RESTART_WINDOWS if layer is Layer.HARDWARE else ""
    return driver_of_windows(context, fix.min_driver, before)


def lines_without(fix: Fix, foreign: str) -> Fix:
    """The fix without each command block in which a line matches a pattern."""

    def unless_foreign(block: Alternative) -> Alternative | None:
        """The commands; None if one of them or their title matches the pattern."""
        if names_any(foreign, (block.title, *block.commands)):
            return None
        return block

    return map_blocks(fix, unless_foreign)


def names_any(pattern: str, texts: Iterable[str]) -> bool:
    """Whether one of the texts matches the pattern."""
    return any(re.search(pattern, text) for text in texts)


def fit_to_rocm(context: RuleContext, finding: Finding) -> Finding:
    """The finding with the variable by which HIP waits for kernels, if torch is a ROCm build."""
    fix = finding.fix
    is_rocm = maker_of(context.torch.backend) == "amd" or events(context, "hip-failed")
    if fix is None or not is_rocm or not is_report(context):
        return finding
    text = fix.text.replace(*BLOCKING)

    def with_rocms_variable(block: Alternative) -> Alternative:
        """The commands with the variable that HIP reads."""
        commands: list[Line] = []
        for command in block.commands:
            is_of_cuda = BLOCKING[0] in command
            commands += WAIT_FOR_KERNELS if is_of_cuda else (command,)
        return replace(block, commands=tuple(commands))

    return replace(finding, fix=replace(map_blocks(fix, with_rocms_variable), text=text))


BLOCKING = ("CUDA_LAUNCH_BLOCKING=1", "AMD_SERIALIZE_KERNEL=3")
"""torch's own message names the second on ROCm, where HIP does not read the first."""
WAIT_FOR_KERNELS = lines("export AMD_SERIALIZE_KERNEL=3")


def fit_to_script_variables(context: RuleContext, finding: Finding) -> Finding:
    """The finding, with a note if the program itself sets a variable of AMD's, Intel's or Apple's
    runtime, because that may be too late.
    """
    variables = [event.values["variable"] for event in events(context, "variable-in-script")]
    if not variables or finding.fix is None or finding.severity is not Severity.ERROR:
        return finding
    name = variables[0]
    # torch's MPS allocator and the HIP and Level Zero runtimes read their variables at their start.
    note = (
        f". {name} has no effect if the program sets it after torch was imported or used the GPU: "
        f"set it in the shell that starts the program, for example `{name}=VALUE python SCRIPT`"
    )
    return replace(finding, fix=replace(finding.fix, text=f"{finding.fix.text}{note}"))


INSTALL_COMMANDS = ("pip install ", "pip uninstall ", "gpusetup install")
ON_A_CLUSTER = Fix(
    text="Request a GPU from the scheduler (Slurm: `#SBATCH --gres=gpu:1`), and run the command "
    "in such a job: a login node has no GPU. If the job does not list a GPU either, report its "
    "node to the cluster's administrators",
    commands=lines("srun --gres=gpu:1 nvidia-smi -L"),
)


BY_OTHERS = "Ask the cluster's administrators to do this: "


def fit_to_lent_machine(context: RuleContext, finding: Finding) -> Finding:
    """The finding with only what can be done in the notebook or job that the text comes from."""
    fix = finding.fix
    if fix is None or finding.severity is not Severity.ERROR or not is_report(context):
        return finding
    if lender := lender_of(context):
        return replace(finding, fix=_way_at_lender(context, lender, finding, fix))
    scheduled = has_a_scheduler(context)
    # A person who already requested a GPU from the scheduler has another problem.
    if RECORDS[finding.id].lacks == "gpu" and scheduled and not _asked_for_a_gpu(context):
        return replace(finding, fix=ON_A_CLUSTER)
    shared = scheduled or events(context, "shared-node") or IN_KUBERNETES(context)
    if not (fix.needs_root and shared) or fix.text.startswith(BY_OTHERS):
        return finding
    text = f"{BY_OTHERS}{fix.text}"
    return replace(
        finding, fix=lines_without(replace(fix, text=text), "reboot|modprobe|--gpu-reset")
    )


def _asked_for_a_gpu(context: RuleContext) -> bool:
    """Whether a text shows that its job asked the scheduler for a GPU."""
    requests = [event.values.get("gpus") for event in events(context, "slurm-job")]
    return "asked for" in requests


def _way_at_lender(context: RuleContext, lender: Lender, finding: Finding, fix: Fix) -> Fix:
    """The fix in a service's notebook, whose driver the person cannot change."""
    record = RECORDS[finding.id]
    if record.lacks == "gpu":
        return Fix(text=lender.gives_a_gpu)
    why = f"The driver belongs to {lender.name}, so you cannot update it there"
    driver_is_too_old = record.lacks == "driver"
    if driver_is_too_old and context.driver.version and context.choice.build:
        fix = paste.install_torch(context, f"{why}. ")
    elif driver_is_too_old or (record.place and record.place[0] in OF_THE_DRIVER):
        return Fix(
            text=f"{why}: use another machine ({lender.anew}; files on this one are lost), and do "
            "not install driver packages there"
        )
    for line in fix.commands:
        if any(command in line for command in INSTALL_COMMANDS):
            # The session's Python has already loaded the old torch.
            return replace(fix, text=f"{fix.text}. Then restart the session ({lender.restart})")
    return fix
