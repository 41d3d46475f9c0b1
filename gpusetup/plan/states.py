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


def shard_count(job: Job, state: Shardable) -> int:
    """Among how many GPUs a strategy divides parameters, gradients or optimizer states.

    HSDP divides among the GPUs of a node, of which there are eight.
    """
    most = 8 if job.strategy == "hsdp" else job.gpus
    return min(job.data_parallel, most) if state in SHARDED[job.strategy] else 1


def per_gpu(job: Job, parameters: float, state: Shardable | None = None) -> float:
    """How many of these parameters one GPU of the fullest pipeline stage holds.

    `state`: what is held of them, divided as the strategy divides it; None: nothing divides it.

    An embedding and a head are on the first and last stage, a tied one on both.
    """
    s = job.shape
    share = 1 / job.pipeline_parallel
    if job.pipeline_parallel > 1 and job.lora is None:
        ends = s.outside if s.tied else s.outside / 2
        share = ((s.parameters - s.outside) / job.pipeline_parallel + ends) / s.parameters
    shards = shard_count(job, state) if state else 1
    return parameters * share / job.tensor_parallel / shards


def keeps_cast_weights(job: Job) -> bool:
    """Whether autocast keeps copies of the weights in the smaller dtype."""
    return job.copies_model and not job.master_weights and job.compute_bytes < BYTES[job.dtype]


def rest_is_32_bit(job: Job) -> bool:
    """Whether embedding, norms and head of a quantised base are 32-bit."""
    return job.upcast_rest and job.is_quantized


def weight_bytes(job: Job) -> int:
    return BYTES[job.amp if job.amp and job.master_weights else job.dtype]


def gradient_bytes(job: Job) -> int:
    if job.lora is None and job.deepspeed_steps and job.amp:
        return BYTES[job.amp]
    return job.trained_bytes


def optimizer_bytes(job: Job) -> float:
    """Bytes a trained parameter of the optimizer's states, wherever they are."""
    row, master = OPTIMIZERS[job.optimizer], 4 if job.master_weights and job.lora is None else 0
    return master + row.moments * (master or job.trained_bytes) + row.fixed


def optimizer_on_host(job: Job) -> bool:
    return OPTIMIZERS[job.optimizer].paged or job.offload_optimizer


def model_weights(job: Job) -> float:
    """Bytes of the model without adapters, and of the tables beside it.

    Of a quantised model the embedding and the head stay as they are.
    """
    whole = per_gpu(job, job.shape.parameters, "parameters")
    tables = per_gpu(job, job.tables, "parameters") * weight_bytes(job)
    if not job.is_quantized:
        return whole * weight_bytes(job) + tables
    outside = per_gpu(job, job.shape.outside, "parameters")
    plain = outside * (4 if rest_is_32_bit(job) else weight_bytes(job))
    return (whole - outside) * QUANTIZED[job.quantize or ""] + plain + tables


def gradients_stay(job: Job) -> bool:
    """Whether there are gradients while the forward pass runs (ZeRO 3 has one buffer of them)."""
    flat = job.strategy == "zero3" and job.deepspeed_steps
    return job.batch is None or job.accumulate > 1 or job.megatron_ddp or flat


def resident_states(job: Job, recipe: Recipe) -> float:
    """Bytes of weights, adapters and optimizer states, and of DDP's buckets of gradients."""
    if recipe.offload:
        return 0.0
    size = (
        model_weights(job) + per_gpu(job, job.adapter_parameters, "parameters") * job.trained_bytes
    )
    if not optimizer_on_host(job):
        size += per_gpu(job, job.trained_parameters, "optimizer") * optimizer_bytes(job)
    if job.strategy == "ddp" and not job.master_weights:  # its buckets are a copy of the gradients
        size += per_gpu(job, job.trained_parameters) * gradient_bytes(job)
    return size


def unsharded_extra(job: Job, recipe: Recipe) -> float:
    """Bytes that a sharded strategy takes in addition if it has only one GPU (as measured)."""
    is_alone = job.gpus == 1 and job.shards_parameters and job.batch is None
    return job.trained_parameters * UNSHARDED_EXTRA * (is_alone and not recipe.offload)


def gathered_unit(job: Job, recipe: Recipe) -> float:
    """Bytes of the largest unit (FSDP) while its parameters are gathered.

    ZeRO 3 keeps up to a billion parameters (`stage3_max_live_parameters`).
    """
    s = job.shape
    if not job.shards_parameters:
        return 0.0
    rate = FROZEN_UNIT
    if job.trains_layers:
        rate = OFFLOADED_UNIT if recipe.offload else GATHERED_UNIT
    unit = s.largest_unit / job.tensor_parallel * rate * job.compute_bytes / 2
    # Tables beside the model are in FSDP's outermost unit, which stays whole with its gradients.
    unit += job.tables * 2 * job.compute_bytes
    if job.gpus == 1:
        return unit
    live = min(1e9, per_gpu(job, s.parameters)) * (job.strategy == "zero3")
    return max(unit, live * job.compute_bytes)


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


def optimizer_step(job: Job, recipe: Recipe) -> float:
    """Bytes that the optimizer's step takes in addition: copies of all parameters by `foreach`.

    DeepSpeed's masters are one flat tensor of a GPU's part, which is copied twice, at stage 3 a
    billion parameters after the other (`sub_group_size`).
    """
    if recipe.offload or job.offload_optimizer or job.batch is None:
        return 0.0
    part = per_gpu(job, job.trained_parameters, "optimizer")
    if job.deepspeed_steps:
        group = min(part, 1e9) if job.strategy == "zero3" else part
        return 8 * group
    if job.optimizer == "adafactor":  # gradient, parameter, squares, and the product of its factors
        largest = max(job.shape.vocabulary, job.shape.intermediate) * job.shape.hidden
        return 17.6 * largest / job.tensor_parallel / shard_count(job, "optimizer")
    width = 4 if job.master_weights else job.trained_bytes
    return part * OPTIMIZERS[job.optimizer].copies * width * (job.step == "foreach")


def host_bytes(job: Job, recipe: Recipe) -> float:
    """Bytes in host memory: with Offload one whole copy of all states for each group."""
    if not recipe.offload:
        return per_gpu(job, job.trained_parameters) * optimizer_bytes(job) * optimizer_on_host(job)
    plain_parameters = job.shape.parameters + job.tables
    copy: float = plain_parameters * BYTES[job.dtype] + job.adapter_parameters * job.trained_bytes
    copy += job.trained_parameters * (gradient_bytes(job) + optimizer_bytes(job))
    return copy * (job.data_parallel / shard_count(job, "parameters"))
