"""What the forward pass keeps for the backward pass, and what a layer's backward takes."""

from __future__ import annotations

from gpusetup.plan.memory.stages import stage_layers
from gpusetup.plan.memory.states import QUANTIZED, WHOLE, casts, upcast
from gpusetup.plan.model.shape import TRANSLATORS, targets
from gpusetup.plan.model.trainers import CAPPED
from gpusetup.plan.model.workload import BYTES, Recipe, Workload, tokens_per_gpu


def residual_bytes(w: Workload) -> int:
    """Bytes an element of the hidden state between the layers.

    Autocast leaves it in the parameters' dtype; mixed precision of FSDP and ZeRO computes it in 16
    bits, as weights in 16 bits do. An embedding that was made 32-bit makes it 32-bit: 4-bit runs of
    one model take 541 and 410 kB a token beside 32-bit and 16-bit checkpoints (fms-acceleration's
    reference table, with PEFT's preparation and without).
    """
    if upcast(w):
        return 4
    if w.shape.sample and w.shape.sample.trained:  # what joins it comes out of a linear layer
        return w.compute_bytes
    return BYTES[w.dtype] if casts(w) else w.compute_bytes


def divided(w: Workload) -> int:
    """By what tensor parallelism divides what is between attention and MLP.

    Only with sequence parallelism (Korthikanti et al., arXiv 2205.05198).
    """
    return w.tensor_parallel if w.sequence_parallel else 1


def checkpoint_amount(w: Workload, r: Recipe) -> float:
    """Elements that checkpointing keeps: every layer's input (Chen et al., arXiv 1604.06174).

    Counted in 16 bits: one of 32 bits is two.
    """
    if not w.checkpointing or w.offload_checkpoints:
        return 0.0
    each = w.shape.hidden * (residual_bytes(w) / 2) / divided(w)
    return checkpointed(w) * stage_layers(w) * each * tokens_per_gpu(w, r)


def checkpointed(w: Workload) -> float:
    """The share of the layers that is recomputed."""
    return 1 / int(w.selective) if w.selective and w.selective.isdigit() else 1.0


def selected_bytes(w: Workload, r: Recipe) -> float:
    """What selective checkpointing keeps beside the layers' inputs.

    Per op: every second matrix product of wq, wk, wv, wo, w1, w3, w2, and what attention gives
    (torchtitan's policy). A compiled layer does not keep w2's, which its backward pass has no use
    for (what torch 2.13's partitioner saves of a Llama layer under this policy is its input, q, v,
    what attention gives and w1). Every n-th layer: the others keep all.
    """
    if not w.checkpointing or w.selective is None:
        return 0.0
    s, tokens = w.shape, tokens_per_gpu(w, r)
    if w.selective == "op":
        inner = 2 * s.query + s.key_value + s.intermediate
        last = 0.0 if w.compile else s.hidden / divided(w)
        each = (inner / w.tensor_parallel + last) * w.compute_bytes
    else:
        each = (1 - checkpointed(w)) * layer_bytes_a_token(w)
    return stage_layers(w) * each * tokens


WRITES_SCORES = ("eager", "written")
"""Attention that has a number for every pair of tokens in memory."""


MLP_KEPT = {"gelu_new": (5, 3), "gelu_python": (4, 0), "quick_gelu": (3, 0), "gelu_fast": (8, 0)}
"""Activation -> tensors of the MLP's width that stay, and how many of them autocast makes 32-bit.

Without a gate: what goes in and what comes out, of `relu` the latter alone. These are written out
in transformers, so that each step keeps its own; `pow` and what follows it run in 32 bits under
autocast. Megatron's `bias_gelu` is one kernel."""


def layer_bytes_a_token(w: Workload) -> float:
    """Bytes a token that one layer keeps without checkpointing.

    Each norm keeps its input, in 32 bits for RMSNorm, what it normalised, and its output; attention
    keeps queries, keys, values and its output; the MLP its gate, its up projection, the activation
    and their product (two tensors without a gate); a dropout a mask of bytes. For GPT in 16 bits
    that is the 34 bytes an element, less the scores, of Korthikanti et al. (arXiv 2205.05198).
    `tests/test_plan_models.py` compares with what torch saves. Tensor parallelism divides
    what is inside attention and MLP, with sequence parallelism also the norms, whose outputs are
    gathered whole again, and kept so but by Megatron.
    """
    s = w.shape
    if s.sample and s.sample.trained and s.sample.frozen:
        rates = s.sample.frozen if frozen(w) else s.sample.trained
        return rates[rate_of(w)] * s.hidden + pair_bytes(w)
    outside = s.norms * norm_bytes(w) * s.hidden + 2 * s.dropout * s.hidden
    inside = attention_bytes(w) + mlp_bytes(w) + adapter_bytes(w) + quantized_input_bytes(w)
    whole = s.norms * s.hidden * w.compute_bytes * (1 - 1 / divided(w)) * (not w.megatron)
    return outside / divided(w) + whole + inside / w.tensor_parallel


def rate_of(w: Workload) -> int:
    """Which of three ways of computing: in 32 bits, in 16, or under autocast.

    FSDP's mixed precision and DeepSpeed's engine compute in 16 bits without autocast.
    """
    by_autocast = w.strategy in WHOLE and (w.autocast or casts(w))
    return 2 if by_autocast else int(w.compute_bytes < 4)


def frozen(w: Workload) -> bool:
    """Whether the weights of the layers themselves are frozen."""
    return w.lora is not None or w.frozen >= 1


def norm_bytes(w: Workload) -> int:
    """Bytes an element that a norm keeps: input, normalised (RMSNorm only), output.

    A frozen weight needs no normalised value; kernels (Liger) and `torch.compile` keep the input as
    it is and compute the rest anew.
    """
    residual, compute = residual_bytes(w), w.compute_bytes
    if w.compile or w.fused_kernels or not w.shape.rms_norm:
        return residual + compute
    return 4 + residual * (not frozen(w)) + compute


def attention_bytes(w: Workload) -> float:
    """Queries, keys, values, output; norms of queries and keys keep a 32-bit copy and theirs.

    Flash attention keeps 4 bytes a head of its softmax; SDPA with a mask also the mask's row;
    eager attention the softmax in 32 and in 16 bits for every pair of tokens, and what a dropout
    leaves of it, with its mask.
    """
    s, compute = w.shape, w.compute_bytes
    shared = s.query if repeats(w) else s.key_value
    own = (2 * s.query + 2 * shared) * compute + 4 * s.heads
    return own + pair_bytes(w) + s.query_key_norm * (4 + compute) * (s.query + s.key_value)


def repeats(w: Workload) -> bool:
    """Whether keys and values that several heads share are copied for each of them.

    transformers does so for attention that is no flash attention (`repeat_kv`), litgpt always.
    """
    return w.repeat_kv or w.attention in ("sdpa", *WRITES_SCORES)


def pair_bytes(w: Workload) -> float:
    """Bytes a token for its scores with all others."""
    return w.length * score_bytes(w)


PLAIN_SOFTMAX = ("bert", "distilbert", "roberta", "electra", "gpt2", "vit")
"""Families whose eager attention takes its softmax in the dtype of the scores; others in 32 bits
(`dtype=torch.float32` in transformers' Llama and those that came after it)."""


def plain_softmax(w: Workload) -> bool:
    """Whether the softmax is taken in what is computed in; autocast takes it in 32 bits.

    Megatron's kernel of scale, mask and softmax reads and writes 16 bits.
    """
    return (w.amp is None and w.shape.kind in PLAIN_SOFTMAX) or (w.megatron and w.fused_kernels)


def score_bytes(w: Workload) -> float:
    """Bytes for every pair of tokens, of all heads.

    A dropout keeps its mask, and gives what is multiplied then: in 16 bits the copy that is kept
    anyway, in 32 bits one more. A softmax that is written out, exp(x - max) / sum,
    keeps its powers for two gradients, and what is multiplied; autocast takes powers in 32 bits. A
    cap keeps its tanh.
    """
    plain = plain_softmax(w)
    narrow = w.compute_bytes < 4 and not plain
    dropped = (1 if narrow else 1 + w.compute_bytes) * w.shape.dropout
    eager = (w.compute_bytes if plain else 4) + w.compute_bytes * narrow + dropped
    powers = 4 if w.amp else w.compute_bytes
    eager += w.compute_bytes * (w.shape.kind in CAPPED)
    each = {
        "flash": 0.0,
        "sdpa": w.compute_bytes / w.shape.heads,
        "eager": eager,
        "written": powers + w.compute_bytes + dropped,
    }
    return each[w.attention] * w.shape.heads


def mlp_bytes(w: Workload) -> float:
    """The MLP's own tensors, and for experts each token's copy on the way in and out.

    `torch.compile` computes anew what is pointwise and no matrix product reads (the min-cut
    partitioner of AOTAutograd): of a gated MLP's four tensors the activation, and the steps of one
    that is written out. Who writes the softmax out writes the gate out, too: x * sigmoid(x) keeps
    the sigmoid (CS336's model, in which four runs of 92.5 GiB are met within 0.1 % with it).
    Beside an embedding that was made 32-bit bitsandbytes' layers give the dtype that they got
    (`out.to(inp_dtype)` in `Linear4bit`, `output.to(A.dtype)` in `MatMul8bitLt`, 0.41.1): gate,
    activation and up projection are 32-bit; their product, which autocast narrows for LoRA, is not.
    """
    s, compute = w.shape, w.compute_bytes
    bare_relu = s.activation == "relu" and s.kind not in TRANSLATORS  # T5 drops of it
    usual = (4 if s.gated else 2 - bare_relu, 0)
    one_kernel = s.gated or w.compile or w.fused_kernels or w.fused_activation
    tensors, wide = usual if one_kernel else MLP_KEPT.get(s.activation, usual)
    wide = wide if casts(w) else 0
    wide = 3 if s.gated and upcast(w) else wide
    tensors -= 1 if s.gated and (w.fused_kernels or w.compile) else 0
    tensors += 1 if s.gated and w.attention == "written" and not w.compile else 0
    tensors -= 1 if frozen(w) and w.lora_targets != "all" else 0
    width = s.intermediate * ((tensors - wide) * compute + wide * 4)
    return width + 3 * s.experts * s.hidden * compute


def adapter_bytes(w: Workload) -> float:
    """What LoRA's branches keep: inputs cast to 32 bits, and a dropout's copy and mask of them.

    Under autocast PEFT makes each target's input as wide as the adapter, and autocast narrow again,
    so that every target keeps a copy of its own: Google's OpenLLaMA takes 15 MB a token where 11.5
    are counted without them, 13.8 with them. DoRA also keeps the output of the frozen
    layer, to scale it.
    """
    if w.lora is None:
        return 0.0
    rows = targets(w.shape, w.lora_targets)
    wide = BYTES[w.adapter_dtype] > w.compute_bytes
    narrowed = w.amp and w.strategy in WHOLE and wide
    again = w.compute_bytes if w.lora_dropout or narrowed else 0
    inputs = sum(a for a, _ in rows) * (again + w.lora_dropout)
    ranks = w.lora * len(rows) * BYTES[w.adapter_dtype]
    return inputs + ranks + w.dora * sum(b for _, b in rows) * 2 * w.compute_bytes


def quantized_input_bytes(w: Workload) -> float:
    """Inputs of quantised layers, which learn nothing from them, a token.

    bitsandbytes before 0.43.2 keeps them (its PR 1270 ends that for 4 bits; `MatMul8bitLt` still
    does), as attributes of the graph, which go when the graph goes: a loop whose variable holds the
    last step's loss has two sets at the end of the next forward pass. litgpt is such a loop and
    pins 0.42.0: nine models take 1.7 to 2.2 times their layers' inputs more in 4 bits than in 16,
    beside their weights.
    """
    copies = max(w.kept_inputs, int(w.quantize == "int8")) * (w.quantize in QUANTIZED)
    s = w.shape
    return copies * (s.norms * s.hidden + s.query + s.intermediate) * w.compute_bytes


def kept_bytes(w: Workload, r: Recipe) -> float:
    """What all layers keep for the backward pass beside the inputs of recomputed ones.

    What is no saved tensor of autograd stays under checkpointing by hooks.
    """
    if w.checkpointing:
        attributes = 0.0 if w.reentrant else stage_layers(w) * quantized_input_bytes(w)
        return selected_bytes(w, r) + attributes * tokens_per_gpu(w, r)
    return stage_layers(w) * layer_bytes_a_token(w) * tokens_per_gpu(w, r)


EAGER_BACKWARD = 12.0
"""Bytes for every pair of tokens and head while the backward pass of an eager softmax runs: the
softmax, its gradient and what it gives, each in 32 bits, or two in 16 for the last. A traced step
of a layer with 134 million pairs takes 12.0 in 16 and in 32 bits."""


def layer_bytes(w: Workload, r: Recipe) -> float:
    """The backward pass of one layer: its recomputed activations, and gradients half as large.

    The scores of eager attention take twice what they keep.
    """
    tokens = tokens_per_gpu(w, r)
    kept = pair_bytes(w) / w.tensor_parallel * tokens
    rest = layer_bytes_a_token(w) * tokens - kept
    peak = max(scores_in_backward(w, r), 1.5 * pair_bytes(w) / w.tensor_parallel * tokens)
    passing = passing_bytes_a_token(w, r) * tokens
    if not w.checkpointing:
        return passing + peak - kept
    return rest + passing + peak


def passing_bytes_a_token(w: Workload, r: Recipe) -> float:
    """Bytes a token that pass beside what a layer keeps while its backward pass runs: half as much.

    Liger's and Unsloth's SwiGLU writes the gradients of gate and up projection over these two
    (`swiglu_backward` of liger-kernel 0.8.5), so that only the gradient of their product and the
    layer's own come to them; Megatron's writes new ones.
    """
    s = w.shape
    half = 0.5 * (layer_bytes_a_token(w) - pair_bytes(w) / w.tensor_parallel)
    in_place = w.fused_kernels and s.gated and not w.gradient_dtype and not s.experts
    if not in_place:
        return half
    return min(half, (s.intermediate / w.tensor_parallel + s.hidden) * w.compute_bytes)


def scores_in_backward(w: Workload, r: Recipe) -> float:
    """What one layer's scores take at most, where they are written to memory."""
    if w.attention not in WRITES_SCORES:
        return 0.0
    wide = w.compute_bytes / 4 if plain_softmax(w) else 1.0
    each = EAGER_BACKWARD * wide * w.shape.heads * w.length / w.tensor_parallel
    return each * tokens_per_gpu(w, r)


def held_bytes(w: Workload, r: Recipe) -> float:
    """Gradients of the layers' inputs that FSDP1 holds until the backward pass ends.

    Where the units' own weights are frozen and every layer is recomputed, a second set of
    checkpoints stands then: 770 kB a token for Mistral 7B on two GPUs, 790 for Llama 3 8B and
    3.1 MB for Llama 2 70B, which are the layer's own and twice the checkpoints, where one GPU
    takes them once (fms-acceleration's reference tables). Where nothing in the layers learns, no
    gradient passes through them. Without re-entrant checkpointing there is no such set: Llama 2 7B
    takes 2.5 GiB a sequence of 4096 tokens on 2 to 16 RTX 3090 (notes on llama-recipes), which are
    its checkpoints and its loss.
    """
    if w.strategy != "fsdp1" or w.gpus < 2 or w.lora is None or not w.reentrant:
        return 0.0
    return checkpoint_amount(w, r) * 2


def final_norm_bytes(w: Workload, r: Recipe) -> float:
    """What the norm before the head keeps while the loss is computed."""
    if w.batch is None or w.shape.vocabulary == 0:
        return 0.0
    return norm_bytes(w) * w.shape.hidden * tokens_per_gpu(w, r) / divided(w)


def exchange_amount(w: Workload, r: Recipe) -> float:
    """Elements that sequence parallelism exchanges in one layer (Ulysses, arXiv 2309.14509)."""
    if r.sp == 1:
        return 0.0
    return w.shape.hidden * tokens_per_gpu(w, r) * (w.compute_bytes / 2)
