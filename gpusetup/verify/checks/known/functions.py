"""Torch functions, their counterparts in Python, and the arguments to test them with.

Used by the checks `pointwise` and `gradients`.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Callable, NamedTuple, Tuple

import torch

ANY = (0.0, 1e-7, 1e-4, 0.03, 0.5, 0.75, 1.0, 1.5, 2.0, 3.25, 6.0, 9.0)
"""Arguments that are tested with both signs. The smallest ones are for expm1, because a kernel that
computes exp(x) - 1 loses all digits near zero."""
POSITIVE = (1e-7, 1e-4, 0.03, 0.5, 0.75, 1.0, 1.5, 2.0, 3.25, 6.0, 90.0, 1000.0)
"""Arguments for functions that are not defined below zero."""
ABOVE_MINUS_ONE = (-0.75, -0.5, -1e-4, -1e-7, 0.0, 1e-7, 1e-4, 0.5, 3.25, 90.0)
"""Arguments for log(1 + x)."""


# --- functions that Python's math does not have ---------------------------------------------------


def sigmoid(x: float) -> float:
    """Returns 1 / (1 + exp(-x)), written so that the exponential cannot overflow."""
    if x >= 0:
        return 1 / (1 + math.exp(-x))
    growth = math.exp(x)
    return growth / (1 + growth)


def softplus(x: float) -> float:
    """Returns log(1 + exp(x)), written so that the exponential cannot overflow."""
    distance_from_zero = abs(x)
    bend = math.log1p(math.exp(-distance_from_zero))
    return max(x, 0.0) + bend


def log_sigmoid(x: float) -> float:
    """Returns log(1 / (1 + exp(-x)))."""
    return -softplus(-x)


def leaky_relu(x: float) -> float:
    """Leaky ReLU with a slope of 1/4 below zero."""
    return max(x, 0.25 * x)


def elu(x: float) -> float:
    return x if x > 0 else math.expm1(x)


def celu(x: float) -> float:
    """CELU with alpha = 2."""
    alpha = 2
    if x > 0:
        return x
    return alpha * math.expm1(x / alpha)


def selu(x: float) -> float:
    """SELU with the two constants from its paper, which keep the mean at 0 and the variance
    at 1."""
    scale = 1.0507009873554805
    alpha = 1.6732632423543772
    if x > 0:
        return scale * x
    return scale * alpha * math.expm1(x)


def silu(x: float) -> float:
    return x * sigmoid(x)


def mish(x: float) -> float:
    return x * math.tanh(softplus(x))


def gelu(x: float) -> float:
    """GELU: x times the probability that a standard normal variable is below x."""
    standard = x / math.sqrt(2)
    share_below = math.erfc(-standard) / 2
    return x * share_below


def tanh_gelu(x: float) -> float:
    """The tanh approximation of GELU, with the constant from its paper."""
    cubic = x + 0.044715 * x**3
    scale = math.sqrt(2 / math.pi)
    share_below = 1 + math.tanh(scale * cubic)
    return 0.5 * x * share_below


def clamp(x: float, lowest: float, highest: float) -> float:
    return min(max(x, lowest), highest)


def hard_sigmoid(x: float) -> float:
    """Hard sigmoid: a straight line from 0 at x = -3 to 1 at x = 3, constant outside."""
    return clamp(x / 6 + 0.5, 0.0, 1.0)


def hard_swish(x: float) -> float:
    return x * hard_sigmoid(x)


def soft_shrink(x: float) -> float:
    """Soft shrinkage: moves x toward zero by 0.5; values from -0.5 to 0.5 become 0."""
    return x - clamp(x, -0.5, 0.5)


def soft_sign(x: float) -> float:
    return x / (1 + abs(x))


def rsqrt(x: float) -> float:
    return 1 / math.sqrt(x)


def exp2(x: float) -> float:
    return math.pow(2.0, x)


def sign(x: float) -> float:
    """The sign of x: 1, -1, or 0 for zero."""
    if x == 0:
        return 0.0
    return math.copysign(1.0, x)


def fraction(x: float) -> float:
    return x - math.trunc(x)


class Function(NamedTuple):
    """A function of torch, its counterpart in Python, and the arguments to test it with."""

    name: str
    run: Callable[[Any], Any]
    exact: Callable[[float], float]
    numbers: Tuple[float, ...] = ANY
    has_both_signs: bool = True
    slack: float = 0.0
    """An additional absolute error that is allowed, in unit roundoffs, because the value is a
    difference of numbers near 1."""


def functions() -> Tuple[Function, ...]:
    """All functions to test. Models and losses use them."""
    return (
        *logarithms_and_roots(),
        *bounded_functions(),
        *activations(),
        *growing_functions(),
        *functions_of_digits(),
    )


def positive_only(
    name: str, exact: Callable[[float], float], numbers: Tuple[float, ...] = POSITIVE
) -> Function:
    """A torch function that is only tested with the given numbers, not with their negatives."""
    run = getattr(torch, name)
    return Function(name, run, exact, numbers, has_both_signs=False)


def logarithms_and_roots() -> Tuple[Function, ...]:
    """Exponentials, logarithms, roots and the reciprocal."""
    return (
        Function("exp", torch.exp, math.exp),
        Function("expm1", torch.expm1, math.expm1),
        positive_only("log", math.log),
        positive_only("log2", math.log2),
        positive_only("log1p", math.log1p, ABOVE_MINUS_ONE),
        positive_only("sqrt", math.sqrt),
        positive_only("rsqrt", rsqrt),
        # The smallest number is left out: its reciprocal is too large for float16.
        Function("reciprocal", torch.reciprocal, lambda x: 1 / x, POSITIVE[1:]),
    )


def bounded_functions() -> Tuple[Function, ...]:
    """Trigonometric and other functions with bounded values."""
    return (
        Function("sin", torch.sin, math.sin, slack=1.0),
        Function("cos", torch.cos, math.cos, slack=1.0),
        Function("tanh", torch.tanh, math.tanh),
        Function("atan", torch.atan, math.atan),
        Function("erf", torch.erf, math.erf),
        # Test 40 too, because exp(-x) is almost zero there.
        Function("sigmoid", torch.sigmoid, sigmoid, (*ANY, 40.0)),
    )


def activations() -> Tuple[Function, ...]:
    """Activation functions, with torch's defaults or the constants given here."""
    f = torch.nn.functional
    gelu_by_tanh = functools.partial(f.gelu, approximate="tanh")
    torch_leaky_relu = functools.partial(f.leaky_relu, negative_slope=0.25)
    torch_celu = functools.partial(f.celu, alpha=2.0)
    return (
        Function("logsigmoid", f.logsigmoid, log_sigmoid, (*ANY, 96.0)),
        Function("softplus", f.softplus, softplus, slack=1.0),
        Function("relu", torch.relu, lambda x: max(x, 0.0)),
        Function("leaky_relu", torch_leaky_relu, leaky_relu),
        Function("elu", f.elu, elu),
        Function("silu", f.silu, silu),
        Function("gelu", f.gelu, gelu, slack=8.0),
        Function("gelu by tanh", gelu_by_tanh, tanh_gelu, slack=8.0),
        Function("relu6", f.relu6, lambda x: clamp(x, 0.0, 6.0)),
        Function("hardswish", f.hardswish, hard_swish),
        Function("hardsigmoid", f.hardsigmoid, hard_sigmoid),
        Function("hardtanh", f.hardtanh, lambda x: clamp(x, -1.0, 1.0)),
        Function("mish", f.mish, mish, slack=2.0),
        Function("selu", f.selu, selu),
        Function("celu", torch_celu, celu),
        Function("softsign", f.softsign, soft_sign),
        Function("softshrink", f.softshrink, soft_shrink),
    )


def growing_functions() -> Tuple[Function, ...]:
    """Functions whose values quickly become very large or almost zero, and two logarithms."""
    return (
        Function("sinh", torch.sinh, math.sinh),
        Function("cosh", torch.cosh, math.cosh),
        Function("exp2", torch.exp2, exp2),
        positive_only("log10", math.log10),
        positive_only("lgamma", math.lgamma, POSITIVE[2:])._replace(slack=8.0),
        Function("erfc", torch.erfc, math.erfc, ANY[:9], slack=1.0),
    )


def functions_of_digits() -> Tuple[Function, ...]:
    """Functions that round a number, cut it or change its sign, and small powers. All results
    except the powers are exact."""
    return (
        Function("sign", torch.sign, sign),
        Function("trunc", torch.trunc, lambda x: float(math.trunc(x))),
        Function("frac", torch.frac, fraction),
        Function("neg", torch.neg, lambda x: -x),
        Function("square", torch.square, lambda x: x * x),
        Function("to the third", lambda x: x**3, lambda x: x**3),
        Function("abs", torch.abs, abs),
        Function("floor", torch.floor, lambda x: float(math.floor(x))),
        Function("ceil", torch.ceil, lambda x: float(math.ceil(x))),
        # Ties go to the even number.
        Function("round", torch.round, lambda x: float(round(x)), (0.5, 1.5, 2.5, 3.25, 0.0)),
        Function("remainder by 2", lambda x: x.remainder(2), lambda x: x % 2, ANY[3:]),
        Function("fmod by 2", lambda x: x.fmod(2), lambda x: math.fmod(x, 2)),
        Function("clamp", lambda x: x.clamp(-1, 2), lambda x: clamp(x, -1.0, 2.0)),
    )
