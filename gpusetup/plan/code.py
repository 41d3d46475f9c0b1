"""A trace of the user's code and a GPU -> the public answer of `plan --code`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from gpusetup.errors import BadInput, Blocked, GpuSetupError, UsageError
from gpusetup.model.codec import from_json
from gpusetup.model.documents import CodePlan, PlanAnswer, PlanMemory
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.units import GIB
from gpusetup.plan.answer import ENV
from gpusetup.plan.decide import CLEAR, CLEAR_UNMEASURED, largest
from gpusetup.plan.job import Recipe
from gpusetup.plan.measured import NONE
from gpusetup.plan.memory import CUDA_CONTEXT, NCCL
from gpusetup.plan.place import Place

STRATEGIES = ("single", "ddp", "fsdp", "zero3")  # ZeRO 3 is what FSDP2 does
OPTIMIZERS = ("adamw", "adam", "sgd", "adafactor")
LARGEST = 1 << 40
"""A batch that nobody trains: where memory does not grow with the batch."""


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
    line: bool = True
    """Whether twice the batch is traced, too, as the largest batch needs."""


class Traced(Frozen):
    """One step with one batch on one GPU alone. Sizes are bytes."""

    batch: int
    phases: Mapping[str, int]
    """`forward`, `backward`, `optimizer` -> most at once."""
    passing: Mapping[str, int]
    """The same of all but weights, gradients and optimizer states."""
    kept: int
    """What the forward pass keeps for the backward pass."""
    states: int
    """Weights, buffers and optimizer states."""
    gradients: int
    gathered: int
    """What FSDP gathers at once: the repeated block that is largest, the next, and the rest."""
    parameters: int
    """How many."""
    values_read: int = 0
    """How often the code read the value of a tensor; each was taken as 1.0."""
    compiled: bool = False
    """Whether the code asked for `torch.compile`, which was left out."""
    convolves: bool = False
    """Whether the model has more convolutions than linear layers."""


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


def answer_of(request: CodeRequest, stdout: str, stderr: str, code: int | None) -> Trace:
    """Read the child's answer, or raise what it says went wrong."""
    line = stdout.strip().rpartition("\n")[2]
    if line.startswith('{"problem"'):
        raise error_of(request, from_json(line, _Trouble, what="the trace's answer"))
    if line.startswith("{"):
        return from_json(line, Trace, what="the trace's answer")
    if "No module named 'torch'" in stderr:
        raise Blocked(
            "The target interpreter has no torch, and a trace needs one",
            hint="`gpusetup install`, or activate the environment that your code runs in",
        )
    end = f"killed by signal {-code}" if code is not None and code < 0 else f"exit {code}"
    raise CodeFailed(f"`{request.code}` ended the trace ({end})", trace=stderr[-4000:])


HINTS: dict[str, str] = {
    "Contract": "the function takes the batch size (or nothing) and returns (model, batch), "
    "(model, batch, loss) or (model, batch, loss, optimizer)",
    "NoLoss": "return a third value: a function of the model's output and the target (for a pair) "
    "or the whole batch that gives one number",
    "TouchesGpu": "a trace sees no GPU: build the model and the batch on the CPU",
    "NoNetwork": "build the model from its configuration, or from files on this machine",
    "DataDependentOutputException": "a trace has shapes and no values: in place of a branch on a "
    "tensor's value write `torch.where(condition, a, b)`, or leave the check out of the step",
    "DynamicOutputShapeException": "a trace has shapes and no values: in place of a result whose "
    "length depends on values (`x[mask]`, `nonzero`, `unique`) write `x * mask` or "
    "`torch.where(mask, x, 0)`",
}
"""The child's name for a problem -> what to do."""
SAID = {"a trace makes no connection": "NoNetwork", "cuda": "TouchesGpu", "NVIDIA": "TouchesGpu"}
"""Words of a message -> the problem, if a library gave it another name."""


def error_of(request: CodeRequest, trouble: _Trouble) -> GpuSetupError:
    """The error that says what the child ran into."""
    problem, said = trouble.problem, trouble.message
    if problem == "Question":
        return UsageError(said)
    known = next((name for words, name in SAID.items() if words in said), problem)
    if problem not in ("Contract", "NoLoss", "TouchesGpu"):  # whose message says all
        said = f"{problem}: {said}".rstrip(": ")
    place = f" ({trouble.where})" if trouble.where else ""
    what = f"`{request.code}` cannot be traced: {said}{place}"
    return CodeFailed(what, hint=HINTS.get(known), trace=trouble.trace)


# --- one GPU of several ---------------------------------------------------------------------------


def sizes_of(one: Traced, request: CodeRequest) -> dict[str, float]:
    """Phase -> bytes at once on one GPU.

    DDP keeps its buckets, a second copy of the gradients (`gradient_as_bucket_view` is off by
    default). FSDP2 divides weights, gradients, states and the optimizer's step, and gathers two
    blocks and what is in none.
    """
    if request.gpus == 1 or request.strategy == "single":
        return dict(one.phases)
    if request.strategy == "ddp":
        return {phase: size + one.gradients for phase, size in one.phases.items()}
    forward, backward, step = one.passing.values()
    share = (one.states + one.gradients) / request.gpus
    less = one.gradients / request.gpus * (request.accumulate == 1)
    gathered = one.gathered / (2 if request.amp else 1)
    return {
        "forward": share - less + forward + gathered,
        "backward": share + backward + gathered,
        "optimizer": share + step / request.gpus,
    }


def at_batch(found: Trace, batch: int) -> Traced:
    """The step with another batch, by a line through the two traces, of which one is twice."""
    one, two = found.traces[:2]

    def line(here: int, there: int) -> int:
        return max(0, here + max(0, there - here) * (batch - one.batch) // one.batch)

    return replace(
        one,
        batch=batch,
        kept=line(one.kept, two.kept),
        phases={name: line(size, two.phases[name]) for name, size in one.phases.items()},
        passing={name: line(size, two.passing[name]) for name, size in one.passing.items()},
    )


# --- the answer -----------------------------------------------------------------------------------


def notes(found: Trace, request: CodeRequest, best: int | None, fits: bool) -> tuple[str, ...]:
    """What the reader should know about the trace, and what would help if it does not fit."""
    one = found.asked
    rows = (
        (one.values_read, f"the code reads a tensor's value (times: {one.values_read}); the trace "
         "took it as 1.0"),
        (one.compiled, "`torch.compile` was left out of the trace; a compiled step keeps less"),
        (one.convolves, "convolutions: cuDNN's own memory is not counted, often 10 to 15 % more"),
        (found.refused, f"no other batch could be traced: {found.refused}"),
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


SOURCE = "predicted by tracing one step of the code on tensors without values"
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
    def room(self) -> float:
        """What CUDA's context and NCCL's buffers leave."""
        return self.place.capacity - CUDA_CONTEXT - NCCL * (self.request.gpus > 1)


def best_batch(found: Trace, asked: CodeAsked) -> int | None:
    """The largest batch of one GPU with expandable segments if they work; None: none was found."""
    if len(found.traces) < 2:
        return None
    room = asked.room / (1 if asked.place.limits().env else 1 + FRAGMENTATION)

    def fits(batch: int) -> bool:
        return max(sizes_of(at_batch(found, batch), asked.request).values()) <= room

    batch = largest(fits, LARGEST)
    return None if batch >= LARGEST - 1 else batch


def plan_of(found: Trace, asked: CodeAsked, best: int | None) -> PlanAnswer:
    """The answer; `best` is what `best_batch` said."""
    request, capacity = asked.request, asked.place.capacity
    one = at_batch(found, best) if asked.solved and best else found.asked
    phases = sizes_of(one, request)
    peak, gaps = max(phases.values()), FRAGMENTATION * max(one.passing.values())
    env = asked.place.limits().env and peak + gaps > asked.room
    gaps *= not env
    total = peak + gaps + capacity - asked.room
    fits, sharded = total <= capacity, request.gpus > 1 and request.strategy in ("fsdp", "zero3")
    near = CLEAR_UNMEASURED if sharded else CLEAR
    memory = {
        "states": peak - min(peak, max(one.passing.values())),
        "checkpoints": min(one.kept, peak),
        "logits": 0,
        "fragmentation": gaps,
        "total": total,
        "allocated": peak,
        "reserved": peak + gaps,
        "capacity": capacity,
    }
    memory["other"] = total - memory["states"] - memory["checkpoints"] - gaps
    return PlanAnswer(
        fits=fits,
        recipe=str(Recipe(env=env)) if fits else NONE,
        basis="predicted",
        confidence="close" if abs(total / capacity - 1) < near else "clear",
        near_percent=round(100 * near),
        memory_gib=PlanMemory(**{name: round(size / GIB, 3) for name, size in memory.items()}),
        margin_percent=round(100 * (1 - total / capacity), 2),
        env=ENV if fits and env else {},
        advice=notes(found, request, best, fits),
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
            phases_gib={phase: round(size / GIB, 3) for phase, size in phases.items()},
            largest_batch=None if best is None else best * request.gpus,
        ),
    )
