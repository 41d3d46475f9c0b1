"""Arithmetic of two and three, of whole numbers, conversions and odd numbers."""

from __future__ import annotations

from typing import Any, Callable, Tuple

from .drawing import Draw, Given, given
from .rows_functions import _cut, _dims, _sigmoid, several, two
from .table import ANY, FLOATS, WHOLE, Operator


def binary(name: str, make: Any, run: Any, exact: Any = None, **more: Any) -> Operator:
    return Operator(name, make, run, exact, split=True, **more)


def _halves(d: Draw) -> Given:
    shape = d.shape(2)
    return given(d.normal(shape[0], 2 * shape[1]))


def _powers(d: Draw) -> Given:
    shape = d.shape(_dims(d))
    return given(d.uniform(0.1, 4, *shape), d.uniform(-2, 3, *shape))


def _flagged(d: Draw) -> Given:
    shape = d.shape(_dims(d))
    return given(d.flags(*shape), d.normal(*shape), d.normal(*shape))


def _by_hand_clamp(t: Any, x: Any, low: float, high: float) -> Any:
    return _cut(t, x, low, high)


ARITHMETIC: Tuple[Operator, ...] = (
    binary("add", two(-9, 9), lambda t, x, y: x + y, lambda t, x, y: x - (-y), weight=4),
    binary("sub", two(-9, 9), lambda t, x, y: x - y, lambda t, x, y: x + (-1.0 * y), weight=2),
    binary("mul", two(-9, 9), lambda t, x, y: x * y, lambda t, x, y: x / (1 / y), weight=4),
    binary("div", two(0.1, 9), lambda t, x, y: x / y, lambda t, x, y: x * y.reciprocal(), weight=2),
    binary("pow", _powers, lambda t, x, y: x**y, lambda t, x, y: (x.log() * y).exp(), slack=8),
    binary(
        "maximum",
        several(2, -9, 9),
        lambda t, x, y: t.maximum(x, y),
        lambda t, x, y: t.where(x > y, x, y),
        learns=False,
    ),
    binary(
        "minimum",
        several(2, -9, 9),
        lambda t, x, y: t.minimum(x, y),
        lambda t, x, y: t.where(x < y, x, y),
        learns=False,
    ),
    binary(
        "addcmul",
        several(3, -4, 4),
        lambda t, x, y, z: t.addcmul(x, y, z, value=0.5),
        lambda t, x, y, z: x + 0.5 * y * z,
        weight=2,
    ),
    binary(
        "addcdiv",
        several(3, 0.5, 4),
        lambda t, x, y, z: t.addcdiv(x, y, z, value=0.5),
        lambda t, x, y, z: x + 0.5 * y / z,
        weight=2,
    ),
    binary(
        "lerp",
        several(2, -4, 4),
        lambda t, x, y: t.lerp(x, y, 0.3),
        lambda t, x, y: x + 0.3 * (y - x),
        weight=2,
        slack=2,
    ),
    binary(
        "where",
        _flagged,
        lambda t, c, x, y: t.where(c, x, y),
        lambda t, c, x, y: x * c + y * (~c),
        weight=2,
    ),
    binary(
        "masked_fill",
        _flagged,
        lambda t, c, x, y: x.masked_fill(c, -7.0) + y,
        lambda t, c, x, y: x * (~c) - 7.0 * c + y,
        weight=3,
    ),
    binary(
        "clamp",
        lambda d: given(d.normal(*d.shape(_dims(d))), low=-0.5, high=0.75),
        lambda t, x, low, high: x.clamp(low, high),
        _by_hand_clamp,
        weight=2,
    ),
    binary(
        "lesser",
        several(2, -9, 9),
        lambda t, x, y: (x < y, x <= y, x > y, x >= y, x == y, x != y),
        learns=False,
        dtypes=ANY[:-1],
    ),
    Operator(
        "glu",
        _halves,
        lambda t, x: t.nn.functional.glu(x, -1),
        lambda t, x: x[:, : x.shape[1] // 2] * _sigmoid(t, x[:, x.shape[1] // 2 :]),
        slack=4,
    ),
)


def _wholes(low: int, high: int, count: int = 2) -> Callable[[Draw], Given]:
    def make(d: Draw) -> Given:
        shape = d.shape(_dims(d))
        return given(*(d.whole(low, high, *shape).double() for _ in range(count)))

    return make


def _ints(name: str, run: Any, exact: Any, low: int = 0, high: int = 11) -> Operator:
    return Operator(
        name, _wholes(low, high), run, exact, dtypes=WHOLE, learns=False, split=name != "gcd"
    )


INTEGERS: Tuple[Operator, ...] = (
    _ints("integer add", lambda t, x, y: x + y, lambda t, x, y: x + y),
    _ints("integer mul", lambda t, x, y: x * y, lambda t, x, y: x * y),
    _ints(
        "floor divide",
        lambda t, x, y: t.div(x, y, rounding_mode="floor"),
        lambda t, x, y: (x / y).floor(),
        1,
    ),
    _ints(
        "integer remainder", lambda t, x, y: x % y, lambda t, x, y: x - y * (x / y).floor(), 1, 100
    ),
)


def _cast(target: str) -> Operator:
    def run(t: Any, x: Any) -> Any:
        return x.to(getattr(t, target))

    return Operator(
        f"to {target}",
        lambda d: given(d.whole(0, 100, *d.shape(_dims(d))).double()),
        run,
        lambda t, x: x * 1.0 if target != "bool" else x > 0,
        dtypes=ANY[:-1],
        learns=False,
        split=True,
    )


DIGITS = {"bfloat16": 8, "float16": 11, "float32": 24}
"""How many binary digits a number of a format has."""
WIDER = {
    "bfloat16": ("float32", "float16"),
    "float16": ("float32", "bfloat16"),
    "float32": ("float64",),
}
"""Formats from which torch rounds to another one once; from float64 to a half it does so twice."""


def _rounded(target: str) -> Operator:
    """To the nearest number of a format, to the even one of two that are as near."""

    def run(t: Any, x: Any) -> Any:
        kind = getattr(t, target)
        return x.to(kind), t.empty_like(x, dtype=kind).copy_(x), x.t().to(kind).t()

    def exact(t: Any, x: Any) -> Any:
        digits, power = t.frexp(x)
        scale = 2.0 ** DIGITS[target]
        found = t.ldexp((digits * scale).round() / scale, power)
        return found, found, found

    return Operator(
        f"rounded to {target}",
        _halfway,
        run,
        exact,
        dtypes=WIDER[target],
        learns=False,
        kept=True,
        weight=2,
    )


def _halfway(d: Draw) -> Given:
    """Numbers of any size that no format loses; a quarter lies in the middle between two of a half
    precision."""
    shape = d.shape(2)
    size = 2.0 ** d.whole(-6, 8, *shape).double() * (2 * d.whole(0, 2, *shape) - 1)
    digits = 1 + d.uniform(0, 1, *shape)
    middle = (d.whole(0, 128, *shape) * 2 + 257) / 256
    return given(size * d.torch.where(d.flags(*shape) & d.flags(*shape), middle, digits))


CASTS = (
    *(_cast(name) for name in (*FLOATS, *WHOLE, "bool")),
    *(_rounded(name) for name in DIGITS),
)

SPECIAL = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.0, -2.5, 1e-40, 6e-8, 6e4, -6e4)


def _odd(d: Draw) -> Given:
    count = d.length()
    picked = [SPECIAL[d.choice(range(len(SPECIAL)))] for _ in range(min(count, 4096))]
    return given(d.torch.tensor(picked, dtype=d.torch.float64))


ODD: Tuple[Operator, ...] = (
    Operator(
        "odd numbers",
        _odd,
        lambda t, x: (x.isnan(), x.isinf(), x.isfinite(), x == x, x > 0, x.signbit()),
        lambda t, x: (
            x != x,
            x.abs() == float("inf"),
            (x - x) == 0,
            ~x.isnan(),
            x > 0,
            t.copysign(t.ones_like(x), x) < 0,
        ),
        learns=False,
    ),
    Operator(
        "odd numbers kept",
        _odd,
        lambda t, x: (x.relu(), x.clamp(-1, 1), x.abs(), -x, x + 1, x * 2),
        learns=False,
    ),
    Operator(
        "nan_to_num",
        _odd,
        lambda t, x: t.nan_to_num(x, nan=3.0, posinf=5.0, neginf=-5.0),
        lambda t, x: t.where(
            x != x,
            3 + t.zeros_like(x),
            t.where(x.abs() == float("inf"), 5 * t.sign(x), x),
        ),
        learns=False,
    ),
)
