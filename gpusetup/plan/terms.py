"""The terms of a job's memory: weights, gradients and optimizer states, which exist during a whole
training step, then activations, one layer's backward pass, and the logits with their loss.

All amounts are bytes on one GPU, some of them per token or per element, as the docstrings say.
"""

from __future__ import annotations

from gpusetup.model.frozen import Frozen
from gpusetup.plan.job import BYTES, SHARDED, Recipe, Shardable, TrainingJob, samples, tokens

UNSHARDED_EXTRA = 1.065
"""Extra bytes per parameter if a sharded strategy runs on one GPU. Fitted to the measured table
(`cells.csv`), as are the next two numbers."""
GATHERED_UNIT = 11.565
"""Bytes per parameter of the largest FSDP unit while it is gathered, including its gradients."""
OFFLOADED_UNIT = 7.998
"""Bytes per parameter of the gathered unit if the states are offloaded to the host."""
FROZEN_UNIT = 4.0
"""Bytes per parameter of a frozen gathered unit, which has no gradients: the 16-bit weights of this
unit and of the next one."""


class Optimizer(Frozen):
    """The memory of an optimizer per trained parameter."""

    moments: float = 0.0
    """The number of states in the type of the parameters (in 32 bits if there is a 32-bit copy of
    the weights)."""
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
"""The number of GPUs in a node. HSDP shards the model within a node, and each node holds a full
copy."""


def shard_count(job: TrainingJob, state: Shardable) -> int:
    """The number of GPUs among which the strategy divides parameters, gradients or optimizer
    states; 1 if it does not divide them."""
    if state not in SHARDED[job.strategy]:
        return 1
    return min(job.gpus, NODE) if job.strategy == "hsdp" else job.gpus


def per_gpu(job: TrainingJob, amount: float, state: Shardable | None = None) -> float:
    """The part of an amount (a number of parameters, or bytes) that one GPU holds.

    `state` tells whether weights, gradients or optimizer states are counted, which the strategy may
    shard; None means that nothing is sharded.
    """
    return amount / (shard_count(job, state) if state else 1)


def keeps_cast_weights(job: TrainingJob) -> bool:
    """Whether autocast keeps copies of the weights in its smaller type."""
    # With 32-bit master copies the weights are already in 16 bits, and sharded strategies cast the
    # weights before they gather them.
    if job.master_weights or not job.copies_model:
        return False
    return job.compute_bytes < BYTES[job.dtype]


def rest_is_32_bit(job: TrainingJob) -> bool:
    """Whether the unquantised parts of a quantised base (embedding, norms, head) are kept in 32
    bits."""
    return job.upcast_rest and job.stored_bytes is not None


def weight_bytes(job: TrainingJob) -> int:
    """The bytes of one weight on the GPU; 16-bit weights that have a 32-bit master copy count as
    16-bit."""
    return BYTES[job.amp if job.amp and job.master_weights else job.dtype]


def gradient_bytes(job: TrainingJob) -> int:
    """The bytes of one gradient. With DeepSpeed they have the type used for computing, otherwise
    the type of the trained weight (an adapter or a weight of the model)."""
    if job.lora is not None or not job.master_weights:
        return job.trained_bytes
    return job.compute_bytes


def optimizer_bytes(job: TrainingJob) -> float:
    """The bytes of optimizer states per trained parameter, on the GPU or the host."""
    optimizer = OPTIMIZERS[job.optimizer]
    # Adapters are already in 32 bits and need no master copy.
    if not job.master_weights or job.lora is not None:
        return optimizer.moments * job.trained_bytes + optimizer.fixed
    # The moments have the type of the 32-bit copy that the optimizer updates.
    master_bytes = 4
    return master_bytes + optimizer.moments * master_bytes + optimizer.fixed


def optimizer_on_host(job: TrainingJob) -> bool:
    """Whether the optimizer's states are on the host, because they are offloaded or may be paged
    out (which happens if memory runs short, the only case that matters for a plan)."""
    return OPTIMIZERS[job.optimizer].paged or job.offload_optimizer


# --- states that exist during a whole step --------------------------------------------------------


def model_weights(job: TrainingJob) -> float:
    """The bytes of the model's weights on one GPU, with additional embedding tables but without
    adapters."""
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
    # Gradients are kept from one micro-batch to the next, and a token budget means several
    # micro-batches.
    if job.fills_token_budget or job.accumulate > 1:
        return True
    # DeepSpeed's ZeRO 3 keeps gradients in one buffer that is never freed.
    return job.strategy == "zero3" and job.master_weights


def resident_states(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes on one GPU of weights, adapters, optimizer states and DDP's gradient buckets; 0
    with offload."""
    if recipe.offload:
        return 0.0
    adapters = per_gpu(job, job.adapter_parameters, "parameters")
    size = model_weights(job) + adapters * job.trained_bytes
    if not optimizer_on_host(job):
        size += per_gpu(job, job.trained_parameters, "optimizer") * optimizer_bytes(job)
    # DDP's buckets are a copy of the gradients (`gradient_as_bucket_view` is off by default).
    if job.strategy == "ddp":
        size += per_gpu(job, job.trained_parameters) * gradient_bytes(job)
    return size


def states_beside(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes on one GPU of the additional models (reference, reward, critic), sharded like the
    policy; 0 with offload."""
    if recipe.offload:
        return 0.0
    total = per_gpu(job, job.bytes_of_frozen_models, "parameters")
    if not job.rl.critic:
        return total
    # The critic is as large as the policy.
    parameters = job.shape.parameters
    total += per_gpu(job, parameters, "parameters") * weight_bytes(job)
    # With adapters of the policy the critic has adapters too (ms-swift, verl), which are too small
    # to count; otherwise it is trained whole.
    if job.lora is None:
        total += per_gpu(job, parameters, "gradients") * gradient_bytes(job)
        if not optimizer_on_host(job):
            total += per_gpu(job, parameters, "optimizer") * optimizer_bytes(job)
    return total


def unsharded_extra(job: TrainingJob, recipe: Recipe) -> float:
    """The extra bytes that Trinity-RFT, which fills a token budget, needed in measurements when a
    sharded strategy ran on one GPU."""
    is_alone = job.gpus == 1 and job.shards_parameters
    if recipe.offload or not job.fills_token_budget or not is_alone:
        return 0.0
    return job.trained_parameters * UNSHARDED_EXTRA


def gathered_unit(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes of the largest FSDP unit while its weights are gathered, with its gradients; 0 if
    weights are not sharded."""
    if not job.shards_parameters:
        return 0.0
    rate = OFFLOADED_UNIT if recipe.offload else GATHERED_UNIT
    if not job.trains_layers:
        rate = FROZEN_UNIT
    # Scale by the type used for computing, because the rates were fitted to runs that compute in 16
    # bits.
    unit = job.shape.largest_unit * rate * job.compute_bytes / 2
    # Additional embedding tables are in FSDP's outermost unit, which stays gathered with its
    # gradients.
    return unit + job.tables * 2 * job.compute_bytes


# --- gradients and the step -----------------------------------------------------------------------


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
        # that tensor twice.
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
    if not recipe.offload:
        if not optimizer_on_host(job):
            return 0.0
        return per_gpu(job, job.trained_parameters) * optimizer_bytes(job)
    size: float = (job.shape.parameters + job.tables) * BYTES[job.dtype]
    size += job.adapter_parameters * job.trained_bytes
    size += job.trained_parameters * (gradient_bytes(job) + optimizer_bytes(job))
    size += job.bytes_of_frozen_models + job.rl.critic * job.shape.parameters * BYTES[job.dtype]
    # Every group of GPUs that shards the model has a full copy in RAM.
    return size * job.gpus / shard_count(job, "parameters")


# --- the forward and the backward pass ------------------------------------------------------------

CHECKPOINT_IN_BUDGET = 1.5
"""Bytes per element of a checkpoint when the batch does not fill the token budget; a full batch
needs 2."""


def residual_bytes(job: TrainingJob) -> int:
    """The bytes per element of the hidden state that passes between layers."""
    # With PEFT's 32-bit norms and embedding, the hidden state is in 32 bits too.
    if rest_is_32_bit(job):
        return 4
    # Autocast casts only inside the layers, so the hidden state between them keeps the weights'
    # type.
    return BYTES[job.dtype] if keeps_cast_weights(job) else job.compute_bytes


def activations(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes of activations that the forward pass keeps for the backward pass, including
    autocast's 16-bit copies of weights."""
    tokens_times_layers = tokens(job, recipe) * job.shape.layers
    if job.checkpointing:
        return (checkpoint_bytes(job) + selected_bytes(job)) * tokens_times_layers
    weight_copies = 0.0
    if keeps_cast_weights(job):
        # The kernels of quantised layers read the stored weights, so only the others are cast.
        is_quantized = job.stored_bytes is not None
        cast = job.shape.outside if is_quantized else job.shape.parameters
        weight_copies = per_gpu(job, cast) * job.compute_bytes
    return layer_bytes(job) * tokens_times_layers + weight_copies


def checkpoint_bytes(job: TrainingJob) -> float:
    """The bytes per token of one layer's input, which checkpointing stores to recompute the layer
    (Chen et al., arXiv 1604.06174)."""
    if job.offload_checkpoints:
        return 0.0
    # Micro-batches rarely fill a token budget completely, so count less for these jobs.
    width = CHECKPOINT_IN_BUDGET if job.fills_token_budget else 2.0
    return job.shape.hidden * residual_bytes(job) / 2 * width


def selected_bytes(job: TrainingJob) -> float:
    """The bytes per token that selective checkpointing keeps in each layer.

    torchtitan's policy keeps the output of attention and every other matrix product among those
    with wq, wk, wv, wo, w1, w3 and w2.
    """
    if not job.selective:
        return 0.0
    shape = job.shape
    elements = 2 * shape.query + shape.key_value + shape.intermediate
    # The output of attention, unless a compiled layer recomputes it.
    if not job.compile:
        elements += shape.hidden
    return elements * job.compute_bytes


def layer_bytes(job: TrainingJob) -> float:
    """The bytes per token that one layer keeps for its backward pass without checkpointing: for
    attention, an MLP and two norms, each perhaps followed by a dropout."""
    shape, compute, residual = job.shape, job.compute_bytes, residual_bytes(job)
    recomputes = job.compile or job.fused_kernels
    # A norm keeps its input, the normalised values and its output. RMSNorm keeps its input in 32
    # bits. The normalised values are not kept if the weight is frozen, or if fused kernels or
    # `torch.compile` recompute them.
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
    # Each token is copied as input and output of each of its experts.
    mlp = (shape.intermediate * tensors + 3 * shape.experts * shape.hidden) * compute
    return 2 * between * shape.hidden + attention + mlp


def score_bytes(job: TrainingJob) -> float:
    """The bytes per token of the attention scores; 0 unless attention writes them to memory
    (`eager`)."""
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
    if job.attention == "eager":
        # The softmax, its gradient, and the resulting gradient of the scores, in 32 bits.
        peak_of_scores = max(peak_of_scores, 12.0 * shape.heads * job.context)
    # Without checkpointing the kept tensors are already counted as activations.
    if not job.checkpointing:
        return (gradients + peak_of_scores - scores) * tokens(job, recipe)
    bytes_per_token = kept + gradients + peak_of_scores
    # FSDP1 keeps the input gradients of recomputed frozen layers until the end of the backward
    # pass.
    holds_input_gradients = job.strategy == "fsdp1" and job.gpus > 1 and job.reentrant
    if holds_input_gradients and job.lora is not None:
        bytes_per_token += shape.layers * checkpoint_bytes(job)
    return bytes_per_token * tokens(job, recipe)


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
SAME_LOSS = {
    "liger": "fused", "cce": "fused", "trl-chunked": "fused", "unsloth": "fused",
    "flash": "in-place", "flash-attn": "in-place", "apex": "in-place",
    "torchtune": "chunked", "hf-old": "eager-old", "torchtitan": "compiled",
}  # fmt: skip
"""Other names for the loss kernels -> the name in `LOSSES`."""


def logits(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes of the logits, including the copies and gradients that the loss keeps."""
    in_16_bits, in_32_bits = LOSSES[job.loss]
    # A 32-bit output head gives 32-bit logits, even if the layers compute in 16 bits.
    is_32_bit = job.compute_bytes == 4 or rest_is_32_bit(job)
    return logit_count(job, recipe) * (in_32_bits if is_32_bit else in_16_bits)


def logit_count(job: TrainingJob, recipe: Recipe) -> float:
    """The number of logits on one GPU: tokens times vocabulary, or samples times classes for a
    classifier."""
    outputs = job.shape.vocabulary * tokens(job, recipe) + job.shape.classes * samples(job, recipe)
    # With DataParallel the first GPU gathers the outputs of all GPUs and computes the loss.
    if job.strategy == "dp":
        outputs *= job.gpus
    return outputs
