"""Functions of one, two and three tensors in every shape: spread, of nothing, without axes, of
formats that differ."""

from __future__ import annotations

from math import inf, nan
from typing import Any, Callable, Dict, Tuple

from .drawing import Draw
from .rows_settings import MEETING, SHAPES, binary, met
from .single_options import LENGTHS, RANKS, SPREAD, SPREAD_ALL, Made, by_each_option, shape_of
from .table import ANY, FULL, Operator

# --- one tensor ----------------------------------------------------------------------------------

EVERYWHERE = (
    *("exp", "sin", "cos", "tanh", "sigmoid", "erf", "atan", "sinh", "cosh", "expm1", "neg"),
    *("abs", "square", "sign", "floor", "ceil", "trunc", "frac", "sgn", "exp2", "sinc", "signbit"),
    *("relu", "erfc", "asinh", "deg2rad", "rad2deg", "isnan", "isinf", "isfinite", "positive"),
)
ABOVE = ("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "lgamma", "digamma")
BETWEEN = ("asin", "acos", "atanh", "erfinv")
LAYERS = (
    *("silu", "mish", "hardswish", "hardsigmoid", "relu6", "selu", "softsign", "tanhshrink"),
    *("logsigmoid", "gelu", "elu", "softplus"),
)


def _any_shape(low: float, high: float) -> Callable[..., Made]:
    def make(d: Draw, what: str, rank: int, lengths: str, **_: Any) -> Made:
        x = d.uniform(low, high, *shape_of(d, rank, lengths)) + 0.013
        if low < 0:
            x = d.torch.where((x - x.round()).abs() < 0.05, x + 0.11, x)  # no jump, no knee
        return Made([x], {"what": what})

    return make


def _functions(name: str, names: Tuple[str, ...], low: float, high: float, **more: Any) -> Operator:
    def run(t: Any, x: Any, what: str) -> Any:
        return getattr(t if hasattr(t, what) else t.nn.functional, what)(x)

    axes: Dict[str, Any] = {**SHAPES, "what": names}
    more = {"slack": 8, "dtypes": FULL, **more}
    return by_each_option(f"functions {name}", axes, _any_shape(low, high), run, **more)


ONE: Tuple[Operator, ...] = (
    _functions("everywhere", EVERYWHERE, -3, 3, learns=False),
    _functions("of positive numbers", ABOVE, 2.5, 6),
    _functions("below one", BETWEEN, 0.1, 0.8),
    _functions("of layers", LAYERS, -2.9, 2.8),
)

# --- two -----------------------------------------------------------------------------------------

COMPARED = ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor")
PLAIN = ("mul", "maximum", "minimum", "fmax", "fmin", "remainder", "fmod", *COMPARED)
SMOOTH = (
    *("mul", "true_divide", "atan2", "hypot", "logaddexp", "logaddexp2", "copysign", "nextafter"),
    *("maximum", "minimum", "xlogy", "heaviside", "float_power", "pow", "ldexp"),
)
BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift")
"""Also of numbers: `_tensor` makes those that a function does not take into tensors."""


def _as_tensors(t: Any, x: Any, y: Any) -> Tuple[Any, Any]:
    like = x if t.is_tensor(x) else y
    both = (
        e if t.is_tensor(e) else t.full((), e, dtype=like.dtype, device=like.device) for e in (x, y)
    )
    one, other = both
    return one, other


def _named(t: Any, x: Any, y: Any, what: str) -> Any:
    takes = what in ("mul", "pow", "float_power", "xlogy", "remainder", *COMPARED[:6], *BITS)
    if takes and t.is_tensor(x):
        return getattr(t, what)(x, y)
    return getattr(t, what)(*_as_tensors(t, x, y))


def _bits(t: Any, x: Any, y: Any, what: str) -> Any:
    """In whole numbers of 64 bits, where they are small."""
    x, y = (e.long() if t.is_tensor(e) else t.tensor(int(e)) for e in (x, y))
    return _named(t, x, y, what)


def _few(d: Draw, shape: Any) -> Any:
    return (d.whole(1, 6, *shape) * (d.whole(0, 2, *shape) * 2 - 1)).double()


def _near(d: Draw, shape: Any) -> Any:
    return d.uniform(0.6, 2.4, *shape)


def _small(d: Draw, shape: Any) -> Any:
    return d.whole(0, 5, *shape).double()


def _close(d: Draw, meet: str, rank: int, **of: Any) -> Made:
    """Pairs that are alike, nearly, far, infinite, and no numbers; none at a limit."""
    shapes = met(d, meet if "number" not in meet else "alike", rank)
    x = d.uniform(1, 3, *shapes[0])
    other = d.torch.broadcast_shapes(*shapes)
    parts = d.whole(0, 5, *other)
    y = x * (1 + d.torch.tensor([0.0, 3e-2, 0.3, 0.0, 0.0], dtype=x.dtype)[parts])
    y = d.torch.where(parts == 3, nan + 0 * y, d.torch.where(parts == 4, inf + 0 * y, y))
    x = d.torch.where(d.whole(0, 4, *x.shape) == 0, d.choice((nan, inf)) + 0 * x, x)
    return Made([x, y], of)


def _is_close(t: Any, x: Any, y: Any, rtol: float, atol: float, equal_nan: bool) -> Any:
    near = (x - y).abs() <= atol + rtol * y.abs()
    same = (x == y) | ((x != x) & (y != y) & equal_nan)
    return same | (near & (x.abs() < inf) & (y.abs() < inf))


FORMATS = ("float32", "float64", "bfloat16", "float16", "int64", "int32", "uint8", "bool")


def _mixed(d: Draw, meet: str, rank: int, other: str, **of: Any) -> Made:
    shapes = met(d, meet if "number" not in meet else "alike", rank)
    x, y = (d.whole(0, 8, *shape).double() for shape in shapes)
    return Made([x, y], {"other": other, **of})


def _mix(t: Any, x: Any, y: Any, other: str, what: str) -> Any:
    """Numbers of two formats meet; every answer is a small whole number."""
    y = (y != 0) if other == "bool" else y.to(getattr(t, other))
    return getattr(t, what)(x, y)


def _mix_exact(t: Any, x: Any, y: Any, other: str, what: str) -> Any:
    return getattr(t, what)(x, (y != 0).double() if other == "bool" else y.double())


def _into(t: Any, x: Any, y: Any, other: str, what: str, alpha: int) -> Any:
    """Written over the first tensor, or into one of another format."""
    y = (y != 0) if other == "bool" else y.to(getattr(t, other))
    if what == "over" and (x.is_floating_point() or not y.is_floating_point()):
        wide = t.zeros(t.broadcast_shapes(x.shape, y.shape), dtype=x.dtype, device=x.device) + x
        return wide.add_(y, alpha=alpha)
    return t.add(x, y, alpha=alpha, out=t.empty(0, dtype=t.float64, device=x.device))


def _into_exact(t: Any, x: Any, y: Any, other: str, what: str, alpha: int) -> Any:
    return x + alpha * ((y != 0).double() if other == "bool" else y)


def _shifted(t: Any, x: Any, y: Any, what: str) -> Any:
    """Numbers of either sign, moved by as many places as there are."""
    return _named(t, x, abs(y) if "shift" in what else y, what)


def _shifted_exact(t: Any, x: Any, y: Any, what: str) -> Any:
    return _bits(t, x, abs(y) if "shift" in what else y, what)


SIGNED = tuple(name for name in FORMATS if name != "uint8")
FORMATTED: Dict[str, Any] = {
    "meet": MEETING,
    "rank": RANKS[:-1],
    "other": FORMATS,
    "spread": SPREAD,
}
TWO: Tuple[Operator, ...] = (
    binary(
        "functions of two numbers",
        _named,
        None,
        {"what": PLAIN},
        _few,
        2,
        dtypes=("float32", "int64", "int32", "bfloat16", "float16"),
        learns=False,
    ),
    binary(
        "functions of two",
        _named,
        None,
        {"what": SMOOTH},
        _near,
        1.5,
        dtypes=FULL,
        slack=8,
        learns=False,
    ),
    binary(
        "gradients of two", _named, None, {"what": SMOOTH[:6]}, _near, 1.5, dtypes=FULL, slack=8
    ),
    binary(
        "functions of bits",
        _named,
        _bits,
        {"what": BITS},
        _small,
        2,
        dtypes=("int64", "int32", "uint8", "int16"),
        learns=False,
    ),
    binary(
        "functions of signed bits",
        _shifted,
        _shifted_exact,
        {"what": BITS},
        _few,
        2,
        dtypes=("int64", "int32", "int16"),
        learns=False,
    ),
    by_each_option(
        "isclose",
        {
            "meet": MEETING,
            "rank": RANKS[:-1],
            "rtol": (1e-5, 0.1, 0.0),
            "atol": (1e-8, 0.3, 0.0),
            "equal_nan": (False, True),
        },
        _close,
        # Up to 2.9.1 the second alone may be the smaller one.
        lambda t, x, y, **of: t.isclose(*t.broadcast_tensors(x, y), **of),
        _is_close,
        learns=False,
        dtypes=FULL,
    ),
    by_each_option(
        "formats that meet",
        {**FORMATTED, "what": ("add", "mul", "maximum", "eq", "lt")},
        _mixed,
        _mix,
        _mix_exact,
        learns=False,
        dtypes=ANY[:-2],
    ),
    by_each_option(
        "formats of out",
        {**FORMATTED, "other": SIGNED, "what": ("out", "over"), "alpha": (1, 2, -1)},
        _mixed,
        _into,
        _into_exact,
        learns=False,
        dtypes=ANY[:-2],
    ),
)

# --- three ---------------------------------------------------------------------------------------


def _three(d: Draw, meet: str, rank: int, **of: Any) -> Made:
    """The third has the shape of either, or no axes."""
    shapes = met(d, meet if "number" not in meet else "alike", rank)
    third = d.choice((shapes[0], shapes[1], []))
    return Made([_away(d, shape) for shape in (*shapes, third)], of)


def _away(d: Draw, shape: Any) -> Any:
    return d.uniform(0.5, 1.5, *shape) * (d.whole(0, 2, *shape) * 2 - 1)


def _bounded(d: Draw, meet: str, rank: int, kind: str, **_: Any) -> Made:
    shapes = met(d, meet if "number" not in meet else "alike", rank)
    x = d.whole(-9, 9, *shapes[0]).double()
    low, high = d.whole(-7, 3, *shapes[1]) + 0.25, d.whole(-3, 7, *shapes[1]) + 0.5
    return Made([x, low, high], {"kind": kind})


def _clamp(t: Any, x: Any, low: Any, high: Any, kind: str) -> Any:
    if kind == "low":
        return t.clamp(x, min=low)
    return t.clamp(x, max=high) if kind == "high" else t.clamp(x, low, high)


def _clamp_exact(t: Any, x: Any, low: Any, high: Any, kind: str) -> Any:
    if kind != "high":
        x = t.where(x < low, low, x)
    return x if kind == "low" else t.where(x > high, high, x)


def _chosen(d: Draw, meet: str, rank: int, kind: str, **_: Any) -> Made:
    shapes = met(d, meet if "number" not in meet else "alike", rank)
    flags = d.flags(*d.choice((shapes[0], shapes[1], [])))
    return Made([d.whole(-9, 9, *shape).double() for shape in shapes] + [flags], {"kind": kind})


def _where(t: Any, x: Any, y: Any, flags: Any, kind: str) -> Any:
    if kind == "number right":
        return t.where(flags, x, 3)
    return t.where(flags, 3, y) if kind == "number left" else t.where(flags, x, y)


def _where_exact(t: Any, x: Any, y: Any, flags: Any, kind: str) -> Any:
    share = flags.double()
    x = 3 + 0 * y if kind == "number left" else x
    return share * x + (1 - share) * (3 + 0 * x if kind == "number right" else y)


THIRD: Dict[str, Any] = {"meet": MEETING, "rank": RANKS[:-1], "spread": SPREAD_ALL}
VALUES = (1, 0.5, -2, 0)
THREE: Tuple[Operator, ...] = (
    by_each_option(
        "addcmul",
        {**THIRD, "value": VALUES},
        _three,
        lambda t, x, y, z, value: t.addcmul(x, y, z, value=value),
        lambda t, x, y, z, value: x + value * y * z,
        slack=4,
    ),
    by_each_option(
        "addcdiv",
        {**THIRD, "value": VALUES},
        _three,
        lambda t, x, y, z, value: t.addcdiv(x, y, z, value=value),
        lambda t, x, y, z, value: x + value * y / z,
        slack=4,
    ),
    by_each_option(
        "lerp",
        {**THIRD, "weight": (None, 0.3, 0.75, -1, 1)},
        _three,
        lambda t, x, y, z, weight: t.lerp(x, y, z if weight is None else weight),
        lambda t, x, y, z, weight: x + (z if weight is None else weight) * (y - x),
        slack=8,
    ),
    by_each_option(
        "clamp of tensors",
        {**THIRD, "spread": SPREAD[:1], "kind": ("both", "low", "high")},
        _bounded,
        _clamp,
        _clamp_exact,
        learns=False,
        slack=4,
        dtypes=FULL,
    ),
    by_each_option(
        "where",
        {**THIRD, "spread": SPREAD, "kind": ("tensors", "number left", "number right")},
        _chosen,
        _where,
        _where_exact,
        slack=2,
    ),
)

# --- what an element does with its axis ----------------------------------------------------------


def _halves(d: Draw, rank: int, dim: int, lengths: str, **_: Any) -> Made:
    rank = max(1, rank)
    shape = list(shape_of(d, rank, lengths))
    at = dim % rank
    shape[at] = 2 * min(8, max(1, shape[at]))
    return Made([d.normal(*shape)], {"dim": at - rank if dim < 0 else at}, {"dim": at})


def _glu(t: Any, x: Any, dim: int) -> Any:
    half = x.shape[dim] // 2
    return x.narrow(dim, 0, half) / (1 + (-x.narrow(dim, half, half)).exp())


GATED = by_each_option(
    "glu",
    {"rank": RANKS, "dim": (-1, 0, 1, 2, -2, -3), "lengths": LENGTHS, "spread": SPREAD},
    _halves,
    lambda t, x, dim: t.nn.functional.glu(x, dim),
    _glu,
    slack=4,
)
TOGETHER: Tuple[Operator, ...] = (*ONE, *TWO, *THREE, GATED)
