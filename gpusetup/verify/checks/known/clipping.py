"""Gradient norms of lists of tensors, and gradient clipping. Part of the check `optimizer-steps`.

Gradients are whole numbers from -3 to 3, so each sum of squares is a whole number below 2**24.
float32 holds such a sum exactly, in whatever order it is added up.
"""

from __future__ import annotations

import functools
from math import inf, sqrt
from typing import Any, Iterator, List, Sequence, Tuple

import torch

from ...judging.tolerance import Part
from .answers import (
    Limit,
    dtype_name_of,
    exactly,
    formats_on,
    near,
    near_in_periods,
    offered,
    roundoff,
    tensor_of,
)
from .number_lists import repeated, scaled

PERIOD: Tuple[int, ...] = (3, -1, 0, 2, -3, 1, 1, -2, 2, 0, -1, 3, -2)
"""Thirteen numbers. Since 13 is a prime, consecutive chunks or vectors begin at different places in
the period."""
LISTS: Tuple[Tuple[int, ...], ...] = (
    (1,),
    (65_536,),
    (65_537,),
    (7, 70_003, 1),
    (1, 131_075, 33, 65_536, 1027),
    (*range(1, 130), 70_003),
)
"""The lengths of the tensors in each list. A foreach kernel works in chunks of 65,536 elements: the
longest tensors fill exactly one chunk, exceed it by one element, or need more than two chunks. The
last list has more than the 110 tensors that one launch of the kernel can take."""
RARE_ORDERS = (1.0, inf)
"""The orders other than 2 for which these kernels compute norms in a separate path."""
MAX_NORM = 0.5
"""Smaller than every norm here, so that all gradients are clipped."""


def gradient_norms(device: str) -> Iterator[Part]:
    """Catches a norm of only the first chunk or the first tensors, and gradients that are clipped
    wrongly."""
    if not hasattr(torch, "_foreach_norm"):
        # Before 1.13 torch had no `_foreach_norm`, and only one form of clipping.
        return
    for dtype_name in formats_on(device):
        # Skip float16, because the sum of 131,075 squares is too large for it, and float64, because
        # it uses the same path as float32.
        if dtype_name in ("float16", "float64"):
            continue
        for lengths in LISTS:
            gradients: List[Any] = []
            for length in lengths:
                gradients.append(tensor_of(repeated(PERIOD, length), dtype_name, device))
            yield from norms_in_list(gradients, 2.0)
            for foreach in (True, False):
                yield from clipped(gradients, 2.0, foreach)
        # To save time, the rarer norms are only computed for the last list.
        for order in RARE_ORDERS:
            yield from norms_in_list(gradients, order)
            for foreach in (True, False):
                yield from clipped(gradients, order, foreach)


def label_of(gradients: List[Any], order: float) -> str:
    """The label of a norm in the report. It names the norm, the number of tensors and the length of
    the longest tensor."""
    longest = max(len(gradient) for gradient in gradients)
    dtype_name = dtype_name_of(gradients[0])
    return f"{order:g}-norm of {len(gradients)} tensors of up to {longest} {dtype_name} numbers"


def norm_of(lengths: Sequence[int], order: float) -> float:
    """The norm of all elements of tensors with these lengths, computed from its definition."""
    power_sum = 0
    largest = 0
    for length in lengths:
        whole_periods, rest = divmod(length, len(PERIOD))
        for position, number in enumerate(PERIOD):
            count = whole_periods
            # The tensor ends with the first `rest` numbers of one more period.
            if position < rest:
                count += 1
            size = abs(number)
            if count:
                largest = max(largest, size)
            power_sum += count * (size if order == 1.0 else size * size)
    if order == inf:
        return float(largest)
    return float(power_sum) if order == 1.0 else sqrt(power_sum)


def limit_of(gradients: List[Any]) -> Limit:
    """The error allowed in a norm. The sum of squares is exact, so only its root is rounded.
    Combining the norms of the tensors adds about one rounding each time the list doubles."""
    dtype_name = dtype_name_of(gradients[0])
    return Limit(relative=16 * roundoff(dtype_name))


def norms_in_list(gradients: List[Any], order: float) -> Iterator[Part]:
    """Compare the norms of all tensors that one call of `_foreach_norm` returns."""
    exact = [norm_of([len(gradient)], order) for gradient in gradients]
    computed = offered(functools.partial(torch._foreach_norm, gradients, order))
    if computed is None:
        return
    label = f"foreach: {label_of(gradients, order)}"
    yield near(label, torch.stack(list(computed)), exact, limit_of(gradients))


def clipped(gradients: List[Any], order: float, foreach: bool) -> Iterator[Part]:
    """Compare the total norm that `clip_grad_norm_` returns, and the gradients after clipping."""
    parameters: List[Any] = []
    for gradient in gradients:
        parameter = torch.zeros_like(gradient).requires_grad_()
        parameter.grad = gradient.clone()
        parameters.append(parameter)
    total_norm = norm_of([len(gradient) for gradient in gradients], order)
    limit = limit_of(gradients)
    form = "foreach" if foreach else "plain"
    label = f"clip_grad_norm_, {form}: {label_of(gradients, order)}"

    clip = torch.nn.utils.clip_grad_norm_
    # If the limit is larger than the norm, every gradient must stay the same, bit by bit.
    computed = clip(parameters, 4 * total_norm, order, foreach=foreach)
    yield near(f"{label}, not clipped", computed, [total_norm], limit)
    first_numbers = parameters[-1].grad[: len(PERIOD)]
    exact = repeated(PERIOD, len(first_numbers))
    yield exactly(f"{label}, a gradient not clipped", first_numbers, exact)

    computed = clip(parameters, MAX_NORM, order, foreach=foreach)
    yield near(label, computed, [total_norm], limit)
    # Torch adds 1e-6 to the norm to avoid a division by zero.
    factor = MAX_NORM / (total_norm + 1e-6)
    exact = scaled(PERIOD, factor)
    for parameter in parameters[-2:]:
        gradient = parameter.grad
        period = exact[: len(gradient)]
        yield near_in_periods(f"{label}, a clipped gradient", gradient, period, limit)
