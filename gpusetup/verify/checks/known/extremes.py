"""Functions of very large and very small numbers, and powers with both signs. Part of the check
`pointwise`.

Kernels have separate paths for such numbers. For example, the sine of a number above 105,615 needs
2 / pi with about two hundred bits, and an exponential becomes infinite or almost zero.
"""

from __future__ import annotations

import functools
import math
import operator
from itertools import product
from math import inf, nan
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import torch

from ...judging.tolerance import Part
from .answers import (
    HALVES,
    LEAST,
    Limit,
    dice,
    dtype_of,
    exactly,
    flat_list,
    formats_on,
    near_in_periods,
    offered,
    roundoff,
    tensor_of,
)
from .functions import exp2, gelu, rsqrt, sigmoid, silu, softplus
from .number_lists import Number, repeated

LONG = 1027
"""A length above 1,024 that is not a multiple of a kernel's vector length."""
LARGEST: Dict[str, float] = {
    "float64": 1.7976931348623157e308,
    "float32": 3.4028234663852886e38,
    "float16": 65_504.0,
    "bfloat16": 3.3895313892515355e38,
}
"""The largest number of each format; anything larger is infinite. No expected result in this file
is close to that border."""
GROWING = (2.0, 5.5, 9.0, 10.5, 12.0, 30.0, 80.0, 87.0, 90.0, 100.0, 105.0, 600.0, 720.0, 1e4, 1e30)
"""Arguments for exponentials, tested with both signs. Their results are inside, close to and beyond
the range of each format."""
TINY = (2.0**-149, 2.0**-133, 2.0**-126, 2.0**-100, 2.0**-24, 2.0**-14, 2.0**-12)
"""The smallest numbers of float32, bfloat16 and float16, and larger ones. They are tested with both
signs."""
POSITIVE = (2.0**-126, 1e-30, 2.0**-24, 2.0**-14, 1 - 2.0**-8, 1 + 2.0**-7, 6e4, 1e10, 1e30, 3e38)
"""Arguments for logarithms: both ends of the formats, and both sides of 1, where a logarithm easily
loses digits."""


class FarFunction(NamedTuple):
    """A torch function, the same function in Python, and the arguments to test."""

    name: str
    run: Callable[[Any], Any]
    exact: Callable[[float], float]
    numbers: Tuple[float, ...]
    slack: float = 0.0
    """An additional absolute error that is allowed, in unit roundoffs."""


def far_angles() -> Tuple[float, ...]:
    """Random arguments for sine and cosine: two for every second power of two, up to the end of
    float32.

    Arguments from 2**17 on are above 105,615, where CUDA uses a different argument reduction.
    """
    chance = dice("far angles")
    angles: List[float] = []
    for exponent in range(3, 127, 2):
        for _ in range(2):
            angles.append(2.0**exponent * (1 + chance.random()))
    return tuple(angles)


def far_functions() -> Tuple[FarFunction, ...]:
    """The functions to test with very small and very large arguments."""
    both_ends = TINY + GROWING
    angles = TINY + far_angles()
    # SiLU is x / (1 + exp(-x)). At x = -90 the exponential overflows float32 although the result is
    # not yet zero, so 90 is left out.
    within_exponential = tuple(number for number in both_ends if number != 90.0)
    functional = torch.nn.functional
    return (
        # The angle is reduced to below 2 pi, with an error of a few roundoffs.
        FarFunction("sin", torch.sin, math.sin, angles, slack=4.0),
        FarFunction("cos", torch.cos, math.cos, angles, slack=4.0),
        FarFunction("tan", torch.tan, math.tan, angles, slack=4.0),
        FarFunction("exp", torch.exp, math.exp, both_ends),
        FarFunction("expm1", torch.expm1, math.expm1, both_ends),
        FarFunction("exp2", torch.exp2, exp2, both_ends),
        FarFunction("sinh", torch.sinh, math.sinh, both_ends),
        FarFunction("cosh", torch.cosh, math.cosh, both_ends),
        FarFunction("tanh", torch.tanh, math.tanh, (*both_ends, inf)),
        FarFunction("erf", torch.erf, math.erf, (*both_ends, inf)),
        FarFunction("erfc", torch.erfc, math.erfc, both_ends, slack=1.0),
        FarFunction("atan", torch.atan, math.atan, (*both_ends, inf)),
        FarFunction("sigmoid", torch.sigmoid, sigmoid, (*both_ends, inf)),
        FarFunction("softplus", functional.softplus, torch_softplus, both_ends, slack=1.0),
        FarFunction("silu", functional.silu, silu, within_exponential),
        FarFunction("gelu", functional.gelu, gelu, both_ends, slack=8.0),
    )


def torch_softplus(x: float) -> float:
    """Softplus with torch's threshold: above 20 it returns x itself."""
    return x if x > 20 else softplus(x)


def positive_functions() -> Tuple[FarFunction, ...]:
    """The functions that are only tested with zero and positive numbers, most of them because they
    are not defined elsewhere."""
    numbers = (0.0, *POSITIVE, inf)
    tiny_numbers = (0.0, *TINY, *POSITIVE, inf)
    return (
        FarFunction("log", torch.log, at_zero(math.log, -inf), numbers),
        FarFunction("log2", torch.log2, at_zero(math.log2, -inf), numbers),
        FarFunction("log10", torch.log10, at_zero(math.log10, -inf), numbers),
        FarFunction("log1p", torch.log1p, math.log1p, tiny_numbers),
        FarFunction("sqrt", torch.sqrt, math.sqrt, numbers),
        FarFunction("rsqrt", torch.rsqrt, at_zero(rsqrt, inf), numbers),
    )


def at_zero(function: Callable[[float], float], limit: float) -> Callable[[float], float]:
    """Wrap a function that Python cannot compute at zero, so that it returns `limit` there."""
    return lambda x: function(x) if x else limit


def far_numbers(device: str) -> Iterator[Part]:
    """Catches a function that is only right near zero, because its other paths are wrong or not
    used where they should be."""
    for dtype_name in formats_on(device):
        for function in far_functions():
            numbers = [*function.numbers, *(-number for number in function.numbers)]
            yield from values_of(function, numbers, dtype_name, device)
        for function in positive_functions():
            yield from values_of(function, function.numbers, dtype_name, device)


def values_of(
    function: FarFunction, numbers: Sequence[float], dtype_name: str, device: str
) -> Iterator[Part]:
    """Compare one function, for the numbers as the format stores them (large numbers are infinite
    in float16)."""
    stored = flat_list(torch.tensor(list(numbers), dtype=dtype_of(dtype_name)))
    # Keep numbers that became infinite only if the function has a limit at infinity.
    if inf not in numbers:
        stored = [number for number in stored if abs(number) != inf]
    exact = [within_format(function.exact, number, dtype_name) for number in stored]
    limit = limit_of(function.slack, dtype_name)
    for length in (len(stored), LONG):
        inputs = tensor_of(repeated(stored, length), dtype_name, device)
        computed = offered(functools.partial(function.run, inputs))
        if computed is None:
            return
        label = f"{function.name} of {length} far {dtype_name} numbers"
        yield near_in_periods(label, computed, exact, limit)


def within_format(function: Callable[..., float], x: float, dtype_name: str) -> float:
    """Returns the function's value, or infinity if the value is too large for the format or for
    Python."""
    try:
        value = function(x)
    except OverflowError:
        # Of the functions that overflow in Python, only sinh can be negative.
        return math.copysign(inf, x) if function is math.sinh else inf
    return cut_to_format(value, dtype_name)


def cut_to_format(value: float, dtype_name: str) -> float:
    """Returns the value, or infinity if it is larger than the format's largest number."""
    if abs(value) > LARGEST[dtype_name]:
        return math.copysign(inf, value)
    return value


def limit_of(slack: float, dtype_name: str) -> Limit:
    """The error allowed in a function's value, the same as `pointwise.py` allows for numbers near
    zero.

    For 32 and 64 bits it is 8 roundoffs, because libraries promise 4, and results below the
    smallest normal number may be zero. For 16 bits it is 4 roundoffs, plus 1e-6 because float32
    formulas are off by about 1e-7 near zero. `slack` is `FarFunction.slack`.
    """
    unit = roundoff(dtype_name)
    if dtype_name in HALVES:
        return Limit(relative=4 * unit, absolute=2.0**-20 + slack * unit)
    return Limit(relative=8 * unit, absolute=LEAST[dtype_name] + slack * unit)


# --- powers ---------------------------------------------------------------------------------------


BASES = (-3.0, -2.0, -1.5, -1.0, -0.5, 0.0, 0.25, 1.0, 2.0, 3.0, 10.0)
EXPONENTS = (-101.0, -3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 7.0, 100.0, 101.0)
"""Even, odd and fractional exponents. Kernels have separate paths for -2, -1, -0.5, 0.5, 2 and 3.
"""
PAIRS = tuple(product(BASES, EXPONENTS))


def power(base: float, exponent: float) -> float:
    """The power as C defines it: NaN for a negative base with a fractional exponent, infinity for a
    base of zero with a negative exponent."""
    if base == 0.0 and exponent < 0:
        return inf
    if base < 0 and exponent != math.floor(exponent):
        return nan
    return math.pow(base, exponent)


def powers(device: str) -> Iterator[Part]:
    """Catches a power function that is wrong for negative bases (by taking their logarithm) or at
    zero."""
    for dtype_name in formats_on(device):
        yield from powers_of_pairs(dtype_name, device)
        yield from powers_by_numbers(dtype_name, device)
    yield from powers_of_wholes(device)


def power_limit(dtype_name: str) -> Limit:
    """The error allowed in a power. It is 16 roundoffs, because CUDA's manual promises 8 units in
    the last place for float32."""
    return Limit(relative=16 * roundoff(dtype_name), absolute=LEAST[dtype_name])


def exact_powers(pairs: Sequence[Tuple[float, float]], dtype_name: str) -> List[float]:
    """The power of each pair (base, exponent), infinite where it is too large for the format."""
    powers_of_pairs = [power(base, exponent) for base, exponent in pairs]
    return [cut_to_format(value, dtype_name) for value in powers_of_pairs]


def powers_of_pairs(dtype_name: str, device: str) -> Iterator[Part]:
    """Compare `pow` of two tensors: element by element, and broadcast, so that each base meets each
    exponent."""
    exact = exact_powers(PAIRS, dtype_name)
    limit = power_limit(dtype_name)
    bases = [base for base, _ in PAIRS]
    exponents = [exponent for _, exponent in PAIRS]
    base_tensor = tensor_of(repeated(bases, LONG), dtype_name, device)
    exponent_tensor = tensor_of(repeated(exponents, LONG), dtype_name, device)
    label = f"of {LONG} {dtype_name} pairs"
    computed = torch.pow(base_tensor, exponent_tensor)
    yield near_in_periods(f"pow {label}", computed, exact, limit)
    computed = base_tensor.clone().pow_(exponent_tensor)
    yield near_in_periods(f"pow_ {label}", computed, exact, limit)

    column = tensor_of(BASES, dtype_name, device, len(BASES), 1)
    row = tensor_of(EXPONENTS, dtype_name, device)
    computed = torch.pow(column, row)
    yield near_in_periods(f"pow of each pair, {dtype_name}", computed, exact, limit)


def powers_by_numbers(dtype_name: str, device: str) -> Iterator[Part]:
    """Compare powers in which the base or the exponent is a Python number. A whole exponent is
    tested as a float and as an integer."""
    limit = power_limit(dtype_name)
    bases = tensor_of(repeated(BASES, 33), dtype_name, device)
    for exponent in EXPONENTS:
        exact = exact_powers([(base, exponent) for base in BASES], dtype_name)
        computed = bases**exponent
        yield near_in_periods(f"{dtype_name} tensor to the {exponent:g}", computed, exact, limit)
        if exponent == int(exponent):
            computed = bases ** int(exponent)
            label = f"{dtype_name} tensor to the whole {exponent:g}"
            yield near_in_periods(label, computed, exact, limit)
    exponents = tensor_of(repeated(EXPONENTS, 33), dtype_name, device)
    for base in BASES:
        exact = exact_powers([(base, exponent) for exponent in EXPONENTS], dtype_name)
        computed = base**exponents
        yield near_in_periods(f"{base:g} to a {dtype_name} tensor", computed, exact, limit)


def powers_of_wholes(device: str) -> Iterator[Part]:
    """Compare powers of integers, which kernels compute with a separate loop."""
    bases: List[Number] = []
    exponents: List[Number] = []
    exact: List[Number] = []
    for base, exponent in product(range(-7, 8), range(8)):
        bases.append(base)
        exponents.append(exponent)
        exact.append(operator.pow(base, exponent))
    for dtype_name in ("int64", "int32"):
        base_tensor = tensor_of(bases, dtype_name, device)
        exponent_tensor = tensor_of(exponents, dtype_name, device)
        computed = torch.pow(base_tensor, exponent_tensor)
        yield exactly(f"pow of whole numbers, {dtype_name}", computed, exact)
