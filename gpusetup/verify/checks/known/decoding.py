"""Attention of a few queries over many keys, and masks that differ between batch rows and heads.
Part of the check `masks`.

Language models need both to generate text: the query of each step attends to all earlier keys, and
sequences of different lengths share a batch.
"""

from __future__ import annotations

import functools
from itertools import product
from math import exp, fsum, inf
from typing import Any, Iterator, List, NamedTuple, Optional

from ...database.layers import attended
from ...judging.tolerance import Part
from .answers import Limit, dice, formats_on, near, tensor_of
from .masks import LARGEST_VALUE, attention_limit, backends_for, value_factors_of
from .number_lists import joined, products_of_pairs, scaled


class CachedAttention(NamedTuple):
    """The sizes of one attention call over keys from earlier steps (the KV cache)."""

    batch: int
    heads: int
    queries: int
    keys: int
    width: int
    differs_along: str = ""
    """The axes along which the mask differs: b(atch), h(ead) and q(uery). If empty, there is no
    mask."""
    groups: int = 1
    """The number of query heads that share one key head."""

    @property
    def mask_shape(self) -> List[int]:
        """The mask's shape: batch, heads, queries and keys. An axis along which the mask does not
        differ has length 1."""
        lengths = {"b": self.batch, "h": self.heads * self.groups, "q": self.queries}
        shape = [lengths[axis] if axis in self.differs_along else 1 for axis in "bhq"]
        return [*shape, self.keys]


ATTENTIONS = (
    CachedAttention(1, 2, 1, 1025, 64),
    CachedAttention(2, 2, 1, 2049, 32),
    CachedAttention(1, 1, 1, 4097, 64, groups=2),
    CachedAttention(1, 2, 3, 4097, 16),
    CachedAttention(2, 1, 1, 1537, 64, "b"),
    CachedAttention(2, 2, 1, 1025, 32, "bh"),
    CachedAttention(2, 1, 5, 2049, 16, "bq"),
    CachedAttention(3, 2, 7, 33, 16, "b"),
    CachedAttention(2, 3, 5, 130, 64, "bh"),
    CachedAttention(2, 4, 4, 129, 32, "h"),
    CachedAttention(2, 2, 3, 17, 8, "bhq"),
    CachedAttention(2, 2, 66, 70, 64, "b"),
    CachedAttention(3, 1, 2, 257, 64, "b", groups=3),
)
"""The first cases have more than 1,024, 2,048 and 4,096 keys, because kernels split longer lists of
keys into more parts. The others have fewer keys, with masks that differ along several combinations
of axes."""
CACHE_SCALE = 0.25
"""The factor of the scores. Its square root is a power of two too, so torch can multiply both
queries and keys by that root without rounding."""
QUERIES = (4.0, -4.0, 2.0, -2.0)
"""The values of the queries, which are used in turn. Multiplied by the scale they are 1 or 1/2 with
either sign, so a weight's exponent is the key or half the key."""
END_KEY = 9.0
"""The value of the last key; the first key is its negative. For a query of 4 or -4, one of the two
has a weight of e**9 = 8,103, about as much as 4,096 other keys together."""


class Cache(NamedTuple):
    """The key and the value at each position of a head, each as one number."""

    keys: List[float]
    values: List[float]


@functools.lru_cache(maxsize=None)
def cache_of(attention: CachedAttention, batch: int, head: int) -> Cache:
    """Random keys and values that both rise from the first position to the last. They are the same
    for all formats.

    Wherever a kernel splits the keys, the parts differ in their weights and in their means. So a
    kernel that averages the parts' results without weights gets a clearly wrong result.
    """
    chance = dice(f"cache {attention} {batch} {head}")
    key_steps = chance.choices((-1.0, 0.0, 1.0), k=attention.keys)
    value_steps = chance.choices((-2.0, -1.0, 0.0, 1.0, 2.0), k=attention.keys)
    keys: List[float] = []
    values: List[float] = []
    for position, (key_step, value_step) in enumerate(zip(key_steps, value_steps)):
        # `level` rises from -2 to 2.
        level = 4 * position // (attention.keys - 1) - 2
        keys.append(level + key_step)
        values.append(3 * level + value_step)
    keys[0], values[0] = -END_KEY, -LARGEST_VALUE
    keys[-1], values[-1] = END_KEY, LARGEST_VALUE
    return Cache(keys, values)


def query_of(query: int, query_head: int) -> float:
    """Returns the value of a query. Queries use `QUERIES` in turn, and each head starts one place
    later."""
    return QUERIES[(query + query_head) % len(QUERIES)]


def mask_rows(attention: CachedAttention) -> List[List[bool]]:
    """For each row of the mask, which keys it allows: about 80 % of the keys outside the row's
    padding. The padding of each row has a different length.

    Odd rows have their padding before the keys, even rows after them.
    """
    chance = dice(f"padding {attention}")
    batch, heads, queries, keys = attention.mask_shape
    count = batch * heads * queries
    rows: List[List[bool]] = []
    for number in range(count):
        # The longest padding, in the last row, is half of the keys.
        padding = (number + 1) * keys // (2 * count)
        seen = [chance.random() < 0.8 for _ in range(keys - padding)]
        # Always allow the key next to the padding, so that a mask that is shifted by one place
        # gives another result.
        if number % 2:
            seen[0] = True
            row = [False] * padding + seen
        else:
            seen[-1] = True
            row = seen + [False] * padding
        rows.append(row)
    return rows


def mask_row_of(attention: CachedAttention, batch: int, head: int, query: int) -> int:
    """The index of the mask row that applies to a query."""
    row = 0
    for index, length in zip((batch, head, query), attention.mask_shape):
        # Along an axis of length 1 the mask is the same for all indices.
        position = index if length > 1 else 0
        row = row * length + position
    return row


def exact_answers(attention: CachedAttention) -> List[float]:
    """The exact result of each query, computed in Python: the weighted mean of the values that its
    mask allows."""
    rows = mask_rows(attention) if attention.differs_along else None
    answers: List[float] = []
    query_heads = attention.heads * attention.groups
    for batch, query_head in product(range(attention.batch), range(query_heads)):
        # Neighbouring query heads share a key head.
        cache = cache_of(attention, batch, query_head // attention.groups)
        for query in range(attention.queries):
            factor = CACHE_SCALE * query_of(query, query_head)
            # No exponent is above 9, so there is no need to subtract the maximum.
            weights = [exp(factor * key) for key in cache.keys]
            if rows is not None:
                row = rows[mask_row_of(attention, batch, query_head, query)]
                weights = products_of_pairs(weights, row)
            total = fsum(products_of_pairs(weights, cache.values))
            answers.append(total / fsum(weights))
    return answers


class CacheTensors(NamedTuple):
    """The queries, keys and values of one attention call on a device."""

    queries: Any
    keys: Any
    values: Any


def cache_tensors(attention: CachedAttention, dtype_name: str, device: str) -> CacheTensors:
    """Make the queries, keys and values of an attention call. Each row is built from one number.

    In queries and keys, the number is in the first column and the other columns are zero. In
    values, the columns contain the number times 1, 2 and 3, in turn.
    """
    batch, heads, width = attention.batch, attention.heads, attention.width
    queries, keys = attention.queries, attention.keys
    query_heads = heads * attention.groups
    query_numbers: List[float] = []
    for _, query_head, query in product(range(batch), range(query_heads), range(queries)):
        query_numbers.append(query_of(query, query_head))
    caches: List[Cache] = []
    for batch_row, head in product(range(batch), range(heads)):
        caches.append(cache_of(attention, batch_row, head))
    key_numbers = joined(cache.keys for cache in caches)
    value_numbers = joined(cache.values for cache in caches)

    # Send only one column and let the device expand it to the width, because Python lists of all
    # columns would take longer than the attention.
    query_column = tensor_of(query_numbers, dtype_name, device, batch, query_heads, queries, 1)
    key_column = tensor_of(key_numbers, dtype_name, device, batch, heads, keys, 1)
    value_column = tensor_of(value_numbers, dtype_name, device, batch, heads, keys, 1)
    one_then_zeros = tensor_of([1.0, *[0.0] * (width - 1)], dtype_name, device)
    value_factors = tensor_of(value_factors_of(width), dtype_name, device)
    return CacheTensors(
        queries=query_column * one_then_zeros,
        keys=key_column * one_then_zeros,
        values=value_column * value_factors,
    )


def cache_masks(attention: CachedAttention, dtype_name: str, device: str) -> Iterator[Any]:
    """Yields the mask as flags, in its own shape, and then as numbers to add to the scores,
    expanded to the full shape. Without a mask, yields None."""
    if not attention.differs_along:
        yield None
        return
    flags = joined(mask_rows(attention))
    yield tensor_of(flags, "bool", device, *attention.mask_shape)
    added = [0.0 if is_allowed else -inf for is_allowed in flags]
    numbers = tensor_of(added, dtype_name, device, *attention.mask_shape)
    query_heads = attention.heads * attention.groups
    yield numbers.expand(attention.batch, query_heads, attention.queries, attention.keys)


def few_queries_and_padding(device: str) -> Iterator[Part]:
    """Catches partial results that are combined without their weights, a missing part or last key,
    and a mask that is taken from another batch row, head or query."""
    for number, attention in enumerate(ATTENTIONS):
        factors = value_factors_of(attention.width)
        exact = joined(scaled(factors, answer) for answer in exact_answers(attention))
        for dtype_name in formats_on(device):
            inputs = cache_tensors(attention, dtype_name, device)
            limit = cache_limit(dtype_name, attention.keys)
            label = f"attention {tuple(attention)} of {dtype_name}"
            for mask in cache_masks(attention, dtype_name, device):
                for backend in backends_for(number):
                    computed = attended_to_cache(attention, inputs, mask, backend)
                    yield near(label, computed, exact, limit)


def cache_limit(dtype_name: str, keys: int) -> Limit:
    """The error allowed here: twice the absolute limit of the other attention tests. The first and
    last values differ by twice the largest value, so an error in their weights moves the mean twice
    as far."""
    limit = attention_limit(dtype_name, keys)
    return Limit(limit.relative, 2 * limit.absolute)


def attended_to_cache(
    attention: CachedAttention, inputs: CacheTensors, mask: Any, backend: Optional[str]
) -> Any:
    """Compute the attention with one backend of torch."""
    return attended(
        *inputs,
        mask=mask,
        causal=False,
        grouped=attention.groups > 1,
        backend=backend,
        scale=CACHE_SCALE,
    )
