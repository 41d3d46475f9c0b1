"""The bytes of weights, gradients and optimizer states on one GPU, which exist during a whole
training step."""

from __future__ import annotations

from gpusetup.model.frozen import Frozen
from gpusetup.plan.job import BYTES, SHARDED, ModelBeside, Recipe, Shardable, TrainingJob
from gpusetup.plan.shape import Shape

UNSHARDED_EXTRA = 1.065
"""Extra bytes per parameter if a sharded strategy runs on one GPU. Fitted to the measured table
(`measured.py`), as are the next two numbers."""
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


# --- how parameters are divided -------------------------------------------------------------------

NODE = 8
"""The number of GPUs in a node. HSDP shards the model within a node, and each node holds a full
copy."""


def shard_count(job: TrainingJob, state: Shardable) -> int:
    """The number of GPUs among which the strategy divides parameters, gradients or optimizer
    states; 1 if it does not divide them."""
    if state not in SHARDED[job.strategy]:
        return 1
    if job.strategy == "hsdp":
        return min(job.data_parallel, NODE)
    return job.data_parallel


def per_gpu(job: TrainingJob, parameters: float, state: Shardable | None = None) -> float:
    """How many of the given parameters one GPU holds in the largest pipeline stage.

    `state` tells whether weights, gradients or optimizer states are counted, which the strategy may
    shard; None means that nothing is sharded.
    """
    share = share_of_stage(job)
    shards = shard_count(job, state) if state else 1
    # Sharded parameters are already divided among all GPUs, including those of experts.
    if shards == 1:
        share *= share_with_experts(job)
    return parameters * share / job.tensor_parallel / shards


def share_of_stage(job: TrainingJob) -> float:
    """The share of the model's parameters in the largest pipeline stage, from 0 to 1.

    The embedding is on the first stage and the head on the last; a tied embedding is on both.
    """
    stages = job.pipeline_parallel
    # Adapters are only in the layers, and all stages have the same number of layers.
    if stages == 1 or job.lora is not None:
        return 1 / stages
    shape = job.shape
    at_one_end = shape.outside if shape.tied else shape.outside / 2
    in_layers = shape.parameters - shape.outside
    of_stage = in_layers / stages + at_one_end
    return of_stage / shape.parameters


def share_with_experts(job: TrainingJob) -> float:
    """The share of the parameters that a GPU holds under expert parallelism, from 0 to 1."""
    if job.expert_parallel == 1:
        return 1.0
    experts = expert_share(job.shape)
    other_layers = 1 - experts
    return other_layers + experts / job.expert_parallel


def expert_share(shape: Shape) -> float:
    """The share of a model's parameters that belongs to experts, from 0 to 1.

    It sums the experts that a token uses (their width is `intermediate`) and the other experts (the
    difference between `parameters` and `active`).
    """
    if not shape.experts:
        return 0.0
    matrices = 3 if shape.gated else 2
    parameters_per_width = matrices * shape.hidden
    used_experts = shape.layers * parameters_per_width * shape.intermediate
    unused_experts = shape.parameters - shape.active
    all_experts = used_experts + unused_experts
    return min(all_experts / shape.parameters, 1.0)


# --- bytes per parameter --------------------------------------------------------------------------


def keeps_cast_weights(job: TrainingJob) -> bool:
    """Whether autocast keeps copies of the weights in its smaller type."""
    # With 32-bit master copies the weights are already in 16 bits and need no cast.
    if job.master_weights:
        return False
    # Sharded strategies keep no copies, because they cast the weights before they gather them.
    if not job.copies_model:
        return False
    return job.compute_bytes < BYTES[job.dtype]


def rest_is_32_bit(job: TrainingJob) -> bool:
    """Whether the unquantised parts of a quantised base (embedding, norms, head) are kept in 32
    bits."""
    if not job.upcast_rest:
        return False
    return job.is_quantized


def weight_bytes(job: TrainingJob) -> int:
    """The bytes of one weight on the GPU; 16-bit weights that have a 32-bit master copy count as
    16-bit."""
    dtype = job.dtype
    if job.amp and job.master_weights:
        dtype = job.amp
    return BYTES[dtype]


def gradient_bytes(job: TrainingJob) -> int:
    """The bytes of one gradient. With DeepSpeed they have the type used for computing, otherwise
    the type of the trained weight."""
    has_adapters = job.lora is not None
    # The gradients of adapters have the adapters' type.
    if has_adapters or not job.deepspeed_steps:
        return job.trained_bytes
    computed_in = job.amp or job.dtype
    return BYTES[computed_in]


def optimizer_bytes(job: TrainingJob) -> float:
    """The bytes of optimizer states per trained parameter, on the GPU or the host."""
    optimizer = OPTIMIZERS[job.optimizer]
    # Adapters are already in 32 bits and need no master copy.
    has_master_copy = job.master_weights and job.lora is None
    if not has_master_copy:
        moment_bytes = optimizer.moments * job.trained_bytes
        return moment_bytes + optimizer.fixed
    master_bytes = 4
    # The moments have the type of the 32-bit copy that the optimizer updates.
    moment_bytes = optimizer.moments * master_bytes
    return master_bytes + moment_bytes + optimizer.fixed


def optimizer_on_host(job: TrainingJob) -> bool:
    """Whether the optimizer's states are on the host, because they are offloaded or may be paged
    out."""
    optimizer = OPTIMIZERS[job.optimizer]
    # Paged states leave the GPU only if memory runs short, which is the only case that matters for
    # a plan.
    return optimizer.paged or job.offload_optimizer


# --- states that exist during a whole step --------------------------------------------------------


def model_weights(job: TrainingJob) -> float:
    """The bytes of the model's weights on one GPU, with additional embedding tables but without
    adapters."""
    model_parameters = per_gpu(job, job.shape.parameters, "parameters")
    table_bytes = per_gpu(job, job.tables, "parameters") * weight_bytes(job)
    stored_bytes = job.stored_bytes
    if stored_bytes is None:
        return model_parameters * weight_bytes(job) + table_bytes
    # In a quantised model the embedding and the head keep their type or become 32-bit.
    outside = per_gpu(job, job.shape.outside, "parameters")
    outside_bytes = outside * (4 if rest_is_32_bit(job) else weight_bytes(job))
    quantised_bytes = (model_parameters - outside) * stored_bytes
    return quantised_bytes + outside_bytes + table_bytes


def gradients_stay(job: TrainingJob) -> bool:
    """Whether gradients still exist while the next forward pass runs."""
    # Gradients are kept from one micro-batch to the next, and a token budget means several
    # micro-batches.
    has_micro_batches = job.fills_token_budget or job.accumulate > 1
    # Megatron-LM and DeepSpeed's ZeRO 3 keep gradients in one buffer that is never freed.
    has_zero3_buffer = job.strategy == "zero3" and job.deepspeed_steps
    return has_micro_batches or job.megatron_ddp or has_zero3_buffer


def resident_states(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes on one GPU of weights, adapters, optimizer states and DDP's gradient buckets; 0
    with offload."""
    if recipe.offload:
        return 0.0
    adapters = per_gpu(job, job.adapter_parameters, "parameters")
    size = model_weights(job) + adapters * job.trained_bytes
    if not optimizer_on_host(job):
        stepped = per_gpu(job, job.trained_parameters, "optimizer")
        size += stepped * optimizer_bytes(job)
    # DDP's buckets are a copy of the gradients (`gradient_as_bucket_view` is off by default).
    has_buckets = job.strategy == "ddp" and not job.master_weights
    if has_buckets:
        size += per_gpu(job, job.trained_parameters) * gradient_bytes(job)
    return size


def states_while_generating(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes of the policy's states while answers are generated; 0 if they are moved to the host
    for that time."""
    if job.policy_leaves:
        return 0.0
    return resident_states(job, recipe)


def states_beside(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes on one GPU of the additional models (reference, reward, critic), sharded like the
    policy; 0 with offload."""
    if recipe.offload:
        return 0.0
    total = 0.0
    for model in job.models_beside:
        if not model.on_host:
            total += states_of_model_beside(job, model)
    return total


def states_of_model_beside(job: TrainingJob, model: ModelBeside) -> float:
    """The bytes on one GPU of one additional model: weights, and gradients and optimizer states if
    it is trained."""
    weights = per_gpu(job, model.parameters, "parameters")
    if not model.trained:
        return weights * model.weight_bytes
    # A trained model (a critic) also has gradients and optimizer states, like the policy.
    total = weights * weight_bytes(job)
    total += per_gpu(job, model.parameters, "gradients") * gradient_bytes(job)
    if not optimizer_on_host(job):
        total += per_gpu(job, model.parameters, "optimizer") * optimizer_bytes(job)
    return total


FROZEN_ENCODER_BYTES = 2
"""Bytes per weight of frozen encoders, which diffusers' scripts load in 16 bits
(`weight_dtype`)."""


def frozen_encoders(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes of an image or video model's frozen text encoders and VAE; every GPU holds them
    completely."""
    return job.encoder_parameters * FROZEN_ENCODER_BYTES


def unsharded_extra(job: TrainingJob, recipe: Recipe) -> float:
    """The extra bytes that Trinity-RFT needed in measurements when a sharded strategy ran on one
    GPU."""
    # Only Trinity-RFT, which fills a token budget, showed this in measurements.
    if recipe.offload or not job.fills_token_budget:
        return 0.0
    is_alone = job.gpus == 1 and job.shards_parameters
    if not is_alone:
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
    rate = unit_rate(job, recipe)
    unit_parameters = job.shape.largest_unit / job.tensor_parallel
    # Scale by the type used for computing, because the rates were fitted to runs that compute in 16
    # bits.
    unit = unit_parameters * rate * job.compute_bytes / 2
    # Additional embedding tables are in FSDP's outermost unit, which stays gathered with its
    # gradients.
    unit += job.tables * 2 * job.compute_bytes
    if job.gpus == 1 or job.strategy != "zero3":
        return unit
    live = min(LIVE_PARAMETERS, per_gpu(job, job.shape.parameters))
    return max(unit, live * job.compute_bytes)


def unit_rate(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes per parameter of a gathered FSDP unit."""
    if not job.trains_layers:
        return FROZEN_UNIT
    return OFFLOADED_UNIT if recipe.offload else GATHERED_UNIT


# --- gradients and the step -----------------------------------------------------------------------


def gradients(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes of all gradients on one GPU; 0 if they are offloaded, or if the optimizer consumes
    them during the backward pass."""
    # When DeepSpeed offloads the optimizer's states, it also moves the gradients to the host.
    deepspeed_offloads = job.offload_optimizer and job.deepspeed_steps
    if recipe.offload or deepspeed_offloads:
        return 0.0
    if job.step == "backward":
        return 0.0
    trained = per_gpu(job, job.trained_parameters, "gradients")
    return trained * gradient_bytes(job)


def gradients_in_forward(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes of gradients that exist while the forward pass runs."""
    if not gradients_stay(job):
        return 0.0
    return gradients(job, recipe)


def reduced_gradients(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes on DataParallel's first GPU for the sum of all GPUs' gradients, in addition to its
    own gradients; 0 for other strategies.

    All gradients exist before the first one is added (`ReduceAddCoalesced` of the whole model).
    """
    if job.strategy != "dp":
        return 0.0
    if job.gpus == 1:
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
    if job.fills_token_budget:
        return 0.0
    if recipe.offload or job.offload_optimizer:
        return 0.0
    stepped = per_gpu(job, job.trained_parameters, "optimizer")
    if job.deepspeed_steps:
        # DeepSpeed keeps a GPU's share of the 32-bit copy in one flat tensor, and a step copies
        # that tensor twice.
        group = min(stepped, LIVE_PARAMETERS) if job.strategy == "zero3" else stepped
        return 8 * group
    if job.optimizer == "adafactor":
        return adafactor_step(job)
    if job.step != "foreach":
        return 0.0
    parameter_bytes = 4 if job.master_weights else job.trained_bytes
    copies = OPTIMIZERS[job.optimizer].copies
    return stepped * copies * parameter_bytes


def adafactor_step(job: TrainingJob) -> float:
    """The additional bytes for the largest matrix in a step of transformers' Adafactor."""
    shape = job.shape
    widest = max(shape.vocabulary, shape.intermediate)
    largest_matrix = widest * shape.hidden
    shards = job.tensor_parallel * shard_count(job, "optimizer")
    matrix_bytes = 4 * largest_matrix / shards
    return ADAFACTOR_COPIES * matrix_bytes


# --- the memory of the host -----------------------------------------------------------------------


def host_bytes(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes of RAM that the job needs: all states with offload, the optimizer states if only
    they are on the host, otherwise 0."""
    if recipe.offload:
        return offloaded_bytes(job)
    if not optimizer_on_host(job):
        return 0.0
    return per_gpu(job, job.trained_parameters) * optimizer_bytes(job)


def offloaded_bytes(job: TrainingJob) -> float:
    """The bytes of RAM for all states under offload, with one full copy for each group of GPUs that
    shards the model."""
    all_weights = job.shape.parameters + job.tables
    weights = all_weights * BYTES[job.dtype]
    adapters = job.adapter_parameters * job.trained_bytes
    bytes_of_trained = gradient_bytes(job) + optimizer_bytes(job)
    trained = job.trained_parameters * bytes_of_trained
    models_beside = 0
    for model in job.models_beside:
        models_beside += model.parameters * model.weight_bytes
    # Every group of GPUs that shards the model has a full copy in RAM.
    groups = job.data_parallel / shard_count(job, "parameters")
    return (weights + adapters + trained + models_beside) * groups
