"""Gradients of attention, worked out row by row in Python; asked by the check `masks`.

As in `masks`, queries and keys lie along one axis: a score is SCALE * query * key. With the weights
w of a query, and d of each key (what arrives, times the value of the key), the gradient of a score
is `w * (d - sum of all w * d)`.
"""

from __future__ import annotations

from math import fsum
from typing import Any, Iterator, List, NamedTuple, Sequence

import torch

from ...database.layers import BACKENDS, attended
from ...judging.tolerance import Part
from .answers import HALVES, Limit, formats_on, near, roundoff, tensor_of
from .masks import HEADS, SCALE, Numbers, Shape, inputs_of, mask_of, numbers_of, weights_of

SHAPES = (
    Shape(7, 17, 8),
    Shape(5, 65, 64, "flags"),
    Shape(33, 33, 64, "causal"),
    Shape(9, 130, 33, "numbers"),
    Shape(3, 257, 64, groups=2),
    Shape(65, 129, 16, "causal"),
    Shape(129, 65, 16, "causal"),
    Shape(2, 1025, 32),
)


class HeadGradients(NamedTuple):
    """The gradients of one head's numbers, for one head of the queries."""

    queries: List[float]
    keys: List[float]
    values: List[float]
    """For each key, what arrives at column 0 of its value; column c gets 1 + c % 2 times that."""


def upstream_of(query: int) -> float:
    """What arrives at column 0 of an answer; at column c it is this times 1 + c % 2."""
    return float(query % 3 - 1)


def gradients_of_attention(device: str) -> Iterator[Part]:
    """Catches a backward pass that leaves out keys, masks, heads of a group, or the scale."""
    for number, shape in enumerate(SHAPES):
        heads = [numbers_of(shape, head) for head in range(HEADS)]
        head_gradients = [gradients_of_head(shape, head) for head in heads]
        for name in formats_on(device):
            leaves = [tensor.requires_grad_() for tensor in inputs_of(shape, heads, name, device)]
            for backend in (None, BACKENDS[number % len(BACKENDS)]):
                queries, keys, values = leaves
                outputs = attended(
                    queries,
                    keys,
                    values,
                    mask=mask_of(shape, heads[0], name, device),
                    causal=shape.mask == "causal",
                    grouped=shape.groups > 1,
                    backend=backend,
                    scale=SCALE,
                )
                arriving = arriving_at(shape, name, device)
                gradients = torch.autograd.grad(outputs, leaves, arriving)
                label = f"attention {tuple(shape)} of {name}"
                yield from judged_gradients(label, gradients, shape, head_gradients)


def live_queries(shape: Shape) -> List[int]:
    """Queries that may see a key. What arrives at the others is zero: torch's releases differ."""
    if shape.mask in ("flags", "numbers"):
        return [query for query in range(shape.queries) if query % 3 != 2]
    return list(range(shape.queries))


def arriving_at(shape: Shape, name: str, device: str) -> Any:
    live = set(live_queries(shape))
    values: List[float] = []
    for _ in range(HEADS * shape.groups):
        for query in range(shape.queries):
            height = upstream_of(query) if query in live else 0.0
            values += [height * (1 + column % 2) for column in range(shape.width)]
    return tensor_of(values, name, device, 1, HEADS * shape.groups, shape.queries, shape.width)


def gradients_of_head(shape: Shape, head: Numbers) -> HeadGradients:
    # The element of a value in column c is the value times 1 + c % 3, what arrives times 1 + c % 2.
    column_sum = sum((1 + column % 3) * (1 + column % 2) for column in range(shape.width))
    by_query = [0.0] * shape.queries
    by_key = [0.0] * shape.keys
    by_value = [0.0] * shape.keys
    for query in live_queries(shape):
        weights = weights_of(head, query)
        if weights is None:
            continue
        height = upstream_of(query)
        pulls = [height * column_sum * value for value in head.values]
        mean = fsum(map(float.__mul__, weights, pulls))
        for key, (weight, pull) in enumerate(zip(weights, pulls)):
            by_score = weight * (pull - mean)
            by_query[query] += by_score * SCALE * head.keys[key]
            by_key[key] += by_score * SCALE * head.queries[query]
            by_value[key] += weight * height
    return HeadGradients(by_query, by_key, by_value)


def judged_gradients(
    label: str, gradients: Sequence[Any], shape: Shape, heads: Sequence[HeadGradients]
) -> Iterator[Part]:
    """Each gradient beside that of Python; dead queries of the masks have none."""
    name = str(gradients[0].dtype).replace("torch.", "")
    queries: List[float] = []
    keys: List[float] = []
    values: List[float] = []
    for head in heads:
        # Each head of a group adds the same to its keys and values.
        queries += head.queries * shape.groups
        keys += [shape.groups * value for value in head.keys]
        for value in head.values:
            values += [shape.groups * value * (1 + column % 2) for column in range(shape.width)]
    by_query = gradients[0][..., 0]
    by_key = gradients[1][..., 0]
    live = torch.isfinite(by_query)
    by_query = torch.where(live, by_query, torch.zeros_like(by_query))
    limit = score_limit(name, shape, queries)
    yield near(f"gradient of queries, {label}", by_query, queries, limit)
    limit = score_limit(name, shape, keys)
    yield near(f"gradient of keys, {label}", by_key, keys, limit)
    limit = Limit(16 * unit_of(name, shape), 16 * unit_of(name, shape))
    yield near(f"gradient of values, {label}", gradients[2], values, limit)


def unit_of(name: str, shape: Shape) -> float:
    """The relative error of a weight: halves round it once, others sum up the keys."""
    if name in HALVES:
        return 2 * roundoff(name)
    return (4 + shape.keys / 32) * roundoff(name)


def score_limit(name: str, shape: Shape, exact: Sequence[float]) -> Limit:
    """The gradient of a score is a difference of numbers as large as the largest gradient.

    Pulls reach 16 * 2 * width; halves round the answers from which their mean is taken.
    """
    column_sum = 2.25 * shape.width
    largest = max(map(abs, exact), default=0.0)
    return Limit(16 * unit_of(name, shape), unit_of(name, shape) * (16 * column_sum + largest))
