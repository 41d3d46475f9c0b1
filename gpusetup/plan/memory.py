"""The memory of one training on its fullest GPU: a list of terms, each at the moments when it is
there. The moment that takes most decides.

A term is an amount (parameters, tokens times width) times bytes, which follow from dtypes; the few
numbers that arithmetic cannot give were fitted to 560 measured cells, or set beforehand. Amounts
are of one GPU. `docs/explanation/memory-model.md` says what each term was held against.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from gpusetup.model.frozen import Frozen
from gpusetup.model.units import GIB
from gpusetup.plan.job import BYTES, Job, Recipe, samples, tokens
from gpusetup.plan.losses import LOSSES, TRAINER_LOGIT
from gpusetup.plan.models_beside import generation_cache
from gpusetup.plan.states import (
    frozen_encoders,
    gathered_unit,
    gradients,
    gradients_in_forward,
    gradients_stay,
    host_bytes,
    keeps_cast_weights,
    optimizer_step,
    per_gpu,
    reduced_gradients,
    resident_states,
    rest_is_32_bit,
    states_beside,
    states_while_generating,
    unsharded_extra,
)

CHECKPOINT_IN_BUDGET = 1.5
"""Bytes of a checkpoint's element in batches that do not fill their budget of tokens; 2 in full."""


def sequence_shards(job: Job) -> int:
    """By what sequence parallelism divides norms and residuals (Megatron: arXiv 2205.05198)."""
    return job.tensor_parallel if job.sequence_parallel else 1


def residual_bytes(job: Job) -> int:
    """Bytes of an element of the hidden state between the layers."""
    if rest_is_32_bit(job):
        return 4
    if keeps_cast_weights(job):  # autocast casts inside the layers alone
        return BYTES[job.dtype]
    return job.compute_bytes


def activations(job: Job, recipe: Recipe) -> float:
    """Bytes that the forward pass keeps for the backward pass, with autocast's copies of weights.

    The first of p stages holds p micro-batches of L / p layers, which is L again (arXiv
    2104.04473).
    """
    tokens_times_layers = tokens(job, recipe) * job.shape.layers
    if job.checkpointing:
        return (checkpoint_bytes(job) + selected_bytes(job)) * tokens_times_layers
    return layer_bytes(job) * tokens_times_layers + weight_copies(job)


def checkpoint_bytes(job: Job) -> float:
    """Bytes a token of the input of every recomputed layer (Chen et al., arXiv 1604.06174)."""
    if job.offload_checkpoints:
        return 0.0
    width = CHECKPOINT_IN_BUDGET if job.fills_token_budget else 2.0
    return job.shape.hidden * residual_bytes(job) / 2 * width / sequence_shards(job)


def selected_bytes(job: Job) -> float:
    """Bytes a token that a layer keeps under selective checkpointing.

    Every second matrix product of wq, wk, wv, wo, w1, w3, w2, and what attention gives
    (torchtitan's policy).
    """
    if not job.selective:
        return 0.0
    shape = job.shape
    elements = (2 * shape.query + shape.key_value + shape.intermediate) / job.tensor_parallel
    if not job.compile:  # what attention gives, which a compiled layer computes again
        elements += shape.hidden / sequence_shards(job)
    return elements * job.compute_bytes


def weight_copies(job: Job) -> float:
    """Bytes of autocast's 16-bit copies of the weights."""
    if not keeps_cast_weights(job):
        return 0.0
    unquantised = job.shape.outside if job.is_quantized else job.shape.parameters
    return per_gpu(job, unquantised) * job.compute_bytes


def layer_bytes(job: Job) -> float:
    """Bytes a token that one layer keeps without checkpointing.

    Attention and MLP, and between them two norms, each perhaps with a dropout's mask of a byte an
    element.
    """
    inside = attention_bytes(job) + mlp_bytes(job)
    mask_bytes = 1 if job.shape.dropout else 0
    between = 2 * (norm_bytes(job) + mask_bytes) * job.shape.hidden
    return between / sequence_shards(job) + inside / job.tensor_parallel


def norm_bytes(job: Job) -> int:
    """Bytes an element that one norm keeps: its input, what it normalised, and its output.

    RMSNorm keeps its input in 32 bits. A frozen weight needs no normalised value; kernels and
    `torch.compile` recompute it.
    """
    residual, output = residual_bytes(job), job.compute_bytes
    if job.compile or job.fused_kernels or not job.shape.rms_norm:
        return residual + output
    normalised = residual if job.trains_layers else 0
    return 4 + normalised + output


def attention_bytes(job: Job) -> float:
    """Bytes a token of queries, keys, values, output, norms of queries and keys, scores."""
    compute = job.compute_bytes
    bytes_per_element = 2 * compute  # queries and output are as wide, keys and values too
    if job.shape.query_key_norm:  # RMSNorm's input in 32 bits, and its output
        bytes_per_element += 4 + compute
    width = job.shape.query + job.shape.key_value
    return width * bytes_per_element + score_bytes(job)


def score_bytes(job: Job) -> float:
    """Bytes a token for its scores with all others, if attention writes them to memory."""
    if job.attention != "eager":
        return 0.0
    is_16_bit = job.compute_bytes < 4
    bytes_per_score = 4  # the softmax, in 32 bits
    if is_16_bit:  # its copy for the product with the values
        bytes_per_score += 2
    if job.shape.dropout:  # its mask; in 32 bits its output too, which in 16 is that copy
        bytes_per_score += 1 if is_16_bit else 5
    return job.length * job.shape.heads * bytes_per_score


def mlp_bytes(job: Job) -> float:
    """Bytes a token of what the MLP keeps."""
    shape = job.shape
    tensors = 2  # the up projection and its activation
    if shape.gated:  # the gate, the up projection, the gate's activation and the product
        tensors = 4
        if job.compile or job.fused_kernels:  # the activation is computed again
            tensors = 3
    elements = shape.intermediate * tensors
    elements += 3 * shape.experts * shape.hidden  # copies of a token for its experts, in and out
    return elements * job.compute_bytes


def layer_backward(job: Job, recipe: Recipe) -> float:
    """Bytes of one layer's backward pass: what it recomputes, and gradients half as large."""
    scores = score_bytes(job) / job.tensor_parallel
    kept_without_scores = layer_bytes(job) - scores
    gradients_of_layer = layer_gradient_bytes(job, kept_without_scores)
    peak_of_scores = 1.5 * scores
    if job.attention == "eager":
        # Their softmax, its gradient and what it gives, in 32 bits.
        three_in_32_bits = 12.0 * job.shape.heads * job.length / job.tensor_parallel
        peak_of_scores = max(peak_of_scores, three_in_32_bits)
    if not job.checkpointing:  # what was kept is there already, and counted as activations
        return (gradients_of_layer + peak_of_scores - scores) * tokens(job, recipe)
    bytes_per_token = kept_without_scores + gradients_of_layer + peak_of_scores
    holds_input_gradients = job.strategy == "fsdp1" and job.gpus > 1 and job.reentrant
    if holds_input_gradients and job.lora is not None:
        # FSDP1 holds the gradients of the inputs of recomputed frozen layers until the end.
        bytes_per_token += job.shape.layers * checkpoint_bytes(job)
    return bytes_per_token * tokens(job, recipe)


def layer_gradient_bytes(job: Job, kept_bytes: float) -> float:
    """Bytes a token of one layer's gradients, of which half are there at once."""
    half = 0.5 * kept_bytes
    if job.fused_kernels and job.shape.gated:
        # Liger's and Unsloth's SwiGLU writes its gradients over its inputs.
        written_over = job.shape.intermediate / job.tensor_parallel + job.shape.hidden
        return min(half, written_over * job.compute_bytes)
    return half


Moment = Literal["logits", "layer", "backward", "step", "generation"]
"""`logits` and `layer`: the end of the forward pass, with the loss or with the first layer's
backward pass. `backward`: a layer's backward pass when gradients are there. `generation`: between
two steps, while answers are generated on the same GPU."""
Part = Literal["states", "checkpoints", "logits", "other"]

CUDA_CONTEXT = 0.5 * GIB
"""Bytes of CUDA's context and the libraries' workspaces: an assumption."""

NCCL, NCCL_FITTED = 0.8 * GIB, 0.3 * GIB
"""Bytes of NCCL's buffers on a GPU: between 0.1 GiB without NVLink and 1.2 GiB with it (messages of
runs out of memory); and as the measured cells fit."""

EXCHANGE, LOST_LOGIT = 15.981, 1.667
"""Of an RL trainer, fitted to the measured cells: bytes an exchanged element, bytes a logit in
gaps."""


def runtime(job: Job, recipe: Recipe) -> float:
    """Bytes of CUDA's context, and of NCCL's buffers if GPUs exchange tensors."""
    if job.gpus == 1:
        return CUDA_CONTEXT
    return CUDA_CONTEXT + (NCCL_FITTED if job.fills_token_budget else NCCL)


def logits(job: Job, recipe: Recipe) -> float:
    """Bytes of the logits and of all that their loss holds."""
    bytes_in_16_bits, bytes_in_32_bits = LOSSES[job.loss]
    is_32_bit = job.compute_bytes == 4 or rest_is_32_bit(job)
    return logit_count(job, recipe) * (bytes_in_32_bits if is_32_bit else bytes_in_16_bits)


def logit_count(job: Job, recipe: Recipe) -> float:
    """Tokens times vocabulary, or samples times classes."""
    shape = job.shape
    outputs = shape.vocabulary * tokens(job, recipe) + shape.classes * samples(job, recipe)
    if job.strategy == "dp":  # the first GPU gathers the outputs of all, and computes the loss
        outputs *= job.gpus
    return outputs / job.tensor_parallel


def exchange(job: Job, recipe: Recipe) -> float:
    """Bytes that sequence parallelism exchanges in one layer (Ulysses, arXiv 2309.14509)."""
    if recipe.sp == 1:
        return 0.0
    elements = job.shape.hidden * tokens(job, recipe)
    return elements * EXCHANGE * job.compute_bytes / 2  # fitted to 16 bits


def engine_while_generating(job: Job, recipe: Recipe) -> float:
    """Bytes that an inference engine on the same GPU reserves: its weights, cache and passes."""
    return job.engine_bytes


def engine_in_step(job: Job, recipe: Recipe) -> float:
    """Bytes of the engine while the policy is trained; none if it sleeps."""
    return 0.0 if job.engine_sleeps else job.engine_bytes


# --- the terms ------------------------------------------------------------------------------------

FORWARD: tuple[Moment, ...] = ("logits", "layer")
IN_STEP: tuple[Moment, ...] = (*FORWARD, "backward", "step")
WHOLE_RUN: tuple[Moment, ...] = (*IN_STEP, "generation")
TERMS: tuple[tuple[Part, tuple[Moment, ...], Callable[[Job, Recipe], float]], ...] = (
    ("states", IN_STEP, resident_states),
    ("states", ("generation",), states_while_generating),
    ("states", WHOLE_RUN, states_beside),
    ("states", WHOLE_RUN, frozen_encoders),
    ("states", IN_STEP, unsharded_extra),
    ("states", (*FORWARD, "backward"), gathered_unit),
    ("states", FORWARD, gradients_in_forward),
    ("states", ("backward", "step"), gradients),
    ("states", ("backward",), reduced_gradients),
    ("checkpoints", FORWARD, activations),
    ("logits", ("logits",), logits),
    ("other", ("layer", "backward"), layer_backward),
    ("other", ("step",), optimizer_step),
    ("other", IN_STEP, exchange),
    ("other", IN_STEP, engine_in_step),
    ("other", ("generation",), engine_while_generating),
    ("other", ("generation",), generation_cache),
    ("other", WHOLE_RUN, runtime),
)
"""Part of the answer, moments at which the term is there, and its bytes."""

# --- gaps -----------------------------------------------------------------------------------------


def gaps(job: Job, recipe: Recipe, transient: float, *, logits_decide: bool) -> tuple[float, float]:
    """Bytes that the allocator reserves and no tensor uses: those that it cannot give back, and
    those that it gives back before it fails.

    `transient`: bytes of the largest tensors that come and go; `logits_decide`: whether the logits
    are at the peak. Gaps are a share of what comes and goes; segments of fixed size leave more than
    expandable ones. The shares were fitted to published pairs of allocated and reserved memory.
    """
    if job.fills_token_budget:  # fitted to the measured cells: gaps of the logits alone
        lost = 0.0 if recipe.env else transient * LOST_LOGIT / TRAINER_LOGIT
        return lost, 0.0
    own = own_segments(job, recipe)
    logit_bytes = logits(job, recipe)
    moving = activations(job, recipe) + transient
    if not gradients_stay(job):
        moving += gradients(job, recipe)
    # Logits come and go in pieces of one size, which leave no gaps, but for shifted copies.
    uneven = moving
    if logits_decide and job.loss != "eager-old":
        uneven -= logit_bytes
    # What FSDP1 and DeepSpeed gathered is free only when another stream is done with it.
    frees_late = job.gathers and job.strategy not in ("fsdp", "hsdp")
    share = 0.31 if frees_late and not recipe.env else 0.15
    reserved = (moving if recipe.env else uneven) * share + own
    after_collection = uneven * LASTING_GAPS[frees_late, recipe.env] + own / 3
    # What lives between scores that are written to memory holds their segments.
    scores_hold_segments = job.attention == "eager" and not job.gathers and not recipe.env
    staying = reserved if scores_hold_segments else min(reserved, after_collection)
    given_back = reserved - staying
    if not (recipe.env or recipe.offload or job.gathers or logits_decide):
        given_back += 0.5 * logit_bytes  # half of their segments are idle at another peak
    return staying, given_back


LASTING_GAPS = {(False, False): 0.05, (False, True): 0.02, (True, False): 0.18, (True, True): 0.05}
"""(Frees gathered units late, expandable segments) -> the share of what moves whose gaps stay:
Unsloth's longest contexts end within 5 % of what is allocated, runs of FSDP1 within 17 to 24 %."""


def own_segments(job: Job, recipe: Recipe) -> float:
    """Bytes in segments of logits, or of their copies, of a size that nothing else has."""
    if recipe.env or job.gathers:
        return 0.0
    bytes_per_logit = 0.0
    # Old transformers copy the shifted logits in float32 (4 bytes, and 5 % for the segment's
    # rounding); one sample alone is shifted as a view. Megatron's loss keeps a copy as large.
    copies_shifted_logits = job.loss == "eager-old" and samples(job, recipe) > 1
    if copies_shifted_logits or job.loss == "vocab-parallel":
        bytes_per_logit += 4.2
    # Today's transformers upcast 16-bit logits once more, in their own format.
    if job.loss == "hf" and job.compute_bytes < 4:
        bytes_per_logit += job.compute_bytes
    return logit_count(job, recipe) * bytes_per_logit


# --- the sum --------------------------------------------------------------------------------------


class Memory(Frozen):
    """The memory of the fullest GPU by what it is for, in bytes, and the host's."""

    states: float
    """Parameters, gradients, optimizer states, and the FSDP unit that is gathered."""
    checkpoints: float
    """What the forward pass keeps for the backward pass."""
    logits: float
    """The logits and their loss; 0 if another moment decides."""
    fragmentation: float
    """Gaps that stay if the allocator needs the room."""
    other: float
    """CUDA's context, NCCL, exchanges, a layer's backward pass, the optimizer's step."""
    runtime: float
    """CUDA's context and NCCL within `other`: what torch's allocator does not know of."""
    cached: float
    """Gaps that the allocator gives back before it fails: reserved while there is room."""
    host: float
    """What the machine's own memory holds for all GPUs."""

    @property
    def total(self) -> float:
        """What the GPU must have: what is allocated, gaps that stay, and the runtime's."""
        return self.states + self.checkpoints + self.logits + self.fragmentation + self.other

    @property
    def reserved(self) -> float:
        """What `torch.cuda.max_memory_reserved` says on a GPU that has room."""
        return self.total - self.runtime + self.cached

    @property
    def allocated(self) -> float:
        """What `torch.cuda.max_memory_allocated` says: reserved memory without the gaps."""
        return self.total - self.runtime - self.fragmentation


def memory(job: Job, recipe: Recipe) -> Memory:
    """The memory at the highest moment of a run, part by part."""
    sizes = [(part, moments, size(job, recipe)) for part, moments, size in TERMS]

    def bytes_at(moment: Moment, part: Part | None = None) -> float:
        total = 0.0
        for part_of_term, moments, size in sizes:
            if moment in moments and part in (None, part_of_term):
                total += size
        return total

    # RL trainers were measured, and fitted, by the end of the forward pass alone.
    moments = FORWARD if job.fills_token_budget else IN_STEP
    if job.generates:
        moments = (*moments, "generation")
    highest = max(moments, key=bytes_at)
    transient = max(logits(job, recipe), layer_backward(job, recipe))
    staying, cached = gaps(job, recipe, transient, logits_decide=highest == "logits")
    return Memory(
        states=bytes_at(highest, "states"),
        checkpoints=bytes_at(highest, "checkpoints"),
        logits=bytes_at(highest, "logits"),
        fragmentation=staying,
        other=bytes_at(highest, "other"),
        runtime=runtime(job, recipe),
        cached=max(0.0, cached),
        host=host_bytes(job, recipe),
    )
