"""The loss kernels: the bytes that each needs per logit, and other names for them."""

from __future__ import annotations

TRAINER_LOGIT = 8.246
"""Bytes per logit with Trinity-RFT, fitted to the measured table (`measured.py`)."""

LOSSES: dict[str, tuple[float, float]] = {
    "trainer": (TRAINER_LOGIT, TRAINER_LOGIT + 4), "eager": (14, 16), "hf": (12, 12),
    "eager-old": (12, 16), "eager-half": (8, 16), "compiled": (12, 12), "in-graph": (6, 12),
    "vocab-parallel": (6, 4), "in-place": (4, 8), "chunked": (3.5, 5.5), "chunked-head": (1.75, 2),
    "fused": (0, 0),
}  # fmt: skip
"""Loss kernel -> bytes per logit when computing in 16 bits and in 32 bits.

`trainer` computes log-probabilities in place (what RL trainers do). `eager` is cross-entropy in a
hand-written loop with a variable that keeps the 32-bit logits until the backward pass is over: the
logits, their log-softmax and two gradients. `hf` frees the logits before the backward pass
(transformers' Trainer). `eager-old` copies the shifted logits (transformers before 4.49).
`eager-half` computes the loss from 16-bit logits (DeepSpeed's engine). `compiled` fuses the copies;
`in-graph` is compiled together with the model. `vocab-parallel` is Megatron's loss. `in-place`
writes the gradient over the logits (flash-attn, Apex, llm-foundry). `chunked` keeps the logits and
upcasts one of eight chunks at a time (torchtune); `chunked-head` keeps only one chunk of logits
(torchtitan). `fused` never stores the logits (Liger, cut cross-entropy, Unsloth).
"""

SAME_LOSS = {
    "liger": "fused", "cce": "fused", "trl-chunked": "fused", "unsloth": "fused",
    "flash": "in-place", "flash-attn": "in-place", "apex": "in-place",
    "torchtune": "chunked", "hf-old": "eager-old", "torchtitan": "compiled",
    "megatron": "vocab-parallel",
}  # fmt: skip
"""Other names for the loss kernels -> the name in `LOSSES`."""
