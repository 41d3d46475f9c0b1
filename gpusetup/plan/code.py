"""A trace of the user's code and a GPU -> the public answer of `plan --code`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    module, _, function = request.code.rpartition(":")
    if not module or not function:
        raise UsageError(
            f"`--code {request.code}` is not MODULE:FUNCTION",
            hint="for example `--code train:build`, or `--code path/to/train.py:build`",
        )
    check_word("strategy", request.strategy, STRATEGIES)
    check_word("optimizer", request.optimizer, OPTIMIZERS)
    if min(request.batch, request.gpus, request.accumulate) < 1:
        raise UsageError("the batch, the number of GPUs and `--accumulate` are at least 1")


def check_word(option: str, word: str, traceable: tuple[str, ...]) -> None:
    """`UsageError` for a strategy or an optimizer that the traced step does not have."""
    if word not in traceable:
        raise UsageError(
            f"`--{option} {word}` cannot be traced from code",
            hint=f"a trace knows {', '.join(traceable)}",
        )


def read_trace(request: TraceRequest, stdout: str, stderr: str, code: int | None) -> Trace:
    """Read the child's answer, or raise what it says went wrong."""
    # The user's code may print, too; the child's answer is its last line.
    last_line = stdout.strip().rpartition("\n")[2]
    if last_line.startswith('{"problem"'):
        problem = from_json(last_line, TraceProblem, what="the trace's answer")
        raise error_of(request, problem)
    if last_line.startswith("{"):
        return from_json(last_line, Trace, what="the trace's answer")
    if "No module named 'torch'" in stderr:
        raise Blocked(
            "The environment has no torch, which `--code` needs",
            hint="`gpusetup install`, or activate the environment that your code runs in",
        )
    # subprocess gives a child that a signal ended the signal's number below zero.
    killed = code is not None and code < 0
    end = f"killed by signal {-(code or 0)}" if killed else f"exit {code}"
    raise CodeFailed(
        f"`{request.code}` ended the trace ({end})",
        trace=stderr[-LONGEST_TRACEBACK:],
    )


LONGEST_TRACEBACK = 4000
"""Letters of the child's messages that are shown, from their end."""
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


SAYS_ALL = ("Contract", "NoLoss", "TouchesGpu")
"""Problems whose message needs no name before it."""


def error_of(request: TraceRequest, problem: TraceProblem) -> GpuSetupError:
    """The error that says what the child ran into."""
    message = problem.message
    if problem.problem == "Question":
        return UsageError(message)
    hint = HINTS.get(problem_by_words(problem))
    if problem.problem not in SAYS_ALL:
        message = f"{problem.problem}: {message}".rstrip(": ")
    line_of_code = f" ({problem.where})" if problem.where else ""
    return CodeFailed(
        f"`{request.code}` cannot be traced: {message}{line_of_code}",
        hint=hint,
        trace=problem.trace,
    )


def problem_by_words(problem: TraceProblem) -> str:
    """The child's name for the problem, or ours if a library raised it in its own words."""
    for words, name in PROBLEM_BY_WORDS.items():
        if words in problem.message:
            return name
    return problem.problem


# --- one GPU of several ---------------------------------------------------------------------------


def phase_bytes(step: TracedStep, request: TraceRequest) -> dict[str, float]:
    """Phase -> bytes at once on one GPU."""
    if request.gpus == 1 or request.strategy == "single":
        return dict(step.phases)
    if request.strategy == "ddp":
        # DDP's buckets are a second copy of the gradients: `gradient_as_bucket_view` is off by
        # default.
        return {phase: size + step.gradients for phase, size in step.phases.items()}
    return sharded_phase_bytes(step, request)


def sharded_phase_bytes(step: TracedStep, request: TraceRequest) -> dict[str, float]:
    """The same with FSDP2, which divides weights, gradients, states and the optimizer's step."""
    forward, backward, optimizer = step.transient.values()
    states = step.states / request.gpus
    gradients = step.gradients / request.gpus
    # FSDP gathers two blocks and what is in none, in the type that the step computes in.
    gathered = step.gathered / 2 if request.amp else step.gathered
    # The forward pass meets gradients only of a micro-batch before it.
    earlier_gradients = gradients if request.accumulate > 1 else 0
    return {
        "forward": states + earlier_gradients + forward + gathered,
        "backward": states + gradients + backward + gathered,
        "optimizer": states + gradients + optimizer / request.gpus,
    }


def step_at_batch(trace: Trace, batch: int) -> TracedStep:
    """The step with another batch, on the line through two traces, of which one has twice the
    batch."""
    single, double = trace.traces[:2]

    def line(size: int, size_of_double: int) -> int:
        # Fixed buffers can make the larger batch look cheaper; memory never falls with the batch.
        growth = max(0, size_of_double - size)
        return max(0, size + growth * (batch - single.batch) // single.batch)

    def lines(sizes: Mapping[str, int], sizes_of_double: Mapping[str, int]) -> dict[str, int]:
        return {phase: line(size, sizes_of_double[phase]) for phase, size in sizes.items()}

    return replace(
        single,
        batch=batch,
        activations=line(single.activations, double.activations),
        phases=lines(single.phases, double.phases),
        transient=lines(single.transient, double.transient),
    )


# --- the answer -----------------------------------------------------------------------------------


def notes(trace: Trace, request: TraceRequest, largest: int | None, fits: bool) -> tuple[str, ...]:
    """What the reader should know about the trace, and what would help if it does not fit."""
    remarks = tuple(trace_remarks(trace, largest))
    return remarks if fits else (*remarks, *remedies(request, largest))


def trace_remarks(trace: Trace, largest: int | None) -> Iterator[str]:
    """What the trace could not see."""
    step = trace.asked
    if step.values_read:
        times = f"(times: {step.values_read})"
        yield f"the code reads a tensor's value {times}; the trace took it as 1.0"
    if step.compiled:
        yield "the trace left out `torch.compile`; a compiled step needs less memory"
    if step.convolves:
        yield "convolutions: cuDNN's own memory is not counted, often 10 to 15 % more"
    if trace.refused:
        yield f"gpusetup could not trace another batch: {trace.refused}"
    if largest is None and len(trace.traces) > 1:
        yield "memory does not grow with the batch: any batch fits, or none"


def remedies(request: TraceRequest, largest: int | None) -> Iterator[str]:
    """What would help a job that does not fit."""
    if largest:
        yield f"a batch of {largest * request.gpus} would fit"
    if not request.checkpointing:
        yield "`--checkpointing` keeps only the inputs of the repeated blocks"
    if request.amp is None:
        yield "`--amp bf16` computes in 16 bits"
    if request.strategy == "ddp":
        yield "`--strategy fsdp` divides weights, gradients and states among the GPUs"


SOURCE = "predicted by tracing one step of the code on tensors without values"
FRAGMENTATION = 0.1
"""The share of what comes and goes that segments of fixed size may leave unusable: an assumption,
never compared with a GPU. Expandable segments (Env) leave none of note."""


class CodeQuestion(Frozen):
    """A traced job on a GPU, and whether its largest batch is looked for."""

    request: TraceRequest
    hardware: Place
    finds_batch: bool = False
    """Whether the largest batch was asked for."""

    @property
    def runtime(self) -> float:
        """Bytes of CUDA's context and, among several GPUs, of NCCL's buffers."""
        return CUDA_CONTEXT + NCCL if self.request.gpus > 1 else CUDA_CONTEXT

    @property
    def free(self) -> float:
        """Bytes that the runtime leaves to the training."""
        return self.hardware.capacity - self.runtime

    @property
    def near(self) -> float:
        """How near to the GPU's memory an answer is not clear, as a share of that memory."""
        sharded = self.request.gpus > 1 and self.request.strategy in ("fsdp", "zero3")
        return CLEAR_UNMEASURED if sharded else CLEAR


def largest_batch(trace: Trace, question: CodeQuestion) -> int | None:
    """The largest batch of one GPU with expandable segments if they work; None: none was found."""
    if len(trace.traces) < 2:
        return None
    # Expandable segments are what the answer will advise where they work.
    expandable = question.hardware.limits().env
    free = question.free if expandable else question.free / (1 + FRAGMENTATION)

    def fits(batch: int) -> bool:
        step = step_at_batch(trace, batch)
        return max(phase_bytes(step, question.request).values()) <= free

    batch = largest(fits, UNLIMITED_BATCH)
    return None if batch >= UNLIMITED_BATCH - 1 else batch


class CodeMemory(Frozen):
    """What the step takes of one GPU, and the allocator that it needs. Sizes are bytes."""

    allocated: float
    fragmentation: float
    transient: float
    """What comes and goes during the fullest phase."""
    activations: float
    """What the forward pass keeps for the backward pass."""
    runtime: float
    env: bool
    """Whether it fits only with expandable segments."""

    @property
    def total(self) -> float:
        return self.allocated + self.fragmentation + self.runtime


def memory_of(step: TracedStep, question: CodeQuestion) -> CodeMemory:
    """What one GPU needs for a step, with expandable segments only where they are needed."""
    allocated = max(phase_bytes(step, question.request).values())
    transient = max(step.transient.values())
    fragmentation = FRAGMENTATION * transient
    too_scattered = allocated + fragmentation > question.free
    env = question.hardware.limits().env and too_scattered
    return CodeMemory(
        allocated=allocated,
        fragmentation=0 if env else fragmentation,
        transient=min(allocated, transient),
        activations=min(step.activations, allocated),
        runtime=question.runtime,
        env=env,
    )


def memory_gib(memory: CodeMemory, capacity: float) -> PlanMemory:
    """The parts of the answer's table, in GiB."""
    states = memory.allocated - memory.transient
    parts = {
        "states": states,
        "checkpoints": memory.activations,
        "logits": 0,
        "fragmentation": memory.fragmentation,
        # The rest of what comes and goes, with the runtime.
        "other": memory.total - states - memory.activations - memory.fragmentation,
        "total": memory.total,
        "allocated": memory.allocated,
        "reserved": memory.allocated + memory.fragmentation,
        "capacity": capacity,
    }
    return PlanMemory(**{name: round(size / GIB, 3) for name, size in parts.items()})


def code_plan(trace: Trace, question: CodeQuestion, largest: int | None) -> PlanAnswer:
    """The answer; `largest`: the largest batch that fits on one GPU, if one was found."""
    request, capacity = question.request, question.hardware.capacity
    step = trace.asked
    if question.finds_batch and largest:
        step = step_at_batch(trace, largest)
    memory = memory_of(step, question)
    filled = memory.total / capacity
    fits = memory.total <= capacity
    return PlanAnswer(
        fits=fits,
        recipe=str(Recipe(env=memory.env)) if fits else NONE,
        basis="predicted",
        confidence="close" if abs(filled - 1) < question.near else "clear",
        near_percent=round(100 * question.near),
        memory_gib=memory_gib(memory, capacity),
        margin_percent=round(100 * (1 - filled), 2),
        env=ENV if fits and memory.env else {},
        advice=notes(trace, request, largest, fits),
        model=request.code,
        parameters=step.parameters,
        active_parameters=step.parameters,
        gpu=question.hardware.gpu,
        gpus=request.gpus,
        context=0,
        batch=step.batch * request.gpus,
        strategy=request.strategy,
        source=SOURCE,
        solved="batch" if question.finds_batch else None,
        code=code_details(trace, question, largest),
    )


def code_details(trace: Trace, question: CodeQuestion, largest: int | None) -> CodePlan:
    """What only an answer about code says: the phases of the step that it is for."""
    request, step = question.request, trace.asked
    if question.finds_batch and largest:
        step = step_at_batch(trace, largest)
    phases = phase_bytes(step, request)
    return CodePlan(
        torch=trace.torch,
        phases_gib={phase: round(size / GIB, 3) for phase, size in phases.items()},
        largest_batch=None if largest is None else largest * request.gpus,
    )
