"""Sorting, choosing and searching: the numbers are made so that the order is known."""

from __future__ import annotations

from typing import Any, Tuple

from . import definitions as by
from .drawing import Draw, Given, given
from .rows_indexing import _picked
from .rows_moving import moving
from .table import Operator


def _mixed(d: Draw) -> Given:
    """Lines in which no two numbers are alike, and small enough for each format."""
    rows, count = d.length(33), d.length(250)
    lines = d.torch.stack([d.order(count) for _ in range(rows)]).double()
    turned = d.choice((False, True))
    return given(lines.t().contiguous() if turned else lines, dim=0 if turned else 1)


def _long_mixed(d: Draw) -> Given:
    return given(d.order(d.length()).double(), dim=0)


def _ordered(t: Any, x: Any, dim: int) -> Any:
    """The sorted line and its places: of a mixed range, by definition."""
    counts = t.arange(x.shape[dim]).reshape([-1 if i == dim else 1 for i in range(x.dim())])
    places = t.zeros(x.shape, dtype=t.int64).scatter(dim, x.detach().long(), counts.expand(x.shape))
    return _picked(t, x, places, dim), places


def _stable(d: Draw) -> Given:
    return given(d.whole(0, 10, d.length(4097)).double())


def _stable_places(t: Any, x: Any, descending: bool = False) -> Any:
    """The order of a line in which equals stay as they were."""
    keys, sign = x.tolist(), -1 if descending else 1
    return t.tensor(sorted(range(len(keys)), key=lambda i: sign * keys[i]), dtype=t.int64)


def _topped(t: Any, x: Any, dim: int, largest: bool = True) -> Any:
    values, places = _ordered(t, x, dim)
    k = max(1, x.shape[dim] // 3)
    if largest:
        values, places = values.flip(dim), places.flip(dim)
    return values.narrow(dim, 0, k), places.narrow(dim, 0, k)


def _bounds(d: Draw) -> Given:
    return given(
        d.order(d.length(60)).sort()[0].double() * 2, d.whole(0, 121, d.length(4097)).double()
    )


BIG = ("float32", "float64", "int64", "int32")

SORTING: Tuple[Operator, ...] = (
    moving("sort", _mixed, lambda t, x, dim: x.sort(dim), _ordered, weight=3),
    moving(
        "sort of long", _long_mixed, lambda t, x, dim: x.sort(dim), _ordered, dtypes=BIG, weight=3
    ),
    moving(
        "sort downwards",
        _mixed,
        lambda t, x, dim: x.sort(dim, descending=True),
        lambda t, x, dim: tuple(each.flip(dim) for each in _ordered(t, x, dim)),
    ),
    moving(
        "argsort",
        _long_mixed,
        lambda t, x, dim: x.argsort(dim),
        lambda t, x, dim: _ordered(t, x, dim)[1],
        dtypes=BIG,
        learns=False,
    ),
    moving(
        "stable sort",
        _stable,
        lambda t, x: t.sort(x, stable=True)[1],
        _stable_places,
        learns=False,
        weight=2,
    ),
    moving(
        "topk", _mixed, lambda t, x, dim: x.topk(max(1, x.shape[dim] // 3), dim), _topped, weight=4
    ),
    moving(
        "topk of long",
        _long_mixed,
        lambda t, x, dim: x.topk(max(1, x.shape[dim] // 3), dim),
        _topped,
        dtypes=BIG,
        weight=3,
    ),
    moving(
        "topk of least",
        _mixed,
        lambda t, x, dim: x.topk(max(1, x.shape[dim] // 3), dim, largest=False),
        lambda t, x, dim: _topped(t, x, dim, False),
        weight=2,
    ),
    moving(
        "unique",
        _stable,
        lambda t, x: t.unique(x, return_counts=True),
        lambda t, x: _uniques(t, x),
        learns=False,
        weight=2,
    ),
    moving(
        "searchsorted",
        _bounds,
        lambda t, x, v: (t.searchsorted(x, v), t.bucketize(v, x, right=True)),
        lambda t, x, v: (
            by.added(t, (x.unsqueeze(0) < v.unsqueeze(1)).long(), 1),
            by.added(t, (x.unsqueeze(0) <= v.unsqueeze(1)).long(), 1),
        ),
        learns=False,
        dtypes=("float32", "float64", "int64"),
    ),
)


def _uniques(t: Any, x: Any) -> Any:
    keys = x.tolist()
    found = sorted(set(keys))
    return t.tensor(found, dtype=x.dtype), t.tensor([keys.count(each) for each in found])
