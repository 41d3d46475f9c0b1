"""Adapts a fix to its platform: Windows, macOS, WSL, a notebook, or a cluster's job.

The rules write fixes for Linux with its own driver. A block of commands that the system does not
have is left out. In WSL, which uses the Windows driver, a fix of the driver becomes Windows' own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpusetup.accelerators.makers import maker_of
from gpusetup.causes.layers import OF_THE_DRIVER, Layer
from gpusetup.causes.record import RECORDS
from gpusetup.evidence.context import events, is_report
from gpusetup.evidence.places import IN_KUBERNETES
from gpusetup.fixes import paste
from gpusetup.fixes.owners import Lender, has_a_scheduler, lender_of
from gpusetup.model.finding import Alternative, Finding, Fix, Severity, command_lines, map_blocks
from gpusetup.model.frozen import replace
from gpusetup.model.shell import lines

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext


LINUX_ONLY = (
    r"\b(?:sudo|ldconfig|ulimit|rmmod|systemctl|dmesg|lspci|LD_PRELOAD|(?:nvidia-)?modprobe)\b"
    r"|(?:apt|apt-get|dnf|pacman) install|(?<!\w)/(?:dev|etc|proc)/|libcuda\.so|^chmod "
    r"|\bLD_LIBRARY_PATH"
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
IN_ITS_LINUX = "In the Linux system of this message (WSL, a container, another machine): "
RESTART_WINDOWS = "Restart Windows, which controls the GPU. If the error comes back: "


def fit_to_system(context: RuleContext, finding: Finding) -> Finding:
    """The finding with only the commands that its operating system has."""
    os, fix = context.os, finding.fix
    if fix is None:
        return finding
    if maker_of(context.torch.backend) == "amd":
        fix = _for_rocm(fix)
    if not os.wsl:
        if os.family in ("windows", "macos"):
            where = IN_ITS_LINUX if re.search(LINUX_ONLY, fix.text) else ""
            fix = lines_without(replace(fix, text=f"{where}{fix.text}"), LINUX_ONLY)
        return replace(finding, fix=fix)
    without_modules = lines_without(fix, KERNEL_MODULES)
    place = RECORDS[finding.id].place
    names_modules = re.search(KERNEL_MODULES, "\n".join((fix.text, *command_lines(fix))))
    is_of_the_driver = place is not None and place[0] in OF_THE_DRIVER
    lost_all_commands = bool(fix.commands) and not without_modules.commands
    if not names_modules or not (is_of_the_driver or lost_all_commands):
        return replace(finding, fix=without_modules)
    from gpusetup.causes.windows import driver_of_windows

    before = RESTART_WINDOWS if place and place[0] is Layer.HARDWARE else ""
    return replace(finding, fix=driver_of_windows(context, fix.min_driver, before))


BLOCKING = ("CUDA_LAUNCH_BLOCKING=1", "AMD_SERIALIZE_KERNEL=3")
"""torch's own message names the second on ROCm, where HIP does not read the first."""


def _for_rocm(fix: Fix) -> Fix:
    """The fix with the variable by which HIP waits for kernels."""
    renamed = lines("export AMD_SERIALIZE_KERNEL=3")

    def with_hips(block: Alternative) -> Alternative:
        blocks = any(BLOCKING[0] in line for line in block.commands)
        return replace(block, commands=renamed) if blocks else block

    return replace(map_blocks(fix, with_hips), text=fix.text.replace(*BLOCKING))


def lines_without(fix: Fix, foreign: str) -> Fix:
    """The fix without each command block whose title or one of whose lines matches a pattern."""

    def unless_foreign(block: Alternative) -> Alternative | None:
        return None if any(re.search(foreign, t) for t in (block.title, *block.commands)) else block

    return map_blocks(fix, unless_foreign)


INSTALL_COMMANDS = ("pip install ", "pip uninstall ", "gpusetup install")
ON_A_CLUSTER = Fix(
    text="Request a GPU from the scheduler (Slurm: `#SBATCH --gres=gpu:1`), and run the command "
    "in that job, because a login node has no GPU. If the job does not list a GPU either, "
    "report its node to the cluster's administrators",
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
    requests = [event.values.get("gpus") for event in events(context, "slurm-job")]
    if RECORDS[finding.id].lacks == "gpu" and scheduled and "asked for" not in requests:
        return replace(finding, fix=ON_A_CLUSTER)
    shared = scheduled or events(context, "shared-node") or IN_KUBERNETES(context)
    if not (fix.needs_root and shared) or fix.text.startswith(BY_OTHERS):
        return finding
    of_others = replace(fix, text=f"{BY_OTHERS}{fix.text}")
    return replace(finding, fix=lines_without(of_others, "reboot|modprobe|--gpu-reset"))


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
