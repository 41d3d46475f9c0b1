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
UNLIMITED_BATCH = 1 << 40
"""A batch that nobody trains: where memory does not grow with the batch."""


class TraceRequest(Frozen):
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


class TracedStep(Frozen):
    """One step with one batch on one GPU alone. Sizes are bytes."""

    batch: int
    phases: Mapping[str, int]
    """`forward`, `backward`, `optimizer` -> most at once."""
    transient: Mapping[str, int]
    """The same of all but weights, gradients and optimizer states."""
    activations: int
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
    traces: tuple[TracedStep, ...]
    refused: str | None = None
    """Why no further batch could be traced, where that is so."""

    @property
    def asked(self) -> TracedStep:
        return self.traces[0]


class TraceProblem(Frozen):
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


def check_request(request: TraceRequest) -> None:
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


def read_trace(request: TraceRequest, stdout: str, stderr: str, code: int | None) -> Trace:
    """Read the child's answer, or raise what it says went wrong."""
    line = stdout.strip().rpartition("\n")[2]
    if line.startswith('{"problem"'):
        raise error_of(request, from_json(line, TraceProblem, what="the trace's answer"))
    if line.startswith("{"):
        return from_json(line, Trace, what="the trace's answer")
    if "No module named 'torch'" in stderr:
        raise Blocked(
            "The environment has no torch, which `--code` needs",
            hint="`gpusetup install`, or activate the environment that your code runs in",
        )
    end = f"killed by signal {-code}" if code is not None and code < 0 else f"exit {code}"
    raise CodeFailed(f"`{request.code}` ended the trace ({end})", trace=stderr[-4000:])


HINTS: dict[str, str] = {
    "Contract": "the function takes the batch size (or nothing) and returns (model, batch), "
    "(model, batch, loss) or (model, batch, loss, optimizer)",
    "NoLoss": "also return a loss: a function of the model's output and the target (for a pair) "
    "or the whole batch, which gives one number",
    "TouchesGpu": "the tracing process sees no GPU: build the model and the batch on the CPU",
    "NoNetwork": "build the model from its configuration, or from files on this machine",
    "DataDependentOutputException": "a trace has shapes and no values: in place of a branch on a "
    "tensor's value write `torch.where(condition, a, b)`, or leave the check out of the step",
    "DynamicOutputShapeException": "a trace has shapes and no values: in place of a result whose "
    "length depends on values (`x[mask]`, `nonzero`, `unique`) write `x * mask` or "
    "`torch.where(mask, x, 0)`",
}
"""The child's name for a problem -> what to do."""
PROBLEM_BY_WORDS = {
    "a trace makes no connection": "NoNetwork",
    "cuda": "TouchesGpu",
    "NVIDIA": "TouchesGpu",
}
"""Words of a message -> the problem, if a library gave it another name."""


def error_of(request: TraceRequest, problem: TraceProblem) -> GpuSetupError:
    """The error that says what the child ran into."""
    name, message = problem.problem, problem.message
    if name == "Question":
        return UsageError(message)
    hint_name = next((name for words, name in PROBLEM_BY_WORDS.items() if words in message), name)
    if name not in ("Contract", "NoLoss", "TouchesGpu"):  # whose message says all
        message = f"{name}: {message}".rstrip(": ")
    place = f" ({problem.where})" if problem.where else ""
    text = f"`{request.code}` cannot be traced: {message}{place}"
    return CodeFailed(text, hint=HINTS.get(hint_name), trace=problem.trace)


# --- one GPU of several ---------------------------------------------------------------------------


def phase_bytes(step: TracedStep, request: TraceRequest) -> dict[str, float]:
    """Phase -> bytes at once on one GPU.

    DDP keeps its buckets, a second copy of the gradients (`gradient_as_bucket_view` is off by
    default). FSDP2 divides weights, gradients, states and the optimizer's step, and gathers two
    blocks and what is in none.
    """
    if request.gpus == 1 or request.strategy == "single":
        return dict(step.phases)
    if request.strategy == "ddp":
        return {phase: size + step.gradients for phase, size in step.phases.items()}
    forward, backward, optimizer = step.transient.values()
    share = (step.states + step.gradients) / request.gpus
    absent_gradients = step.gradients / request.gpus * (request.accumulate == 1)
    gathered = step.gathered / (2 if request.amp else 1)
    return {
        "forward": share - absent_gradients + forward + gathered,
        "backward": share + backward + gathered,
        "optimizer": share + optimizer / request.gpus,
    }


def step_at_batch(trace: Trace, batch: int) -> TracedStep:
    """The step with another batch, on the line through two traces, of which one has twice the
    batch."""
    one, two = trace.traces[:2]

    def line(here: int, there: int) -> int:
        return max(0, here + max(0, there - here) * (batch - one.batch) // one.batch)

    return replace(
        one,
        batch=batch,
        activations=line(one.activations, two.activations),
        phases={name: line(size, two.phases[name]) for name, size in one.phases.items()},
        transient={name: line(size, two.transient[name]) for name, size in one.transient.items()},
    )


# --- the answer -----------------------------------------------------------------------------------


def notes(trace: Trace, request: TraceRequest, largest: int | None, fits: bool) -> tuple[str, ...]:
    """What the reader should know about the trace, and what would help if it does not fit."""
    step = trace.asked
    rows = (
        (step.values_read, f"the code reads a tensor's value (times: {step.values_read}); the "
         "trace took it as 1.0"),
        (step.compiled, "the trace left out `torch.compile`; a compiled step needs less memory"),
        (step.convolves, "convolutions: cuDNN's own memory is not counted, often 10 to 15 % more"),
        (trace.refused, f"gpusetup could not trace another batch: {trace.refused}"),
        (largest is None and len(trace.traces) > 1,
         "memory does not grow with the batch: any batch fits, or none"),
        (not fits and largest, f"a batch of {(largest or 0) * request.gpus} would fit"),
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


class CodeQuestion(Frozen):
    """A traced job on a GPU, and whether its largest batch is looked for."""

    request: TraceRequest
    place: Place
    finds_batch: bool = False
    """Whether the largest batch was asked for."""

    @property
    def room(self) -> float:
        """Bytes that CUDA's context and NCCL's buffers leave."""
        return self.place.capacity - CUDA_CONTEXT - NCCL * (self.request.gpus > 1)


def largest_batch(trace: Trace, question: CodeQuestion) -> int | None:
    """The largest batch of one GPU with expandable segments if they work; None: none was found."""
    if len(trace.traces) < 2:
        return None
    room = question.room / (1 if question.place.limits().env else 1 + FRAGMENTATION)

    def fits(batch: int) -> bool:
        return max(phase_bytes(step_at_batch(trace, batch), question.request).values()) <= room

    batch = largest(fits, UNLIMITED_BATCH)
    return None if batch >= UNLIMITED_BATCH - 1 else batch


def code_plan(trace: Trace, question: CodeQuestion, largest: int | None) -> PlanAnswer:
    """The answer; `largest`: the largest batch that fits on one GPU, if one was found."""
    request, capacity = question.request, question.place.capacity
    step = step_at_batch(trace, largest) if question.finds_batch and largest else trace.asked
    phases = phase_bytes(step, request)
    peak, fragmentation = max(phases.values()), FRAGMENTATION * max(step.transient.values())
    env = question.place.limits().env and peak + fragmentation > question.room
    fragmentation *= not env
    total = peak + fragmentation + capacity - question.room
    fits, sharded = total <= capacity, request.gpus > 1 and request.strategy in ("fsdp", "zero3")
    near = CLEAR_UNMEASURED if sharded else CLEAR
    memory = {
        "states": peak - min(peak, max(step.transient.values())),
        "checkpoints": min(step.activations, peak),
        "logits": 0,
        "fragmentation": fragmentation,
        "total": total,
        "allocated": peak,
        "reserved": peak + fragmentation,
        "capacity": capacity,
    }
    memory["other"] = total - memory["states"] - memory["checkpoints"] - fragmentation
    return PlanAnswer(
        fits=fits,
        recipe=str(Recipe(env=env)) if fits else NONE,
        basis="predicted",
        confidence="close" if abs(total / capacity - 1) < near else "clear",
        near_percent=round(100 * near),
        memory_gib=PlanMemory(**{name: round(size / GIB, 3) for name, size in memory.items()}),
        margin_percent=round(100 * (1 - total / capacity), 2),
        env=ENV if fits and env else {},
        advice=notes(trace, request, largest, fits),
        model=request.code,
        parameters=step.parameters,
        active_parameters=step.parameters,
        gpu=question.place.gpu,
        gpus=request.gpus,
        context=0,
        batch=step.batch * request.gpus,
        strategy=request.strategy,
        source=SOURCE,
        solved="batch" if question.finds_batch else None,
        code=CodePlan(
            torch=trace.torch,
            phases_gib={phase: round(size / GIB, 3) for phase, size in phases.items()},
            largest_batch=None if largest is None else largest * request.gpus,
        ),
    )
