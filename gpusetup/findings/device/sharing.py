"""Sharing one GPU: MIG, compute modes, vGPU profiles and licences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpusetup.evidence.context import (
    RuleContext,
    asked_for_cuda,
    cuda_errors,
    event_evidence,
    events,
    gpus,
    on,
)
from gpusetup.evidence.plausible import is_an_identifier
from gpusetup.findings.layers import INIT_FAILS, Layer
from gpusetup.findings.record import Cause
from gpusetup.fixes import paste, which
from gpusetup.model.finding import Finding, Fix
from gpusetup.model.machine import Gpu, visible_gpus
from gpusetup.model.shell import Line, filled, lines

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
)


def mig_misconfigured(context: RuleContext) -> Iterator[Finding]:
    """MIG is on and there is no instance to use, or several to choose from."""
    seen = unhidden(context)
    sliced = [gpu for gpu in seen if gpu.mig_enabled]
    empty = [gpu for gpu in sliced if instances(gpu) == 0]
    cut = [gpu for gpu in sliced if instances(gpu)]
    left = [gpu for gpu in seen if not gpu.mig_enabled and gpu.visible is False]
    chosen = context.snapshot.environment.get(HIDES, "")
    said = events(context, "mig-misconfigured")
    said = tuple(e for e in said if sliced or "MIG-" in chosen or "shown" not in e.values)
    if chosen.count("MIG-") > 1:
        said = (*said, *cuda_errors(context, INVALID_DEVICE))
    several = sum(instances(gpu) or 0 for gpu in cut) > 1 or bool(cut and left)
    if empty and not said:
        yield MIG_MISCONFIGURED.found(
            f"{which.titled(context, empty)} {which.have(empty)} MIG on and no compute instance: "
            "CUDA cannot use it",
            evidence=which.shown(context, empty, *MIG),
            fix=Fix(
                text="Create an instance of the whole GPU",
                commands=_for_each(empty, "sudo nvidia-smi mig -i {gpu} -cgi 0 -C"),
                alternatives=paste.other(
                    "switch MIG off, with nothing running on the GPU",
                    *_for_each(empty, "sudo nvidia-smi -i {gpu} -mig 0"),
                ),
                needs_root=True,
            ),
        )
    if said or (several and not chosen.startswith("MIG-")):
        fails = said or context.snapshot.cuda_api.init_code
        make = MIG_MISCONFIGURED.found if fails else MIG_MISCONFIGURED.as_warning
        named = [one for gpu in sliced for one in gpu.mig_instances if is_an_identifier(one)]
        yield make(
            "MIG is on, and the process does not use exactly one MIG instance",
            detail="NVML counts the GPUs, CUDA the instances: torch's index is beyond what it "
            "sees. Without a choice CUDA takes the first instance, and no whole GPU beside it.",
            evidence=(*event_evidence(said), *which.shown(context, sliced, *MIG)),
            fix=Fix(
                text="Name one instance (nvidia-smi -L lists them) in CUDA_VISIBLE_DEVICES, or the "
                "whole GPUs by their UUIDs; or switch MIG off on every GPU, as administrator, with "
                "nothing running: sudo nvidia-smi -mig 0",
                commands=tuple(paste.setting(context, HIDES, one) for one in named[:1]),
                looks=paste.look("see the instances", *lines("nvidia-smi -L")),
            ),
        )


MIG = ("mig_enabled", "mig_count", "mig_instances")


def _for_each(concerned: Sequence[Gpu], command: str) -> tuple[Line, ...]:
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


def mig_pending(context: RuleContext) -> Iterator[Finding]:
    """The MIG mode was changed, and waits for a reset of the GPU."""
    waiting = [gpu for gpu in unhidden(context) if gpu.mig_pending is not None]
    if waiting:
        yield MIG_MISCONFIGURED.as_warning(
            f"The MIG mode of {which.titled(context, waiting)} changes after a reset, and has not "
            "yet",
            evidence=which.shown(context, waiting, "mig_enabled", "mig_pending", "name"),
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


COMPUTE_MODE_EXCLUSIVE = Cause(
    id="compute-mode-exclusive",
    place=(Layer.READINESS, 130),
    title="the GPU takes one process at a time",
    means="Exclusive mode; with code 46 it is taken.",
    proven_by="Compute mode Exclusive_Process; code 46",
    way_out="End the other process, or set the mode to default",
    source="nvidia-smi's manual page; CUDA Driver API reference, CUresult",
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


def compute_mode(context: RuleContext) -> Iterator[Finding]:
    """A compute mode that keeps processes out; a vGPU profile without compute shows it too."""
    modes: dict[str, list[Gpu]] = {}
    for gpu in unhidden(context):
        mode = (gpu.compute_mode or "").lower()
        virtual = (gpu.virtualization or "").lower() == "vgpu" or vgpu_profile(gpu) is not None
        desktop = vgpu_profile(gpu) in ("A", "B") and gpu in visible_gpus(context.snapshot)
        if (virtual and mode == "prohibited") or (desktop and asked_for_cuda(context)):
            modes.setdefault("virtual", []).append(gpu)
        else:
            modes.setdefault(mode.partition("_")[0], []).append(gpu)
    for mode, make, what in (
        ("virtual", VGPU_NO_COMPUTE.found, "a vGPU profile without CUDA"),
        ("prohibited", COMPUTE_MODE_PROHIBITED.found, "a compute mode that forbids compute"),
        ("exclusive", COMPUTE_MODE_EXCLUSIVE.as_warning, "a mode for one process at a time"),
    ):
        if held := modes.get(mode):
            yield make(
                f"{which.titled(context, held)} {which.have(held)} {what}",
                evidence=which.shown(context, held, "name", "compute_mode"),
                fix=Fix(text="Give the virtual machine a profile with compute (Q or C)")
                if mode == "virtual"
                else Fix(
                    text="Set the compute mode to default",
                    commands=_for_each(held, "sudo nvidia-smi -i {gpu} -c DEFAULT"),
                    needs_root=True,
                ),
            )


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
)


def vgpu_unlicensed(context: RuleContext) -> Iterator[Finding]:
    without = [g for g in gpus(context) if g.licensed is False and g.virtualization != "none"]
    said = events(context, "vgpu-unlicensed")
    refused = cuda_errors(context, BUSY) or context.snapshot.cuda_api.init_code == BUSY
    pods = context.snapshot.container.kind == "kubernetes"
    make = VGPU_UNLICENSED.found if refused else VGPU_UNLICENSED.as_warning
    if without or said:
        yield make(
            f"{which.titled(context, without)}: a vGPU without a licence is slowed down after 20 "
            "minutes, and at last refused",
            evidence=(*event_evidence(said), *which.shown(context, without, "name")),
            fix=Fix(
                text="Put the licence server's token (and gridd.conf) in place and start the "
                "client again; in Kubernetes both go into the ConfigMap that the operator's "
                "`driver.licensingConfig` names",
                commands=lines(OPERATOR if pods else "sudo systemctl restart nvidia-gridd")
                if pods or on(context, "linux")
                else (),
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


OPERATOR = "kubectl -n gpu-operator rollout restart daemonset/nvidia-driver-daemonset"


RULES = (
    mig_misconfigured,
    mig_pending,
    compute_mode,
    vgpu_unlicensed,
)
