"""The last step before a fix is shown: keep commands that can be pasted here, and add how long
their effect lasts.

A block of commands is shown completely or not at all: if one command were left out because of an
implausible value, the others would do something else.
"""

from __future__ import annotations

import re

from gpusetup.catalog.jetpack import board_of
from gpusetup.choose.host import driver_family, gpus_to_serve
from gpusetup.evidence.context import (
    RuleContext,
    driver_answers,
    gpus,
    in_container,
    is_report,
    on,
)
from gpusetup.fixes import paste
from gpusetup.fixes.owners import lender_of
from gpusetup.model.finding import Alternative, Finding, Fix, command_lines, map_blocks
from gpusetup.model.frozen import replace
from gpusetup.model.shell import (
    Line,
    in_a_cell,
    is_speakable,
    variable_changed,
    with_words,
)
from gpusetup.model.versions import cuda_of, parsed


def fit_for_pasting(context: RuleContext, finding: Finding) -> Finding:
    """The finding with a fix whose commands its reader can paste."""
    fix = finding.fix
    if fix is None:
        return finding
    windows = on(context, "windows")

    def unless_harmful(block: Alternative) -> Alternative | None:
        """The commands; None if the person's shell would read one of them wrongly."""
        is_wrong = (not is_speakable(o) or (windows and _is_posix_only(o)) for o in block.commands)
        return None if any(is_wrong) else block

    shown = map_blocks(fix, unless_harmful)
    remarks = (_least_driver, _gpus_left_out, _until_the_session_ends)
    text = shown.text + "".join(remark(context, shown) for remark in remarks)
    # Messages of a container engine come from its host, so the fix is for the host too.
    if lender_of(context):
        shown = map_blocks(shown, _in_cells)
    elif in_container(context) and not finding.id.startswith("container-"):
        shown = _with_host_commands_apart(shown)
    others = (*_for_every_shell(context, shown), *shown.alternatives)
    return replace(finding, fix=replace(shown, text=text, alternatives=others))


def _in_cells(block: Alternative) -> Alternative:
    """The fix for a notebook, where a cell cannot answer the question of `gpusetup install`."""
    answered = (
        with_words(line, ("--yes",), "linux") if line.startswith("gpusetup install") else line
        for line in block.commands
    )
    return replace(block, commands=tuple(map(in_a_cell, answered)))


INSTALLED = r"(?:torch \S+ from |--backend[ =]|\bwhl/|\+)(cu\d{2,3})\b"
"""A pattern for the place where a sentence or a command names the index of a torch."""


def _least_driver(context: RuleContext, fix: Fix) -> str:
    """The driver that each torch of the fix needs, to be added to its text; "" if the text already
    names it."""
    machine, lines = context.snapshot, command_lines(fix)
    if board_of(machine):
        return ""
    titles = (other.title for other in fix.alternatives)
    backends = re.findall(INSTALLED, "\n".join((fix.text, *titles, *lines)))
    build = paste.chosen_build(context)
    if build is not None and any(map(paste.INSTALL_LINE.search, lines)):
        backends.append(build.backend)
    family = driver_family(machine)
    # The sentence names the oldest driver that is enough, so that driver must also support the GPUs
    # that the installed driver already lists.
    present = gpus_to_serve(machine, context.catalog)
    first_drivers = [context.catalog.first_driver(gpu, family) for gpu in present]
    needs = []
    for backend in dict.fromkeys(backends):
        floor = context.catalog.driver_floor(cuda_of(backend) or "", family)
        driver = floor and max((floor, *filter(None, first_drivers)), key=parsed)
        if driver and driver not in fix.text:
            needs.append(f"{backend} needs NVIDIA driver {driver} or newer")
    here = machine.driver.version
    known = f"found: {here}" if here else "`nvidia-smi` shows yours"
    return f". {', '.join(needs)} ({known})" if needs else ""


GENERATIONS = (("sm_120", "RTX 50", "cu128 or newer"), ("sm_61", "GTX 10", "cu126"))
"""A kernel, the cards that need it, and where else it is (the catalog's rows of 2025 and 2026)."""


def _gpus_left_out(context: RuleContext, fix: Fix) -> str:
    """Adds which GPUs the fix's index does not support, if the text does not name the GPU."""
    unknown = not any(gpu.compute_capability for gpu in gpus(context))
    shown = re.findall(INSTALLED, "\n".join((fix.text, *command_lines(fix))))
    if not (is_report(context) and unknown and shown) or board_of(context.snapshot):
        return ""
    backend = shown[0]
    kernels = {
        kernel
        for row in context.catalog.builds
        if row.backend == backend and row.channel == "pytorch"
        for kernel in row.kernels
    }
    lacking = [
        f"{cards} cards need {elsewhere}"
        for kernel, cards, elsewhere in GENERATIONS
        if kernels and kernel not in kernels
    ]
    # Nothing shows an NVIDIA GPU either.
    if not gpus(context) and not driver_answers(context):
        lacking.append("a GPU of AMD or Intel needs a build for ROCm or XPU")
    return f". The text does not name the GPU, but {' and '.join(lacking)}" if lacking else ""


ON_THE_HOST = "on the host, not in this container"
ACTS_ON_THE_HOST = (
    r"(?:sudo )?(?:reboot|shutdown|modprobe|nvidia-modprobe|systemctl|dkms|akmods|mokutil|dracut"
    r"|update-initramfs|mkinitcpio|chmod|dmesg|nvidia-bug-report\.sh)\b"
    r"|(?:sudo )?nvidia-smi .*(?:--gpu-reset|-mig\b|\bmig\b|-c DEFAULT|-p[lm]\b)"
    r"|.*\| sudo tee /etc/(?:modprobe\.d|security)/"
)
"""The beginnings of commands that change the kernel, the driver or services, which a container does
not have."""


def _with_host_commands_apart(fix: Fix) -> Fix:
    """The fix for a container: commands for the host are marked as such, and are alternatives
    only."""

    def titled(block: Alternative) -> Alternative:
        """The commands; under a title that says so if they act on the host."""
        if "on the host" in block.title or not any(map(_acts_on_the_host, block.commands)):
            return block
        return replace(block, title=f"on the host: {block.title}")

    shown = map_blocks(fix, titled)
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


POSIX_ONLY = (
    r"(?:sudo|export|unset|rm|ls|df|free|ulimit|ldconfig|echo|ip|ss|curl|cd|source|modinfo) "
    r"|.*\| (?:grep|sudo|sed) |.*\"\$\("
)
"""A pattern for commands that do not work in PowerShell."""


def _is_posix_only(line: Line) -> bool:
    """
    >>> from gpusetup.model.shell import lines
    >>> list(map(_is_posix_only, lines("sudo reboot", "nvidia-smi -q | grep MIG", "wsl -l")))
    [True, True, False]
    """
    return bool(re.match(POSIX_ONLY, line))


FOR_ONE_RUN = (
    r"\b(?:CUDA_LAUNCH_BLOCKING|NCCL_DEBUG|TORCH_NCCL_TRACE_BUFFER_SIZE|TORCH_CUDA_ARCH_LIST"
    r"|MASTER_PORT|CC|CXX|TMPDIR|NVCC_PREPEND_FLAGS|CONDA_OVERRIDE_CUDA)\b"
)
"""Variables that nobody keeps."""
IN_WINDOWS = "the Windows settings (System, Environment Variables)"
PROFILES = {"macos": "~/.zshrc", "linux": "~/.bashrc", None: "~/.bashrc"}
"""A system -> the file with the settings of its usual shell."""


def _variables_to_keep(fix: Fix) -> dict[str, bool]:
    """The environment variables that a fix changes for longer than one run; True if the fix
    removes the variable."""
    kept = (line for line in fix.commands if not re.search(FOR_ONE_RUN, line))
    return dict(filter(None, map(variable_changed, kept)))


def _until_the_session_ends(context: RuleContext, fix: Fix) -> str:
    """When to set a variable on a machine that is lent for a session, as a sentence."""
    names = list(_variables_to_keep(fix))
    if not names or fix.needs_reboot or not lender_of(context):
        return ""
    verb, objects = ("last", "them") if len(names) > 1 else ("lasts", "it")
    return (
        f". {' and '.join(names)} {verb} until the session ends; set {objects} before you import "
        "torch"
    )


def _for_every_shell(context: RuleContext, fix: Fix) -> tuple[Alternative, ...]:
    """How to change the variables of a fix permanently; a command changes them in one shell."""
    variables = _variables_to_keep(fix)
    if not variables or fix.needs_reboot or lender_of(context):
        return ()
    family, several, removes = context.os.family, len(variables) > 1, all(variables.values())
    profile = PROFILES.get(family, PROFILES["linux"])
    copied = f"copy the `export` {'lines' if several else 'line'} into {profile}"
    if family == "windows":
        where = f"use {IN_WINDOWS}"
    elif removes:
        # A variable that must be removed was usually set in such a file.
        lines = "the lines that set them" if several else "the line that sets it"
        where = f"delete {lines}, for example in {profile}"
    else:
        where = copied if family else f"{copied} (on Windows, use {IN_WINDOWS})"
    title = (
        f"to {'remove' if removes else 'set'} {' and '.join(variables)} permanently, {where}, then "
        "open a new shell. A command changes variables only in the shell in which you run it"
    )
    return (Alternative(title=title, commands=()),)
