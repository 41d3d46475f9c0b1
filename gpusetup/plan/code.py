"""Turns a trace of the user's code and a GPU into the public answer of `plan --code`. Pure
functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpusetup.model.documents import CodePlan, PlanAnswer, PlanMemory
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.units import GIB
from gpusetup.plan.answer import ENV, in_gib
from gpusetup.plan.code_trace import Trace, TracedStep, TraceRequest
from gpusetup.plan.decide import CLEAR, CLEAR_UNMEASURED, largest
from gpusetup.plan.job import Recipe
from gpusetup.plan.measured import NONE
from gpusetup.plan.memory import CUDA_CONTEXT, NCCL
from gpusetup.plan.place import Place

Sizes = dict[str, int]
"""Phase of a training step -> bytes."""
UNLIMITED_BATCH = 1 << 40
"""The upper end of the search for the largest batch. If such a huge batch fits, memory does not
grow with the batch size."""

# --- memory on one of several GPUs ----------------------------------------------------------------


def phase_bytes(step: TracedStep, request: TraceRequest) -> dict[str, float]:
    """Phase of a training step -> the bytes in use on one GPU, for the requested number of GPUs and
    strategy."""
    if request.gpus == 1 or request.strategy == "single":
        return dict(step.phases)
    if request.strategy == "ddp":
        # Add DDP's buckets, which are a second copy of the gradients unless
        # `gradient_as_bucket_view` is on.
        return {phase: size + step.gradients for phase, size in step.phases.items()}
    return sharded_phase_bytes(step, request)


def sharded_phase_bytes(step: TracedStep, request: TraceRequest) -> dict[str, float]:
    """Phase of a training step -> the bytes in use on one GPU under FSDP2, which divides weights,
    gradients and optimizer states among the GPUs."""
    forward, backward, optimizer = step.transient.values()
    states = step.states / request.gpus
    gradients = step.gradients / request.gpus
    # FSDP gathers two blocks and the parameters outside all blocks, in the type used for computing.
    gathered = step.gathered / 2 if request.amp else step.gathered
    # During the forward pass there are gradients only if an earlier micro-batch left them.
    earlier_gradients = gradients if request.accumulate > 1 else 0
    return {
        "forward": states + earlier_gradients + forward + gathered,
        "backward": states + gradients + backward + gathered,
        "optimizer": states + gradients + optimizer / request.gpus,
    }


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


def notes(trace: Trace, request: TraceRequest, largest: int | None, fits: bool) -> tuple[str, ...]:
    """Remarks about the trace and, if the job does not fit, what would help."""
    remarks = list(trace_remarks(trace, largest))
    # A job that fits needs no remedies.
    if not fits:
        remarks += remedies(request, largest)
    return tuple(remarks)


def trace_remarks(trace: Trace, largest: int | None) -> Iterator[str]:
    """Sentences about what the trace skipped or replaced, and what it could not measure."""
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
    """Sentences that each name a change which could make the job fit."""
    if largest:
        yield f"a batch of {largest * request.gpus} would fit"
    if not request.checkpointing:
        yield "`--checkpointing` keeps only the inputs of the repeated blocks"
    if request.amp is None:
        yield "`--amp bf16` computes in 16 bits"
    if request.strategy == "ddp":
        yield "`--strategy fsdp` divides weights, gradients and states among the GPUs"


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
    def runtime(self) -> float:
        """The bytes that CUDA's context takes and, with several GPUs, NCCL's buffers."""
        if self.request.gpus == 1:
            return CUDA_CONTEXT
        return CUDA_CONTEXT + NCCL

    @property
    def free(self) -> float:
        """The bytes on one GPU that torch's allocator can use for the training."""
        capacity = self.hardware.capacity
        # The CUDA context and NCCL's buffers lie outside torch's allocator.
        return capacity - self.runtime

    @property
    def near(self) -> float:
        """The share of the GPU's memory within which an answer counts as close instead of clear."""
        if self.request.gpus == 1:
            return CLEAR
        # Use the wider margin for sharded steps, because the estimate of what they gather was never
        # checked on a GPU.
        is_sharded = self.request.strategy in ("fsdp", "zero3")
        return CLEAR_UNMEASURED if is_sharded else CLEAR


def largest_batch(trace: Trace, question: CodeQuestion) -> int | None:
    """The largest batch for one GPU, in samples, with expandable segments if the system supports
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
        step = step_at_batch(trace, batch)
        phases = phase_bytes(step, question.request)
        return max(phases.values()) <= free

    # If every batch fits, the search ends just below its limit.
    batch = largest(fits, UNLIMITED_BATCH)
    return None if batch >= UNLIMITED_BATCH - 1 else batch


class CodeMemory(Frozen):
    """The memory that one training step needs on one GPU, in bytes, and whether it needs expandable
    segments to fit."""

    allocated: float
    fragmentation: float
    transient: float
    """Temporary memory during the phase that needs the most."""
    activations: float
    """The activations that the forward pass keeps for the backward pass."""
    runtime: float
    env: bool
    """Whether the job fits only with expandable segments."""

    @property
    def total(self) -> float:
        # The GPU must hold the CUDA runtime in addition to what torch's allocator reserves.
        reserved = self.allocated + self.fragmentation
        return reserved + self.runtime


def memory_of(step: TracedStep, question: CodeQuestion) -> CodeMemory:
    """The memory that a step needs on one GPU; expandable segments are switched on only if the step
    would not fit otherwise."""
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
    """The rows of the answer's memory table, in GiB."""
    states = memory.allocated - memory.transient
    # The rest of the total is temporary memory other than activations, and the CUDA runtime.
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
    """The complete answer of `plan --code`; `largest` is the largest batch for one GPU, or None."""
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
    is_near = needs_cudnn or abs(filled - 1) < question.near
    return PlanAnswer(
        fits=fits,
        uncounted=("what cuDNN takes for convolutions",) if needs_cudnn else (),
        recipe=str(Recipe(env=memory.env)) if fits else NONE,
        basis="predicted",
        confidence="close" if is_near else "clear",
        near_percent=round(100 * question.near),
        close_because=why_close(needs_cudnn, question) if is_near else None,
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


def why_close(needs_cudnn: bool, question: CodeQuestion) -> str:
    """Why the prediction is uncertain, as a phrase."""
    if needs_cudnn:
        return "something that may take memory is not counted"
    return f"within {round(100 * question.near)} % of the limit"


def code_details(trace: Trace, question: CodeQuestion, largest: int | None) -> CodePlan:
    """The part of the answer that only `--code` has: memory in each phase, the torch version, and
    the largest batch of all GPUs together."""
    phases = phase_bytes(planned_step(trace, question, largest), question.request)
    phases_gib = {phase: round(size / GIB, 3) for phase, size in phases.items()}
    # The trace is for one GPU, but the answer gives the batch of all GPUs together.
    largest_of_all = None if largest is None else largest * question.request.gpus
    return CodePlan(
        torch=trace.torch,
        phases_gib=phases_gib,
        largest_batch=largest_of_all,
    )


def planned_step(trace: Trace, question: CodeQuestion, largest: int | None) -> TracedStep:
    """The step that the answer describes: the one with the largest batch if the user asked for it,
    otherwise the traced one."""
    if question.finds_batch and largest:
        return step_at_batch(trace, largest)
    return trace.asked
