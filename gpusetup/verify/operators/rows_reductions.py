"""Operators that put many elements together: sums, extremes, norms, running sums, softmax."""

from __future__ import annotations

from typing import Any, Callable, Tuple

from . import definitions as by
from .drawing import Draw, Given, given
from .table import WHOLE, Operator


def along(
    low: float = -1.0, high: float = 1.0, least: int = 2, normal: bool = False
) -> Callable[[Draw], Given]:
    """Numbers of one to four dimensions, and an axis."""

    def make(d: Draw) -> Given:
        dims = d.choice((1, 2, 2, 3, 4))
        shape = d.shape(dims, least)
        x = d.normal(*shape) if normal else d.uniform(low, high, *shape)
        return given(x, dim=d.choice(range(dims)))

    return make


def _everything(d: Draw) -> Given:
    return given(d.uniform(-1, 1, *d.shape(d.choice((1, 2, 3)))))


def _apart(d: Draw) -> Given:
    """Whole numbers of which no two are alike; each format holds them exactly."""
    dims = d.choice((1, 2, 3))
    shape = d.shape(dims, 2, share=1)
    return given(d.apart(*shape), dim=d.choice(range(dims)))


def _apart_small(d: Draw) -> Given:
    """As `_apart`, within what half precision holds: up to 256 numbers a line."""
    rows, length = d.length(64), d.length(250)
    lines = d.torch.stack([d.order(length).double() - length // 2 for _ in range(rows)])
    x = d.choice((lines, lines.t().contiguous()))
    return given(x, dim=1 if x is lines else 0)


def _place(t: Any, x: Any, dim: int, joined: Any) -> Any:
    """Where along an axis the element is that was chosen."""
    count = t.arange(x.shape[dim]).reshape([-1 if i == dim else 1 for i in range(x.dim())])
    hit = (x == joined.unsqueeze(dim)).to(t.int64)
    return by.added(t, hit * count, dim)


def _with_places(joined: Callable[..., Any]) -> Callable[..., Any]:
    def run(t: Any, x: Any, dim: int) -> Any:
        found = joined(t, x, dim)
        return found, _place(t, x.detach(), dim, found.detach())

    return run


def _total(t: Any, x: Any) -> Any:
    return by.added(t, x.reshape(-1), 0)


def _average(t: Any, x: Any) -> Any:
    return _total(t, x) / x.numel()


def _wholes(d: Draw) -> Given:
    dims = d.choice((1, 2, 3))
    return given(d.whole(0, 100, *d.shape(dims)).double(), dim=d.choice(range(dims)))


def _cumulated(d: Draw) -> Given:
    dims = d.choice((1, 2, 3))
    return given(d.uniform(-1, 1, *d.shape(dims, 2)), dim=d.choice(range(dims)))


def _half_masked(d: Draw) -> Given:
    made = along(normal=True)(d)
    x, dim = made.tensors[0] * 4, made.options["dim"]
    hidden = d.flags(*x.shape)
    hidden.select(dim, 0).fill_(False)
    return given(x.masked_fill(hidden, float("-inf")), dim=dim)


SUMS: Tuple[Operator, ...] = (
    Operator("sum", along(), lambda t, x, dim: x.sum(dim), by.added, weight=4, roundings=1),
    Operator("sum of all", _everything, lambda t, x: x.sum(), _total, weight=2, roundings=1),
    Operator("mean", along(), lambda t, x, dim: x.mean(dim), by.mean, weight=3, roundings=1),
    Operator("mean of all", _everything, lambda t, x: x.mean(), _average, roundings=1),
    Operator(
        "var", along(), lambda t, x, dim: x.var(dim), by.variance, slack=2, weight=2, roundings=1
    ),
    Operator(
        "norm",
        along(),
        lambda t, x, dim: t.linalg.vector_norm(x, dim=dim),
        lambda t, x, dim: by.added(t, x * x, dim).sqrt(),
        slack=2,
        serial=True,
        weight=3,
        roundings=1,
    ),
    Operator(
        "sum of whole numbers",
        _wholes,
        lambda t, x, dim: x.sum(dim),
        by.added,
        dtypes=WHOLE,
        learns=False,
        weight=2,
    ),
)


def _chosen(*row: Any, **more: Any) -> Operator:
    return Operator(*row, **{"kept": True, **more})


EXTREMES: Tuple[Operator, ...] = (
    _chosen("max", _apart_small, lambda t, x, dim: x.max(dim), _with_places(by.greatest), weight=3),
    _chosen("min", _apart_small, lambda t, x, dim: x.min(dim), _with_places(by.least), weight=2),
    _chosen(
        "argmax",
        _apart,
        lambda t, x, dim: (x.argmax(dim), x.argmin(dim)),
        lambda t, x, dim: (
            _place(t, x, dim, by.greatest(t, x, dim)),
            _place(t, x, dim, by.least(t, x, dim)),
        ),
        dtypes=("float32", "float64", "int64", "int32"),
        learns=False,
        weight=3,
    ),
    _chosen(
        "argmax of all",
        _apart,
        lambda t, x, dim: (x.argmax(), x.max(), x.min(), x.amax(dim), x.amin(dim)),
        lambda t, x, dim: (
            (x.reshape(-1) == x.numel() - 1 - x.numel() // 2).nonzero()[0, 0],
            _total(t, 0 * x) + x.numel() - 1 - x.numel() // 2,
            _total(t, 0 * x) - x.numel() // 2,
            by.greatest(t, x, dim),
            by.least(t, x, dim),
        ),
        dtypes=("float32", "float64", "int64", "int32"),
        learns=False,
        weight=2,
    ),
    _chosen(
        "amax and amin",
        _apart_small,
        lambda t, x, dim: (x.amax(dim), x.amin(dim), t.aminmax(x, dim=dim)[1]),
        lambda t, x, dim: (by.greatest(t, x, dim), by.least(t, x, dim), by.greatest(t, x, dim)),
        learns=False,
    ),
    _chosen(
        "median",
        _apart_small,
        lambda t, x, dim: x.median(dim)[0],
        lambda t, x, dim: _ranked(t, x, dim, (x.shape[dim] - 1) // 2),
        weight=2,
    ),
)


def _ranked(t: Any, x: Any, dim: int, rank: int) -> Any:
    """The element of a rank along an axis, by counting the lesser ones."""
    x = x.movedim(dim, 0)
    below = by.added(t, (x.unsqueeze(0) < x.unsqueeze(1)).to(t.int64), 1)
    return by.added(t, t.where(below == rank, x, 0 * x), 0)


RUNNING: Tuple[Operator, ...] = (
    Operator(
        "cumsum",
        _cumulated,
        lambda t, x, dim: x.cumsum(dim),
        lambda t, x, dim: by.running(t, x, dim, lambda a, b: a + b),
        slack=4,
        weight=3,
    ),
    Operator(
        "cumsum of whole numbers",
        _wholes,
        lambda t, x, dim: x.cumsum(dim),
        lambda t, x, dim: by.running(t, x, dim, lambda a, b: a + b),
        dtypes=("int64", "int32"),
        learns=False,
        weight=2,
    ),
)

SOFTMAX: Tuple[Operator, ...] = (
    Operator(
        "softmax",
        along(normal=True),
        lambda t, x, dim: (x * 3).softmax(dim),
        lambda t, x, dim: by.softmax(t, x * 3, dim),
        slack=8,
        serial=True,
        weight=6,
    ),
    Operator(
        "log_softmax",
        along(normal=True),
        lambda t, x, dim: (x * 3).log_softmax(dim),
        lambda t, x, dim: by.log_softmax(t, x * 3, dim),
        slack=8,
        serial=True,
        weight=4,
    ),
    Operator(
        "softmax of masked",
        _half_masked,
        lambda t, x, dim: x.softmax(dim),
        by.softmax,
        serial=True,
        learns=False,
        slack=8,
        weight=3,
    ),
)

REDUCTIONS = (*SUMS, *EXTREMES, *RUNNING, *SOFTMAX)
