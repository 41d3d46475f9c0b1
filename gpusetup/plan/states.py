"""The bytes of weights, gradients and optimizer states on one GPU, which exist during a whole
training step."""

from __future__ import annotations

from gpusetup.model.frozen import Frozen
from gpusetup.plan.job import BYTES, SHARDED, Recipe, Shardable, TrainingJob

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


LIVE_PARAMETERS = 1e9
"""The number of parameters that ZeRO 3 keeps gathered (`stage3_max_live_parameters`) and that its
optimizer updates at once (`sub_group_size`)."""


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
    unit += job.tables * 2 * job.compute_bytes
    # A single GPU gathers too if the weights are in the host's RAM.
    if job.strategy != "zero3" or (job.gpus == 1 and not recipe.offload):
        return unit
    live = min(LIVE_PARAMETERS, per_gpu(job, job.shape.parameters))
    return max(unit, live * job.compute_bytes)


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
        return 8 * (min(stepped, LIVE_PARAMETERS) if job.strategy == "zero3" else stepped)
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
