"""Sharing one GPU: MIG, compute modes, vGPU profiles and licences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpusetup.evidence.context import RuleContext, asked_for_cuda, cuda_errors, events, gpus
from gpusetup.evidence.places import IN_KUBERNETES
from gpusetup.evidence.plausible import is_an_identifier
from gpusetup.findings.layers import INIT_FAILS, Layer
from gpusetup.findings.message_rules import finding, marked
from gpusetup.findings.record import Cause, Message
from gpusetup.fixes import paste, which
from gpusetup.model.finding import Finding, Fix, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Gpu
from gpusetup.model.shell import Line, filled

HIDES = "CUDA_VISIBLE_DEVICES"
INVALID_DEVICE = 101
"""cudaErrorInvalidDevice: of several MIG instances that are named, CUDA shows the first."""
BUSY = 46
"""cudaErrorDevicesUnavailable, with which a vGPU without a licence answers after a while."""


MIG_MISCONFIGURED = Cause(
    id="mig-misconfigured",
    place=(Layer.READINESS, 30),
    title="MIG without an instance, or several and none chosen",
    means="CUDA uses one MIG instance a process, and none of a GPU in MIG mode without instances.",
    proven_by="MIG on and no instance; several and no MIG- name in CUDA_VISIBLE_DEVICES",
    way_out="Create or name an instance",
    source='NVIDIA, "MIG User Guide"',
    explains=(*INIT_FAILS, "invalid-device-ordinal", "torch-internal-error"),
    message=Message(
        title="{who}: {what}",
        detail="NVML counts the GPUs, CUDA the instances: torch's index is beyond what it sees. "
        "Without a choice CUDA takes the first instance, and no whole GPU beside it.",
        text="Name one instance (nvidia-smi -L lists them) in CUDA_VISIBLE_DEVICES, or the whole "
        "GPUs by their UUIDs; or switch MIG off on every GPU, as administrator, with nothing "
        "running: sudo nvidia-smi -mig 0",
        way=lambda context, text: _chosen(context, text),
    ),
)


def mig_misconfigured(context: RuleContext) -> Iterator[Finding]:
    """MIG is on and there is no instance to use, or several to choose from; or a change waits."""
    seen = unhidden(context)
    sliced = [gpu for gpu in seen if gpu.mig_enabled]
    chosen = context.snapshot.environment.get(HIDES, "")
    said = events(context, "mig-misconfigured")
    said = tuple(e for e in said if sliced or "MIG-" in chosen or "shown" not in e.values)
    if chosen.count("MIG-") > 1:
        said += cuda_errors(context, INVALID_DEVICE)
    if empty := [gpu for gpu in sliced if instances(gpu) == 0 and not said]:
        create = "sudo nvidia-smi mig -i {gpu} -cgi 0 -C"
        yield _mig(context, empty, "MIG is on, and there is no compute instance", create)
    if waiting := [gpu for gpu in seen if gpu.mig_pending is not None]:
        what = "the MIG mode changes after a reset, with nothing running on it, and has not yet"
        reset = "sudo nvidia-smi --gpu-reset -i {gpus}"
        yield replace(_mig(context, waiting, what, reset), severity=Severity.WARNING)
    whole = any(not gpu.mig_enabled and gpu.visible is False for gpu in seen)
    count = sum(instances(gpu) or 0 for gpu in sliced)
    if said or (count + whole > 1 and count and not chosen.startswith("MIG-")):
        only = None if said or context.snapshot.cuda_api.init_code else Severity.WARNING
        what = "MIG is on, and the process does not use exactly one MIG instance"
        who = which.titled(context, sliced)
        evidence = (*said, *marked(context, sliced, *MIG))
        yield finding(context, MIG_MISCONFIGURED, evidence, severity=only, who=who, what=what)


MIG = ("mig_enabled", "mig_count", "mig_instances", "mig_pending")


def _mig(context: RuleContext, concerned: Sequence[Gpu], what: str, command: str) -> Finding:
    text = "Type the command; where nothing may run on the GPU, end the programs first"
    fix = Fix(text=text, commands=_for_each(concerned, command), needs_root=True)
    who = which.titled(context, concerned)
    evidence = marked(context, concerned, *MIG, "name")
    return finding(context, MIG_MISCONFIGURED, evidence, fix=fix, who=who, what=what)


def _chosen(context: RuleContext, text: str) -> Fix:
    named = [one for gpu in gpus(context) for one in gpu.mig_instances if is_an_identifier(one)]
    return Fix(
        text=text,
        commands=tuple(paste.setting(context, HIDES, one) for one in named[:1]),
        looks=paste.look("see the instances", *paste.posix(context, "nvidia-smi -L")),
    )


def _for_each(concerned: Sequence[Gpu], command: str) -> tuple[Line, ...]:
    if "{gpus}" in command:
        return (filled(command, gpus=which.selected(concerned) or "0"),)
    return tuple(filled(command, gpu=one) for one in which.each(concerned) or ("0",))


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


COMPUTE_MODE_EXCLUSIVE = Cause(
    id="compute-mode-exclusive",
    place=(Layer.READINESS, 130),
    title="the GPU takes one process at a time",
    means="Exclusive mode; with code 46 it is taken.",
    proven_by="Compute mode Exclusive_Process; code 46",
    way_out="End the other process, or set the compute mode to default",
    source="nvidia-smi's manual page; CUDA Driver API reference, CUresult",
    message=Message(title="{who}: a mode for one process at a time"),
)


COMPUTE_MODE_PROHIBITED = Cause(
    id="compute-mode-prohibited",
    place=(Layer.READINESS, 50),
    title="the compute mode forbids compute",
    means="Set by an administrator.",
    proven_by="Compute mode Prohibited",
    not_when="vgpu-no-compute",
    way_out="Set the compute mode to default",
    source="nvidia-smi's manual page",
    explains=INIT_FAILS,
    message=Message(title="{who}: a compute mode that forbids compute"),
)


VGPU_NO_COMPUTE = Cause(
    id="vgpu-no-compute",
    place=(Layer.READINESS, 40),
    title="the vGPU allows no CUDA",
    means="A and B profiles have no compute; without a licence neither have others.",
    proven_by="Code 801 or 102; compute mode Prohibited on a vGPU",
    way_out="Give the virtual machine a profile with compute (Q or C)",
    source='NVIDIA, "Virtual GPU Software User Guide"',
    explains=(*INIT_FAILS, "compute-mode-prohibited"),
    message=Message(title="{who}: a vGPU profile without CUDA"),
)


def compute_mode(context: RuleContext) -> Iterator[Finding]:
    """A compute mode that keeps processes out; a vGPU profile without compute shows it too."""
    modes: dict[str, list[Gpu]] = {}
    for gpu in unhidden(context):
        mode = (gpu.compute_mode or "").lower().partition("_")[0]
        profile = vgpu_profile(gpu)
        virtual = profile or (gpu.virtualization or "").lower() == "vgpu"
        forbids = virtual and mode == "prohibited"
        desktop = profile in ("A", "B") and gpu.visible is not False and asked_for_cuda(context)
        modes.setdefault("virtual" if forbids or desktop else mode, []).append(gpu)
    for mode, cause, severity in (
        ("virtual", VGPU_NO_COMPUTE, None),
        ("prohibited", COMPUTE_MODE_PROHIBITED, None),
        ("exclusive", COMPUTE_MODE_EXCLUSIVE, Severity.WARNING),
    ):
        if held := modes.get(mode):
            default = _for_each(held, "sudo nvidia-smi -i {gpu} -c DEFAULT")
            fix = Fix(
                text=cause.way_out,
                commands=() if cause is VGPU_NO_COMPUTE else default,
                needs_root=True,
            )
            evidence = marked(context, held, "name", "compute_mode")
            who = which.titled(context, held)
            yield finding(context, cause, evidence, severity=severity, fix=fix, who=who)


def vgpu_profile(gpu: Gpu) -> str | None:
    """The letter of a vGPU profile in its name: Q and C have CUDA, A and B have none.

    >>> vgpu_profile(Gpu(name="GRID T4-8A")), vgpu_profile(Gpu(name="NVIDIA A100-SXM4-40GB"))
    ('A', None)
    """
    found = re.search(r"-\d{1,3}([ABCQ])$", gpu.name.strip())
    return found and found[1]


VGPU_UNLICENSED = Cause(
    id="vgpu-unlicensed",
    place=(Layer.LOSSES, 10),
    title="a vGPU without a licence",
    means="Performance is cut down step by step.",
    proven_by="NVML says unlicensed",
    way_out="Licence token",
    source='NVIDIA, "Virtual GPU Client Licensing User Guide"',
    explains=(*INIT_FAILS, "compute-mode-exclusive"),
    message=Message(
        title="{who}: a vGPU without a licence is slowed down, and at last refused",
        text="Put the licence server's token (and gridd.conf) in place and start the client again; "
        "in Kubernetes both go into the ConfigMap that the operator's `driver.licensingConfig` "
        "names",
        commands=("sudo systemctl restart nvidia-gridd",),
        look=("ls /etc/nvidia/ClientConfigToken", "nvidia-smi -q | grep -i license"),
        see="see the token and the state of the licence",
        needs_root=True,
        cases=(
            Message(
                where=(IN_KUBERNETES,),
                commands=(
                    "kubectl -n gpu-operator rollout restart daemonset/nvidia-driver-daemonset",
                ),
            ),
        ),
    ),
)


def vgpu_unlicensed(context: RuleContext) -> Iterator[Finding]:
    without = [g for g in gpus(context) if g.licensed is False and g.virtualization != "none"]
    said = (*events(context, "vgpu-unlicensed"), *marked(context, without, "name"))
    refused = cuda_errors(context, BUSY) or context.snapshot.cuda_api.init_code == BUSY
    if said:
        only = None if refused else Severity.WARNING
        who = which.titled(context, without)
        yield finding(context, VGPU_UNLICENSED, said, severity=only, who=who)


RULES = (
    mig_misconfigured,
    compute_mode,
    vgpu_unlicensed,
)
