"""The attention kernels, each against the exact attention in float64."""

from __future__ import annotations

from typing import Any

from ..judging.tolerance import agree
from .companion import Computed, attention, companion, heads

HALF = 4e-3
"""What float16 products and a float16 answer may be off, of values around 1."""


@companion("flash-attn", gpu=True, capability=(8, 0))
def flash_attn(torch: Any, flash: Any, device: str) -> Computed:
    q, k, v = heads(torch, device, 11)
    return [
        agree(
            "forward", flash.flash_attn_func(q, k, v, causal=True), attention(torch, q, k, v), HALF
        )
    ]


@companion("flash-attn-3", module="flash_attn_interface", gpu=True, capability=(9, 0))
def flash_attn_3(torch: Any, flash: Any, device: str) -> Computed:
    q, k, v = heads(torch, device, 12)
    found = flash.flash_attn_func(q, k, v, causal=True)
    first = found[0] if isinstance(found, tuple) else found
    return [agree("forward", first, attention(torch, q, k, v), HALF)]


@companion("flash-attn-4", module="flash_attn.cute", gpu=True, capability=(9, 0))
def flash_attn_4(torch: Any, flash: Any, device: str) -> Computed:
    q, k, v = heads(torch, device, 13, length=128)
    found = flash.flash_attn_func(q, k, v, causal=True)
    first = found[0] if isinstance(found, tuple) else found
    return [agree("forward", first, attention(torch, q, k, v), HALF)]


@companion("xformers", module="xformers.ops", gpu=True, capability=(7, 0))
def xformers(torch: Any, ops: Any, device: str) -> Computed:
    q, k, v = heads(torch, device, 14)
    plain = ops.memory_efficient_attention(q, k, v)
    masked = ops.memory_efficient_attention(q, k, v, attn_bias=ops.LowerTriangularMask())
    return [
        agree("forward", plain, attention(torch, q, k, v, causal=False), HALF),
        agree("causal", masked, attention(torch, q, k, v), HALF),
    ]


@companion("flashinfer-python", module="flashinfer", gpu=True, capability=(7, 5))
def flashinfer(torch: Any, infer: Any, device: str) -> Computed:
    q, k, v = (each[0] for each in heads(torch, device, 15))
    found = infer.single_prefill_with_kv_cache(q, k, v, causal=True)
    return [agree("prefill", found, attention(torch, q[None], k[None], v[None])[0], HALF)]


@companion("sageattention", gpu=True, capability=(8, 0))
def sageattention(torch: Any, sage: Any, device: str) -> Computed:
    """It multiplies q and k in int8: its answer is off by a part of the spread of v."""
    q, k, v = heads(torch, device, 16, length=128)
    found = sage.sageattn(q, k, v, tensor_layout="NHD", is_causal=True)
    return [agree("forward", found, attention(torch, q, k, v), 0.15)]
