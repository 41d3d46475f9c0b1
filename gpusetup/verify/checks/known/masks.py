"""Attention with masks, including fully masked queries, and tensor operations that take a mask.

In all queries and keys, only the first column is not zero. So each score is a product of two small
numbers, and Python can compute the expected output with a short sum.
"""

from __future__ import annotations

from itertools import compress
from math import exp, fsum, inf, isnan
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch

from ...database.layers import BACKENDS, attended
from ...judging.tolerance import Part, holds
from .answers import (
    HALVES,
    Limit,
    dice,
    dtype_name_of,
    exactly,
    flat_list,
    formats_on,
    near,
    roundoff,
    tensor_of,
)
from .number_lists import joined, products_of_pairs, random_wholes, sawtooth, scaled


class AttentionShape(NamedTuple):
    """The sizes of one attention call, its kind of mask, and the number of query heads per key
    head."""

    queries: int
    keys: int
    width: int
    mask: str = ""
    """`flags` (booleans), `numbers` (0 and minus infinity, which are added to the scores),
    `causal`, or empty for no mask."""
    groups: int = 1
    """The number of query heads that share one key head."""


SHAPES = (
    AttentionShape(7, 17, 8),
    AttentionShape(5, 65, 64, "flags"),
    AttentionShape(33, 33, 64, "causal"),
    AttentionShape(9, 130, 33, "numbers"),
    AttentionShape(3, 257, 64, groups=2),
    AttentionShape(65, 129, 16, "causal"),
    AttentionShape(129, 65, 64, "causal"),
    AttentionShape(1, 513, 128),
    AttentionShape(4, 1025, 64, "flags"),
    AttentionShape(2, 2049, 32, "numbers"),
    AttentionShape(66, 4, 64, "flags"),
)
"""Lengths below and above 64 and 128, the sizes of the blocks into which attention kernels split
queries and keys."""
HEADS = 2
SCALE = 0.5
"""The factor of the scores. It is a power of two, so that each score is exact."""
LARGEST_VALUE = 16.0
"""The value of the last key."""


class Numbers(NamedTuple):
    """The queries, keys, values and mask of one head; scores are `SCALE * query * key`."""

    queries: List[float]
    keys: List[float]
    values: List[float]
    """One number per key. Column c of the value is this number times 1 + c % 3."""
    allowed: List[List[bool]]
    """For each query, which keys its mask allows."""


def numbers_of(shape: AttentionShape, head: int) -> Numbers:
    """Random whole numbers for one head. Queries and keys are at most 3, because their products
    become exponents."""
    chance = dice(f"attention {shape} {head}")
    queries = random_wholes(chance, shape.queries, -2, 2)
    keys = random_wholes(chance, shape.keys, -2, 2)
    values = random_wholes(chance, shape.keys, -8, 8)
    # The last position has the largest key and value, so the result is clearly wrong if it is left
    # out.
    keys[-1] = 3.0
    values[-1] = LARGEST_VALUE
    return Numbers(queries, keys, values, allowed_keys(shape))


def allowed_keys(shape: AttentionShape) -> List[List[bool]]:
    """For each query, which keys its mask allows. `flags` and `numbers` allow every third query no
    key at all."""
    chance = dice(f"mask {shape}")
    rows: List[List[bool]] = []
    for query in range(shape.queries):
        if shape.mask == "causal":
            row = [key <= query for key in range(shape.keys)]
        elif not shape.mask:
            row = [True] * shape.keys
        elif query % 3 == 2:
            row = [False] * shape.keys
        else:
            # Always allow the first key, so that no other query is fully masked by chance.
            row = [key == 0 or chance.random() < 0.7 for key in range(shape.keys)]
        rows.append(row)
    return rows


def weights_of(numbers: Numbers, query: int) -> Optional[List[float]]:
    """The attention weight of each key for a query, or None if the mask allows the query no key."""
    allowed = numbers.allowed[query]
    if not any(allowed):
        return None
    scores = [SCALE * numbers.queries[query] * key for key in numbers.keys]
    # Subtract the maximum, so that no exponential is too large.
    maximum = max(scores)
    heights: List[float] = []
    for score, is_allowed in zip(scores, allowed):
        heights.append(exp(score - maximum) if is_allowed else 0.0)
    total = fsum(heights)
    return [height / total for height in heights]


class Heads(NamedTuple):
    """The input values of all key heads in one attention call. All heads have the same mask."""

    shape: AttentionShape
    heads: List[Numbers]

    @property
    def query_heads(self) -> int:
        return HEADS * self.shape.groups


def heads_of(shape: AttentionShape) -> Heads:
    """Draw the input values of all key heads in one attention call."""
    heads = [numbers_of(shape, head) for head in range(HEADS)]
    return Heads(shape, heads)


def backends_for(number: int) -> Sequence[Optional[str]]:
    """The backends to test: None, which lets torch choose, and one named backend, which depends on
    `number`."""
    backend = BACKENDS[number % len(BACKENDS)]
    return (None, backend)


def computed_by_torch(heads: Heads, inputs: Sequence[Any], backend: Optional[str]) -> Any:
    """Compute the attention with torch. If `backend` is None, torch chooses one."""
    queries, keys, values = inputs
    shape = heads.shape
    return attended(
        queries,
        keys,
        values,
        mask=mask_of(heads, dtype_name_of(queries), str(queries.device)),
        causal=shape.mask == "causal",
        grouped=shape.groups > 1,
        backend=backend,
        scale=SCALE,
    )


def attentions(device: str) -> Iterator[Part]:
    """Catches masks that leak, wrong results for fully masked queries, missing keys and mixed-up
    heads."""
    for dtype_name in formats_on(device):
        for number, shape in enumerate(SHAPES):
            heads = heads_of(shape)
            inputs = inputs_of(heads, dtype_name, device)
            label = f"attention {tuple(shape)} of {dtype_name}"
            for backend in backends_for(number):
                computed = computed_by_torch(heads, inputs, backend)
                yield from judged_rows(label, computed, heads)


def inputs_of(heads: Heads, dtype_name: str, device: str) -> List[Any]:
    """The queries, keys and values as tensors. In queries and keys, all columns except the first
    are zero."""
    shape = heads.shape
    zeros = [0.0] * (shape.width - 1)
    factors = value_factors(shape)
    queries: List[float] = []
    keys: List[float] = []
    values: List[float] = []
    for head in heads.heads:
        query_rows = joined((query, *zeros) for query in head.queries)
        # All query heads of a group have the same queries.
        queries += query_rows * shape.groups
        keys += joined((key, *zeros) for key in head.keys)
        for value in head.values:
            values += scaled(factors, value)
    return [
        tensor_of(queries, dtype_name, device, 1, -1, shape.queries, shape.width),
        tensor_of(keys, dtype_name, device, 1, HEADS, shape.keys, shape.width),
        tensor_of(values, dtype_name, device, 1, HEADS, shape.keys, shape.width),
    ]


def value_factors(shape: AttentionShape) -> List[float]:
    return value_factors_of(shape.width)


def value_factors_of(width: int) -> List[float]:
    """The factor of a value's number in each column: 1, 2 or 3."""
    return sawtooth(width, period=3, start=1)


def mask_of(heads: Heads, dtype_name: str, device: str) -> Any:
    """The mask as torch expects it, or None if there is no mask or if the mask is causal."""
    shape = heads.shape
    if shape.mask not in ("flags", "numbers"):
        return None
    flags = joined(heads.heads[0].allowed)
    if shape.mask == "flags":
        return tensor_of(flags, "bool", device, shape.queries, shape.keys)
    # A mask of numbers is added to the scores.
    added = [0.0 if is_allowed else -inf for is_allowed in flags]
    return tensor_of(added, dtype_name, device, shape.queries, shape.keys)


def judged_rows(label: str, computed: Any, heads: Heads) -> Iterator[Part]:
    """Compare each row of the output with the exact result. A fully masked query's row must be zero
    or NaN."""
    shape = heads.shape
    elements = flat_list(computed)
    exact: List[float] = []
    filled_rows = 0
    for weights, head in weights_of_rows(heads):
        if weights is None:
            start = len(exact)
            row = elements[start : start + shape.width]
            if not is_dead(row):
                filled_rows += 1
            # Fully masked rows are judged above, so let them pass in the comparison below.
            exact += row
        else:
            mean = fsum(products_of_pairs(weights, head.values))
            exact += scaled(value_factors(shape), mean)
    message = f"{filled_rows} rows that may see no key are filled with numbers"
    yield holds(f"{label}, dead rows", not filled_rows, message)
    yield near(label, computed, exact, attention_limit(dtype_name_of(computed), shape.keys))


def weights_of_rows(heads: Heads) -> Iterator[Tuple[Optional[List[float]], Numbers]]:
    """For each row of the output, in order, yields the weights of its query (None for a fully
    masked query) and its head."""
    for head in heads.heads:
        for _ in range(heads.shape.groups):
            for query in range(heads.shape.queries):
                yield weights_of(head, query), head


def is_dead(row: Sequence[float]) -> bool:
    """Whether a row contains only zeros or NaN. For a fully masked query, torch 2.5 and later
    return zero and older releases return NaN."""
    for value in row:
        has_number = not isnan(value) and value != 0.0
        if has_number:
            return False
    return True


def attention_limit(dtype_name: str, keys: int) -> Limit:
    """The error allowed in an attention output: a relative part, and an absolute part in proportion
    to the largest value, because the weights are rounded."""
    unit = roundoff(dtype_name)
    share = 2 * unit
    if dtype_name not in HALVES:
        share = (16 + keys / 8) * unit
    largest_element = LARGEST_VALUE * 3
    return Limit(4 * unit, largest_element * share)


# --- elements -------------------------------------------------------------------------------------


class MaskedRow(NamedTuple):
    """A row of whole numbers with a mask."""

    values: List[float]
    flags: List[bool]

    def picked(self) -> List[float]:
        """The numbers at the positions where the mask is set."""
        return list(compress(self.values, self.flags))

    def filled(self) -> List[float]:
        """The row with 7 wherever the mask is set."""
        filled: List[float] = []
        for value, is_set in zip(self.values, self.flags):
            filled.append(7.0 if is_set else value)
        return filled

    def scattered(self) -> List[float]:
        """The result of `masked_scatter` into a row of sevens. Where the mask is set it has the
        row's numbers, starting with the first; elsewhere it has 7."""
        next_values = iter(self.values)
        scattered: List[float] = []
        for is_set in self.flags:
            scattered.append(next(next_values) if is_set else 7.0)
        return scattered


def masked_row(length: int, dtype_name: str) -> MaskedRow:
    """A row of numbers from -125 to 125, with a mask that selects about 40 % of them and always the
    last one."""
    chance = dice(f"picked {dtype_name} {length}")
    values = sawtooth(length, period=251, start=-125)
    flags = [chance.random() < 0.4 for _ in range(length)]
    # If a kernel leaves out the end of the row, it selects at least one element too few.
    flags[-1] = True
    return MaskedRow(values, flags)


def elements_that_masks_pick(device: str) -> Iterator[Part]:
    """Catches masks that select, fill or scatter elements at the wrong places."""
    for dtype_name in (*formats_on(device), "int64", "int32"):
        for length in (1, 17, 1025, 70_001):
            row = masked_row(length, dtype_name)
            inputs = tensor_of(row.values, dtype_name, device)
            mask = tensor_of(row.flags, "bool", device)
            sevens = torch.full_like(inputs, 7)
            label = f"of {length} {dtype_name} numbers"

            picked = row.picked()
            computed = inputs.masked_select(mask)
            yield exactly(f"masked_select {label}", computed, picked)
            computed = inputs[mask]
            yield exactly(f"indexed by a mask {label}", computed, picked)

            filled = row.filled()
            computed = inputs.masked_fill(mask, 7)
            yield exactly(f"masked_fill {label}", computed, filled)
            computed = torch.where(mask, sevens, inputs)
            yield exactly(f"where {label}", computed, filled)
            computed = sevens.masked_scatter(mask, inputs)
            yield exactly(f"masked_scatter {label}", computed, row.scattered())

            positions = list(compress(range(length), row.flags))
            computed = mask.nonzero()
            yield exactly(f"nonzero {label}", computed, positions)
