"""What a trace of the user's own code says: peaks by phase, what stands there, the largest batch.

A child (`child_scripts/trace_code.py`, started by `commands/plan_trace.py`) runs one training step
on fake tensors; here are its question, its answer and pure functions of them. Sizes are bytes on
one GPU, batches are samples on one GPU.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Literal

from gpusetup.errors import BadInput, Blocked, GpuSetupError, UsageError
from gpusetup.model.codec import from_json
from gpusetup.model.frozen import Frozen, replace
from gpusetup.plan.decide import largest

PHASES = ("forward", "backward", "optimizer")
STRATEGIES = ("single", "ddp", "zero1", "fsdp", "zero3")
"""The strategies that a trace can show; ZeRO 3 is what FSDP2 does."""
OPTIMIZERS = ("adamw", "adam", "sgd", "adafactor")
LARGEST = 1 << 40
"""A batch that nobody trains: where memory does not grow with the batch."""

Kind = Literal[
    "parameters", "gradients", "optimizer", "gathered", "batch", "activations", "backward",
    "step", "other",
]  # fmt: skip
"""What a storage is. `gathered`: parameters that FSDP2 has gathered. `backward`, `step`: passing
results of the backward pass and of the optimizer."""


class CodeRequest(Frozen):
    """What is traced, and how it is trained."""

    code: str
    """`MODULE:FUNCTION`; MODULE may be the path of a file."""
    batch: int
    """Samples on one GPU."""
    amp: Literal["bf16", "fp16"] | None = None
    checkpointing: bool = False
    strategy: str = "single"
    gpus: int = 1
    optimizer: str = "adamw"
    accumulate: int = 1
    """Micro-batches of one step; the last is traced, over the gradients of the others."""
    limit_bytes: int | None = None
    """What one GPU has for tensors; the further traces are made near it."""
    line: bool = True
    """Whether further batches are traced, as `largest_batch` needs."""
    foreach: bool = True
    """Whether optimizers work on all parameters at once, as they do on CUDA."""
    as_on: Literal["cuda", "cpu"] = "cuda"
    """Whose choice of dtypes autocast follows."""


class Standing(Frozen):
    """Bytes of one kind, made by or belonging to one module."""

    kind: Kind
    module: str
    bytes: int


class Traced(Frozen):
    """One step with one batch."""

    batch: int
    phases: Mapping[str, int]
    """`forward`, `backward`, `optimizer` -> most bytes at once."""
    peak_phase: str
    standing: tuple[Standing, ...]
    """What stands at the peak, the largest first."""
    parameters: int
    """How many."""
    trained_bytes: int
    """Bytes of the parameters that get gradients, on this GPU."""
    values_read: int = 0
    """How often the code read the value of a tensor; each was taken as 1.0."""
    compiled: bool = False
    """Whether the code asked for `torch.compile`, which was left out."""
    convolves: bool = False
    """Whether the model has more convolutions than linear layers."""

    @property
    def peak(self) -> int:
        return self.phases[self.peak_phase]


class Trace(Frozen):
    """Steps of the same code with different batches, the one that was asked for first."""

    torch: str
    traces: tuple[Traced, ...]
    refused: str | None = None
    """Why no further batch could be traced, where that is so."""

    @property
    def asked(self) -> Traced:
        return self.traces[0]


class _Trouble(Frozen):
    problem: str
    message: str
    where: str = ""
    trace: str = ""


class CodeFailed(BadInput):
    """The user's code raised; `trace` is its traceback, shown under `-v`."""

    def __init__(self, message: str, hint: str | None = None, trace: str = "") -> None:
        super().__init__(message, hint)
        self.trace = trace


# --- what the child is asked, and its answer ----------------------------------------------------


OVERRIDES = {
    "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1", "WANDB_MODE": "disabled", "PYTHONIOENCODING": "utf-8",
}  # fmt: skip
"""Variable -> its value in the child: no GPU is seen, nothing is fetched."""


def check(request: CodeRequest) -> None:
    """`UsageError` for a question that cannot be traced."""
    if not all(request.code.rpartition(":")):
        raise UsageError(
            f"`--code {request.code}` is not MODULE:FUNCTION",
            hint="for example `--code train:build`, or `--code path/to/train.py:build`",
        )
    for name, known in (("strategy", STRATEGIES), ("optimizer", OPTIMIZERS)):
        word = getattr(request, name)
        if word not in known:
            hint = f"a trace knows {', '.join(known)}"
            raise UsageError(f"`--{name} {word}` cannot be traced from code", hint=hint)
    if min(request.batch, request.gpus, request.accumulate) < 1:
        raise UsageError("the batch, the number of GPUs and `--accumulate` are at least 1")


def as_traced(request: CodeRequest) -> CodeRequest:
    """The request as the child takes it: what is not sharded is one GPU's step."""
    sharded = request.strategy in ("fsdp", "zero3") and request.gpus > 1
    return replace(request, strategy="fsdp" if sharded else "single")


def answer_of(request: CodeRequest, stdout: str, stderr: str, code: int | None) -> Trace:
    """Read the child's answer, or raise what it says went wrong."""
    line = stdout.strip().rpartition("\n")[2]
    if not line.startswith("{"):
        end = f"killed by signal {-code}" if code is not None and code < 0 else f"exit {code}"
        raise CodeFailed(f"`{request.code}` ended the trace ({end})", trace=stderr[-4000:])
    if line.startswith('{"problem"'):
        raise error_of(request, from_json(line, _Trouble, what="the trace's answer"))
    found = from_json(line, Trace, what="the trace's answer")
    if request.gpus == 1 or request.strategy not in ("ddp", "zero1"):
        return found
    share = 1 - 1 / request.gpus if request.strategy == "zero1" else 0.0
    return replace(found, traces=tuple(_shared(one, share) for one in found.traces))


RETURNS = (
    "the function takes the batch size (or nothing) and returns (model, batch), "
    "(model, batch, loss) or (model, batch, loss, optimizer)"
)
HINTS: dict[str, str] = {
    "Contract": RETURNS,
    "NoLoss": "return a third value: a function of the model's output and the target (for a pair) "
    "or the whole batch that gives one number",
    "gpu": "a trace sees no GPU: build the model and the batch on the CPU",
    "NoNetwork": "build the model from its configuration, or from files on this machine",
    "DataDependentOutputException": "a trace has shapes and no values: in place of a branch on a "
    "tensor's value write `torch.where(condition, a, b)`, or leave the check out of the step",
    "DynamicOutputShapeException": "a trace has shapes and no values: in place of a result whose "
    "length depends on values (`x[mask]`, `nonzero`, `unique`) write `x * mask` or "
    "`torch.where(mask, x, 0)`",
}
"""The child's name for a problem -> what to do."""


PLAIN = ("Contract", "NoLoss", "Untrained", "gpu")
"""Problems whose message says all; others are exceptions, shown with their name."""


def error_of(request: CodeRequest, trouble: _Trouble) -> GpuSetupError:
    """The error that says what the child ran into."""
    problem, said = trouble.problem, trouble.message
    if problem == "Question":
        return UsageError(said)
    if problem == "ModuleNotFoundError" and "'torch'" in said:
        return Blocked(
            "The target interpreter has no torch, and a trace needs one",
            hint="`gpusetup install`, or activate the environment that your code runs in",
        )
    place = f" ({trouble.where})" if trouble.where else ""
    if problem not in PLAIN:
        said = f"{problem}: {said}".rstrip(": ")
    what = f"`{request.code}` cannot be traced: {said}{place}"
    return CodeFailed(what, hint=HINTS.get(problem), trace=trouble.trace)


def _shared(one: Traced, share: float) -> Traced:
    """One GPU's step with DDP's second copy of the gradients, and ZeRO 1's share of the states.

    DDP keeps its buckets (`gradient_as_bucket_view` is off by default).
    """
    gone = round(by_kind(one).get("optimizer", 0) * share)
    kept = [
        replace(row, bytes=round(row.bytes * (1 - share))) if row.kind == "optimizer" else row
        for row in one.standing
    ]
    kept.append(Standing(kind="gradients", module="(buckets)", bytes=one.trained_bytes))
    return replace(
        one,
        phases={phase: size + one.trained_bytes - gone for phase, size in one.phases.items()},
        standing=tuple(sorted(kept, key=lambda row: -row.bytes)),
    )


# --- peaks and batches ---------------------------------------------------------------------------


def at_batch(found: Trace, batch: int, limit: float) -> float:
    """The most of any phase with a batch, by a line through the two traces nearest to a limit.

    The peak of a phase is the largest of several lines, so that the one near the limit counts.
    """
    one, two = sorted(found.traces, key=lambda each: abs(each.peak - limit))[:2]
    sizes = []
    for phase in PHASES:
        here, there = one.phases[phase], two.phases[phase]
        slope = max(0.0, (there - here) / (two.batch - one.batch))
        start = max(here - slope * one.batch, there - slope * two.batch)
        sizes.append(start + slope * batch)
    return max(sizes)


def largest_batch(found: Trace, limit: int) -> int:
    """The largest batch of one GPU whose every phase stays within `limit` bytes; 0: none does."""
    return largest(lambda batch: at_batch(found, batch, limit) <= limit, LARGEST)


def by_kind(one: Traced) -> Counter[str]:
    """Kind -> bytes at the peak."""
    held: Counter[str] = Counter()
    for row in one.standing:
        held[row.kind] += row.bytes
    return held


def by_module(one: Traced) -> tuple[Standing, ...]:
    """The ten largest at the peak, modules that differ only in their number together."""
    held: Counter[tuple[Kind, str]] = Counter()
    for row in one.standing:
        held[row.kind, re.sub(r"(?<![^.])\d+(?![^.])", "*", row.module)] += row.bytes
    ranked = sorted(held.items(), key=lambda item: (-item[1], item[0]))[:10]
    return tuple(Standing(kind=k, module=m, bytes=size) for (k, m), size in ranked)


def notes(found: Trace) -> tuple[str, ...]:
    """What the reader should know about the trace."""
    one = found.asked
    rows = (
        (one.values_read, f"the code reads a tensor's value (times: {one.values_read}); the trace "
         "took it as 1.0"),
        (one.compiled, "`torch.compile` was left out of the trace; a compiled step keeps less"),
        (one.convolves, "convolutions: cuDNN's own memory is not counted, often 10 to 15 % more"),
        (found.refused, f"no other batch could be traced: {found.refused}"),
    )  # fmt: skip
    return tuple(text for holds, text in rows if holds)
