"""Attention and masks, with rows of which every key is masked.

All queries and keys lie along one axis, so each score is a product of two small numbers, and an
answer is a short sum in Python.
"""

from __future__ import annotations

from math import exp, fsum
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence

import torch

from ...database.layers import BACKENDS, attended
from ...judging.tolerance import Part, holds
from .answers import (
    HALVES,
    Limit,
    dice,
    exactly,
    flat_list,
    formats_on,
    near,
    roundoff,
    tensor_of,
)


class Shape(NamedTuple):
    """The sizes of one attention, of one or two heads."""

    queries: int
    keys: int
    width: int
    mask: str = ""
    """`flags`, `numbers` (0 and minus infinity), `causal`, or none."""
    groups: int = 1
    """Heads of the queries to one head of the keys."""


SHAPES = (
    Shape(7, 17, 8),
    Shape(5, 65, 64, "flags"),
    Shape(33, 33, 64, "causal"),
    Shape(9, 130, 33, "numbers"),
    Shape(3, 257, 64, groups=2),
    Shape(65, 129, 16, "causal"),
    Shape(129, 65, 64, "causal"),
    Shape(1, 513, 128),
    Shape(4, 1025, 64, "flags"),
    Shape(2, 2049, 32, "numbers"),
    Shape(66, 4, 64, "flags"),
)
HEADS = 2
SCALE = 0.5


class Numbers(NamedTuple):
    """What one head attends to: scores are `SCALE * query * key`."""

    queries: List[float]
    keys: List[float]
    values: List[float]
    """One number a key; the element in column c of a value is this times 1 + c % 3."""
    allowed: List[List[bool]]
    """For each query, which keys it may see."""


def numbers_of(shape: Shape, head: int) -> Numbers:
    chance = dice(f"attention {shape} {head}")
    queries = [float(chance.randint(-2, 2)) for _ in range(shape.queries)]
    keys = [float(chance.randint(-2, 2)) for _ in range(shape.keys)]
    values = [float(chance.randint(-8, 8)) for _ in range(shape.keys)]
    # The last key counts more than any other: a row that is cut off is far away.
    keys[-1], values[-1] = 3.0, 16.0
    return Numbers(queries, keys, values, allowed_keys(shape))


def allowed_keys(shape: Shape) -> List[List[bool]]:
    """Every third query of a mask sees no key; each other one sees the first, and some."""
    chance = dice(f"mask {shape}")
    rows: List[List[bool]] = []
    for query in range(shape.queries):
        if shape.mask == "causal":
            rows.append([key <= query for key in range(shape.keys)])
        elif not shape.mask:
            rows.append([True] * shape.keys)
        elif query % 3 == 2:
            rows.append([False] * shape.keys)
        else:
            rows.append([key == 0 or chance.random() < 0.7 for key in range(shape.keys)])
    return rows


def weights_of(numbers: Numbers, query: int) -> Optional[List[float]]:
    """How much of each key a query takes; None if it may see none."""
    allowed = numbers.allowed[query]
    if not any(allowed):
        return None
    scores = [SCALE * numbers.queries[query] * key for key in numbers.keys]
    maximum = max(scores)
    heights = [exp(s - maximum) if seen else 0.0 for s, seen in zip(scores, allowed)]
    total = fsum(heights)
    return [height / total for height in heights]


def attentions(device: str) -> Iterator[Part]:
    """Catches masks that leak, dead rows that are filled, cut keys, and mixed-up heads."""
    for name in formats_on(device):
        for number, shape in enumerate(SHAPES):
            heads = [numbers_of(shape, head) for head in range(HEADS)]
            inputs = inputs_of(shape, heads, name, device)
            backends = (None, BACKENDS[number % len(BACKENDS)])
            for backend in backends:
                queries, keys, values = inputs
                computed = attended(
                    queries,
                    keys,
                    values,
                    mask=mask_of(shape, heads[0], name, device),
                    causal=shape.mask == "causal",
                    grouped=shape.groups > 1,
                    backend=backend,
                    scale=SCALE,
                )
                label = f"attention {tuple(shape)} of {name}"
                yield from judged_rows(label, computed, shape, heads)


def inputs_of(shape: Shape, heads: Sequence[Numbers], name: str, device: str) -> List[Any]:
    """Queries, keys and values; all but the first column of queries and keys are zero."""

    def one_column(rows: Sequence[float]) -> List[float]:
        padding = [0.0] * (shape.width - 1)
        return [value for row in rows for value in (row, *padding)]

    queries: List[float] = []
    keys: List[float] = []
    values: List[float] = []
    factors = [float(1 + column % 3) for column in range(shape.width)]
    for head in heads:
        # The heads of one group have the same queries.
        queries += one_column(head.queries) * shape.groups
        keys += one_column(head.keys)
        values += [value * factor for value in head.values for factor in factors]
    count = HEADS * shape.groups
    return [
        tensor_of(queries, name, device, 1, count, shape.queries, shape.width),
        tensor_of(keys, name, device, 1, HEADS, shape.keys, shape.width),
        tensor_of(values, name, device, 1, HEADS, shape.keys, shape.width),
    ]


def mask_of(shape: Shape, head: Numbers, name: str, device: str) -> Any:
    """The mask as torch takes it; None if there is none, or `causal` says it all."""
    if shape.mask not in ("flags", "numbers"):
        return None
    flags = [seen for row in head.allowed for seen in row]
    if shape.mask == "flags":
        return tensor_of(flags, "bool", device, shape.queries, shape.keys)
    added = [0.0 if seen else float("-inf") for seen in flags]
    return tensor_of(added, name, device, shape.queries, shape.keys)


def judged_rows(
    label: str, computed: Any, shape: Shape, heads: Sequence[Numbers]
) -> Iterator[Part]:
    """Each row of the answer beside the sum that it must be; a dead row is zero, or no number."""
    name = str(computed.dtype).replace("torch.", "")
    rows_found = flat_list(computed)
    exact: List[float] = []
    filled_rows = 0
    for head in heads:
        for _ in range(shape.groups):
            for query in range(shape.queries):
                weights = weights_of(head, query)
                if weights is None:
                    start = len(exact)
                    row = rows_found[start : start + shape.width]
                    # Older releases give NaN, torch 2.5 and later zero.
                    is_dead = all(value != value or value == 0.0 for value in row)
                    filled_rows += not is_dead
                    exact += row
                    continue
                mean = fsum(map(float.__mul__, weights, head.values))
                exact += [mean * (1 + column % 3) for column in range(shape.width)]
    message = f"{filled_rows} rows that may see no key are filled with numbers"
    yield holds(f"{label}, dead rows", not filled_rows, message)
    limit = Limit(4 * roundoff(name), 16.0 * 3 * attention_share(name, shape.keys))
    yield near(label, computed, exact, limit)


def attention_share(name: str, keys: int) -> float:
    """The error of the weights, as a share of the largest value: those of halves are rounded."""
    if name in HALVES:
        return 2 * roundoff(name)
    return (16 + keys / 8) * roundoff(name)


def elements_that_masks_pick(device: str) -> Iterator[Part]:
    """Catches masks that pick, fill or spread elements at other places than they name."""
    for name in (*formats_on(device), "int64", "int32"):
        for length in (1, 17, 1025, 70_001):
            chance = dice(f"picked {name} {length}")
            values = [float(position % 251 - 125) for position in range(length)]
            flags = [chance.random() < 0.4 for _ in range(length)]
            flags[-1] = True
            inputs = tensor_of(values, "float32", device).to(getattr(torch, name))
            mask = tensor_of(flags, "bool", device)
            label = f"of {length} {name} numbers"
            picked = [value for value, flag in zip(values, flags) if flag]
            computed = inputs.masked_select(mask)
            yield exactly(f"masked_select {label}", computed, picked)
            yield exactly(f"indexed by a mask {label}", inputs[mask], picked)
            filled = [7.0 if flag else value for value, flag in zip(values, flags)]
            computed = inputs.masked_fill(mask, 7)
            yield exactly(f"masked_fill {label}", computed, filled)
            computed = torch.where(mask, torch.full_like(inputs, 7), inputs)
            yield exactly(f"where {label}", computed, filled)
            # Elements are taken one after the other, wherever the mask is set.
            source = iter(values)
            spread = [next(source) if flag else 7.0 for flag in flags]
            computed = torch.full_like(inputs, 7).masked_scatter(mask, inputs)
            yield exactly(f"masked_scatter {label}", computed, spread)
            positions = [position for position, flag in enumerate(flags) if flag]
            computed = mask.nonzero()
            yield exactly(f"nonzero {label}", computed, positions)
