"""Xids after which a GPU hangs, or that a program brings about itself."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    event_evidence,
    events,
    gpus,
)
from gpusetup.findings.device.faults import (
    bug_report,
    concerned_gpus,
    recommended_lines,
    reset,
)
from gpusetup.findings.layers import KERNELS_FAIL, NCCL_SAYS, Layer
from gpusetup.findings.record import Cause
from gpusetup.fixes import paste, which
from gpusetup.model.finding import Finding, Fix, Severity

HANGS = {
    "8": "it stopped processing",
    "38": "the context switch firmware waited in vain",
    "44": "a fault while it switched contexts",
    "46": "it stopped processing",
    "109": "a context switch timed out",
}

PROGRAM_XIDS = (
    *("11", "13", "25", "31", "32", "37", "39", "40", "41", "43", "45", "60", "66", "67", "68"),
    *("69", "70", "71", "72", "75", "76", "77", "82", "83", "84", "85", "86", "88", "89", "137"),
    *("141",),
)
"""Those that a program causes itself, and that end with it (the catalog: restart it, ignore)."""


GPU_HANG = Cause(
    id="gpu-hang",
    kind_of="hardware-fault",
    place=(Layer.HARDWARE, 50),
    title="the GPU hung",
    means="A kernel that does not end, a fault of the driver, or a GPU that is not stable.",
    proven_by="Xid 8, 38, 44, 46, 109",
    not_when="gpu-fell-off-bus, gsp-timeout, hardware-fault, ecc-error: then that is why",
    way_out="End the program, reset the GPU, update the driver; then look at the hardware",
    source='NVIDIA, "Xid Errors", catalog',
    explains=(*KERNELS_FAIL, *NCCL_SAYS),
)


def gpu_hang(context: RuleContext) -> Iterator[Finding]:
    """The GPU, or one channel of it, went no further."""
    messages = tuple(e for e in events(context, "xid") if e.values.get("number") in HANGS)
    if messages:
        number = messages[0].values["number"]
        concerned = concerned_gpus(context, [], messages)
        who = (
            which.titled(context, concerned) if len(gpus(context)) > 1 and concerned else "The GPU"
        )
        yield GPU_HANG.found(
            f"{who} hung: {HANGS[number]} (Xid {number})",
            detail="A kernel that does not end, a fault of the driver, or a GPU that is not stable "
            "(overclocking, power, heat).",
            evidence=(*event_evidence(messages), *recommended_lines(context)),
            fix=Fix(
                text="End the program and reset the GPU, or reboot (a GPU that drives a display "
                "cannot be reset); update the driver. If other programs hang it too: take back "
                "overclocking, look at power and heat, and have the GPU examined",
                commands=reset(context, which.at_slots(context, messages)),
                looks=bug_report(context),
                needs_root=True,
                needs_reboot=True,
            ),
        )


XID_OF_A_PROGRAM = Cause(
    id="xid-of-a-program",
    severity=Severity.NOTE,
    title="Xids that a program's own fault causes",
    means="A bad address or a killed process.",
    proven_by="Xid 11, 13, 31, 32, 43, 45, 68, 69 and those of the copy and video engines",
    not_when="hardware-fault",
    way_out="Nothing on the machine",
    source='NVIDIA, "Xid Errors"',
    kind_of="cuda-program-error",
)


def program_xid(context: RuleContext) -> Iterator[Finding]:
    messages = tuple(e for e in events(context, "xid") if e.values.get("number") in PROGRAM_XIDS)
    if messages:
        numbers = sorted({e.values["number"] for e in messages}, key=int)
        yield XID_OF_A_PROGRAM.found(
            f"The kernel log holds Xids that a program's own fault causes: {', '.join(numbers)}",
            detail="A bad address, an illegal instruction, a kill; the GPU works on.",
            evidence=event_evidence(messages),
            fix=Fix(
                text="Start the program again; if it comes back, find the kernel that fails: with "
                "this setting the traceback names it, and so does `compute-sanitizer`, slowly",
                commands=(paste.setting(context, "CUDA_LAUNCH_BLOCKING", "1"),),
            ),
        )


RULES = (
    gpu_hang,
    program_xid,
)
