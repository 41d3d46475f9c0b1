"""Functions at numbers of every exponent and sign, held to Python's own mathematics; casts, held to
the definition of the formats."""

from __future__ import annotations

import math
from math import inf, nan
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Tuple

import torch

from ..judging.refusals import refuses
from ..judging.tolerance import SINGLE, Part, agree, judged, same, source
from ..values import SKIPPED, Outcome
from .products import multiplied
from .trials import capability_of


class Function(NamedTuple):
    name: str
    exact: Callable[..., Optional[float]]
    """None where the function is not asked."""
    roundings: float = 16.0
    """The error allowed in roundoffs of float32, besides the answer's own rounding: NVIDIA
    documents up to 4 (CUDA C++ Programming Guide, Mathematical Functions), CPU libraries up to 4;
    with room."""
    near: float = 0.0
    """Added to what the error is relative to, where an answer is the difference of larger ones."""


def _over(x: float, y: float) -> float:
    return x / y if y else (nan if not x or x != x else math.copysign(inf, x) * math.copysign(1, y))


ONE = (
    Function("exp", math.exp),
    Function("log", lambda x: math.log(x) if x else -inf, near=2.0**-10),
    Function("sin", lambda x: math.sin(x) if abs(x) < 1e4 else None, near=2.0**-10),
    Function("sqrt", math.sqrt, 4),
    Function("reciprocal", lambda x: _over(1.0, x)),
    Function("round", lambda x: float(round(x)) if math.isfinite(x) else x, 0),
    Function("erf", math.erf),
    Function("sigmoid", lambda x: 0.0 if x < -700 else 1 / (1 + math.exp(-x)), 32),
)
TWO = (
    Function("add", lambda x, y: x + y, 2),
    Function("div", _over, 4),
    Function("maximum", lambda x, y: nan if y != y else max(x, y), 0),
    Function("gt", lambda x, y: float(x > y), 0),
)
DRAWN, TIMES = 1531, 47
"""Numbers, and how often they are repeated: more than one thread takes, each at each place of a
vector, whose lengths divide neither."""


def elementwise(device: str) -> Outcome:
    """Functions of one number and of two, and casts."""
    bits = torch.randint(-(2**31), 2**31, (DRAWN,), generator=source(torch))
    given = bits.int().view(torch.float32)
    given[:5] = torch.tensor([0.0, -0.0, inf, -inf, nan])
    parts = [_asked(device, row, [given]) for row in ONE]
    parts += [_asked(device, row, [given, given.roll(607)]) for row in TWO]
    for name in ("bfloat16", "float16"):
        parts += _codes(device, name)
    return judged(parts, "Python's own mathematics")


def _asked(device: str, row: Function, given: List[Any]) -> Part:
    """What overflows counts as the greatest number, what is no number as one that stands for it."""
    found = getattr(torch, row.name)(*(x.repeat(TIMES).to(device) for x in given))
    known = [_exactly(row, x) for x in zip(*(x.tolist() for x in given))]
    places = [place for place, exact in enumerate(known) if exact is not None]
    wanted = torch.tensor([known[place] for place in places], dtype=torch.float64)
    found, exact = (
        x.nan_to_num(nan=-MOST / 3).clamp(-MOST, MOST)
        for x in (found.cpu().double().view(TIMES, -1)[:, places], wanted.expand(TIMES, -1))
    )
    allowed = row.roundings * (SINGLE * (exact.abs() + row.near) + LEAST)
    return agree(row.name, found, exact, allowed)


MOST, LEAST = (2 - 2.0**-23) * 2.0**127, 2.0**-126
"""Of float32: the greatest number, and the least that is not subnormal."""


def _exactly(row: Function, given: Tuple[float, ...]) -> Optional[float]:
    """None also of subnormal numbers: they may be taken for 0."""
    if any(0 < abs(x) < LEAST for x in given):
        return None
    try:
        return row.exact(*given)
    except OverflowError:
        return inf
    except ValueError:
        return nan


CODED = {"bfloat16": (8, 7), "float16": (5, 10), "float8_e4m3fn": (4, 3), "float8_e5m2": (5, 2)}
"""Bits of exponent and fraction (OCP 8-bit floating point specification, revision 1.0)."""
FLOAT8_FROM = (8, 9)


def _codes(device: str, name: str) -> Iterator[Part]:
    """Each number is read from its code and written again; what lies in the middle of two is
    rounded to the one whose code is even."""
    dtype, (wide, fraction) = getattr(torch, name), CODED[name]
    bias, codes = 2 ** (wide - 1) - 1, torch.arange(2 ** (wide + fraction))
    exponents, fractions = codes >> fraction, codes % 2**fraction
    # a float64 that is made of its bits; subnormal numbers by an exact product
    normal = ((exponents - bias + 1023) << 52) + (fractions << (52 - fraction))
    tiny = fractions.double() * 2.0 ** (1 - bias - fraction)
    exact = torch.where(exponents > 0, normal.view(torch.float64), tiny)
    # float32 must hold them without being subnormal
    kept = (exact <= torch.finfo(dtype).max) & ((exact == 0) | (exact >= 2.0**-126))
    codes, exact = codes[kept], exact[kept]
    raw = codes.to(torch.uint8 if "8" in name else torch.int16).to(device)
    yield same(f"{name} read", raw.view(dtype).double(), exact)
    evens = torch.where(codes % 2 == 0, exact, exact.roll(-1))[1:-1]
    middles = (exact[2:] + exact[1:-1]) / 2
    for what, given, wanted in (("written", exact, exact), ("rounded", middles, evens)):
        both = torch.cat([given, -given]).float().to(device).to(dtype)
        yield same(f"{name} {what}", both.double(), torch.cat([wanted, -wanted]))


def float8(device: str) -> Outcome:
    """Every number of both 8-bit formats is read and written as the format's definition says;
    where the hardware multiplies them, products agree with float64."""
    if not hasattr(torch, "float8_e4m3fn"):
        return Outcome(SKIPPED, f"torch {torch.__version__} has no 8-bit floating point")
    parts = [part for name in CODED if "8" in name for part in _codes(device, name)]
    capability = capability_of(device)
    if capability is None or capability < FLOAT8_FROM:
        return judged(parts, "the definition; no products: hardware from 8.9 on has them")
    try:
        parts += multiplied(device, "float8_e4m3fn", ((64, 64, 64), (48, 512, 32)), _scaled)
    except RuntimeError as problem:
        if not refuses(problem):
            raise
        return judged(parts, "the definition; this torch has no products for this device")
    return judged(parts, "the definition and float64")


def _scaled(left: Any, right: Any) -> Any:
    """`torch._scaled_mm`, which takes the right factor by columns."""
    one, by_columns = torch.ones((), device=left.device), right.t().contiguous().t()
    found = torch._scaled_mm(left, by_columns, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    return found[0] if isinstance(found, tuple) else found
