"""The logits and their loss: tokens times vocabulary times the bytes of a loss kernel."""

from __future__ import annotations

from gpusetup.plan.memory.activations import final_norm_bytes
from gpusetup.plan.memory.constants import Constants
from gpusetup.plan.memory.states import upcast
from gpusetup.plan.model.workload import Recipe, Workload, samples_per_group, tokens_per_gpu

LOSSES: dict[str, tuple[float, float] | None] = {
    "trainer": None,
    "eager": (14.0, 16.0),
    "eager-32": (16.0, 16.0),
    "hf": (12.0, 12.0),
    "eager-old": (12.0, 16.0),
    "eager-16": (12.0, 24.0),
    "eager-half": (8.0, 16.0),
    "half": (6.0, 12.0),
    "dpo": (16.0, 20.0),
    "compiled": (12.0, 12.0),
    "in-graph": (6.0, 12.0),
    "vocab-parallel": (6.0, 4.0),
    "in-place": (4.0, 8.0),
    "in-place-shifted": (6.0, 12.0),
    "chunked": (2.0, 4.0),
    "chunked-head": (1.75, 2.0),
    "fused": (0.0, 0.0),
}
"""Loss kernel -> bytes a logit in 16 and in 32 bits; None: the fitted constant, and 4 more.

`trainer` computes log-probabilities in place (what RL trainers do). `eager` is cross-entropy on
logits that were made 32-bit, in a loop whose variable holds them until the backward pass has run:
the logits, their 32-bit log-softmax and two gradients, 2 + 4 + 4 + 4; `eager-32` holds a 32-bit
copy (`logits = model(x).float()`). `hf` lets them go before (transformers' Trainer, a loop that
keeps `model(**batch).loss` alone): 4 + 4 + 4. `eager-old` also copies the shifted logits
(transformers before 4.49), `eager-16` does so without making them 32-bit (models with code of their
own, such as Qwen 1). `eager-half` is a loss in 16 bits without autocast (DeepSpeed's engine in 16
bits): logits, their copy, log-softmax and gradient; `half` the same where the logits are let go:
log-softmax and two gradients. `dpo`: the logits of the policy, their log-softmax and a loss on the
chosen half stand while the reference computes its own (`concatenated_forward` of TRL 0.9.6).
`compiled` fuses the copies (torchtune with compile, torchtitan where its loss was not);
`in-graph` is compiled with the model, whose graph keeps the 16-bit logits and writes one 32-bit
gradient (GPT-2 on rented cards takes 640 kB a token, of which its layers are 332). `vocab-parallel`
makes the logits 32-bit, and softmax and gradient of them where they are (Megatron Core's
`vocab_parallel_cross_entropy`). `in-place` reads the logits as they are and writes their gradient
in the same width (flash-attn's and Apex's `CrossEntropyLoss`, llm-foundry's `fused_crossentropy`,
axolotl's `flash_attn_cross_entropy`); `in-place-shifted` those without the last token: their
gradient, and the same with that token's zeros, stand at once, beside the copy that more than one
sequence needs (`shift_bytes`). `chunked` holds the logits in 16 bits, and more for one of eight
chunks (torchtune's `CEWithChunkedOutputLoss`; `chunk_bytes`); `chunked-head` has logits of one of
eight chunks alone, because it calls the head, too (torchtitan's). `fused` never holds them (Liger,
cut cross-entropy, TRL's `chunked_nll`, Unsloth)."""

SHIFTED = ("eager-old", "eager-16")
"""Losses that copy the logits without the last token."""

SAME_AS = {
    "liger": "fused", "cce": "fused", "trl-chunked": "fused", "unsloth": "fused",
    "flash": "in-place", "flash-attn": "in-place", "apex": "in-place",
    "torchtune": "chunked", "hf-old": "eager-old", "torchtitan": "compiled",
    "megatron": "vocab-parallel",
}  # fmt: skip
"""The names that people give them."""


def logit_amount(w: Workload, r: Recipe) -> float:
    """Logits that stand at once: tokens times vocabulary, over tensor parallelism.

    DataParallel gathers the outputs of all replicas on the first GPU, where the loss is computed.
    """
    gathered = w.gpus if w.strategy == "dp" else 1
    samples = samples_per_group(w, r) if w.batch is not None else 0
    outputs = w.shape.vocabulary * w.written * tokens_per_gpu(w, r) + w.shape.classes * samples
    return outputs * gathered / w.tensor_parallel


CHUNKS = 8


def shifts(w: Workload, r: Recipe) -> bool:
    """Whether the loss copies the logits without the last token, which has segments of its own.

    Of a single sequence the shorter piece is contiguous, and nothing is copied.
    """
    return w.loss in SHIFTED and samples_per_group(w, r) > 1


def chunk_bytes(w: Workload, r: Recipe) -> float:
    """What a chunked loss takes beside its logits.

    One chunk in 32 bits three times, unless compiled; and while chunks come back, the gradient of a
    trained head twice: its sum and one chunk's.
    """
    if w.loss != "chunked":
        return 0.0
    head = w.shape.vocabulary * w.shape.hidden * w.compute_bytes / w.tensor_parallel
    return logit_amount(w, r) * 12 / CHUNKS * (not w.compile) + 2 * head * w.trains_head


def loss_bytes(w: Workload, r: Recipe, c: Constants) -> float:
    """The logits and all that stands with them."""
    logits = logit_amount(w, r) * logit_bytes(w, c)
    return logits + chunk_bytes(w, r) + final_norm_bytes(w, r)


def logit_bytes(w: Workload, c: Constants) -> float:
    """Bytes a logit of the workload's loss kernel."""
    fixed, wide = LOSSES[w.loss], w.compute_bytes == 4 or upcast(w)
    return c.logit + 4 * wide if fixed is None else fixed[wide]
