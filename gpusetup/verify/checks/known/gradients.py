"""Gradients of functions, of spread operands, and of elements that are picked along an axis.

The slope of a function of one number is taken from its values in Python, a step to either side.
All other gradients are sums of small whole numbers, so they are exact in every format.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

import torch
from torch.utils.checkpoint import checkpoint

from ...judging.tolerance import Part
from ...values import Outcome
from .answers import (
    HALVES,
    Limit,
    ask_all,
    dice,
    exactly,
    flat_list,
    formats_on,
    near,
    near_in_periods,
    offered,
    repeated,
    roundoff,
    tensor_of,
)
from .pointwise import Function, functions

SLOPE_POINTS = (0.1, 0.35, 0.7, 1.3, 1.7, 2.6, 4.3, 7.6)
"""No function has a corner within two steps of one of these, rounded to any format."""
STEP = 2.0**-11
"""A step from 1 on, and its share of a smaller point. The error of a slope is of the fourth order
of it: some 1e-13."""
LENGTHS = (17, 1026, 70_003)
UPSTREAM = (1.0, -2.0, 3.0)
"""What arrives from behind, element by element."""


def gradients(device: str) -> Outcome:
    """Gradients agree with the slopes of the functions, and arrive where their operands were."""
    questions = (
        slopes_of_functions,
        gradients_of_spread_operands,
        gradients_of_products,
        gradients_of_picked_elements,
        gradients_along_rows,
        gradients_of_copies,
        gradients_of_checkpoints,
        second_derivatives,
    )
    return ask_all(device, questions, "slopes in Python")


def slope(exact: Callable[[float], float], x: float) -> float:
    """The derivative of a function at a point, of the fourth order of the step.

    >>> round(slope(lambda x: x**3, 2.0), 9)
    12.0
    """
    step = min(abs(x), 1.0) * STEP
    near_difference = exact(x + step) - exact(x - step)
    far_difference = exact(x + 2 * step) - exact(x - 2 * step)
    return (8 * near_difference - far_difference) / (12 * step)


def slopes_of_functions(device: str) -> Iterator[Part]:
    """Catches a backward pass with a wrong formula, sign or tail, or without what arrives."""
    for name in formats_on(device):
        for function in functions():
            points = points_of(function, name)
            slopes = [slope(function.exact, point) for point in points]
            # As many points as a common multiple of both periods.
            points, slopes = points * len(UPSTREAM), slopes * len(UPSTREAM)
            upstream = repeated(UPSTREAM, len(points))
            exact = list(map(float.__mul__, slopes, upstream))
            for length in LENGTHS:
                if length > 5000 and name != "float32":
                    continue  # the formats share the code that cuts a tensor into parts
                if (function.name, name) == ("hardsigmoid", "float64"):
                    continue  # torch divides by 6 in float32 there
                leaf = tensor_of(repeated(points, length), name, device).requires_grad_()
                label = f"gradient of {function.name}, {length} {name} numbers"
                outputs = offered(functools.partial(function.run, leaf))
                if outputs is None or not outputs.requires_grad:
                    continue
                arriving = tensor_of(repeated(upstream, length), name, device)
                computed = torch.autograd.grad(outputs, leaf, arriving)[0]
                yield near_in_periods(label, computed, exact, slope_limit(function, name))


def points_of(function: Function, name: str) -> List[float]:
    """Where the slope is asked for, as the format holds it."""
    points = list(SLOPE_POINTS)
    if function.has_both_signs:
        points += [-point for point in SLOPE_POINTS]
    return flat_list(torch.tensor(points, dtype=getattr(torch, name)))


def slope_limit(function: Function, name: str) -> Limit:
    """Thirty-two roundoffs: a formula of some ten operations, of which several are rounded."""
    unit = roundoff(name)
    if name in HALVES:
        # Some are made of the rounded answer, whose error counts as many times as the slope grows.
        return Limit(8 * unit, 8 * unit)
    # Slopes in Python are as exact as this.
    least = 2.0**-33
    return Limit(32 * unit + least, (32 + function.slack) * unit + least)


# --- operands that are spread ---------------------------------------------------------------------


def gradients_of_spread_operands(device: str) -> Iterator[Part]:
    """Catches a gradient that is not summed over what its operand was spread to."""
    shapes: Tuple[Tuple[Tuple[int, ...], Tuple[int, ...]], ...] = (
        ((5, 17), (17,)),
        ((7, 1, 3), (4, 1)),
        ((33, 65), (33, 1)),
        ((2, 1026), ()),
    )
    for name in formats_on(device):
        for large_shape, small_shape in shapes:
            leaves = [whole_leaf(shape, name, device) for shape in (large_shape, small_shape)]
            product = leaves[0] * leaves[1]
            computed = torch.autograd.grad(product.sum(), leaves)
            label = f"{large_shape} times {small_shape} of {name}"
            operands = [flat_list(leaf) for leaf in leaves]
            exact = product_gradients(operands, (large_shape, small_shape))
            limit = Limit(4 * roundoff(name))  # the long sum of halves is rounded
            for number in (0, 1):
                yield near(f"gradient {number} of {label}", computed[number], exact[number], limit)


def whole_leaf(shape: Sequence[int], name: str, device: str) -> Any:
    """A tensor of small whole numbers that learns."""
    chance = dice(f"leaf {shape}")
    count = functools.reduce(int.__mul__, shape, 1)
    values = [chance.choice((-1, 0, 1, 2)) for _ in range(count)]
    leaf = torch.tensor(values, dtype=getattr(torch, name)).reshape(tuple(shape))
    return leaf.to(device).requires_grad_()


def product_gradients(
    operands: Sequence[List[float]], shapes: Sequence[Tuple[int, ...]]
) -> List[List[float]]:
    """The gradients of the sum of a spread product: for each element, what it was multiplied by."""
    dimensions = max(map(len, shapes))
    padded = [(1,) * (dimensions - len(shape)) + shape for shape in shapes]
    whole_shape = [max(lengths) for lengths in zip(*padded)]
    sums = [[0.0] * len(values) for values in operands]
    for position in positions_in(whole_shape):
        first, second = (flat_position(position, shape) for shape in padded)
        sums[0][first] += operands[1][second]
        sums[1][second] += operands[0][first]
    return sums


def positions_in(shape: Sequence[int]) -> Iterator[Tuple[int, ...]]:
    """Every position of a tensor, the last axis moving fastest."""
    if not shape:
        yield ()
        return
    for first in range(shape[0]):
        for others in positions_in(shape[1:]):
            yield (first, *others)


def flat_position(position: Sequence[int], shape: Sequence[int]) -> int:
    """The place of an element in memory; an axis of length 1 is spread.

    >>> flat_position((2, 3), (5, 1)), flat_position((2, 3), (5, 4))
    (2, 11)
    """
    place = 0
    for index, length in zip(position, shape):
        place = place * length + (0 if length == 1 else index)
    return place


def gradients_of_products(device: str) -> Iterator[Part]:
    """Catches a linear layer whose gradients lose rows, columns or a bias.

    Along G the gradient of the weight is G' X, that of the input G W, that of the bias G's sums.
    """
    for name in formats_on(device):
        for rows, inner, columns in ((5, 17, 3), (33, 65, 9), (130, 3, 31)):
            inputs = whole_leaf((rows, inner), name, device)
            weight = whole_leaf((columns, inner), name, device)
            bias = whole_leaf((columns,), name, device)
            arriving = whole_leaf((rows, columns), name, device).detach()
            outputs = torch.nn.functional.linear(inputs, weight, bias)
            computed = torch.autograd.grad(outputs, (inputs, weight, bias), arriving)
            x, w, g = (tensor.tolist() for tensor in (inputs, weight, arriving))
            label = f"linear {rows} x {inner} x {columns} of {name}"
            limit = Limit(2 * roundoff(name))  # the longest sums of bfloat16 are rounded
            exact = product_of_rows(g, columns_of(w))
            yield near(f"gradient of the input of {label}", computed[0], exact, limit)
            exact = product_of_rows(columns_of(g), columns_of(x))
            yield near(f"gradient of the weight of {label}", computed[1], exact, limit)
            exact = [sum(column) for column in columns_of(g)]
            yield near(f"gradient of the bias of {label}", computed[2], exact, limit)
            batch = torch.bmm(inputs.expand(2, -1, -1), weight.t().expand(2, -1, -1))
            computed = torch.autograd.grad(batch, (inputs, weight), arriving.expand(2, -1, -1))
            exact = [2 * value for value in product_of_rows(columns_of(g), columns_of(x))]
            yield near(f"gradient of bmm, {label}", computed[1], exact, limit)


def columns_of(rows: Sequence[Sequence[float]]) -> List[List[float]]:
    return [list(column) for column in zip(*rows)]


def product_of_rows(
    rows: Sequence[Sequence[float]], columns: Sequence[Sequence[float]]
) -> List[float]:
    """Each row times each column, row by row."""
    product: List[float] = []
    for row in rows:
        for column in columns:
            product.append(sum(map(float.__mul__, row, column)))
    return product


# --- elements that are picked ---------------------------------------------------------------------


def gradients_of_picked_elements(device: str) -> Iterator[Part]:
    """Catches a gradient that arrives at another element than the one that was taken."""
    for name in formats_on(device):
        for length in (17, 257, 1025, 4099):
            # Every number once, so that it is clear which element is meant.
            order = list(range(length))
            dice(f"picked {length}").shuffle(order)
            # bfloat16 has no 4,099 different whole numbers, float16 2,048.
            exact_name = "float32" if name in HALVES and length > 256 else name
            leaf = tensor_of(order, exact_name, device).requires_grad_()
            label = f"{length} {exact_name} numbers"
            highest = [0.0] * length
            highest[order.index(length - 1)] = 1.0
            for method, outputs in (
                ("max", leaf.max()),
                ("max along a row", leaf.max(0)[0]),
                ("amax", leaf.amax(0)),
            ):
                computed = torch.autograd.grad(outputs, leaf)[0]
                yield exactly(f"gradient of {method}, {label}", computed, highest)
            weights = [float(position % 7) for position in range(length)]
            along = tensor_of(weights, exact_name, device)
            computed = torch.autograd.grad(leaf.sort()[0], leaf, along)[0]
            exact = [weights[value] for value in order]
            yield exactly(f"gradient of sort, {label}", computed, exact)
            count = length // 3 + 1
            taken = leaf.topk(count)[0]
            computed = torch.autograd.grad(taken, leaf, along[:count])[0]
            exact = [0.0] * length
            for position, value in enumerate(order):
                rank = length - 1 - value
                if rank < count:
                    exact[position] = weights[rank]
            yield exactly(f"gradient of topk, {label}", computed, exact)


def gradients_along_rows(device: str) -> Iterator[Part]:
    """Catches a gradient of a running sum, mean or extreme that loses the end of a row."""
    for name in ("float32", "float64"):
        for length in (17, 1025, 4099):
            leaf = whole_leaf((2, length), name, device)
            weights = [float(position % 3) for position in range(2 * length)]
            along = tensor_of(weights, name, device, 2, length)
            label = f"2 x {length} {name} numbers"
            computed = torch.autograd.grad(leaf.cumsum(1), leaf, along)[0]
            exact: List[float] = []
            for row in (weights[:length], weights[length:]):
                exact += sums_from_here(row)
            yield exactly(f"gradient of cumsum, {label}", computed, exact)
            means = leaf.mean(1)
            pair = tensor_of([1.0, -3.0], name, device)
            computed = torch.autograd.grad(means, leaf, pair)[0]
            exact = [1 / length] * length + [-3 / length] * length
            limit = Limit(4 * roundoff(name))
            yield near(f"gradient of mean, {label}", computed, exact, limit)
            norm = torch.linalg.vector_norm(leaf)
            computed = torch.autograd.grad(norm, leaf)[0]
            values = flat_list(leaf)
            size = sum(value * value for value in values) ** 0.5
            exact = [value / size for value in values]
            limit = Limit(64 * roundoff(name))
            yield near(f"gradient of vector_norm, {label}", computed, exact, limit)
            deviation = torch.autograd.grad(leaf.var(), leaf)[0]
            mean = sum(values) / len(values)
            exact = [2 * (value - mean) / (len(values) - 1) for value in values]
            limit = Limit(64 * roundoff(name), 64 * roundoff(name) / len(values))
            yield near(f"gradient of var, {label}", deviation, exact, limit)


def sums_from_here(row: Sequence[float]) -> List[float]:
    """For each element the sum of it and all behind it.

    >>> sums_from_here([1, 2, 3])
    [6.0, 5.0, 3.0]
    """
    total = 0.0
    sums: List[float] = []
    for value in reversed(row):
        total += value
        sums.append(total)
    return sums[::-1]


def gradients_of_copies(device: str) -> Iterator[Part]:
    """Catches a gradient that a transposition, cut, join, cast or condition sends elsewhere."""
    ways: Dict[str, Callable[[Any], Any]] = {
        "a transposed copy": lambda x: x.t().contiguous().t(),
        "two parts joined": lambda x: torch.cat([x[:, :5], x[:, 5:]], 1),
        "rows joined again": lambda x: torch.stack(list(x.unbind(0))),
        "a mirrored mirror": lambda x: x.flip(1).flip(1),
        "a rolled row": lambda x: x.roll(3, 1).roll(-3, 1),
        "a cast to float64": lambda x: x.double(),
        "padded and cut": lambda x: torch.nn.functional.pad(x, (2, 1))[:, 2:-1],
        "a condition": lambda x: torch.where(x == x, x, torch.zeros_like(x)),
        "a filled mask": lambda x: x.masked_fill(x != x, 7.0),
        "a clone": lambda x: x.clone(),
        "a written copy": lambda x: torch.zeros_like(x).copy_(x),
    }
    for name in formats_on(device):
        for shape in ((3, 17), (33, 1025)):
            leaf = whole_leaf(shape, name, device)
            arriving = whole_leaf((shape[0], shape[1], 1), name, device).detach()[..., 0]
            for method, run in ways.items():
                outputs = run(leaf)
                computed = torch.autograd.grad(outputs, leaf, arriving.to(outputs.dtype))[0]
                label = f"gradient of {method}, {shape} {name}"
                yield exactly(label, computed, flat_list(arriving))


def gradients_of_checkpoints(device: str) -> Iterator[Part]:
    """Catches a part of a model that is computed again from other numbers than before."""
    for name in formats_on(device):
        for length in (17, 1025):
            leaf = whole_leaf((length,), name, device)
            # 3 x * x, of which the gradient is 6 x: exact in every format.
            for method, options in (
                ("reentrant", {"use_reentrant": True}),
                ("plain", {"use_reentrant": False}),
            ):
                outputs = checkpoint(lambda x: x * x * 3, leaf, **options)
                label = f"gradient of a {method} checkpoint of {length} {name} numbers"
                leaf.grad = None
                outputs.sum().backward()
                yield exactly(label, leaf.grad, [6 * value for value in flat_list(leaf)])


def second_derivatives(device: str) -> Iterator[Part]:
    """Catches a gradient that cannot be differentiated again, as gradient penalties do.

    Of x * x * x: the first derivative is 3 x * x, the second 6 x.
    """
    for name in ("float32", "float64"):
        leaf = whole_leaf((1025,), name, device)
        first = torch.autograd.grad((leaf * leaf * leaf).sum(), leaf, create_graph=True)[0]
        second = torch.autograd.grad(first.sum(), leaf)[0]
        exact = [6 * value for value in flat_list(leaf)]
        yield exactly(f"second derivative of {name} numbers", second, exact)
