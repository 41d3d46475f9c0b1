"""Estimates how much memory a training run needs on its fullest GPU: the sum of all terms at the
moment when the sum is largest.

Each term is a number of elements (such as parameters, or tokens times width) times the bytes per
element. The few constants that cannot be computed were fitted to a table of 560 measurements
(`cells.csv`), or set beforehand. All amounts are for one GPU. `docs/explanation/memory-model.md`
explains the terms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

from gpusetup.model.frozen import Frozen
from gpusetup.model.units import GIB
from gpusetup.plan import terms
from gpusetup.plan.job import Recipe, TrainingJob, samples, tokens

Moment = Literal["logits", "layer", "backward", "step", "generation"]
"""A moment of a training step at which memory may peak. `logits` and `layer`: the end of the
forward pass, with the loss or with the first layer's backward pass. `backward`: a layer's backward
pass when all gradients exist. `step`: the optimizer's step. `generation`: between two steps, while
answers are generated on the same GPU."""
Part = Literal["states", "checkpoints", "logits", "other"]

CUDA_CONTEXT = 0.5 * GIB
"""Bytes of the CUDA context and of the libraries' workspaces. This is an assumption."""

NCCL = 0.8 * GIB
"""Bytes of NCCL's buffers on a GPU. According to messages of runs that ran out of memory, they take
0.1 GiB without NVLink and up to 1.2 GiB with it."""
NCCL_FITTED = 0.3 * GIB
"""Bytes of NCCL's buffers with Trinity-RFT, fitted to the measured table (`cells.csv`)."""

EXCHANGE = 15.981
"""Bytes per element that sequence parallelism exchanges, fitted to the measured table
(`cells.csv`)."""


def runtime(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes of the CUDA context and, with several GPUs, of NCCL's buffers."""
    if job.gpus == 1:
        return CUDA_CONTEXT
    return CUDA_CONTEXT + (NCCL_FITTED if job.fills_token_budget else NCCL)


def exchange(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes of the exchange buffers of one layer under sequence parallelism (Ulysses, arXiv
    2309.14509); 0 without it."""
    if recipe.sp == 1:
        return 0.0
    # Scale by the type used for computing, because the constant was fitted to runs that compute in
    # 16 bits.
    return job.shape.hidden * tokens(job, recipe) * EXCHANGE * job.compute_bytes / 2


# --- the allocator's gaps: memory that it has reserved and no tensor uses -------------------------

LOST_LOGIT = 1.667
"""Bytes of gaps per logit with Trinity-RFT, fitted to the measured table (`cells.csv`)."""


class Gaps(NamedTuple):
    """The bytes that the allocator reserves and no tensor uses."""

    staying: float
    """The bytes that the allocator cannot give back."""
    given_back: float
    """The bytes that the allocator gives back before it runs out of memory."""


class GapShares(NamedTuple):
    """The size of the gaps as shares of the memory for temporary tensors."""

    reserved: float
    """All gaps, as long as there is enough free memory."""
    staying: float
    """The gaps that are left after the allocator has given back what it can."""


FIXED_SEGMENTS = GapShares(reserved=0.15, staying=0.05)
"""The gap shares with fixed-size segments. At Unsloth's longest contexts, gaps are at most 5 % of
the allocated memory."""
EXPANDABLE_SEGMENTS = GapShares(reserved=0.15, staying=0.02)
FIXED_SEGMENTS_FREED_LATE = GapShares(reserved=0.31, staying=0.18)
"""The gap shares with fixed-size segments that are freed late. When FSDP1 runs out of memory, gaps
are 17 to 24 % of the allocated memory."""
EXPANDABLE_SEGMENTS_FREED_LATE = GapShares(reserved=0.15, staying=0.05)


def gaps(job: TrainingJob, recipe: Recipe, transient: float, *, logits_decide: bool) -> Gaps:
    """The bytes in the allocator's gaps: those that stay, and those that it can give back.

    `transient`: the bytes of the largest temporary tensors; `logits_decide`: whether memory peaks
    while the logits exist. Fixed-size segments leave more gaps than expandable ones. The shares
    were fitted to published pairs of allocated and reserved memory.
    """
    if job.fills_token_budget:
        # With Trinity-RFT, they were fitted as a share of the largest temporary tensor.
        staying = 0.0 if recipe.env else transient * (LOST_LOGIT / terms.TRAINER_LOGIT)
        return Gaps(staying=staying, given_back=0.0)
    logit_segments = own_segments(job, recipe)
    logit_bytes = terms.logits(job, recipe)
    moving_bytes = terms.activations(job, recipe) + transient
    if not terms.gradients_stay(job):
        moving_bytes += terms.gradients(job, recipe)
    # Logits are allocated and freed in pieces of one size, which leave no gaps, except for shifted
    # copies.
    bytes_of_uneven_size = moving_bytes
    if logits_decide and job.loss != "eager-old":
        bytes_of_uneven_size -= logit_bytes
    # FSDP1 and DeepSpeed free gathered units late, because another CUDA stream must finish using
    # them first.
    frees_late = job.gathers and job.strategy not in ("fsdp", "hsdp")
    if recipe.env:
        shares = EXPANDABLE_SEGMENTS_FREED_LATE if frees_late else EXPANDABLE_SEGMENTS
    else:
        shares = FIXED_SEGMENTS_FREED_LATE if frees_late else FIXED_SEGMENTS
    # With expandable segments, logits leave gaps too, because their size is rounded up.
    bytes_with_gaps = moving_bytes if recipe.env else bytes_of_uneven_size
    reserved = bytes_with_gaps * shares.reserved + logit_segments
    # The allocator cannot give back about a third of the logits' own segments. This share was
    # fitted too.
    after_collection = bytes_of_uneven_size * shares.staying + logit_segments / 3
    staying = min(reserved, after_collection)
    # Tensors that lie between attention scores in memory keep the segments of those scores from
    # being freed.
    if job.attention == "eager" and not job.gathers and not recipe.env:
        staying = reserved
    given_back = reserved - staying
    # If memory peaks while there are no logits, half of the logits' segments are idle at the peak.
    # Expandable segments are unmapped when idle, and gathered units reuse idle segments.
    reuses_segments = recipe.env or recipe.offload or job.gathers
    if not reuses_segments and not logits_decide:
        given_back += 0.5 * logit_bytes
    return Gaps(staying, given_back)


def own_segments(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes of memory segments for logits or their copies, which no other tensor reuses because
    none has the same size."""
    # Expandable segments take any size, and gathered units reuse idle segments.
    if recipe.env or job.gathers:
        return 0.0
    bytes_per_logit = 0.0
    # Old transformers copy the shifted logits in float32 (4 bytes, and 5 % for the segment's
    # rounding); a single sample is shifted as a view, without a copy.
    if job.loss == "eager-old" and samples(job, recipe) > 1:
        bytes_per_logit += 4.2
    # Current transformers versions keep one more copy of 16-bit logits, in 16 bits.
    if job.loss == "hf" and job.compute_bytes < 4:
        bytes_per_logit += job.compute_bytes
    return terms.logit_count(job, recipe) * bytes_per_logit


# --- the terms ------------------------------------------------------------------------------------

FORWARD: tuple[Moment, ...] = ("logits", "layer")
IN_STEP: tuple[Moment, ...] = (*FORWARD, "backward", "step")
WHOLE_RUN: tuple[Moment, ...] = (*IN_STEP, "generation")
TERMS: tuple[tuple[Part, tuple[Moment, ...], Callable[[TrainingJob, Recipe], float]], ...] = (
    ("states", IN_STEP, terms.resident_states),
    (
        "states",
        ("generation",),
        lambda job, recipe: 0.0 if job.rl.policy_leaves else terms.resident_states(job, recipe),
    ),
    ("states", WHOLE_RUN, terms.states_beside),
    ("states", IN_STEP, terms.unsharded_extra),
    ("states", (*FORWARD, "backward"), terms.gathered_unit),
    ("states", FORWARD, terms.gradients_in_forward),
    ("states", ("backward", "step"), terms.gradients),
    ("states", ("backward",), terms.reduced_gradients),
    ("checkpoints", FORWARD, terms.activations),
    ("logits", ("logits",), terms.logits),
    ("other", ("layer", "backward"), terms.layer_backward),
    ("other", ("step",), terms.optimizer_step),
    ("other", IN_STEP, exchange),
    # While the policy is trained, an engine that sleeps keeps nothing.
    ("other", IN_STEP, lambda job, _: 0.0 if job.rl.engine_sleeps else job.engine_bytes),
    ("other", ("generation",), lambda job, _: job.engine_bytes),
    ("other", WHOLE_RUN, runtime),
)
"""For each term: the part of the answer, the moments at which the term exists, and a function that
returns its bytes."""

# --- the sum --------------------------------------------------------------------------------------


class JobMemory(Frozen):
    """The memory of the fullest GPU, split by purpose, and of the host, in bytes."""

    states: float
    """Parameters, gradients, optimizer states, and the gathered FSDP unit."""
    checkpoints: float
    """The tensors that the forward pass keeps for the backward pass; 0 if memory peaks later."""
    logits: float
    """The logits and their loss; 0 if memory peaks at another moment."""
    fragmentation: float
    """The allocator's gaps that remain when memory is nearly full."""
    other: float
    """The CUDA context, NCCL, exchange buffers, a layer's backward pass, the optimizer's step."""
    runtime: float
    """The part of `other` that torch's allocator does not know about: the CUDA context and NCCL."""
    cached: float
    """The allocator's gaps that it keeps while there is room, and gives back before it runs out of
    memory."""
    host: float
    """The RAM that the job needs on the host, for all GPUs together."""

    @property
    def total(self) -> float:
        """The bytes that the job needs on the GPU: tensors, gaps that cannot be given back, and the
        CUDA runtime (which `other` includes)."""
        return self.states + self.checkpoints + self.logits + self.fragmentation + self.other

    @property
    def reserved(self) -> float:
        """The bytes that `torch.cuda.max_memory_reserved` would report on a GPU with enough
        memory."""
        return self.total - self.runtime + self.cached

    @property
    def allocated(self) -> float:
        """The bytes that `torch.cuda.max_memory_allocated` would report: the memory of tensors,
        without gaps."""
        return self.total - self.runtime - self.fragmentation


def memory(job: TrainingJob, recipe: Recipe) -> JobMemory:
    """The memory of a job under a recipe, part by part, at the moment when it needs the most."""
    counted = [(part, moments, size(job, recipe)) for part, moments, size in TERMS]
    # With a token budget, only the end of the forward pass is considered, because the constants
    # were fitted under this assumption.
    moments = FORWARD if job.fills_token_budget else IN_STEP
    if job.engine_bytes:
        moments = (*moments, "generation")
    transient = max(terms.logits(job, recipe), terms.layer_backward(job, recipe))
    # The gaps depend on whether the logits exist at the peak.
    gaps_at_logits = gaps(job, recipe, transient, logits_decide=True)
    gaps_elsewhere = gaps(job, recipe, transient, logits_decide=False)
    gaps_at = dict.fromkeys(moments, gaps_elsewhere) | {"logits": gaps_at_logits}

    def needed(moment: Moment, *parts: Part) -> float:
        """The bytes of these parts at one moment."""
        return sum(size for part, there, size in counted if moment in there and part in parts)

    highest = max(
        moments, key=lambda moment: needed(moment, *get_args(Part)) + gaps_at[moment].staying
    )
    return JobMemory(
        states=needed(highest, "states"),
        checkpoints=needed(highest, "checkpoints"),
        logits=needed(highest, "logits"),
        fragmentation=gaps_at[highest].staying,
        other=needed(highest, "other"),
        runtime=runtime(job, recipe),
        cached=max(0.0, gaps_at[highest].given_back),
        host=terms.host_bytes(job, recipe),
    )


def other_gpu_bytes(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes on each GPU but the first under `torch.nn.DataParallel`: a copy of the weights, and
    gradients and activations for this GPU's share of the batch.

    In each step the first GPU copies the weights to the others, and the outputs and gradients go
    back to it, which alone has optimizer states (torch/nn/parallel/data_parallel.py).
    """
    outputs = job.shape.vocabulary * tokens(job, recipe) + job.shape.classes * samples(job, recipe)
    # Each GPU holds its outputs and their gradient. Count no loss, because the first GPU computes
    # it.
    end_of_forward = terms.activations(job, recipe) + 2 * outputs * job.compute_bytes
    gradients = job.trained_parameters * terms.gradient_bytes(job)
    end_of_backward = terms.layer_backward(job, recipe) + gradients
    # The backward pass frees activations while it creates gradients, so the peak is the larger of
    # the two moments, not their sum.
    return terms.model_weights(job) + max(end_of_forward, end_of_backward) + runtime(job, recipe)
