"""What releases of torch are known to compute wrong themselves, and from which on they do not.

Seen on the CPU with 1.13.1, 2.5.1, 2.9.1, 2.13.0 and 2.15.0; the releases in between were not
tried. What is known is not asked of these releases; all else is, and all is asked of a GPU.
"""

from __future__ import annotations

import re
from typing import Any, Dict, NamedTuple, Tuple

HALVES = ("bfloat16", "float16")


class Fault(NamedTuple):
    """Samples that a release gives wrong, though nothing is wrong with the machine."""

    operators: Tuple[str, ...]
    dtypes: Tuple[str, ...]
    before: Tuple[int, int]
    """The first release that was seen to be right."""
    layouts: Tuple[str, ...] = ()
    """Empty: all."""


FAULTS: Tuple[Fault, ...] = (
    # 1.13.1 adds them up in half precision: the norm of 9,000 numbers near 1 is 32, not 99.
    Fault(
        (
            *("norm", "norm of all", "norm of one sign", "norm 1 and infinite"),
            *("norm over several", "foreach norm", "list norms", "long sums in half"),
        ),
        HALVES,
        (2, 5),
    ),
    # 1.13.1 adds all of a matrix whose rows lie apart up in half precision.
    Fault(
        ("sum of one sign", "mean of one sign", "sum over several", "mean over several"),
        HALVES,
        (2, 5),
        ("pitched",),
    ),
    # 1.13.1 divides a sum by its count in float16: from 65504 numbers, or sums, on it has no mean.
    Fault(
        (
            *("mean", "mean of all", "mean over several", "mean of one sign", "nanmean"),
            *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "margin_ranking_loss"),
            *("mse_loss by each", "l1_loss by each", "smooth_l1_loss by each"),
            *("huber_loss by each", "soft_margin_loss by each", "hinge_embedding_loss by each"),
            *("kl_div of logarithms by each", "poisson_nll_loss by each"),
        ),
        ("float16",),
        (2, 5),
    ),
    # 1.13.1 takes the weight's channels the wrong way round: an error, or wrong numbers.
    Fault(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), ("bfloat16",), (2, 5)),
    # 1.13.1 rounds places to bfloat16, and reads behind the end of a line.
    Fault(("linear corners 1d to a size",), ("bfloat16",), (2, 5)),
)
ROUNDS_ONCE = (2, 9)
"""The first that was seen to add half precision up in float32 in every way to call."""
SOUND_FORMS: Dict[str, Tuple[int, int]] = {
    "mean": (2, 9),
    "smooth_l1_loss": (2, 9),
    "mse_loss": (2, 9),
    "huber_loss": (2, 9),
    "masked_scatter": (2, 5),
}
"""Operators whose form into `out` or in place is wrong before a release: 2.5.1 leaves the `out` of
a mean of half precision as it was, and losses end in a mean; 1.13.1 writes `masked_scatter_` over a
transposed tensor in another order."""
TALL_TRACE = (2, 13)
"""The first that was seen to give a tall matrix's trace its gradient; 2.9.1 gives one beside the
diagonal."""
LAID_OUT_CHANCE = (2, 5)
"""The first that reads the random numbers of a fractional pool by their strides."""
MASKS_OF_NUMBERS = (2, 5)
"""The first that adds a padding mask of floats; 1.13.1 takes their bytes for flags."""
NADAM_AT_ONCE = (2, 5)
"""The first whose NAdam over all tensors at once follows the formula; in 1.13.1 it does not in
float64 either (1.5e-4 after three steps of 0.01)."""
LINES_APART = ((2, 9), (2, 13))
"""2.9.1 takes a row or a column of bfloat16 whose numbers lie apart for one where they lie side by
side, where it is a factor of a product of matrices; 2.5.1 and 2.13.0 do not."""


def gives_gradients(device: str, arithmetic: str, dtype: str, options: Dict[str, Any]) -> bool:
    """Whether the gradients of a sample can be asked for.

    oneDNN on CPUs with AVX-512 leaves numbers of the weight's gradient as the memory had them,
    where a convolution of bfloat16 has groups of fewer than 16 channels and a dilation, and the
    image is some 40 pixels wide or more: seen in torch 2.5.1, 2.9.1, 2.13.0 and 2.15.0, at
    one thread and at seven, not with `DNNL_MAX_CPU_ISA=AVX2`, not in float16. Left out is more than
    that: every gradient, on every CPU, at every width.

    >>> gives_gradients("cpu", "convolution", "bfloat16", {"groups": 2, "dilation": 2})
    False
    """
    if device != "cpu" or arithmetic != "convolution" or dtype != "bfloat16":
        return True
    return not (options.get("groups", 1) > 1 and options.get("dilation", 1) > 1)


def release(torch: Any) -> Tuple[int, ...]:
    """
    >>> from types import SimpleNamespace
    >>> release(SimpleNamespace(__version__="2.13.0+cpu"))
    (2, 13)
    """
    return tuple(map(int, re.findall(r"\d+", str(torch.__version__))[:2]))


def known_wrong(torch: Any, device: str, operator: str, dtype: str, layout: str) -> bool:
    """Whether this torch itself gives such a sample wrong on the CPU.

    >>> from types import SimpleNamespace
    >>> old = SimpleNamespace(__version__="1.13.1+cu117")
    >>> known_wrong(old, "cpu", "norm", "float16", "contiguous")
    True
    >>> known_wrong(old, "cuda:0", "norm", "float16", "contiguous")
    False
    """
    if device != "cpu":
        return False
    now = release(torch)
    return any(
        operator in fault.operators
        and dtype in fault.dtypes
        and now < fault.before
        and (not fault.layouts or layout in fault.layouts)
        for fault in FAULTS
    )


def reads_lines_apart(torch: Any, device: str, dtype: str) -> bool:
    """Whether products of a row or column take its strides into account, as they must.

    >>> from types import SimpleNamespace
    >>> reads_lines_apart(SimpleNamespace(__version__="2.9.1"), "cpu", "bfloat16")
    False
    """
    first, last = LINES_APART
    return not (device == "cpu" and dtype == "bfloat16" and first <= release(torch) < last)
