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
from gpusetup.plan.job import (
    BYTES,
    SHARDED,
    Recipe,
    Shardable,
    TrainingJob,
    samples_per_group,
    tokens_per_gpu,
)

# --- weights, gradients and optimizer states ------------------------------------------------------

GATHERED_UNIT = 11.565
"""Bytes per parameter of the largest FSDP unit while it is gathered, including its gradients.
Fitted to the measured table (`cells.csv`), as is the next number."""
OFFLOADED_UNIT = 7.998
"""Bytes per parameter of the gathered unit if the states are offloaded to the host."""
FROZEN_UNIT = 4.0
"""Bytes per parameter of a frozen gathered unit, which has no gradients: the 16-bit weights of this
unit and of the next one."""


class Optimizer(Frozen):
    """The memory of an optimizer per trained parameter."""

    moments: float = 0.0
    """The number of states in the type of the parameters, or of their 32-bit copy."""
    fixed: float = 0.0
    """The bytes of states that have their own type."""
    copies: float = 0.0
    """The number of copies of the parameters that a `foreach` step makes at once."""
    paged: bool = False
    """Whether states move to the host when the GPU runs short of memory (CUDA's unified memory)."""


EIGHT_BITS = 1 + 4 / 256
"""Bytes of an 8-bit state: one byte, and a 32-bit scale for every 256 of them (Dettmers et al.,
arXiv 2110.02861)."""
OPTIMIZERS: dict[str, Optimizer] = {
    **dict.fromkeys(("adamw", "adam"), Optimizer(moments=2, copies=1)),
    **dict.fromkeys(("adagrad", "rmsprop"), Optimizer(moments=1, copies=1)),
    **dict.fromkeys(("muon", "lion", "sgd-momentum"), Optimizer(moments=1)),
    **dict.fromkeys(("adafactor", "sgd"), Optimizer()),
    **dict.fromkeys(("adamw8bit", "adamw-fp8"), Optimizer(fixed=2 * EIGHT_BITS)),
    "adamw-bf16": Optimizer(fixed=4), "adamw4bit": Optimizer(fixed=2 * (0.5 + 4 / 128)),
    "paged-adamw": Optimizer(moments=2, paged=True),
    "paged-adamw8bit": Optimizer(fixed=2 * EIGHT_BITS, paged=True),
    "lion8bit": Optimizer(fixed=EIGHT_BITS), "prodigy": Optimizer(moments=4),
}  # fmt: skip
"""Optimizer -> its memory. AdamW keeps two moments; SGD keeps none, or one with momentum. `foreach`
computes the square roots of all second moments at once, which needs a copy (torch.optim's
documentation). bitsandbytes and torchao store a moment in one byte or half a byte. Lion keeps one
moment (arXiv 2302.06675). Prodigy keeps AdamW's two, its sums and the initial weights. Adafactor
keeps a row and a column for each matrix (arXiv 1804.04235), which is negligible."""
NODE = 8
"""The number of GPUs in a node. HSDP shards the model in a node, and copies it to each node."""


def shard_count(job: TrainingJob, state: Shardable) -> int:
    """The number of GPUs among which the strategy divides parameters, gradients or optimizer
    states; 1 if it does not divide them."""
    if state not in SHARDED[job.strategy]:
        return 1
    return min(job.gpus, NODE) if job.strategy == "hsdp" else job.gpus


def per_gpu(job: TrainingJob, amount: float, state: Shardable) -> float:
    """The part of an amount of this state (a number of parameters, or bytes) that one GPU holds."""
    return amount / shard_count(job, state)


def keeps_cast_weights(job: TrainingJob) -> bool:
    """Whether autocast keeps copies of the weights in its smaller type."""
    # With 32-bit master copies the weights are already in 16 bits, and sharded strategies cast the
    # weights before they gather them.
    if job.master_weights or not job.copies_model:
        return False
    return job.compute_bytes < BYTES[job.dtype]


def rest_is_32_bit(job: TrainingJob) -> bool:
    """Whether the unquantised parts of a quantised base (embedding, norms, head) are in 32 bits."""
    return job.upcast_rest and job.stored_bytes is not None


def weight_bytes(job: TrainingJob) -> int:
    """The bytes of one weight on the GPU. DeepSpeed keeps it in the type used for computing; its
    32-bit master copy counts as an optimizer state."""
    return job.compute_bytes if job.master_weights else BYTES[job.dtype]


def gradient_bytes(job: TrainingJob) -> int:
    """The bytes of one gradient. DeepSpeed's gradients of the model's weights have the type used
    for computing, all others the type of the trained weight (an adapter or one of the model)."""
    if job.lora is not None or not job.master_weights:
        return job.trained_bytes
    return job.compute_bytes


def optimizer_bytes(job: TrainingJob) -> float:
    """The bytes of optimizer states per trained parameter, on the GPU or the host."""
    optimizer = OPTIMIZERS[job.optimizer]
    # Adapters are already in 32 bits and need no master copy.
    if not job.master_weights or job.lora is not None:
        return optimizer.moments * job.trained_bytes + optimizer.fixed
    # The optimizer updates a 32-bit copy of each weight, and the moments have its type.
    return 4 * (1 + optimizer.moments) + optimizer.fixed


def optimizer_on_host(job: TrainingJob) -> bool:
    """Whether the optimizer's states are on the host, because they are offloaded or may be paged
    out (which happens if memory runs short, the only case that matters for a plan)."""
    return OPTIMIZERS[job.optimizer].paged or job.offload_optimizer


def model_weights(job: TrainingJob) -> float:
    """The bytes of the model's weights on one GPU, with embedding tables but without adapters."""
    parameters = per_gpu(job, job.shape.parameters, "parameters")
    tables = per_gpu(job, job.tables, "parameters") * weight_bytes(job)
    if job.stored_bytes is None:
        return parameters * weight_bytes(job) + tables
    # In a quantised model the embedding and the head keep their type or become 32-bit.
    outside = per_gpu(job, job.shape.outside, "parameters")
    outside_bytes = outside * (4 if rest_is_32_bit(job) else weight_bytes(job))
    return (parameters - outside) * job.stored_bytes + outside_bytes + tables


def gradients_stay(job: TrainingJob) -> bool:
    """Whether gradients still exist while the next forward pass runs."""
    # Gradients stay between micro-batches, and a token budget means several of them.
    if job.fills_token_budget or job.accumulate > 1:
        return True
    # DeepSpeed's ZeRO 3 keeps gradients in one buffer that is never freed.
    return job.strategy == "zero3" and job.master_weights


def resident_states(job: TrainingJob, recipe: Recipe) -> float:
    """Bytes on one GPU of weights, adapters, optimizer states and DDP buckets; 0 with offload."""
    if recipe.offload:
        return 0.0
    adapters = per_gpu(job, job.adapter_parameters, "parameters")
    size = model_weights(job) + adapters * job.trained_bytes
    if not optimizer_on_host(job):
        size += per_gpu(job, job.trained_parameters, "optimizer") * optimizer_bytes(job)
    # DDP's buckets are a copy of the gradients (`gradient_as_bucket_view` is off by default).
    if job.strategy == "ddp":
        size += job.trained_parameters * gradient_bytes(job)
    return size


def other_model_states(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes on one GPU of the additional models (reference, reward, critic), sharded like the
    policy; 0 with offload. plan assumes that the critic is as large as the policy and trained like
    it (ms-swift, verl)."""
    if recipe.offload:
        return 0.0
    total = per_gpu(job, job.bytes_of_frozen_models, "parameters")
    if job.rl.critic:
        total += resident_states(job, recipe) + gradients(job, recipe)
    return total


def gathered_unit(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes of the largest FSDP unit while its weights are gathered, with its gradients; 0 if
    weights are not sharded."""
    if not job.shards_parameters:
        return 0.0
    rate = OFFLOADED_UNIT if recipe.offload else GATHERED_UNIT
    # Without trained layers there are no gradients in the unit, which the other rates include.
    if not job.trains_layers:
        rate = FROZEN_UNIT
    # The rates were fitted to runs that compute in 16 bits, so scale by the type in use.
    unit = job.shape.largest_unit * rate * job.compute_bytes / 2
    # Additional embedding tables are in FSDP's outermost unit, which stays gathered: once for the
    # weights, once for their gradients.
    return unit + job.tables * 2 * job.compute_bytes


def gradients(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes of all gradients on one GPU; 0 if they are offloaded, or if the optimizer consumes
    them during the backward pass."""
    # When DeepSpeed offloads the optimizer's states, it also moves the gradients to the host.
    deepspeed_offloads = job.offload_optimizer and job.master_weights
    if recipe.offload or deepspeed_offloads or job.step == "backward":
        return 0.0
    return per_gpu(job, job.trained_parameters, "gradients") * gradient_bytes(job)


def gradients_in_forward(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes of gradients that exist while the forward pass runs."""
    return gradients(job, recipe) if gradients_stay(job) else 0.0


def reduced_gradients(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes on DataParallel's first GPU for the sum of all GPUs' gradients, in addition to its
    own gradients; 0 for other strategies.

    All gradients exist before the first one is added (`ReduceAddCoalesced` of the whole model).
    """
    if job.strategy != "dp" or job.gpus == 1:
        return 0.0
    return job.trained_parameters * gradient_bytes(job)


ZERO3_GROUP = 1e9
"""The number of parameters that ZeRO 3's optimizer updates at once (`sub_group_size`)."""
ADAFACTOR_COPIES = 4.4
"""The number of 32-bit copies of the largest matrix that a step of transformers' Adafactor makes:
gradient, parameter, squares, the product of the factors, and parts of others."""


def optimizer_step(job: TrainingJob, recipe: Recipe) -> float:
    """The additional bytes that the optimizer needs during its step, such as the copies of a
    `foreach` step."""
    # For jobs with a token budget, the constants were fitted to the forward pass only. A step on
    # the host makes no copies on the GPU.
    if job.fills_token_budget or recipe.offload or job.offload_optimizer:
        return 0.0
    stepped = per_gpu(job, job.trained_parameters, "optimizer")
    if job.master_weights:
        # DeepSpeed keeps a GPU's share of the 32-bit copy in one flat tensor, and a step copies
        # that tensor twice: 2 x 4 bytes per parameter.
        return 8 * (min(stepped, ZERO3_GROUP) if job.strategy == "zero3" else stepped)
    if job.optimizer == "adafactor":
        largest_matrix = max(job.shape.vocabulary, job.shape.intermediate) * job.shape.hidden
        return ADAFACTOR_COPIES * 4 * largest_matrix / shard_count(job, "optimizer")
    if job.step != "foreach":
        return 0.0
    return stepped * OPTIMIZERS[job.optimizer].copies * job.trained_bytes


def host_bytes(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes of RAM that the job needs: all states with offload, the optimizer states if only
    they are on the host, otherwise 0."""
    # The critic needs as much as the policy.
    trained_models = 2 if job.rl.critic else 1
    optimizer = job.trained_parameters * optimizer_bytes(job)
    if not recipe.offload:
        return trained_models * optimizer if optimizer_on_host(job) else 0.0
    size: float = (job.shape.parameters + job.tables) * BYTES[job.dtype]
    size += job.adapter_parameters * job.trained_bytes
    size += job.trained_parameters * gradient_bytes(job) + optimizer
    size = trained_models * size + job.bytes_of_frozen_models
    # Every group of GPUs that shards the model has a full copy in RAM.
    return size * job.gpus / shard_count(job, "parameters")


# --- the forward and the backward pass ------------------------------------------------------------

CHECKPOINT_IN_BUDGET = 1.5
"""Bytes per element of a checkpoint if the token budget is not full; a full batch needs 2."""


def residual_bytes(job: TrainingJob) -> int:
    """The bytes per element of the hidden state that passes between layers."""
    # With PEFT's 32-bit norms and embedding, the hidden state is in 32 bits too.
    if rest_is_32_bit(job):
        return 4
    # Autocast casts inside the layers only; between them the weights' type stays.
    return BYTES[job.dtype] if keeps_cast_weights(job) else job.compute_bytes


def activations(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes of activations that the forward pass keeps for the backward pass, including
    autocast's 16-bit copies of weights."""
    tokens_times_layers = tokens_per_gpu(job, recipe) * job.shape.layers
    if job.checkpointing:
        return (checkpoint_bytes(job) + selected_bytes(job)) * tokens_times_layers
    weight_copies = 0.0
    if keeps_cast_weights(job):
        # The kernels of quantised layers read the stored weights, so only the others are cast.
        is_quantized = job.stored_bytes is not None
        cast = job.shape.outside if is_quantized else job.shape.parameters
        weight_copies = float(cast * job.compute_bytes)
    return layer_bytes(job) * tokens_times_layers + weight_copies


def checkpoint_bytes(job: TrainingJob) -> float:
    """The bytes per token of one layer's input, which checkpointing stores to recompute the layer
    (Chen et al., arXiv 1604.06174)."""
    if job.offload_checkpoints:
        return 0.0
    # Micro-batches rarely fill a token budget completely, so count less for these jobs. The
    # constant was fitted to hidden states of 2 bytes per element.
    filled = CHECKPOINT_IN_BUDGET / 2 if job.fills_token_budget else 1.0
    return job.shape.hidden * residual_bytes(job) * filled


def selected_bytes(job: TrainingJob) -> float:
    """The bytes per token that selective checkpointing keeps in each layer.

    torchtitan's policy keeps the output of attention and every other matrix product among those
    with wq, wk, wv, wo, w1, w3 and w2.
    """
    if not job.selective:
        return 0.0
    shape = job.shape
    # Attention's output, as wide as the queries, and the products with wq, wv and w1.
    elements = 2 * shape.query + shape.key_value + shape.intermediate
    # The output of w2 has the model's width; a compiled layer does not keep it.
    if not job.compile:
        elements += shape.hidden
    return elements * job.compute_bytes


def layer_bytes(job: TrainingJob) -> float:
    """The bytes per token that one layer keeps for its backward pass without checkpointing: for
    attention, an MLP and two norms, each perhaps followed by a dropout."""
    shape, compute, residual = job.shape, job.compute_bytes, residual_bytes(job)
    recomputes = job.compile or job.fused_kernels
    # A norm keeps its input and its output. RMSNorm keeps its input in 32 bits, and the normalised
    # values unless its weight is frozen; fused kernels and `torch.compile` recompute both.
    between = residual + compute
    if shape.rms_norm and not recomputes:
        between = 4 + (residual if job.trains_layers else 0) + compute
    # The mask of a dropout needs one byte per element.
    between += 1 if shape.dropout else 0
    # Attention keeps queries, keys, values and output; a norm of queries and keys keeps its input
    # in 32 bits, and its output.
    element_bytes = 2 * compute + (4 + compute if shape.query_key_norm else 0)
    attention = (shape.query + shape.key_value) * element_bytes + score_bytes(job)
    # A gated MLP keeps the gate, the up projection, the gate's activation and their product. Fused
    # or compiled kernels recompute the activation. An MLP without a gate keeps two tensors.
    tensors = (3 if recomputes else 4) if shape.gated else 2
    # A token has three copies for each of its experts, on the way in and out.
    mlp = (shape.intermediate * tensors + 3 * shape.experts * shape.hidden) * compute
    return 2 * between * shape.hidden + attention + mlp


def score_bytes(job: TrainingJob) -> float:
    """The bytes per token of the attention scores; 0 unless attention stores them (`eager`)."""
    if job.attention != "eager":
        return 0.0
    is_16_bit = job.compute_bytes < 4
    # The output of the softmax in 32 bits, and its 16-bit copy for the product with the values.
    bytes_per_score = 6 if is_16_bit else 4
    # Dropout keeps its mask and, when computing in 32 bits, its output. In 16 bits the output is
    # the copy counted above.
    if job.shape.dropout:
        bytes_per_score += 1 if is_16_bit else 5
    return job.context * job.shape.heads * bytes_per_score


def layer_backward(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes of one layer's backward pass: the recomputed activations, and gradients of about
    half their size."""
    shape = job.shape
    scores = score_bytes(job)
    kept = layer_bytes(job) - scores
    gradients = 0.5 * kept
    if job.fused_kernels and shape.gated:
        # In Liger and Unsloth, SwiGLU overwrites its inputs with its gradients.
        gradients = min(gradients, (shape.intermediate + shape.hidden) * job.compute_bytes)
    peak_of_scores = 1.5 * scores
    # Without checkpointing the kept tensors, scores included, already count as activations.
    if not job.checkpointing:
        return (gradients + peak_of_scores - scores) * tokens_per_gpu(job, recipe)
    bytes_per_token = kept + gradients + peak_of_scores
    # FSDP1 keeps input gradients of recomputed frozen layers until the backward pass ends.
    holds_input_gradients = job.strategy == "fsdp1" and job.gpus > 1 and job.reentrant
    if holds_input_gradients and job.lora is not None:
        bytes_per_token += shape.layers * checkpoint_bytes(job)
    return bytes_per_token * tokens_per_gpu(job, recipe)


TRAINER_LOGIT = 8.246
"""Bytes per logit with Trinity-RFT, fitted to the measured table (`cells.csv`)."""
LOSSES: dict[str, tuple[float, float]] = {
    "trainer": (TRAINER_LOGIT, TRAINER_LOGIT + 4), "eager": (14, 16), "hf": (12, 12),
    "eager-old": (12, 16), "eager-half": (8, 16), "compiled": (12, 12), "in-graph": (6, 12),
    "in-place": (4, 8), "chunked": (3.5, 5.5), "chunked-head": (1.75, 2),
    "fused": (0, 0),
}  # fmt: skip
"""Loss kernel -> bytes per logit when computing in 16 bits and in 32 bits.

`trainer` computes log-probabilities in place (what RL trainers do). `eager` is cross-entropy in a
hand-written loop with a variable that keeps the 32-bit logits until the backward pass is over: the
logits, their log-softmax and two gradients. `hf` frees the logits before the backward pass
(transformers' Trainer). `eager-old` copies the shifted logits (transformers before 4.49).
`eager-half` computes the loss from 16-bit logits (DeepSpeed's engine). `compiled` fuses the copies;
`in-graph` is compiled together with the model. `in-place`
writes the gradient over the logits (flash-attn, Apex, llm-foundry). `chunked` keeps the logits and
upcasts one of eight chunks at a time (torchtune); `chunked-head` keeps only one chunk of logits
(torchtitan). `fused` never stores the logits (Liger, cut cross-entropy, Unsloth).
"""


def logits(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes of the logits, including the copies and gradients that the loss keeps."""
    in_16_bits, in_32_bits = LOSSES[job.loss]
    # A 32-bit output head gives 32-bit logits, even if the layers compute in 16 bits.
    is_32_bit = job.compute_bytes == 4 or rest_is_32_bit(job)
    return logit_count(job, recipe) * (in_32_bits if is_32_bit else in_16_bits)


def logit_count(job: TrainingJob, recipe: Recipe) -> int:
    """The number of logits on the fullest GPU: tokens times vocabulary. The few outputs of a
    classifier do not matter."""
    count = job.shape.vocabulary * tokens_per_gpu(job, recipe)
    # With DataParallel the first GPU gathers the outputs of all GPUs and computes the loss.
    return count * job.gpus if job.strategy == "dp" else count


# --- the moments of a step, and what belongs to no tensor of the model ----------------------------

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
    # The constant was fitted to runs that compute in 16 bits, so scale by the type in use.
    return job.shape.hidden * tokens_per_gpu(job, recipe) * EXCHANGE * job.compute_bytes / 2


# --- the allocator's gaps: memory that it has reserved and no tensor uses -------------------------

LOST_LOGIT = 1.667
"""Bytes of gaps per logit with Trinity-RFT, fitted to the measured table (`cells.csv`)."""
SHIFTED_LOGIT = 4.2
"""Bytes per shifted logit: a float32 copy, and 5 % for the segment's rounding."""


class Gaps(NamedTuple):
    """The bytes that the allocator reserves and no tensor uses."""

    staying: float
    """The bytes that the allocator cannot give back."""
    given_back: float
    """The bytes that the allocator gives back before it runs out of memory."""


GAP_SHARES = {
    (False, False): (0.15, 0.05),
    (False, True): (0.31, 0.18),
    (True, False): (0.15, 0.02),
    (True, True): (0.15, 0.05),
}
"""(Whether segments are expandable, whether they are freed late) -> the gaps as shares of the
memory for temporary tensors: all gaps while there is enough free memory, and those that are left
after the allocator has given back what it can.

At Unsloth's longest contexts, gaps are at most 5 % of the allocated memory; when FSDP1 runs out of
memory, they are 17 to 24 %.
"""


def gaps(job: TrainingJob, recipe: Recipe, transient: float) -> Gaps:
    """The bytes in the allocator's gaps: those that stay, and those that it can give back.

    `transient`: the bytes of the largest temporary tensors. Fixed-size segments leave more gaps
    than expandable ones. The shares were fitted to published pairs of allocated and reserved
    memory.
    """
    if job.fills_token_budget:
        # With Trinity-RFT, they were fitted as a share of the largest temporary tensor.
        staying = 0.0 if recipe.env else transient * (LOST_LOGIT / TRAINER_LOGIT)
        return Gaps(staying=staying, given_back=0.0)
    # All tensors that are allocated and freed within a step leave gaps.
    moving_bytes = activations(job, recipe) + transient
    if not gradients_stay(job):
        moving_bytes += gradients(job, recipe)
    # FSDP1 and DeepSpeed free gathered units late, when another CUDA stream is done with them.
    frees_late = job.gathers and job.strategy not in ("fsdp", "hsdp")
    reserved_share, staying_share = GAP_SHARES[recipe.env, frees_late]
    logit_segments = segments_of_logits(job, recipe)
    reserved = moving_bytes * reserved_share + logit_segments
    # The allocator keeps about a third of the logits' own segments. This share was fitted too.
    staying = min(reserved, moving_bytes * staying_share + logit_segments / 3)
    # Tensors that lie between attention scores keep the scores' segments from being freed.
    if job.attention == "eager" and not job.gathers and not recipe.env:
        staying = reserved
    return Gaps(staying, given_back=reserved - staying)


def segments_of_logits(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes of memory segments for copies of the logits, which no other tensor reuses because
    none has the same size."""
    # Only transformers before 4.49 copies the shifted logits, and a single sample is shifted as a
    # view, without a copy.
    if job.loss != "eager-old" or samples_per_group(job, recipe) == 1:
        return 0.0
    # Expandable segments take any size, and gathered units reuse idle segments.
    if recipe.env or job.gathers:
        return 0.0
    return logit_count(job, recipe) * SHIFTED_LOGIT


FORWARD: tuple[Moment, ...] = ("logits", "layer")
IN_STEP: tuple[Moment, ...] = (*FORWARD, "backward", "step")
WHOLE_RUN: tuple[Moment, ...] = (*IN_STEP, "generation")


class Term(NamedTuple):
    """A term of the sum: the part of the answer that it is counted in, the moments at which the
    memory is in use, and a function that returns its bytes."""

    part: Part
    moments: tuple[Moment, ...]
    size: Callable[[TrainingJob, Recipe], float]


TERMS = (
    Term("states", IN_STEP, resident_states),
    Term(
        "states",
        ("generation",),
        lambda job, recipe: 0.0 if job.rl.policy_leaves else resident_states(job, recipe),
    ),
    Term("states", WHOLE_RUN, other_model_states),
    Term("states", (*FORWARD, "backward"), gathered_unit),
    Term("states", FORWARD, gradients_in_forward),
    Term("states", ("backward", "step"), gradients),
    Term("states", ("backward",), reduced_gradients),
    Term("checkpoints", FORWARD, activations),
    Term("logits", ("logits",), logits),
    Term("other", ("layer", "backward"), layer_backward),
    Term("other", ("step",), optimizer_step),
    Term("other", IN_STEP, exchange),
    # While the policy is trained, an engine that sleeps keeps nothing.
    Term("other", IN_STEP, lambda job, _: 0.0 if job.rl.engine_sleeps else job.engine_bytes),
    Term("other", ("generation",), lambda job, _: job.engine_bytes),
    Term("other", WHOLE_RUN, runtime),
)


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
    """The allocator's gaps that it only keeps while there is room."""
    host: float
    """The RAM that the job needs on the host, for all GPUs together."""

    @property
    def total(self) -> float:
        """The bytes that the job needs on the GPU: tensors, gaps that cannot be given back, and the
        CUDA runtime (which `other` includes)."""
        return self.states + self.checkpoints + self.logits + self.fragmentation + self.other

    @property
    def reserved(self) -> float:
        """What `torch.cuda.max_memory_reserved` would report on a GPU with enough memory."""
        return self.total - self.runtime + self.cached

    @property
    def allocated(self) -> float:
        """What `torch.cuda.max_memory_allocated` would report: tensors without gaps."""
        return self.total - self.runtime - self.fragmentation


def memory(job: TrainingJob, recipe: Recipe) -> JobMemory:
    """The memory of a job under a recipe, part by part, at the moment when it needs the most."""
    sizes = [(term, term.size(job, recipe)) for term in TERMS]
    # Without an engine on the same GPU, nothing is generated between two steps.
    moments = WHOLE_RUN if job.engine_bytes else IN_STEP
    transient = max(logits(job, recipe), layer_backward(job, recipe))
    allocator_gaps = gaps(job, recipe, transient)

    def needed(moment: Moment, *parts: Part) -> float:
        """The bytes of these parts at one moment."""
        return sum(size for term, size in sizes if moment in term.moments and term.part in parts)

    highest = max(moments, key=lambda moment: needed(moment, *get_args(Part)))
    return JobMemory(
        states=needed(highest, "states"),
        checkpoints=needed(highest, "checkpoints"),
        logits=needed(highest, "logits"),
        fragmentation=allocator_gaps.staying,
        other=needed(highest, "other"),
        runtime=runtime(job, recipe),
        cached=allocator_gaps.given_back,
        host=host_bytes(job, recipe),
    )


def other_gpu_bytes(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes on each GPU but the first under `torch.nn.DataParallel`: a copy of the weights, and
    gradients and activations for this GPU's share of the batch.

    In each step the first GPU copies the weights to the others, and the outputs and gradients go
    back to it, which alone has optimizer states (torch/nn/parallel/data_parallel.py).
    """
    # Each GPU holds its outputs and their gradient; the first one computes the loss.
    outputs = job.shape.vocabulary * tokens_per_gpu(job, recipe)
    end_of_forward = activations(job, recipe) + 2 * outputs * job.compute_bytes
    gradients = job.trained_parameters * gradient_bytes(job)
    end_of_backward = layer_backward(job, recipe) + gradients
    # The backward pass frees activations while it creates gradients, so the peak is the larger of
    # the two moments, not their sum.
    return model_weights(job) + max(end_of_forward, end_of_backward) + runtime(job, recipe)
