"""Whether device nodes can be opened, and how one GPU is shared: MIG, compute modes, vGPU."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpusetup.causes.cuda_start import HIDES
from gpusetup.causes.record import RECORDS
from gpusetup.evidence.context import (
    RuleContext,
    cuda_errors,
    cuda_was_refused,
    driver_answers,
    events,
    gpus,
    is_report,
)
from gpusetup.findings.message_rules import finding, marked, shown
from gpusetup.fixes import gpu_naming
from gpusetup.model.finding import Finding, Findings, Fix
from gpusetup.model.machine import DeviceNode, Events, Gpu
from gpusetup.model.shell import Lines, filled


def uvm_missing(context: RuleContext) -> Findings:
    """The unified memory module or its device node is missing: NVML works, but CUDA cannot
    start."""
    # In WSL, the Windows driver manages the memory, so this module does not exist.
    if context.os.wsl:
        return
    messages = []
    for event in events(context, "uvm-missing", "module-not-found"):
        if "uvm" in event.values.get("module", event.kind):
            messages.append(event)
    if _lacks_uvm(context) and context.snapshot.cuda_api.init_code:
        text = "module nvidia_uvm is not loaded, or /dev/nvidia-uvm is missing"
        messages.append(shown(context, "devices", text))
    if messages:
        yield finding(context, "uvm-missing", messages)


def _lacks_uvm(context: RuleContext) -> bool:
    """Whether the driver responds although its unified memory module or the module's device node is
    missing."""
    machine = context.snapshot
    paths = [node.path for node in machine.devices or ()]
    has_no_node = "/dev/nvidiactl" in paths and "/dev/nvidia-uvm" not in paths
    return (machine.driver.uvm_loaded is False or has_no_node) and driver_answers(context)


def device_permission(context: RuleContext) -> Findings:
    """This user has no permission to open the device nodes."""
    messages = list(events(context, "device-permission"))
    closed_nodes = [node for node in context.snapshot.devices or () if _is_shut(context, node)]
    # Put /dev/nvidia0 before /dev/nvidiactl and /dev/nvidia-uvm, because people know it best.
    for node in sorted(closed_nodes, key=lambda node: len(node.path)):
        text = f"{node.path} {node.mode or 'is closed'}"
        messages.append(shown(context, "devices", text, node=node.path))
    if messages:
        yield finding(context, "device-permission", messages)


def _is_shut(context: RuleContext, node: DeviceNode) -> bool:
    """Whether this user cannot open a device node. In a text: whether only the node's group can
    open it and CUDA failed."""
    if not node.path.startswith("/dev/nvidia") or "caps" in node.path:
        return False
    if False in (node.readable, node.writable):
        return True
    # A text does not show which user ran the program. `crw-rw----` means that only the node's group
    # can open it.
    if not is_report(context) or "uvm" in node.path or not node.mode:
        return False
    return (node.mode[7:9] != "rw") and (cuda_was_refused(context) and not gpus(context))


INVALID_DEVICE = 101
"""cudaErrorInvalidDevice. It also appears if the variable names several MIG instances, because CUDA
uses only the first."""


BUSY = 46
"""cudaErrorDevicesUnavailable, which a vGPU without a licence returns after a while."""


def mig_misconfigured(context: RuleContext) -> Findings:
    """MIG is on, but there is no instance that a process can use, or there are several and none is
    selected."""
    messages = _messages_of_mig(context)
    sliced_gpus = [gpu for gpu in unhidden(context) if gpu.mig_enabled]
    empty_gpus = [gpu for gpu in sliced_gpus if instances(gpu) == 0]
    if empty_gpus and not messages:
        yield _without_instances(context, empty_gpus)
    if messages or _must_choose_an_instance(context, sliced_gpus):
        yield finding(
            context,
            "mig-misconfigured",
            (*messages, *marked(context, sliced_gpus, *MIG)),
            weak=not (bool(messages) or bool(context.snapshot.cuda_api.init_code)),
            who=gpu_naming.gpus_in_title(context, sliced_gpus),
            what="MIG is on, and the process does not use exactly one MIG instance",
        )


def _messages_of_mig(context: RuleContext) -> Events:
    """The messages about MIG. Messages that have other meanings too count only if a GPU has MIG
    turned on or the variable names an instance."""
    has_mig = any(gpu.mig_enabled for gpu in unhidden(context))
    variable = context.snapshot.environment.get(HIDES, "")
    messages = events(context, "mig-misconfigured")
    if not has_mig and "MIG-" not in variable:
        # The record marks such a message with the value `shown`.
        messages = tuple(message for message in messages if "shown" not in message.values)
    # CUDA accepts one instance. If the variable names several, CUDA reports it as invalid.
    if variable.count("MIG-") > 1:
        messages += cuda_errors(context, INVALID_DEVICE)
    return messages


def _without_instances(context: RuleContext, empty_gpus: Sequence[Gpu]) -> Finding:
    """The finding that MIG is on but no instance was created."""
    create = _for_gpus(empty_gpus, "sudo nvidia-smi mig -i {gpus} -cgi 0 -C")
    return finding(
        context,
        "mig-misconfigured",
        marked(context, empty_gpus, *MIG, "name"),
        fix=Fix(text=NOTHING_RUNS, commands=create, needs_root=True),
        who=gpu_naming.gpus_in_title(context, empty_gpus),
        what="MIG is on, and there is no MIG instance that can compute",
    )


def _must_choose_an_instance(context: RuleContext, sliced_gpus: Sequence[Gpu]) -> bool:
    """Whether there are several MIG instances (or also whole GPUs) and no variable chooses one.

    A process computes on one MIG instance, or on whole GPUs.
    """
    count = sum(instances(gpu) or 0 for gpu in sliced_gpus)
    if not count or context.snapshot.environment.get(HIDES, "").startswith("MIG-"):
        return False
    for gpu in unhidden(context):
        if not gpu.mig_enabled and gpu.visible is False:
            return True
    return count > 1


MIG = ("mig_enabled", "mig_count", "mig_instances")
NOTHING_RUNS = (
    "Run the command. If it says that the GPU is in use, end the programs on the GPU first"
)


def _for_gpus(concerned: Sequence[Gpu], command: str) -> Lines:
    """An nvidia-smi command for these GPUs, or for the first GPU if they cannot be identified."""
    return (filled(command, gpus=gpu_naming.smi_list(concerned) or "0"),)


def unhidden(context: RuleContext) -> list[Gpu]:
    """The GPUs that no variable hides and that are not lost. CUDA may still skip one of them
    because it is faulty."""
    has_the_variable = HIDES in context.snapshot.environment
    not_hidden = []
    for gpu in gpus(context):
        if not gpu.lost and not (has_the_variable and gpu.visible is False):
            not_hidden.append(gpu)
    return not_hidden


def instances(gpu: Gpu) -> int | None:
    """How many MIG instances a GPU has, from their names or their number; None if no source shows
    it.

    >>> instances(Gpu(name="A30", mig_instances=("MIG-1",))), instances(Gpu(name="A30"))
    (1, None)
    """
    return len(gpu.mig_instances) or gpu.mig_count


def compute_mode(context: RuleContext) -> Findings:
    """The GPU's compute mode excludes other processes, or its vGPU profile lacks CUDA."""
    causes = {
        "virtual": "vgpu-no-compute",
        "prohibited": "compute-mode-prohibited",
        "exclusive": "compute-mode-exclusive",
    }
    for mode, cause in causes.items():
        closed_gpus = [gpu for gpu in unhidden(context) if _mode(gpu) == mode]
        if not closed_gpus:
            continue
        commands = _for_gpus(closed_gpus, "sudo nvidia-smi -i {gpus} -c DEFAULT")
        # A vGPU profile without CUDA cannot compute in any compute mode.
        if mode == "virtual":
            commands = ()
        yield finding(
            context,
            cause,
            marked(context, closed_gpus, "name", "compute_mode"),
            fix=Fix(text=RECORDS[cause].text, commands=commands, needs_root=True),
            # One process may compute.
            weak=mode == "exclusive",
            who=gpu_naming.gpus_in_title(context, closed_gpus),
        )


def _mode(gpu: Gpu) -> str:
    """The compute mode; `virtual` for vGPU profiles without CUDA, whose names end in A or B (Q and
    C profiles have CUDA).

    >>> _mode(Gpu(name="GRID T4-8A")), _mode(Gpu(name="A40", compute_mode="Exclusive_Process"))
    ('virtual', 'exclusive')
    """
    mode, _, _ = (gpu.compute_mode or "").lower().partition("_")
    has_profile_without_cuda = re.search(r"-\d{1,3}[AB]$", gpu.name.strip()) is not None
    is_virtual = (gpu.virtualization or "").lower() == "vgpu"
    if has_profile_without_cuda or (is_virtual and mode == "prohibited"):
        return "virtual"
    return mode


def vgpu_unlicensed(context: RuleContext) -> Findings:
    """A vGPU has no licence, so it becomes slow or refuses CUDA."""
    unlicensed = [
        gpu for gpu in gpus(context) if gpu.licensed is False and gpu.virtualization != "none"
    ]
    messages = (*events(context, "vgpu-unlicensed"), *marked(context, unlicensed, "name"))
    if not messages:
        return
    is_refused = bool(cuda_errors(context, BUSY)) or context.snapshot.cuda_api.init_code == BUSY
    who = gpu_naming.gpus_in_title(context, unlicensed)
    yield finding(context, "vgpu-unlicensed", messages, weak=not is_refused, who=who)


RULES = (
    uvm_missing,
    device_permission,
    mig_misconfigured,
    compute_mode,
    vgpu_unlicensed,
)
