"""The last look at a fix before it is shown: what can be pasted here, and what then holds.

A block is shown whole or not at all: without the one command whose value is no plausible one, the
others would do something else.
"""

from __future__ import annotations

import re

from gpusetup.catalog.jetpack import board_of
from gpusetup.diagnosis.lent import in_cells
from gpusetup.evidence.context import RuleContext, has_nvidia, in_container, is_report, on
from gpusetup.findings.lenders import lender_of
from gpusetup.fixes import paste
from gpusetup.fixes.disk_space import first_room
from gpusetup.fixes.other_makers import in_place_of_the_cpu
from gpusetup.model.finding import Alternative, Finding, Fix, Severity, typed
from gpusetup.model.frozen import replace
from gpusetup.model.shell import Line, is_speakable, sets_a_variable
from gpusetup.model.versions import cuda_of, parsed
from gpusetup.resolver.situation import first_drivers


def pasted(context: RuleContext, finding: Finding) -> Finding:
    """The finding with a fix that its reader can paste."""
    if finding.fix is None:
        return finding
    grave = finding.severity is Severity.ERROR
    fix = _without_nvidia(context, finding.fix)
    fix = first_room(context, fix) if grave else fix
    kept = replace(
        fix,
        commands=_block(context, fix.commands),
        alternatives=_blocks(context, fix.alternatives),
        looks=_blocks(context, unseen(context, finding, fix.looks)),
    )
    # What a container's engine says is read on its host, and mended there.
    lent = lender_of(context)
    inside = in_container(context) and not lent and not finding.id.startswith("container-")
    placed = in_cells(kept) if lent else _placed(kept) if inside else kept
    shown = replace(placed, text=f"{fix.text}{_least_driver(context, kept)}{_holds(context, kept)}")
    return finding if shown == finding.fix else replace(finding, fix=shown)


def _without_nvidia(context: RuleContext, fix: Fix) -> Fix:
    """The fix that installs torch's CPU build, with why, and with what serves the GPU that is
    there."""
    build = paste.chosen(context)
    if build is None or build.cuda or not is_report(context) or has_nvidia(context) is not False:
        return fix
    if not any(paste.is_the_install(context, line) for line in fix.commands):
        return fix
    instead = in_place_of_the_cpu(context)
    text = f"{fix.text}. No build for CUDA can serve here: there is no NVIDIA GPU"
    return replace(fix, text=text, alternatives=(*instead, *fix.alternatives))


INSTALLED = r"(?:torch \S+ from |--backend[ =]|\bwhl/|\+)(cu\d{2,3})\b"
"""Where a sentence or a command names the index that a torch comes from."""


def _least_driver(context: RuleContext, fix: Fix) -> str:
    """The driver that each torch of a fix needs, unless its text says so."""
    if board_of(context.snapshot):
        return ""
    lines = typed(fix)
    titles = (other.title for other in fix.alternatives)
    found = re.findall(INSTALLED, "\n".join((fix.text, *titles, *lines)))
    build = paste.chosen(context)
    if build is not None and any(paste.is_the_install(context, line) for line in lines):
        found.append(build.backend)
    family = "windows" if context.snapshot.os.wsl else context.snapshot.os.family or "linux"
    floors: dict[str, list[str]] = {}
    for backend in dict.fromkeys(found):
        floor = context.catalog.driver_floor(cuda_of(backend) or "", family)
        if floor and floor not in fix.text:
            floors.setdefault(floor, []).append(backend)
    needs = (f"{' and '.join(of)} {_needs(of)} {floor} or newer" for floor, of in floors.items())
    driver = context.snapshot.driver.version or "0"
    firsts = first_drivers(context.snapshot, context.catalog)
    newer = {
        first: name.replace("unknown", "this GPU")
        for name, first in firsts
        if floors and all(parsed(first) > parsed(one) for one in (*floors, driver))
    }
    itself = (f"{name} itself {first} or newer" for first, name in newer.items())
    said = ", ".join((*needs, *itself))
    return f". {said}{_driver_here(context)}" if said else ""


def _needs(backends: list[str]) -> str:
    return "needs NVIDIA driver" if len(backends) == 1 else "need NVIDIA driver"


def _driver_here(context: RuleContext) -> str:
    driver = context.snapshot.driver
    known = driver.version or (f"one for CUDA {driver.cuda}" if driver.cuda else None)
    return f" (found: {known})" if known else " (`nvidia-smi` shows yours)"


def _may_have_systemd(context: RuleContext) -> bool:
    return context.snapshot.os.family in (None, "linux")


SHOWN_BY = (
    (r"import torch; print\(torch\.__version__, torch\.version\.cuda\)", "torch"),
    (r"^nvidia-smi$", "nvidia-smi"),
    (r"^nvidia-smi -q\b", "nvidia-smi -q"),
    (r"dmesg \| grep -i nvrm$", "kernel log"),
)
"""A command that looks -> what of a text is its answer."""


def unseen(
    context: RuleContext, finding: Finding, looks: tuple[Alternative, ...]
) -> tuple[Alternative, ...]:
    """The looks whose answer a text does not show already."""
    if not is_report(context):
        return looks
    shown = _answers(context, finding)
    forms = "|".join(form for form, answer in SHOWN_BY if answer in shown)
    return tuple(one for one in looks if not forms or not _only_asks(forms, one.commands))


def _only_asks(forms: str, lines: tuple[Line, ...]) -> bool:
    return bool(lines) and all(re.search(forms, line) for line in lines)


def _answers(context: RuleContext, finding: Finding) -> set[str]:
    """Which programs' answers a text holds."""
    sources = {reading.source.partition(", line")[0] for reading in context.snapshot.readings}
    torch = context.snapshot.torch
    kernel = any("NVRM:" in evidence.text for evidence in finding.evidence)
    built = torch.version and (torch.cuda or "+" in torch.version)
    return (
        (sources & {"nvidia-smi", "nvidia-smi -q"})
        | ({"torch"} if built else set())
        | ({"kernel log"} if kernel else set())
    )


def _blocks(context: RuleContext, titled: tuple[Alternative, ...]) -> tuple[Alternative, ...]:
    return tuple(one for one in titled if not one.commands or _block(context, one.commands))


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
    others = tuple(map(_said_of_the_host, fix.alternatives))
    looks = tuple(map(_said_of_the_host, fix.looks))
    if not any(map(_acts_on_the_host, fix.commands)):
        return replace(fix, alternatives=others, looks=looks)
    way = Alternative(title=ON_THE_HOST, commands=fix.commands)
    return replace(fix, commands=(), alternatives=(way, *others), looks=looks)


def _said_of_the_host(other: Alternative) -> Alternative:
    there = any(map(_acts_on_the_host, other.commands)) and "on the host" not in other.title
    return replace(other, title=f"on the host: {other.title}") if there else other


def _acts_on_the_host(line: Line) -> bool:
    """
    >>> from gpusetup.model.shell import lines
    >>> list(map(_acts_on_the_host, lines("sudo reboot", "nvidia-smi -L", "sudo dmesg | grep X")))
    [True, False, True]
    """
    return bool(re.match(ACTS_ON_THE_HOST, line))


def _block(context: RuleContext, lines: tuple[Line, ...]) -> tuple[Line, ...]:
    windows = on(context, "windows")
    whole = all(is_speakable(line) and not (windows and _of_posix(line)) for line in lines)
    return lines if whole else ()


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


def _holds(context: RuleContext, fix: Fix) -> str:
    """How long a changed variable holds, and what makes it last."""
    changed = [
        one for one in fix.commands if sets_a_variable(one) and not re.search(FOR_ONE_RUN, one)
    ]
    if not changed or fix.needs_reboot:
        return ""
    if lender_of(context):
        return ". It holds until the session ends; set it before torch is imported"
    if context.snapshot.failing.program == "ollama" and _may_have_systemd(context):
        return (
            ". Where ollama runs as a service, no shell's variables reach it: write them as "
            '`Environment="NAME=value"` below `[Service]` by `sudo systemctl edit ollama`, then '
            "`sudo systemctl restart ollama`"
        )
    if on(context, "windows"):
        return (
            ". The variable changes in this PowerShell only; to keep the change, make it "
            "under System, Environment Variables, and open a new PowerShell"
        )
    profile = "~/.zshrc" if on(context, "macos") else "~/.bashrc"
    if is_report(context) and context.snapshot.os.family is None:
        profile = "~/.bashrc, or in Windows under System, Environment Variables"
    return (
        f". The variable changes in this shell only; to keep the change, make it in "
        f"{profile} (or where the variable is set) and open a new shell"
    )
