"""Slopes of the functions that networks are made of, held to float64 number by number.

The limit of an element is a share of its own slope, or of 1 where that is less: what a row of the
census allows follows the largest of all, and a slope of another form of a function may be within.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator

from ..judging.tolerance import SINGLE, Part, agree, source

COUNT = 2**13
LOW, HIGH = -8.0, 8.0
ROUNDINGS = 100.0
"""Of the larger of a slope and 1. Of a million numbers each the worst were off by 17.4 (`gelu` by
tanh), 5.8 (`silu`) and 5.5, all others by 4 at most, on a CPU with AVX-512."""
Function = Callable[[Any, Any], Any]


def _named(name: str, *rest: Any, **options: Any) -> Function:
    return lambda t, x: getattr(t.nn.functional, name)(x, *rest, **options)


def _of_torch(name: str) -> Function:
    return lambda t, x: getattr(t, name)(x)


FUNCTIONS: Dict[str, Function] = {
    "gelu": _named("gelu"),
    "gelu by tanh": _named("gelu", approximate="tanh"),
    **{
        name: _named(name)
        for name in (
            *("silu", "mish", "softplus", "elu", "selu", "celu", "logsigmoid", "softsign"),
            *("tanhshrink", "hardswish", "hardsigmoid", "leaky_relu", "relu", "relu6"),
        )
    },
    "softplus of two": _named("softplus", 2.0, 8.0),
    "elu of half": _named("elu", 0.5),
    "celu of three halves": _named("celu", 1.5),
    **{
        name: _of_torch(name)
        for name in ("sigmoid", "tanh", "erf", "erfc", "sin", "cos", "atan", "asinh", "expm1")
    },
    "exp": lambda t, x: x.exp(),
    "log1p": lambda t, x: x.abs().log1p(),
    "rsqrt": lambda t, x: (x.abs() + 0.1).rsqrt(),
    "logaddexp": lambda t, x: t.logaddexp(x, x / 2),
    "logit": lambda t, x: (x / 20 + 0.5).logit(),
    "power": lambda t, x: (x.abs() + 0.1) ** 2.5,
    "cube": lambda t, x: x**3,
}


def parts(torch: Any, device: str) -> Iterator[Part]:
    spread = torch.rand(COUNT, generator=source(torch, 44))
    given = spread * (HIGH - LOW) + LOW
    for name, run in FUNCTIONS.items():
        exact = _slope(torch, run, given.double())
        allowed = ROUNDINGS * SINGLE * exact.abs().clamp(min=1.0)
        yield agree(f"slope of {name}", _slope(torch, run, given.to(device)), exact, allowed)


def _slope(torch: Any, run: Function, given: Any) -> Any:
    leaf = given.detach().requires_grad_()
    (found,) = torch.autograd.grad(run(torch, leaf).sum(), leaf)
    return found
