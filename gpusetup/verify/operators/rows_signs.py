"""Numbers whose sign or fraction a short cut loses: whole powers of negative ones, what is zero."""

from __future__ import annotations

from typing import Any, List, Tuple

from .drawing import Draw, Given, given
from .table import FEW, FLOATS, Operator

OFTEN = 0.01
"""One sample has every call: `standard` has no need of a second one."""

# --- whole powers --------------------------------------------------------------------------------

LARGE = (11, 14, 15, 21)
"""Of numbers below 1.2: float16 holds sums of their slopes."""
BASE = -1.25


def _bases(d: Draw) -> Given:
    """Numbers of either sign, most of them negative, and whole exponents for them."""
    shape = d.length(33), d.choice((3, 8, 17))
    sign = 1 - 2 * (d.whole(0, 4, *shape) > 0).double()
    few = sorted(d.chance.sample(range(-9, 10), 9))
    exponents = [*few, *(d.choice((3, 5, 7, 9)), d.choice((-3, -5, -7, -9)), d.choice(LARGE), 21)]
    return given(d.uniform(0.8, 1.2, *shape) * sign, d.whole(-9, 10, *shape), exponents=exponents)


def _powers(t: Any, x: Any, k: Any, exponents: List[int]) -> List[Any]:
    found, many = [], k.to(x.dtype)
    for n in exponents:
        found += [x**n, x.pow(float(n)), t.float_power(x, n)]
    last = t.tensor(exponents[-1], dtype=x.dtype)
    found += [x**many, x**k, t.float_power(x, k), BASE**many, x ** last.to(x.device), x**last]
    return found


def _powers_exact(t: Any, x: Any, k: Any, exponents: List[int]) -> List[Any]:
    found = [each for n in exponents for each in [_power(t, x, t.tensor(n))] * 3]
    base, last = BASE + 0 * x.detach(), _power(t, x, t.tensor(exponents[-1]))
    return [*found, *[_power(t, x, k)] * 3, _power(t, base, k), last, last]


def _power(t: Any, x: Any, n: Any) -> Any:
    """That of the number without its sign, with the sign of an odd one."""
    odd = n % 2 != 0
    return t.where((x < 0) & odd, -(x.abs() ** n), x.abs() ** n)


POWERS = Operator(
    "whole powers of negative numbers",
    _bases,
    _powers,
    _powers_exact,
    dtypes=FLOATS[:3],
    slack=2,
    roundings=2,
    weight=OFTEN,
    sizes=FEW,
)


def _listed(t: Any, x: Any, k: Any, exponents: List[int]) -> List[Any]:
    """Each exponent for all tensors of a list, one for each of them, a tensor for each."""
    some, call = [x] * len(exponents), t._foreach_pow
    odd = exponents[-1]
    return [
        *call([x, x[:1]], odd),
        *call(some, [float(n) for n in exponents]),
        *call([x, x[:1]], [k.to(x.dtype), k[:1].to(x.dtype)]),
    ]


def _listed_exact(t: Any, x: Any, k: Any, exponents: List[int]) -> List[Any]:
    odd, *each = (_power(t, x, t.tensor(n)) for n in (exponents[-1], *exponents))
    mixed = _power(t, x, k)
    return [odd, odd[:1], *each, mixed, mixed[:1]]


LISTED_POWERS = Operator(
    "foreach whole powers of negative numbers",
    _bases,
    _listed,
    _listed_exact,
    slack=2,
    roundings=2,
    weight=OFTEN,
    sizes=FEW,
    learns=False,
)

# --- what is zero, and what is not ---------------------------------------------------------------

NOT_ZERO = (
    *(
        0.5,
        -0.5,
        0.25,
        0.9921875,
        -0.9921875,
        1.5,
        -2.75,
        100.5,
        2.0**-14,
        -(2.0**-14),
        2.0**-7,
        1e-4,
    ),
    *(float("nan"), float("inf"), -float("inf")),
)
WIDE_ONLY = (2.0**-100, -(2.0**-126), 2.0**100)
"""float16 has none of them but as zeros or infinite ones."""
CUT = (
    0.5,
    -0.5,
    0.9921875,
    -0.9921875,
    1.5,
    1.9921875,
    0.0,
    -0.0,
    2.0**-14,
    100.5,
    120.5,
    1.0,
    3.0,
)
"""What is left of them without their fraction is in each format of whole numbers."""
SIGNED = (-1.0, -1.5, -2.75, -100.5, -127.0)
WHOLE = ("uint8", "int8", "int16", "int32", "int64")


def _mixed(d: Draw) -> Given:
    """In any order: each special number, zeros of either sign, and what may be cut off."""
    zeros = [0.0, -0.0] * d.choice((5, 9))
    lines = [[*zeros, *NOT_ZERO, *WIDE_ONLY], [*CUT, *CUT, *CUT], [*SIGNED] * 7]
    for line in lines:
        d.chance.shuffle(line)
    number = [d.torch.tensor(line, dtype=d.torch.float64) for line in lines]
    return given(*number, d.whole(-128, 128, d.choice((33, 65))))


def _converted(t: Any, x: Any, cut: Any, signed: Any, whole: Any) -> List[Any]:
    flag = x.bool()
    some = whole > 0
    into = t.zeros(x.shape, dtype=t.bool, device=x.device)
    found = [flag, x.to(t.bool), into.copy_(x), t.logical_not(x), t.logical_and(x, x)]
    found += [t.logical_or(x, x), t.logical_xor(x, 0 * cut[:1]), x != 0, x.reshape(1, -1).any(0)]
    found += [x.reshape(1, -1).all(0), x.nonzero(), t.count_nonzero(x), x.any(), x.all()]
    found += [cut.masked_select(cut.bool()), cut.masked_fill(cut.bool(), 3), t.argwhere(x)]
    found += [t.where(cut.bool(), 1.0, 2.0), cut[cut.bool()], cut.bool().to(x.dtype)]
    for name in WHOLE:
        dtype = getattr(t, name)
        found += [cut.to(dtype), flag.to(dtype), t.empty_like(cut, dtype=dtype).copy_(cut)]
        given = whole.abs().clamp(max=127).to(dtype)
        found += [given.bool(), given.to(x.dtype), given.logical_not(), some.to(dtype).bool()]
        if name != "uint8":
            found += [signed.to(dtype), whole.to(dtype).bool(), whole.to(dtype).to(x.dtype)]
    for name in FLOATS:
        dtype = getattr(t, name)
        found += [cut.to(dtype), cut.to(dtype).bool(), flag.to(dtype), signed.to(dtype).to(x.dtype)]
    return found


def _converted_exact(t: Any, x: Any, cut: Any, signed: Any, whole: Any) -> List[Any]:
    """By comparisons with zero and by `floor` alone."""
    flag, kept, yes, no = x != 0, cut != 0, t.tensor(True), t.tensor(False)
    number, at = flag.double(), t.tensor([[i] for i, f in enumerate(flag.tolist()) if f])
    found = [flag, flag, flag, x == 0, flag, flag, flag, flag, flag, flag]
    found += [at, t.tensor(len(at)), yes, no]
    chosen = t.tensor([value for value in cut.tolist() if value != 0], dtype=x.dtype)
    found += [chosen, t.where(kept, 3 + 0 * cut, cut), at]
    found += [2 - kept.double(), chosen, kept.double()]
    down, up = _cut(t, cut), _cut(t, signed)
    small = whole.abs().clamp(max=127)
    for name in WHOLE:
        found += [down, number, down, small != 0, small.double(), small == 0, whole > 0]
        if name != "uint8":
            found += [up, whole != 0, whole.double()]
    for _ in FLOATS:
        found += [cut, kept, number, signed]
    return found


def _cut(t: Any, x: Any) -> Any:
    return t.where(x < 0, -(-x).floor(), x.floor())


CONVERTED = Operator(
    "conversions of fractions and special numbers",
    _mixed,
    _converted,
    _converted_exact,
    learns=False,
    kept=True,
    weight=OFTEN,
    sizes=FEW,
)
SIGNS: Tuple[Operator, ...] = (POWERS, CONVERTED)
