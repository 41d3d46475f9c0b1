"""Reductions over several axes or all, of flags, of whole numbers and of nothing."""

from __future__ import annotations

from typing import Any, Callable, Tuple

from . import definitions as by
from .drawing import Draw, Given, given
from .rows_reductions import along
from .table import ANY, FULL, WHOLE, Operator


def _four(low: float = -1.0, high: float = 1.0) -> Callable[[Draw], Given]:
    """Four axes, and two of them."""

    def make(d: Draw) -> Given:
        dims = d.choice(((0, 1), (0, 2), (1, 3), (2, 3), (-1, 0), (0, 2, 3)))
        return given(d.uniform(low, high, *d.shape(4, 2)), dims=dims)

    return make


def _over(t: Any, x: Any, dims: Any, join: Callable[..., Any] = by.added) -> Any:
    for dim in sorted((dim % 4 for dim in dims), reverse=True):
        x = join(t, x, dim)
    return x


def _counted(x: Any, dims: Any) -> int:
    count = 1
    for dim in dims:
        count *= x.shape[dim]
    return count


def _variance(t: Any, x: Any, dims: Any, less: int = 1) -> Any:
    count = _counted(x, dims)
    mean = _over(t, x, dims) / count
    for dim in sorted(dim % 4 for dim in dims):
        mean = mean.unsqueeze(dim)
    away = x - mean
    return _over(t, away * away, dims) / (count - less)


SEVERAL: Tuple[Operator, ...] = (
    Operator(
        "sum over several",
        _four(),
        lambda t, x, dims: (x.sum(dims), x.sum(dims, keepdim=True).flatten()),
        lambda t, x, dims: (_over(t, x, dims), _over(t, x, dims).flatten()),
        slack=2,
        weight=3,
        roundings=1,
    ),
    Operator(
        "mean over several",
        _four(),
        lambda t, x, dims: x.mean(dims),
        lambda t, x, dims: _over(t, x, dims) / _counted(x, dims),
        weight=3,
        roundings=1,
    ),
    Operator(
        "var over several",
        _four(),
        lambda t, x, dims: (x.var(dims), t.var_mean(x, dims)[1]),
        lambda t, x, dims: (_variance(t, x, dims), _over(t, x, dims) / _counted(x, dims)),
        slack=4,
        weight=2,
        roundings=1,
    ),
    Operator(
        "std of all",
        _four(),
        lambda t, x, dims: (x.std(), x.var(), *t.std_mean(x, dims, unbiased=False)),
        lambda t, x, dims: (
            _variance(t, x, (0, 1, 2, 3)).sqrt(),
            _variance(t, x, (0, 1, 2, 3)),
            _variance(t, x, dims, 0).sqrt(),
            _over(t, x, dims) / _counted(x, dims),
        ),
        slack=8,
        learns=False,
        roundings=1,
    ),
    Operator(
        "amax over several",
        _four(),
        lambda t, x, dims: (x.amax(dims), x.amin(dims)),
        lambda t, x, dims: (_over(t, x, dims, by.greatest), _over(t, x, dims, by.least)),
        learns=False,
        kept=True,
        weight=2,
    ),
    Operator(
        "logsumexp over several",
        _four(-4, 4),
        lambda t, x, dims: x.logsumexp(dims),
        lambda t, x, dims: _over(t, x.exp(), dims).log(),
        slack=8,
    ),
    Operator(
        "norm over several",
        _four(),
        lambda t, x, dims: (
            t.linalg.vector_norm(x, dim=dims),
            t.linalg.vector_norm(x, 3, dim=dims),
            t.linalg.vector_norm(x, 1, dim=dims),
        ),
        lambda t, x, dims: (
            _over(t, x * x, dims).sqrt(),
            _over(t, x.abs() ** 3, dims) ** (1 / 3),
            _over(t, x.abs(), dims),
        ),
        serial=True,
        slack=8,
        learns=False,
        weight=2,
        roundings=1,
    ),
    Operator(
        "norms of odd order",
        along(0.25, 1),
        lambda t, x, dim: (
            t.linalg.vector_norm(x, 0.5, dim=dim),
            t.linalg.vector_norm(x, 0, dim=dim),
            t.linalg.vector_norm(x, float("-inf"), dim=dim),
            x.norm(p=3, dim=dim),
        ),
        lambda t, x, dim: (
            by.added(t, x.sqrt(), dim) ** 2,
            by.added(t, 1 + 0 * x, dim),
            by.least(t, x, dim),
            by.added(t, x * x * x, dim) ** (1 / 3),
        ),
        serial=True,
        learns=False,
        slack=16,
        dtypes=FULL,
    ),
    Operator(
        "norm of all",
        along(),
        lambda t, x, dim: (x.norm(), t.dist(x, x.roll(1, dim)), x.reshape(-1).norm(1)),
        lambda t, x, dim: (
            (x * x).sum().sqrt(),
            ((x - x.roll(1, dim)) ** 2).sum().sqrt(),
            x.abs().sum(),
        ),
        serial=True,
        slack=8,
        weight=2,
        roundings=1,
    ),
    Operator(
        "prod of all",
        lambda d: given(1 + d.uniform(-1, 1, *d.shape(2, 2)) / 2**9),
        lambda t, x: x.prod(),
        lambda t, x: x.log().sum().exp(),
        dtypes=FULL,
        slack=64,
        serial=True,
    ),
    Operator(
        "softmax in the middle",
        lambda d: given(d.normal(*d.shape(4, 2)), dim=d.choice((0, 1, 2))),
        lambda t, x, dim: (x.softmax(dim), t.nn.functional.softmin(x, dim), x.log_softmax(dim)),
        lambda t, x, dim: (
            by.softmax(t, x, dim),
            by.softmax(t, -x, dim),
            by.log_softmax(t, x, dim),
        ),
        slack=8,
        serial=True,
        weight=3,
    ),
    Operator(
        "to float32 summed",
        along(),
        lambda t, x, dim: (x.sum(dim, dtype=t.float64), x.mean(dim, dtype=t.float64)),
        lambda t, x, dim: (by.added(t, x, dim), by.mean(t, x, dim)),
        learns=False,
        weight=2,
    ),
)


def _whole_axis(d: Draw) -> Given:
    dims = d.choice((1, 2, 3))
    return given(d.whole(0, 2, *d.shape(dims)).double(), dim=d.choice(range(dims)))


def _empty(d: Draw) -> Given:
    n = d.length(65)
    shape = d.choice(((0, n), (n, 0), (3, 0, n)))
    return given(d.uniform(-1, 1, *shape), d.normal(n, 3), size=n)


def _of_nothing(t: Any, x: Any, y: Any, size: int) -> Any:
    none = y[:0]
    return (
        x.sum(),
        x.prod(),
        x.sum(0),
        x.sum(-1),
        x.prod(0),
        x.exp().cumsum(0).sum(),
        x.softmax(-1).sum(),
        y[:, :0] @ y[:, :0].t(),
        t.addmm(y[:, :1] + 0 * y[:, :1], y[:, :0], y[:0, :1][:0]),
        t.cat([none, y, none]),
        t.nn.functional.linear(none, y).sum(0),
        y[t.zeros(0, dtype=t.int64, device=y.device)].sum(0),
        x.any().to(y.dtype) + x.all().to(y.dtype),
    )


def _of_nothing_exact(t: Any, x: Any, y: Any, size: int) -> Any:
    def with_no(dim: int, value: float) -> Any:
        shape = [n for i, n in enumerate(x.shape) if i != dim % x.dim()]
        return t.full(shape, value, dtype=x.dtype)

    zero, one = t.zeros((), dtype=x.dtype), t.ones((), dtype=x.dtype)
    return (
        zero,
        one,
        with_no(0, 0.0),
        with_no(-1, 0.0),
        with_no(0, 1.0),
        zero,
        zero,
        t.zeros(size, size, dtype=x.dtype),
        1 * y[:, :1],
        1 * y,
        t.zeros(size, dtype=x.dtype),
        t.zeros(3, dtype=x.dtype),
        one,
    )


FLAGS: Tuple[Operator, ...] = (
    Operator(
        "any and all of all",
        _whole_axis,
        lambda t, x, dim: (x.bool().any(), x.bool().all(), x.bool().sum(dim), x.bool().sum()),
        lambda t, x, dim: (
            x.double().max() > 0,
            x.double().min() > 0,
            by.added(t, x.double(), dim).long(),
            x.double().sum().long(),
        ),
        dtypes=ANY,
        learns=False,
    ),
    Operator(
        "max of whole numbers",
        lambda d: given(d.whole(0, 100, *d.shape(3)).double(), dim=d.choice((0, 1, 2))),
        lambda t, x, dim: (x.amax(dim), x.amin(dim), x.max(), x.min(), x.max(dim)[0]),
        lambda t, x, dim: (
            by.greatest(t, x, dim),
            by.least(t, x, dim),
            _over(t, x.unsqueeze(0), (0, 1, 2, 3), by.greatest),
            _over(t, x.unsqueeze(0), (0, 1, 2, 3), by.least),
            by.greatest(t, x, dim),
        ),
        dtypes=(*WHOLE, "bool", "float32", "bfloat16"),
        learns=False,
        weight=2,
    ),
    Operator(
        "prod of whole numbers",
        lambda d: given(d.whole(1, 3, d.length(13), d.length(65)).double()),
        lambda t, x: x.prod(0),
        lambda t, x: by.multiplied(t, x, 0),
        dtypes=("int64", "int32"),
        learns=False,
    ),
    Operator(
        "of nothing",
        _empty,
        _of_nothing,
        _of_nothing_exact,
        learns=False,
        sizes=("tiny", "warp", "tile"),
    ),
)

OVER_SEVERAL = (*SEVERAL, *FLAGS)
