"""Turns a trace of the user's code and a GPU into the public answer of `plan --code`. Pure
functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpusetup.model.documents import CodePlan, PlanAnswer, PlanMemory
from gpusetup.model.frozen import Frozen, replace
from gpusetup.plan.answer import ENV, in_gib
from gpusetup.plan.code_trace import Trace, TracedStep, TraceRequest
from gpusetup.plan.decide import CLEAR, largest
from gpusetup.plan.job import Recipe
from gpusetup.plan.measured import NONE
from gpusetup.plan.memory import CUDA_CONTEXT
from gpusetup.plan.place import Place

Sizes = dict[str, int]
"""Phase of a training step -> bytes."""
UNLIMITED_BATCH = 1 << 40
"""The upper end of the search for the largest batch. If such a huge batch fits, memory does not
grow with the batch size."""


def step_at_batch(trace: Trace, batch: int) -> TracedStep:
    """The step for another batch size, extrapolated linearly from two traces, the second of which
    has twice the batch of the first."""
    single, double = trace.traces[:2]

    def sizes_at_batch(of_single: Mapping[str, int], of_double: Mapping[str, int]) -> Sizes:
        sizes = {}
        for phase, size in of_single.items():
            # Fixed buffers can make the larger batch look cheaper, but a larger batch never needs
            # less memory.
            growth = max(0, of_double[phase] - size)
            difference = growth * (batch - single.batch) // single.batch
            sizes[phase] = max(0, size + difference)
        return sizes

    activations = sizes_at_batch({"forward": single.activations}, {"forward": double.activations})
    return replace(
        single,
        batch=batch,
        activations=activations["forward"],
        phases=sizes_at_batch(single.phases, double.phases),
        transient=sizes_at_batch(single.transient, double.transient),
    )


# --- the answer -----------------------------------------------------------------------------------


def notes(trace: Trace, request: TraceRequest, largest: int | None, fits: bool) -> Iterator[str]:
    """Sentences about what the trace skipped or could not measure and, if the job does not fit,
    changes that could make it fit."""
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
    if fits:
        return
    if largest:
        yield f"a batch of {largest} would fit"
    if not request.checkpointing:
        yield "`--checkpointing` keeps only the inputs of the repeated blocks"
    if request.amp is None:
        yield "`--amp bf16` computes in 16 bits"


CUDNN_WORKSPACE = 0.15
"""The share of the memory that cuDNN often takes for the workspaces of convolutions."""
SOURCE = "predicted by tracing one step of the code on tensors without values"
FRAGMENTATION = 0.1
"""The share of temporary memory that fixed-size segments may leave unusable; with expandable
segments (Env) almost nothing is lost. This number is an assumption that was never checked on a GPU.
"""


class CodeQuestion(Frozen):
    """A request to trace code, the GPU to plan for, and whether to find the largest batch."""

    request: TraceRequest
    hardware: Place
    finds_batch: bool = False
    """Whether the user asked for the largest batch."""

    @property
    def free(self) -> float:
        """The bytes that torch's allocator can use for the training."""
        # The CUDA context lies outside torch's allocator.
        return self.hardware.capacity - CUDA_CONTEXT


def largest_batch(trace: Trace, question: CodeQuestion) -> int | None:
    """The largest batch in samples, with expandable segments if the system supports
    them; 0 if none fits.

    None if it is unknown, because the code was traced with a single batch size, or if there is no
    limit, because memory does not grow with the batch.
    """
    if len(trace.traces) < 2:
        return None
    free = question.free
    # The answer recommends expandable segments wherever they work. On other systems, allow for
    # fragmentation.
    if not question.hardware.limits().env:
        free /= 1 + FRAGMENTATION

    def fits(batch: int) -> bool:
        return max(step_at_batch(trace, batch).phases.values()) <= free

    # If every batch fits, the search ends just below its limit.
    batch = largest(fits, UNLIMITED_BATCH)
    return None if batch >= UNLIMITED_BATCH - 1 else batch


class CodeMemory(Frozen):
    """The memory that one training step needs, in bytes, and whether it needs expandable
    segments to fit."""

    allocated: float
    fragmentation: float
    transient: float
    """Temporary memory during the phase that needs the most."""
    activations: float
    """The activations that the forward pass keeps for the backward pass."""
    env: bool
    """Whether the job fits only with expandable segments."""

    @property
    def total(self) -> float:
        # The GPU must hold the CUDA context in addition to what torch's allocator reserves.
        return self.allocated + self.fragmentation + CUDA_CONTEXT


def memory_of(step: TracedStep, question: CodeQuestion) -> CodeMemory:
    """The memory that a step needs; expandable segments are switched on only if the step
    would not fit otherwise."""
    allocated = max(step.phases.values())
    transient = max(step.transient.values())
    fragmentation = FRAGMENTATION * transient
    too_scattered = allocated + fragmentation > question.free
    env = question.hardware.limits().env and too_scattered
    return CodeMemory(
        allocated=allocated,
        fragmentation=0 if env else fragmentation,
        transient=min(allocated, transient),
        activations=min(step.activations, allocated),
        env=env,
    )


def memory_gib(memory: CodeMemory, capacity: float) -> PlanMemory:
    """The rows of the answer's memory table, in GiB."""
    states = memory.allocated - memory.transient
    # The rest of the total is temporary memory other than activations, and the CUDA context.
    other = memory.total - states - memory.activations - memory.fragmentation
    return PlanMemory(
        states=in_gib(states),
        checkpoints=in_gib(memory.activations),
        logits=0,
        fragmentation=in_gib(memory.fragmentation),
        other=in_gib(other),
        total=in_gib(memory.total),
        allocated=in_gib(memory.allocated),
        reserved=in_gib(memory.allocated + memory.fragmentation),
        capacity=in_gib(capacity),
    )


def code_plan(trace: Trace, question: CodeQuestion, largest: int | None) -> PlanAnswer:
    """The complete answer of `plan --code`; `largest` is the largest batch, or None."""
    request, capacity = question.request, question.hardware.capacity
    step = planned_step(trace, question, largest)
    memory = memory_of(step, question)
    filled = memory.total / capacity
    fits = memory.total <= capacity
    # cuDNN's workspaces for convolutions could fill the remaining memory, so such an answer is not
    # clear.
    with_workspaces = memory.total
    if trace.asked.convolves:
        with_workspaces *= 1 + CUDNN_WORKSPACE
    needs_cudnn = fits and with_workspaces > capacity
    is_near = needs_cudnn or abs(filled - 1) < CLEAR
    return PlanAnswer(
        fits=fits,
        uncounted=("what cuDNN takes for convolutions",) if needs_cudnn else (),
        recipe=str(Recipe(env=memory.env)) if fits else NONE,
        basis="predicted",
        confidence="close" if is_near else "clear",
        near_percent=round(100 * CLEAR),
        close_because=why_close(needs_cudnn) if is_near else None,
        memory_gib=memory_gib(memory, capacity),
        margin_percent=round(100 * (1 - filled), 2),
        env=ENV if fits and memory.env else {},
        advice=tuple(notes(trace, request, largest, fits)),
        model=request.code,
        parameters=step.parameters,
        active_parameters=step.parameters,
        gpu=question.hardware.gpu,
        gpus=1,
        context=0,
        batch=step.batch,
        strategy="single",
        source=SOURCE,
        solved="batch" if question.finds_batch else None,
        code=CodePlan(
            torch=trace.torch,
            phases_gib={phase: in_gib(size) for phase, size in step.phases.items()},
            largest_batch=largest,
        ),
    )


def why_close(needs_cudnn: bool) -> str:
    """Why the prediction is uncertain, as a phrase."""
    if needs_cudnn:
        return "something that may take memory is not counted"
    return f"within {round(100 * CLEAR)} % of the limit"


def planned_step(trace: Trace, question: CodeQuestion, largest: int | None) -> TracedStep:
    """The step that the answer describes: the one with the largest batch if the user asked for it,
    otherwise the traced one."""
    if question.finds_batch and largest:
        return step_at_batch(trace, largest)
    return trace.asked
