"""The loss kernels: how many bytes each needs per logit, and other names for them."""

from __future__ import annotations

TRAINER_LOGIT = 8.246
"""Bytes a logit of an RL trainer, fitted to the measured cells."""

LOSSES: dict[str, tuple[float, float]] = {
    "trainer": (TRAINER_LOGIT, TRAINER_LOGIT + 4), "eager": (14, 16), "hf": (12, 12),
    "eager-old": (12, 16), "eager-half": (8, 16), "compiled": (12, 12), "in-graph": (6, 12),
    "vocab-parallel": (6, 4), "in-place": (4, 8), "chunked": (3.5, 5.5), "chunked-head": (1.75, 2),
    "fused": (0, 0),
}  # fmt: skip
"""Loss kernel -> bytes a logit in 16 and in 32 bits.

`trainer` computes log-probabilities in place (what RL trainers do). `eager` is cross-entropy in a
loop whose variable holds the 32-bit logits until the backward pass has run: the logits, their
log-softmax and two gradients. `hf` lets them go before (transformers' Trainer). `eager-old` copies
the shifted logits (transformers before 4.49). `eager-half` is a loss of 16-bit logits (DeepSpeed's
engine). `compiled` fuses the copies; `in-graph` is compiled with the model. `vocab-parallel` is
Megatron's. `in-place` writes the gradient over the logits (flash-attn, Apex, llm-foundry).
`chunked` holds the logits and one of eight chunks wide (torchtune), `chunked-head` one chunk of
logits alone (torchtitan). `fused` never holds them (Liger, cut cross-entropy, Unsloth)."""

SAME_LOSS = {
    "liger": "fused", "cce": "fused", "trl-chunked": "fused", "unsloth": "fused",
    "flash": "in-place", "flash-attn": "in-place", "apex": "in-place",
    "torchtune": "chunked", "hf-old": "eager-old", "torchtitan": "compiled",
    "megatron": "vocab-parallel",
}  # fmt: skip
"""The names that people give them."""
