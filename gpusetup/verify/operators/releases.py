"""What releases of torch are known to compute wrong themselves, and from which on they do not.

Seen on the CPU with 1.13.1, 2.5.1, 2.9.1, 2.13.0 and 2.15.0; the releases in between were not
tried. Before 2.5 the census is asked of a GPU alone.
"""

from __future__ import annotations

import re
from typing import Any, Sequence, Tuple

HALVES = ("bfloat16", "float16")


ROUNDS_ONCE = (2, 9)
"""The first that was seen to add half precision up in float32 in every way to call."""
STRIDES_OF_NOTHING = (2, 9)
"""The first seen whose MKL transforms every line of one repeated number: 2.5.1 has an error, also
where such a line is handed back."""
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
