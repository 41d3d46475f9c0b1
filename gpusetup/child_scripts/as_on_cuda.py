"""Makes torch on the CPU keep the same tensors for the backward pass as it does on CUDA, so that a
trace counts them.

`trace_code.py` imports this file in the target interpreter. Python 3.8 syntax.
"""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import nn

aten: Any = torch.ops.aten


def dropout() -> None:
    """Make dropout keep a mask of one byte per element, as on CUDA; on the CPU the mask is as wide
    as the input.

    On CUDA, flash and memory-efficient attention keep only the state of the random numbers. On the
    CPU, dropout would make torch fall back to the form of attention that keeps every pair, so we
    set the dropout of attention to 0 there.
    """
    functional: Any = nn.functional
    dropout_on_cpu = functional.dropout
    attention_on_cpu = functional.scaled_dot_product_attention

    def masked(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        draws_mask = training and 0 < p < 1
        has_native_form = input.is_floating_point() and not inplace
        if draws_mask and has_native_form:
            # native_dropout returns (output, mask).
            return torch.native_dropout(input, p, True)[0]
        return dropout_on_cpu(input, p, training, inplace)

    def attention(*arguments: Any, **keywords: Any) -> Any:
        # `dropout_p` is the fifth argument.
        without_dropout = list(arguments)
        if len(without_dropout) >= DROPOUT_POSITION + 1:
            without_dropout[DROPOUT_POSITION] = 0.0
        else:
            keywords["dropout_p"] = 0.0
        return attention_on_cpu(*without_dropout, **keywords)

    functional.dropout = masked
    functional.scaled_dot_product_attention = attention
    torch.dropout = lambda input, p, train: masked(input, p, train)


DROPOUT_POSITION = 4
"""The index of `dropout_p` among the arguments of scaled_dot_product_attention."""


IN_32_BITS = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p",
    "reciprocal", "rsqrt", "sinh", "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar",
    "softplus", "layer_norm", "native_layer_norm", "rms_norm", "group_norm", "cosine_similarity",
    "dist", "pdist", "renorm", "logsumexp", "upsample_nearest2d", "upsample_bilinear2d",
    "upsample_bicubic2d", "softmax.int", "log_softmax.int", "cumprod", "cumsum",
    "linalg_vector_norm", "linalg_matrix_norm", "sum", "sum.dim_IntList", "norm.Scalar",
    "norm.ScalarOpt_dim",
)  # fmt: skip
"""The operators that autocast computes in 32 bits on CUDA, but in the smaller dtype on the CPU,
which changes what is kept for the backward pass (ATen/autocast_mode.h)."""


def autocast() -> Any:
    """Register the autocast rules that this torch has only on CUDA. They last as long as the
    returned library object."""
    library = torch.library.Library("aten", "IMPL")
    registered_for = torch._C._dispatch_get_registrations_for_dispatch_key
    on_cuda = set(registered_for("AutocastCUDA"))
    on_cpu = set(registered_for("AutocastCPU"))
    on_cuda_alone = on_cuda - on_cpu
    for name in IN_32_BITS:
        if "aten::" + name not in on_cuda_alone:
            continue
        packet_name, _, overload = name.partition(".")
        packet = getattr(aten, packet_name)
        operator = getattr(packet, overload or "default")
        library.impl(name, in_32_bits(operator), "AutocastCPU")
    return library


HALF_TYPES = (torch.float16, torch.bfloat16)


def in_32_bits(operator: Any) -> Callable[..., Any]:
    """A function that runs the operator on 32-bit copies of its inputs, without autocast inside."""
    autocast_key = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

    def wide(value: Any) -> Any:
        # Cast only 16-bit tensors; pass on everything else unchanged.
        if not isinstance(value, torch.Tensor):
            return value
        is_half = value.dtype in HALF_TYPES
        return value.float() if is_half else value

    def run(*arguments: Any, **keywords: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(autocast_key):
            wide_keywords = {}
            for name, value in keywords.items():
                wide_keywords[name] = wide(value)
            # The copies live only as long as the operator needs them.
            return operator(*map(wide, arguments), **wide_keywords)

    return run
