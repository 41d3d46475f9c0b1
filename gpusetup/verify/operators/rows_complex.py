"""Complex numbers, and numbers of unlike formats together."""

from __future__ import annotations

from typing import Any, Callable, Tuple

from . import definitions as by
from .drawing import Draw, Given, given
from .rows_arithmetic import _wholes
from .rows_functions import _dims, one, several
from .table import FLOATS, FULL, Operator

# --- complex numbers -----------------------------------------------------------------------------


def _complex(
    name: str, run: Callable[..., Any], exact: Callable[..., Any], **more: Any
) -> Operator:
    """Two complex numbers as four real ones; `exact` has real arithmetic alone."""

    def made(t: Any, a: Any, b: Any, c: Any, e: Any) -> Any:
        found = run(t, t.complex(a, b), t.complex(c, e))
        return t.stack([found.real, found.imag], -1) if found.is_complex() else found

    def right(t: Any, a: Any, b: Any, c: Any, e: Any) -> Any:
        found = exact(t, a, b, c, e)
        return t.stack(found, -1) if isinstance(found, tuple) else found

    more = {"make": several(4, 0.3, 2), "slack": 4.0, **more}
    return Operator(f"complex {name}", run=made, exact=right, dtypes=FULL, **more)


def _matrices(d: Draw) -> Given:
    n, k, m = (d.length(65) for _ in range(3))
    return given(d.normal(n, k), d.normal(n, k), d.normal(k, m), d.normal(k, m))


def _exp(t: Any, a: Any, b: Any) -> Any:
    return a.exp() * b.cos(), a.exp() * b.sin()


def _crossed(t: Any, x: Any, y: Any) -> Any:
    return by.product(t, x, y)


COMPLEX: Tuple[Operator, ...] = (
    _complex("add", lambda t, x, y: x + y, lambda t, a, b, c, e: (a - (-c), b - (-e)), weight=2.0),
    _complex("mul", lambda t, x, y: x * y, lambda t, a, b, c, e: (a * c - b * e, a * e + b * c)),
    _complex(
        "div",
        lambda t, x, y: x / y,
        lambda t, a, b, c, e: (
            (a * c + b * e) / (c * c + e * e),
            (b * c - a * e) / (c * c + e * e),
        ),
    ),
    _complex("exp", lambda t, x, y: x.exp(), lambda t, a, b, c, e: _exp(t, a, b)),
    _complex(
        "log",
        lambda t, x, y: x.log(),
        lambda t, a, b, c, e: ((a * a + b * b).log() / 2, t.atan2(b, a)),
    ),
    _complex("abs", lambda t, x, y: x.abs(), lambda t, a, b, c, e: (a * a + b * b).sqrt()),
    _complex("angle", lambda t, x, y: x.angle(), lambda t, a, b, c, e: t.atan2(b, a)),
    _complex(
        "conj", lambda t, x, y: x.conj() * y, lambda t, a, b, c, e: (a * c + b * e, a * e - b * c)
    ),
    _complex(
        "polar",
        lambda t, x, y: t.polar(x.real.contiguous(), x.imag.contiguous()),
        lambda t, a, b, c, e: (a * b.cos(), a * b.sin()),
    ),
    _complex(
        "sum",
        lambda t, x, y: x.reshape(-1).sum() * t.ones_like(x),
        lambda t, a, b, c, e: (a.sum() * t.ones_like(a), b.sum() * t.ones_like(a)),
        learns=False,
    ),
    _complex(
        "mm",
        lambda t, x, y: x @ y,
        lambda t, a, b, c, e: (
            _crossed(t, a, c) - _crossed(t, b, e),
            _crossed(t, a, e) + _crossed(t, b, c),
        ),
        make=_matrices,
        arithmetic="product",
        sizes=("tiny", "warp", "tile"),
        weight=2.0,
    ),
    _complex(
        "mm of conjugates",
        lambda t, x, y: y.mH @ x.mH,
        lambda t, a, b, c, e: (
            (_crossed(t, a, c) - _crossed(t, b, e)).t(),
            -(_crossed(t, a, e) + _crossed(t, b, c)).t(),
        ),
        make=_matrices,
        arithmetic="product",
        sizes=("tiny", "warp", "tile"),
    ),
)

# --- numbers of unlike formats -------------------------------------------------------------------


def _unlike(d: Draw) -> Given:
    shape = d.shape(_dims(d))
    return given(d.whole(-9, 9, *shape).double(), d.whole(1, 9, *shape))


MIXED: Tuple[Operator, ...] = (
    Operator(
        "float with integer",
        _unlike,
        lambda t, x, i: (x + i, x * i, i - x, i / x.abs().clamp(min=1)),
        lambda t, x, i: (x - -i, i * x, -(x - i), i * (1 / x.abs().clamp(min=1))),
        learns=False,
        slack=2,
    ),
    Operator(
        "half with float",
        several(2, -4, 4),
        lambda t, x, y: x + y.float() if x.dtype != t.float64 else x + y,
        lambda t, x, y: x - -y,
        dtypes=FLOATS[:3],
        learns=False,
    ),
    Operator(
        "float and flag",
        _unlike,
        lambda t, x, i: (x * (i > 4), x + (i > 4), (i > 4) * i),
        lambda t, x, i: (
            t.where(i > 4, x, 0 * x),
            t.where(i > 4, x + 1, x),
            t.where(i > 4, i, 0 * i),
        ),
        learns=False,
    ),
    Operator(
        "gcd and lcm",
        _wholes(1, 11),
        lambda t, x, y: (t.gcd(x, y), t.lcm(x, y)),
        lambda t, x, y: (_divisor(t, x, y), x * y / _divisor(t, x, y)),
        dtypes=("int64", "int32", "int16"),
        learns=False,
        split=True,
    ),
    Operator(
        "isin",
        lambda d: given(d.whole(0, 50, *d.shape(2)).double(), d.whole(0, 50, 17).double()),
        lambda t, x, y: t.isin(x, y),
        lambda t, x, y: (x.unsqueeze(-1) == y).any(-1),
        dtypes=("float32", "float64", "int64", "int32"),
        learns=False,
    ),
    Operator(
        "frexp and ldexp",
        one(0.3, 99),
        lambda t, x: (*t.frexp(x), t.ldexp(x, t.full(x.shape, 3, device=x.device))),
        lambda t, x: (
            x / 2 ** (t.log2(x).floor() + 1),
            (t.log2(x).floor() + 1).int(),
            x * 8,
        ),
        dtypes=FULL,
        learns=False,
        split=True,
    ),
)


def _divisor(t: Any, x: Any, y: Any) -> Any:
    found = 1 + 0 * x
    for n in range(2, 11):
        found = t.where((x % n == 0) & (y % n == 0), n + 0 * x, found)
    return found


COMPLEX_AND_MIXED = (*COMPLEX, *MIXED)
