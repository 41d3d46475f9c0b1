"""Special functions, and calls with a number in place of a tensor."""

from __future__ import annotations

from typing import Any, Callable, Tuple

from .drawing import given
from .rows_arithmetic import _wholes
from .rows_functions import one, several, two
from .table import FLOATS, FULL, WHOLE, Operator


def _named(t: Any, name: str) -> Any:
    return getattr(t.special, name, None) or getattr(t, name)


def _special(name: str, low: float, high: float, slack: float = 32.0, **more: Any) -> Operator:
    """By its name; the exact answer is its own in float64, in small contiguous pieces."""
    more = {"dtypes": FULL, "learns": False, **more}
    return Operator(
        f"special {name}",
        one(low, high),
        lambda t, x: _named(t, name)(x),
        slack=slack,
        split=True,
        **more,
    )


ONE: Tuple[Operator, ...] = (
    *(_special(name, -4, 4, learns=True) for name in ("i0e", "i1", "i1e", "erfcx", "log_ndtr")),
    _special("ndtr", -4, 4, 64, learns=True, dtypes=FLOATS),
    _special("entr", 0.05, 4, learns=True),
    _special("ndtri", 0.05, 0.95, learns=True),
    _special("expit", -8, 8, 16, dtypes=FLOATS, learns=True),
    *(_special(f"bessel_{name}", 0.3, 2, 256) for name in ("j0", "j1")),
    *(_special(f"bessel_{name}", 1.2, 1.8, 256) for name in ("y0", "y1")),
    *(_special(f"modified_bessel_{name}", 0.3, 4, 256) for name in ("i0", "i1", "k0", "k1")),
    *(_special(f"scaled_modified_bessel_{name}", 0.3, 4, 256) for name in ("k0", "k1")),
    _special("spherical_bessel_j0", 0.3, 2, 256),
    _special("airy_ai", -1, 2, 256),
    _special("angle", 0.5, 4, dtypes=FLOATS),
    _special("sgn", -4, 4, dtypes=FLOATS),
    _special("positive", -4, 4, dtypes=FLOATS),
    _special("rad2deg", -4, 4, dtypes=FLOATS, learns=True),
    _special("isposinf", -4, 4, dtypes=FLOATS),
    _special("isneginf", -4, 4, dtypes=FLOATS),
    _special("logical_not", -4, 4, dtypes=(*FLOATS, *WHOLE)),
)


Step = Callable[[int, Any, Any, Any], Any]
"""The polynomial n + 1 from n, the argument, the polynomial n and the one before."""


def _doubling(n: int, x: Any, now: Any, before: Any) -> Any:
    return 2 * x * now - before


def _polynomial(name: str, first: Callable[[Any], Any], step: Step = _doubling) -> Operator:
    """The exact answer is made step by step, each from the two before."""

    def exact(t: Any, x: Any) -> Any:
        x = 2 * x - 1 if name.startswith("shifted") else x
        found = [1 + 0 * x, first(x)]
        for n in range(1, max(DEGREES)):
            found.append(step(n, x, found[n], found[n - 1]))
        return t.stack([found[n] for n in DEGREES])

    return Operator(
        f"{name} polynomials",
        one(0.55, 0.95),
        lambda t, x: t.stack([getattr(t.special, name)(x, n) for n in DEGREES]),
        exact,
        dtypes=FULL,
        learns=False,
        slack=256,
    )


DEGREES = (0, 1, 3, 5)
SECOND = {
    "t": lambda x: x,
    "u": lambda x: 2 * x,
    "v": lambda x: 2 * x - 1,
    "w": lambda x: 2 * x + 1,
}
POLYNOMIALS = (
    *(_polynomial(f"chebyshev_polynomial_{kind}", first) for kind, first in SECOND.items()),
    *(_polynomial(f"shifted_chebyshev_polynomial_{kind}", first) for kind, first in SECOND.items()),
    _polynomial(
        "hermite_polynomial_h", lambda x: 2 * x, lambda n, x, now, old: 2 * x * now - 2 * n * old
    ),
    _polynomial("hermite_polynomial_he", lambda x: x, lambda n, x, now, old: x * now - n * old),
    _polynomial(
        "laguerre_polynomial_l",
        lambda x: 1 - x,
        lambda n, x, now, old: ((2 * n + 1 - x) * now - n * old) / (n + 1),
    ),
    _polynomial(
        "legendre_polynomial_p",
        lambda x: x,
        lambda n, x, now, old: ((2 * n + 1) * x * now - n * old) / (n + 1),
    ),
)


def _two(name: str, make: Any, run: Any, exact: Any = None, **more: Any) -> Operator:
    return Operator(name, make, run, exact, split=True, **{"slack": 8.0, **more})


TWO: Tuple[Operator, ...] = (
    _two("xlogy", two(0.1, 4), lambda t, x, y: t.xlogy(x, y), lambda t, x, y: x * y.log()),
    _two(
        "xlog1py",
        two(0.1, 4),
        lambda t, x, y: t.special.xlog1py(x, y),
        lambda t, x, y: x * (1 + y).log(),
    ),
    _two("zeta", two(1.5, 6), lambda t, x, y: t.special.zeta(x, y), dtypes=FULL, learns=False),
    _two("fmax", several(2, -9, 9), lambda t, x, y: t.fmax(x, y), learns=False),
    _two("fmin", several(2, -9, 9), lambda t, x, y: t.fmin(x, y), learns=False),
    _two(
        "fmod",
        two(1, 9),
        lambda t, x, y: t.fmod(x, y),
        lambda t, x, y: x - y * (x / y).trunc(),
        dtypes=("float64",),
        learns=False,
        slack=64,
    ),
    _two("float_power", two(0.2, 3), lambda t, x, y: t.float_power(x, y), learns=False),
    _two(
        "logaddexp2",
        two(-9, 9),
        lambda t, x, y: t.logaddexp2(x, y),
        lambda t, x, y: t.log2(t.exp2(x) + t.exp2(y)),
        dtypes=FULL,
    ),
    _two(
        "heaviside",
        two(-3, 3),
        lambda t, x, y: t.heaviside(x, y),
        lambda t, x, y: t.where(x > 0, 1 + 0 * x, t.where(x < 0, 0 * x, y)),
        learns=False,
    ),
    _two(
        "igamma",
        two(0.5, 5),
        lambda t, x, y: (t.special.gammainc(x, y), t.special.gammaincc(x, y)),
        dtypes=FULL,
        learns=False,
        slack=256,
    ),
    _two(
        "rsub",
        two(-9, 9),
        lambda t, x, y: t.rsub(x, y, alpha=2),
        lambda t, x, y: y - 2 * x,
        learns=False,
    ),
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
    _two(
        "mvlgamma",
        one(2, 9),
        lambda t, x: t.mvlgamma(x, 2),
        lambda t, x: t.lgamma(x) + t.lgamma(x - 0.5) + 0.5723649429247001,
        dtypes=FULL,
        slack=64,
    ),
    _two(
        "polygamma",
        one(1, 9),
        lambda t, x: (t.polygamma(1, x), t.polygamma(2, x)),
        dtypes=FULL,
        learns=False,
        slack=64,
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


FURTHER = (*ONE, *POLYNOMIALS, *TWO, *SCALARS)
