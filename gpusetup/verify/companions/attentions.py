"""The attention kernels, each against the exact attention in float64."""

from __future__ import annotations

from typing import Any, Callable

from ..judging.tolerance import agree
from ..values import Outcome
from .companion import Computed, attention, companion, heads

HALF = 4e-3
"""What float16 products and a float16 answer may be off, of values around 1."""


def _attends(
    name: str, call: Callable[..., Any], limit: float = HALF, **options: Any
) -> Callable[[str], Outcome]:
    def compute(torch: Any, module: Any, device: str) -> Computed:
        q, k, v = heads(torch, device, 11, length=128)
        found = call(module, q, k, v)
        first = found[0] if isinstance(found, tuple) else found
        return [agree("causal attention", first, attention(torch, q, k, v), limit)]

    return companion(name, gpu=True, **options)(compute)


def _flash(module: Any, q: Any, k: Any, v: Any) -> Any:
    return module.flash_attn_func(q, k, v, causal=True)


def _by_mask(ops: Any, q: Any, k: Any, v: Any) -> Any:
    return ops.memory_efficient_attention(q, k, v, attn_bias=ops.LowerTriangularMask())


def _prefilled(infer: Any, q: Any, k: Any, v: Any) -> Any:
    """It takes one sequence."""
    found = q.clone()
    for place, row in enumerate(zip(q, k, v)):
        found[place] = infer.single_prefill_with_kv_cache(*row, causal=True)
    return found


def _rounded(sage: Any, q: Any, k: Any, v: Any) -> Any:
    return sage.sageattn(q, k, v, tensor_layout="NHD", is_causal=True)


flash_attn = _attends("flash-attn", _flash, capability=(8, 0))
flash_attn_3 = _attends("flash-attn-3", _flash, module="flash_attn_interface", capability=(9, 0))
flash_attn_4 = _attends("flash-attn-4", _flash, module="flash_attn.cute", capability=(9, 0))
xformers = _attends("xformers", _by_mask, module="xformers.ops", capability=(7, 0))
flashinfer = _attends("flashinfer-python", _prefilled, module="flashinfer", capability=(7, 5))
sageattention = _attends("sageattention", _rounded, 0.15, capability=(8, 0))
"""It multiplies q and k in int8: its answer is off by a part of the spread of v."""
