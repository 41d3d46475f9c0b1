"""The memory of activations, of one layer's backward pass, and of the logits and their loss.

All amounts are bytes on one GPU, some of them per token or per element, as the docstrings say.
"""

from __future__ import annotations

from gpusetup.plan.job import BYTES, Recipe, TrainingJob, samples, tokens
from gpusetup.plan.losses import LOSSES
from gpusetup.plan.states import keeps_cast_weights, per_gpu, rest_is_32_bit

CHECKPOINT_IN_BUDGET = 1.5
"""Bytes per element of a checkpoint when the batch does not fill the token budget; a full batch
needs 2."""


def sequence_shards(job: TrainingJob) -> int:
    """The number of GPUs among which sequence parallelism divides the norms and residuals
    (Megatron: arXiv 2205.05198); 1 without it."""
    if not job.sequence_parallel:
        return 1
    return job.tensor_parallel


def residual_bytes(job: TrainingJob) -> int:
    """The bytes per element of the hidden state that passes between layers."""
    # With PEFT's 32-bit norms and embedding, the hidden state is in 32 bits too.
    if rest_is_32_bit(job):
        return 4
    # Autocast casts only inside the layers, so the hidden state between them keeps the weights'
    # type.
    if keeps_cast_weights(job):
        return BYTES[job.dtype]
    return job.compute_bytes


def activations(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes of activations that the forward pass keeps for the backward pass, including
    autocast's 16-bit copies of weights.

    With p pipeline stages, the first stage holds p micro-batches of L / p layers, so this is the
    same as for all L layers (arXiv 2104.04473).
    """
    tokens_times_layers = tokens(job, recipe) * job.shape.layers
    if job.checkpointing:
        bytes_per_token = checkpoint_bytes(job) + selected_bytes(job)
        return bytes_per_token * tokens_times_layers
    return layer_bytes(job) * tokens_times_layers + weight_copies(job)


def checkpoint_bytes(job: TrainingJob) -> float:
    """The bytes per token of one layer's input, which checkpointing stores to recompute the layer
    (Chen et al., arXiv 1604.06174)."""
    if job.offload_checkpoints:
        return 0.0
    # Micro-batches rarely fill a token budget completely, so count less for these jobs.
    width = CHECKPOINT_IN_BUDGET if job.fills_token_budget else 2.0
    element_bytes = residual_bytes(job) / 2 * width
    return job.shape.hidden * element_bytes / sequence_shards(job)


def selected_bytes(job: TrainingJob) -> float:
    """The bytes per token that selective checkpointing keeps in each layer.

    torchtitan's policy keeps the output of attention and every other matrix product among those
    with wq, wk, wv, wo, w1, w3 and w2.
    """
    if not job.selective:
        return 0.0
    shape = job.shape
    matrix_products = 2 * shape.query + shape.key_value + shape.intermediate
    elements = matrix_products / job.tensor_parallel
    # The output of attention, unless a compiled layer recomputes it.
    if not job.compile:
        elements += shape.hidden / sequence_shards(job)
    return elements * job.compute_bytes


def weight_copies(job: TrainingJob) -> float:
    """The bytes of the 16-bit weight copies that autocast keeps."""
    if not keeps_cast_weights(job):
        return 0.0
    # The kernels of quantised layers read the stored weights, so only the other weights are cast.
    unquantised = job.shape.outside if job.is_quantized else job.shape.parameters
    return per_gpu(job, unquantised) * job.compute_bytes


def layer_bytes(job: TrainingJob) -> float:
    """The bytes per token that one layer keeps for its backward pass without checkpointing.

    A layer has attention, an MLP and two norms, each perhaps followed by a dropout whose mask needs
    one byte per element.
    """
    inside = attention_bytes(job) + mlp_bytes(job)
    bytes_between = norm_bytes(job)
    if job.shape.dropout:
        bytes_between += 1
    between = 2 * bytes_between * job.shape.hidden
    # Tensor parallelism divides attention and MLP. It divides the norms and masks between them only
    # with sequence parallelism.
    return between / sequence_shards(job) + inside / job.tensor_parallel


def norm_bytes(job: TrainingJob) -> int:
    """The bytes per element that one norm keeps for its backward pass: its input, the normalised
    values and its output.

    RMSNorm keeps its input in 32 bits. The normalised values are not kept if the weight is frozen,
    or if fused kernels or `torch.compile` recompute them.
    """
    residual, output = residual_bytes(job), job.compute_bytes
    recomputes = job.compile or job.fused_kernels
    if recomputes or not job.shape.rms_norm:
        return residual + output
    input_bytes = 4
    normalised = residual if job.trains_layers else 0
    return input_bytes + normalised + output


def attention_bytes(job: TrainingJob) -> float:
    """The bytes per token that attention keeps: queries, keys, values, output, their norms, and the
    scores."""
    compute = job.compute_bytes
    # Queries and output have the same width, and so do keys and values.
    bytes_per_element = 2 * compute
    # The norm of queries and keys keeps its input in 32 bits, and its output.
    if job.shape.query_key_norm:
        bytes_per_element += 4 + compute
    width = job.shape.query + job.shape.key_value
    return width * bytes_per_element + score_bytes(job)


def score_bytes(job: TrainingJob) -> float:
    """The bytes per token of the attention scores; 0 unless attention writes them to memory
    (`eager`)."""
    if job.attention != "eager":
        return 0.0
    is_16_bit = job.compute_bytes < 4
    # The output of the softmax, in 32 bits.
    bytes_per_score = 4
    # A 16-bit copy of the softmax for the product with the values.
    if is_16_bit:
        bytes_per_score += 2
    # Dropout keeps its mask and, when computing in 32 bits, its output. In 16 bits the output is
    # the copy counted above.
    if job.shape.dropout:
        bytes_per_score += 1 if is_16_bit else 5
    return job.length * job.shape.heads * bytes_per_score


def mlp_bytes(job: TrainingJob) -> float:
    """The bytes per token that the MLP keeps for its backward pass."""
    shape = job.shape
    elements = shape.intermediate * mlp_tensors(job)
    # Each token is copied as input and output of each of its experts.
    elements += 3 * shape.experts * shape.hidden
    return elements * job.compute_bytes


def mlp_tensors(job: TrainingJob) -> int:
    """The number of tensors with the MLP's inner width that are kept for the backward pass."""
    # An MLP without a gate keeps the up projection and its activation.
    if not job.shape.gated:
        return 2
    # Fused or compiled kernels recompute the gate's activation, so three tensors are left.
    if job.compile or job.fused_kernels:
        return 3
    # The gate, the up projection, the gate's activation and their product are kept.
    return 4


def layer_backward(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes of one layer's backward pass: the recomputed activations, and gradients of about
    half their size."""
    scores = score_bytes(job) / job.tensor_parallel
    kept_without_scores = layer_bytes(job) - scores
    gradients_of_layer = layer_gradient_bytes(job, kept_without_scores)
    peak_of_scores = score_peak_bytes(job, scores)
    # Without checkpointing the kept tensors are already counted as activations.
    if not job.checkpointing:
        bytes_per_token = gradients_of_layer + peak_of_scores - scores
        return bytes_per_token * tokens(job, recipe)
    bytes_per_token = kept_without_scores + gradients_of_layer + peak_of_scores
    # FSDP1 keeps the input gradients of recomputed frozen layers until the end of the backward
    # pass.
    holds_input_gradients = job.strategy == "fsdp1" and job.gpus > 1 and job.reentrant
    if holds_input_gradients and job.lora is not None:
        bytes_per_token += job.shape.layers * checkpoint_bytes(job)
    return bytes_per_token * tokens(job, recipe)


def score_peak_bytes(job: TrainingJob, scores: float) -> float:
    """The bytes per token of the attention scores and their gradients at the peak of the backward
    pass."""
    with_gradients = 1.5 * scores
    if job.attention != "eager":
        return with_gradients
    # The softmax, its gradient, and the resulting gradient of the scores, in 32 bits.
    three_in_32_bits = 12.0 * job.shape.heads * job.length / job.tensor_parallel
    return max(with_gradients, three_in_32_bits)


def layer_gradient_bytes(job: TrainingJob, kept_bytes: float) -> float:
    """The bytes per token of the gradients within one layer; about half of them exist at the same
    time."""
    half = 0.5 * kept_bytes
    writes_over_inputs = job.fused_kernels and job.shape.gated
    if not writes_over_inputs:
        return half
    # In Liger and Unsloth, SwiGLU overwrites its inputs with its gradients.
    written_over = job.shape.intermediate / job.tensor_parallel + job.shape.hidden
    return min(half, written_over * job.compute_bytes)


def logits(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes of the logits, including the copies and gradients that the loss keeps."""
    bytes_in_16_bits, bytes_in_32_bits = LOSSES[job.loss]
    bytes_per_logit = bytes_in_16_bits
    # A 32-bit output head gives 32-bit logits, even if the layers compute in 16 bits.
    if job.compute_bytes == 4 or rest_is_32_bit(job):
        bytes_per_logit = bytes_in_32_bits
    return logit_count(job, recipe) * bytes_per_logit


def logit_count(job: TrainingJob, recipe: Recipe) -> float:
    """The number of logits on one GPU: tokens times vocabulary, or samples times classes for a
    classifier."""
    shape = job.shape
    of_tokens = shape.vocabulary * tokens(job, recipe)
    of_samples = shape.classes * samples(job, recipe)
    outputs = of_tokens + of_samples
    # With DataParallel the first GPU gathers the outputs of all GPUs and computes the loss.
    if job.strategy == "dp":
        outputs *= job.gpus
    return outputs / job.tensor_parallel
