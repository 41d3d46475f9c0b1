"""Elementwise functions, compared with Python's math module: near zero, far from zero, and with
NaN."""

from __future__ import annotations

import functools
import math
import operator
from itertools import accumulate, product
from math import nan
from typing import Any, Callable, Iterator, List, NamedTuple, Optional

import torch

from ...judging.tolerance import Part
from ...values import Outcome
from .answers import (
    HALVES,
    LEAST,
    Limit,
    ask_all,
    dtype_of,
    exactly,
    flat_list,
    formats_on,
    near,
    near_in_periods,
    offered,
    roundoff,
    tensor_of,
)
from .broadcasts import spread_choices, spread_pairs
from .extremes import far_numbers, powers
from .functions import Function, functions
from .number_lists import Number, repeated, sawtooth

LONG = 70_003
LENGTHS = (17, 1026, LONG)
"""A short length, one above 1,024 that is not a multiple of a kernel's vector length, and one that
several threads share (a CPU thread gets at least 32,768 elements)."""


def pointwise(device: str) -> Outcome:
    """Check that elementwise functions, quotients and reductions with NaN agree with Python's math
    module."""
    questions = (
        values_of_functions,
        far_numbers,
        powers,
        whole_quotients,
        spread_pairs,
        spread_choices,
        what_nan_gives,
        sums_of_exponentials,
    )
    return ask_all(device, questions, "Python's math")


def numbers_for(function: Function, dtype_name: str) -> List[float]:
    """The arguments to test a function with, rounded to the format."""
    numbers = list(function.numbers)
    if function.has_both_signs:
        # Zero is tested with one sign only.
        numbers += [-number for number in numbers if number]
    stored = torch.tensor(numbers, dtype=dtype_of(dtype_name))
    return flat_list(stored)


def values_of_functions(device: str) -> Iterator[Part]:
    """Catches a function that loses precision near zero, overflows too early, or leaves out the end
    of a tensor.

    Each function is also computed in place, and for an input with gaps in memory.
    """
    for dtype_name in formats_on(device):
        for function in functions():
            yield from values_of_function(function, dtype_name, device)


def values_of_function(function: Function, dtype_name: str, device: str) -> Iterator[Part]:
    """Compare one function for contiguous inputs, for inputs with gaps in memory, and in place."""
    numbers = numbers_for(function, dtype_name)
    exact = list(map(function.exact, numbers))
    limit = limit_of(function, dtype_name)
    for length in LENGTHS:
        inputs = tensor_of(repeated(numbers, length), dtype_name, device)
        label = f"{function.name} of {length} {dtype_name} numbers"
        computed = offered(functools.partial(function.run, inputs))
        if computed is None:
            continue
        yield near_in_periods(label, computed, exact, limit)
        if length == LONG:
            continue  # the calls below split a tensor among threads in the same way

        with_gaps = torch.stack([inputs, inputs + 1], 1)[:, 0]
        computed = function.run(with_gaps)
        yield near_in_periods(f"{label} with gaps", computed, exact, limit)

        write_in_place = in_place_form(function, inputs.clone())
        if write_in_place is not None:
            computed = write_in_place()
            yield near_in_periods(f"{label} in place", computed, exact, limit)


def in_place_form(function: Function, inputs: Any) -> Optional[Callable[[], Any]]:
    """Returns the tensor method that applies the function in place, or None if there is none."""
    # A function with fixed arguments, such as clamp, is a lambda here. Its in-place method
    # (`clamp_`) would need those arguments too.
    is_of_torch = function.run is getattr(torch, function.name, None)
    if not is_of_torch:
        return None
    return getattr(inputs, f"{function.name}_", None)


def limit_of(function: Function, dtype_name: str) -> Limit:
    """The error allowed in a function's value.

    For 32 and 64 bits it is 8 roundoffs, because libraries promise 4. For 16 bits it is 4
    roundoffs, because the value is computed in float32 and then rounded, plus 1e-6 near zero.
    """
    unit = roundoff(dtype_name)
    # Allow more if the value is a difference of larger numbers (see `Function.slack`).
    slack = function.slack * unit
    if dtype_name in HALVES:
        # Near zero, float32 polynomials are off by about 1e-7.
        return Limit(relative=4 * unit, absolute=2.0**-20 + slack)
    return Limit(relative=8 * unit, absolute=LEAST[dtype_name] + slack)


class Fraction(NamedTuple):
    """A dividend (`upper`) and a divisor (`lower`), both whole. The divisor is never zero."""

    upper: int
    lower: int


FRACTIONS = tuple(Fraction(*pair) for pair in product(range(-7, 8), (-3, -2, -1, 1, 2, 3)))
"""Dividends and divisors of each sign, with and without a remainder."""


def of_fractions(exact: Callable[[int, int], Number]) -> List[Number]:
    """Returns the function's value for the two numbers of each fraction."""
    values: List[Number] = []
    for upper, lower in FRACTIONS:
        values.append(exact(upper, lower))
    return values


def whole_quotients(device: str) -> Iterator[Part]:
    """Catches a quotient or remainder of negative numbers that is rounded in the wrong
    direction."""
    uppers = [fraction.upper for fraction in FRACTIONS]
    lowers = [fraction.lower for fraction in FRACTIONS]
    for dtype_name in (*formats_on(device), "int64", "int32"):
        upper = tensor_of(uppers, dtype_name, device)
        lower = tensor_of(lowers, dtype_name, device)

        rounded_down = of_fractions(lambda a, b: a // b)
        computed = torch.div(upper, lower, rounding_mode="floor")
        yield exactly(f"quotients rounded down, {dtype_name}", computed, rounded_down)
        rounded_to_zero = of_fractions(lambda a, b: int(a / b))
        computed = torch.div(upper, lower, rounding_mode="trunc")
        yield exactly(f"quotients cut, {dtype_name}", computed, rounded_to_zero)
        computed = upper // lower
        yield exactly(f"floor_divide, {dtype_name}", computed, rounded_down)

        # The result of `%` has the sign of the divisor; the result of fmod has the sign of the
        # dividend.
        exact = of_fractions(lambda a, b: a % b)
        computed = upper % lower
        yield exactly(f"remainders, {dtype_name}", computed, exact)
        exact = of_fractions(math.fmod)
        computed = torch.fmod(upper, lower)
        yield exactly(f"fmod, {dtype_name}", computed, exact)

        exact = of_fractions(lambda a, b: a * b)
        computed = upper * lower
        yield exactly(f"products, {dtype_name}", computed, exact)
        exact = of_fractions(lambda a, b: a + 2 * a * b)
        computed = torch.addcmul(upper, upper, lower, value=2)
        yield exactly(f"addcmul, {dtype_name}", computed, exact)
        if upper.is_floating_point():
            exact = of_fractions(lambda a, b: (a + b) / 2)
            computed = torch.lerp(upper, lower, 0.5)
            yield exactly(f"lerp, {dtype_name}", computed, exact)


def what_nan_gives(device: str) -> Iterator[Part]:
    """Catches a maximum, clamp, sum or other reduction that drops a NaN, which would hide that a
    training run has failed."""
    for dtype_name in formats_on(device):
        for length in LENGTHS[:2]:
            yield from what_last_nan_gives(length, dtype_name, device)


def what_last_nan_gives(length: int, dtype_name: str, device: str) -> Iterator[Part]:
    """Compare functions of a row whose last element is NaN. The other elements are whole numbers
    from 0 to 4."""
    whole_numbers = sawtooth(length - 1, period=5)
    values = [*whole_numbers, nan]
    inputs = tensor_of(values, dtype_name, device)
    ones = torch.ones_like(inputs)
    label = f"of {length} {dtype_name} numbers with NaN"

    # Elementwise functions must return NaN for NaN.
    at_most_one = [*(min(value, 1.0) for value in whole_numbers), nan]
    at_least_one = [*(max(value, 1.0) for value in whole_numbers), nan]
    computed = torch.minimum(inputs, ones)
    yield exactly(f"minimum {label}", computed, at_most_one)
    computed = torch.maximum(ones, inputs)
    yield exactly(f"maximum {label}", computed, at_least_one)
    computed = inputs.clamp(max=1)
    yield exactly(f"clamp {label}", computed, at_most_one)
    computed = torch.relu(inputs)
    yield exactly(f"relu {label}", computed, values)

    # If a row contains NaN, its sum, maximum and so on must be NaN.
    for method in ("sum", "max", "min", "mean", "amax", "prod"):
        reduce = getattr(inputs, method)
        computed = reduce()
        yield exactly(f"{method} {label}", computed, [nan])

    is_nan = [False] * (length - 1) + [True]
    is_finite = [True] * (length - 1) + [False]
    computed = inputs.isnan()
    yield exactly(f"isnan {label}", computed, is_nan)
    computed = inputs.isfinite()
    yield exactly(f"isfinite {label}", computed, is_finite)
    computed = inputs.isnan().any()
    yield exactly(f"any {label}", computed, [True])


def sums_of_exponentials(device: str) -> Iterator[Part]:
    """Catches a logsumexp that overflows, products with a wrong sign, and an imprecise variance far
    from zero."""
    for dtype_name in formats_on(device):
        for length in (17, 1026):
            yield from logarithms_of_sums(length, dtype_name, device)
            yield from products_of_signs(length, dtype_name, device)
            if dtype_name not in HALVES:
                yield from moments_far_from_zero(length, dtype_name, device)


def logarithms_of_sums(length: int, dtype_name: str, device: str) -> Iterator[Part]:
    """Compare the logsumexp of n equal numbers, which is the number plus log(n)."""
    limit = Limit(16 * roundoff(dtype_name))
    # exp(256) overflows in all formats except float64.
    for base in (0.0, 256.0):
        inputs = tensor_of([base] * length, dtype_name, device)
        exact = base + math.log(length)
        label = f"logsumexp of {length} times {base:g}, {dtype_name}"
        computed = inputs.logsumexp(0)
        yield near(label, computed, [exact], limit)


def products_of_signs(length: int, dtype_name: str, device: str) -> Iterator[Part]:
    """Compare the product and the running products of numbers that are all 1 or -1."""
    signs: List[float] = []
    for position in range(length):
        signs.append(-1.0 if position % 3 else 1.0)
    if signs.count(-1.0) % 2 == 0:
        # Use an odd number of -1s, so that the product is -1.
        signs[-1] = -signs[-1]
    running_products = list(accumulate(signs, operator.mul))

    inputs = tensor_of(signs, dtype_name, device)
    label = f"of {length} {dtype_name} numbers"
    computed = inputs.prod()
    yield exactly(f"product {label}", computed, [-1.0])
    computed = inputs.prod(0)
    yield exactly(f"product of a row {label}", computed, [-1.0])
    computed = inputs.cumprod(0)
    yield exactly(f"cumprod {label}", computed, running_products)


def moments_far_from_zero(length: int, dtype_name: str, device: str) -> Iterator[Part]:
    """Compare the variance and standard deviation of as many 1000s as 1002s. Both results are 1."""
    pairs = length // 2
    inputs = tensor_of([1000.0, 1002.0] * pairs, dtype_name, device)
    # The mean has a rounding error in proportion to the numbers, which are about 1000.
    limit = Limit(64 * roundoff(dtype_name) * 1000)
    label = f"of {length} {dtype_name} numbers"
    computed = inputs.var(0, unbiased=False)
    yield near(f"variance {label}", computed, [1.0], limit)
    computed = inputs.std(0, unbiased=False)
    yield near(f"deviation {label}", computed, [1.0], limit)
