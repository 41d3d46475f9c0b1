"""Norms of gradients in lists of tensors, and clipping by them; asked by `optimizer-steps`.

Gradients are whole numbers from -3 to 3, so each sum of squares is a whole number below 2**24 that
float32 holds, in whatever order it is summed up.
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
"""Thirteen numbers, a prime: no chunk or vector begins with the same one twice in a row."""
LISTS: Tuple[Tuple[int, ...], ...] = (
    (1,),
    (65_536,),
    (65_537,),
    (7, 70_003, 1),
    (1, 131_075, 33, 65_536, 1027),
    (*range(1, 130), 70_003),
)
"""Elements of the tensors of each list: up to, one past, and more than twice the 65,536 elements
of a foreach kernel's chunk; and more tensors than the 110 that one launch of it takes."""
RARE_ORDERS = (1.0, inf)
"""Norms other than the Euclidean one that such kernels have a path of their own for."""
MAX_NORM = 0.5
"""Below each norm, so that the gradients are clipped."""


def gradient_norms(device: str) -> Iterator[Part]:
    """Catches a norm that counts the first chunk or the first tensors alone, and wrong clipping."""
    if not hasattr(torch, "_foreach_norm"):
        # Torch before 1.13, whose clipping has one form only.
        return
    for dtype_name in formats_on(device):
        # The sum of 131,075 squares is too large for float16; float64 takes float32's path.
        if dtype_name in ("float16", "float64"):
            continue
        for lengths in LISTS:
            gradients: List[Any] = []
            for length in lengths:
                gradients.append(tensor_of(repeated(PERIOD, length), dtype_name, device))
            yield from norms_in_list(gradients, 2.0)
            for foreach in (True, False):
                yield from clipped(gradients, 2.0, foreach)
        # The last list alone is asked for the rarer norms.
        for order in RARE_ORDERS:
            yield from norms_in_list(gradients, order)
            for foreach in (True, False):
                yield from clipped(gradients, order, foreach)


def label_of(gradients: List[Any], order: float) -> str:
    """The name of a norm of a list, with the list's length and its longest tensor."""
    longest = max(len(gradient) for gradient in gradients)
    dtype_name = dtype_name_of(gradients[0])
    return f"{order:g}-norm of {len(gradients)} tensors of up to {longest} {dtype_name} numbers"


def norm_of(lengths: Sequence[int], order: float) -> float:
    """The norm of tensors of these lengths, all together, from its definition."""
    power_sum = 0
    largest = 0
    for length in lengths:
        whole_periods, rest = divmod(length, len(PERIOD))
        for position, number in enumerate(PERIOD):
            count = whole_periods
            # The last, unfinished period has the first `rest` numbers once more.
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
    """The error allowed in a norm: the root of an exact sum is rounded, and the norm of norms adds
    a rounding for each doubling of the list."""
    dtype_name = dtype_name_of(gradients[0])
    return Limit(relative=16 * roundoff(dtype_name))


def norms_in_list(gradients: List[Any], order: float) -> Iterator[Part]:
    """Compare the norms of all tensors, computed by one call."""
    exact = [norm_of([len(gradient)], order) for gradient in gradients]
    computed = offered(functools.partial(torch._foreach_norm, gradients, order))
    if computed is None:
        return
    label = f"foreach: {label_of(gradients, order)}"
    yield near(label, torch.stack(list(computed)), exact, limit_of(gradients))


def clipped(gradients: List[Any], order: float, foreach: bool) -> Iterator[Part]:
    """Compare what `clip_grad_norm_` returns, the norm of all tensors together, and the gradients
    that it clips."""
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
    # Below a large enough limit every gradient stays as it is, bit by bit.
    computed = clip(parameters, 4 * total_norm, order, foreach=foreach)
    yield near(f"{label}, not clipped", computed, [total_norm], limit)
    first_numbers = parameters[-1].grad[: len(PERIOD)]
    exact = repeated(PERIOD, len(first_numbers))
    yield exactly(f"{label}, a gradient not clipped", first_numbers, exact)

    computed = clip(parameters, MAX_NORM, order, foreach=foreach)
    yield near(label, computed, [total_norm], limit)
    # Torch adds 1e-6 to the norm, so that no zero divides.
    factor = MAX_NORM / (total_norm + 1e-6)
    exact = scaled(PERIOD, factor)
    for parameter in parameters[-2:]:
        gradient = parameter.grad
        period = exact[: len(gradient)]
        yield near_in_periods(f"{label}, a clipped gradient", gradient, period, limit)
