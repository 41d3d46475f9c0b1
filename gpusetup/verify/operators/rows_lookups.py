"""Reading and writing at places with each option: every axis, counted from the end too, places that
are negative, meet, or are none, and what a place does with what was there."""

from __future__ import annotations

from math import prod
from typing import Any, Callable, Dict, Tuple

from .drawing import Draw
from .single_options import (
    RANKS,
    SINGLE,
    SPREAD,
    SPREAD_ALL,
    Made,
    axes_of,
    by_each_option,
    shape_of,
)
from .table import FULL, Operator

COUNTS = ("fewer", "none", "one", "more")
AT: Dict[str, Any] = {"dims": SINGLE, "rank": RANKS[:-1], "count": COUNTS, "spread": SPREAD}
SUMS = ("float32", "int64", "bfloat16", "float16", "float64", "int32")
MIXED = ("float32", "int64", "bfloat16", "float16", "uint8", "bool", "float64", "int32")


def values(d: Draw, shape: Any) -> Any:
    return d.whole(0, 9, *shape).double()


def _counted(d: Draw, count: str, length: int, unlike: bool) -> int:
    found = {"none": 0, "one": 1, "fewer": max(1, length // 2), "more": length + 3}[count]
    return min(found, length) if unlike else found


def places_of(d: Draw, length: int, *shape: int, below: bool = False) -> Any:
    return d.whole(-length if below else 0, length, *shape)


def _lined(d: Draw, dims: str, rank: int, count: str, unlike: bool = False) -> Any:
    """A tensor, places along an axis of it, the shape of what goes there, and the axis."""
    given, names = axes_of(d, dims, rank)
    shape = list(shape_of(d, rank))
    length = shape[names[0]]
    some = _counted(d, count, length, unlike)
    at = d.order(length)[:some] if unlike else places_of(d, length, some)
    return values(d, shape), at, [some if i in names else n for i, n in enumerate(shape)], given


def _axis(made: Made, rank: int) -> Made:
    return made._replace(plain={**made.plain, "dim": made.options["dim"] % rank})


def _by_lines(unlike: bool, source: bool, **fixed: Any) -> Callable[..., Made]:
    def make(d: Draw, dims: str, rank: int, count: str, **of: Any) -> Made:
        x, at, shape, given = _lined(d, dims, rank, count, unlike)
        tensors = [x, at, *([values(d, shape)] if source else [])]
        return _axis(Made(tensors, {"dim": given, **of}), x.dim())

    return make


LINES: Tuple[Operator, ...] = (
    by_each_option(
        "index_select",
        AT,
        _by_lines(False, False),
        lambda t, x, i, dim: t.index_select(x, dim, i),
        lambda t, x, i, dim: (
            t.stack([x.select(dim, n) for n in i.tolist()], dim) if len(i) else x.narrow(dim, 0, 0)
        ),
        dtypes=MIXED,
        kept=True,
    ),
    by_each_option(
        "index_add",
        {**AT, "alpha": (1, 2, -1)},
        _by_lines(False, True),
        lambda t, x, i, s, dim, alpha: t.index_add(x, dim, i, s, alpha=alpha),
        dtypes=SUMS[:5],
        kept=True,
        steady=False,
    ),
    by_each_option(
        "index_copy",
        AT,
        _by_lines(True, True),
        lambda t, x, i, s, dim: t.index_copy(x, dim, i, s),
        dtypes=MIXED,
        kept=True,
    ),
    by_each_option(
        "index_fill",
        {**AT, "value": (5, 0, -3, "tensor"), "below": (False, True)},
        lambda d, below, **of: _below(_by_lines(False, False)(d, **of), below),
        lambda t, x, i, dim, value: t.index_fill(
            x, dim, i, t.full((), 4, dtype=x.dtype, device=x.device) if value == "tensor" else value
        ),
        dtypes=SUMS,
        kept=True,
    ),
    *(
        by_each_option(
            f"index_reduce {kind}",
            {**AT, "include_self": (True, False)},
            _by_lines(False, True),
            lambda t, x, i, s, dim, include_self, kind=kind: t.index_reduce(
                _of_small(x, kind), dim, i, _of_small(s, kind), kind, include_self=include_self
            ),
            learns=False,
            steady=False,
            slack=8,
            kept=kind in ("sum", "amax", "amin"),
            dtypes=FULL,
        )
        for kind in ("amax", "amin", "mean", "prod")
    ),
)


def _of_small(x: Any, kind: str) -> Any:
    """Of products, numbers near 1."""
    return x / 8 + 0.5 if kind == "prod" else x


def _below(made: Made, below: bool) -> Made:
    """Places counted from the end."""
    x, at = made.tensors[:2]
    length = x.shape[made.plain["dim"]]
    if not below:
        return made
    return made._replace(tensors=[x, at - length, *made.tensors[2:]], places={1: length})


# --- a place for each element --------------------------------------------------------------------


def _meshed(d: Draw, dims: str, rank: int, count: str, kind: str = "", **of: Any) -> Made:
    """Places of a smaller or longer shape; for what writes once, no place twice."""
    given, names = axes_of(d, dims, rank)
    axis, shape = names[0], list(shape_of(d, rank))
    once = kind == "once"
    some = _counted(d, count, shape[axis], once)
    inner = [some if i == axis else d.choice((n, max(1, n - 1))) for i, n in enumerate(shape)]
    if once:
        across = [n for i, n in enumerate(inner) if i != axis]
        lines = [d.order(shape[axis])[:some] for _ in range(prod(across))]
        at = d.torch.stack(lines).reshape([*across, some]).movedim(-1, axis)
    else:
        at = places_of(d, shape[axis], *inner)
    wider = 0 if kind == "fitting" else 1
    source = values(d, [n + d.choice((0, wider)) for n in inner])
    return _axis(Made([values(d, shape), at, source], {"dim": given, **of}), rank)


def _once(d: Draw, **of: Any) -> Made:
    return _meshed(d, kind="once", **of)


def _fitting(d: Draw, **of: Any) -> Made:
    """For a gradient torch wants as many numbers as places."""
    return _meshed(d, kind="fitting", **of)


def _taken(d: Draw, dims: str, rank: int, count: str, **_: Any) -> Made:
    """For `take_along_dim`, whose places may be negative, and broadcast."""
    given, names = axes_of(d, dims, rank)
    axis, shape = names[0], list(shape_of(d, rank))
    inner = [d.choice((1, n)) for n in shape]
    inner[axis] = _counted(d, count, shape[axis], False)
    at = places_of(d, shape[axis], *inner)
    return _axis(Made([values(d, shape), at], {"dim": given}), rank)


MESHES: Tuple[Operator, ...] = (
    by_each_option(
        "gather",
        {**AT, "spread": SPREAD_ALL},
        _meshed,
        lambda t, x, i, s, dim: t.gather(x, dim, i) + 0 * s.sum(),
        dtypes=SUMS,
        kept=True,
    ),
    by_each_option(
        "take_along_dim",
        {**AT, "spread": SPREAD_ALL},
        _taken,
        lambda t, x, i, dim: t.take_along_dim(x, i, dim),
        dtypes=SUMS,
        kept=True,
    ),
    by_each_option(
        "scatter",
        {**AT, "value": (None, 5, 0, -1)},
        _once,
        lambda t, x, i, s, dim, value: t.scatter(x, dim, i, s if value is None else value),
        dtypes=SUMS,
        kept=True,
        learns=False,
    ),
    by_each_option(
        "scatter_add",
        {**AT, "spread": SPREAD_ALL},
        _fitting,
        lambda t, x, i, s, dim: t.scatter_add(x, dim, i, s),
        dtypes=SUMS,
        kept=True,
        steady=False,
    ),
    by_each_option(
        "scatter with a number joined",
        {**AT, "kind_of": ("add", "multiply")},
        _once,
        lambda t, x, i, s, dim, kind_of: t.scatter(x, dim, i, 3, reduce=kind_of),
        dtypes=SUMS,
        learns=False,
        kept=True,
    ),
    *(
        by_each_option(
            f"scatter_reduce {kind}",
            {**AT, "include_self": (True, False)},
            _meshed,
            lambda t, x, i, s, dim, include_self, kind=kind: t.scatter_reduce(
                _of_small(x, kind), dim, i, _of_small(s, kind), kind, include_self=include_self
            ),
            learns=False,
            steady=False,
            slack=8,
            kept=kind in ("sum", "amax", "amin"),
            dtypes=("float32", "float64", "bfloat16") if kind != "prod" else FULL,
        )
        for kind in ("sum", "amax", "amin", "mean", "prod")
    ),
)

PLACED: Tuple[Operator, ...] = (*LINES, *MESHES)
