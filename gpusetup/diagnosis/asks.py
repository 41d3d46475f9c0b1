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
from gpusetup.evidence.places import program_of, uses_no_torch
from gpusetup.fixes.owners import lender_of
from gpusetup.model.finding import Finding
from gpusetup.model.shell import in_a_cell, settings_in_powershell

HOOK_LOG = "nvidia-container-cli -k -d /dev/stderr info"
"""Runs what the container's hook runs, with the hook's log on the screen."""
SMI = "nvidia-smi"
OF_TORCH = (checks.ASK_TORCH, checks.TORCH_SEES, checks.CUDA_OF_TORCH, checks.WHICH_TORCH)
"""Commands that ask torch. A program without torch cannot answer them."""
OF_NVIDIA_OR_CUDA = (
    *(checks.ASK_TORCH, checks.TORCH_SEES, checks.CUDA_OF_TORCH, checks.TORCHS_KERNELS),
    *(checks.LIST_GPUS, checks.DEVICE_NODES, checks.PCI_GPUS, checks.GPU_AND_DRIVER, SMI),
)
"""Commands that tell nothing on a machine whose only GPU is another maker's."""


def command_that_decides(
    context: RuleContext, finding: Finding | None, first: str | None, *, is_open: bool
) -> str | None:
    """The command to run next, in the form for the text's system; None if no command is known, or
    if the text already shows what each of them would print.

    `first`: the command to prefer to those of the finding's record, if there is one. `is_open`:
    whether the cause is unknown; then the commands of the failed step are candidates too.
    """
    candidates = [first] if first else []
    if finding is not None:
        candidates += RECORDS[finding.id].asks
    if is_open:
        candidates += _commands_of_step(context)
    for candidate in candidates:
        command = _unless_torch_is_useless(context, candidate)
        # The first command may be meant to find out whose GPU it is, so it is always asked.
        may_be_asked = candidate == first or not _is_foreign(context, command)
        # Docker cannot give a container a GPU that the machine does not have.
        in_vain = command == checks.GPU_BY_DOCKER and has_nvidia(context) is False
        if may_be_asked and not in_vain and not is_answered(context, command):
            return command_for_system(context, command)
    return None


def _unless_torch_is_useless(context: RuleContext, command: str) -> str:
    """The command, or a better one if it asks torch and torch's answer would tell nothing."""
    if command not in OF_TORCH:
        return command
    if of_program := _command_of_program(context):
        return of_program
    # In a container without the driver, torch can only repeat that it sees no GPU.
    requests_gpu = context.snapshot.container.nvidia_requested
    return checks.GPU_BY_DOCKER if requests_gpu and not driver_answers(context) else command


def _command_of_program(context: RuleContext) -> str:
    """The command with which a program without torch shows its GPUs; "" for other programs."""
    program = program_of(context)
    return program.reading if program and not program.on_torch else ""


def _is_foreign(context: RuleContext, command: str) -> bool:
    """Whether a command asks NVIDIA's stack while the only GPU is another maker's, or starts a
    program that the text is not about."""
    # `python -m bitsandbytes` starts a program. `torch.utils.collect_env` is no identifier.
    package = command.removeprefix("python -m ")
    if package != command and package.isidentifier():
        program = program_of(context)
        return program is None or package not in program.packages
    return command in OF_NVIDIA_OR_CUDA and _maker(context) in OF_MAKER


# --- what the text already shows ------------------------------------------------------------------

COMMANDS_OF_OUTPUT: dict[str, tuple[str, ...]] = {
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
"""A tool's output that `messages` recognizes -> the commands that print it."""


def is_answered(context: RuleContext, command: str) -> bool:
    """Whether the text already shows what a command would print, as output or as facts."""
    machine, torch = context.snapshot, context.torch
    for event in events(context, "output-shown"):
        if command in COMMANDS_OF_OUTPUT.get(event.values.get("what", ""), ()):
            return True
    build_is_read = bool(torch.version and torch.backend)
    kernels_are_read = kernels_that_a_text_prints(context)
    lists_gpus = bool(listed_gpus(context))
    return {
        checks.LIST_GPUS: lists_gpus,
        SMI: lists_gpus and bool(machine.driver.version),
        checks.PCI_GPUS: machine.pci_devices is not None or lists_gpus,
        checks.SMI_ON_HOST: driver_answers(context),
        checks.CUDA_OF_TORCH: build_is_read,
        checks.ASK_TORCH: build_is_read and torch.cuda_available is not None,
        # If torch sees no GPU, the exception that this command prints still tells why.
        checks.TORCH_SEES: torch.cuda_available is True,
        checks.TORCHS_KERNELS: kernels_are_read,
        checks.WHICH_TORCH: kernels_are_read,
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
    """The commands for every failed step that the text shows, from special to general."""
    if of_program := _command_of_program(context):
        yield of_program
    if events(context, "container-start-failed"):
        # NVIDIA's hook exists only on Linux.
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
    maker = _maker(context)
    yield from OF_MAKER.get(maker, ())
    if uses_no_torch(context):
        yield SMI
    elif maker not in OF_MAKER:
        yield from (checks.ASK_TORCH, checks.COLLECT_ENV)


OF_MAKER: dict[str, tuple[str, ...]] = {
    "amd": (checks.WHICH_ROCM, checks.AMD_TARGETS),
    "intel": (checks.TORCHS_XPU, checks.XPU_SEES),
    "apple": (checks.TORCHS_MPS,),
}
"""A maker other than NVIDIA -> the commands about its software."""


def _maker(context: RuleContext) -> str:
    """The maker of the GPU that the text is about: Apple on a Mac, NVIDIA if one of its GPUs is
    shown, or else the maker that torch was built for, or else the only one named; "" if unknown."""
    if on(context, "macos"):
        return "apple"
    if has_nvidia(context):
        return "nvidia"
    vendors = vendors_of(context.snapshot)
    only_vendor = next(iter(vendors)) if len(vendors) == 1 else ""
    return maker_of(context.torch.backend) or only_vendor


# --- the form for a system ------------------------------------------------------------------------

LISTS_DEVICES = (checks.PCI_GPUS, checks.DEVICE_NODES, checks.AMD_TARGETS, checks.XPU_SEES)
SHOWS_THE_KERNELS_LOG = (checks.KERNEL_LOG, checks.LAST_BOOT, checks.HOST_MEMORY)
INSTEAD_ON: dict[str, tuple[str, str]] = {
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
"""A system -> its commands that list the devices and show the kernel's messages."""


def command_for_system(context: RuleContext, command: str) -> str:
    """The form of a command for the system, notebook or container that the text is about."""
    is_notebook = bool(lender_of(context))
    systems = {
        "windows": on(context, "windows"),
        "notebook": is_notebook,
        "macos": on(context, "macos"),
        "wsl": bool(context.os.wsl),
    }
    system = next((name for name, applies in systems.items() if applies), None)
    asks_for_devices = command in LISTS_DEVICES
    if asks_for_devices or command in SHOWS_THE_KERNELS_LOG:
        if system is not None:
            devices, kernel_log = INSTEAD_ON[system]
            command = devices if asks_for_devices else kernel_log
        elif in_container(context):
            command = f"{command}  # on the host"
    if on(context, "windows"):
        return settings_in_powershell(command)
    # A few commands, such as `unset`, have no form for a cell.
    in_cell = in_a_cell(command) if is_notebook else None
    return in_cell or command
