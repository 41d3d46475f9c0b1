"""Statistics: spreads, ranks, counts, distances and scales."""

from __future__ import annotations

from typing import Any, Tuple

from . import definitions as by
from .drawing import BUDGET, Draw, Given, given
from .table import Operator


def _lines(d: Draw) -> Given:
    return given(d.normal(d.choice((2, 3, 7, 17)), max(3, d.length(257))))


def _one_sign(d: Draw) -> Given:
    """What is added up grows: a sum that is kept in half precision stands still at some number."""
    dims = d.choice((1, 2, 2, 3))
    return given(d.uniform(0.05, 0.15, *d.shape(dims)), dim=d.choice(range(dims)))


ONE_SIGN: Tuple[Operator, ...] = (
    Operator(
        "sum of one sign",
        _one_sign,
        lambda t, x, dim: (x.sum(dim), x.sum()),
        lambda t, x, dim: (by.added(t, x, dim), by.added(t, x.reshape(-1), 0)),
        weight=2,
        serial=True,
        slack=2,
        roundings=1,
    ),
    Operator(
        "mean of one sign",
        _one_sign,
        lambda t, x, dim: (x.mean(dim), x.mean()),
        lambda t, x, dim: (by.mean(t, x, dim), by.mean(t, x.reshape(-1), 0)),
        weight=2,
        serial=True,
        slack=2,
        roundings=1,
    ),
    Operator(
        "running sum of one sign",
        _one_sign,
        lambda t, x, dim: x.cumsum(dim),
        lambda t, x, dim: by.running(t, x, dim, lambda a, b: a + b),
        serial=True,
        slack=2,
    ),
    Operator(
        "norm of one sign",
        _one_sign,
        lambda t, x, dim: (t.linalg.vector_norm(x, 2, dim), t.linalg.vector_norm(x, 1, dim)),
        lambda t, x, dim: (by.added(t, x * x, dim).sqrt(), by.added(t, x, dim)),
        serial=True,
        slack=2,
        roundings=1,
    ),
)


def _long_lines(d: Draw) -> Given:
    """Lines of one sign, each along an axis of some hundred numbers or more."""
    length = d.length()
    x = d.uniform(0.05, 0.15, min(d.choice((1, 5, 17, 33)), BUDGET[d.size] // length), length)
    dim = d.choice((0, 1))
    return given(x if dim else x.t().contiguous(), dim=dim)


IN_HALF = Operator(
    "long sums in half",
    _long_lines,
    lambda t, x, dim: (x.sum(dim), x.mean(dim), t.linalg.vector_norm(x, dim=dim), x.var(dim)),
    lambda t, x, dim: (
        by.added(t, x, dim),
        by.mean(t, x, dim),
        by.added(t, x * x, dim).sqrt(),
        by.variance(t, x, dim),
    ),
    dtypes=("bfloat16", "float16"),
    sizes=("tile", "block", "long"),
    learns=False,
    slack=4,
    serial=True,
    weight=4,
    roundings=1,
)


def _with_nan(d: Draw) -> Given:
    """About each other line along the axis has a NaN."""
    dims = d.choice((1, 2, 2, 3, 4))
    x = d.normal(*d.shape(dims, 2))
    dim = d.choice(range(dims))
    seldom = d.uniform(0, 1, *x.shape) < 0.7 / x.shape[dim]
    return given(x.masked_fill(seldom, float("nan")), dim=dim)


def _extremes(t: Any, x: Any, dim: int) -> Any:
    missing = by.added(t, (x != x).double(), dim) > 0
    known = t.where(x != x, 0 * t.ones_like(x), x)
    nan = float("nan") * t.ones(missing.shape, dtype=x.dtype)
    high = t.where(missing, nan, by.greatest(t, known, dim))
    low = t.where(missing, nan, by.least(t, known, dim))
    return high, low, high, low


STATISTICS: Tuple[Operator, ...] = (
    Operator(
        "extremes with NaN",
        _with_nan,
        lambda t, x, dim: (x.amax(dim), x.amin(dim), x.max(dim)[0], x.min(dim)[0]),
        _extremes,
        learns=False,
        kept=True,
        weight=2,
    ),
    *ONE_SIGN,
    IN_HALF,
)
