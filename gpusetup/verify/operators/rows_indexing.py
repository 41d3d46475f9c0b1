"""Lookups, scatters and masks: every bit is known."""

from __future__ import annotations

from typing import Any, Tuple

from . import definitions as by
from .drawing import Draw, Given, given
from .rows_moving import _flat, _numbered, moving
from .table import Operator


def _lookup(d: Draw) -> Given:
    """Indices of rows to look up; some stand twice."""
    rows, width = d.shape(2)
    count = d.length(4097)
    return given(d.whole(0, 100, rows, width).double(), d.whole(0, rows, count))


def _gathered(d: Draw) -> Given:
    x = d.whole(0, 100, *d.shape(3, share=2)).double()
    dim = d.choice((0, 1, 2))
    shape = [
        length if i == dim else max(1, length - d.choice((0, 1)))
        for i, length in enumerate(x.shape)
    ]
    return given(x, d.whole(0, x.shape[dim], *shape), dim=dim)


def _scattered(d: Draw) -> Given:
    """Indices that are distinct along an axis, so that the order of writes does not matter."""
    rows, width = d.shape(2, share=2)
    places = d.torch.stack([d.order(width) for _ in range(min(rows, 300))])
    source = d.whole(0, 100, *places.shape).double()
    target = d.whole(0, 100, *places.shape).double()
    if d.choice((True, False)):
        return given(target.t(), places.t(), source.t(), dim=0)
    return given(target, places, source, dim=1)


def _meeting(d: Draw) -> Given:
    """Many values are added at the same indices; small whole numbers, so that each sum is exact."""
    rows, width = d.length(65), d.choice((1, 3, 16, 33))
    count = d.length(16385)
    return given(
        d.whole(0, 3, rows, width).double(),
        d.whole(0, rows, count),
        d.whole(0, 2, count, width).double(),
    )


def _one_hot(t: Any, places: Any, rows: int) -> Any:
    return (places.unsqueeze(0) == t.arange(rows).unsqueeze(1)).double()


def _met(t: Any, x: Any, places: Any, more: Any) -> Any:
    return x + by.product(t, _one_hot(t, places, x.shape[0]), more)


def _picked(t: Any, x: Any, places: Any, dim: int) -> Any:
    """The definition of gather, computed from strides."""
    shape, strides = x.shape, [1] * x.dim()
    for i in range(x.dim() - 2, -1, -1):
        strides[i] = strides[i + 1] * shape[i + 1]
    at = 0
    for i in range(x.dim()):
        count = t.arange(places.shape[i]).reshape([-1 if j == i else 1 for j in range(x.dim())])
        at = at + (places if i == dim else count) * strides[i]
    return _flat(t, x, at, places.shape)


def _put(t: Any, x: Any, places: Any, source: Any, dim: int) -> Any:
    """For indices that are a permutation of the axis: the source at the inverse permutation."""
    back = (places.argsort(dim)).contiguous()
    return _picked(t, source, back, dim)


def _flagged(d: Draw) -> Given:
    shape = d.shape(2)
    return given(d.whole(0, 100, *shape).double(), d.flags(*shape))


def _counted(t: Any, x: Any) -> Any:
    return (t.arange(x.numel(), device=x.device) % 97).reshape(x.shape)


def _masked(t: Any, x: Any, m: Any) -> Any:
    count = m.reshape(-1).long().cumsum(0).reshape(m.shape) - 1
    return t.where(m, count.clamp(min=0) % 97 + 0 * x.long(), x.long()).to(x.dtype)


def _kept(t: Any, x: Any, flags: Any) -> Any:
    places = [i for i, flag in enumerate(flags.reshape(-1).tolist()) if flag]
    return x.contiguous().reshape(-1)[t.tensor(places, dtype=t.int64)]


SAME_SUMS = ("float32", "float64", "int64", "int32")

INDEXING: Tuple[Operator, ...] = (
    moving(
        "embedding",
        _lookup,
        lambda t, x, i: t.nn.functional.embedding(i, x),
        lambda t, x, i: by.product(t, _one_hot(t, i, x.shape[0]).t(), x),
        dtypes=("float32", "float64"),
        weight=4,
        sizes=("tiny", "warp", "tile"),
    ),
    moving(
        "lookup",
        _lookup,
        lambda t, x, i: (x[i], x.index_select(0, i)),
        lambda t, x, i: (t.stack([x[j] for j in i.tolist()]),) * 2,
        weight=3,
        steady=False,
        sizes=("tiny", "warp", "tile"),
    ),
    moving(
        "gather", _gathered, lambda t, x, i, dim: x.gather(dim, i), _picked, weight=3, steady=False
    ),
    moving("scatter", _scattered, lambda t, x, i, s, dim: x.scatter(dim, i, s), _put, weight=3),
    moving(
        "index_add",
        _meeting,
        lambda t, x, i, s: x.index_add(0, i, s),
        _met,
        dtypes=SAME_SUMS,
        weight=3,
        steady=False,
    ),
    moving(
        "scatter_add",
        _meeting,
        lambda t, x, i, s: x.scatter_add(0, i.unsqueeze(1).expand_as(s), s),
        _met,
        dtypes=SAME_SUMS,
        weight=3,
        steady=False,
    ),
    moving(
        "index_put accumulated",
        _meeting,
        lambda t, x, i, s: x.index_put((i,), s, accumulate=True),
        _met,
        dtypes=SAME_SUMS,
        weight=2,
        steady=False,
    ),
    moving(
        "scatter_reduce",
        _meeting,
        lambda t, x, i, s: t.stack(
            [
                x.scatter_reduce(0, i.unsqueeze(1).expand_as(s), s * 7, "amax"),
                x.scatter_reduce(0, i.unsqueeze(1).expand_as(s), s * 7, "sum"),
            ]
        ),
        lambda t, x, i, s: t.stack([_met_greatest(t, x, i, s * 7), _met(t, x, i, s * 7)]),
        dtypes=SAME_SUMS,
        learns=False,
        sizes=("tiny", "warp", "tile"),
        steady=False,
    ),
    moving(
        "masked_select",
        _flagged,
        lambda t, x, m: (x[m], x.masked_select(m)),
        lambda t, x, m: (_kept(t, x, m),) * 2,
        weight=2,
    ),
    moving(
        "nonzero",
        _flagged,
        lambda t, x, m: m.nonzero()[:, 0] * x.shape[1] + m.nonzero()[:, 1],
        lambda t, x, m: _kept(t, _numbered(t, x), m),
        learns=False,
        weight=2,
    ),
    moving(
        "masked_scatter",
        _flagged,
        lambda t, x, m: x.masked_scatter(m, _counted(t, x).to(x.dtype)),
        _masked,
        learns=False,
        weight=2,
    ),
    moving(
        "bincount",
        lambda d: given(d.whole(0, 100, d.length()).double()),
        lambda t, x: t.bincount(x.long(), minlength=101),
        lambda t, x: t.tensor([int(x.tolist().count(float(i))) for i in range(101)]),
        dtypes=("int64", "int32"),
        learns=False,
    ),
)


def _met_greatest(t: Any, x: Any, places: Any, more: Any) -> Any:
    hit = places.unsqueeze(0) == t.arange(x.shape[0]).unsqueeze(1)
    raised = t.where(hit.unsqueeze(-1), more.unsqueeze(0), -1e9 + 0 * more.unsqueeze(0))
    top = by.greatest(t, raised, 1)
    return t.where(top > x, top, x)
