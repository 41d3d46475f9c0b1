"""Further lookups, scatters, masks, and tables of words."""

from __future__ import annotations

from typing import Any, Tuple

from . import definitions as by
from .drawing import Draw, Given, given
from .rows_indexing import SAME_SUMS, _flagged, _meeting, _met, _met_greatest, _one_hot
from .rows_moving import moving
from .rows_parts import PARTS, spread
from .rows_sorting import _mixed, _ordered
from .table import FULL, Operator


def _grid(d: Draw) -> Given:
    """A tensor of three axes and places along each."""
    x = d.whole(0, 100, *d.shape(3, 2)).double()
    count = d.choice((1, 5, 33))
    return given(x, *(d.whole(-n, n, count) for n in x.shape))


def _at(t: Any, x: Any, i: Any, j: Any, k: Any) -> Any:
    a, b, c = x.shape
    return x.contiguous().reshape(-1)[((i % a) * b + j % b) * c + k % c]


def _turned(d: Draw) -> Given:
    """A place for each element of a smaller tensor, each at most once."""
    rows, width = d.shape(2, 2)
    x = d.whole(0, 100, rows, width).double()
    count = max(1, rows * width // 2)
    return given(x, d.order(rows * width)[:count], d.whole(0, 100, count).double())


def _put(t: Any, x: Any, i: Any, s: Any) -> Any:
    line = x.contiguous().reshape(-1)
    from_where = t.full(line.shape, -1, dtype=t.int64)
    from_where[i] = t.arange(len(i))
    return t.where(from_where >= 0, s[from_where.clamp(min=0)], line).reshape(x.shape)


def _hit(t: Any, x: Any, i: Any) -> Any:
    return _one_hot(t, i, x.shape[0]).sum(1, keepdim=True)


def _met_least(t: Any, x: Any, i: Any, s: Any) -> Any:
    return -_met_greatest(t, -x, i, -s)


def _alone(t: Any, x: Any, i: Any, s: Any) -> Any:
    """The greatest of those that meet; where none does, what was there."""
    return t.where(_hit(t, x, i) > 0, _met_greatest(t, 0 * x - 1e6, i, s), x)


def _masked(t: Any, x: Any, m: Any) -> Any:
    count = m.reshape(-1).long().cumsum(0).reshape(m.shape) - 1
    return t.where(m, count.clamp(min=0) % 97 + 0 * x.long(), x.long()).to(x.dtype)


PLACES: Tuple[Operator, ...] = (
    moving("lookup of three", _grid, lambda t, x, i, j, k: x[i, j, k], _at, weight=3, steady=False),
    moving(
        "lookup between slices",
        _grid,
        lambda t, x, i, j, k: x[:, j],
        lambda t, x, i, j, k: t.stack([x[:, n] for n in j.tolist()], 1),
        weight=2,
        steady=False,
    ),
    moving(
        "lookup of outer two",
        _grid,
        lambda t, x, i, j, k: x[i, :, k],
        lambda t, x, i, j, k: t.stack([x[a, :, c] for a, c in zip(i.tolist(), k.tolist())]),
        learns=False,
        weight=2,
    ),
    moving(
        "lookup by a grid",
        _grid,
        lambda t, x, i, j, k: x[i.unsqueeze(1), j],
        lambda t, x, i, j, k: t.stack([t.stack([x[a, b] for b in j.tolist()]) for a in i.tolist()]),
        learns=False,
        sizes=("tiny", "warp"),
    ),
    moving(
        "take_along_dim",
        _mixed,
        lambda t, x, dim: t.take_along_dim(x, x.argsort(dim, descending=True), dim),
        lambda t, x, dim: _ordered(t, x, dim)[0].flip(dim),
        learns=False,
    ),
    moving(
        "put", _turned, lambda t, x, i, s: x.contiguous().put(i, s), _put, learns=False, weight=2
    ),
    moving(
        "index_put at places",
        _grid,
        lambda t, x, i, j, k: x.index_put((i, j, k), x.new_full((), 111)),
        lambda t, x, i, j, k: _written_at(t, x, i, j, k),
        learns=False,
        weight=2,
    ),
    moving(
        "index_add along columns",
        _meeting,
        lambda t, x, i, s: x.t().index_add(1, i, s.t(), alpha=2),
        lambda t, x, i, s: (_met(t, x, i, 2 * s)).t(),
        dtypes=SAME_SUMS,
        weight=2,
        steady=False,
    ),
    moving(
        "scatter_add of a line",
        _meeting,
        lambda t, x, i, s: x[:, 0].scatter_add(0, i, s[:, 0]),
        lambda t, x, i, s: _met(t, x, i, s)[:, 0],
        dtypes=SAME_SUMS,
        weight=2,
        steady=False,
    ),
    moving(
        "scatter with sums",
        _meeting,
        lambda t, x, i, s: (
            x.scatter(0, spread(i, s), s, reduce="add"),
            x.scatter_reduce(0, spread(i, s), s, "sum", include_self=False),
        ),
        lambda t, x, i, s: (
            _met(t, x, i, s),
            t.where(_hit(t, x, i) > 0, _met(t, 0 * x, i, s), x),
        ),
        dtypes=SAME_SUMS,
        learns=False,
        steady=False,
    ),
    moving(
        "scatter_reduce alone",
        _meeting,
        lambda t, x, i, s: (
            x.scatter_reduce(0, spread(i, s), s * 7, "amax", include_self=False),
            x.scatter_reduce(0, spread(i, s), s - 5, "amin"),
            x.index_reduce(0, i, s * 7, "amax"),
            x.index_reduce(0, i, s - 5, "amin"),
        ),
        lambda t, x, i, s: (
            _alone(t, x, i, s * 7),
            _met_least(t, x, i, s - 5),
            _met_greatest(t, x, i, s * 7),
            _met_least(t, x, i, s - 5),
        ),
        dtypes=("float32", "float64", "int64"),
        learns=False,
        sizes=("tiny", "warp", "tile"),
        steady=False,
    ),
    Operator(
        "scatter_reduce to means",
        _meeting,
        lambda t, x, i, s: (
            x.scatter_reduce(0, spread(i, s), s, "mean"),
            x.index_reduce(0, i, s, "mean", include_self=True),
            x.scatter_reduce(0, spread(i, s), 1 + s * 0, "prod"),
        ),
        lambda t, x, i, s: (*[_met(t, x, i, s) / (1 + _hit(t, x, i))] * 2, 1 * x),
        dtypes=FULL,
        learns=False,
        sizes=("tiny", "warp", "tile"),
        steady=False,
        slack=4,
    ),
    moving(
        "masked_scatter",
        _flagged,
        lambda t, x, m: x.masked_scatter(
            m, (t.arange(x.numel(), device=x.device) % 97).to(x.dtype).reshape(x.shape)
        ),
        _masked,
        learns=False,
        weight=2,
    ),
    moving(
        "mask of rows",
        _flagged,
        lambda t, x, m: (x[m[:, 0]], x.masked_fill(m[:1], 7), x.masked_fill(m[:, :1], 5)),
        lambda t, x, m: (
            t.stack([*[x[i] for i, f in enumerate(m[:, 0].tolist()) if f], x[0]])[:-1],
            t.where(m[:1], 7 + 0 * x, x),
            t.where(m[:, :1], 5 + 0 * x, x),
        ),
        learns=False,
        weight=2,
    ),
    moving(
        "places of flags",
        _flagged,
        lambda t, x, m: (m.nonzero(), t.argwhere(m), m.flatten().nonzero(as_tuple=True)[0]),
        lambda t, x, m: _found(t, m),
        learns=False,
    ),
    moving(
        "bincount by weights",
        lambda d: given(d.whole(0, 33, d.length()), d.whole(0, 9, d.length()).double()),
        lambda t, i, w: t.bincount(i, w.repeat(len(i) // len(w) + 1)[: len(i)], 40),
        lambda t, i, w: by.added(
            t, _one_hot(t, i, 40) * w.repeat(len(i) // len(w) + 1)[: len(i)], 1
        ),
        dtypes=FULL,
        learns=False,
        steady=False,
    ),
)


def _found(t: Any, m: Any) -> Any:
    flat = t.tensor([i for i, f in enumerate(m.reshape(-1).tolist()) if f], dtype=t.int64)
    both = t.stack([flat // m.shape[1], flat % m.shape[1]], 1)
    return both, both, flat


def _written_at(t: Any, x: Any, i: Any, j: Any, k: Any) -> Any:
    a, b, c = x.shape
    at = ((i % a) * b + j % b) * c + k % c
    hit = (t.arange(x.numel()).unsqueeze(1) == at).any(1) if x.numel() < 4096 else None
    if hit is None:
        hit = t.tensor([n in set(at.tolist()) for n in range(x.numel())])
    return t.where(hit.reshape(x.shape), 111 + 0 * x, x)


def _bags(d: Draw) -> Given:
    """A table, words, where each bag begins (the second is empty), and a weight for each word."""
    rows, width = d.shape(2, 2)
    count = d.choice((9, 33, 130))
    starts = d.torch.tensor([0, 4, 4, count // 2])
    return given(d.normal(rows, width), d.whole(0, rows, count), starts, d.uniform(0.5, 2, count))


def _cut(t: Any, starts: Any, count: int) -> Any:
    ends = [*starts.tolist()[1:], count]
    return list(zip(starts.tolist(), ends))


def _bag_sums(t: Any, x: Any, i: Any, starts: Any, w: Any) -> Any:
    words = x[i] * w.unsqueeze(1)
    return t.stack([words[a:b].sum(0) for a, b in _cut(t, starts, len(i))])


def _bag_extremes(t: Any, x: Any, i: Any, starts: Any, w: Any) -> Any:
    words, plain = x[i], []
    for a, b in _cut(t, starts, len(i)):
        plain.append(by.greatest(t, words[a:b], 0) if b > a else 0 * x[0])
    means = [words[a:b].sum(0) / max(1, b - a) for a, b in _cut(t, starts, len(i))]
    return t.stack(plain), t.stack(means)


def _bag(t: Any, x: Any, i: Any, starts: Any, mode: str, w: Any = None) -> Any:
    return t.nn.functional.embedding_bag(i, x, starts, mode=mode, per_sample_weights=w)


def _words(d: Draw) -> Given:
    rows, width = d.shape(2, 2)
    return given(d.normal(rows, width), d.whole(0, rows, d.length(1025)))


TABLES: Tuple[Operator, ...] = (
    Operator(
        "embedding_bag with weights",
        _bags,
        lambda t, x, i, starts, w: _bag(t, x, i, starts, "sum", w),
        _bag_sums,
        dtypes=FULL,
        slack=8,
        weight=2,
        sizes=("tiny", "warp", "tile"),
        steady=False,
    ),
    Operator(
        "embedding_bag by mode",
        _bags,
        lambda t, x, i, starts, w: (
            _bag(t, x, i, starts, "max"),
            _bag(t, x, i, starts, "mean"),
        ),
        _bag_extremes,
        dtypes=FULL,
        slack=8,
        weight=2,
        sizes=("tiny", "warp", "tile"),
        steady=False,
    ),
    Operator(
        "embedding in half",
        _words,
        lambda t, x, i: t.nn.functional.embedding(i, x),
        lambda t, x, i: by.product(t, _one_hot(t, i, x.shape[0]).t(), x),
        slack=32,
        weight=2,
        sizes=("tiny", "warp", "tile"),
        steady=False,
    ),
    Operator(
        "embedding of short rows",
        _words,
        lambda t, x, i: t.nn.functional.embedding(i, x.clone(), max_norm=1.0),
        lambda t, x, i: _shortened(t, x, i),
        dtypes=FULL,
        learns=False,
        serial=True,
        slack=16,
        sizes=("tiny", "warp", "tile"),
    ),
)


def _shortened(t: Any, x: Any, i: Any) -> Any:
    picked = x[i]
    norms = by.added(t, picked * picked, 1).sqrt().unsqueeze(1)
    return picked * t.where(norms > 1, 1 / (norms + 1e-7), 1 + 0 * norms)


INDEXED = (*PLACES, *PARTS, *TABLES)
