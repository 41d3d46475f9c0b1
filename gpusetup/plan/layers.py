"""What the forward pass keeps for the backward pass, and what a layer's backward pass takes."""

from __future__ import annotations

from gpusetup.plan.job import BYTES, Job, Recipe, tokens
from gpusetup.plan.shape import targets
from gpusetup.plan.states import casts, mine, upcast

CHECKPOINT_IN_BUDGET = 1.5
"""Bytes of a checkpoint's element in batches that do not fill their budget of tokens; 2 in full."""


def between(job: Job) -> int:
    """By what tensor parallelism divides what is between attention and MLP (arXiv 2205.05198)."""
    return job.tensor_parallel if job.sequence_parallel else 1


def layers(job: Job) -> float:
    """Layers of which a GPU keeps something.

    The first of p stages holds p micro-batches of L / p layers, which is L again (arXiv
    2104.04473). Frozen layers below the first that is trained are in no graph.
    """
    held = job.shape.layers / (job.stages if job.strategy == "device-map" else 1)
    return held if job.trained_layers is None else min(job.trained_layers, held)


def residual_bytes(job: Job) -> int:
    """Bytes of an element of the hidden state between the layers."""
    if upcast(job):
        return 4
    sample = job.shape.sample  # a denoiser's comes out of a linear layer
    wide = casts(job) and not (sample and sample.trained)
    return BYTES[job.dtype] if wide else job.compute_bytes


def kept(job: Job, recipe: Recipe) -> float:
    """What the forward pass keeps for the backward pass, and autocast's copies of the weights."""
    count = tokens(job, recipe)
    if not job.checkpointing:
        return layers(job) * layer_bytes(job) * count + weight_copies(job)
    return layers(job) * (checkpoint_bytes(job) + selected_bytes(job)) * count


def checkpoint_bytes(job: Job) -> float:
    """Bytes a token of the input of every recomputed layer (Chen et al., arXiv 1604.06174)."""
    if job.offload_checkpoints:
        return 0.0
    width = CHECKPOINT_IN_BUDGET if job.batch is None else 2.0
    return recomputed(job) * job.shape.hidden * residual_bytes(job) / 2 * width / between(job)


def recomputed(job: Job) -> float:
    """The share of the layers that is recomputed."""
    return 1 / int(job.selective) if job.selective and job.selective != "op" else 1.0


def selected_bytes(job: Job) -> float:
    """Bytes a token that a layer keeps under selective checkpointing.

    Per op: every second matrix product of wq, wk, wv, wo, w1, w3, w2, and what attention gives
    (torchtitan's policy). Every n-th layer: the others keep all.
    """
    s = job.shape
    if job.selective is None:
        return 0.0
    if job.selective != "op":
        return (1 - recomputed(job)) * layer_bytes(job)
    inner = (2 * s.query + s.key_value + s.intermediate) / job.tensor_parallel
    return (inner + s.hidden / between(job) * (not job.compile)) * job.compute_bytes


def weight_copies(job: Job) -> float:
    """Autocast's 16-bit copies of the weights."""
    plain = job.shape.outside if job.is_quantized else job.shape.parameters
    return mine(job, plain) * job.compute_bytes * casts(job)


def layer_bytes(job: Job) -> float:
    """Bytes a token that one layer keeps without checkpointing.

    Each norm keeps its input, in 32 bits for RMSNorm, what it normalised, and its output; a dropout
    a mask of bytes. A layer of a video's denoiser was measured by autograd's saved tensors.
    """
    s = job.shape
    if s.sample and s.sample.trained and s.sample.frozen:
        rates = s.sample.frozen if job.base_is_frozen else s.sample.trained
        by_autocast = job.copies_model and (job.autocast or casts(job))
        return rates[2 if by_autocast else int(job.compute_bytes < 4)] * s.hidden + pairs(job)
    inside = attention_bytes(job) + mlp_bytes(job) + adapter_bytes(job)
    outside = (s.norms * norm_bytes(job) + 2 * s.dropout) * s.hidden
    return outside / between(job) + inside / job.tensor_parallel


def norm_bytes(job: Job) -> int:
    """A frozen weight needs no normalised value; kernels and `torch.compile` recompute it."""
    residual, compute = residual_bytes(job), job.compute_bytes
    if job.compile or job.fused_kernels or not job.shape.rms_norm:
        return residual + compute
    return 4 + residual * (not job.base_is_frozen) + compute


def attention_bytes(job: Job) -> float:
    """Queries, keys, values, output, norms of queries and keys, scores."""
    s, compute = job.shape, job.compute_bytes
    return (s.query + s.key_value) * (2 * compute + s.query_key_norm * (4 + compute)) + pairs(job)


def pairs(job: Job) -> float:
    """Bytes a token for its scores with all others, if attention writes them to memory.

    The softmax in 32 bits, its copy for the product in 16, and a dropout's mask.
    """
    half = job.compute_bytes < 4
    each = 4 + 2 * half + (1 if half else 5) * job.shape.dropout
    return job.length * job.shape.heads * each * (job.attention == "eager")


def mlp_bytes(job: Job) -> float:
    """Its gate, up projection, activation and product; two tensors without a gate.

    Kernels and `torch.compile` recompute the activation. For experts each token has a copy on the
    way in and out.
    """
    s = job.shape
    count = 4 - (job.compile or job.fused_kernels) if s.gated else 2
    return (s.intermediate * count + 3 * s.experts * s.hidden) * job.compute_bytes


def adapter_bytes(job: Job) -> float:
    """What a dropout before LoRA keeps: a copy and a mask of its inputs."""
    inputs = sum(a for a, _ in targets(job.shape, job.lora_targets))
    return inputs * (job.compute_bytes + 1) * (job.lora_dropout and job.lora is not None)


def layer(job: Job, recipe: Recipe) -> float:
    """The backward pass of one layer: what is recomputed, and gradients half as large.

    Scores take their softmax, its gradient and what it gives, in 32 bits.
    """
    s, count = job.shape, tokens(job, recipe)
    scores = pairs(job) / job.tensor_parallel
    peak = 1.5 * scores
    if job.attention == "eager":
        peak = max(peak, 12.0 * s.heads * job.length / job.tensor_parallel)
    rest = layer_bytes(job) - scores
    passing = 0.5 * rest
    if job.fused_kernels and s.gated and not job.gradient_dtype and not s.experts:
        # Liger's and Unsloth's SwiGLU writes its gradients over its inputs.
        passing = min(
            passing, (s.intermediate / job.tensor_parallel + s.hidden) * job.compute_bytes
        )
    if not job.checkpointing:
        return (passing + peak - scores) * count
    # FSDP1 holds the gradients of the inputs of recomputed frozen layers until the end.
    held = job.strategy == "fsdp1" and job.gpus > 1 and job.lora is not None and job.reentrant
    second = layers(job) * checkpoint_bytes(job) * held
    return (rest + passing + peak + second) * count
