"""Reading and writing at places of several axes, of a flat line, and by flags, each option by
itself."""

from __future__ import annotations

from math import prod
from typing import Any, Dict, List, Tuple

from .drawing import Draw
from .rows_lookups import COUNTS, MIXED, SUMS, places_of, values
from .single_options import LENGTHS, RANKS, SPREAD, Made, by_each_option, shape_of
from .table import Operator

# --- places of several axes, and flags -----------------------------------------------------------

FORMS = (
    *("one", "a grid", "two", "two that broadcast", "first and last", "last", "flags", "row flags"),
    *("flags of all", "three", "of two axes", "a number and places"),
)


def _looked(d: Draw, form: str, count: str, below: bool, **of: Any) -> Made:
    shape = [d.choice((2, 3, 5)), d.choice((3, 4, 7)), d.choice((2, 3, 4))]
    x = values(d, shape)
    some = {"none": 0, "one": 1, "fewer": 2, "more": 6}[count]
    lines = {
        "one": [0],
        "a grid": [0],
        "of two axes": [0],
        "two": [0, 1],
        "two that broadcast": [0, 1],
        "a number and places": [0, 1],
        "first and last": [0, 2],
        "last": [2],
        "three": [0, 1, 2],
    }.get(form, [])
    sizes: List[Tuple[int, ...]] = [(some,)] * len(lines)
    if form == "a grid":
        sizes = [(some, 2)]
    if form == "two that broadcast":
        sizes = [(some, 1), (1, 3)]
    if form == "a number and places":
        sizes = [(), (some,)]
    at = [
        places_of(d, shape[axis], *size) - (shape[axis] if below else 0)
        for axis, size in zip(lines, sizes)
    ]
    flags = {"flags": shape[:2], "row flags": shape[:1], "flags of all": shape}.get(form)
    if flags:
        at = [d.whole(0, 3, *flags) == 0 if count != "none" else d.whole(0, 1, *flags) > 0]
    places = {} if flags else {n + 1: shape[axis] for n, axis in enumerate(lines)}
    return Made([x, *at], {"lines": lines, **of}, {}, places)


def _key(at: Any, lines: List[int]) -> Any:
    if not lines:
        return tuple(at)
    found: List[Any] = [slice(None)] * (lines[-1] + 1)
    for axis, each in zip(lines, at):
        found[axis] = each
    return tuple(found)


def _put(t: Any, x: Any, *at: Any, lines: List[int], add: bool, value: str, how: str) -> Any:
    key = _key(at, lines)
    if how == "assigned" and not add:
        y = x.clone()
        y[key] = _value(t, x[key], value)
        return y
    listed = [None if isinstance(each, slice) else each for each in key]
    return t.ops.aten.index_put(x, listed, _value(t, x[key], value), add)


def _value(t: Any, like: Any, value: str) -> Any:
    """One number for all, one for each line, or one for each place; for places that meet, where one
    wins, all of them alike."""
    if value == "one":
        return t.full((), 3, dtype=like.dtype, device=like.device)
    shape = like.shape[-1:] if value == "a line" and like.dim() else like.shape
    return (t.arange(prod(shape), device=like.device) % 7 + 1).reshape(shape).to(like.dtype)


LOOKED: Dict[str, Any] = {
    "form": FORMS,
    "count": COUNTS,
    "below": (False, True),
    "spread": SPREAD,
}
SEVERAL: Tuple[Operator, ...] = (
    by_each_option(
        "lookup",
        LOOKED,
        _looked,
        lambda t, x, *at, lines: x[_key(at, lines)],
        dtypes=MIXED,
        steady=False,
        kept=True,
    ),
    by_each_option(
        "adding at places",
        {**LOOKED, "value": ("all", "a line", "one")},
        _looked,
        lambda t, x, *at, lines, value: _put(t, x, *at, lines=lines, value=value, add=True, how=""),
        dtypes=SUMS,
        steady=False,
        learns=False,
        kept=True,
    ),
    by_each_option(
        "writing at places",
        {**LOOKED, "how": ("called", "assigned")},
        _looked,
        lambda t, x, *at, lines, how: _put(t, x, *at, lines=lines, value="one", add=False, how=how),
        dtypes=SUMS,
        learns=False,
        kept=True,
    ),
)


def _line(d: Draw, rank: int, count: str, below: bool, add: bool = False, **_: Any) -> Made:
    x = values(d, shape_of(d, rank))
    length = x.numel()
    some = {"none": (0,), "one": (1,), "fewer": (2, 3), "more": (length + 2,)}[count]
    at = places_of(d, length, *some) if add else d.order(length)[: prod(some)]
    at = at - (length if below else 0)
    return Made([x, at, values(d, at.shape)], {"add": add}, {}, {1: length})


def _take(d: Draw, **of: Any) -> Made:
    return _line(d, add=True, **of)._replace(options={})


def _flagged(d: Draw, rank: int, flags: str, lengths: str, **of: Any) -> Made:
    shape = shape_of(d, rank, lengths)
    inner = {
        "none": shape,
        "all": shape,
        "some": shape,
        "line": shape[-1:],
        "column": (*shape[:-1], 1),
    }
    hit = d.flags(*inner[flags])
    hit = hit & (flags != "none") | (flags == "all")
    source = values(d, (max(1, len(shape)) * 250,))
    return Made([values(d, shape), hit, source], of)


FLAGS: Dict[str, Any] = {
    "rank": RANKS,
    "flags": ("some", "none", "all", "line", "column"),
    "lengths": LENGTHS,
    "spread": SPREAD,
}
FLAT: Tuple[Operator, ...] = (
    by_each_option(
        "take",
        {"rank": RANKS, "count": COUNTS, "below": (False, True), "spread": SPREAD},
        _take,
        lambda t, x, i, s: t.take(x, i) + 0 * s,
        dtypes=SUMS,
        kept=True,
        steady=False,
    ),
    by_each_option(
        "put",
        {
            "rank": RANKS,
            "count": COUNTS,
            "below": (False, True),
            "add": (False, True),
            "spread": SPREAD,
        },
        _line,
        lambda t, x, i, s, add: t.put(x, i, s, accumulate=add),
        dtypes=SUMS,
        kept=True,
        steady=False,
        learns=False,
    ),
    by_each_option(
        "masked_fill",
        {**FLAGS, "value": (5, 0, -2, "tensor")},
        _flagged,
        lambda t, x, m, s, value: t.masked_fill(
            x, m, t.full((), 4, dtype=x.dtype, device=x.device) if value == "tensor" else value
        ),
        dtypes=SUMS,
        learns=False,
        kept=True,
    ),
    by_each_option(
        "masked_select",
        FLAGS,
        _flagged,
        lambda t, x, m, s: t.masked_select(x, m),
        dtypes=MIXED,
        learns=False,
        kept=True,
    ),
    by_each_option(
        "masked_scatter",
        FLAGS,
        _flagged,
        lambda t, x, m, s: t.masked_scatter(x, m, s),
        dtypes=SUMS,
        learns=False,
        kept=True,
    ),
)
KEYED: Tuple[Operator, ...] = (*SEVERAL, *FLAT)
