"""Reductions with each of their options: along every axis, over several, of nothing."""

from __future__ import annotations

from math import inf, nan
from typing import Any, Callable, Dict, Tuple

from . import definitions as by
from .drawing import Draw
from .reducing import ALONG, NUMBERED, ONE, OVER, over
from .single_options import SEVERAL, SPREAD
from .table import ANY, FULL, Operator


def _whole(d: Draw, shape: Any) -> Any:
    return d.whole(0, 5, *shape).double()


def _normal(d: Draw, shape: Any) -> Any:
    return d.normal(*shape)


def _apart(d: Draw, shape: Any) -> Any:
    return d.apart(*shape)


def _near_one(d: Draw, shape: Any) -> Any:
    return d.torch.exp2(d.whole(-1, 2, *shape).double() / 4)


def _signs(d: Draw, shape: Any) -> Any:
    """Whole numbers with a small product."""
    twos = d.uniform(0, 1, *shape) < 0.05
    return (d.whole(0, 2, *shape) * 2 - 1).double() * (1 + twos.double())


def _away(d: Draw, shape: Any) -> Any:
    return d.uniform(0.5, 1.5, *shape) * (d.whole(0, 2, *shape) * 2 - 1)


def _some_nan(d: Draw, shape: Any) -> Any:
    x = d.apart(*shape)
    return d.torch.where(d.uniform(0, 1, *shape) < 0.15, nan + 0 * x, x)


def _rarely(share: float) -> Callable[[Draw, Any], Any]:
    return lambda d, shape: (d.uniform(0, 1, *shape) < share).double() * d.whole(-3, 3, *shape)


def _two(d: Draw, shape: Any) -> Any:
    return 3.0 + 4 * d.whole(0, 2, *shape).double()


# --- sums and products ---------------------------------------------------------------------------

WIDE = {"wide": (False, True)}


def _mean(t: Any, x: Any) -> Any:
    return by.added(t, x, -1) / x.shape[-1]


def _present(t: Any, x: Any) -> Tuple[Any, Any]:
    known = x == x
    return t.where(known, x, 0 * t.ones_like(x)), by.added(t, known.double(), -1)


SUMS: Tuple[Operator, ...] = (
    over(
        "sum",
        lambda t, x, o: t.sum(x, **o),
        lambda t, x: by.added(t, x.double(), -1),
        _whole,
        {**OVER, **WIDE},
        dtypes=ANY,
        slack=2,
        roundings=1,
    ),
    over(
        "mean",
        lambda t, x, o: t.mean(x, **o),
        _mean,
        _away,
        {**OVER, **WIDE},
        False,
        slack=4,
    ),
    over(
        "nansum",
        lambda t, x, o: t.nansum(x, **o),
        lambda t, x: by.added(t, _present(t, x)[0], -1),
        _some_nan,
        {**OVER, **WIDE},
        learns=False,
        slack=4,
    ),
    over(
        "nanmean",
        lambda t, x, o: t.nanmean(x, **o),
        lambda t, x: by.added(t, _present(t, x)[0], -1) / _present(t, x)[1],
        _some_nan,
        {**OVER, **WIDE},
        learns=False,
        slack=4,
    ),
    over(
        "prod",
        lambda t, x, o: t.prod(x, **o),
        lambda t, x: by.multiplied(t, x, -1),
        _near_one,
        {**ALONG, **WIDE},
        slack=8,
        dtypes=FULL,
    ),
    over(
        "prod of whole numbers",
        lambda t, x, o: t.prod(x, **o),
        lambda t, x: by.multiplied(t, x, -1),
        _signs,
        {**ALONG, **WIDE},
        dtypes=("int64", "int32", "float32", "bfloat16", "float16"),
        learns=False,
    ),
    over(
        "logsumexp",
        lambda t, x, o: t.logsumexp(x, **o),
        lambda t, x: by.added(t, x.exp(), -1).log(),
        _normal,
        {**OVER, "dims": SEVERAL[:-1]},
        slack=8,
    ),
    over(
        "count_nonzero",
        lambda t, x, o: t.count_nonzero(x, **o),
        lambda t, x: by.added(t, (x != 0).double(), -1),
        _rarely(0.5),
        {**OVER, "keep": (False,)},
        dtypes=ANY,
        learns=False,
    ),
)


# --- flags, greatest and least -------------------------------------------------------------------


def _nothing(t: Any, x: Any) -> Any:
    return by.added(t, (x != 0).double(), -1) == 0


def _of_flags(name: str, share: float, axes: Dict[str, Any], kind: str) -> Operator:
    some = kind == "any"
    return over(
        name,
        lambda t, x, o: getattr(t, kind)(x, **o),
        (lambda t, x: ~_nothing(t, x)) if some else (lambda t, x: _nothing(t, (x == 0))),
        _rarely(share)
        if some
        else (
            lambda d, shape: (
                1 - 0 * _rarely(share)(d, shape) - (d.uniform(0, 1, *shape) < 0.05).double()
            )
        ),
        axes,
        dtypes=ANY,
        learns=False,
    )


FLAGS = tuple(
    _of_flags(f"{kind}{words}", 0.05, axes, kind)
    for kind in ("any", "all")
    for words, axes in (("", ALONG), (" over several", OVER))
)


def _extremes(t: Any, x: Any) -> Tuple[Any, Any]:
    return by.greatest(t, x, -1), by.least(t, x, -1)


def _with_nan(t: Any, x: Any) -> Tuple[Any, ...]:
    """Greatest and least, NaN where there is one."""
    known, count = _present(t, x)
    gap = count < x.shape[-1]
    return tuple(t.where(gap, nan + 0 * each, each) for each in _extremes(t, known))


def _first(t: Any, x: Any, value: Any) -> Any:
    """Where a value stands first."""
    value = value.unsqueeze(-1)
    hit = (x == value) | ((x != x) & (value != value))
    at = t.where(hit, t.arange(x.shape[-1]).double(), t.full((), inf, dtype=t.float64))
    return by.least(t, at, -1)


def _places(t: Any, x: Any) -> Tuple[Any, Any]:
    most, least = _with_nan(t, x)
    return _first(t, x, most), _first(t, x, least)


def _both(t: Any, x: Any, o: Any) -> Tuple[Any, Any]:
    return t.amax(x, **o), t.amin(x, **o)


def _valued(t: Any, x: Any, o: Any) -> Any:
    """Greatest and least with their places; of all only themselves."""
    if not o:
        return x.max(), x.max(), x.min(), x.max()
    top, low = t.max(x, **o), t.min(x, **o)
    return top[0], top[1], low[0], low[1]


def _ranked(t: Any, x: Any) -> Any:
    return x.sort(-1)[0]


def _median(t: Any, x: Any) -> Any:
    line = _ranked(t, x)
    at = line.shape[-1] // 2 - (line.shape[-1] % 2 == 0)
    return line[..., at]


def _median_known(t: Any, x: Any) -> Any:
    """The lower of the middle two; NaN counts as nothing."""
    top = t.where(x == x, x, t.full((), inf, dtype=t.float64))
    _, count = _present(t, x)
    at = ((count.long() - 1) // 2).clamp(min=0).unsqueeze(-1)
    found = _ranked(t, top).gather(-1, at).squeeze(-1)
    return t.where(count > 0, found, nan + 0 * found)


def _rank(x: Any, dim: int, which: int) -> int:
    return int(1 + which * ((x.shape[dim] if x.dim() else 1) - 1) // 2)


def _most_often(t: Any, x: Any, o: Any) -> Any:
    """How often the number comes that comes most often: which one does, two may."""
    found = t.mode(x, **o)[0]
    wide = found if o.get("keepdim") or not x.dim() else found.unsqueeze(o["dim"])
    count = (x == wide).sum(o["dim"]) if x.dim() else (x == wide).long()
    return count.reshape(found.shape)


def _often(t: Any, x: Any) -> Any:
    alike = (x.unsqueeze(-1) == x.unsqueeze(-2)).double()
    return by.greatest(t, by.added(t, alike, -1), -1)


KEPT: Dict[str, Any] = {"kept": True, "dtypes": NUMBERED}
STIFF = {**ALONG, "spread": SPREAD[:1]}
EXTREMES: Tuple[Operator, ...] = (
    over("amax and amin", _both, _extremes, _apart, {**OVER, "spread": SPREAD[:1]}, False, **KEPT),
    over(
        "amax and amin with NaN",
        _both,
        _with_nan,
        _some_nan,
        OVER,
        False,
        kept=True,
        learns=False,
    ),
    over(
        "aminmax",
        lambda t, x, o: tuple(t.aminmax(x, **o))[::-1],
        _with_nan,
        _some_nan,
        ALONG,
        False,
        ranks=1,
        kept=True,
        learns=False,
    ),
    over(
        "max and min",
        lambda t, x, o: _valued(t, x, o),
        lambda t, x: (_with_nan(t, x)[0], _places(t, x)[0], _with_nan(t, x)[1], _places(t, x)[1]),
        _some_nan,
        {**ONE, "spread": SPREAD[:1]},
        False,
        kept=True,
        learns=False,
    ),
    over(
        "argmax and argmin",
        lambda t, x, o: (t.argmax(x, **o), t.argmin(x, **o)),
        _places,
        _apart,
        STIFF,
        False,
        learns=False,
        **KEPT,
    ),
    over(
        "median",
        lambda t, x, o: t.median(x, **o)[0] if o else t.median(x),
        _median,
        _apart,
        STIFF,
        False,
        **KEPT,
    ),
    # Of expanded lines 2.13.0 gives what the memory behind them holds.
    over(
        "nanmedian",
        lambda t, x, o: t.nanmedian(x, **o)[0] if o else t.nanmedian(x),
        _median_known,
        _some_nan,
        STIFF,
        False,
        kept=True,
        learns=False,
        dtypes=FULL,
    ),
    over(
        "kthvalue",
        lambda t, x, o, which: t.kthvalue(x, _rank(x, o["dim"], which), **o)[0],
        lambda t, x, which: _ranked(t, x)[..., which * (x.shape[-1] - 1) // 2],
        _apart,
        {**ONE, "spread": SPREAD[:1], "which": (0, 1, 2)},
        False,
        **KEPT,
    ),
    over(
        "mode",
        _most_often,
        lambda t, x: by.greatest(
            t, by.added(t, (x.unsqueeze(-1) == x.unsqueeze(-2)).double(), -1), -1
        ),
        _two,
        ONE,
        False,
        learns=False,
        dtypes=NUMBERED,
    ),
)

REDUCED = (*SUMS, *FLAGS, *EXTREMES)
