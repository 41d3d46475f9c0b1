"""Gradients of functions of one number compared with slopes in Python; used by the check
`gradients`.

A slope is taken from the function's values, a step to either side.
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
"""No function has a corner within two steps of one of these, rounded to any format."""
STEP = 2.0**-11
"""A step from 1 on, and its share of a smaller point. The error of a slope is of the fourth order
of it: some 1e-13."""
LENGTHS = (17, 1026, 70_003)
"""As in `pointwise`: one vector and a rest, past a block, and what several threads share."""
UPSTREAM = (1.0, -2.0, 3.0)
"""What arrives from behind, element by element."""


def slope(exact: Callable[[float], float], x: float) -> float:
    """The derivative of a function at x by central differences, with an error of the fourth order
    of the step.

    >>> round(slope(lambda x: x**3, 2.0), 9)
    12.0
    """
    scale = min(abs(x), 1.0)
    step = scale * STEP
    near_difference = exact(x + step) - exact(x - step)
    two_steps = 2 * step
    far_difference = exact(x + two_steps) - exact(x - two_steps)
    # With these weights the third derivative falls out.
    weighed_difference = 8 * near_difference - far_difference
    return weighed_difference / (12 * step)


def slopes_of_functions(device: str) -> Iterator[Part]:
    """Catches a backward pass with a wrong formula, sign or tail, or one that ignores the upstream
    gradient."""
    for dtype_name in formats_on(device):
        for function in functions():
            # torch divides by 6 in float32 there.
            if (function.name, dtype_name) == ("hardsigmoid", "float64"):
                continue
            yield from slopes_of_function(function, dtype_name, device)


def slopes_of_function(function: Function, dtype_name: str, device: str) -> Iterator[Part]:
    """Compare the gradient of one function element by element, for rows of several lengths."""
    points = points_of(function, dtype_name)
    slopes = [slope(function.exact, point) for point in points]
    # As many points as a common multiple of both periods.
    points *= len(UPSTREAM)
    slopes *= len(UPSTREAM)
    upstream = repeated(UPSTREAM, len(points))
    exact = products_of_pairs(slopes, upstream)
    limit = slope_limit(function, dtype_name)
    for length in LENGTHS:
        # The formats share the code that cuts a tensor into parts.
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
    """The error allowed in a slope: 32 roundoffs, for a formula of about ten operations; 8 in
    16-bit formats."""
    unit = roundoff(dtype_name)
    if dtype_name in HALVES:
        # Some are made of the rounded answer, whose error counts as many times as the slope grows.
        return Limit(8 * unit, 8 * unit)
    # Slopes in Python are as exact as this.
    least = 2.0**-33
    return Limit(32 * unit + least, (32 + function.slack) * unit + least)
