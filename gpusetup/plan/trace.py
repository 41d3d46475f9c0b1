"""What a trace of the user's own code says: peaks by phase, what stands there, the largest batch.

A child (`child_scripts/trace_code.py`, started by `commands/plan_trace.py`) runs one training step
on fake tensors; here are its question, its answer and pure functions of them. Sizes are bytes on
one GPU, batches are samples on one GPU.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Literal

from gpusetup.errors import BadInput, Blocked, GpuSetupError, UsageError
from gpusetup.model.frozen import Frozen
from gpusetup.model.units import GIB

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
    paged_bytes: int = 0
    """States of a paged optimizer, which leave the GPU when the rest needs the room."""
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
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "WANDB_MODE": "disabled",
    "PYTHONIOENCODING": "utf-8",
}
"""Variable -> its value in the child: no GPU is seen, nothing is fetched."""


def environment(present: Mapping[str, str]) -> dict[str, str]:
    """The child's environment."""
    return {**present, **OVERRIDES}


def check(request: CodeRequest) -> None:
    """`UsageError` for a question that cannot be traced."""
    place, colon, name = request.code.rpartition(":")
    if not (place and colon and name):
        raise UsageError(
            f"`--code {request.code}` is not MODULE:FUNCTION",
            hint="for example `--code train:build`, or `--code path/to/train.py:build`",
        )
    rows = (
        (request.strategy in STRATEGIES, f"`--strategy {request.strategy}`", STRATEGIES),
        (request.optimizer in OPTIMIZERS, f"`--optimizer {request.optimizer}`", OPTIMIZERS),
    )
    for known, flag, names in rows:
        if not known:
            raise UsageError(
                f"{flag} cannot be traced from code", hint=f"a trace knows {', '.join(names)}"
            )
    if min(request.batch, request.gpus, request.accumulate) < 1:
        raise UsageError("the batch, the number of GPUs and `--accumulate` are at least 1")


def as_traced(request: CodeRequest) -> CodeRequest:
    """The request as the child takes it: what is not sharded is one GPU's step."""
    from gpusetup.model.frozen import replace

    sharded = request.strategy in ("fsdp", "zero3") and request.gpus > 1
    return replace(request, strategy="fsdp" if sharded else "single")


def answer_of(request: CodeRequest, stdout: str, stderr: str, code: int | None) -> Trace:
    """Read the child's answer, or raise what it says went wrong."""
    from gpusetup.model.codec import from_json

    line = stdout.strip().rpartition("\n")[2]
    if not line.startswith("{"):
        raise CodeFailed(f"`{request.code}` ended the trace ({ending(code)})", trace=stderr[-4000:])
    if line.startswith('{"problem"'):
        raise error_of(request, from_json(line, _Trouble, what="the trace's answer"))
    return adjusted(request, from_json(line, Trace, what="the trace's answer"))


def ending(code: int | None) -> str:
    """How a child that gave no answer ended.

    >>> ending(3), ending(-11)
    ('exit 3', 'killed by signal 11')
    """
    return f"killed by signal {-code}" if code is not None and code < 0 else f"exit {code}"


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
    if trouble.problem == "question":
        return UsageError(trouble.message)
    if trouble.problem == "ModuleNotFoundError" and "'torch'" in trouble.message:
        return Blocked(
            "The target interpreter has no torch, and a trace needs one",
            hint="`gpusetup install`, or activate the environment that your code runs in",
        )
    place = f" ({trouble.where})" if trouble.where else ""
    named = trouble.problem in PLAIN
    said = trouble.message if named else f"{trouble.problem}: {trouble.message}".rstrip(": ")
    return CodeFailed(
        f"`{request.code}` cannot be traced: {said}{place}",
        hint=HINTS.get(trouble.problem),
        trace=trouble.trace,
    )


# --- what a strategy adds to one GPU's step ------------------------------------------------------


def adjusted(request: CodeRequest, found: Trace) -> Trace:
    """The trace of one GPU's step with what DDP or ZeRO 1 change on it.

    DDP keeps the gradients a second time in its buckets (`gradient_as_bucket_view` is off by
    default). ZeRO 1 divides the optimizer's states among the GPUs. FSDP2 was traced itself.
    """
    from gpusetup.model.frozen import replace

    if request.gpus == 1 or request.strategy not in ("ddp", "zero1"):
        return found
    share = 1 - 1 / request.gpus if request.strategy == "zero1" else 0.0
    return replace(found, traces=tuple(_shared(one, share) for one in found.traces))


def _shared(one: Traced, share: float) -> Traced:
    from gpusetup.model.frozen import replace

    states = sum(row.bytes for row in one.standing if row.kind == "optimizer")
    difference = one.trained_bytes - round(states * share)
    kept = (
        replace(row, bytes=round(row.bytes * (1 - share))) if row.kind == "optimizer" else row
        for row in one.standing
    )
    buckets = Standing(kind="gradients", module="(buckets)", bytes=one.trained_bytes)
    return replace(
        one,
        phases={phase: size + difference for phase, size in one.phases.items()},
        standing=tuple(sorted((*kept, buckets), key=lambda row: -row.bytes)),
    )


# --- peaks and batches ---------------------------------------------------------------------------


class Line(Frozen):
    """How the peak of one phase grows: bytes = fixed + a_sample * batch."""

    fixed: float
    a_sample: float

    def at(self, batch: int) -> float:
        return self.fixed + self.a_sample * batch

    def batch_within(self, limit: int) -> int:
        """The largest batch whose peak is at most `limit`; 0 where not even one sample fits.

        >>> Line(fixed=10, a_sample=4).batch_within(31), Line(fixed=10, a_sample=4).batch_within(9)
        (5, 0)
        """
        if self.a_sample <= 0:
            return LARGEST if self.fixed <= limit else 0
        return max(0, int((limit - self.fixed) // self.a_sample))


def line_through(one: Traced, two: Traced, phase: str) -> Line:
    """The line of a phase through two batches; flat where it does not grow."""
    difference = two.batch - one.batch
    a_sample = max(0.0, (two.phases[phase] - one.phases[phase]) / difference)
    fixed = two.phases[phase] - a_sample * two.batch
    return Line(fixed=max(fixed, one.phases[phase] - a_sample * one.batch), a_sample=a_sample)


def lines(found: Trace, limit: int | None = None) -> dict[str, Line]:
    """Phase -> its line, through the two batches nearest to the limit (None: the first two).

    The peak of a phase is the largest of several lines, so that the one near the limit counts.
    """
    near = sorted(found.traces, key=lambda one: 0 if limit is None else abs(one.peak - limit))
    if len(near) < 2:
        raise ValueError("a line needs two traces")
    return {phase: line_through(near[0], near[1], phase) for phase in PHASES}


def largest_batch(found: Trace, limit: int) -> int:
    """The largest batch of one GPU whose every phase stays within `limit` bytes; 0: none does."""
    return min(line.batch_within(limit) for line in lines(found, limit).values())


def by_kind(one: Traced) -> dict[str, int]:
    """Kind -> bytes at the peak, the largest first."""
    held: dict[str, int] = defaultdict(int)
    for row in one.standing:
        held[row.kind] += row.bytes
    return dict(sorted(held.items(), key=lambda item: -item[1]))


def by_module(one: Traced, rows: int = 10) -> tuple[Standing, ...]:
    """What stands at the peak, modules that differ only in their number together; the largest."""
    held: dict[tuple[Kind, str], int] = defaultdict(int)
    for row in one.standing:
        held[row.kind, pattern(row.module)] += row.bytes
    ranked = sorted(held.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Standing(kind=k, module=m, bytes=size) for (k, m), size in ranked[:rows])


def pattern(module: str) -> str:
    """A module's name with its numbers as stars.

    >>> pattern("model.layers.17.mlp.up"), pattern("")
    ('model.layers.*.mlp.up', '')
    """
    return ".".join("*" if part.isdigit() else part for part in module.split("."))


def notes(found: Trace) -> tuple[str, ...]:
    """What the reader should know about the trace."""
    said = []
    if found.asked.values_read:
        times = "once" if found.asked.values_read == 1 else f"{found.asked.values_read} times"
        said.append(f"the code reads a tensor's value {times}; the trace took it as 1.0")
    if found.asked.compiled:
        said.append("`torch.compile` was left out of the trace; a compiled step keeps less")
    if found.asked.paged_bytes:
        size = found.asked.paged_bytes / GIB
        said.append(f"{size:.1f} GiB of paged optimizer states are the host's, and not counted")
    if found.asked.convolves:
        said.append("convolutions: cuDNN's own memory is not counted, with which nine published "
                    "networks took 10 to 15 % more")  # fmt: skip
    if found.refused:
        said.append(f"no other batch could be traced: {found.refused}")
    return tuple(said)
