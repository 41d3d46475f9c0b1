"""The one command whose output decides, for an answer about a text.

It stands in the cause's record (`asks`); otherwise the step that failed chooses it. A command
whose output the text already shows is not asked for again.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.accelerators.makers import maker_of
from gpusetup.causes.record import RECORDS
from gpusetup.choose.installed import vendors_of
from gpusetup.evidence import checks
from gpusetup.evidence.context import (
    RuleContext,
    driver_answers,
    events,
    gpus,
    has_nvidia,
    in_container,
    listed_gpus,
    on,
)
from gpusetup.evidence.facts import kernels_that_a_text_prints
from gpusetup.evidence.places import is_beside_torch, program_of
from gpusetup.fixes.owners import lender_of
from gpusetup.model.finding import Finding
from gpusetup.model.shell import in_a_cell, settings_in_powershell

HOOK_LOG = "nvidia-container-cli -k -d /dev/stderr info"
"""Runs what the container's hook runs, with the hook's log on the screen."""
SMI = "nvidia-smi"
OF_TORCH = (checks.ASK_TORCH, checks.TORCH_SEES, checks.CUDA_OF_TORCH, checks.WHICH_TORCH)
"""Commands that ask a torch, which a program beside torch does not have."""
OF_NVIDIA_OR_CUDA = (
    *(checks.ASK_TORCH, checks.TORCH_SEES, checks.CUDA_OF_TORCH, checks.TORCHS_KERNELS),
    *(checks.LIST_GPUS, checks.DEVICE_NODES, checks.PCI_GPUS, checks.GPU_AND_DRIVER, SMI),
)
"""Commands that tell nothing on a machine whose only GPU is another maker's."""


def command_that_decides(
    context: RuleContext, finding: Finding | None, asked_first: str | None, *, is_open: bool
) -> str | None:
    """The command to run next; None if no command is known, or the text already answers each.

    `asked_first`: the command that reads a fact which the fix needs, or which a refutation asks
    for. `is_open`: the cause is unknown, so that the failed step also has commands.
    """
    candidates = [asked_first] if asked_first else []
    if finding is not None:
        candidates += RECORDS[finding.id].asks
    program = program_of(context)
    # A program that is not built on torch has its own command in place of torch's.
    command_of_program = program.reading if program and not program.on_torch else ""
    if is_open:
        candidates += [command_of_program] if command_of_program else []
        candidates += _commands_of_step(context)
    for command in candidates:
        if command in OF_TORCH and command_of_program:
            command = command_of_program
        elif command in OF_TORCH and _container_lacks_a_driver(context):
            # In this container, torch can only repeat that it sees no GPU.
            command = checks.GPU_BY_DOCKER
        # The first command may be meant to find out whose GPU it is, so it is always asked.
        may_be_asked = command == asked_first or not _is_foreign(context, command)
        # Docker cannot give a container a GPU that the machine does not have.
        in_vain = command == checks.GPU_BY_DOCKER and has_nvidia(context) is False
        if may_be_asked and not in_vain and not is_answered(context, command):
            return in_words_of_system(context, command)
    return None


def _is_foreign(context: RuleContext, command: str) -> bool:
    """Whether a command asks NVIDIA's stack while the only GPU is another maker's, or starts a
    program that the text is not about."""
    # `python -m bitsandbytes` asks one package; `python -m torch.utils.collect_env` asks torch.
    package = command.removeprefix("python -m ")
    if package != command and package.isidentifier():
        program = program_of(context)
        return program is None or package not in program.packages
    return command in OF_NVIDIA_OR_CUDA and _maker(context) in OF_MAKER


# --- what the text already shows ------------------------------------------------------------------

SHOWN: dict[str, tuple[str, ...]] = {
    "torch": (checks.ASK_TORCH, checks.CUDA_OF_TORCH),
    "kernel": (checks.KERNEL_LOG,),
    "collect-env": (checks.COLLECT_ENV,),
    "devices": (checks.AMD_TARGETS,),
    "mps": (checks.TORCHS_MPS,),
    "xpu": (checks.TORCHS_XPU,),
    "sycl": (checks.XPU_SEES,),
    "threads": (checks.STACKS, checks.FAULT_HANDLER),
    "topology": (checks.TOPOLOGY,),
    "processes": (checks.SMI_DURING_RUN,),
    "nccl": (checks.NCCL_LOG,),
    "blocking": (checks.BLOCKING_RUN,),
}
"""A tool's output that `messages` recognizes -> the commands that it answers."""


def is_answered(context: RuleContext, command: str) -> bool:
    """Whether the text already shows what a command would print, wherever it was read."""
    machine, torch = context.snapshot, context.torch
    for event in events(context, "output-shown"):
        if command in SHOWN.get(event.values.get("what", ""), ()):
            return True
    build = bool(torch.version and torch.backend)
    kernels = kernels_that_a_text_prints(context)
    listed = bool(listed_gpus(context))
    return {
        checks.LIST_GPUS: listed,
        SMI: listed and bool(machine.driver.version),
        checks.PCI_GPUS: machine.pci_devices is not None or listed,
        checks.SMI_ON_HOST: driver_answers(context),
        checks.CUDA_OF_TORCH: build,
        checks.ASK_TORCH: build and torch.cuda_available is not None,
        checks.TORCH_SEES: torch.cuda_available is True,
        checks.TORCHS_KERNELS: kernels,
        checks.WHICH_TORCH: kernels,
        checks.GPU_AND_DRIVER: bool(gpus(context) and machine.driver.version),
        # If torch cannot be imported, torch's own report fails in the same way.
        checks.COLLECT_ENV: bool(torch.import_error),
        checks.AMD_TARGETS: bool(events(context, "rocm-lists-gpu")),
    }.get(command, False)


# --- the step that failed -------------------------------------------------------------------------


STEPS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("machine-powers-off",), (checks.LAST_BOOT,)),
    (("nccl-error", "nccl-connect-failed"), (checks.NCCL_LOG, checks.TOPOLOGY)),
    (("run-hangs",), (checks.STACKS, checks.KERNEL_LOG)),
    (("program-crashed", "silent-crash"), (checks.FAULT_HANDLER,)),
    (("gpu-unused",), (checks.ASK_TORCH, checks.SMI_DURING_RUN)),
)
"""The events of a failed step -> the commands that tell most about it."""


def _commands_of_step(context: RuleContext) -> Iterator[str]:
    """The commands of every failed step that the text shows, the most particular first."""
    if events(context, "container-start-failed"):
        yield HOOK_LOG if context.os.family in (None, "linux") else "docker info"
    # With several GPUs, a run usually hangs in NCCL.
    if events(context, "run-hangs") and events(context, "several-gpus"):
        yield checks.NCCL_LOG
    # A call on a GPU that torch sees raised an exception.
    if context.torch.cuda_available and events(context, "program-failed"):
        yield checks.BLOCKING_RUN
    for kinds, commands in STEPS:
        if events(context, *kinds):
            yield from commands
    yield from OF_MAKER.get(_maker(context), ())
    if is_beside_torch(context):
        yield SMI
    elif _maker(context) not in OF_MAKER:
        yield from (checks.ASK_TORCH, checks.COLLECT_ENV)


def _container_lacks_a_driver(context: RuleContext) -> bool:
    """Whether a container asks for a GPU, and no driver answers in it."""
    return bool(context.snapshot.container.nvidia_requested) and not driver_answers(context)


OF_MAKER: dict[str, tuple[str, ...]] = {
    "amd": (checks.WHICH_ROCM, checks.AMD_TARGETS),
    "intel": (checks.TORCHS_XPU, checks.XPU_SEES),
    "apple": (checks.TORCHS_MPS,),
}
"""A maker other than NVIDIA -> the commands about its software."""


def _maker(context: RuleContext) -> str:
    """The maker of the GPU that the text is about; "" if it does not show one."""
    if on(context, "macos"):
        return "apple"
    if has_nvidia(context):
        return "nvidia"
    vendors = vendors_of(context.snapshot)
    return maker_of(context.torch.backend) or (next(iter(vendors)) if len(vendors) == 1 else "")


# --- in the words of the system -------------------------------------------------------------------

LISTS_DEVICES = (checks.PCI_GPUS, checks.DEVICE_NODES, checks.AMD_TARGETS, checks.XPU_SEES)
SHOWS_THE_KERNELS_LOG = (checks.KERNEL_LOG, checks.LAST_BOOT, checks.HOST_MEMORY)
ELSEWHERE: dict[str, tuple[str, str]] = {
    "windows": (
        "Get-CimInstance Win32_VideoController | Format-List Name, DriverVersion",
        "Get-WinEvent -FilterHashtable @{LogName='System'; Level=1,2} -MaxEvents 30",
    ),
    # On a rented machine, only its provider can read the PCI bus and the kernel log.
    "notebook": (SMI, SMI),
    # A Mac has no NVIDIA driver, so the person uses it to work on another machine.
    "macos": (
        "system_profiler SPDisplaysDataType",
        f"{checks.COLLECT_ENV}  # on the machine with the GPU",
    ),
    # WSL has no NVIDIA device on its bus and no NVIDIA module: `/dev/dxg` is Windows' driver
    # (Microsoft, "DirectX is coming to the Windows Subsystem for Linux").
    "wsl": (f"ls -l /dev/dxg; {checks.LIST_GPUS}", "sudo dmesg | grep -i dxg"),
}
"""A system -> what lists its devices and what shows its kernel's messages, in place of Linux'
commands."""


def in_words_of_system(context: RuleContext, command: str) -> str:
    """The command in its form for the system of the text."""
    is_notebook = bool(lender_of(context))
    systems = {
        "windows": on(context, "windows"),
        "notebook": is_notebook,
        "macos": on(context, "macos"),
        "wsl": bool(context.os.wsl),
    }
    system = next((name for name, is_here in systems.items() if is_here), None)
    asks_for_devices = command in LISTS_DEVICES
    if asks_for_devices or command in SHOWS_THE_KERNELS_LOG:
        if system is not None:
            devices, kernel_log = ELSEWHERE[system]
            command = devices if asks_for_devices else kernel_log
        elif in_container(context):
            command = f"{command}  # on the host"
    if on(context, "windows"):
        return settings_in_powershell(command)
    # A few commands, such as `export`, have no form for a cell.
    return (in_a_cell(command) if is_notebook else None) or command
