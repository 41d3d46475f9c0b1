"""What a GPU is too old or too new for, GPUs of several kinds, and one that is partly at work."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import (
    RuleContext,
    event_evidence,
    events,
    gpus,
    is_cuda_build,
    is_report,
)
from gpusetup.findings.layers import Layer
from gpusetup.findings.record import Cause
from gpusetup.fixes import paste, which
from gpusetup.model.finding import Evidence, Finding, Fix, Severity
from gpusetup.model.machine import Gpu, visible_gpus
from gpusetup.model.versions import Capability, parsed

BF16_UNSUPPORTED = Cause(
    id="bf16-unsupported",
    place=(Layer.RUNNING, 100),
    title="no bfloat16 on this GPU",
    means="bfloat16 begins with compute capability 8.0.",
    proven_by="A capability below 8.0",
    way_out="float16 with a GradScaler",
    source="CUDA C++ Programming Guide, compute capabilities",
    explains=("cuda-library-error",),
    stage="first-kernel",
)


def no_bfloat16(context: RuleContext) -> Iterator[Finding]:
    said = event_evidence(events(context, "bf16-unsupported"))
    known = [g for g in visible_gpus(context.snapshot) if g.compute_capability is not None]
    old = [gpu for gpu in known if _below(gpu, Capability(8, 0))]
    if said and known and not old:
        yield BF16_UNSUPPORTED.as_note(
            f"{which.names(context)} has bfloat16: a program that denies it saw another or none",
            evidence=said,
        )
    elif said:
        yield BF16_UNSUPPORTED.found(
            f"bfloat16 was asked of {which.names(context)}, which has none (it begins with 8.0)",
            evidence=said,
            fix=Fix(
                text="Use float16 instead: `--dtype half` serves a model, `fp16=True` trains one"
            ),
        )
    elif old and is_cuda_build(context.snapshot.torch):
        yield BF16_UNSUPPORTED.as_note(
            f"{old[0].name} ({old[0].compute_capability}) has no bfloat16: use float16 with a "
            "GradScaler",
        )


GPU_TOO_OLD_FOR_TRITON = Cause(
    id="gpu-too-old-for-triton",
    place=(Layer.LIBRARIES, 160),
    title="too old for torch.compile",
    means="Triton needs compute capability 7.0.",
    proven_by="A capability below 7.0",
    way_out="Run eagerly",
    source="message of torch._inductor",
    stage="first-kernel",
)


def too_old_for_triton(context: RuleContext) -> Iterator[Finding]:
    old = [g for g in visible_gpus(context.snapshot) if _below(g, Capability(7, 0))]
    said = events(context, "gpu-too-old-for-triton")
    torch = context.snapshot.torch
    first = parsed(context.catalog.milestone("torch.compile"))
    compiles = is_cuda_build(torch) and parsed(torch.version or "99") >= first
    make = GPU_TOO_OLD_FOR_TRITON.found if said else GPU_TOO_OLD_FOR_TRITON.as_warning
    if said or (old and compiles):
        yield make(
            f"{which.titled(context, old)} is too old for torch.compile: Triton needs compute "
            "capability 7.0",
            evidence=(*event_evidence(said), *which.shown(context, old, "compute_capability")),
            fix=Fix(
                text='Run eagerly: leave torch.compile out, or use backend="eager"',
                commands=(paste.setting(context, "TORCHDYNAMO_DISABLE", "1"),),
            ),
        )


def _below(gpu: Gpu, least: Capability) -> bool:
    return gpu.compute_capability is not None and gpu.compute_capability < least


GPU_ORDER_DIFFERS = Cause(
    id="gpu-order-differs",
    severity=Severity.NOTE,
    title="CUDA counts GPUs otherwise than nvidia-smi",
    means="CUDA puts the fastest first unless CUDA_DEVICE_ORDER=PCI_BUS_ID.",
    proven_by="Several kinds of GPU and no such variable",
    way_out="Set CUDA_DEVICE_ORDER=PCI_BUS_ID",
    source="CUDA C++ Programming Guide, environment variables",
)


def mixed_gpus(context: RuleContext) -> Iterator[Finding]:
    """Several kinds of GPU in one machine: CUDA's order is not nvidia-smi's."""
    seen = (gpu.name for gpu in visible_gpus(context.snapshot))
    names = tuple(dict.fromkeys(name for name in seen if name not in which.UNNAMED))
    if len(names) > 1 and context.snapshot.environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        yield GPU_ORDER_DIFFERS.found(
            f"CUDA counts the fastest GPU first, nvidia-smi counts by PCI slot: {', '.join(names)}",
            evidence=(Evidence(source="environment", text="CUDA_DEVICE_ORDER is not PCI_BUS_ID"),),
            fix=Fix(
                text="Let both count alike",
                commands=(paste.setting(context, "CUDA_DEVICE_ORDER", "PCI_BUS_ID"),),
            ),
        )


GPU_HALF_BUSY = Cause(
    id="gpu-half-busy",
    severity=Severity.NOTE,
    title="the GPU works part of the time",
    means="It waits for data, for the host's launches, or for another GPU.",
    proven_by="A utilisation of 10 to 85 % in a text about nothing else",
    way_out="gpusetup monitor, gpusetup tune",
    source="the acceleration guide: utilisation near 100 %, memory 70 to 90 %, 70 to 85 °C",
)
WATCH = Fix(
    text="Memory below 70 % has room for a larger batch, and up to 85 °C nothing slows down. What "
    "it waits for: `gpusetup monitor -- COMMAND` watches a run; `gpusetup tune CONFIG` proposes "
    "batch, workers and precision, `--benchmark` measures what each gains"
)


def half_busy(context: RuleContext) -> Iterator[Finding]:
    """One line for each GPU: what utilisation, memory and heat tell."""
    for gpu in gpus(context) if is_report(context) and not context.snapshot.events else ():
        if 10 < (gpu.utilization_percent or 0) < 85:
            used = (100 * (gpu.memory_used_bytes or 0)) // (gpu.memory_total_bytes or 1)
            yield GPU_HALF_BUSY.found(
                f"{which.titled(context, [gpu])} works {gpu.utilization_percent} % of the time, "
                f"with {used} % of its memory in use, at {gpu.temperature_celsius or '?'} °C",
                fix=WATCH,
            )


RULES = (
    half_busy,
    no_bfloat16,
    too_old_for_triton,
    mixed_gpus,
)
