"""The last look at a fix before it is shown: what can be pasted here, and what then holds.

A block is shown whole or not at all: without the one command whose value is no plausible one, the
others would do something else.
"""

from __future__ import annotations

import re

from gpusetup.catalog.jetpack import board_of
from gpusetup.causes.lenders import lender_of
from gpusetup.evidence.context import RuleContext, in_container, on
from gpusetup.fixes import paste
from gpusetup.model.finding import Alternative, Finding, Fix, each_block, typed
from gpusetup.model.frozen import replace
from gpusetup.model.shell import (
    Line,
    in_a_cell,
    is_speakable,
    more,
    sets_a_variable,
)
from gpusetup.model.versions import cuda_of, parsed
from gpusetup.resolver.situation import driver_family, first_drivers


def pasted(context: RuleContext, finding: Finding) -> Finding:
    """The finding with a fix that its reader can paste."""
    fix = finding.fix
    if fix is None:
        return finding
    windows = on(context, "windows")

    def whole(block: Alternative) -> Alternative | None:
        bad = (
            one for one in block.commands if not is_speakable(one) or (windows and _of_posix(one))
        )
        return None if any(bad) else block

    kept = each_block(fix, whole)
    said = f"{kept.text}{_least_driver(context, kept)}{_holds(context, kept)}"
    # What a container's engine says is read on its host, and mended there.
    if lender_of(context):
        kept = each_block(kept, _in_cells)
    elif in_container(context) and not finding.id.startswith("container-"):
        kept = _placed(kept)
    return replace(finding, fix=replace(kept, text=said))


def _in_cells(block: Alternative) -> Alternative:
    """A notebook's cell has nobody who answers the question of `gpusetup install`."""
    return replace(
        block,
        commands=tuple(
            in_a_cell(
                more(line, ("--yes",), "linux") if line.startswith("gpusetup install") else line
            )
            for line in block.commands
        ),
    )


INSTALLED = r"(?:torch \S+ from |--backend[ =]|\bwhl/|\+)(cu\d{2,3})\b"
"""Where a sentence or a command names the index that a torch comes from."""


def _least_driver(context: RuleContext, fix: Fix) -> str:
    """The driver that each torch of a fix needs, unless its text says so."""
    machine, lines = context.snapshot, typed(fix)
    if board_of(machine):
        return ""
    titles = (other.title for other in fix.alternatives)
    found = re.findall(INSTALLED, "\n".join((fix.text, *titles, *lines)))
    build = paste.chosen(context)
    if build is not None and any(map(paste.INSTALL.search, lines)):
        found.append(build.backend)
    family, floor = driver_family(machine), context.catalog.driver_floor
    floors = {f"{one} needs NVIDIA driver": floor(cuda_of(one) or "", family) for one in found}
    firsts = [first for _, first in first_drivers(machine, context.catalog)]
    least = {what: max((floor, *firsts), key=parsed) for what, floor in floors.items() if floor}
    lacking = {what: floor for what, floor in least.items() if floor not in fix.text}
    here = machine.driver.version
    needs = ", ".join(f"{what} {floor} or newer" for what, floor in lacking.items())
    known = f"found: {here}" if here else "`nvidia-smi` shows yours"
    return f". {needs} ({known})" if needs else ""


ON_THE_HOST = "on the host, not in this container"
ACTS_ON_THE_HOST = (
    r"(?:sudo )?(?:reboot|shutdown|modprobe|nvidia-modprobe|systemctl|dkms|akmods|mokutil|dracut"
    r"|update-initramfs|mkinitcpio|chmod|dmesg|nvidia-bug-report\.sh)\b"
    r"|(?:sudo )?nvidia-smi .*(?:--gpu-reset|-mig\b|\bmig\b|-c DEFAULT|-p[lm]\b)"
    r"|.*\| sudo tee /etc/(?:modprobe\.d|security)/"
)
"""How a line begins that acts on the kernel, the driver or the services: a container has none."""


def _placed(fix: Fix) -> Fix:
    """The fix of a container, where what acts on its host says so and is no way in here."""

    def titled(block: Alternative) -> Alternative:
        if "on the host" in block.title or not any(map(_acts_on_the_host, block.commands)):
            return block
        return replace(block, title=f"on the host: {block.title}")

    shown = each_block(fix, titled)
    if not any(map(_acts_on_the_host, fix.commands)):
        return shown
    way = Alternative(title=ON_THE_HOST, commands=fix.commands)
    return replace(shown, commands=(), alternatives=(way, *shown.alternatives))


def _acts_on_the_host(line: Line) -> bool:
    """
    >>> from gpusetup.model.shell import lines
    >>> list(map(_acts_on_the_host, lines("sudo reboot", "nvidia-smi -L", "sudo dmesg | grep X")))
    [True, False, True]
    """
    return bool(re.match(ACTS_ON_THE_HOST, line))


OF_POSIX = (
    r"(?:sudo|export|unset|rm|ls|df|free|ulimit|ldconfig|echo|ip|ss|curl|cd|source|modinfo) "
    r"|.*\| (?:grep|sudo|sed) |.*\"\$\("
)
"""How a line begins, or goes on, that no PowerShell takes."""


def _of_posix(line: Line) -> bool:
    """
    >>> from gpusetup.model.shell import lines
    >>> [_of_posix(line) for line in lines("sudo reboot", "nvidia-smi -q | grep MIG", "wsl -l")]
    [True, True, False]
    """
    return bool(re.match(OF_POSIX, line))


FOR_ONE_RUN = (
    r"\b(?:CUDA_LAUNCH_BLOCKING|NCCL_DEBUG|TORCH_NCCL_TRACE_BUFFER_SIZE|TORCH_CUDA_ARCH_LIST"
    r"|MASTER_PORT|CC|TMPDIR|NVCC_PREPEND_FLAGS|CONDA_OVERRIDE_CUDA)\b"
)
"""Variables that nobody keeps."""
IN_WINDOWS = "under System, Environment Variables"
PROFILES = {
    "windows": IN_WINDOWS,
    "macos": "in ~/.zshrc (or where the variable is set)",
    "linux": "in ~/.bashrc (or where the variable is set)",
    None: f"in ~/.bashrc; in Windows, which lacks `export` and `unset`, {IN_WINDOWS}",
}


def _holds(context: RuleContext, fix: Fix) -> str:
    """How long a changed variable holds, and what makes it last."""
    lasting = (one for one in fix.commands if not re.search(FOR_ONE_RUN, one))
    if fix.needs_reboot or not any(map(sets_a_variable, lasting)):
        return ""
    if lender_of(context):
        return ". It holds until the session ends; set it before torch is imported"
    where = PROFILES.get(context.os.family, PROFILES["linux"])
    return f". (This shell only. To keep it, set it {where} and open a new shell.)"
