"""The one command whose answer decides what a text leaves open, as the text's own place has it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpusetup.diagnosis.failing import program_of
from gpusetup.evidence.context import (
    driver_answers,
    events,
    has_nvidia,
    in_container,
    is_report,
    on,
)
from gpusetup.evidence.plausible import is_an_identifier
from gpusetup.findings.alike import (
    BESIDE_TORCH,
    COLLECT_ENV,
    HOST_MEMORY,
    KERNEL_LOG,
    LIBCUDA_IN_IT,
    LIST_GPUS,
    NCCL_LOG,
    NODES,
    ON_THE_BUS,
    ON_THE_HOST,
    TORCHS_KERNELS,
)
from gpusetup.findings.lenders import lender_of
from gpusetup.findings.libraries.distributions import distribution_of
from gpusetup.findings.programs import is_beside_torch
from gpusetup.fixes import paste
from gpusetup.messages.programs import BY_NAME
from gpusetup.model.frozen import replace
from gpusetup.model.shell import in_a_cell, settings_in_powershell

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext
    from gpusetup.findings.record import Alike
    from gpusetup.messages.program import Program
    from gpusetup.model.finding import Finding

ON_WINDOWS = {
    ON_THE_BUS: "Get-CimInstance Win32_VideoController | Format-List Name, DriverVersion",
    NODES: LIST_GPUS,
    KERNEL_LOG: "Get-WinEvent -FilterHashtable @{LogName='System'; ProviderName='nvlddmkm'}",
    HOST_MEMORY: "Get-WinEvent -FilterHashtable @{LogName='System'; Id=2004}",
    "gcc --version": "where.exe cl gcc clang",
    LIBCUDA_IN_IT: "nvidia-smi  # in the container",
}
"""What a reading is called in PowerShell; 2004: Windows' word that virtual memory ran out."""
ON_MACS: dict[str, str] = {ON_THE_BUS: "system_profiler SPDisplaysDataType"}
IN_WSL = {
    ON_THE_BUS: LIST_GPUS,
    NODES: "ls -l /dev/dxg",
    KERNEL_LOG: "sudo dmesg | grep -i dxg",
}
"""WSL has no NVIDIA device on its bus and no NVIDIA module: `/dev/dxg` is Windows' driver
(Microsoft, "DirectX is coming to the Windows Subsystem for Linux")."""
IN_A_NOTEBOOK = dict.fromkeys(
    (ON_THE_BUS, NODES, KERNEL_LOG, HOST_MEMORY, ON_THE_HOST), "nvidia-smi"
)
"""A lent machine: its bus and its kernel's log are its lender's."""
OF_THE_HOST = (ON_THE_BUS, KERNEL_LOG, HOST_MEMORY)
"""What a container's image lacks, or may not read."""


def reading_here(context: RuleContext, doubt: Alike | None, *, undecided: bool) -> str | None:
    """The command that decides, as this system and this program have it; `undecided`: the cause is
    unknown, or was inferred from a symptom."""
    if doubt is not None:
        asked: str | None = doubt.asks
    else:
        asked = reading_of_unknown(context) if undecided and is_report(context) else None
    reading = _as_here(context, asked) if asked else None
    return in_a_cell(reading) if reading and lender_of(context) else reading


def _as_here(context: RuleContext, reading: str) -> str:
    if reading == TORCHS_KERNELS and is_beside_torch(context):
        return BESIDE_TORCH
    if on(context, "windows"):
        return settings_in_powershell(ON_WINDOWS.get(reading, reading))
    if lender_of(context):
        return IN_A_NOTEBOOK.get(reading, reading)
    if in_container(context) and reading in OF_THE_HOST:
        return f"{reading}  # on the host"
    named = ON_MACS if on(context, "macos") else IN_WSL if context.snapshot.os.wsl else {}
    return named.get(reading, reading)


def reading_of_unknown(context: RuleContext) -> str | None:
    """The command whose answer shows most, where a text leaves its cause open."""
    if events(context, "report-empty"):
        return "gpusetup doctor"
    program = program_of(context)
    if context.snapshot.failing.stage == "build" or _ends_in_a_build(context):
        return _build_again(context, program)
    if context.snapshot.failing.stage == "distributed" and not _logs_nccl(context):
        return NCCL_LOG
    if program is None and context.snapshot.container.kind == "kubernetes":
        program = BY_NAME["Kubernetes"]
    if program and program.reading:
        return (program.on_windows if on(context, "windows") else "") or program.reading
    if (program and program.on_torch) or context.snapshot.torch.version is not None:
        return COLLECT_ENV
    if not driver_answers(context):
        return "nvidia-smi"
    return None if program else COLLECT_ENV


def _ends_in_a_build(context: RuleContext) -> bool:
    said = events(context, "program-failed")
    return any(event.values.get("stage") == "build" for event in said)


def _logs_nccl(context: RuleContext) -> bool:
    """Whether NCCL's own log was on already."""
    return context.snapshot.environment.get("NCCL_DEBUG", "").upper() in ("INFO", "TRACE")


def _build_again(context: RuleContext, program: Program | None) -> str:
    """The build once more with all that it prints; of what lies in this folder where the text names
    no distribution."""
    named = (context.snapshot.failing.program or "", *(program.packages if program else ()))
    known = filter(None, map(distribution_of, named))
    name = next((one for one in known if is_an_identifier(one)), ".")
    apart = () if program and not program.on_torch else ("--no-build-isolation",)
    return paste.pip(context, "install", "-v", *apart, name)


def asked_first(
    context: RuleContext, finding: Finding, others: tuple[str, ...], reading: str | None
) -> Finding:
    """The finding whose first command shows whether there is a GPU, where that is open: only then
    something is installed into the system for it."""
    fix = finding.fix
    if "no-nvidia-gpu" not in others or reading != ON_THE_BUS or has_nvidia(context):
        return finding
    if fix is None or not fix.needs_root:
        return finding
    way = paste.other("if it shows an NVIDIA GPU", *fix.commands) if fix.commands else ()
    text = f"See first whether this machine has an NVIDIA GPU. If it has: {fix.text}"
    first = replace(fix, text=text, commands=(ON_THE_BUS,), alternatives=(*way, *fix.alternatives))
    return replace(finding, fix=first)


def without_a_second(finding: Finding, reading: str | None, *, undecided: bool) -> Finding:
    """The finding without looks of its own where the answer names the reading that decides: one
    command is run first, and of a cause that is known only what asks for something else stays."""
    if reading is None or finding.fix is None or not finding.fix.looks:
        return finding
    kept = tuple(
        look
        for look in finding.fix.looks
        if not undecided and _program(reading) not in map(_program, look.commands)
    )
    return replace(finding, fix=replace(finding.fix, looks=kept))


def _program(line: str) -> str:
    """
    >>> _program("sudo dmesg | grep -i nvrm"), _program("!nvidia-smi -L")
    ('dmesg', 'nvidia-smi')
    """
    return re.sub(r"^[!%]?(?:sudo )?", "", line).partition(" ")[0]
