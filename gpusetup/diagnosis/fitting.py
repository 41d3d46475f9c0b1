"""Fits a fix to where it will be run: the program, the system, a rented machine, the shell.

The rules write fixes for torch on Linux with its own driver. A block of commands is shown
completely or not at all: without one of its commands, the others would do something else.
"""

from __future__ import annotations

import re

from gpusetup.causes.layers import OF_THE_DRIVER, Layer
from gpusetup.causes.record import RECORDS
from gpusetup.causes.windows import driver_of_windows
from gpusetup.evidence.context import RuleContext, events, in_container, is_report, on, package
from gpusetup.evidence.places import program_of
from gpusetup.fixes import needs, owners, paste
from gpusetup.fixes.owners import LENDERS, has_a_scheduler, lender_of
from gpusetup.model.finding import Alternative, Finding, Fix, Severity, command_lines, map_blocks
from gpusetup.model.frozen import replace
from gpusetup.model.shell import Lines, in_a_cell, lines


def with_fitting_fix(context: RuleContext, finding: Finding) -> Finding:
    """The finding with a fix for this program and this machine, as far as they are known: only
    those commands whose needs are all known to be met, in a form that can be pasted."""
    fix = finding.fix
    if fix is None:
        return finding
    # Only a text is about a particular program.
    if is_report(context):
        fix = _for_program(context, finding, fix)
    fix = _for_system(context, finding, fix)
    if finding.severity is Severity.ERROR and is_report(context):
        fix = _for_rented_machine(context, finding, fix)
    fix = needs.judge(context, fix)
    return replace(finding, fix=_for_pasting(context, finding, fix))


def blocks_without(fix: Fix, pattern: str) -> Fix:
    """The fix without each command block whose title or one of whose lines matches a pattern."""

    def unless_it_matches(block: Alternative) -> Alternative | None:
        lines = (block.title, *block.commands)
        return None if any(re.search(pattern, line) for line in lines) else block

    return map_blocks(fix, unless_it_matches)


# --- the program ----------------------------------------------------------------------------------

PINNING_ENGINES = ("vllm", "sglang", "lmdeploy")
"""Packages whose releases each require one torch release, because another breaks their kernels."""
WITHOUT_TORCH = (
    "Use the build of {0} for this GPU (ROCm, Vulkan or SYCL, if its project offers one; for "
    "ollama, set OLLAMA_VULKAN=1 for the server), or its CPU build. If ROCm lists no GPU at all, "
    "join the groups render and video"
)
"""The fix for a program without torch on a machine without an NVIDIA GPU."""
TORCH_COMMAND = "gpusetup install|torch|TORCH_CUDA_ARCH_LIST"
"""A pattern for commands that concern torch."""


def _for_program(context: RuleContext, finding: Finding, fix: Fix) -> Fix:
    """The program's own fix, if torch's fix does not help the program. Fixes for the driver, the
    container and the hardware are the same for all programs."""
    failing = (context.snapshot.failing.program or "").lower()
    for engine in PINNING_ENGINES:
        if engine == failing or package(context, engine):
            return _with_pinned_torch(context, engine, finding, fix)
    program, record = program_of(context), RECORDS[finding.id]
    if program is None or program.on_torch:
        return fix
    if record.layer is Layer.NO_GPU:
        return Fix(text=WITHOUT_TORCH.format(program.name))
    waits_for_torch = any(need.what == needs.TORCH for need in fix.needs)
    if not waits_for_torch and not re.search(TORCH_COMMAND, "\n".join(command_lines(fix))):
        return fix
    text = program.gpu_setup or f"Install a {program.name} build for this GPU and driver"
    # A newer driver helps every program.
    if record.lacks == "driver":
        return replace(fix, text=f"{fix.text}. {text}", commands=())
    return Fix(text=text)


def _with_pinned_torch(context: RuleContext, engine: str, finding: Finding, fix: Fix) -> Fix:
    """The fix for a program that pins its torch: in place of commands that install another torch,
    the program's image or its own release that fits."""

    def installs_torch(commands: Lines) -> bool:
        pattern = f"gpusetup install|torch==|{needs.INSTALLS_TORCH}"
        return any(re.search(pattern, line) for line in commands)

    others = tuple(block for block in fix.alternatives if not installs_torch(block.commands))
    if not installs_torch(fix.commands):
        return replace(fix, alternatives=others)
    if image := owners.owner_of_image(context):
        return Fix(text=image.sentence, alternatives=others)
    # The wheels on PyPI are for Linux and NVIDIA's GPUs. In a container, the image is replaced.
    is_foreign = finding.id in ("amd-gpu", "intel-gpu")
    has_wheels = not (in_container(context) or on(context, "windows") or is_foreign)
    return Fix(
        text=f"{engine} requires one exact torch version. Install the {engine} release that fits "
        "the GPU and the driver, together with its torch (in a container, use an image of that "
        "release). Do not change torch alone",
        commands=(paste.gpusetup(context, engine),) if has_wheels else (),
        alternatives=others,
    )


# --- the operating system -------------------------------------------------------------------------

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
IN_ITS_LINUX = "On the Linux system that this message comes from (WSL, a container or another "
"machine): "


def _for_system(context: RuleContext, finding: Finding, fix: Fix) -> Fix:
    """The fix with only what its operating system has. In WSL, which uses the Windows driver, a fix
    of the driver becomes Windows' own."""
    os = context.os
    if os.family in ("windows", "macos") and not os.wsl:
        where = IN_ITS_LINUX if re.search(LINUX_ONLY, fix.text) else ""
        return blocks_without(replace(fix, text=f"{where}{fix.text}"), LINUX_ONLY)
    if not os.wsl:
        return fix
    without_modules = blocks_without(fix, KERNEL_MODULES)
    names_modules = re.search(KERNEL_MODULES, "\n".join((fix.text, *command_lines(fix))))
    is_of_the_driver = RECORDS[finding.id].layer in OF_THE_DRIVER
    lost_all_commands = bool(fix.commands) and not without_modules.commands
    # A fix that only mentions a module, such as a reboot at its end, still helps without it.
    if not names_modules or not (is_of_the_driver or lost_all_commands):
        return without_modules
    return driver_of_windows(context, fix.min_driver)


# --- a machine that is shared or rented -----------------------------------------------------------

ON_A_CLUSTER = Fix(
    text="Request a GPU from the scheduler (Slurm: `#SBATCH --gres=gpu:1`), and run the command "
    "in that job, because a login node has no GPU. If the job does not list a GPU either, "
    "report its node to the cluster's administrators",
    commands=lines("srun --gres=gpu:1 nvidia-smi -L"),
)
BY_OTHERS = "Ask the cluster's administrators to do this: "


def _for_rented_machine(context: RuleContext, finding: Finding, fix: Fix) -> Fix:
    """The fix with only what can be done in the notebook or job that the text comes from."""
    if lender := lender_of(context):
        return _in_a_notebook(context, lender, finding, fix)
    scheduled = has_a_scheduler(context)
    # A person who already requested a GPU from the scheduler ("asked for") has another problem.
    requests = [event.values.get("gpus") for event in events(context, "slurm-job")]
    if RECORDS[finding.id].lacks == "gpu" and scheduled and "asked for" not in requests:
        return ON_A_CLUSTER
    is_pod = context.snapshot.container.kind == "kubernetes"
    is_shared = scheduled or events(context, "shared-node") or is_pod
    if not (fix.needs_root and is_shared):
        return fix
    of_others = replace(fix, text=f"{BY_OTHERS}{fix.text}")
    # These commands would stop the work of the other users.
    return blocks_without(of_others, "reboot|modprobe|--gpu-reset")


def _in_a_notebook(context: RuleContext, lender: str, finding: Finding, fix: Fix) -> Fix:
    """The fix in a service's notebook, whose driver the person cannot change."""
    record = RECORDS[finding.id]
    if record.lacks == "gpu":
        return Fix(text=f"{LENDERS[lender]} ({lender} gave this notebook no GPU)")
    is_of_the_driver = record.layer in OF_THE_DRIVER
    why = f"The driver belongs to {lender}, so you cannot update it there"
    if record.lacks == "driver" and context.driver.version and context.choice.build:
        fix = paste.install_torch(context, f"{why}. ")
    elif record.lacks == "driver" or is_of_the_driver:
        return Fix(text=f"{why}. Delete the runtime (and its files) and get another machine")
    if any(re.search(needs.CHANGES_PACKAGES, line) for line in fix.commands):
        # The session's Python has already loaded the old torch.
        return replace(fix, text=f"{fix.text}. Then restart the session")
    return fix


# --- the reader's shell ---------------------------------------------------------------------------

POSIX_ONLY = (
    r"(?:sudo|export|unset|rm|ls|df|free|ulimit|ldconfig|echo|ip|ss|curl|cd|source|modinfo) "
    r"|.*\| (?:grep|sudo|sed) |.*\"\$\("
)
"""A pattern for commands that do not work in PowerShell."""
ACTS_ON_THE_HOST = (
    r"(?:sudo )?(?:reboot|shutdown|modprobe|nvidia-modprobe|systemctl|dkms|akmods|mokutil|dracut"
    r"|update-initramfs|mkinitcpio|chmod|dmesg|nvidia-bug-report\.sh)\b"
    r"|(?:sudo )?nvidia-smi .*(?:--gpu-reset|-mig\b|\bmig\b|-c DEFAULT|-p[lm]\b)"
    r"|.*\| sudo tee /etc/(?:modprobe\.d|security)/"
)
"""The beginnings of commands for the kernel, driver or services, which a container lacks."""
ON_THE_HOST = "on the host, not in this container"


def _for_pasting(context: RuleContext, finding: Finding, fix: Fix) -> Fix:
    """The fix with the commands that its reader can paste, and how long their effect lasts."""
    is_windows = on(context, "windows")

    def unless_harmful(block: Alternative) -> Alternative | None:
        """The commands; None if the person's shell would read one of them wrongly."""
        for line in block.commands:
            if not line.isprintable() or (is_windows and re.match(POSIX_ONLY, line)):
                return None
        return block

    fix = map_blocks(fix, unless_harmful)
    if lender_of(context):
        return map_blocks(fix, _in_cells)
    # Taken from `fix.commands` before the commands for the host leave it.
    variables = [line for line in fix.commands if re.match(CHANGES_A_VARIABLE, line)]
    # Messages of a container engine come from its host, so the fix is for the host too.
    if in_container(context) and not finding.id.startswith("container-"):
        fix = _with_host_commands_apart(fix)
    if all(re.search(FOR_ONE_RUN, line) for line in variables):
        return fix
    where = PROFILES.get(context.os.family or "", "~/.bashrc")
    kept = f"to keep the change beyond this shell, make it in {where} and open a new shell"
    return replace(fix, alternatives=(Alternative(title=kept, commands=()), *fix.alternatives))


def _in_cells(block: Alternative) -> Alternative | None:
    """The commands as cells of a notebook; None if one of them would have no effect there."""
    cells = tuple(cell for line in block.commands if (cell := in_a_cell(line)))
    return replace(block, commands=cells) if len(cells) == len(block.commands) else None


def _with_host_commands_apart(fix: Fix) -> Fix:
    """The fix for a container, with commands for the host as alternatives that are titled so."""

    def acts_on_the_host(block: Alternative) -> bool:
        return any(re.match(ACTS_ON_THE_HOST, line) for line in block.commands)

    def titled(block: Alternative) -> Alternative:
        if "on the host" in block.title or not acts_on_the_host(block):
            return block
        return replace(block, title=f"on the host: {block.title}")

    of_host = Alternative(title=ON_THE_HOST, commands=fix.commands)
    fix = map_blocks(fix, titled)
    if not acts_on_the_host(of_host):
        return fix
    return replace(fix, commands=(), alternatives=(of_host, *fix.alternatives))


CHANGES_A_VARIABLE = r"export |unset |\$env:|Remove-Item Env:"
PROFILES = {
    "macos": "~/.zshrc",
    "windows": "the Windows settings (System, Environment Variables)",
}
"""Where a system keeps the variables of a shell; Linux keeps them in ~/.bashrc."""
FOR_ONE_RUN = (
    r"\b(?:CUDA_LAUNCH_BLOCKING|NCCL_DEBUG|TORCH_NCCL_TRACE_BUFFER_SIZE|TORCH_CUDA_ARCH_LIST"
    r"|MASTER_PORT|CC|CXX|TMPDIR|NVCC_PREPEND_FLAGS|CONDA_OVERRIDE_CUDA)\b"
)
"""Variables that are set for one run only, such as for finding an error or for one build."""
