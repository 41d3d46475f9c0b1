"""What a GPU is too old for, and GPUs of several kinds."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import RuleContext, gpus, is_cuda_build, is_report
from gpusetup.findings.layers import Layer
from gpusetup.findings.message_rules import finding, from_messages, marked, seen, shown
from gpusetup.findings.record import Cause, Message
from gpusetup.fixes import which
from gpusetup.model.finding import Finding, Severity
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
    message=Message(
        title="{gpus} has no bfloat16: it begins with compute capability 8.0",
        plain="The GPU has no bfloat16: it begins with compute capability 8.0",
        text="Use float16 instead: `--dtype half` serves a model, `fp16=True` trains one",
        cases=(
            Message(
                where=(lambda context: _is_new(context),),
                title="{gpus} has bfloat16: a program that denies it saw another or none",
                severity=Severity.NOTE,
            ),
        ),
    ),
)


def _is_new(context: RuleContext) -> bool:
    known = [g.compute_capability for g in visible_gpus(context.snapshot) if g.compute_capability]
    return bool(known) and min(known) >= Capability(8, 0)


def no_bfloat16(context: RuleContext) -> Iterator[Finding]:
    yield from from_messages(context, (BF16_UNSUPPORTED,))
    old = _below(context, Capability(8, 0))
    if old and is_cuda_build(context.snapshot.torch):
        evidence = marked(context, old, "name", "compute_capability")
        name = old[0].name
        yield finding(context, BF16_UNSUPPORTED, evidence, severity=Severity.NOTE, gpus=name)


def _below(context: RuleContext, least: Capability) -> list[Gpu]:
    seen = visible_gpus(context.snapshot)
    return [g for g in seen if g.compute_capability and g.compute_capability < least]


GPU_TOO_OLD_FOR_TRITON = Cause(
    id="gpu-too-old-for-triton",
    place=(Layer.LIBRARIES, 160),
    title="too old for torch.compile",
    means="Triton needs compute capability 7.0.",
    proven_by="A capability below 7.0",
    way_out="Run eagerly",
    source="message of torch._inductor",
    stage="first-kernel",
    message=Message(
        title="{gpus} is too old for torch.compile: Triton needs compute capability 7.0",
        plain="The GPU is too old for torch.compile: Triton needs compute capability 7.0",
        text='Run eagerly: leave torch.compile out, or use backend="eager"',
        commands=("export TORCHDYNAMO_DISABLE=1",),
    ),
)


def too_old_for_triton(context: RuleContext) -> Iterator[Finding]:
    yield from from_messages(context, (GPU_TOO_OLD_FOR_TRITON,))
    old, torch = _below(context, Capability(7, 0)), context.snapshot.torch
    first = parsed(context.catalog.milestone("torch.compile"))
    if old and is_cuda_build(torch) and parsed(torch.version or "99") >= first:
        said = marked(context, old, "compute_capability")
        only, name = Severity.WARNING, which.titled(context, old)
        yield finding(context, GPU_TOO_OLD_FOR_TRITON, said, severity=only, gpus=name)


GPU_ORDER_DIFFERS = Cause(
    id="gpu-order-differs",
    severity=Severity.NOTE,
    title="CUDA counts GPUs otherwise than nvidia-smi",
    means="CUDA puts the fastest first unless CUDA_DEVICE_ORDER=PCI_BUS_ID.",
    proven_by="Several kinds of GPU and no such variable",
    way_out="Set CUDA_DEVICE_ORDER=PCI_BUS_ID",
    source="CUDA C++ Programming Guide, environment variables",
    message=Message(
        title="CUDA counts the fastest GPU first, nvidia-smi counts by PCI slot: {names}",
        text="Let both count alike",
        commands=("export CUDA_DEVICE_ORDER=PCI_BUS_ID",),
    ),
)


def mixed_gpus(context: RuleContext) -> Iterator[Finding]:
    """Several kinds of GPU in one machine: CUDA's order is not nvidia-smi's."""
    names = {gpu.name for gpu in visible_gpus(context.snapshot)} - {*which.UNNAMED}
    if len(names) > 1 and context.snapshot.environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        listed = ", ".join(sorted(names))
        yield seen(context, GPU_ORDER_DIFFERS, "gpus", listed, names=listed)


GPU_HALF_BUSY = Cause(
    id="gpu-half-busy",
    severity=Severity.NOTE,
    title="the GPU works part of the time",
    means="It waits for data, for the host's launches, or for another GPU.",
    proven_by="A utilisation of 10 to 85 % in a text about nothing else",
    way_out="gpusetup monitor, gpusetup tune",
    source="the acceleration guide: utilisation near 100 %, memory 70 to 90 %, 70 to 85 °C",
    message=Message(
        title="{who} works {busy} % of the time, with {used} % of its memory in use, at {heat} °C",
        text="Memory below 70 % has room for a larger batch, and up to 85 °C nothing slows down. "
        "What it waits for: `gpusetup monitor -- COMMAND` watches a run; `gpusetup tune CONFIG` "
        "proposes batch, workers and precision, `--benchmark` measures what each gains",
    ),
)


def half_busy(context: RuleContext) -> Iterator[Finding]:
    """One line for each GPU: what utilisation, memory and heat tell."""
    for gpu in gpus(context) if is_report(context) and not context.snapshot.events else ():
        if 10 < (gpu.utilization_percent or 0) < 85:
            busy, heat = f"{gpu.utilization_percent}", f"{gpu.temperature_celsius or '?'}"
            used = f"{100 * (gpu.memory_used_bytes or 0) // (gpu.memory_total_bytes or 1)}"
            who, text = which.titled(context, [gpu]), f"{busy} % busy"
            said = shown(context, "gpus", text, who=who, busy=busy, used=used, heat=heat)
            yield finding(context, GPU_HALF_BUSY, (said,))


RULES = (
    half_busy,
    no_bfloat16,
    too_old_for_triton,
    mixed_gpus,
)
