"""Functions of two tensors, and calls with a number in place of a tensor."""

from __future__ import annotations

from typing import Any, Tuple

from .drawing import given
from .rows_arithmetic import _wholes
from .rows_functions import one, several
from .table import FLOATS, FULL, WHOLE, Operator


def _two(name: str, make: Any, run: Any, exact: Any = None, **more: Any) -> Operator:
    return Operator(name, make, run, exact, split=True, **{"slack": 8.0, **more})


TWO: Tuple[Operator, ...] = (
    _two("fmax", several(2, -9, 9), lambda t, x, y: t.fmax(x, y), learns=False),
    _two("fmin", several(2, -9, 9), lambda t, x, y: t.fmin(x, y), learns=False),
    _two(
        "prelu",
        lambda d: given(d.normal(3, 5, *d.shape(1)), d.uniform(0.1, 0.9, 5)),
        lambda t, x, w: t.nn.functional.prelu(x, w),
        lambda t, x, w: t.where(x > 0, x, x * w.reshape(5, 1)),
    )._replace(split=False),
    _two(
        "addcmul of unlike shapes",
        lambda d: given(d.normal(5, 1, *d.shape(1)), d.normal(7, 1), d.normal(5, 7, 1)),
        lambda t, x, y, z: t.addcmul(x, y, z, value=2),
        lambda t, x, y, z: x + 2 * y * z,
    )._replace(split=False),
    _two(
        "lerp by tensors",
        several(3, -4, 4),
        lambda t, x, y, w: t.lerp(x, y, w),
        lambda t, x, y, w: x + w * (y - x),
    ),
)

# --- a number in place of a tensor ---------------------------------------------------------------


def _scalar(name: str, run: Any, exact: Any, **more: Any) -> Operator:
    make = more.pop("make", one(-4, 4))
    more = {"slack": 4.0, "weight": 2.0, **more}
    return Operator(f"{name} a number", make, run, exact, split=True, **more)


SCALARS: Tuple[Operator, ...] = (
    _scalar("add", lambda t, x: x + 2.5, lambda t, x: x - (-2.5)),
    _scalar("sub", lambda t, x: (x - 2.5, 2.5 - x), lambda t, x: (x + -2.5, -(x - 2.5))),
    _scalar("mul", lambda t, x: x * 0.75, lambda t, x: x / (4 / 3)),
    _scalar(
        "div",
        lambda t, x: (x / 3, 3 / x),
        lambda t, x: (x * (1 / 3), 3 * x.reciprocal()),
        make=one(0.5, 9),
    ),
    _scalar(
        "pow",
        lambda t, x: (x**2, x**0.5, x**-1, x**2.5, 2.0**x),
        lambda t, x: (x * x, x.sqrt(), 1 / x, x * x * x.sqrt(), (0.6931471805599453 * x).exp()),
        make=one(0.5, 3),
        slack=8,
    ),
    _scalar(
        "compare",
        lambda t, x: (x < 1, x <= 1, x > 1, x >= 1, x == 1, x != 1),
        lambda t, x: (1 - x > 0, 1 - x >= 0, x - 1 > 0, x - 1 >= 0, (x - 1) == 0, (x - 1) != 0),
        make=_wholes(0, 3, 1),
        dtypes=(*FLOATS, *WHOLE),
        learns=False,
    ),
    _scalar(
        "floor divide by",
        lambda t, x: (t.div(x, 4, rounding_mode="floor"), t.div(x, 4, rounding_mode="trunc")),
        lambda t, x: ((x / 4).floor(), (x / 4).trunc()),
        make=_wholes(0, 99, 1),
        dtypes=(*FLOATS, *WHOLE),
        learns=False,
    ),
    _scalar(
        "remainder by",
        lambda t, x: (t.remainder(x, 7), t.fmod(x, 7)),
        lambda t, x: (x - 7 * (x / 7).floor(),) * 2,
        make=_wholes(0, 99, 1),
        dtypes=("float32", "float64", *WHOLE),
        learns=False,
    ),
    _scalar(
        "bits with",
        lambda t, x: ((x & 12) + (x | 12) + (x ^ 12), x << 1, x >> 1),
        lambda t, x: (_twelve(x), 2 * x, (x / 2).floor()),
        make=_wholes(0, 32, 1),
        dtypes=WHOLE,
        learns=False,
    ),
    _scalar(
        "integer with",
        lambda t, x: (x + 3, 2 * x, x - 1, 100 - x, -x.abs() if x.dtype != t.uint8 else 0 - x * 0),
        lambda t, x: (x - -3, x + x, x + -1, -(x - 100), 0 - x),
        make=_wholes(1, 33, 1),
        dtypes=("int64", "int32", "int16"),
        learns=False,
    ),
    _scalar(
        "threshold with",
        lambda t, x: t.nn.functional.threshold(x, 0.25, -7),
        lambda t, x: t.where(x > 0.25, x, -7 + 0 * x),
    ),
    _scalar(
        "clamp to",
        lambda t, x: (x.clamp(max=0.25), x.clamp_min(-0.5), x.clamp(-1, 1)),
        lambda t, x: (
            t.where(x < 0.25, x, 0.25 + 0 * x),
            t.where(x > -0.5, x, -0.5 + 0 * x),
            t.where(x > 1, 1 + 0 * x, t.where(x < -1, -1 + 0 * x, x)),
        ),
    ),
    _scalar(
        "where with",
        lambda t, x: (t.where(x > 0, x, 3.0), t.where(x > 0, 3.0, x)),
        lambda t, x: (x * (x > 0) + 3.0 * (x <= 0), x * (x <= 0) + 3.0 * (x > 0)),
        learns=False,
    ),
    _scalar(
        "round to",
        lambda t, x: t.round(x, decimals=1),
        lambda t, x: (x * 10).round() / 10,
        make=lambda d: given(d.whole(-99, 99, *d.shape(2)).double() / 10 + 0.02),
        dtypes=FULL,
        learns=False,
    ),
    _scalar(
        "tensor of no dimension with",
        lambda t, x: (x + x.reshape(-1)[0], x * x.reshape(-1)[-1], x.reshape(-1)[0] - x),
        lambda t, x: (x + x[0, 0], x[-1, -1] * x, -(x - x[0, 0])),
        make=lambda d: given(d.uniform(-4, 4, *d.shape(2))),
    )._replace(split=False),
)


def _twelve(x: Any) -> Any:
    eight, four = (x / 8).floor() % 2, (x / 4).floor() % 2
    both = 8 * eight + 4 * four
    either = x + 8 * (1 - eight) + 4 * (1 - four)
    return both + either + (either - both)


FURTHER = (*TWO, *SCALARS)
