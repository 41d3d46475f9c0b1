"""The one command whose answer decides what a text leaves open, as the text's own place has it."""

from __future__ import annotations

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
IN_WSL: dict[str, str] = {
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
IN_A_CONTAINER: dict[str, str] = {
    one: f"{one}  # on the host" for one in (ON_THE_BUS, KERNEL_LOG, HOST_MEMORY)
}
"""What a container's image lacks, or may not read."""


def reading_here(context: RuleContext, asks: str | None, *, undecided: bool) -> str | None:
    """The command that decides, as this system and this program have it; `undecided`: the cause is
    unknown, or was inferred from a symptom."""
    if asks is None and undecided and is_report(context):
        asks = reading_of_unknown(context)
    if asks is None:
        return None
    if asks == TORCHS_KERNELS and is_beside_torch(context):
        asks = BESIDE_TORCH
    if on(context, "windows"):
        return settings_in_powershell(ON_WINDOWS.get(asks, asks))
    if lender_of(context):
        return in_a_cell(IN_A_NOTEBOOK.get(asks, asks))
    named = ON_MACS if on(context, "macos") else IN_WSL if context.snapshot.os.wsl else {}
    return (IN_A_CONTAINER if in_container(context) else named).get(asks, asks)


def reading_of_unknown(context: RuleContext) -> str | None:
    """The command whose answer shows most, where a text leaves its cause open."""
    program, failing = program_of(context), context.snapshot.failing
    said = events(context, "program-failed")
    if "build" in (failing.stage, *(event.values.get("stage") for event in said)):
        # Once more with all that it prints; what lies in this folder, of an unnamed distribution.
        named = (failing.program or "", *(program.packages if program else ()))
        name = next(filter(None, map(distribution_of, named)), ".")
        apart = () if program and not program.on_torch else ("--no-build-isolation",)
        return paste.pip(context, "install", "-v", *apart, name)
    if failing.stage == "distributed":
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


def asked_first(context: RuleContext, finding: Finding, reading: str | None) -> Finding:
    """The finding without looks of its own where the answer names a reading: one command is run
    first. Where that shows whether there is a GPU, it comes before what is installed for one."""
    fix = finding.fix
    if fix is None or reading is None:
        return finding
    fix = replace(fix, looks=())
    if reading == ON_THE_BUS and fix.needs_root and not has_nvidia(context):
        way = paste.other("if it shows an NVIDIA GPU", *fix.commands) if fix.commands else ()
        text = f"See first whether this machine has an NVIDIA GPU. If it has: {fix.text}"
        others = (*way, *fix.alternatives)
        fix = replace(fix, text=text, commands=(ON_THE_BUS,), alternatives=others)
    return replace(finding, fix=fix)
