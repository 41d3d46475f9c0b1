"""What releases of torch are known to compute wrong themselves, and from which on they do not.

Seen on the CPU with 1.13.1, 2.5.1, 2.9.1, 2.13.0 and 2.15.0; the releases in between were not
tried. What is known is not asked of these releases; all else is, and all is asked of a GPU.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, NamedTuple, Sequence, Tuple

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
            *("norm", "norm of one sign", "norm 1 and infinite"),
            *("foreach norm", "list norms", "long sums in half"),
        ),
        HALVES,
        (2, 5),
    ),
    # 1.13.1 adds all of a matrix whose rows lie apart up in half precision.
    Fault(
        (
            *("sum of one sign", "mean of one sign"),
            *("sum of all", "mean of all"),
        ),
        HALVES,
        (2, 5),
        ("pitched",),
    ),
    # 1.13.1 divides a sum by its count in float16: from 65504 numbers, or sums, on it has no mean.
    Fault(
        (
            *("mean", "mean of all", "mean of one sign", "nanmean"),
            *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"),
        ),
        ("float16",),
        (2, 5),
    ),
    # 1.13.1 takes the weight's channels the wrong way round: an error, or wrong numbers.
    Fault(
        tuple(f"conv_transpose{n}d" for n in (1, 2, 3)),
        ("bfloat16",),
        (2, 5),
    ),
    # 1.13.1 multiplies what is added, and what the memory had, by a beta of 0.
    Fault(("baddbmm of nothing",), ("float64", "float32", *HALVES), (2, 5)),
    # 1.13.1 and 2.5.1 give logits of 10,000 the logarithm -inf where their share is 1.
    Fault(("softmax of great logits",), ("bfloat16",), (2, 9)),
    # 1.13.1 has the binary cross entropy of logits from a difference: of 100 it is 0, not e**-100.
    Fault(("softmax of great logits",), ("float32", "float64"), (2, 5)),
    # 1.13.1 rounds places to bfloat16, and reads behind the end of a line.
    Fault(
        ("linear 1d to a size", "linear corners 1d to a size", "nearest 1d by whole times"),
        ("bfloat16",),
        (2, 5),
    ),
)
ROUNDS_ONCE = (2, 9)
"""The first that was seen to add half precision up in float32 in every way to call."""
SOUND_FORMS: Dict[str, Tuple[int, int]] = {
    "mean": (2, 9),
    "smooth_l1_loss": (2, 9),
    "mse_loss": (2, 9),
    "huber_loss": (2, 9),
    "masked_scatter": (2, 5),
    "baddbmm": (2, 5),
}
"""Operators whose form into `out` or in place is wrong before a release: 2.5.1 leaves the `out` of
a mean of half precision as it was, and losses end in a mean; 1.13.1 writes `masked_scatter_` over a
transposed tensor in another order, and its `baddbmm` reads what was in `out`."""
STRIDES_OF_NOTHING = (2, 9)
"""The first seen whose MKL transforms every line of one repeated number: 2.5.1 has an error, also
where such a line is handed back."""
TALL_TRACE = (2, 13)
"""The first that was seen to give a tall matrix's trace its gradient; 2.9.1 gives one beside the
diagonal."""
LAID_OUT_CHANCE = (2, 5)
"""The first that reads the random numbers of a fractional pool by their strides."""
NADAM_AT_ONCE = (2, 5)
"""The first whose NAdam over all tensors at once follows the formula; in 1.13.1 it does not in
float64 either (1.5e-4 after three steps of 0.01)."""
LINES_APART = ((2, 9), (2, 13))
"""2.9.1 takes a row or a column of bfloat16 whose numbers lie apart for one where they lie side by
side, where it is a factor of a product of matrices; 2.5.1 and 2.13.0 do not."""


def hands_back_held(torch: Any) -> bool:
    """Whether every operator takes gradients of stride 0."""
    return release(torch) >= STRIDES_OF_NOTHING


UNROLLED, TAKEN_AT_ONCE = 27, 16
"""The least width, and the channels that are taken at once, where a weight's gradient is lost."""


def loses_weight(torch: Any, arithmetic: str, tensors: Sequence[Any], options: Any) -> bool:
    """Whether the gradient of a convolution's weight holds what the memory had.

    oneDNN on CPUs with AVX-512 leaves it unset in bfloat16 where all of this holds: channels-last
    in two or three dimensions, a dilation, stride 1, rows of 27 numbers or more, and channels of a
    group (in or out) that are no multiple of 16. Seen in torch 2.5.1, 2.9.1, 2.13.0 and 2.15.0, at
    one thread and at seven. Of 2,593 convolutions with 2.13.0 and 2.15.0 whose memory held marks,
    336 had them in this gradient and none in another; with `DNNL_MAX_CPU_ISA=AVX2` none of 398. No
    torch tells which instructions oneDNN takes: this gradient is left out on every CPU.

    It also multiplies by 0 what the memory had, which NaN survives, where rows are narrower than
    the stride: 52 of 14,151 convolutions with 2.13.0 whose memory held NaN, 28, 11, 18 and 10 of
    fewer with 1.13.1, 2.5.1, 2.9.1 and 2.15.0, no other among them; transposed ones too.

    >>> import torch
    >>> narrow = torch.ones(1, 1, 1).bfloat16(), torch.ones(16, 1, 1).bfloat16()
    >>> loses_weight(torch, "convolution", narrow, {"groups": 1, "dilation": 1, "stride": 2})
    True
    >>> tensors = torch.ones(1, 3, 40, 40).bfloat16(), torch.ones(6, 1, 3, 3).bfloat16()
    >>> loses_weight(torch, "convolution", tensors, {"groups": 3, "dilation": 2, "stride": 1})
    False
    >>> last = [x.to(memory_format=torch.channels_last) for x in tensors]
    >>> loses_weight(torch, "convolution", last, {"groups": 3, "dilation": 2, "stride": 1})
    True
    """
    if arithmetic != "convolution":
        return False
    x, weight = tensors[:2]
    if x.device.type != "cpu" or x.dtype != torch.bfloat16:
        return False
    if x.shape[-1] < UNROLLED:
        return bool(x.shape[-1] < _each(options.get("stride", 1), lambda all_axes: all_axes[-1]))
    channels = (weight.shape[0] // options["groups"], weight.shape[1])
    filled = all(number % TAKEN_AT_ONCE == 0 for number in channels)
    plain = _each(options["dilation"], max) == 1 or _each(options["stride"], min) > 1
    return not (filled or plain) and (_channels_last(torch, x) or _channels_last(torch, weight))


def _each(given: Any, of: Any) -> int:
    """The greatest, the least or the last of what is given for each axis."""
    return int(given if isinstance(given, int) else of(given))


def _channels_last(torch: Any, x: Any) -> bool:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if x.dim() not in formats or x.is_contiguous():
        return False
    return bool(x.is_contiguous(memory_format=formats[x.dim()]))


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
    if operator in EIGHT_BITS and not adds_bytes_whole(torch):
        return True
    now = release(torch)
    return any(
        operator in fault.operators
        and dtype in fault.dtypes
        and now < fault.before
        and (not fault.layouts or layout in fault.layouts)
        for fault in FAULTS
    )


EIGHT_BITS = ("_int_mm at both ends",)
"""Products of bytes of all eight bits. A CPU without VNNI adds pairs of them up in 16 bits, which
overflow (oneDNN's guide, "Nuances of int8 computations")."""
VNNI = ("_is_avx512_vnni_supported", "_is_vnni_supported", "_is_cpu_support_avx512_vnni")
"""What releases of torch call the question."""


def adds_bytes_whole(torch: Any) -> bool:
    """Whether this CPU is known to add products of bytes up in 32 bits."""
    if any(name in os.environ for name in ("DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA")):
        return False
    asked = [getattr(getattr(torch, "cpu", None), name, None) for name in VNNI]
    return any(each() for each in asked if each is not None)


def reads_lines_apart(torch: Any, device: str, dtype: str) -> bool:
    """Whether products of a row or column take its strides into account, as they must.

    >>> from types import SimpleNamespace
    >>> reads_lines_apart(SimpleNamespace(__version__="2.9.1"), "cpu", "bfloat16")
    False
    """
    first, last = LINES_APART
    return not (device == "cpu" and dtype == "bfloat16" and first <= release(torch) < last)


def by_channel(x: Any) -> Any:
    """What a batch norm has for each channel, as it is taken right. The CPU's kernel for the
    gradient of (N, C) and of channels-last reads weight, mean and variance as if their numbers lay
    side by side (seen in 1.13.1 to 2.15.0: wrong gradients without a word).
    """
    return x.contiguous() if x.device.type == "cpu" else x
