"""Spreads, norms, running sums and softmax with each of their options, along every axis."""

from __future__ import annotations

from math import inf
from typing import Any, Callable, Dict, List, Tuple

from . import definitions as by
from .drawing import Draw
from .reducing import NUMBERED, OVER, over, wider
from .single_options import LENGTHS, RANKS, SINGLE, SPREAD, Made, axes_of, by_each_option, shape_of
from .table import FLOATS, FULL, Operator


def _far(d: Draw, shape: Any) -> Any:
    return d.normal(*shape) + 0.5


def _away(d: Draw, shape: Any) -> Any:
    return d.uniform(0.5, 1.5, *shape) * (d.whole(0, 2, *shape) * 2 - 1)


# --- spreads -------------------------------------------------------------------------------------

LESS: Dict[str, Any] = {
    **OVER,
    "spread": SPREAD[:1],
    "less": (1, 0, 2, True, False, None),
}
"""What is taken off the count: as `correction`, or as `unbiased`."""


def _options(o: Any, less: Any) -> Dict[str, Any]:
    if isinstance(less, bool):
        return {**o, "unbiased": less}
    return {**o, "dim": o.get("dim"), "correction": less}


def _spread(name: str) -> Operator:
    def run(t: Any, x: Any, o: Any, less: Any) -> Any:
        found = getattr(t, name)(x, **_options(o, less))
        return tuple(found) if isinstance(found, tuple) else found

    def exact(t: Any, x: Any, less: Any) -> Any:
        spread = by.variance(t, x, -1, 1 if less is None else int(less))
        spread = spread.sqrt() if name.startswith("std") else spread
        return (spread, by.mean(t, x, -1)) if name.endswith("mean") else spread

    return over(name, run, exact, _far, LESS, False, 4, 1, slack=8)


SPREADS = tuple(map(_spread, ("var", "std", "var_mean", "std_mean")))

# --- norms ---------------------------------------------------------------------------------------

POWERS = (2, 1, 3, 0, 0.5, inf, -inf, -1)


def norm(t: Any, x: Any, p: float) -> Any:
    """Of the numbers along the last axis, by its definition."""
    size = x.abs()
    if p == inf:
        return by.greatest(t, size, -1)
    if p == -inf:
        return by.least(t, size, -1)
    if p == 0:
        return by.added(t, (x != 0).double(), -1) + 0 * by.added(t, x, -1)
    return by.added(t, size**p, -1) ** (1 / p)


WIDE = {"wide": (False, True)}
POWERED = {**OVER, **WIDE, "p": POWERS}
LENGTH: Tuple[Operator, ...] = (
    over(
        "vector_norm",
        lambda t, x, o, p: t.linalg.vector_norm(x, p, **o),
        norm,
        _away,
        POWERED,
        False,
        slack=8,
        serial=True,
        learns=False,
    ),
    over(
        "vector_norm back",
        lambda t, x, o, p: t.linalg.vector_norm(x, p, **o),
        norm,
        _away,
        {**OVER, "p": (2, 1, 3)},
        False,
        slack=8,
        serial=True,
        dtypes=FULL,
    ),
    over(
        "vector_norm of nothing too",
        lambda t, x, o, p: t.linalg.vector_norm(x, p, **o),
        norm,
        _away,
        {**OVER, "p": (2, 1, 0, 3)},
        slack=8,
        serial=True,
        learns=False,
        dtypes=FULL,
    ),
    over(
        "norm",
        lambda t, x, o, p: t.norm(x, p, **o),
        norm,
        _away,
        {**POWERED, "p": (2, 1, 3, 0, inf, -inf)},
        False,
        slack=8,
        serial=True,
        learns=False,
    ),
)


def _distant(d: Draw, p: float, rank: int, alike: bool, **_: Any) -> Made:
    shape = shape_of(d, rank)
    return Made([_away(d, shape) + 3, _away(d, shape if alike else shape[1:])], {"p": p})


def _renormed(d: Draw, dims: str, rank: int, p: float, most: float, **_: Any) -> Made:
    rank = max(2, rank)
    given, names = axes_of(d, dims, rank)
    x = _away(d, shape_of(d, rank))
    options = {"dim": given, "p": p, "most": most}
    return Made([x], options, {"dim": names[0]})


def _renorm(t: Any, x: Any, p: float, dim: int, most: float) -> Any:
    lines = x.movedim(dim, 0).reshape(x.shape[dim], -1)
    size = norm(t, lines, p).unsqueeze(1)
    scale = t.where(size > most, most / (size + 1e-7), 1 + 0 * size)
    return (lines * scale).reshape(x.movedim(dim, 0).shape).movedim(0, dim)


def _two_alike(d: Draw, dims: str, rank: int, thin: bool, **of: Any) -> Made:
    rank = max(1, rank)
    given, names = axes_of(d, dims, rank)
    shape = shape_of(d, rank)
    other = [1 if i not in names and thin else n for i, n in enumerate(shape)]
    return Made([_away(d, shape), _away(d, other)], {"dim": given, **of}, {"dim": names[0]})


def _similar(t: Any, x: Any, y: Any, dim: int, eps: float) -> Any:
    both = by.added(t, x * y, dim)
    sizes = [by.added(t, each * each, dim).sqrt() for each in (x, y)]
    return both / (sizes[0].clamp(min=eps) * sizes[1].clamp(min=eps))


DISTANCES: Tuple[Operator, ...] = (
    by_each_option(
        "dist",
        {"p": (2, 1, 0, 3, inf, -inf), "rank": RANKS, "alike": (True, False), "spread": SPREAD},
        _distant,
        lambda t, x, y, p: t.dist(x, y, p),
        lambda t, x, y, p: norm(t, (x - y).reshape(-1), p),
        slack=8,
        serial=True,
        learns=False,
    ),
    by_each_option(
        "renorm",
        {"dims": SINGLE, "rank": RANKS, "p": (2, 1, 3), "most": (1.5, 0.1, 40.0)},
        _renormed,
        lambda t, x, p, dim, most: t.renorm(x, p, dim, most),
        _renorm,
        slack=8,
        serial=True,
        learns=False,
        dtypes=FULL,
    ),
    by_each_option(
        "cosine_similarity",
        {
            "dims": SINGLE,
            "rank": RANKS,
            "eps": (1e-8, 0.9, 2.0),
            "thin": (False, True),
            "spread": SPREAD,
        },
        _two_alike,
        lambda t, x, y, dim, eps: t.nn.functional.cosine_similarity(x, y, dim, eps),
        _similar,
        slack=8,
        learns=False,
    ),
    by_each_option(
        "vecdot",
        {"dims": SINGLE, "rank": RANKS, "thin": (False, True), "spread": SPREAD},
        _two_alike,
        lambda t, x, y, dim: t.linalg.vecdot(x, y, dim=dim),
        lambda t, x, y, dim: by.added(t, x * y, dim),
        arithmetic="product",
        slack=8,
    ),
)

# --- running sums --------------------------------------------------------------------------------

RUN: Dict[str, Any] = {
    "dims": SINGLE,
    "rank": RANKS,
    "lengths": LENGTHS,
    "spread": SPREAD,
}


def _along(numbers: Callable[..., Any], ranks: int = 0, least: int = 1) -> Callable[..., Made]:
    def make(d: Draw, dims: str, rank: int, lengths: str = "usual", **of: Any) -> Made:
        rank = max(ranks, rank)
        given, names = axes_of(d, dims, rank)
        shape = shape_of(d, rank, lengths, least)
        return Made([numbers(d, shape)], {"dim": given, **of}, {"dim": names[0] if names else 0})

    return make


def _ran(t: Any, x: Any, dim: int, join: Callable[..., Any]) -> Any:
    return by.running(t, x, dim, join) if x.dim() else 1 * x


def _wide(t: Any, x: Any, wide: bool) -> Dict[str, Any]:
    return {"dtype": wider(t, x)} if wide else {}


def _marked(t: Any, x: Any, dim: int, most: bool) -> Any:
    """The running extreme and where it stands: at the last of its like."""
    found = _ran(t, x, dim, t.maximum if most else t.minimum)
    if not x.dim():
        return found, t.zeros((), dtype=t.int64)
    places = t.arange(x.shape[dim]).reshape([-1] + [1] * (x.dim() - 1)).movedim(0, dim)
    at = t.where(x == found, places + 0 * x, -1 + 0 * x)
    return found, _ran(t, at, dim, t.maximum)


def _softer(t: Any, x: Any, dim: int, kind: str) -> Any:
    x = -x if kind == "softmin" else x
    return (by.log_softmax if kind == "log_softmax" else by.softmax)(t, x, dim)


def _whole(d: Draw, shape: Any) -> Any:
    return d.whole(-4, 5, *shape).double()


def _apart(d: Draw, shape: Any) -> Any:
    return d.apart(*shape)


def _near_one(d: Draw, shape: Any) -> Any:
    """So near that the product of 65 times the same has a place in float16, and its slope too."""
    return d.uniform(0.93, 1.07, *shape)


RUNNING: Tuple[Operator, ...] = (
    by_each_option(
        "cumsum",
        {**RUN, "wide": (False, True)},
        _along(_whole),
        lambda t, x, dim, wide: t.cumsum(x, dim, **_wide(t, x, wide)),
        lambda t, x, dim, wide: _ran(t, x, dim, lambda a, b: a + b),
        dtypes=(*FLOATS, "int64", "int32"),
        slack=4,
    ),
    by_each_option(
        "cumprod",
        {**RUN, "wide": (False, True)},
        _along(_near_one),
        lambda t, x, dim, wide: t.cumprod(x, dim, **_wide(t, x, wide)),
        lambda t, x, dim, wide: _ran(t, x, dim, lambda a, b: a * b),
        slack=16,
    ),
    by_each_option(
        "logcumsumexp",
        RUN,
        _along(_whole),
        lambda t, x, dim: t.logcumsumexp(x, dim),
        lambda t, x, dim: _ran(t, x.exp(), dim, lambda a, b: a + b).log(),
        slack=8,
        dtypes=FULL,
    ),
    by_each_option(
        "cummax and cummin",
        RUN,
        _along(_whole),
        lambda t, x, dim: (*t.cummax(x, dim), *t.cummin(x, dim)),
        lambda t, x, dim: (*_marked(t, x, dim, True), *_marked(t, x, dim, False)),
        learns=False,
        dtypes=NUMBERED,
    ),
    *(
        by_each_option(
            kind,
            {"dims": SINGLE, "rank": RANKS[:-1], "wide": (False, True)},
            _along(_whole, 1, 2),
            lambda t, x, dim, wide, kind=kind: getattr(t.nn.functional, kind)(
                x, dim, **_wide(t, x, wide)
            ),
            lambda t, x, dim, wide, kind=kind: _softer(t, x, dim, kind),
            slack=8,
        )
        for kind in ("softmax", "log_softmax", "softmin")
    ),
)

# --- differences and areas -----------------------------------------------------------------------


def _ended(d: Draw, dims: str, rank: int, n: int, before: int, after: int, **_: Any) -> Made:
    rank = max(1, rank)
    given, names = axes_of(d, dims, rank)
    shape = list(shape_of(d, rank))
    shape[names[0]] = max(shape[names[0]], n)
    tensors = [_whole(d, shape)]
    for more in (before, after):
        if more:
            tensors.append(_whole(d, [more if i in names else m for i, m in enumerate(shape)]))
    options = {"dim": given, "n": n, "before": before > 0, "after": after > 0}
    return Made(tensors, options, {"dim": names[0]})


def _diff(t: Any, x: Any, *ends: Any, dim: int, n: int, before: bool, after: bool) -> Any:
    options = {}
    if before:
        options["prepend"] = ends[0]
    if after:
        options["append"] = ends[-1]
    return t.diff(x, n, dim, **options)


def _diff_exact(t: Any, x: Any, *ends: Any, dim: int, n: int, before: bool, after: bool) -> Any:
    parts = [*([ends[0]] if before else []), x, *([ends[-1]] if after else [])]
    whole = t.cat(parts, dim)
    for _ in range(n):
        whole = whole.narrow(dim, 1, whole.shape[dim] - 1) - whole.narrow(
            dim, 0, whole.shape[dim] - 1
        )
    return whole


def _spaced(d: Draw, dims: str, rank: int, space: Any, **_: Any) -> Made:
    rank = max(1, rank)
    given, names = axes_of(d, dims, rank)
    shape = list(shape_of(d, rank))
    shape[names[0]] = max(shape[names[0]], 2)
    tensors = [_whole(d, shape)]
    if space == "line":
        tensors.append(d.uniform(0.5, 1.5, shape[names[0]]).cumsum(0))
    options = {"dim": given, "space": None if space == "line" else space}
    return Made(tensors, options, {"dim": names[0]})


def _area(t: Any, y: Any, *at: Any, dim: int, space: Any) -> List[Any]:
    if at:
        return [t.trapezoid(y, at[0], dim=dim), t.cumulative_trapezoid(y, at[0], dim=dim)]
    options = {} if space is None else {"dx": space}
    return [t.trapezoid(y, dim=dim, **options), t.cumulative_trapezoid(y, dim=dim, **options)]


def _area_exact(t: Any, y: Any, *at: Any, dim: int, space: Any) -> List[Any]:
    y = y.movedim(dim, -1)
    step = at[0][1:] - at[0][:-1] if at else (1 if space is None else space)
    parts = (y[..., 1:] + y[..., :-1]) / 2 * step
    running = by.running(t, parts, -1, lambda a, b: a + b).movedim(-1, dim)
    return [by.added(t, parts, -1), running]


STEPS: Tuple[Operator, ...] = (
    by_each_option(
        "diff",
        {
            "dims": SINGLE,
            "rank": RANKS[:-1],
            "n": (1, 2, 3),
            "before": (0, 1, 3),
            "after": (0, 1, 2),
        },
        _ended,
        _diff,
        _diff_exact,
        slack=4,
        dtypes=NUMBERED,
    ),
    by_each_option(
        "trapezoid",
        {"dims": SINGLE, "rank": RANKS[:-1], "space": (None, 0.5, 3, "line"), "spread": SPREAD},
        _spaced,
        _area,
        _area_exact,
        slack=8,
    ),
)
RAN = (*SPREADS, *LENGTH, *DISTANCES, *RUNNING, *STEPS)
