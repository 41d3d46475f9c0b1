"""Compares what torch computes with answers that Python computed without torch."""

from __future__ import annotations

import random
from fractions import Fraction
from math import inf, isfinite, isnan, prod
from operator import sub, truediv
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch

from ...device.importing import first_line
from ...judging.precision import has_bfloat16
from ...judging.refusals import refuses
from ...judging.tolerance import Part, holds, judged
from ...values import Outcome, asked, sticky
from .number_lists import Number, joined, repeated

SIGNIFICANT_BITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
"""Binary digits of a number in each format, the leading one included (IEEE 754; bfloat16: 8)."""
HALVES = ("float16", "bfloat16")
"""The formats of 16 bits, half as many as a float32 has."""
LEAST = {"float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-24, "bfloat16": 2.0**-126}
"""Kernels may take what is smaller for zero (float16: the least number that it has at all)."""
LARGEST_FLOAT16 = 65_504
"""Larger numbers are infinite in float16."""
Question = Callable[[str], Iterator[Part]]
"""A device -> its comparisons; nothing is computed before the first one is asked for."""


class Limit(NamedTuple):
    """The largest error allowed for an element: a share of its exact value plus an absolute
    amount."""

    relative: float = 0.0
    absolute: float = 0.0

    def of(self, exact: Number) -> float:
        """The largest error allowed for an element with this exact value."""
        return self.relative * abs(exact) + self.absolute


def roundoff(dtype_name: str) -> float:
    """The unit roundoff of a format: half the distance from 1 to the next larger number.

    >>> roundoff("float32") == 2.0 ** -24
    True
    """
    return 2.0 ** -SIGNIFICANT_BITS[dtype_name]


def rounded(whole: int, bits: int) -> int:
    """Round an integer to so many significant bits; if two are equally near, to the even one.

    >>> rounded(257, 8), rounded(259, 8), rounded(-257, 8), rounded(5, 8)
    (256, 260, -256, 5)
    """
    spare_bits = abs(whole).bit_length() - bits
    if spare_bits <= 0:
        return whole
    unit = 1 << spare_bits
    return round(Fraction(whole, unit)) * unit


def as_stored(value: Number, dtype_name: str) -> float:
    """The value as the format stores it. In float16, anything beyond 65,504 becomes infinite."""
    is_too_large = dtype_name == "float16" and abs(value) > LARGEST_FLOAT16
    if not is_too_large:
        return float(value)
    return inf if value > 0 else -inf


def dice(salt: str) -> random.Random:
    """A Python random generator, seeded with the seed of this run and `salt`."""
    return random.Random(f"{asked().seed} {salt}")


def formats_on(device: str) -> Tuple[str, ...]:
    """The names of the floating-point formats that the device can compute in; bfloat16 only if it
    has it."""
    names = ("float64", "float32", "float16", "bfloat16")
    if has_bfloat16(torch, device):
        return names
    return names[:3]


def dtype_of(dtype_name: str) -> Any:
    """The torch dtype with this name, e.g. `torch.float32` for `float32`."""
    return getattr(torch, dtype_name)


def dtype_name_of(tensor: Any) -> str:
    """The name of a tensor's dtype without `torch.`, e.g. `float32`."""
    return str(tensor.dtype).replace("torch.", "")


def in_both_layouts(images: Any) -> List[Tuple[str, Any]]:
    """The same images in the plain layout (NCHW) and in channels-last (NHWC), each with its
    name."""
    channels_last = images.contiguous(memory_format=torch.channels_last)
    return [("plain", images), ("channels last", channels_last)]


def tensor_of(values: Sequence[Number], dtype_name: str, device: str, *shape: int) -> Any:
    """A tensor on the device with these numbers in this format and shape; without a shape,
    one row."""
    tensor = torch.tensor(list(values), dtype=dtype_of(dtype_name))
    if not shape:
        shape = (len(values),)
    return tensor.reshape(shape).to(device)


def flat_list(computed: Any) -> List[Any]:
    """The elements of a tensor as one flat Python list, in row-major order."""
    computed = computed.detach().to("cpu")
    if computed.is_contiguous():
        # A view copies nothing, and a flat list is read ten times as fast as a nested one.
        return list(computed.view(-1).tolist())
    values = computed.tolist()
    # Each turn takes one level of the nested lists away.
    for _ in range(computed.dim() - 1):
        values = joined(values)
    return list(values)


# --- comparisons ----------------------------------------------------------------------------------


def exactly(label: str, computed: Any, expected: Sequence[Number]) -> Part:
    """Compare every element with the exact expected number; NaN must be NaN."""
    return near(label, computed, expected, Limit())


def near(label: str, computed: Any, expected: Sequence[Number], limit: Limit) -> Part:
    """Compare every element with its expected number, within the limit."""
    values = flat_list(computed)
    if len(values) != len(expected):
        return holds(label, False, f"{len(values)} elements, not {len(expected)}")
    part = fast_comparison(label, values, expected, limit)
    if part is not None:
        return part
    # Something is wrong, or cannot be told at once: each element by itself.
    row = JudgedRow(label, values, tuple(computed.shape))
    return near_one_by_one(row, expected, limit)


def near_in_periods(label: str, computed: Any, period: Sequence[Number], limit: Limit) -> Part:
    """Like `near`, for a long tensor whose exact elements repeat one period over and over.

    Equal periods are compared as wholes, so that only the first one is compared by numbers.
    """
    values = flat_list(computed)
    period_length = len(period)
    first_period = values[:period_length]
    is_complete = len(first_period) == period_length
    if is_complete and values == repeated(first_period, len(values)):
        first_elements = computed.reshape(-1)[:period_length]
        return near(label, first_elements, period, limit)
    # Something differs from period to period: compare each element to name it.
    expected = repeated(period, len(values))
    return near(label, computed, expected, limit)


class JudgedRow(NamedTuple):
    """The elements of the tensor under test, with its shape and a label for the report."""

    label: str
    values: Sequence[Number]
    shape: Tuple[int, ...]


def near_one_by_one(row: JudgedRow, expected: Sequence[Number], limit: Limit) -> Part:
    """Compare element by element, and name the first wrong one."""
    worst_share = 0.0
    most_allowed = 0.0
    wrong_positions: List[int] = []
    for position, (value, exact) in enumerate(zip(row.values, expected)):
        if value == exact:
            # Right even if the limit is 0, or if both are infinite.
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
    index = index_of(first, row.shape)
    message = f"first at {index}: {row.values[first]:.6g}, not {expected[first]:.6g}"
    wrong_count = len(wrong_positions)
    return Part(row.label, worst_share, most_allowed, wrong_count, len(row.values), message)


def offered(run: Callable[[], Any]) -> Any:
    """The result of a call; None if torch does not support it in this form or format on this
    device.

    Each call has its own `offered`, so that the calls after an unsupported one still run. Raises
    every other error: it is a fault of the kernel, or the device cannot be used any more
    (`sticky`).
    """
    try:
        return run()
    except Exception as problem:  # kernels raise errors of many types
        if sticky(problem) or not refuses(problem):
            raise
        return None


def fast_comparison(
    label: str, values: Sequence[Number], expected: Sequence[Number], limit: Limit
) -> Optional[Part]:
    """Compare two lists as a whole, ten times as fast as a loop.

    None if only a loop can decide: an element is wrong, infinite or NaN, or the limit has no
    absolute part.
    """
    if list(values) == list(expected):
        return Part(label, 0.0, 0.0)
    # Without an absolute part the allowed error is 0 where the exact value is 0, and the quotient
    # below has no value.
    if not limit.absolute:
        return None
    differences = map(sub, values, expected)
    errors = list(map(abs, differences))
    # Infinity minus infinity is NaN, although equal infinities are right.
    if not isfinite(sum(errors)):
        return None
    allowed = list(map(limit.of, expected))
    worst_share = max(map(truediv, errors, allowed))
    if worst_share > 1.0:
        return None
    return Part(label, worst_share, max(allowed))


def share_of_limit(value: Number, exact: Number, allowed: float) -> float:
    """An error divided by the allowed error: above 1 is wrong, infinite where NaN or infinity is
    wrong.

    >>> share_of_limit(1.5, 1.0, 2.0), share_of_limit(float("nan"), float("nan"), 0.0)
    (0.25, 0.0)
    """
    if isnan(value) and isnan(exact):
        return 0.0
    error = abs(value - exact)
    if isnan(error) or error == inf:
        return inf
    if not allowed:
        # Only the exact number is right, and a share of nothing is no number.
        return inf if error else 0.0
    share = error / allowed
    if error > allowed:
        # The quotient may be rounded down to 1, which would pass.
        return max(share, 2.0)
    return share


def index_of(position: int, shape: Tuple[int, ...]) -> List[int]:
    """The index along each axis of the element at this position in row-major order.

    >>> index_of(7, (3, 4))
    [1, 3]
    """
    index: List[int] = []
    rest = position
    for axis in range(len(shape)):
        stride = prod(shape[axis + 1 :])
        index.append(rest // stride)
        rest %= stride
    return index


def ask_all(device: str, questions: Sequence[Question], against: str) -> Outcome:
    """Run all questions and judge their comparisons together. A question that raises counts as
    wrong, unless the device does not support its form."""
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
