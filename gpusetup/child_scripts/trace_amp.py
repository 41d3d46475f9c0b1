"""Makes autocast on the CPU choose dtypes as it does on CUDA. Python 3.8 syntax.

The two have different lists: norms, softmax, sums, powers... are computed in 32 bits on CUDA, and
in the smaller dtype on the CPU, which changes what stands for the backward pass. The lists are
torch's own (ATen/autocast_mode.h); which of them this torch has for which device, it says itself.
"""

from __future__ import annotations

from typing import Any, Callable, List

import torch

IN_32_BITS = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p",
    "reciprocal", "rsqrt", "sinh", "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar",
    "softplus", "layer_norm", "native_layer_norm", "rms_norm", "group_norm", "cosine_similarity",
    "nll_loss", "nll_loss2d", "kl_div", "l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss",
    "binary_cross_entropy_with_logits", "dist", "pdist", "cdist", "renorm", "logsumexp",
    "upsample_nearest2d", "upsample_bilinear2d", "upsample_bicubic2d", "prod", "prod.dim_int",
    "softmax.int", "log_softmax.int", "cumprod", "cumsum", "linalg_vector_norm",
    "linalg_matrix_norm", "sum", "sum.dim_IntList", "norm.Scalar", "norm.ScalarOpt_dim",
)  # fmt: skip
"""What CUDA's autocast computes in 32 bits."""


def as_on_cuda() -> Any:
    """Register the difference; it holds as long as the returned library is kept."""
    library = torch.library.Library("aten", "IMPL")
    for name in differing():
        library.impl(name, in_32_bits(overload(name)), "AutocastCPU")
    return library


def differing() -> List[str]:
    """The names that autocast knows on CUDA and not on the CPU."""
    return [name for name in IN_32_BITS if known(name, "CUDA") and not known(name, "CPU")]


def known(name: str, device: str) -> bool:
    key = "Autocast" + device
    try:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key("aten::" + name, key))
    except RuntimeError:
        return False  # this torch has no such operator


def overload(name: str) -> Any:
    """`softmax.int` -> torch.ops.aten.softmax.int."""
    packet, _, kind = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), kind or "default")


def in_32_bits(operator: Any) -> Callable[..., Any]:
    """The operator on 32-bit copies of what it is given, without autocast below it."""
    without = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

    def run(*arguments: Any, **keywords: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(without):
            wide = [widened(one) for one in arguments]
            return operator(*wide, **{name: widened(one) for name, one in keywords.items()})

    return run


def widened(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.dtype in (torch.bfloat16, torch.float16):
        return value.float()
    return value
