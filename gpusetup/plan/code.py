"""A trace of the user's code and a GPU -> the public answer of `plan --code`. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Literal

from gpusetup.errors import BadInput, Blocked, GpuSetupError, UsageError
from gpusetup.model.codec import from_json
from gpusetup.model.documents import CodePart, CodePlan, Help, PlanCell, PlanMemory
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.units import GIB
from gpusetup.plan.answer import ENV
from gpusetup.plan.decide import CLEAR, largest
from gpusetup.plan.job import Recipe
from gpusetup.plan.measured import NONE
from gpusetup.plan.memory import CONTEXT, NCCL
from gpusetup.plan.place import Place

PHASES = ("forward", "backward", "optimizer")
STRATEGIES = ("single", "ddp", "fsdp", "zero3")  # ZeRO 3 is what FSDP2 does
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
    standing: tuple[Standing, ...]
    """What stands at the peak."""
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
    def peak_phase(self) -> str:
        return max(PHASES, key=lambda phase: self.phases[phase])

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
    if request.gpus == 1 or request.strategy != "ddp":
        return found
    return replace(found, traces=tuple(map(_with_buckets, found.traces)))


HINTS: dict[str, str] = {
    "Contract": "the function takes the batch size (or nothing) and returns (model, batch), "
    "(model, batch, loss) or (model, batch, loss, optimizer)",
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


def _with_buckets(one: Traced) -> Traced:
    """One GPU's step with DDP's second copy of the gradients.

    DDP keeps its buckets (`gradient_as_bucket_view` is off by default).
    """
    more = Standing(kind="gradients", module="(buckets)", bytes=one.trained_bytes)
    return replace(
        one,
        phases={phase: size + one.trained_bytes for phase, size in one.phases.items()},
        standing=(*one.standing, more),
    )


def at_batch(found: Trace, batch: int) -> float:
    """The most of any phase with a batch, by a line through the two traces."""
    one, two = found.traces[:2]
    sizes = []
    for phase in PHASES:
        here, there = one.phases[phase], two.phases[phase]
        slope = max(0.0, (there - here) / (two.batch - one.batch))
        sizes.append(max(here + slope * (batch - one.batch), there + slope * (batch - two.batch)))
    return max(sizes)


def by_kind(one: Traced) -> Counter[str]:
    """Kind -> bytes at the peak."""
    held: Counter[str] = Counter()
    for row in one.standing:
        held[row.kind] += row.bytes
    return held


def by_module(one: Traced) -> tuple[CodePart, ...]:
    """The ten largest at the peak, modules that differ only in their number together."""
    held: Counter[tuple[str, str]] = Counter()
    for row in one.standing:
        held[row.kind, re.sub(r"(?<![^.])\d+(?![^.])", "*", row.module)] += row.bytes
    ranked = sorted(held.items(), key=lambda item: (-item[1], item[0]))[:10]
    return tuple(CodePart(kind=k, module=m, gib=round(size / GIB, 3)) for (k, m), size in ranked)


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


SOURCE = "predicted by tracing one step of the code on tensors without values"
PASSING = ("activations", "backward", "step")
"""The kinds that come and go within a step, and leave gaps behind."""
FRAGMENTATION = 0.1
"""The share of what comes and goes that segments of fixed size may leave unusable: an assumption,
never compared with a GPU. Expandable segments (Env) leave none of note."""


class CodeAsked(Frozen):
    """What the answer is about, beside the trace."""

    request: CodeRequest
    place: Place
    solved: bool = False
    """Whether the largest batch was asked for."""

    @property
    def env(self) -> bool:
        """Whether expandable segments work there."""
        return self.place.limits().env

    @property
    def overhead(self) -> float:
        """CUDA's context and NCCL's buffers."""
        return CONTEXT + NCCL * (self.request.gpus > 1)


def fragmentation(one: Traced, recipe: Recipe) -> float:
    """What a recipe leaves unusable, in bytes."""
    held = by_kind(one)
    return 0.0 if recipe.env else FRAGMENTATION * sum(held.get(kind, 0) for kind in PASSING)


def total(one: Traced, recipe: Recipe, asked: CodeAsked) -> float:
    return one.peak + fragmentation(one, recipe) + asked.overhead


def best_batch(found: Trace, asked: CodeAsked) -> int | None:
    """The largest batch of one GPU with expandable segments if they work; None: none was found."""
    if len(found.traces) < 2:
        return None
    room = (asked.place.capacity - asked.overhead) / (1 if asked.env else 1.1)
    batch = largest(lambda batch: at_batch(found, batch) <= room, LARGEST)
    return None if batch >= LARGEST - 1 else batch


def plan_of(found: Trace, asked: CodeAsked, best: int | None) -> PlanCell:
    """The answer. `best` is what `best_batch` said, of the trace that had several batches."""
    one, request, capacity = found.asked, asked.request, asked.place.capacity
    recipes = (Recipe(), Recipe(env=True))[: 1 + asked.env]
    sizes = {recipe: total(one, recipe, asked) for recipe in recipes}
    recipe = recipes[0] if sizes[recipes[0]] <= capacity else recipes[-1]
    fits = sizes[recipe] <= capacity
    close = any(abs(sizes[each] / capacity - 1) < CLEAR for each in (recipes[0], recipe))
    saves = round(fragmentation(one, recipe) / GIB, 3)
    return PlanCell(
        fits=fits,
        recipe=str(recipe) if fits else NONE,
        basis="predicted",
        confidence="close" if close else "clear",
        memory_gib=memory(one, recipe, asked),
        margin_percent=round(100 * (1 - sizes[recipe] / capacity), 2),
        env=ENV if fits and recipe.env else {},
        settings=settings(request, one) if fits else {},
        helps=(Help(step="Env", saves_gib=saves, recipe="Env"),)
        * (fits and not recipe.env and asked.env),
        advice=(*notes(found), *advice(found, asked, best, fits)),
        model=request.code,
        parameters=one.parameters,
        active_parameters=one.parameters,
        gpu=asked.place.gpu,
        gpus=request.gpus,
        context=0,
        batch=one.batch * request.gpus,
        strategy=request.strategy,
        source=SOURCE,
        solved="batch" if asked.solved else None,
        code=CodePlan(
            torch=found.torch,
            phases_gib={phase: round(size / GIB, 3) for phase, size in one.phases.items()},
            peak_phase=one.peak_phase,
            standing=by_module(one),
            largest_batch=None if best is None else best * request.gpus,
        ),
    )


def memory(one: Traced, recipe: Recipe, asked: CodeAsked) -> PlanMemory:
    """The peak by what it is for; logits are activations like others here."""
    held = by_kind(one)
    states = sum(held.get(k, 0) for k in ("parameters", "gradients", "optimizer", "gathered"))
    kept = held.get("activations", 0)
    values = {
        "states": states,
        "checkpoints": kept,
        "logits": 0,
        "fragmentation": fragmentation(one, recipe),
        "other": one.peak - states - kept + asked.overhead,
        "total": total(one, recipe, asked),
        "allocated": one.peak,
        "reserved": total(one, recipe, asked) - asked.overhead,
        "capacity": asked.place.capacity,
    }
    return PlanMemory(**{name: round(value / GIB, 3) for name, value in values.items()})


def settings(request: CodeRequest, one: Traced) -> dict[str, object]:
    """What the code must do so that the answer holds."""
    return {
        "strategy": "fsdp2" if request.strategy in ("fsdp", "zero3") else request.strategy,
        "gpus": request.gpus,
        "batch_per_gpu": one.batch,
        "mixed_precision": request.amp or "none",
        "gradient_checkpointing": request.checkpointing,
        **({"accumulate": request.accumulate} if request.accumulate > 1 else {}),
    }


def advice(found: Trace, asked: CodeAsked, best: int | None, fits: bool) -> tuple[str, ...]:
    """What would help where it does not fit, and what was not looked at."""
    request = asked.request
    rows = (
        (best is None and len(found.traces) > 1,
         "memory does not grow with the batch: any batch fits, or none"),
        (not fits and best, f"a batch of {(best or 0) * request.gpus} would fit"),
        (not fits and not request.checkpointing,
         "`--checkpointing` keeps only the inputs of the repeated blocks"),
        (not fits and request.amp is None, "`--amp bf16` computes in 16 bits"),
        (not fits and request.strategy == "ddp",
         "`--strategy fsdp` divides weights, gradients and states among the GPUs"),
    )  # fmt: skip
    return tuple(text for holds, text in rows if holds)
