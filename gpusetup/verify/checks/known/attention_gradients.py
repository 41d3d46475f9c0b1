"""Gradients of attention, computed row by row in Python. Part of the check `masks`.

As in `masks.py`, only the first column of queries and keys is not zero, so a score is SCALE * query
* key. Let w be the weight of a key, and d the gradient of that weight (the upstream gradient times
the key's value). Then the gradient of the score is `w * (d - sum of w * d over all keys)`.
"""

from __future__ import annotations

from math import fsum
from typing import Any, Iterator, List, NamedTuple, Sequence

import torch

from ...judging.tolerance import Part
from .answers import HALVES, Limit, dtype_name_of, formats_on, near, roundoff, tensor_of
from .masks import (
    HEADS,
    SCALE,
    AttentionShape,
    Numbers,
    backends_for,
    computed_by_torch,
    heads_of,
    inputs_of,
    value_factors,
    weights_of,
)
from .number_lists import joined, products_of_pairs, sawtooth, scaled

SHAPES = (
    AttentionShape(7, 17, 8),
    AttentionShape(5, 65, 64, "flags"),
    AttentionShape(33, 33, 64, "causal"),
    AttentionShape(9, 130, 33, "numbers"),
    AttentionShape(3, 257, 64, groups=2),
    AttentionShape(65, 129, 16, "causal"),
    AttentionShape(129, 65, 16, "causal"),
    AttentionShape(2, 1025, 32),
)
"""Fewer and smaller shapes than in `masks.py`, because Python has to compute three gradients for
each shape."""


class HeadGradients(NamedTuple):
    """The exact gradients of the queries, keys and values for one pair of a query head and a key
    head."""

    queries: List[float]
    keys: List[float]
    values: List[float]
    """For each key, the gradient of column 0 of its value. Column c has 1 + c % 2 times that
    gradient."""


def upstream_of(query: int) -> float:
    """The upstream gradient of column 0 of a query's output. Column c has 1 + c % 2 times that
    gradient."""
    return float(query % 3 - 1)


def upstream_factors(shape: AttentionShape) -> List[float]:
    """The factor of the upstream gradient in each column, which is 1 or 2."""
    return sawtooth(shape.width, period=2, start=1)


def gradients_of_attention(device: str) -> Iterator[Part]:
    """Catches a backward pass that leaves out keys, the mask, heads of a group, or the scale."""
    for number, shape in enumerate(SHAPES):
        heads = heads_of(shape)
        exact = [gradients_of_head(shape, head) for head in heads.heads]
        for dtype_name in formats_on(device):
            leaves = inputs_of(heads, dtype_name, device)
            for leaf in leaves:
                leaf.requires_grad_()
            arriving = arriving_at(shape, dtype_name, device)
            label = f"attention {tuple(shape)} of {dtype_name}"
            # Each backend has its own backward pass.
            for backend in backends_for(number):
                outputs = computed_by_torch(heads, leaves, backend)
                gradients = torch.autograd.grad(outputs, leaves, arriving)
                yield from judged_gradients(label, gradients, shape, exact)


def live_queries(shape: AttentionShape) -> List[int]:
    """The queries that get an upstream gradient. With a mask of flags or numbers, every third query
    may see no key. These queries get a zero gradient, because their result differs between torch
    releases."""
    queries = range(shape.queries)
    if shape.mask in ("flags", "numbers"):
        return [query for query in queries if query % 3 != 2]
    return list(queries)


def arriving_at(shape: AttentionShape, dtype_name: str, device: str) -> Any:
    """The upstream gradient of each element of the output, the same for all heads."""
    live = live_queries(shape)
    factors = upstream_factors(shape)
    rows: List[List[float]] = []
    for query in range(shape.queries):
        # If a query sees no key, its output may be NaN. An upstream gradient of zero keeps that NaN
        # out of the keys' gradients.
        height = upstream_of(query) if query in live else 0.0
        rows.append(scaled(factors, height))
    heads = HEADS * shape.groups
    values = joined(rows) * heads
    return tensor_of(values, dtype_name, device, 1, heads, shape.queries, shape.width)


def column_sum(shape: AttentionShape) -> float:
    """The sum, over all columns, of the value's factor times the upstream gradient's factor."""
    products = products_of_pairs(value_factors(shape), upstream_factors(shape))
    return sum(products)


def gradients_of_head(shape: AttentionShape, head: Numbers) -> HeadGradients:
    """The exact gradients of one head, added up query by query."""
    query_gradient = [0.0] * shape.queries
    key_gradient = [0.0] * shape.keys
    value_gradient = [0.0] * shape.keys
    for query in live_queries(shape):
        weights = weights_of(head, query)
        if weights is None:
            continue
        height = upstream_of(query)
        weight_gradients = [height * column_sum(shape) * value for value in head.values]
        mean = fsum(products_of_pairs(weights, weight_gradients))
        for key, (weight, weight_gradient) in enumerate(zip(weights, weight_gradients)):
            score_gradient = weight * (weight_gradient - mean)
            query_gradient[query] += score_gradient * SCALE * head.keys[key]
            key_gradient[key] += score_gradient * SCALE * head.queries[query]
            value_gradient[key] += weight * height
    return HeadGradients(query_gradient, key_gradient, value_gradient)


def judged_gradients(
    label: str, gradients: Sequence[Any], shape: AttentionShape, heads: Sequence[HeadGradients]
) -> Iterator[Part]:
    """Compare the gradients of queries, keys and values with Python's. For queries that see no key,
    0 and NaN are both accepted."""
    dtype_name = dtype_name_of(gradients[0])
    queries: List[float] = []
    keys: List[float] = []
    values: List[float] = []
    for head in heads:
        queries += head.queries * shape.groups
        # All query heads of a group share the keys and values, and each adds the same gradient to
        # them.
        keys += scaled(head.keys, shape.groups)
        for value in head.values:
            values += [shape.groups * value * factor for factor in upstream_factors(shape)]

    # Only the first column is compared, because queries and keys are zero in the others.
    computed = gradients[0][..., 0]
    computed = torch.where(torch.isfinite(computed), computed, torch.zeros_like(computed))
    limit = score_limit(dtype_name, shape, queries)
    yield near(f"gradient of queries, {label}", computed, queries, limit)
    computed = gradients[1][..., 0]
    limit = score_limit(dtype_name, shape, keys)
    yield near(f"gradient of keys, {label}", computed, keys, limit)
    unit = unit_of(dtype_name, shape)
    limit = Limit(16 * unit, 16 * unit)
    yield near(f"gradient of values, {label}", gradients[2], values, limit)


def unit_of(dtype_name: str, shape: AttentionShape) -> float:
    """The relative error allowed in an attention weight. In 16-bit formats a weight is rounded
    once; in the others the error grows with the number of keys that are summed."""
    unit = roundoff(dtype_name)
    if dtype_name in HALVES:
        return 2 * unit
    return (4 + shape.keys / 32) * unit


def score_limit(dtype_name: str, shape: AttentionShape, exact: Sequence[float]) -> Limit:
    """The error allowed in the gradients of queries and keys.

    The gradient of a score is a difference of large numbers, so the absolute limit grows with the
    largest of them. One term of that difference is a mean computed from the outputs, and 16-bit
    formats round those too.
    """
    unit = unit_of(dtype_name, shape)
    # The gradient of a weight is at most 16, the largest value, times `column_sum`, which is 3 per
    # column on average. Three quarters of that are used here: 2.25 per column.
    largest_weight_gradient = 16 * 2.25 * shape.width
    largest = max(map(abs, exact), default=0.0)
    return Limit(relative=16 * unit, absolute=unit * (largest_weight_gradient + largest))
