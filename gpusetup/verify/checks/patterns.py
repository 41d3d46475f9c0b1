"""Functions at numbers of every exponent and sign that a format has, and at what is no number;
every two bytes.

The exact answers come from Python's own mathematics, one number after the other: nothing of torch
is asked for them.
"""

from __future__ import annotations

import math
from math import inf, nan
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

from ..judging.refusals import has_bfloat16, refuses
from ..judging.tolerance import ROUNDOFF, SINGLE, Part, agree, holds, same, source
from ..values import asked
from .computing import capability_of


class Format(NamedTuple):
    """How a number is made of bits."""

    exponent: int
    mantissa: int
    whole: str
    """The integer of as many bits."""
    most: float
    least: float
    """The least number that is not subnormal."""


FORMATS: Dict[str, Format] = {
    "float32": Format(8, 23, "int32", (2 - 2.0**-23) * 2.0**127, 2.0**-126),
    "bfloat16": Format(8, 7, "int16", (2 - 2.0**-7) * 2.0**127, 2.0**-126),
    "float16": Format(5, 10, "int16", 65504.0, 2.0**-14),
}
OWN = 3.0
"""Roundoffs of a half: torch 1.13 rounds parts of an answer too."""
EACH = 2048
"""Numbers of a format that `standard` takes: four to thirty-two of each exponent and sign."""


class Function(NamedTuple):
    name: str
    run: Callable[..., Any]
    exact: Callable[..., float]
    low: float = -inf
    high: float = inf
    """Between them the function is asked; NaN always."""
    roundings: float = 16.0
    """The error allowed in roundoffs of float32, besides the answer's own rounding."""
    size: Callable[[float, float], float] = lambda x, y: abs(y)
    """(given, exact) -> what that error is relative to."""


def _to(name: str) -> Callable[[Any, Any], Any]:
    return lambda t, x: (getattr(t, name, None) or getattr(t.nn.functional, name))(x)


def _logarithm(of: Callable[[float], float], least: float = 0.0) -> Callable[[float], float]:
    return lambda x: -inf if x == least else of(x)


def _whole(of: Callable[[float], int]) -> Callable[[float], float]:
    return lambda x: float(of(x)) if math.isfinite(x) else x


def _sigmoid(x: float) -> float:
    small = math.exp(-abs(x))
    return (1.0 if x >= 0 else small) / (1 + small)


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def _near(x: float, y: float) -> float:
    """Where an answer of about 1 may be the difference of larger ones."""
    return abs(y) + 2.0**-10


FUNCTIONS: Tuple[Function, ...] = (
    Function("exp", _to("exp"), math.exp),
    Function("exp2", _to("exp2"), lambda x: 2.0**x),
    Function("expm1", _to("expm1"), math.expm1),
    Function("log", _to("log"), _logarithm(math.log), size=_near),
    Function("log2", _to("log2"), _logarithm(math.log2), size=_near),
    Function("log10", _to("log10"), _logarithm(math.log10), size=_near),
    # torch 1.13 and 2.5 give infinity from 2^126 on.
    Function("log1p", _to("log1p"), _logarithm(math.log1p, -1.0), high=1e37),
    Function("sin", _to("sin"), math.sin, -1e4, 1e4, size=_near),
    Function("cos", _to("cos"), math.cos, -1e4, 1e4, size=_near),
    Function("tan", _to("tan"), math.tan, -1.5, 1.5),
    Function("asin", _to("asin"), math.asin, size=_near),
    Function("acos", _to("acos"), math.acos, size=_near),
    Function("atan", _to("atan"), math.atan),
    # They are half of an `exp`, which ends at 88.7.
    Function("sinh", _to("sinh"), math.sinh, -88, 88, roundings=64),
    Function("cosh", _to("cosh"), math.cosh, -88, 88, roundings=64),
    Function("tanh", _to("tanh"), math.tanh),
    Function("asinh", _to("asinh"), math.asinh, roundings=32),
    Function("atanh", _to("atanh"), math.atanh, -0.999, 0.999, roundings=32),
    Function("sqrt", _to("sqrt"), math.sqrt, 0.0, roundings=4),
    Function("rsqrt", _to("rsqrt"), lambda x: 1 / math.sqrt(x), 1e-37),
    Function("reciprocal", _to("reciprocal"), lambda x: 1 / x if x else math.copysign(inf, x)),
    Function("square", _to("square"), lambda x: x * x, roundings=4),
    Function("abs", _to("abs"), abs, roundings=0),
    Function("neg", _to("neg"), lambda x: -x, roundings=0),
    Function("floor", _to("floor"), _whole(math.floor), roundings=0),
    Function("ceil", _to("ceil"), _whole(math.ceil), roundings=0),
    Function("trunc", _to("trunc"), _whole(math.trunc), roundings=0),
    Function("round", _to("round"), _whole(round), roundings=0),
    # Near 0 that of bfloat16 is right to so many places, not digits.
    Function("erf", _to("erf"), math.erf, size=lambda x, y: 1.0),
    Function("sigmoid", _to("sigmoid"), _sigmoid, roundings=32),
    Function("relu", _to("relu"), lambda x: max(x, 0.0), roundings=0),
    Function("silu", _to("silu"), lambda x: x * _sigmoid(x), -80, roundings=32),
    Function("softplus", _to("softplus"), _softplus, roundings=32, size=_near),
)


def _most(x: float, y: float) -> float:
    return nan if y != y else max(x, y)


def _least(x: float, y: float) -> float:
    return nan if y != y else min(x, y)


def _over(x: float, y: float) -> float:
    return x / y if y else (nan if not x or x != x else math.copysign(inf, x) * math.copysign(1, y))


TWO: Tuple[Function, ...] = (
    Function("add", lambda t, x, y: x + y, lambda x, y: x + y, roundings=2),
    Function("sub", lambda t, x, y: x - y, lambda x, y: x - y, roundings=2),
    Function("mul", lambda t, x, y: x * y, lambda x, y: x * y, roundings=2),
    Function("div", lambda t, x, y: x / y, _over, roundings=4),
    Function("maximum", lambda t, x, y: t.maximum(x, y), _most, roundings=0),
    Function("minimum", lambda t, x, y: t.minimum(x, y), _least, roundings=0),
    Function("copysign", lambda t, x, y: t.copysign(x, y), math.copysign, roundings=0),
    Function("atan2", lambda t, x, y: t.atan2(x, y), math.atan2),
    Function("greater", lambda t, x, y: x > y, lambda x, y: float(x > y), roundings=0),
    Function("at least", lambda t, x, y: x >= y, lambda x, y: float(x >= y), roundings=0),
    Function("equal", lambda t, x, y: x == y, lambda x, y: float(x == y), roundings=0),
    Function("unlike", lambda t, x, y: x != y, lambda x, y: float(x != y), roundings=0),
)
SIDE = 64
"""So many numbers of every exponent meet as many others."""
Pair = Callable[[int, int], int]
WHOLES: Tuple[Tuple[str, Callable[[Any, Any, Any], Any], Pair], ...] = (
    ("add", lambda t, x, y: x + y, lambda x, y: x + y),
    ("sub", lambda t, x, y: x - y, lambda x, y: x - y),
    ("mul", lambda t, x, y: x * y, lambda x, y: x * y),
    ("floor divide", lambda t, x, y: x // y, lambda x, y: x // y),
    ("remainder", lambda t, x, y: x % y, lambda x, y: x % y),
    ("fmod", lambda t, x, y: t.fmod(x, y), lambda x, y: int(math.fmod(x, y))),
    ("and", lambda t, x, y: x & y, lambda x, y: x & y),
    ("or", lambda t, x, y: x | y, lambda x, y: x | y),
    ("xor", lambda t, x, y: x ^ y, lambda x, y: x ^ y),
    ("maximum", lambda t, x, y: t.maximum(x, y), lambda x, y: x if x > y else y),
    ("minimum", lambda t, x, y: t.minimum(x, y), lambda x, y: x if x < y else y),
    ("greater", lambda t, x, y: x > y, lambda x, y: x > y),
    ("equal", lambda t, x, y: x == y, lambda x, y: x == y),
)
KINDS = ("isnan", "isinf", "isfinite", "signbit")


def parts(torch: Any, device: str) -> Iterator[Part]:
    """Functions of one number, of two, and what kind of a number each is."""
    for name, form in FORMATS.items():
        if name == "bfloat16" and not has_bfloat16(capability_of(torch, device)):
            continue
        given = drawn(torch, name, form)
        yield from _functions(torch, device, name, FUNCTIONS, [given])
        for kind, wanted in zip(KINDS, _kinds(given.double().tolist())):
            right = getattr(torch, kind)(given.to(device)).tolist() == wanted
            yield holds(f"{kind} of {name}", right, "a number is taken for another kind")
        chosen = torch.randperm(len(given), generator=source(torch, 341))[: 2 * SIDE]
        left, right = given[chosen].split(SIDE)
        left[:3] = torch.tensor([0.0, inf, nan])
        right[:4] = torch.tensor([0.0, inf, nan, -inf])
        grid = [left.repeat_interleave(SIDE), right.repeat(SIDE)]
        yield from _functions(torch, device, name, TWO, grid)
    yield from _all_pairs(torch, device)


def _functions(
    torch: Any, device: str, name: str, rows: Tuple[Function, ...], given: List[Any]
) -> Iterator[Part]:
    values = list(zip(*(each.double().tolist() for each in given)))
    here = [each.to(device) for each in given]
    for row in rows:
        try:
            found = row.run(torch, *here).cpu()
        except RuntimeError as problem:
            if not refuses(problem):
                raise
            continue
        yield from _compared(torch, name, row, values, found, device)


def _all_pairs(torch: Any, device: str) -> Iterator[Part]:
    """Each byte with each other one; no divisor is 0, none -1 for the least."""
    for name, least in (("int8", -128), ("uint8", 0)):
        line = range(least, least + 256)
        pairs = [(x, y) for x in line for y in line if y and (x, y) != (-128, -1)]
        both = torch.tensor(pairs, dtype=getattr(torch, name)).t().contiguous()
        here = both.to(device)
        for called, run, exact in WHOLES:
            found = run(torch, *here)
            wanted = torch.tensor([exact(x, y) for x, y in pairs])
            wanted = wanted if found.dtype == torch.bool else wanted.to(both.dtype)
            yield same(f"{called} of every two {name}", found, wanted)


def drawn(torch: Any, name: str, form: Format) -> Any:
    """Of each exponent and sign as many; all of a half at level census."""
    strata = 2 ** (form.exponent + 1)
    made = source(torch, 340 + form.mantissa)
    if asked().level == "census" and form.mantissa < 16:
        bits = torch.arange(2 ** (form.exponent + form.mantissa + 1))
    else:
        each = EACH // strata
        low = torch.randint(0, 2**form.mantissa, (strata, each), generator=made)
        low[::3, 0] = 0
        low[1::3, 0] = 2**form.mantissa - 1
        bits = (torch.arange(strata).unsqueeze(1) * 2**form.mantissa + low).flatten()
    wide = form.exponent + form.mantissa + 1
    signed = torch.where(bits >= 2 ** (wide - 1), bits - 2**wide, bits)
    return signed.to(getattr(torch, form.whole)).view(getattr(torch, name))


def _kinds(values: List[float]) -> Iterator[List[bool]]:
    for kind in (math.isnan, math.isinf, math.isfinite):
        yield [kind(x) for x in values]
    yield [math.copysign(1, x) < 0 for x in values]


def _compared(
    torch: Any, name: str, row: Function, values: List[Tuple[float, ...]], found: Any, device: str
) -> Iterator[Part]:
    """NaN where it belongs; all else within its limit, what overflows as the greatest number."""
    form = FORMATS[name]
    least = 0.0 if device == "cpu" else form.least
    places = [i for i, x in enumerate(values) if _asked(row, x, least)]
    found = found.double()[places]
    exact = torch.tensor([_exactly(row, values[i]) for i in places], dtype=torch.float64)
    label = f"{row.name} of every {name}"
    right = torch.equal(found.isnan(), exact.isnan())
    yield holds(f"{label}, NaN", right, "NaN where a number belongs, or the other way round")
    sizes = [_size(row, values[i][0], y) for i, y in zip(places, exact.tolist())]
    found, exact = (x.nan_to_num(0.0).clamp(-form.most, form.most) for x in (found, exact))
    own = 0.0 if name == "float32" else OWN * ROUNDOFF[name]
    size = torch.tensor(sizes, dtype=torch.float64).clamp(max=form.most)
    allowed = row.roundings * SINGLE * size + own * exact.abs() + form.least / 2
    yield agree(label, found, exact, allowed if row.roundings else form.least * 0.0 + 0 * allowed)


def _asked(row: Function, given: Tuple[float, ...], least: float) -> bool:
    """Other devices may take a subnormal number for 0: that is not judged."""
    return all(x != x or (row.low <= x <= row.high and (x == 0 or abs(x) >= least)) for x in given)


def _exactly(row: Function, given: Tuple[float, ...]) -> float:
    if given[0] != given[0] and len(given) == 1:
        return nan
    try:
        return row.exact(*given)
    except OverflowError:
        return inf
    except ValueError:
        return nan


def _size(row: Function, x: float, y: float) -> float:
    return 0.0 if y != y else min(row.size(x, y), 1e300)
