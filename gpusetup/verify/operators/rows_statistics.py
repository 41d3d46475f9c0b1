"""Statistics: spreads, ranks, counts, distances and scales."""

from __future__ import annotations

from typing import Any, Tuple

from . import definitions as by
from .drawing import BUDGET, Draw, Given, given
from .rows_reductions import _apart_small, _chosen, _points, along
from .table import FLOATS, FULL, Operator


def _lines(d: Draw) -> Given:
    return given(d.normal(d.choice((2, 3, 7, 17)), max(3, d.length(257))))


def _covered(t: Any, x: Any) -> Any:
    away = x - by.mean(t, x, 1).unsqueeze(1)
    return by.product(t, away, away.t()) / (x.shape[1] - 1)


def _correlated(t: Any, x: Any) -> Any:
    spread = _covered(t, x)
    scale = spread.diagonal().sqrt()
    return spread / scale.unsqueeze(0) / scale.unsqueeze(1)


def _rank(t: Any, x: Any, dim: int, share: float) -> Any:
    """Between two elements of the sorted line."""
    lines = x.sort(dim)[0]
    at = share * (x.shape[dim] - 1)
    low = int(at)
    high = min(low + 1, x.shape[dim] - 1)
    one, other = lines.select(dim, low), lines.select(dim, high)
    return one + (at - low) * (other - one)


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
    Operator("cov", _lines, lambda t, x: t.cov(x), _covered, dtypes=FULL, slack=8),
    Operator("corrcoef", _lines, lambda t, x: t.corrcoef(x), _correlated, dtypes=FULL, slack=64),
    Operator(
        "quantile between",
        _apart_small,
        lambda t, x, dim: (t.quantile(x, 0.5, dim=dim), t.quantile(x, 0.3, dim=dim)),
        lambda t, x, dim: (_rank(t, x, dim, 0.5), _rank(t, x, dim, 0.3)),
        dtypes=FULL,
        learns=False,
        slack=64,
    ),
    Operator(
        "trapezoid",
        along(),
        lambda t, x, dim: (t.trapezoid(x, dim=dim), t.cumulative_trapezoid(x, dim=dim)),
        lambda t, x, dim: (
            by.added(t, x, dim) - (x.select(dim, 0) + x.select(dim, x.shape[dim] - 1)) / 2,
            by.running(t, _middles(x, dim), dim, lambda a, b: a + b),
        ),
        dtypes=FULL,
        slack=16,
        serial=True,
        learns=False,
    ),
    _chosen(
        "mode",
        lambda d: given(_repeated(d), dim=1),
        lambda t, x, dim: x.mode(dim)[0],
        lambda t, x, dim: x[:, 0] * 0 + x.float().median(dim)[0].to(x.dtype),
        learns=False,
    ),
    _chosen(
        "nanmedian",
        _apart_small,
        lambda t, x, dim: x.nanmedian(dim)[0],
        lambda t, x, dim: x.median(dim)[0],
        learns=False,
    ),
    _chosen(
        "extremes kept",
        _apart_small,
        lambda t, x, dim: (
            *x.max(dim, keepdim=True),
            x.argmin(dim, keepdim=True),
            *x.sort(dim)[0].median(dim, keepdim=True),
        ),
        learns=False,
        weight=2,
    ),
    Operator(
        "nanmean",
        along(),
        lambda t, x, dim: t.where(x > 0.9, x * float("nan"), x).nanmean(dim).nan_to_num(0.0),
        lambda t, x, dim: _known_mean(t, x, dim),
        learns=False,
        slack=4,
    ),
    Operator(
        "histc",
        lambda d: given(d.whole(0, 64, d.length()).double() + 0.5),
        lambda t, x: (
            (t.histc(x, 16, 0, 64), t.histogram(x, 8, range=(0.0, 64.0))[0])
            if x.device.type == "cpu"
            else (t.histc(x, 16, 0, 64),) * 2
        ),
        lambda t, x: tuple(
            t.stack([((x / wide).floor() == i).double().sum() for i in range(64 // wide)])
            for wide in (4, 8)
        ),
        dtypes=FULL,
        learns=False,
        kept=True,
        steady=False,
    ),
    Operator(
        "pdist",
        lambda d: given(d.normal(max(2, d.length(65)), d.choice((1, 3, 17)))),
        lambda t, x: t.nn.functional.pdist(x),
        lambda t, x: _pairs(t, x),
        dtypes=FULL,
        learns=False,
        slack=4,
        serial=True,
    ),
    Operator(
        "cdist by orders",
        _points,
        lambda t, x, y: (t.cdist(x, y, p=1.0), t.cdist(x, y, p=float("inf")), t.cdist(x, y, p=3.0)),
        lambda t, x, y: _by_orders(t, x, y),
        dtypes=FULL,
        learns=False,
        slack=8,
        serial=True,
    ),
    Operator(
        "pairwise_distance",
        lambda d: given(*[d.normal(*shape) for shape in [d.shape(2, 2)] for _ in "ab"]),
        lambda t, x, y: t.nn.functional.pairwise_distance(x, y, eps=0.0),
        lambda t, x, y: by.added(t, (x - y) ** 2, 1).sqrt(),
        serial=True,
        slack=8,
        dtypes=FLOATS,
    ),
    Operator(
        "renorm",
        lambda d: given(d.normal(*d.shape(2, 2))),
        lambda t, x: t.renorm(x, 2, 0, 0.5),
        lambda t, x: _renormed(t, x),
        dtypes=FULL,
        slack=8,
        learns=False,
        serial=True,
    ),
    Operator(
        "normalize",
        lambda d: given(d.normal(*d.shape(2, 2)), dim=d.choice((0, 1))),
        lambda t, x, dim: t.nn.functional.normalize(x, dim=dim),
        lambda t, x, dim: x / by.added(t, x * x, dim).sqrt().unsqueeze(dim),
        serial=True,
        slack=8,
        weight=2,
    ),
    Operator(
        "cummax with places",
        _apart_small,
        lambda t, x, dim: (*x.cummax(dim), *x.cummin(dim)),
        kept=True,
        learns=False,
    ),
    Operator(
        "cumsum to float64",
        along(-2, 2),
        lambda t, x, dim: (x.cumsum(dim, dtype=t.float64), x.nansum(dtype=t.float64)),
        lambda t, x, dim: (by.running(t, x, dim, lambda a, b: a + b), x.sum()),
        learns=False,
        slack=4,
    ),
)


def _middles(x: Any, dim: int) -> Any:
    n = x.shape[dim]
    return (x.narrow(dim, 1, n - 1) + x.narrow(dim, 0, n - 1)) / 2


def _repeated(d: Draw) -> Any:
    """Lines of which more than half is one number."""
    rows, n = d.length(64), d.length(250)
    x = d.whole(0, 9, rows, n).double()
    often = d.torch.rand(rows, n, generator=d.made).argsort(1) < n // 2 + 1
    return d.torch.where(often, d.torch.full((rows, 1), 4.0, dtype=x.dtype), x)


def _known_mean(t: Any, x: Any, dim: int) -> Any:
    known = (x <= 0.9).to(x.dtype)
    return by.added(t, x * known, dim) / by.added(t, known, dim).clamp(min=1)


def _pairs(t: Any, x: Any) -> Any:
    apart = by.added(t, (x.unsqueeze(0) - x.unsqueeze(1)) ** 2, 2).sqrt()
    first, second = t.triu_indices(len(x), len(x), 1)
    return apart[first, second]


def _by_orders(t: Any, x: Any, y: Any) -> Any:
    away = (x.unsqueeze(1) - y.unsqueeze(0)).abs()
    return by.added(t, away, 2), by.greatest(t, away, 2), by.added(t, away**3, 2) ** (1 / 3)


def _renormed(t: Any, x: Any) -> Any:
    norms = by.added(t, x * x, 1).sqrt()
    return x * t.where(norms > 0.5, 0.5 / (norms + 1e-7), 1 + 0 * norms).unsqueeze(1)
