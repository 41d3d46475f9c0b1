"""Compares what torch computes with answers that were worked out without torch."""

from __future__ import annotations

import random
from fractions import Fraction
from math import inf, isfinite, isnan, prod
from operator import sub, truediv
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch

from ...device.importing import first_line
from ...judging.precision import has_bfloat16
from ...judging.refusals import refuses
from ...judging.tolerance import Part, holds, judged
from ...values import Outcome, asked, sticky

SIGNIFICANT_BITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
"""Binary digits of a number in each format, the leading one included (IEEE 754; bfloat16: 8)."""
HALVES = ("float16", "bfloat16")
LEAST = {"float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-24, "bfloat16": 2.0**-126}
"""Kernels may take what is smaller for zero (float16: the least number that it has at all)."""
Number = Union[int, float]
Question = Callable[[str], Iterator[Part]]
"""A device -> its comparisons; nothing is computed before the first one is asked for."""


class Limit(NamedTuple):
    """How far an element may be from its exact answer."""

    relative: float = 0.0
    absolute: float = 0.0

    def of(self, exact: Number) -> float:
        """The error that is allowed of one element."""
        return self.relative * abs(exact) + self.absolute


def roundoff(name: str) -> float:
    """Half the distance from 1 to the next number of a format.

    >>> roundoff("float32") == 2.0 ** -24
    True
    """
    return 2.0 ** -SIGNIFICANT_BITS[name]


def rounded(whole: int, bits: int) -> int:
    """The nearest integer that has so many significant bits; of two the even one.

    >>> rounded(257, 8), rounded(259, 8), rounded(-257, 8), rounded(5, 8)
    (256, 260, -256, 5)
    """
    spare_bits = abs(whole).bit_length() - bits
    if spare_bits <= 0:
        return whole
    unit = 1 << spare_bits
    return round(Fraction(whole, unit)) * unit


def as_stored(value: Number, name: str) -> float:
    """A number as its format holds it: float16 ends at 65,504, and what is beyond is infinite."""
    if name == "float16" and abs(value) > 65_504:
        return inf if value > 0 else -inf
    return float(value)


def dice(salt: str) -> random.Random:
    """Random numbers of Python's own, which follow the seed of this run."""
    return random.Random(f"{asked().seed} {salt}")


def formats_on(device: str) -> Tuple[str, ...]:
    """The floating-point formats that a device computes in."""
    names = ("float64", "float32", "float16", "bfloat16")
    if has_bfloat16(torch, device):
        return names
    return names[:3]


def tensor_of(values: Sequence[Number], name: str, device: str, *shape: int) -> Any:
    """A tensor with these numbers, in this format and shape (by default: one row)."""
    made = torch.tensor(list(values), dtype=getattr(torch, name))
    return made.reshape(shape or (len(values),)).to(device)


def flat_list(computed: Any) -> List[Any]:
    """The elements of a tensor in their order, read without a kernel of the CPU."""
    computed = computed.detach().to("cpu")
    if computed.is_contiguous():
        # A view copies nothing, and a flat list is read ten times as fast as a nested one.
        return list(computed.view(-1).tolist())
    values = computed.tolist()
    for _ in range(computed.dim() - 1):
        values = [value for row in values for value in row]
    return list(values)


def exactly(label: str, computed: Any, expected: Sequence[Number]) -> Part:
    """Every element is the number that it must be; NaN where NaN must be."""
    return near(label, computed, expected, Limit())


def near(label: str, computed: Any, expected: Sequence[Number], limit: Limit) -> Part:
    """Every element is within its limit of the number that it must be."""
    values = flat_list(computed)
    if len(values) != len(expected):
        return holds(label, False, f"{len(values)} elements, not {len(expected)}")
    part = near_at_once(label, values, expected, limit)
    if part is not None:
        return part
    return near_one_by_one(Row(label, values, tuple(computed.shape)), expected, limit)


def near_in_periods(label: str, computed: Any, period: Sequence[Number], limit: Limit) -> Part:
    """As `near`, of a long tensor whose exact elements are those of a period again and again.

    Equal periods are compared as wholes, so that only the first one is compared by numbers.
    """
    values = flat_list(computed)
    first = values[: len(period)]
    if len(first) == len(period) and values == repeated(first, len(values)):
        return near(label, computed.reshape(-1)[: len(period)], period, limit)
    return near(label, computed, repeated(period, len(values)), limit)


def repeated(values: Sequence[Number], length: int) -> List[Number]:
    """So many numbers, the same ones again and again.

    >>> repeated([1, 2], 5)
    [1, 2, 1, 2, 1]
    """
    periods = length // len(values) + 1
    longer = list(values) * periods
    return longer[:length]


class Row(NamedTuple):
    """The elements of a tensor that is judged."""

    label: str
    values: Sequence[Number]
    shape: Tuple[int, ...]


def near_one_by_one(row: Row, expected: Sequence[Number], limit: Limit) -> Part:
    """The comparison of each element, which names the first wrong one."""
    worst_share = 0.0
    most_allowed = 0.0
    wrong_positions: List[int] = []
    for position, (value, exact) in enumerate(zip(row.values, expected)):
        if value == exact:
            continue
        allowed = limit.of(exact)
        share = share_of_limit(value, exact, allowed)
        worst_share = max(worst_share, share)
        most_allowed = max(most_allowed, allowed)
        if share > 1.0:
            wrong_positions.append(position)
    if not wrong_positions:
        return Part(row.label, worst_share, most_allowed)
    first = wrong_positions[0]
    index = place_of(first, row.shape)
    message = f"first at {index}: {row.values[first]:.6g}, not {expected[first]:.6g}"
    wrong_count = len(wrong_positions)
    return Part(row.label, worst_share, most_allowed, wrong_count, len(row.values), message)


def offered(run: Callable[[], Any]) -> Any:
    """What a call computes; None if torch lacks its form or format on this device.

    Asked for each call alone, so that one missing form does not end the questions behind it.
    """
    try:
        return run()
    except Exception as problem:  # whatever else a kernel raises is its answer
        if sticky(problem) or not refuses(problem):
            raise
        return None


def near_at_once(
    label: str, values: Sequence[Number], expected: Sequence[Number], limit: Limit
) -> Optional[Part]:
    """The comparison of two lists as wholes, ten times as fast as a loop; None if that cannot
    tell, because an element is wrong or infinite."""
    if list(values) == list(expected):
        return Part(label, 0.0, 0.0)
    if not limit.absolute:
        return None
    errors = list(map(abs, map(sub, values, expected)))
    if not isfinite(sum(errors)):
        return None
    allowed = [limit.relative * abs(exact) + limit.absolute for exact in expected]
    worst_share = max(map(truediv, errors, allowed))
    if worst_share > 1.0:
        return None
    return Part(label, worst_share, max(allowed))


def share_of_limit(value: Number, exact: Number, allowed: float) -> float:
    """An error as a share of the error allowed; infinite where NaN or infinity is wrong.

    >>> share_of_limit(1.5, 1.0, 2.0), share_of_limit(float("nan"), float("nan"), 0.0)
    (0.25, 0.0)
    """
    if isnan(value) and isnan(exact):
        return 0.0
    error = abs(value - exact)
    if isnan(error) or error == inf:
        return inf
    if error <= allowed:
        return error / allowed if allowed else 0.0
    return max(error / allowed, 2.0) if allowed else inf


def place_of(number: int, shape: Tuple[int, ...]) -> List[int]:
    """The place of an element, counted along each axis.

    >>> place_of(7, (3, 4))
    [1, 3]
    """
    position: List[int] = []
    for axis in range(len(shape)):
        step = prod(shape[axis + 1 :])
        position.append(number // step)
        number %= step
    return position


def ask_all(device: str, questions: Sequence[Question], against: str) -> Outcome:
    """The outcome of all questions; one that raises is wrong, unless its form is not offered."""
    parts: List[Part] = []
    for question in questions:
        try:
            parts.extend(question(device))
        except Exception as problem:  # whatever a kernel raises is its answer
            if sticky(problem):
                raise
            if not refuses(problem):
                parts.append(holds(question.__name__, False, first_line(problem)))
    return judged(parts, against)
