"""The memory of one training step on the fullest GPU: every term a formula with its source.

All functions are pure and answer bytes. A term is an amount (parameters, tokens times width) times
bytes, which follow from dtypes, or are one of the fitted `Constants` where arithmetic alone cannot
say. At the end of the forward pass stand the states, what it kept, and the larger of two passing
things: the logits with their loss, or the layer whose backward pass begins.
"""

from __future__ import annotations

from gpusetup.plan.constants import Constants
from gpusetup.plan.workload import (
    BYTES,
    Recipe,
    Workload,
    samples_per_group,
    tokens_per_gpu,
)
from gpusetup.value import Value


class Parts(Value):
    """The memory of the fullest GPU by what it is for, in bytes, and the host's."""

    states: float
    """Parameters, gradients, optimizer states, and the FSDP unit that is gathered."""
    checkpoints: float
    """What the forward pass keeps for the backward pass."""
    logits: float
    """The logits and their loss; 0 where the backward pass of a layer is the larger."""
    fragmentation: float
    other: float
    """CUDA context, NCCL, exchanges of sequence parallelism, a layer's backward pass."""
    host: float = 0.0
    """What the machine's own memory holds for all GPUs."""

    @property
    def total(self) -> float:
        return self.states + self.checkpoints + self.logits + self.fragmentation + self.other


# --- states -------------------------------------------------------------------------------------

OPTIMIZERS = {
    "adamw": (2.0, None),
    "adam": (2.0, None),
    "adamw8bit": (0.0, 2 * (1 + 4 / 256)),
    "adafactor": (0.0, None),
    "sgd": (0.0, None),
    "sgd-momentum": (1.0, None),
}
"""Optimizer -> states in the dtype of the parameters, and bytes a parameter of other states.

AdamW keeps two moments, SGD none or one (torch.optim); 8-bit AdamW one byte each and a 32-bit
scale for 256 of them (Dettmers et al., arXiv 2110.02861); Adafactor a row and a column for each
matrix, which `adafactor_bytes` counts (Shazeer and Stern, arXiv 1804.04235)."""

ZERO = ("zero1", "zero2", "zero3")
WHOLE = ("single", "dp", "ddp")
SHARDED: dict[str, tuple[bool, bool, bool]] = {
    "single": (False, False, False),
    "dp": (False, False, False),
    "ddp": (False, False, False),
    "zero1": (False, False, True),
    "zero2": (False, True, True),
    "zero3": (True, True, True),
    "fsdp": (True, True, True),
    "hsdp": (True, True, True),
}
"""Strategy -> whether parameters, gradients, optimizer states are divided among the GPUs
(ZeRO: Rajbhandari et al., arXiv 1910.02054; FSDP: Zhao et al., arXiv 2304.11277)."""


def shards(w: Workload) -> int:
    """GPUs that share one copy of what is sharded."""
    return (w.shard or w.data_parallel) if w.strategy == "hsdp" else w.data_parallel


def local(w: Workload, parameters: float) -> float:
    """The parameters left to one GPU by tensor and pipeline parallelism."""
    return parameters / (w.tensor_parallel * w.pipeline_parallel)


def weight_bytes(w: Workload) -> float:
    """Bytes a parameter that the weights take.

    In `dtype`. ZeRO with mixed precision keeps 16-bit weights (the 32-bit copy counts among the
    optimizer's states); autocast without sharding keeps a 16-bit copy of each trained weight
    until the backward pass has used it, which under checkpointing is made anew layer by layer.
    """
    if w.amp and w.strategy in ZERO:
        return BYTES[w.amp]
    trained = w.trained / max(w.shape.parameters, 1)
    stays = casts(w) and not w.checkpointing
    cast = BYTES[w.amp] * min(trained, 1) if w.amp and stays else 0
    return BYTES[w.dtype] + cast


def casts(w: Workload) -> bool:
    """Whether autocast keeps a copy of the weights in the smaller dtype."""
    return bool(w.amp and w.strategy in WHOLE and BYTES[w.amp] < BYTES[w.dtype])


def gradient_bytes(w: Workload) -> float:
    """Bytes a trained parameter that the gradients take: the parameters' dtype."""
    return BYTES[w.amp] if w.amp and w.strategy in ZERO else BYTES[w.dtype]


def bucket_bytes(w: Workload) -> float:
    """Bytes a trained parameter that DDP's buckets take, a second copy of the gradients.

    They are there from the start to the end (`gradient_as_bucket_view` is off by default in torch).
    """
    return gradient_bytes(w) if w.strategy == "ddp" else 0.0


def optimizer_bytes(w: Workload) -> float:
    """Bytes a trained parameter that the optimizer's states take."""
    moments, fixed = OPTIMIZERS[w.optimizer]
    master = 4 if w.amp and w.strategy in ZERO else 0
    width = 4 if master else BYTES[w.dtype]
    own = adafactor_bytes(w) if w.optimizer == "adafactor" else fixed or 0
    return master + moments * width + own


def adafactor_bytes(w: Workload) -> float:
    """A matrix of a x b has a + b 32-bit factors: 4 x (1/a + 1/b) bytes a parameter."""
    a, b = w.shape.hidden, max(w.shape.intermediate, w.shape.hidden)
    return 4 * (1 / a + 1 / b)


def state_bytes(w: Workload, r: Recipe) -> float:
    """Weights, gradients and optimizer states on the fullest GPU; with Offload they are the host's.

    16 bytes a parameter over n under FSDP with AdamW in 32 bits: 4 + 4 + 8.
    """
    return standing_bytes(w, r) + gradient_state_bytes(w, r)


def divisors(w: Workload) -> tuple[int, int, int]:
    """By what weights, gradients and optimizer states are divided."""
    weights, gradients, optimizer = (shards(w) if cut else 1 for cut in SHARDED[w.strategy])
    return weights, gradients, optimizer


def standing_bytes(w: Workload, r: Recipe) -> float:
    """The states that are there all the time: all but the gradients."""
    if r.offload:
        return 0.0
    for_weights, _, for_optimizer = divisors(w)
    weights = local(w, w.shape.parameters + w.adapters) * weight_bytes(w) / for_weights
    buckets = local(w, w.trained) * bucket_bytes(w)
    return weights + buckets + local(w, w.trained) * optimizer_bytes(w) / for_optimizer


def gradient_state_bytes(w: Workload, r: Recipe) -> float:
    """The gradients on the fullest GPU."""
    if r.offload:
        return 0.0
    return local(w, w.trained) * gradient_bytes(w) / divisors(w)[1]


STEP_COPIES = {"adamw": 1.0, "adam": 1.0, "adafactor": 1.0}
"""Optimizer -> copies of the parameters that its step makes: torch's `foreach` implementations
take the square root of all second moments at once."""


def step_bytes(w: Workload, r: Recipe) -> float:
    """What the optimizer's step takes beside the states."""
    if r.offload:
        return 0.0
    copies = STEP_COPIES.get(w.optimizer, 0.0) * BYTES[w.dtype]
    return local(w, w.trained) * copies / divisors(w)[2]


def host_bytes(w: Workload, r: Recipe) -> float:
    """What Offload keeps in pinned host memory: one whole copy of all states for each group."""
    if not r.offload:
        return 0.0
    whole = w.shape.parameters + w.adapters
    copy = whole * BYTES[w.dtype] + w.trained * (gradient_bytes(w) + optimizer_bytes(w))
    return copy * (w.data_parallel / shards(w))


def alone_amount(w: Workload, r: Recipe) -> float:
    """Parameters that one GPU holds alone, where a sharding strategy has nobody to share with."""
    alone = w.gpus == 1 and SHARDED[w.strategy][0] and not r.offload
    return float(w.trained) if alone else 0.0


def unit_amount(w: Workload) -> float:
    """Parameters of the largest unit that is gathered whole; in 32 bits they count twice."""
    if not SHARDED[w.strategy][0]:
        return 0.0
    return w.shape.largest_unit / w.tensor_parallel * (w.compute_bytes / 2)


# --- activations --------------------------------------------------------------------------------


def stage_layers(w: Workload) -> float:
    """Layers of which a GPU keeps something: those of its stage, for every micro-batch in flight.

    One forward, one backward (Narayanan et al., arXiv 2104.04473): the first of p stages holds p
    micro-batches of L / p layers, which is L again.
    """
    return float(w.shape.layers)


def residual_bytes(w: Workload) -> int:
    """Bytes an element of the hidden state between the layers.

    Autocast leaves it in the parameters' dtype; mixed precision of FSDP and ZeRO computes it in 16
    bits, as weights in 16 bits do.
    """
    return BYTES[w.dtype] if casts(w) else w.compute_bytes


def checkpoint_amount(w: Workload, r: Recipe) -> float:
    """Elements that checkpointing keeps: every layer's input (Chen et al., arXiv 1604.06174).

    Counted in 16 bits: one of 32 bits is two.
    """
    if not w.checkpointing:
        return 0.0
    return stage_layers(w) * w.shape.hidden * tokens_per_gpu(w, r) * (residual_bytes(w) / 2)


MLP_KEPT = {"gelu_new": (5, 3)}
"""Activation -> tensors of the MLP's width that stay, and how many of them autocast makes 32-bit.

Without a gate: what goes in and what comes out. `gelu_new` is written out in transformers, so that
each of its steps keeps its own; `pow` and what follows it run in 32 bits under autocast."""

WIDE_NORMS = ("gemma", "gemma2", "gemma3_text")
"""Families whose RMSNorm multiplies by its weight in 32 bits, and keeps what it multiplies so."""


def layer_bytes_a_token(w: Workload) -> float:
    """Bytes a token that one layer keeps without checkpointing, attention being fused.

    Each norm keeps its input, in 32 bits for RMSNorm, what it normalised, and its output; attention
    keeps queries, keys, values and its output; the MLP its gate, its up projection, the activation
    and their product (two tensors without a gate); a dropout a mask of bytes. For GPT in 16 bits
    that is the 34 bytes an element, less the scores, of Korthikanti et al. (arXiv 2205.05198).
    `tests/test_plan_activations.py` compares with what torch saves. Tensor parallelism divides
    what is inside attention and MLP.
    """
    s = w.shape
    outside = s.norms * norm_bytes(w) * s.hidden + 2 * s.dropout * s.hidden
    inside = attention_bytes(w) + mlp_bytes(w)
    return outside + inside / w.tensor_parallel


def norm_bytes(w: Workload) -> int:
    """Bytes an element that a norm keeps: input, normalised (RMSNorm only), output."""
    residual, compute = residual_bytes(w), w.compute_bytes
    if not w.shape.rms_norm:
        return residual + compute
    normalised = 4 if w.shape.kind in WIDE_NORMS else residual
    return 4 + normalised + compute


def attention_bytes(w: Workload) -> int:
    """Queries, keys, values, output; norms of queries and keys keep a 32-bit copy and theirs."""
    s, compute = w.shape, w.compute_bytes
    own = (2 * s.query + 2 * s.key_value) * compute
    return own + s.query_key_norm * (4 + compute) * (s.query + s.key_value)


def mlp_bytes(w: Workload) -> float:
    """The MLP's own tensors, and for experts each token's copy on the way in and out."""
    s, compute = w.shape, w.compute_bytes
    usual = (4 if s.gated else 2, 0)
    tensors, wide = usual if s.gated else MLP_KEPT.get(s.activation, usual)
    wide = wide if casts(w) else 0
    width = s.intermediate * ((tensors - wide) * compute + wide * 4)
    return width + 3 * s.experts * s.hidden * compute


def kept_bytes(w: Workload, r: Recipe) -> float:
    """What all layers keep for the backward pass where nothing is recomputed."""
    if w.checkpointing:
        return 0.0
    return stage_layers(w) * layer_bytes_a_token(w) * tokens_per_gpu(w, r)


def layer_bytes(w: Workload, r: Recipe) -> float:
    """The backward pass of one layer: its recomputed activations, and gradients half as large."""
    once = layer_bytes_a_token(w) * tokens_per_gpu(w, r)
    return once * (1.5 if w.checkpointing else 0.5)


LOSSES: dict[str, tuple[float, float] | None] = {
    "trainer": None,
    "eager": (15.0, 16.0),
    "fused": (0.0, 0.0),
}
"""Loss kernel -> bytes a logit in 16 and in 32 bits; None: the fitted constant, and 4 more.

`trainer` computes log-probabilities in place (what RL trainers do); `eager` is cross-entropy on
logits that were made 32-bit: 2 + 4 + 4 + 4 and part of a 16-bit gradient; `fused` (Liger, cut
cross-entropy) never holds them."""


def logit_amount(w: Workload, r: Recipe) -> float:
    """Logits that stand at once: tokens times vocabulary, over tensor parallelism.

    DataParallel gathers the outputs of all replicas on the first GPU, where the loss is computed.
    """
    gathered = w.gpus if w.strategy == "dp" else 1
    samples = samples_per_group(w, r) if w.batch is not None else 0
    outputs = w.shape.vocabulary * tokens_per_gpu(w, r) + w.shape.classes * samples
    return outputs * gathered / w.tensor_parallel


def logit_bytes(w: Workload, c: Constants) -> float:
    """Bytes a logit of the workload's loss kernel."""
    fixed, wide = LOSSES[w.loss], w.compute_bytes == 4
    return c.logit + 4 * wide if fixed is None else fixed[wide]


def exchange_amount(w: Workload, r: Recipe) -> float:
    """Elements that sequence parallelism exchanges in one layer (Ulysses, arXiv 2309.14509)."""
    if r.sp == 1:
        return 0.0
    return w.shape.hidden * tokens_per_gpu(w, r) * (w.compute_bytes / 2)


# --- all together -------------------------------------------------------------------------------


def parts(w: Workload, r: Recipe, c: Constants) -> Parts:
    """The memory of the fullest GPU at the highest of a step's peaks, part by part.

    Where gradients stay from one micro-batch to the next, that is the end of the forward pass.
    Otherwise gradients come while what was kept goes, and the end of the backward pass, or the
    optimizer's step, may be higher.
    """
    logits = logit_amount(w, r) * logit_bytes(w, c)
    layer = layer_bytes(w, r)
    checkpoint = c.checkpoint if w.batch is None else max(c.checkpoint, 2.0)
    kept = checkpoint_amount(w, r) * checkpoint + kept_bytes(w, r)
    gradients = gradient_state_bytes(w, r)
    after = max(layer, step_bytes(w, r))
    forward = w.gradients_stay or kept + max(logits, layer) >= gradients + after
    by_logits = forward and logits >= layer
    other = layer if forward else after
    return Parts(
        states=standing_bytes(w, r)
        + (gradients if w.gradients_stay or not forward else 0.0)
        + alone_amount(w, r) * c.alone
        + unit_amount(w) * (c.unit_offloaded if r.offload else c.unit),
        checkpoints=kept if forward else 0.0,
        logits=logits if by_logits else 0.0,
        fragmentation=0.0 if r.env else max(logits, layer) * (c.fragmentation / c.logit),
        other=always_bytes(w, r, c) + (0.0 if by_logits else other),
        host=host_bytes(w, r),
    )


def always_bytes(w: Workload, r: Recipe, c: Constants) -> float:
    """CUDA's context, NCCL's buffers, and the exchanges of sequence parallelism."""
    nccl = c.nccl_bytes if w.gpus > 1 and w.strategy != "dp" else 0.0
    return c.context_bytes + nccl + exchange_amount(w, r) * c.exchange
