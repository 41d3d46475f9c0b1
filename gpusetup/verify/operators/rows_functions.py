"""Functions of one number, element by element."""

from __future__ import annotations

from math import pi, sqrt
from typing import Any, Callable, Tuple

from . import definitions as by
from .drawing import Draw, Given, given
from .table import Operator


def _dims(d: Draw) -> int:
    return int(d.choice((1, 2, 2, 3, 4)))


def one(low: float, high: float) -> Callable[[Draw], Given]:
    return lambda d: given(d.uniform(low, high, *d.shape(_dims(d))))


def two(low: float, high: float) -> Callable[[Draw], Given]:
    """Two of one shape; the second sometimes broadcast along an axis."""

    def make(d: Draw) -> Given:
        shape = d.shape(_dims(d))
        other = list(shape)
        if d.choice((True, False, False)):
            other[d.choice(range(len(shape)))] = 1
        return given(d.uniform(low, high, *shape), d.uniform(low, high, *other))

    return make


def several(count: int, low: float, high: float, **options: Any) -> Callable[[Draw], Given]:
    def make(d: Draw) -> Given:
        shape = d.shape(_dims(d))
        return given(*(d.uniform(low, high, *shape) for _ in range(count)), **options)

    return make


def unary(
    name: str, low: float, high: float, exact: Any = None, slack: float = 1.0, **more: Any
) -> Operator:
    """A function of torch or of torch.nn.functional by its name."""

    def run(t: Any, x: Any) -> Any:
        found = getattr(t, name, None) or getattr(t.special, name, None)
        return (found or getattr(t.nn.functional, name))(x)

    return Operator(name, one(low, high), run, exact, slack=slack, split=True, **more)


def _sigmoid(t: Any, x: Any) -> Any:
    return 1 / (1 + (-x).exp())


def _tanh(t: Any, x: Any) -> Any:
    more = t.expm1(2 * x)
    return more / (more + 2)


def _cut(t: Any, x: Any, low: float, high: float) -> Any:
    return t.where(x < low, low + 0 * x, t.where(x > high, high + 0 * x, x))


def _erf_series(t: Any, x: Any) -> Any:
    """Abramowitz and Stegun 7.1.6, good for |x| <= 3."""
    term = total = x
    for n in range(1, 70):
        term = term * 2 * x * x / (2 * n + 1)
        total = total + term
    return 2 / sqrt(pi) * total * (-x * x).exp()


def _positive(t: Any, x: Any) -> Any:
    return t.where(x > 0, x, 0 * x)


FUNCTIONS: Tuple[Operator, ...] = (
    unary("exp", -15, 10, lambda t, x: t.pow(2.718281828459045235 + 0 * x, x), weight=3),
    unary("log", 0.01, 1000, lambda t, x: t.log2(x) * 0.6931471805599453, 2, weight=2),
    unary("sin", -30, 30, lambda t, x: -(x + pi / 2).cos(), 2)._replace(
        exact=lambda t, x: 2 * (x / 2).sin() * (x / 2).cos()
    ),
    unary("cos", -30, 30, lambda t, x: 1 - 2 * (x / 2).sin() ** 2, 2),
    unary("tanh", -4.5, 4.5, _tanh, 16, weight=3),
    unary("sqrt", 0.01, 1000, lambda t, x: x**0.5, weight=2),
    unary("rsqrt", 0.01, 1000, lambda t, x: 1 / x.sqrt(), weight=2),
    unary("abs", -9, 9, lambda t, x: t.where(x < 0, -x, x)),
    unary("neg", -9, 9, lambda t, x: 0 - x),
    unary("floor", -90, 90, lambda t, x: x - t.remainder(x, 1), learns=False),
    unary("round", -90, 90, learns=False),
    unary("erf", -2.4, 2.4, _erf_series, 4, weight=2),
    unary("sigmoid", -7.5, 7.5, _sigmoid, 16, weight=3),
    unary("relu", -3, 3, _positive, weight=4),
    unary("leaky_relu", -3, 3, lambda t, x: t.where(x > 0, x, 0.01 * x), 2, roundings_back=1),
    unary(
        "elu", -5, 3, lambda t, x: t.where(x > 0, x, t.expm1(x.clamp(max=0))), 2, roundings_back=1
    ),
    unary(
        "gelu",
        -2.5,
        5,
        lambda t, x: x / 2 * (1 + t.erf(x / sqrt(2))),
        24,
        weight=4,
        roundings_back=1,
    ),
    unary("silu", -9, 9, lambda t, x: x * _sigmoid(t, x), 4, weight=4, roundings_back=1),
    unary("softplus", -9, 9, by.softplus, 4, roundings_back=1),
    unary("hardswish", -6, 6, lambda t, x: x * _cut(t, x + 3, 0, 6) / 6, 4),
)
