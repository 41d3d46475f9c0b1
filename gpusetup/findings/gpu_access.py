"""Whether device nodes can be opened; sharing one GPU: MIG, compute modes, vGPU."""

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
from gpusetup.findings.message_rules import finding, marked, shown
from gpusetup.fixes import gpu_naming
from gpusetup.model.finding import Findings, Fix
from gpusetup.model.machine import DeviceNode, Gpu
from gpusetup.model.shell import Lines, filled


def uvm_missing(context: RuleContext) -> Findings:
    """The unified memory module, or its node, is missing: NVML works, CUDA does not."""
    machine = context.snapshot
    paths = {node.path for node in machine.devices or ()}
    no_node = "/dev/nvidiactl" in paths and "/dev/nvidia-uvm" not in paths
    said = events(context, "uvm-missing", "module-not-found")
    said = tuple(event for event in said if "uvm" in event.values.get("module", event.kind))
    missing = (machine.driver.uvm_loaded is False or no_node) and driver_answers(context)
    if missing and machine.cuda_api.init_code:
        what = "module nvidia_uvm is not loaded, or /dev/nvidia-uvm is missing"
        said += (shown(context, "devices", what),)
    if said and not machine.os.wsl:
        yield finding(context, "uvm-missing", said)


def device_permission(context: RuleContext) -> Findings:
    """This user may not open the device nodes."""
    shut = [node for node in context.snapshot.devices or () if _is_shut(context, node)]
    nodes = (
        shown(context, "devices", f"{node.path} {node.mode or 'is closed'}", node=node.path)
        for node in sorted(shut, key=lambda node: len(node.path))
    )
    if said := (*events(context, "device-permission"), *nodes):
        yield finding(context, "device-permission", said)


def _is_shut(context: RuleContext, node: DeviceNode) -> bool:
    """Closed to this user; in a text to others than its group, where CUDA was asked in vain."""
    if not node.path.startswith("/dev/nvidia") or "caps" in node.path:
        return False
    blind = is_report(context) and cuda_was_refused(context) and not gpus(context)
    closed = blind and "uvm" not in node.path and node.mode and node.mode[7:9] != "rw"
    return False in (node.readable, node.writable) or bool(closed)


INVALID_DEVICE = 101
"""cudaErrorInvalidDevice: of several MIG instances that are named, CUDA shows the first."""


BUSY = 46
"""cudaErrorDevicesUnavailable, with which a vGPU without a licence answers after a while."""


def mig_misconfigured(context: RuleContext) -> Findings:
    """MIG is on and there is no instance to use, or several to choose from."""
    seen = unhidden(context)
    sliced = [gpu for gpu in seen if gpu.mig_enabled]
    chosen = context.snapshot.environment.get(HIDES, "")
    said = events(context, "mig-misconfigured")
    said = tuple(e for e in said if sliced or "MIG-" in chosen or "shown" not in e.values)
    if chosen.count("MIG-") > 1:
        said += cuda_errors(context, INVALID_DEVICE)
    empty = [gpu for gpu in sliced if instances(gpu) == 0 and not said]
    if empty:
        create = _for_gpus(empty, "sudo nvidia-smi mig -i {gpus} -cgi 0 -C")
        fix = Fix(text=NOTHING_RUNS, commands=create, needs_root=True)
        who, evidence = (
            gpu_naming.gpus_in_title(context, empty),
            marked(context, empty, *MIG, "name"),
        )
        what = "MIG is on, and there is no MIG instance that can compute"
        yield finding(context, "mig-misconfigured", evidence, fix=fix, who=who, what=what)
    whole = any(not gpu.mig_enabled and gpu.visible is False for gpu in seen)
    count = sum(instances(gpu) or 0 for gpu in sliced)
    if said or (count + whole > 1 and count and not chosen.startswith("MIG-")):
        weak = not (said or context.snapshot.cuda_api.init_code)
        who, evidence = (
            gpu_naming.gpus_in_title(context, sliced),
            (*said, *marked(context, sliced, *MIG)),
        )
        what = "MIG is on, and the process does not use exactly one MIG instance"
        yield finding(context, "mig-misconfigured", evidence, weak=weak, who=who, what=what)


MIG = ("mig_enabled", "mig_count", "mig_instances")
NOTHING_RUNS = (
    "Run the command. If it says that the GPU is in use, end the programs on the GPU first"
)


def _for_gpus(concerned: Sequence[Gpu], command: str) -> Lines:
    return (filled(command, gpus=gpu_naming.smi_list(concerned) or "0"),)


def unhidden(context: RuleContext) -> list[Gpu]:
    """The GPUs that no variable hides: CUDA may leave one out for what is wrong with it."""
    hides = HIDES in context.snapshot.environment
    return [g for g in gpus(context) if not (g.lost or (hides and g.visible is False))]


def instances(gpu: Gpu) -> int | None:
    """How many MIG instances a GPU has, named or counted; None where no source told.

    >>> instances(Gpu(name="A30", mig_instances=("MIG-1",))), instances(Gpu(name="A30"))
    (1, None)
    """
    return len(gpu.mig_instances) or gpu.mig_count


def compute_mode(context: RuleContext) -> Findings:
    """A compute mode that keeps processes out; a vGPU profile without compute shows it too."""
    for mode, cause in (
        ("virtual", "vgpu-no-compute"),
        ("prohibited", "compute-mode-prohibited"),
        ("exclusive", "compute-mode-exclusive"),
    ):
        if held := [gpu for gpu in unhidden(context) if _mode(gpu) == mode]:
            default = _for_gpus(held, "sudo nvidia-smi -i {gpus} -c DEFAULT")
            commands = () if mode == "virtual" else default
            fix = Fix(text=RECORDS[cause].text, commands=commands, needs_root=True)
            weak, who = mode == "exclusive", gpu_naming.gpus_in_title(context, held)
            evidence = marked(context, held, "name", "compute_mode")
            yield finding(context, cause, evidence, fix=fix, weak=weak, who=who)


def _mode(gpu: Gpu) -> str:
    """Q and C profiles of a vGPU have CUDA, A and B have none.

    >>> _mode(Gpu(name="GRID T4-8A")), _mode(Gpu(name="A40", compute_mode="Exclusive_Process"))
    ('virtual', 'exclusive')
    """
    mode = (gpu.compute_mode or "").lower().partition("_")[0]
    virtual = mode == "prohibited" and (gpu.virtualization or "").lower() == "vgpu"
    return "virtual" if virtual or re.search(r"-\d{1,3}[AB]$", gpu.name.strip()) else mode


def vgpu_unlicensed(context: RuleContext) -> Findings:
    without = [g for g in gpus(context) if g.licensed is False and g.virtualization != "none"]
    said = (*events(context, "vgpu-unlicensed"), *marked(context, without, "name"))
    refused = cuda_errors(context, BUSY) or context.snapshot.cuda_api.init_code == BUSY
    if said:
        who = gpu_naming.gpus_in_title(context, without)
        yield finding(context, "vgpu-unlicensed", said, weak=not refused, who=who)


RULES = (
    uvm_missing,
    device_permission,
    mig_misconfigured,
    compute_mode,
    vgpu_unlicensed,
)
