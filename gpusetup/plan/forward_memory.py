"""The memory of activations, of one layer's backward pass, and of the logits and their loss.

All amounts are bytes on one GPU, some of them per token or per element, as the docstrings say.
"""

from __future__ import annotations

from gpusetup.plan.job import BYTES, Recipe, TrainingJob, samples, tokens
from gpusetup.plan.states import keeps_cast_weights, per_gpu, rest_is_32_bit

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
