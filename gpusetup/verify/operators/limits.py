"""How far an element of a sample's answer may be off."""

from __future__ import annotations

from math import sqrt
from typing import Any, List, NamedTuple

from ..judging.tolerance import ROUNDOFF, SINGLE
from .releases import HALVES, ROUNDS_ONCE, release
from .sizes import added_up, finite, most, terms, typical, usual
from .table import Operator

OWN, MOVED, FLOOR = 8.0, 6.0, 0.05
"""In front of the roundoff of the answer, of what moved inputs move, and the share of the root mean
square that is added to each element's size."""
BACK = 4.0
"""The same share for gradients: they are often differences of larger numbers (1 - y * y)."""
SERIAL = 16.0
"""A running sum of n numbers of one sign was seen to be off by n * u / 40."""
BOTH_ROUND = 32.0
"""For float64, where the exact answer is itself rounded, and rounds more often."""
SURE = 4.0
"""By how much each limit is widened: three moved answers may be close to each other by chance."""
ONCE, COARSE = 3.0, 4.0
"""Roundoffs of the format that an answer which is rounded once may be off by (one was the worst
seen), and by how much float32's own limit is widened for the way to it: functions of half
precision may be coarser ones."""
BEFORE = 3.0
"""By how many times the root mean square a part of an answer is larger than the answer: nine
deviations of such a part may be rounded."""
SMALLEST = {"float16": 2.0**-23, "bfloat16": 2.0**-120, "float32": 2.0**-120, "float64": 0.0}
"""What may be lost near zero: x / (1 + exp(-x)), as kernels compute `silu`, is 0 from -88.7 on,
where the answer is 2^-121. `elementwise` asks for smaller numbers."""
FEW = 64
"""Of so few numbers all may be moved alike by chance, and none be of a usual size."""
GONE = 16.0
"""So many roundoffs of what was handed back are nothing."""
LOST = 16.0
"""Functions lose their digits between numbers of such a size; larger ones are asked on purpose."""


class Kind(NamedTuple):
    """What a limit depends on, the numbers aside."""

    row: Operator
    dtype: str
    u: float
    """The roundoff of the format, or of the coarser arithmetic that is allowed."""
    brief: bool
    """Whether the answer was moved only once."""
    inputs: List[Any]


def limit(torch: Any, of: Kind, y: Any, moved: List[Any], back: bool) -> Any:
    """For each element of an exact answer, or of a gradient, by how much moved inputs move it."""
    size = finite(y.double()).abs()
    change = usual(torch, *map(finite, moved)) if moved else 0 * size
    found = _several_times(of, y, size, change, BACK if back else FLOOR)
    often = of.row.roundings_back if back else of.row.roundings
    if not (often and of.dtype in HALVES and release(torch) >= ROUNDS_ONCE):
        return found
    return torch.minimum(found, _rounded(of, y, size, change, often))


def few(tensors: List[Any]) -> bool:
    return all(x.numel() <= FEW for x in tensors)


def least(row: Operator, dtype: str, u: float, inputs: List[Any], y: Any) -> float:
    """What an answer of few numbers, or of one number everywhere, may be off by at least: the way
    to it may be a difference of numbers as large as what goes in. Where x is below -3, hardly a
    digit is left of gelu's 1 + erf(x / sqrt(2)); other numbers would have told its size."""
    alike = y.numel() <= FEW or bool((y == y.reshape(-1)[0]).all())
    if dtype in HALVES or not alike:
        return 0.0
    sizes = [most(finite(x.double()).abs()) for x in inputs if x.is_floating_point()]
    return OWN * row.slack * u * min(LOST, max(sizes, default=0.0))


def least_back(
    row: Operator, dtype: str, u: float, inputs: List[Any], upstream: List[Any], y: Any
) -> float:
    """What a gradient of few numbers may be off by at least, as it is a difference of numbers as
    large as those that are handed back: through a softmax whose one share is nearly 1 it is
    p * (g - p * g), of which hardly a digit is left. Of many numbers too where nothing is left of
    any: of a softmax, where one number is handed back through all of its axis."""
    if dtype in HALVES:
        return 0.0
    handed = max((most(g.double().abs()) for g in upstream if g is not None), default=0.0)
    gone = most(y.double().abs()) <= GONE * u * handed
    return row.slack * u * handed * (SURE if gone else 1.0 if few(inputs) else 0.0)


def _several_times(of: Kind, y: Any, size: Any, change: Any, floor: float) -> Any:
    """For kernels that may round after each step."""
    halves = of.dtype in HALVES
    long = 1.0 if halves else _long(of, y)
    both = BOTH_ROUND if of.dtype == "float64" else 1.0
    own = both * of.row.slack * OWN * of.u
    # Two moved answers are alike by chance where signs cancel: what is typical counts in part.
    other = both * of.row.slack * MOVED * long
    least = own * floor * typical(size) + other * _share(of) * typical(change)
    least += SMALLEST.get(of.dtype, 0.0)
    allowed = own * size + other * change + least
    if of.row.serial and not halves:
        axis = added_up(of.inputs, y)
        allowed = allowed + of.u * axis / SERIAL * (size + typical(size))
        least += of.u * axis / SERIAL * most(size)
    # An operator that is at fault may have made the limit too: single numbers bound it.
    return SURE * allowed.clamp(max=2 * (own * most(size) + other * most(change) + least))


def _rounded(of: Kind, y: Any, size: Any, change: Any, often: int) -> Any:
    """For half precision, where all is computed in float32 and the answer rounded, and maybe what
    it is the sum of."""
    own = of.row.slack * OWN * SINGLE + SINGLE * added_up(of.inputs, y) / SERIAL
    other = of.row.slack * MOVED * _long(of, y) * SINGLE / ROUNDOFF[of.dtype]
    single = own * (size + typical(size)) + other * (change + _share(of) * typical(change))
    # Threads that add up to one number each round their part of it.
    parts = change if y.numel() == 1 else 0.0
    before = BEFORE * (often - 1) * typical(size)
    return ONCE * (of.u * (size + before) + parts) + SURE * (COARSE * single + SMALLEST[of.dtype])


def _long(of: Kind, y: Any) -> float:
    return 1 + sqrt(terms(of.inputs, y, of.row.arithmetic)) / 4


def _share(of: Kind) -> float:
    return 1.0 if of.brief else 0.2
