"""Functions of single numbers, beside Python's math: near zero, far from it, at NaN and ties."""

from __future__ import annotations

import functools
import math
from math import nan
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Tuple

import torch

from ...judging.tolerance import Part
from ...values import Outcome
from .answers import (
    HALVES,
    LEAST,
    Limit,
    ask_all,
    exactly,
    flat_list,
    formats_on,
    near,
    near_in_periods,
    offered,
    repeated,
    roundoff,
    tensor_of,
)

LONG = 70_003
LENGTHS = (17, 1026, LONG)
"""A length within one vector, one past 1,024 that ends within a vector, and one that several
threads share (a thread of the CPU takes 32,768 elements or more)."""
ANY = (0.0, 1e-7, 1e-4, 0.03, 0.5, 0.75, 1.0, 1.5, 2.0, 3.25, 6.0, 9.0)
"""Both signs of these are asked. Near zero exp(x) - 1 and log(1 + x) lose all their digits, unless
they are functions of their own."""
POSITIVE = (1e-7, 1e-4, 0.03, 0.5, 0.75, 1.0, 1.5, 2.0, 3.25, 6.0, 90.0, 1000.0)
ABOVE_MINUS_ONE = (-0.75, -0.5, -1e-4, -1e-7, 0.0, 1e-7, 1e-4, 0.5, 3.25, 90.0)


def sigmoid(x: float) -> float:
    """Without an exponential that has no end."""
    if x >= 0:
        return 1 / (1 + math.exp(-x))
    return math.exp(x) / (1 + math.exp(x))


def softplus(x: float) -> float:
    rest = math.log1p(math.exp(-abs(x)))
    return max(x, 0.0) + rest


def normal_share(x: float) -> float:
    """The share of the normal distribution below x."""
    return math.erfc(-x / math.sqrt(2)) / 2


def tanh_gelu(x: float) -> float:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + math.tanh(inner))


def hard_sigmoid(x: float) -> float:
    """A straight line from 0 at -3 to 1 at 3."""
    return min(max(x / 6 + 0.5, 0.0), 1.0)


def selu(x: float) -> float:
    """With the two constants of its paper, which keep the mean at 0 and the variance at 1."""
    scale, alpha = 1.0507009873554805, 1.6732632423543772
    return scale * x if x > 0 else scale * alpha * math.expm1(x)


def celu(x: float) -> float:
    """With alpha 2."""
    return x if x > 0 else 2 * math.expm1(x / 2)


class Function(NamedTuple):
    """A function of torch, the same in Python, and the numbers that it is asked for."""

    name: str
    run: Callable[[Any], Any]
    exact: Callable[[float], float]
    numbers: Tuple[float, ...] = ANY
    has_both_signs: bool = True
    slack: float = 0.0
    """Roundoffs of 1 by which an answer may be off besides: it is a difference of such numbers."""


def functions() -> Tuple[Function, ...]:
    """What models and losses are made of."""
    f = torch.nn.functional
    return (
        Function("exp", torch.exp, math.exp),
        Function("expm1", torch.expm1, math.expm1),
        Function("log", torch.log, math.log, POSITIVE, has_both_signs=False),
        Function("log2", torch.log2, math.log2, POSITIVE, has_both_signs=False),
        Function("log1p", torch.log1p, math.log1p, ABOVE_MINUS_ONE, has_both_signs=False),
        Function("sqrt", torch.sqrt, math.sqrt, POSITIVE, has_both_signs=False),
        Function("rsqrt", torch.rsqrt, lambda x: 1 / math.sqrt(x), POSITIVE, has_both_signs=False),
        Function("reciprocal", torch.reciprocal, lambda x: 1 / x, POSITIVE[1:]),
        Function("sin", torch.sin, math.sin, slack=1.0),
        Function("cos", torch.cos, math.cos, slack=1.0),
        Function("tanh", torch.tanh, math.tanh),
        Function("atan", torch.atan, math.atan),
        Function("erf", torch.erf, math.erf),
        Function("sigmoid", torch.sigmoid, sigmoid, (*ANY, 40.0)),
        Function("logsigmoid", f.logsigmoid, lambda x: -softplus(-x), (*ANY, 96.0)),
        Function("softplus", f.softplus, softplus, slack=1.0),
        Function("relu", torch.relu, lambda x: max(x, 0.0)),
        Function("leaky_relu", lambda x: f.leaky_relu(x, 0.25), lambda x: max(x, 0.25 * x)),
        Function("elu", f.elu, lambda x: x if x > 0 else math.expm1(x)),
        Function("silu", f.silu, lambda x: x * sigmoid(x)),
        Function("gelu", f.gelu, lambda x: x * normal_share(x), slack=8.0),
        Function("gelu by tanh", lambda x: f.gelu(x, approximate="tanh"), tanh_gelu, slack=8.0),
        Function("relu6", f.relu6, lambda x: min(max(x, 0.0), 6.0)),
        Function("hardswish", f.hardswish, lambda x: x * hard_sigmoid(x)),
        Function("hardsigmoid", f.hardsigmoid, hard_sigmoid),
        Function("hardtanh", f.hardtanh, lambda x: min(max(x, -1.0), 1.0)),
        Function("mish", f.mish, lambda x: x * math.tanh(softplus(x)), slack=2.0),
        Function("selu", f.selu, selu),
        Function("celu", lambda x: f.celu(x, 2.0), celu),
        Function("softsign", f.softsign, lambda x: x / (1 + abs(x))),
        Function("softshrink", f.softshrink, lambda x: x - min(max(x, -0.5), 0.5)),
        Function("sinh", torch.sinh, math.sinh),
        Function("cosh", torch.cosh, math.cosh),
        Function("exp2", torch.exp2, lambda x: math.pow(2.0, x)),
        Function("log10", torch.log10, math.log10, POSITIVE, has_both_signs=False),
        Function("lgamma", torch.lgamma, math.lgamma, POSITIVE[2:], False, slack=8.0),
        Function("erfc", torch.erfc, math.erfc, ANY[:9], slack=1.0),
        Function("sign", torch.sign, lambda x: float((x > 0) - (x < 0))),
        Function("trunc", torch.trunc, lambda x: float(math.trunc(x))),
        Function("frac", torch.frac, lambda x: x - math.trunc(x)),
        Function("neg", torch.neg, lambda x: -x),
        Function("square", torch.square, lambda x: x * x),
        Function("to the third", lambda x: x**3, lambda x: x**3),
        Function("abs", torch.abs, abs),
        Function("floor", torch.floor, lambda x: float(math.floor(x))),
        Function("ceil", torch.ceil, lambda x: float(math.ceil(x))),
        Function("round", torch.round, lambda x: float(round(x)), (0.5, 1.5, 2.5, 3.25, 0.0)),
        Function("remainder by 2", lambda x: x.remainder(2), lambda x: x % 2, ANY[3:]),
        Function("fmod by 2", lambda x: x.fmod(2), lambda x: math.fmod(x, 2)),
        Function("clamp", lambda x: x.clamp(-1, 2), lambda x: min(max(x, -1.0), 2.0)),
    )


def pointwise(device: str) -> Outcome:
    """Functions, quotients and comparisons of single numbers are those of Python's math."""
    questions = (values_of_functions, whole_quotients, what_nan_gives, sums_of_exponentials)
    return ask_all(device, questions, "Python's math")


def numbers_for(function: Function, name: str) -> List[float]:
    """Its numbers as the format holds them, since the exact answer is that of the rounded ones."""
    numbers = list(function.numbers)
    if function.has_both_signs:
        numbers += [-number for number in numbers if number]
    return flat_list(torch.tensor(numbers, dtype=getattr(torch, name)))


def values_of_functions(device: str) -> Iterator[Part]:
    """Catches a function that loses its digits near zero, ends too early, or skips a tail.

    Each is also asked to write over its input, and to write into a tensor that has gaps.
    """
    for name in formats_on(device):
        for function in functions():
            numbers = numbers_for(function, name)
            exact = [function.exact(number) for number in numbers]
            limit = limit_of(function, name)
            for length in LENGTHS:
                inputs = tensor_of(repeated(numbers, length), name, device)
                label = f"{function.name} of {length} {name} numbers"
                computed = offered(functools.partial(function.run, inputs))
                if computed is None:
                    continue
                yield near_in_periods(label, computed, exact, limit)
                if length == LONG:
                    continue  # each way below cuts a tensor into the same parts
                spread = torch.stack([inputs, inputs + 1], 1)[:, 0]
                computed = function.run(spread)
                yield near_in_periods(f"{label} with gaps", computed, exact, limit)
                in_place = in_place_form(function, inputs.clone())
                if in_place is not None:
                    yield near_in_periods(f"{label} in place", in_place(), exact, limit)


def in_place_form(function: Function, inputs: Any) -> Optional[Callable[[], Any]]:
    """The method that writes a function's values over its input; None if there is none."""
    # Methods of other names want arguments (`clamp_`).
    is_of_torch = function.run is getattr(torch, function.name, None)
    if not is_of_torch:
        return None
    return getattr(inputs, f"{function.name}_", None)


def limit_of(function: Function, name: str) -> Limit:
    """Eight roundoffs of the answer (libraries promise four; halves are rounded once more)."""
    unit = roundoff(name)
    if name in HALVES:
        # Their formulas are those of float32, with polynomials that are off by some 1e-7 near zero.
        return Limit(4 * unit, 2.0**-20 + function.slack * unit)
    return Limit(8 * unit, LEAST[name] + function.slack * unit)


def whole_quotients(device: str) -> Iterator[Part]:
    """Catches a quotient or remainder that is rounded to the other side for negative numbers."""
    pairs = [(a, b) for a in range(-7, 8) for b in (-3, -2, -1, 1, 2, 3)]
    for name in (*formats_on(device), "int64", "int32"):
        upper = tensor_of([a for a, _ in pairs], name, device)
        lower = tensor_of([b for _, b in pairs], name, device)
        floors = [a // b for a, b in pairs]
        computed = torch.div(upper, lower, rounding_mode="floor")
        yield exactly(f"quotients rounded down, {name}", computed, floors)
        computed = torch.div(upper, lower, rounding_mode="trunc")
        yield exactly(f"quotients cut, {name}", computed, [int(a / b) for a, b in pairs])
        yield exactly(f"floor_divide, {name}", upper // lower, floors)
        yield exactly(f"remainders, {name}", upper % lower, [a % b for a, b in pairs])
        computed = torch.fmod(upper, lower)
        yield exactly(f"fmod, {name}", computed, [math.fmod(a, b) for a, b in pairs])
        yield exactly(f"products, {name}", upper * lower, [a * b for a, b in pairs])
        computed = torch.addcmul(upper, upper, lower, value=2)
        yield exactly(f"addcmul, {name}", computed, [a + 2 * a * b for a, b in pairs])
        if upper.is_floating_point():
            computed = torch.lerp(upper, lower, 0.5)
            yield exactly(f"lerp, {name}", computed, [(a + b) / 2 for a, b in pairs])


def what_nan_gives(device: str) -> Iterator[Part]:
    """Catches a maximum, clamp or sum that loses a NaN, behind which training goes on."""
    for name in formats_on(device):
        for length in LENGTHS[:2]:
            values = [float(position % 5) for position in range(length)]
            values[-1] = nan
            inputs = tensor_of(values, name, device)
            ones = torch.ones_like(inputs)
            label = f"of {length} {name} numbers with NaN"
            capped: List[float] = [min(value, 1.0) for value in values[:-1]] + [nan]
            raised = [max(value, 1.0) for value in values[:-1]] + [nan]
            computed = torch.minimum(inputs, ones)
            yield exactly(f"minimum {label}", computed, capped)
            computed = torch.maximum(ones, inputs)
            yield exactly(f"maximum {label}", computed, raised)
            computed = inputs.clamp(max=1)
            yield exactly(f"clamp {label}", computed, capped)
            computed = torch.relu(inputs)
            yield exactly(f"relu {label}", computed, values)
            for method in ("sum", "max", "min", "mean", "amax", "prod"):
                computed = getattr(inputs, method)()
                yield exactly(f"{method} {label}", computed, [nan])
            flags = [False] * (length - 1) + [True]
            computed = inputs.isnan()
            yield exactly(f"isnan {label}", computed, flags)
            computed = inputs.isfinite()
            yield exactly(f"isfinite {label}", computed, [not flag for flag in flags])
            computed = inputs.isnan().any()
            yield exactly(f"any {label}", computed, [True])


def sums_of_exponentials(device: str) -> Iterator[Part]:
    """Catches a logsumexp of large numbers that has no end, and products that lose a sign."""
    for name in formats_on(device):
        for length in (17, 1026):
            for base in (0.0, 256.0):
                inputs = tensor_of([base] * length, name, device)
                exact = [base + math.log(length)]
                limit = Limit(16 * roundoff(name))
                label = f"logsumexp of {length} times {base:g}, {name}"
                computed = inputs.logsumexp(0)
                yield near(label, computed, exact, limit)
            signs = [-1.0 if position % 3 else 1.0 for position in range(length)]
            if signs.count(-1.0) % 2 == 0:
                signs[-1] = -signs[-1]  # an odd number of them: the product is negative
            inputs = tensor_of(signs, name, device)
            label = f"of {length} {name} numbers"
            computed = inputs.prod()
            yield exactly(f"product {label}", computed, [-1.0])
            computed = inputs.prod(0)
            yield exactly(f"product of a row {label}", computed, [-1.0])
            running: List[float] = []
            for sign in signs:
                running.append(sign * (running[-1] if running else 1.0))
            computed = inputs.cumprod(0)
            yield exactly(f"cumprod {label}", computed, running)
            deviations = [float(position % 2) * 2 + 1000 for position in range(length // 2 * 2)]
            if name in HALVES:
                continue
            inputs = tensor_of(deviations, name, device)
            limit = Limit(64 * roundoff(name) * 1000)
            computed = inputs.var(0, unbiased=False)
            yield near(f"variance {label}", computed, [1.0], limit)
            computed = inputs.std(0, unbiased=False)
            yield near(f"deviation {label}", computed, [1.0], limit)
