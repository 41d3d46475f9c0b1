"""Which other causes remain possible, and the command that would decide between them.

Both come from the cause's record (`alike`). The other causes' records decide what is impossible on
this machine (`impossible`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpusetup.causes.alike import (
    AMD_IN_WSL,
    AMD_TARGETS,
    ASK_TORCH,
    BESIDE_TORCH,
    BOTH_SHELLS,
    COLLECT_ENV,
    GPU_BY_DOCKER,
    HOST_MEMORY,
    IN_THE_JOB,
    INTEL_RUNTIME,
    INTELS_NODES,
    KERNEL_LOG,
    KERNEL_OF_MAKER,
    LAST_BOOT,
    LIBCUDA_IN_IT,
    LIST_GPUS,
    NODES,
    ON_THE_BUS,
    ON_THE_HOST,
    ROCM_STARTS,
    SETTLES,
    THIS_TORCH,
    TORCH_SEES,
    TORCHS_CUDA,
    TORCHS_DEVICES,
    TORCHS_KERNELS,
    TORCHS_XPU,
    WHICH_LIBCUDA,
    WHICH_ROCM,
    WHICH_STACK,
    WHILE_IT_RUNS,
    XPU_SEES,
)
from gpusetup.causes.layers import Layer
from gpusetup.causes.record import RECORDS
from gpusetup.choose.installed import vendors_of
from gpusetup.diagnosis.answered import beyond_what_was_printed
from gpusetup.diagnosis.contrast_questions import is_of_another_maker
from gpusetup.diagnosis.questions import (
    HOOK_LOG,
    is_given_a_gpu_in_vain,
    is_of_amd,
    names_its_device,
    reading_of_unknown,
)
from gpusetup.evidence.context import (
    cuda_errors,
    events,
    has_nvidia,
    in_container,
    is_report,
    on,
)
from gpusetup.evidence.gpu_facts import kernels_that_a_text_prints
from gpusetup.evidence.lookups import is_in_the_index, lookup_of
from gpusetup.evidence.places import in_an_image_build, is_beside_torch
from gpusetup.fixes import paste
from gpusetup.fixes.lenders import lender_of
from gpusetup.messages.programs import of_package
from gpusetup.model.finding import Finding, Fix
from gpusetup.model.frozen import replace
from gpusetup.model.shell import in_a_cell, settings_in_powershell

if TYPE_CHECKING:
    from gpusetup.causes.record import Cause
    from gpusetup.evidence.context import RuleContext
    from gpusetup.model.finding import Finding


def open_causes(
    context: RuleContext, main: Finding | None, unexplained: list[Finding], cause: str
) -> tuple[tuple[str, ...], str | None]:
    """The causes that remain possible, and the command that decides between them.

    The unexplained errors come first, then what the message leaves open. A symptom is no cause.
    """
    if main is None:
        return (), None
    reading, alike = _open_question(context, main)
    candidates = [error.id for error in unexplained]
    candidates += alike
    left_open: list[str] = []
    is_about_another_gpu = is_of_another_maker(context) and not has_nvidia(context)
    for cause_id in candidates:
        if cause_id in (cause, main.id, *left_open):
            continue
        record = RECORDS.get(cause_id)
        if record is None:
            left_open.append(cause_id)
            continue
        # An error that was found is possible, whatever the record's conditions are.
        is_found = cause_id in [error.id for error in unexplained]
        # NVIDIA's driver and libraries are no cause on a machine with a GPU of AMD or Intel alone.
        if is_about_another_gpu and not is_found and _is_of_nvidias_stack(record):
            continue
        is_impossible = not is_found and any(rules_out(context) for rules_out in record.impossible)
        if not record.symptom and not is_impossible:
            left_open.append(cause_id)
    return tuple(left_open), reading


def _is_of_nvidias_stack(record: Cause) -> bool:
    """Whether a cause lies in NVIDIA's driver, or in a torch that is too new for it."""
    in_driver = record.place is not None and record.place[0] in (Layer.DRIVER, Layer.READINESS)
    return in_driver or record.lacks == "driver"


def _open_question(context: RuleContext, finding: Finding) -> tuple[str | None, tuple[str, ...]]:
    """The first command of a finding's record whose output the text does not show, with the causes
    that it separates. Nothing for a probed machine."""
    machine, record = context.snapshot, RECORDS[finding.id]
    if not is_report(context):
        return None, ()
    # The names in `SETTLES` -> whether the text shows that output.
    refusals = events(context, "library-not-mapped")
    lookup = lookup_of(context)
    program_said_it = any("said" not in event.values for event in events(context, *record.kinds))
    is_shown = {
        "gpus": machine.gpus,
        "driver": machine.driver.version,
        "torch": machine.torch.version or machine.torch.cuda,
        "kernels": kernels_that_a_text_prints(context),
        "bus": machine.pci_devices,
        "build": in_an_image_build(context),
        "program": program_said_it,
        "other maker's index": lookup is not None and not is_in_the_index(context, lookup),
        "executable stack": any(event.values.get("why") == "stack" for event in refusals),
    }
    # A program's own message settles the question if no other reading does, except for a symptom.
    usually_settled_by = () if record.symptom else ("program",)
    for reading, causes in record.alike.items():
        if _asks_another_program(context, reading):
            continue
        settled_by = SETTLES.get(reading, usually_settled_by)
        if not any(is_shown[name] for name in settled_by):
            return reading, causes
    return None, ()


def _asks_another_program(context: RuleContext, reading: str) -> bool:
    """Whether a command starts a program (`python -m NAME`) that the text is not about."""
    started = re.search(r"python -m (\w+)$", reading)
    program = of_package(started[1]) if started else None
    if program is None:
        return False
    if context.snapshot.failing.program == program.name:
        return False
    named_modules = [event.values.get("module") for event in context.snapshot.events]
    return set(program.packages).isdisjoint(named_modules)


def likely_cause(context: RuleContext, symptom: Finding) -> Finding | None:
    """The likely cause of a symptom, with the symptom's evidence; None if none is likely enough."""
    shown_rows = [row for row in RECORDS[symptom.id].likelier if row.shown(context)]
    if not shown_rows:
        return None
    row = shown_rows[0]
    fix = symptom.fix
    looks = symptom.fix.looks if symptom.fix else ()
    if row.way:
        fix = replace(row.way(context), looks=looks)
    elif row.text:
        fix = Fix(text=row.text, looks=looks)
    title = f"{symptom.title}: {row.because}"
    finding = RECORDS[row.cause].found(title, detail=symptom.detail, evidence=symptom.evidence)
    return replace(finding, fix=fix)


ON_A_PC = "Get-CimInstance Win32_VideoController | Format-List Name, DriverVersion"
ON_A_MAC = "system_profiler SPDisplaysDataType"
ON_WINDOWS = {
    "OLLAMA_DEBUG=1 ollama serve": "$env:OLLAMA_DEBUG=1; ollama serve",
    ON_THE_BUS: ON_A_PC,
    NODES: LIST_GPUS,
    LAST_BOOT: "Get-WinEvent -FilterHashtable @{LogName='System'; Level=1,2} -MaxEvents 30",
    KERNEL_LOG: "Get-WinEvent -FilterHashtable @{LogName='System'; ProviderName='nvlddmkm'}",
    HOST_MEMORY: "Get-WinEvent -FilterHashtable @{LogName='System'; Id=2004}",
    "gcc --version": "where.exe cl gcc clang",
    LIBCUDA_IN_IT: "nvidia-smi  # in the container",
    HOOK_LOG: "docker info",
    BOTH_SHELLS: "Get-ChildItem env: | Sort-Object Name",
    AMD_TARGETS: ROCM_STARTS,
    KERNEL_OF_MAKER: "Get-WinEvent -FilterHashtable @{LogName='System'; Level=1,2} -MaxEvents 30",
    WHICH_STACK: ON_A_PC,
    XPU_SEES: f"{ON_A_PC}; Get-ChildItem env: | Sort-Object Name",
    INTEL_RUNTIME: "python -m pip list; Get-ChildItem env: | Sort-Object Name",
}
"""A command -> its form in PowerShell. Event 2004 is Windows' report that virtual memory ran out.
"""
ON_MACS: dict[str, str] = {
    # A Mac has no NVIDIA driver, so the person uses it to work on another machine.
    KERNEL_LOG: "python -m torch.utils.collect_env  # on the machine with the GPU",
    ON_THE_BUS: ON_A_MAC,
    **dict.fromkeys(("nvidia-smi", NODES, KERNEL_OF_MAKER, AMD_TARGETS, WHICH_STACK), ON_A_MAC),
    HOOK_LOG: "docker info",
    COLLECT_ENV: 'python -c "import torch; print(torch.backends.mps.is_available())"',
}
IN_WSL: dict[str, str] = {
    ON_THE_BUS: LIST_GPUS,
    NODES: "ls -l /dev/dxg",
    KERNEL_LOG: "sudo dmesg | grep -i dxg",
    XPU_SEES: "ls -l /dev/dxg; sycl-ls",
}
"""WSL has no NVIDIA device on its bus and no NVIDIA module: `/dev/dxg` is Windows' driver
(Microsoft, "DirectX is coming to the Windows Subsystem for Linux")."""
IN_A_NOTEBOOK = dict.fromkeys(
    (ON_THE_BUS, NODES, KERNEL_LOG, HOST_MEMORY, ON_THE_HOST), "nvidia-smi"
)
"""On a rented machine, only its provider can read the PCI bus and the kernel log."""
IN_A_CONTAINER: dict[str, str] = {
    **{command: f"{command}  # on the host" for command in (ON_THE_BUS, KERNEL_LOG, HOST_MEMORY)},
    KERNEL_OF_MAKER: f"{KERNEL_OF_MAKER}, on the host",
    XPU_SEES: INTELS_NODES,
}
"""Commands that a container's image lacks, or that may not read their files there."""


def _for_the_maker(context: RuleContext, reading: str) -> str:
    """The one command to ask on a GPU of AMD or Intel in place of one for CUDA."""
    is_amds, has_cuda = is_of_amd(context), has_nvidia(context)
    if has_cuda or reading not in (ASK_TORCH, TORCH_SEES, TORCHS_CUDA, THIS_TORCH, LIST_GPUS):
        return reading
    if is_amds:
        return AMD_IN_WSL if context.os.wsl else WHICH_ROCM
    is_intels = vendors_of(context.snapshot) == {"intel"} or context.torch.backend == "xpu"
    return TORCHS_XPU if is_intels else reading


def reading_command(context: RuleContext, reading: str | None, *, undecided: bool) -> str | None:
    """The deciding command in the form for this system and program. `undecided`: the cause is
    unknown or was inferred from a symptom."""
    if reading is None and undecided and is_report(context):
        reading = reading_of_unknown(context)
    if reading is None:
        return None
    if reading == TORCHS_KERNELS and is_beside_torch(context):
        reading = BESIDE_TORCH
    reading = _for_the_maker(context, _beyond_torchs_answer(context, reading))
    reading = beyond_what_was_printed(context, reading)
    if reading is None:
        return None
    if on(context, "windows"):
        return settings_in_powershell(ON_WINDOWS.get(reading, reading))
    if lender_of(context):
        return in_a_cell(IN_A_NOTEBOOK.get(reading, reading))
    if context.os.wsl and reading in (LIST_GPUS, ON_THE_BUS, NODES) and _libcuda_decides(context):
        return WHICH_LIBCUDA
    if on(context, "macos"):
        reading = ON_MACS.get(reading, reading)
    elif context.os.wsl:
        reading = IN_WSL.get(reading, reading)
    if in_container(context):
        return IN_A_CONTAINER.get(reading, reading)
    return reading


OF_TORCH = (ASK_TORCH, TORCH_SEES, TORCHS_CUDA, THIS_TORCH, LIST_GPUS)
"""Commands that show which build of torch is installed, and whether it sees a GPU."""


def _beyond_torchs_answer(context: RuleContext, reading: str) -> str:
    """The next command, if the text already shows what torch would print."""
    if reading not in OF_TORCH:
        return reading
    # First find out whether docker provides a GPU at all, then what torch reports.
    if is_given_a_gpu_in_vain(context):
        return GPU_BY_DOCKER
    # torch is a ROCm build, so the open question is which GPUs ROCm sees and which variables
    # override them.
    is_rocm = events(context, "no-hip-gpus")
    overridden = "HSA_OVERRIDE_GFX_VERSION" in context.snapshot.environment
    if is_of_amd(context) and (is_rocm or overridden):
        return AMD_TARGETS
    in_a_job = events(context, "slurm-job", "login-node")
    if in_a_job and reading != THIS_TORCH:
        return IN_THE_JOB
    unused = events(context, "gpu-unused")
    if unused and events(context, "several-gpus"):
        return TORCHS_DEVICES
    if unused and (context.torch.cuda_available or names_its_device(context)):
        return WHILE_IT_RUNS
    return reading


def _libcuda_decides(context: RuleContext) -> bool:
    """Whether CUDA starts in WSL but finds no device, so that a Linux driver's library or a stub
    was loaded instead of the one in /usr/lib/wsl/lib."""
    return bool(cuda_errors(context, CUDA_ERROR_NO_DEVICE)) and not events(context, "gpu-unused")


CUDA_ERROR_NO_DEVICE = 100


def with_reading_first(context: RuleContext, finding: Finding, reading: str | None) -> Finding:
    """The finding without its own look-ups if the answer already names a reading, because only one
    command should be run first. If that reading shows whether there is a GPU, it comes before
    anything is installed for one."""
    fix = finding.fix
    if fix is None or reading is None:
        return finding
    fix = replace(fix, looks=())
    if reading == ON_THE_BUS and fix.needs_root and not has_nvidia(context):
        way = paste.other("if it lists an NVIDIA GPU", *fix.commands) if fix.commands else ()
        way_in_words = fix.text[:1].lower() + fix.text[1:]
        text = f"Check first whether this machine has an NVIDIA GPU. If it has one, {way_in_words}"
        others = (*way, *fix.alternatives)
        fix = replace(fix, text=text, commands=(ON_THE_BUS,), alternatives=others)
    return replace(finding, fix=fix)
