"""Weights, gradients, optimizer states: what is there for a whole step, in bytes of one GPU."""

from __future__ import annotations

from gpusetup.model.frozen import Frozen
from gpusetup.plan.job import BYTES, QUANTIZED, SHARDED, Job, Recipe, Shardable

UNSHARDED_EXTRA, GATHERED_UNIT, OFFLOADED_UNIT, FROZEN_UNIT = 1.065, 11.565, 7.998, 4.0
"""Bytes a parameter, fitted to the measured cells: of all parameters if a sharded strategy has only
one GPU; of the largest unit while it is gathered, with its gradients; the same with states on the
host; of a frozen unit."""


class Optimizer(Frozen):
    """Bytes a trained parameter."""

    moments: float = 0.0
    """States in the dtype of the parameters (32 bits if a 32-bit copy is kept)."""
    fixed: float = 0.0
    """Bytes of other states."""
    copies: float = 0.0
    """Copies of the parameters that a `foreach` step makes at once."""
    paged: bool = False
    """Whether states leave the GPU when the rest needs the room (CUDA's unified memory)."""


EIGHT_BITS = 1 + 4 / 256
"""A byte and a 32-bit scale for 256 of them (Dettmers et al., arXiv 2110.02861)."""

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
"""AdamW keeps two moments, SGD none or one; `foreach` takes the square root of all second moments
at once (torch.optim's documentation); bitsandbytes and torchao keep one byte or half of one a
moment; Lion one moment (arXiv 2302.06675); Prodigy AdamW's two, its sums and the first weights;
Adafactor a row and a column for each matrix (arXiv 1804.04235: next to nothing)."""


NODE = 8
"""GPUs of a node: HSDP divides among them, and copies from node to node."""


def shard_count(job: Job, state: Shardable) -> int:
    """Among how many GPUs a strategy divides parameters, gradients or optimizer states."""
    if state not in SHARDED[job.strategy]:
        return 1
    if job.strategy == "hsdp":
        return min(job.data_parallel, NODE)
    return job.data_parallel


def per_gpu(job: Job, parameters: float, state: Shardable | None = None) -> float:
    """How many of these parameters one GPU of the fullest pipeline stage holds.

    `state`: what is held of them, divided as the strategy divides it; None: nothing divides it.

    An embedding and a head are on the first and last stage, a tied one on both.
    """
    shape = job.shape
    share_of_stage = 1 / job.pipeline_parallel
    if job.pipeline_parallel > 1 and job.lora is None:
        at_one_end = shape.outside if shape.tied else shape.outside / 2
        layers_of_stage = (shape.parameters - shape.outside) / job.pipeline_parallel
        share_of_stage = (layers_of_stage + at_one_end) / shape.parameters
    shards = shard_count(job, state) if state else 1
    return parameters * share_of_stage / job.tensor_parallel / shards


def keeps_cast_weights(job: Job) -> bool:
    """Whether autocast keeps copies of the weights in the smaller dtype.

    A sharded strategy gathers weights that are cast already, and 16-bit weights with 32-bit masters
    need no cast.
    """
    autocast_is_smaller = job.compute_bytes < BYTES[job.dtype]
    return autocast_is_smaller and job.copies_model and not job.master_weights


def rest_is_32_bit(job: Job) -> bool:
    """Whether embedding, norms and head of a quantised base are 32-bit."""
    return job.upcast_rest and job.is_quantized


def weight_bytes(job: Job) -> int:
    """Bytes of one weight as it is kept; with 32-bit masters the weights are 16-bit."""
    if job.amp and job.master_weights:
        return BYTES[job.amp]
    return BYTES[job.dtype]


def gradient_bytes(job: Job) -> int:
    """Bytes of one gradient: DeepSpeed's are as the weights are computed."""
    if job.lora is None and job.deepspeed_steps and job.amp:
        return BYTES[job.amp]
    return job.trained_bytes


def optimizer_bytes(job: Job) -> float:
    """Bytes a trained parameter of the optimizer's states, wherever they are."""
    optimizer = OPTIMIZERS[job.optimizer]
    has_master_copy = job.master_weights and job.lora is None
    master_bytes = 4 if has_master_copy else 0
    moment_bytes = 4 if has_master_copy else job.trained_bytes
    return master_bytes + optimizer.moments * moment_bytes + optimizer.fixed


def optimizer_on_host(job: Job) -> bool:
    """Whether the optimizer's states leave the GPU, always or when memory runs short."""
    return OPTIMIZERS[job.optimizer].paged or job.offload_optimizer


def model_weights(job: Job) -> float:
    """Bytes of the model without adapters, and of the tables beside it.

    Of a quantised model the embedding and the head stay as they are.
    """
    model_parameters = per_gpu(job, job.shape.parameters, "parameters")
    table_bytes = per_gpu(job, job.tables, "parameters") * weight_bytes(job)
    if not job.is_quantized:
        return model_parameters * weight_bytes(job) + table_bytes
    outside = per_gpu(job, job.shape.outside, "parameters")
    outside_bytes = outside * (4 if rest_is_32_bit(job) else weight_bytes(job))
    quantised_bytes = (model_parameters - outside) * QUANTIZED[job.quantize or ""]
    return quantised_bytes + outside_bytes + table_bytes


def gradients_stay(job: Job) -> bool:
    """Whether there are gradients while the forward pass runs.

    They are kept from one micro-batch to the next (an RL trainer's budget makes several), and some
    engines have one buffer for them that is never freed: Megatron's DDP, DeepSpeed's ZeRO 3.
    """
    has_micro_batches = job.fills_token_budget or job.accumulate > 1
    has_zero3_buffer = job.strategy == "zero3" and job.deepspeed_steps
    return has_micro_batches or job.megatron_ddp or has_zero3_buffer


def resident_states(job: Job, recipe: Recipe) -> float:
    """Bytes of weights, adapters and optimizer states, and of DDP's buckets of gradients."""
    if recipe.offload:
        return 0.0
    adapters = per_gpu(job, job.adapter_parameters, "parameters")
    size = model_weights(job) + adapters * job.trained_bytes
    if not optimizer_on_host(job):
        size += per_gpu(job, job.trained_parameters, "optimizer") * optimizer_bytes(job)
    if job.strategy == "ddp" and not job.master_weights:  # its buckets are a copy of the gradients
        size += per_gpu(job, job.trained_parameters) * gradient_bytes(job)
    return size


def states_while_generating(job: Job, recipe: Recipe) -> float:
    """Bytes of the policy's states between two steps; none if they are on the host then."""
    return 0.0 if job.policy_leaves else resident_states(job, recipe)


def states_beside(job: Job, recipe: Recipe) -> float:
    """Bytes of the models beside the policy, which the strategy divides as it divides the policy.

    A critic is trained like the policy; reference and reward models are weights alone.
    """
    total = 0.0
    for model in job.beside:
        if model.on_host or recipe.offload:
            continue
        bytes_of_weight = weight_bytes(job) if model.trained else model.weight_bytes
        total += per_gpu(job, model.parameters, "parameters") * bytes_of_weight
        if model.trained:
            total += per_gpu(job, model.parameters, "gradients") * gradient_bytes(job)
            if not optimizer_on_host(job):
                total += per_gpu(job, model.parameters, "optimizer") * optimizer_bytes(job)
    return total


FROZEN_ENCODER_BYTES = 2
"""Bytes a weight of frozen encoders: diffusers' scripts load them in 16 bits (`weight_dtype`)."""


def frozen_encoders(job: Job, recipe: Recipe) -> float:
    """Bytes of the encoders of text and the VAE of a denoiser; every GPU has them whole."""
    return job.encoder_parameters * FROZEN_ENCODER_BYTES


def unsharded_extra(job: Job, recipe: Recipe) -> float:
    """Bytes that a sharded strategy takes in addition if it has only one GPU (as measured)."""
    is_alone = job.gpus == 1 and job.shards_parameters and job.fills_token_budget
    if recipe.offload or not is_alone:
        return 0.0
    return job.trained_parameters * UNSHARDED_EXTRA


LIVE_PARAMETERS = 1e9
"""ZeRO 3 keeps as many parameters gathered (`stage3_max_live_parameters`), and steps as many at
once (`sub_group_size`)."""


def gathered_unit(job: Job, recipe: Recipe) -> float:
    """Bytes of the largest unit (FSDP) while its parameters are gathered, with its gradients."""
    if not job.shards_parameters:
        return 0.0
    rate = FROZEN_UNIT
    if job.trains_layers:
        rate = OFFLOADED_UNIT if recipe.offload else GATHERED_UNIT
    # The rates were fitted to units that are computed in 16 bits.
    unit = job.shape.largest_unit / job.tensor_parallel * rate * job.compute_bytes / 2
    # Tables beside the model are in FSDP's outermost unit, which stays whole with its gradients.
    unit += job.tables * 2 * job.compute_bytes
    if job.gpus > 1 and job.strategy == "zero3":
        live = min(LIVE_PARAMETERS, per_gpu(job, job.shape.parameters))
        return max(unit, live * job.compute_bytes)
    return unit


def gradients(job: Job, recipe: Recipe) -> float:
    """Bytes of all gradients; 0 if each is used up as it comes, or goes to the host."""
    leave_the_gpu = recipe.offload or (job.offload_optimizer and job.deepspeed_steps)
    if leave_the_gpu or job.step == "backward":
        return 0.0
    return per_gpu(job, job.trained_parameters, "gradients") * gradient_bytes(job)


def gradients_in_forward(job: Job, recipe: Recipe) -> float:
    """Bytes of the gradients that are there while the forward pass runs."""
    return gradients(job, recipe) if gradients_stay(job) else 0.0


def reduced_gradients(job: Job, recipe: Recipe) -> float:
    """Bytes of the sum of all GPUs' gradients under DataParallel, beside the first GPU's own.

    All gradients are there before the first is added (`ReduceAddCoalesced` of the whole model).
    """
    if job.strategy != "dp" or job.gpus == 1:
        return 0.0
    return job.trained_parameters * gradient_bytes(job)


ADAFACTOR_COPIES = 4.4
"""Copies of the largest matrix in 32 bits that a step of transformers' Adafactor makes: gradient,
parameter, squares, the product of its factors, and parts of others."""


def optimizer_step(job: Job, recipe: Recipe) -> float:
    """Bytes that the optimizer's step takes in addition: copies of all parameters by `foreach`."""
    if recipe.offload or job.offload_optimizer or job.fills_token_budget:
        return 0.0
    stepped = per_gpu(job, job.trained_parameters, "optimizer")
    if job.deepspeed_steps:
        # Its masters are one flat tensor of the GPU's part, which is copied twice in 32 bits.
        group = min(stepped, LIVE_PARAMETERS) if job.strategy == "zero3" else stepped
        return 8 * group
    if job.optimizer == "adafactor":
        largest_matrix = max(job.shape.vocabulary, job.shape.intermediate) * job.shape.hidden
        shards = job.tensor_parallel * shard_count(job, "optimizer")
        return ADAFACTOR_COPIES * 4 * largest_matrix / shards
    if job.step != "foreach":
        return 0.0
    parameter_bytes = 4 if job.master_weights else job.trained_bytes
    return stepped * OPTIMIZERS[job.optimizer].copies * parameter_bytes


def host_bytes(job: Job, recipe: Recipe) -> float:
    """Bytes in host memory: with Offload one whole copy of all states for each group of shards."""
    if not recipe.offload:
        if not optimizer_on_host(job):
            return 0.0
        return per_gpu(job, job.trained_parameters) * optimizer_bytes(job)
    weights = (job.shape.parameters + job.tables) * BYTES[job.dtype]
    adapters = job.adapter_parameters * job.trained_bytes
    trained = job.trained_parameters * (gradient_bytes(job) + optimizer_bytes(job))
    next_to_it = sum(model.parameters * model.weight_bytes for model in job.beside)
    groups = job.data_parallel / shard_count(job, "parameters")
    return (weights + adapters + trained + next_to_it) * groups
