"""Gradients of elementwise functions, compared with slopes in Python. Part of the check
`gradients`.

A slope is computed from the function's values one and two steps to either side.
"""

from __future__ import annotations

import functools
from typing import Callable, Iterator, List

import torch

from ...judging.tolerance import Part
from .answers import (
    HALVES,
    Limit,
    dtype_of,
    flat_list,
    formats_on,
    near_in_periods,
    offered,
    roundoff,
    tensor_of,
)
from .functions import Function, functions
from .number_lists import products_of_pairs, repeated

SLOPE_POINTS = (0.1, 0.35, 0.7, 1.3, 1.7, 2.6, 4.3, 7.6)
"""The points at which slopes are tested. No function has a corner within two steps of a point, in
any format."""
STEP = 2.0**-11
"""The step to either side of a point when its slope is computed. For points below 1, the step is
multiplied by the point. The error of a slope grows with the fourth power of the step, and is about
1e-13."""
LENGTHS = (17, 1026, 70_003)
"""Lengths as in `pointwise.py`: a vector and one element, more than a block, and enough for several
threads."""
UPSTREAM = (1.0, -2.0, 3.0)
"""The upstream gradients, repeated for all elements."""


def slope(exact: Callable[[float], float], x: float) -> float:
    """Returns the derivative of a function at x, from central differences. Its error grows with the
    fourth power of the step.

    >>> round(slope(lambda x: x**3, 2.0), 9)
    12.0
    """
    scale = min(abs(x), 1.0)
    step = scale * STEP
    near_difference = exact(x + step) - exact(x - step)
    two_steps = 2 * step
    far_difference = exact(x + two_steps) - exact(x - two_steps)
    # These weights cancel the error terms that contain the third derivative.
    weighed_difference = 8 * near_difference - far_difference
    return weighed_difference / (12 * step)


def slopes_of_functions(device: str) -> Iterator[Part]:
    """Catches a backward pass that has a wrong formula or sign, is wrong at the end of the tensor,
    or ignores the upstream gradient."""
    for dtype_name in formats_on(device):
        for function in functions():
            # For float64 hardsigmoid, torch divides by 6 in float32 precision.
            if (function.name, dtype_name) == ("hardsigmoid", "float64"):
                continue
            yield from slopes_of_function(function, dtype_name, device)


def slopes_of_function(function: Function, dtype_name: str, device: str) -> Iterator[Part]:
    """Compare the gradient of one function for rows of several lengths."""
    points = points_of(function, dtype_name)
    slopes = [slope(function.exact, point) for point in points]
    # Repeat the points, so that their number is a multiple of the period of UPSTREAM.
    points *= len(UPSTREAM)
    slopes *= len(UPSTREAM)
    upstream = repeated(UPSTREAM, len(points))
    exact = products_of_pairs(slopes, upstream)
    limit = slope_limit(function, dtype_name)
    for length in LENGTHS:
        # All formats share the code that splits a tensor between threads, so one format is enough
        # for the longest row.
        if length > 5000 and dtype_name != "float32":
            continue
        leaf = tensor_of(repeated(points, length), dtype_name, device).requires_grad_()
        outputs = offered(functools.partial(function.run, leaf))
        if outputs is None or not outputs.requires_grad:
            continue
        arriving = tensor_of(repeated(upstream, length), dtype_name, device)
        (computed,) = torch.autograd.grad(outputs, leaf, arriving)
        label = f"gradient of {function.name}, {length} {dtype_name} numbers"
        yield near_in_periods(label, computed, exact, limit)


def points_of(function: Function, dtype_name: str) -> List[float]:
    """The points at which to test the slope, rounded to the format."""
    points = list(SLOPE_POINTS)
    if function.has_both_signs:
        points += [-point for point in SLOPE_POINTS]
    stored = torch.tensor(points, dtype=dtype_of(dtype_name))
    return flat_list(stored)


def slope_limit(function: Function, dtype_name: str) -> Limit:
    """The error allowed in a slope: 32 roundoffs for a formula of about ten operations, or 8 for
    16-bit formats."""
    unit = roundoff(dtype_name)
    if dtype_name in HALVES:
        # Some gradients are computed from the function's rounded result, and a steep slope
        # multiplies that rounding error.
        return Limit(8 * unit, 8 * unit)
    # The error of the slopes in Python is below this.
    least = 2.0**-33
    return Limit(32 * unit + least, (32 + function.slack) * unit + least)
