"""Further orders and searches: of equals, of what is no number, of rows, of lines."""

from __future__ import annotations

from typing import Any, Tuple

from . import definitions as by
from .drawing import Draw, Given, given
from .rows_moving import moving
from .rows_sorting import _mixed, _ordered, _stable_places
from .table import Operator


def _keys(d: Draw) -> Given:
    """Sorted lines, and what is looked for in each."""
    rows, n = d.choice((1, 3, 7)), d.length(129)
    lines = d.whole(0, 250, rows, n).sort(1)[0].double()
    return given(lines, d.whole(0, 251, rows, d.length(1025)).double())


def _odd(d: Draw) -> Given:
    x = d.order(d.length(250)).double()
    hidden = d.flags(*x.shape) & d.flags(*x.shape)
    return given(x.masked_fill(hidden, float("nan")))


def _with_nan(t: Any, x: Any) -> Any:
    known = sorted(each for each in x.tolist() if each == each)
    none = [float("nan")] * (x.numel() - len(known))
    up, down = t.tensor(known + none, dtype=t.float64), t.tensor(none + known[::-1])
    return up, down.double(), down.double()[: max(1, x.numel() // 3)]


ORDERS: Tuple[Operator, ...] = (
    moving(
        "stable sort downwards",
        lambda d: given(d.whole(0, 10, d.length(4097)).double()),
        lambda t, x: (
            t.sort(x, stable=True, descending=True)[1],
            t.argsort(x, stable=True),
        ),
        lambda t, x: (_stable_places(t, x, True), _stable_places(t, x)),
        learns=False,
        weight=2,
    ),
    moving(
        "stable sort of columns",
        lambda d: given(d.whole(0, 5, d.length(257), d.choice((2, 3, 9))).double()),
        lambda t, x: t.sort(x, dim=0, stable=True)[1],
        lambda t, x: t.stack([_stable_places(t, each) for each in x.unbind(1)], 1),
        learns=False,
        weight=2,
    ),
    moving("sort with NaN", _odd, lambda t, x: _sorted_odd(x), _with_nan, learns=False)._replace(
        dtypes=("float32", "float64", "bfloat16", "float16"), weight=2
    ),
    moving(
        "topk of few",
        _mixed,
        lambda t, x, dim: (*x.topk(1, dim), x.topk(x.shape[dim], dim)[0]),
        lambda t, x, dim: (
            *(each.narrow(dim, x.shape[dim] - 1, 1) for each in _ordered(t, x, dim)),
            _ordered(t, x, dim)[0].flip(dim),
        ),
        learns=False,
        weight=2,
    ),
    moving(
        "searchsorted in lines",
        _keys,
        lambda t, x, v: (t.searchsorted(x, v), t.searchsorted(x, v, right=True)),
        lambda t, x, v: (
            by.added(t, (x.unsqueeze(1) < v.unsqueeze(2)).long(), 2),
            by.added(t, (x.unsqueeze(1) <= v.unsqueeze(2)).long(), 2),
        ),
        learns=False,
        dtypes=("float32", "float64", "int64", "int32"),
        weight=2,
    ),
)


def _sorted_odd(x: Any) -> Any:
    return x.sort()[0], x.sort(descending=True)[0], x.topk(max(1, x.numel() // 3))[0]
