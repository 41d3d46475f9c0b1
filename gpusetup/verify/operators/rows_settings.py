"""Functions of each element with each of their parameters, in every shape, on either side."""

from __future__ import annotations

from math import inf, nan
from typing import Any, Callable, Dict, Tuple

from . import definitions as by
from .drawing import Draw
from .single_options import LENGTHS, RANKS, SPREAD, SPREAD_ALL, Made, by_each_option, shape_of
from .table import FULL, Operator

SHAPES: Dict[str, Any] = {"rank": RANKS, "lengths": LENGTHS, "spread": SPREAD}


def _one(low: float, high: float, *nots: float) -> Callable[..., Made]:
    """Numbers that stay away from where a function has its knee."""

    def make(d: Draw, rank: int, lengths: str, **of: Any) -> Made:
        x = d.uniform(low, high, *shape_of(d, rank, lengths))
        for knee in nots:
            x = d.torch.where((x - knee).abs() < 0.06, x + 0.2, x)
        return Made([x], of)

    return make


def _parameter(
    name: str, axes: Dict[str, Any], run: Any, exact: Any, make: Any = None, **more: Any
) -> Operator:
    more.setdefault("slack", 4)
    return by_each_option(name, {**SHAPES, **axes}, make or _one(-4, 4, 0), run, exact, **more)


def _bent(t: Any, x: Any, alpha: float, scale: float, inner: float) -> Any:
    return t.where(x > 0, scale * x, scale * alpha * ((inner * x.clamp(max=0)).exp() - 1))


def _clamped(t: Any, x: Any, low: Any, high: Any) -> Any:
    if low is not None:
        x = t.where(x < low, low + 0 * x, x)
    return x if high is None else t.where(x > high, high + 0 * x, x)


def _soft(t: Any, x: Any, beta: float, threshold: float) -> Any:
    return t.where(beta * x > threshold, x, by.softplus(t, beta * x) / beta)


def _gelu(t: Any, x: Any, approximate: str) -> Any:
    if approximate == "none":
        return x * (1 + (x * 0.5**0.5).erf()) / 2
    inner = 0.7978845608028654 * (x + 0.044715 * x**3)
    return x * (1 + inner.tanh()) / 2


def _logit(t: Any, x: Any, eps: Any) -> Any:
    x = _clamped(t, x, eps, None if eps is None else 1 - eps)
    return x.log() - (1 - x).log()


def _marked(d: Draw, rank: int, lengths: str, **of: Any) -> Made:
    x = d.normal(*shape_of(d, rank, lengths))
    for mark, at in ((nan, 0), (inf, 1), (-inf, 2)):
        x = d.torch.where(d.whole(0, 7, *x.shape) == at, mark + 0 * x, x)
    return Made([x], of)


def _filled(t: Any, x: Any, number: Any, top: Any, low: Any) -> Any:
    """Without a number for an infinity, the format's end: told by sign and size alone."""
    found = t.where(x != x, (number or 0.0) + 0 * t.ones_like(x), x)
    ends = [(x == inf, top, 1e4), (x == -inf, low, -1e4)]
    for hit, end, sign in ends:
        found = t.where(hit, (sign if end is None else end) + 0 * t.ones_like(x), found)
    return found


def _fill(t: Any, x: Any, number: Any, top: Any, low: Any) -> Any:
    found = t.nan_to_num(x, number, top, low)
    ends = t.finfo(x.dtype)
    found = t.where(found == ends.max, 1e4 + 0 * found, found)
    return t.where(found == ends.min, -1e4 + 0 * found, found)


def _rounded(t: Any, x: Any, decimals: int) -> Any:
    return (x * 10.0**decimals).round() / 10.0**decimals


def _tenths(d: Draw, rank: int, lengths: str, decimals: int, **_: Any) -> Made:
    """In the middle between two rounded ones none is."""
    whole = d.whole(-200, 200, *shape_of(d, rank, lengths)).double()
    x = (whole + d.uniform(-0.3, 0.3, *whole.shape)) / 10.0**decimals
    return Made([x], {"decimals": decimals})


PARAMETERS: Tuple[Operator, ...] = (
    _parameter(
        "celu",
        {"alpha": (1.0, 0.5, 2.0, 3)},
        lambda t, x, alpha: t.celu(x, alpha),
        lambda t, x, alpha: _bent(t, x, alpha, 1, 1 / alpha),
    ),
    _parameter(
        "elu",
        {"alpha": (1.0, 0.5, 2.0), "scale": (1, 1.5), "inner": (1, 0.5)},
        lambda t, x, alpha, scale, inner: t.ops.aten.elu(x, alpha, scale, inner),
        _bent,
    ),
    _parameter(
        "leaky_relu",
        {"slope": (0.01, 0.5, 0.0, -0.5)},
        lambda t, x, slope: t.nn.functional.leaky_relu(x, slope),
        lambda t, x, slope: t.where(x > 0, x, slope * x),
    ),
    _parameter(
        "shrinks",
        {"knee": (0.5, 1.5, 0.0)},
        lambda t, x, knee: (
            t.nn.functional.softshrink(x, knee),
            t.nn.functional.hardshrink(x, knee),
        ),
        lambda t, x, knee: (
            t.where(x > knee, x - knee, t.where(x < -knee, x + knee, 0 * x)),
            t.where(x.abs() > knee, x, 0 * x),
        ),
        _one(-4, 4, 0.5, -0.5, 1.5, -1.5, 0),
    ),
    _parameter(
        "softplus",
        {"beta": (1, 0.5, 3), "threshold": (20, 2, -1)},
        lambda t, x, beta, threshold: t.nn.functional.softplus(x, beta, threshold),
        _soft,
        _one(-3, 3, 2, -1, 4, 0.67, -0.33, -2),
        dtypes=FULL,
    ),
    _parameter(
        "gelu",
        {"approximate": ("none", "tanh")},
        lambda t, x, approximate: t.nn.functional.gelu(x, approximate=approximate),
        _gelu,
        slack=8,
    ),
    _parameter(
        "logit",
        {"eps": (None, 0.01, 0.3)},
        lambda t, x, eps: t.logit(x, eps),
        _logit,
        _one(0.1, 0.9, 0.3, 0.7),
    ),
    _parameter(
        "threshold and hardtanh",
        {"low": (-1.0, 0.0, 0.75), "high": (1.0, 2.5)},
        lambda t, x, low, high: (
            t.nn.functional.threshold(x, low, 5.0),
            t.nn.functional.hardtanh(x, low, high),
        ),
        lambda t, x, low, high: (t.where(x > low, x, 5.0 + 0 * x), _clamped(t, x, low, high)),
        _one(-4, 4, -1, 0, 0.75, 1, 2.5),
    ),
    _parameter(
        "nan_to_num",
        {"number": (None, 0.0, 2.5, -1), "top": (None, 3.0, -4), "low": (None, -3.5, 4)},
        _fill,
        _filled,
        _marked,
        learns=False,
    ),
    _parameter(
        "round",
        {"decimals": (0, 1, 2, -1, -2)},
        lambda t, x, decimals: t.round(x, decimals=decimals),
        _rounded,
        _tenths,
        learns=False,
        dtypes=FULL,
    ),
    _parameter(
        "clamp of numbers",
        {"low": (-1, None, 0.75), "high": (2.0, None, 0.25)},
        lambda t, x, low, high: x if low is None and high is None else t.clamp(x, low, high),
        _clamped,
        _one(-4, 4, -1, 0.75, 0.25, 2),
    ),
    _parameter(
        "polygamma and mvlgamma",
        {"n": (1, 0, 2, 3)},
        lambda t, x, n: (t.polygamma(n, x), t.mvlgamma(x + 2, max(1, n))),
        lambda t, x, n: (t.polygamma(n, x), t.mvlgamma(x + 2, max(1, n))),
        _one(0.75, 4),
        learns=False,
        dtypes=FULL,
        slack=32,
    ),
)

# --- two and three tensors that meet -------------------------------------------------------------

MEETING = (
    *("alike", "number left", "number right", "line", "column", "shorter left"),
    *("shorter right", "one left", "both ways", "nothing", "zero axes left", "zero axes right"),
)
"""How the shapes of two fit; a number is Python's."""
LESS_SINGLE = {"meet": MEETING, "rank": RANKS[:-1], "spread": SPREAD_ALL}


def met(d: Draw, meet: str, rank: int) -> Tuple[Any, Any]:
    """Two shapes; None: a number."""
    shape = list(shape_of(d, rank, "of nothing" if meet == "nothing" else "usual"))
    ones = [1] * rank
    at = d.choice(range(rank))
    other = {
        "number left": None,
        "number right": None,
        "line": [*ones[:-1], shape[-1]],
        "column": [*shape[:-1], 1],
        "shorter left": shape[d.choice(range(rank)) :],
        "shorter right": shape[d.choice(range(rank)) :],
        "one left": [1],
        "both ways": [1 if i == at else n for i, n in enumerate(shape)],
        "zero axes left": [],
        "zero axes right": [],
    }.get(meet, shape)
    if meet == "both ways":
        shape = [1 if i != at and d.choice((0, 1)) else n for i, n in enumerate(shape)]
    return (other, shape) if "left" in meet else (shape, other)


def _two(numbers: Callable[..., Any], number: Any = 1.5) -> Callable[..., Made]:
    def make(d: Draw, meet: str, rank: int, **of: Any) -> Made:
        shapes = met(d, meet, rank)
        left, right = (None if each is not None else number for each in shapes)
        tensors = [numbers(d, each) for each in shapes if each is not None]
        return Made(tensors, {"left": left, "right": right, **of})

    return make


def _handed(call: Callable[..., Any]) -> Callable[..., Any]:
    """A number stands where no tensor does."""

    def run(t: Any, *tensors: Any, left: Any, right: Any, **of: Any) -> Any:
        if left is not None:
            return call(t, left, *tensors, **of)
        return call(t, tensors[0], right if right is not None else tensors[1], **of)

    return run


def binary(
    name: str,
    run: Callable[..., Any],
    exact: Any = None,
    axes: Any = None,
    numbers: Any = None,
    number: Any = 1.5,
    **more: Any,
) -> Operator:
    return by_each_option(
        name,
        {**LESS_SINGLE, **(axes or {})},
        _two(numbers or _away, number),
        _handed(run),
        _handed(exact or run),
        **{"slack": 4, **more},
    )


def _away(d: Draw, shape: Any) -> Any:
    return d.uniform(0.5, 3.5, *shape) * (d.whole(0, 2, *shape) * 2 - 1)


def _above(d: Draw, shape: Any) -> Any:
    return d.uniform(0.5, 3.5, *shape)


def _whole(d: Draw, shape: Any) -> Any:
    return d.whole(1, 30, *shape).double()


def _signed(d: Draw, shape: Any) -> Any:
    return (d.whole(1, 30, *shape) * (d.whole(0, 2, *shape) * 2 - 1)).double()


def _few(d: Draw, shape: Any) -> Any:
    return d.whole(-2, 3, *shape).double()


def _tensor(t: Any, x: Any, like: Any) -> Any:
    return x if t.is_tensor(x) else t.full((), x, dtype=like.dtype, device=like.device)


def _sum(t: Any, x: Any, y: Any, alpha: Any) -> Any:
    return t.add(x, y, alpha=alpha) if t.is_tensor(x) else t.add(_tensor(t, x, y), y, alpha=alpha)


def _difference(t: Any, x: Any, y: Any, alpha: Any) -> Any:
    if not t.is_tensor(x):
        return t.rsub(y, x) if alpha == 1 else t.sub(_tensor(t, x, y), y, alpha=alpha)
    return t.sub(x, y, alpha=alpha)


def _quotient(t: Any, x: Any, y: Any, rounding: Any) -> Any:
    found = x / y
    return {"floor": t.floor, "trunc": t.trunc}.get(rounding, lambda z: z)(found)


def _between(d: Draw, shape: Any) -> Any:
    """Of two such no quotient is near a whole number, where rounding would decide."""
    return (d.whole(0, 12, *shape) + 0.5) * (d.whole(0, 2, *shape) * 2 - 1)


WHOLE = ("int64", "int32", "int16", "float32")
ALPHAS = {"alpha": (1, 2, -3, 0)}
MET: Tuple[Operator, ...] = (
    binary("add", _sum, lambda t, x, y, alpha: x + alpha * y, {"alpha": (1, 2, -3, 0.5, -0.25, 0)}),
    binary("sub", _difference, lambda t, x, y, alpha: x - alpha * y, {"alpha": (1, 2, -0.5, 0)}),
    binary(
        "add of whole numbers",
        _sum,
        lambda t, x, y, alpha: x + alpha * y,
        ALPHAS,
        _signed,
        3,
        dtypes=WHOLE,
        learns=False,
    ),
    binary(
        "sub of whole numbers",
        _difference,
        lambda t, x, y, alpha: x - alpha * y,
        ALPHAS,
        _signed,
        3,
        dtypes=WHOLE,
        learns=False,
    ),
    binary(
        "div of whole numbers",
        lambda t, x, y, rounding: t.div(_tensor(t, x, y), y, rounding_mode=rounding),
        _quotient,
        {"rounding": ("floor", "trunc")},
        _signed,
        3,
        dtypes=WHOLE,
        learns=False,
    ),
    binary(
        "div",
        lambda t, x, y, rounding: t.div(_tensor(t, x, y), y, rounding_mode=rounding),
        _quotient,
        {"rounding": (None, "floor", "trunc")},
        _between,
        6.5,
        learns=False,
        dtypes=FULL,
    ),
)
