"""Whether device nodes can be opened, and how one GPU is shared: MIG, compute modes, vGPU."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpusetup.causes.gpu_access import HIDES
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
from gpusetup.findings.message_rules import finding, of_gpus, shown
from gpusetup.fixes import gpu_naming
from gpusetup.model.finding import Findings, Fix
from gpusetup.model.machine import DeviceNode, Events, Gpu
from gpusetup.model.shell import Lines, filled


def uvm_missing(context: RuleContext) -> Findings:
    """The unified memory module or its device node is missing: NVML works, but CUDA cannot
    start."""
    # In WSL, the Windows driver manages the memory, so this module does not exist.
    if context.os.wsl:
        return
    messages = [
        event
        for event in events(context, "uvm-missing", "module-not-found")
        if "uvm" in event.values.get("module", event.kind)
    ]
    machine = context.snapshot
    paths = [node.path for node in machine.devices or ()]
    has_no_node = "/dev/nvidiactl" in paths and "/dev/nvidia-uvm" not in paths
    lacks_uvm = machine.driver.uvm_loaded is False or has_no_node
    if lacks_uvm and driver_answers(context) and machine.cuda_api.init_code:
        text = "module nvidia_uvm is not loaded, or /dev/nvidia-uvm is missing"
        messages.append(shown(context, "devices", text))
    if messages:
        yield finding(context, "uvm-missing", messages)


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
    messages, cause = _messages_of_mig(context), "mig-misconfigured"
    sliced = [gpu for gpu in unhidden(context) if gpu.mig_enabled]
    empty = [gpu for gpu in sliced if instances(gpu) == 0]
    if empty and not messages:
        create = _for_gpus(empty, "sudo nvidia-smi mig -i {gpus} -cgi 0 -C")
        fix = Fix(text=NOTHING_RUNS, commands=create, needs_root=True)
        what = "MIG is on, and there is no MIG instance that can compute"
        yield of_gpus(context, cause, empty, *MIG, "name", fix=fix, what=what)
    if messages or _must_choose_an_instance(context, sliced):
        what = "MIG is on, and the process does not use exactly one MIG instance"
        is_weak = not messages and not context.snapshot.cuda_api.init_code
        yield of_gpus(context, cause, sliced, *MIG, messages=messages, weak=is_weak, what=what)


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


def _must_choose_an_instance(context: RuleContext, sliced: Sequence[Gpu]) -> bool:
    """Whether there are several MIG instances (or also whole GPUs) and no variable chooses one.

    A process computes on one MIG instance, or on whole GPUs.
    """
    count = sum(instances(gpu) or 0 for gpu in sliced)
    if not count or context.snapshot.environment.get(HIDES, "").startswith("MIG-"):
        return False
    skips = any(not gpu.mig_enabled and gpu.visible is False for gpu in unhidden(context))
    return skips or count > 1


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
    is_set = HIDES in context.snapshot.environment
    listed = gpus(context)
    return [gpu for gpu in listed if not gpu.lost and not (is_set and gpu.visible is False)]


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
        closed = [gpu for gpu in unhidden(context) if _mode(gpu) == mode]
        if not closed:
            continue
        # A vGPU profile without CUDA cannot compute in any compute mode.
        command = "sudo nvidia-smi -i {gpus} -c DEFAULT"
        opens = () if mode == "virtual" else _for_gpus(closed, command)
        fix = Fix(text=RECORDS[cause].text, commands=opens, needs_root=True)
        # One process may compute in the exclusive mode.
        is_weak = mode == "exclusive"
        yield of_gpus(context, cause, closed, "name", "compute_mode", fix=fix, weak=is_weak)


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
    messages = events(context, "vgpu-unlicensed")
    if messages or unlicensed:
        is_refused = cuda_errors(context, BUSY) or context.snapshot.cuda_api.init_code == BUSY
        cause, weak = "vgpu-unlicensed", not is_refused
        yield of_gpus(context, cause, unlicensed, "name", messages=messages, weak=weak)


RULES = (
    uvm_missing,
    device_permission,
    mig_misconfigured,
    compute_mode,
    vgpu_unlicensed,
)
