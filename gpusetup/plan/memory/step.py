"""The optimizer's step: what it takes beside the states, and what gradients are collected in."""

from __future__ import annotations

from gpusetup.plan.memory.optimizers import OPTIMIZERS
from gpusetup.plan.memory.states import (
    deepspeed,
    divisors,
    gradient_state_bytes,
    local,
    masters,
)
from gpusetup.plan.model.workload import BYTES, Recipe, Workload

SUB_GROUP = 1e9
"""Parameters of one GPU that ZeRO 3 steps at once: `sub_group_size`, DeepSpeed's default."""


ADAFACTOR_COPIES = 4.4


def largest_tensor(w: Workload) -> float:
    """Elements of the largest tensor that is trained: the table of tokens, or one of the MLP's."""
    s = w.shape
    table = s.vocabulary if w.trained_layers is None else 0
    return max(table, s.intermediate) * s.hidden / w.tensor_parallel


def step_bytes(w: Workload, r: Recipe) -> float:
    """What the optimizer's step takes beside the states: `foreach` copies, others do not.

    ZeRO's step makes the 16-bit gradients of its part 32-bit: stages 1 and 2 all of them, flat, so
    that a flat copy in 16 bits stands between (`step` in DeepSpeed's `stage_1_and_2.py`, 0.17.2),
    after a norm of each in 64 bits; stage 3 one sub-group after the other
    (`_prepare_fp32_grad_for_sub_group` in `stage3.py`). Megatron-LM's 32-bit gradients of 16-bit
    ones come and go in the same way (since its `zero_grad` of 2021 lets them go). One tensor after
    the other, AdamW takes two of the largest: the root of its second moments, and that divided by a
    correction (`_single_tensor_adamw`). transformers' Adafactor takes four 32-bit ones and parts of
    a fifth: gradient, parameter, squares and the product of its factors (4.3 and 4.6 of two
    measured models).
    """
    part = local(w, w.trained) / divisors(w)[2]
    if r.offload or w.offload_optimizer:
        return 0.0
    if deepspeed(w):
        return engine_step_bytes(w, r, part)
    if w.optimizer == "adafactor":
        return ADAFACTOR_COPIES * 4 * largest_tensor(w) / divisors(w)[2]
    wide = 4 * part if masters(w) and w.gradient_dtype != "fp32" else 0.0
    width = 4 if masters(w) else BYTES[w.adapter_dtype if w.lora is not None else w.dtype]
    return wide + copies_bytes(w, width, part, largest_tensor(w) / divisors(w)[2])


def copies_bytes(w: Workload, width: float, elements: float, tensor: float) -> float:
    """What the optimizer itself takes: `foreach` copies of all elements, else of one tensor."""
    if w.step == "loop" and w.optimizer in ("adamw", "adam"):
        return 2 * width * tensor
    return elements * OPTIMIZERS[w.optimizer].copies * width if w.step == "foreach" else 0.0


def engine_step_bytes(w: Workload, r: Recipe, part: float) -> float:
    """What DeepSpeed's step takes beside the gradients of the backward pass.

    Its masters are one flat tensor of a GPU's part, of a sub-group at stage 3, so that whatever the
    optimizer copies is all of it: 12 bytes a parameter of the part with torch's AdamW tensor by
    tensor (56.76 GiB of Qwen2.5 7B on four GPUs, at stages 1 and 2 alike). Before the step all
    gradients but those of the part are let go (`independent_gradient_partition_epilogue`), and the
    part's when they are 32-bit.
    """
    wide = 4
    if w.strategy == "zero3":
        group = min(part, SUB_GROUP)
        return wide * group + copies_bytes(w, wide, group, group)
    norm = 2 * part + 8 * min(part, largest_tensor(w))
    peak = max(norm, 2 * wide * part, wide * part + copies_bytes(w, wide, part, part))
    return max(0.0, peak - gradient_state_bytes(w, r))
