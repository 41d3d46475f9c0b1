"""Sharing one GPU: MIG, compute modes, vGPU profiles and licences."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    asked_for_cuda,
    cuda_errors,
    event_evidence,
    events,
    gpus,
    numbered,
    on,
    value_evidence,
)
from gpusetup.evidence.plausible import is_an_identifier
from gpusetup.findings.layers import INIT_FAILS, Layer
from gpusetup.findings.record import Cause
from gpusetup.fixes import paste, which
from gpusetup.model.finding import Evidence, Finding, Fix
from gpusetup.model.machine import Event, Gpu, visible_gpus
from gpusetup.model.shell import Line, filled, lines

HIDES = "CUDA_VISIBLE_DEVICES"


INVALID_DEVICE = 101
"""cudaErrorInvalidDevice: of several MIG instances that are named, CUDA shows the first."""


def mig_misconfigured(context: RuleContext) -> Iterator[Finding]:
    """MIG is on and there is no instance to use, or several to choose from."""
    seen = unhidden(context)
    sliced = [gpu for gpu in seen if gpu.mig_enabled]
    chosen = context.snapshot.environment.get("CUDA_VISIBLE_DEVICES", "")
    said = events(context, "mig-misconfigured")
    messages = tuple(e for e in said if sliced or "MIG-" in chosen or "shown" not in e.values)
    if chosen.count("MIG-") > 1:
        messages = (*messages, *cuda_errors(context, INVALID_DEVICE))
    if messages:
        yield _mig_said(context, messages, sliced)
    if messages or not sliced:
        return
    empty = [gpu for gpu in sliced if instances(gpu) == 0]
    count = sum(instances(gpu) or 0 for gpu in sliced)
    left = [gpu for gpu in seen if not gpu.mig_enabled and gpu.visible is False]
    if empty:
        yield _mig_without_instances(context, empty, alone=len(empty) == len(seen))
    if (count > 1 or (count and left)) and not chosen.startswith("MIG-"):
        yield _mig_to_choose(context, [gpu for gpu in sliced if instances(gpu)], left)


def unhidden(context: RuleContext) -> list[Gpu]:
    """The GPUs that no variable hides: CUDA may leave one out for what is wrong with it."""
    hides = "CUDA_VISIBLE_DEVICES" in context.snapshot.environment
    seen = (gpu for gpu in gpus(context) if not (hides and gpu.visible is False))
    return [gpu for gpu in seen if not gpu.lost]


def instances(gpu: Gpu) -> int | None:
    """How many MIG instances a GPU has, named or counted; None where no source told.

    >>> instances(Gpu(name="A30", mig_instances=("MIG-1",))), instances(Gpu(name="A30"))
    (1, None)
    """
    return len(gpu.mig_instances) or gpu.mig_count


MIG_MISCONFIGURED = Cause(
    id="mig-misconfigured",
    place=(Layer.READINESS, 30),
    title="MIG without an instance, or several and none chosen",
    means="CUDA uses one MIG instance a process, and none of a GPU in MIG mode without instances.",
    proven_by="MIG on and no instance; several and no MIG- name in CUDA_VISIBLE_DEVICES",
    way_out="Create or name an instance",
    source='NVIDIA, "MIG User Guide"',
    explains=(*INIT_FAILS, "invalid-device-ordinal", "torch-internal-error"),
)


def mig_pending(context: RuleContext) -> Iterator[Finding]:
    """The MIG mode was changed, and waits for a reset of the GPU."""
    waiting = [gpu for gpu in unhidden(context) if gpu.mig_pending is not None]
    if waiting:
        then = "on" if waiting[0].mig_pending else "off"
        yield MIG_MISCONFIGURED.as_warning(
            f"MIG of {which.titled(context, waiting)} will be {then} after a reset, and is not yet",
            evidence=tuple(
                value_evidence(context, "gpus", f"{numbered(gpu)}: MIG mode waits for a reset")
                for gpu in waiting[:8]
            ),
            fix=Fix(
                text="Reset with nothing running on them (or reboot)",
                commands=(
                    filled(
                        "sudo nvidia-smi --gpu-reset -i {gpus}", gpus=which.selected(waiting) or "0"
                    ),
                ),
                needs_root=True,
            ),
        )


def _mig_said(context: RuleContext, messages: tuple[Event, ...], sliced: list[Gpu]) -> Finding:
    instances = tuple(one for gpu in sliced for one in gpu.mig_instances)
    return MIG_MISCONFIGURED.found(
        "MIG is on, and the process does not use exactly one MIG instance",
        detail="NVML counts the GPUs, CUDA the instances: torch's index is beyond what it sees.",
        evidence=(
            *event_evidence(messages),
            *(value_evidence(context, "gpus", f"{gpu.name}: MIG enabled") for gpu in sliced[:2]),
        ),
        fix=Fix(
            text="Name one instance (nvidia-smi -L lists them) in CUDA_VISIBLE_DEVICES; or switch "
            "MIG off on every GPU, as administrator, with nothing running: sudo nvidia-smi -mig 0",
            commands=_one_instance(context, instances),
            looks=paste.look("see the instances", *lines("nvidia-smi -L")),
        ),
    )


def _mig_without_instances(context: RuleContext, empty: list[Gpu], *, alone: bool) -> Finding:
    so = "CUDA cannot use them" if len(empty) > 1 else "CUDA cannot use it"
    return MIG_MISCONFIGURED.found(
        f"{which.titled(context, empty)} {which.are(empty)} in MIG mode and {which.have(empty)} no "
        f"compute instance: {'CUDA sees nothing' if alone else so}",
        evidence=tuple(
            value_evidence(context, "gpus", f"{numbered(gpu)}: MIG enabled, no instance")
            for gpu in empty[:8]
        ),
        fix=Fix(
            text="Create an instance of the whole GPU on each"
            if len(empty) > 1
            else "Create an instance of the whole GPU",
            commands=tuple(
                filled("sudo nvidia-smi mig -i {gpu} -cgi 0 -C", gpu=one)
                for one in which.each(empty)
            ),
            alternatives=paste.other(
                "switch MIG off, with nothing running on the GPU",
                *(filled("sudo nvidia-smi -i {gpu} -mig 0", gpu=one) for one in which.each(empty)),
            ),
            needs_root=True,
        ),
    )


def _one_instance(context: RuleContext, instances: tuple[str, ...]) -> tuple[Line, ...]:
    """The setting that names the first instance whose name is known."""
    named = [one for one in instances if is_an_identifier(one)]
    return (paste.setting(context, HIDES, named[0]),) if named else ()


def _mig_to_choose(context: RuleContext, sliced: list[Gpu], left: list[Gpu]) -> Finding:
    """How to choose an instance; `nvidia-smi -L` lists them where only their number is known."""
    names = tuple(one for gpu in sliced for one in gpu.mig_instances)
    count = sum(instances(gpu) or 0 for gpu in sliced)
    make = (
        MIG_MISCONFIGURED.found
        if context.snapshot.cuda_api.init_code
        else MIG_MISCONFIGURED.as_warning
    )
    return make(
        f"{which.titled(context, sliced)} {which.are(sliced)} cut into {count} MIG "
        f"instance{'s' if count > 1 else ''}: a process uses exactly one",
        detail="Without a choice it is the first one; torch may fail to match it with "
        "NVML's index."
        + (f" It cannot use {which.titled(context, left)} beside it." if left else ""),
        evidence=tuple(value_evidence(context, "gpus", f"MIG instance {one}") for one in names[:3])
        or tuple(
            value_evidence(context, "gpus", f"{numbered(gpu)}: {instances(gpu)} MIG instances")
            for gpu in sliced[:8]
        ),
        fix=Fix(
            text="Name one instance in CUDA_VISIBLE_DEVICES"
            + (", or the whole GPUs, by their UUIDs" if left else ""),
            commands=_one_instance(context, names),
            alternatives=() if names else paste.look("see the instances", *lines("nvidia-smi -L")),
        ),
    )


COMPUTE_MODE_EXCLUSIVE = Cause(
    id="compute-mode-exclusive",
    place=(Layer.READINESS, 130),
    title="the GPU takes one process at a time",
    means="Exclusive mode; with code 46 it is taken.",
    proven_by="Compute mode Exclusive_Process; code 46",
    way_out="End the other process, or set the mode to default",
    source="nvidia-smi's manual page; CUDA Driver API reference, CUresult",
)


def compute_mode(context: RuleContext) -> Iterator[Finding]:
    """A compute mode that keeps processes out."""
    shut = [gpu for gpu in unhidden(context) if _mode(gpu) == "prohibited"]
    taken = [gpu for gpu in unhidden(context) if _mode(gpu).startswith("exclusive")]
    virtual = [gpu for gpu in shut if _is_virtual(gpu)]
    real = [gpu for gpu in shut if gpu not in virtual]
    if virtual:
        yield _prohibited_virtual(context, virtual)
    if real:
        yield _prohibited(context, real)
    if taken:
        yield COMPUTE_MODE_EXCLUSIVE.as_warning(
            f"{which.titled(context, taken)} {which.are(taken)} in mode {taken[0].compute_mode}: "
            "one process at a time",
            evidence=_mode_lines(context, taken),
            fix=_compute_mode_default(taken),
        )


def _mode(gpu: Gpu) -> str:
    return (gpu.compute_mode or "").lower()


def _is_virtual(gpu: Gpu) -> bool:
    return (gpu.virtualization or "").lower() == "vgpu" or vgpu_profile(gpu) is not None


def _mode_lines(context: RuleContext, concerned: list[Gpu]) -> tuple[Evidence, ...]:
    return tuple(
        value_evidence(context, "gpus", f"{numbered(gpu)}: compute mode {gpu.compute_mode}")
        for gpu in concerned[:8]
    )


COMPUTE_MODE_PROHIBITED = Cause(
    id="compute-mode-prohibited",
    place=(Layer.READINESS, 50),
    title="the compute mode forbids compute",
    means="Set by an administrator.",
    proven_by="Compute mode Prohibited",
    not_when="vgpu-no-compute",
    way_out="nvidia-smi -c DEFAULT",
    source="nvidia-smi's manual page",
    explains=INIT_FAILS,
)


def _prohibited(context: RuleContext, shut: list[Gpu]) -> Finding:
    verb = "forbid" if len(shut) > 1 else "forbids"
    return COMPUTE_MODE_PROHIBITED.found(
        f"{which.titled(context, shut)} {verb} compute: compute mode {shut[0].compute_mode}",
        evidence=_mode_lines(context, shut),
        fix=_compute_mode_default(shut),
    )


VGPU_NO_COMPUTE = Cause(
    id="vgpu-no-compute",
    place=(Layer.READINESS, 40),
    title="the vGPU allows no CUDA",
    means="A and B profiles have no compute; without a licence neither have others.",
    proven_by="Code 801 or 102; compute mode Prohibited on a vGPU",
    way_out="A Q or C profile",
    source='NVIDIA, "Virtual GPU Software User Guide"',
    explains=(*INIT_FAILS, "compute-mode-prohibited"),
)


def _prohibited_virtual(context: RuleContext, shut: list[Gpu]) -> Finding:
    verb = "forbid" if len(shut) > 1 else "forbids"
    return VGPU_NO_COMPUTE.found(
        f"{which.titled(context, shut)} {verb} compute: compute mode {shut[0].compute_mode}",
        detail="A vGPU profile without compute shows that.",
        evidence=_mode_lines(context, shut),
        fix=Fix(text="Give the virtual machine a profile with compute (Q or C)"),
    )


def _compute_mode_default(concerned: list[Gpu]) -> Fix:
    return Fix(
        text="Set the compute mode to default",
        commands=tuple(
            filled("sudo nvidia-smi -i {gpu} -c DEFAULT", gpu=one) for one in which.each(concerned)
        ),
        needs_root=True,
    )


def vgpu_profile(gpu: Gpu) -> str | None:
    """The letter of a vGPU profile in its name: Q and C have CUDA, A and B have none.

    >>> vgpu_profile(Gpu(name="GRID T4-8A")), vgpu_profile(Gpu(name="NVIDIA A100-SXM4-40GB"))
    ('A', None)
    """
    name = gpu.name.strip()
    if not name.endswith(("A", "B", "C", "Q")):
        return None
    found = re.search(r"-\d{1,3}([ABCQ])$", name)
    return found.group(1) if found else None


def vgpu_without_cuda(context: RuleContext) -> Iterator[Finding]:
    """A vGPU profile for desktops or applications, where something looked for CUDA."""
    desktop = [gpu for gpu in visible_gpus(context.snapshot) if vgpu_profile(gpu) in ("A", "B")]
    if desktop and asked_for_cuda(context):
        yield VGPU_NO_COMPUTE.found(
            f"{desktop[0].name} is a vGPU profile without CUDA",
            evidence=(value_evidence(context, "gpus", f"profile {desktop[0].name}"),),
            fix=Fix(text="Give the virtual machine a profile with compute (Q or C)"),
        )


BUSY = 46
"""cudaErrorDevicesUnavailable, with which a vGPU without a licence answers after a while."""


VGPU_UNLICENSED = Cause(
    id="vgpu-unlicensed",
    place=(Layer.LOSSES, 10),
    title="a vGPU without a licence",
    means="Performance is cut down step by step.",
    proven_by="NVML says unlicensed",
    way_out="Licence token",
    source='NVIDIA, "Virtual GPU Client Licensing User Guide"',
    explains=(*INIT_FAILS, "compute-mode-exclusive"),
)


def _in_kubernetes(context: RuleContext) -> bool:
    return context.snapshot.container.kind == "kubernetes"


def _licence_text(context: RuleContext) -> str:
    if _in_kubernetes(context):
        return (
            "Put gridd.conf and the client's token into the ConfigMap that the operator's "
            "`driver.licensingConfig` names, and start the driver's pods again"
        )
    return (
        "Put the licence server's token (and gridd.conf) in place and start the client again; in "
        "Kubernetes the operator takes both from the licensing ConfigMap"
    )


def _licence_again(context: RuleContext) -> tuple[Line, ...]:
    if _in_kubernetes(context):
        return lines("kubectl -n gpu-operator rollout restart daemonset/nvidia-driver-daemonset")
    return lines("sudo systemctl restart nvidia-gridd") if on(context, "linux") else ()


def vgpu_unlicensed(context: RuleContext) -> Iterator[Finding]:
    unlicensed = [
        gpu
        for gpu in gpus(context)
        if gpu.licensed is False and (gpu.virtualization or "") != "none"
    ]
    messages = events(context, "vgpu-unlicensed")
    if unlicensed or messages:
        name = f"{unlicensed[0].name} is a" if unlicensed else "The GPU is a"
        refused = cuda_errors(context, BUSY) or context.snapshot.cuda_api.init_code == BUSY
        so = "CUDA is refused" if refused else "it is slowed down after 20 minutes"
        make = VGPU_UNLICENSED.found if refused else VGPU_UNLICENSED.as_warning
        yield make(
            f"{name} vGPU without a licence: {so}",
            evidence=(
                *event_evidence(messages),
                *(
                    value_evidence(context, "gpus", f"{numbered(g)}: unlicensed")
                    for g in unlicensed[:1]
                ),
            ),
            fix=Fix(
                text=_licence_text(context),
                commands=_licence_again(context),
                looks=paste.look(
                    "see the token and the state of the licence",
                    *paste.posix(
                        context,
                        "ls /etc/nvidia/ClientConfigToken",
                        "nvidia-smi -q | grep -i license",
                    ),
                ),
                needs_root=True,
            ),
        )


RULES = (
    mig_misconfigured,
    mig_pending,
    compute_mode,
    vgpu_without_cuda,
    vgpu_unlicensed,
)
