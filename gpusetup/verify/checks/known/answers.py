"""Compare torch's results with results that Python computed without torch."""

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
"""Significant binary digits in each format, including the implicit leading 1 (IEEE 754; bfloat16
has 8)."""
HALVES = ("float16", "bfloat16")
"""The 16-bit formats, which have half as many bits as float32."""
LEAST = {"float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-24, "bfloat16": 2.0**-126}
"""Kernels may flush numbers below these limits to zero. Each limit is the smallest normal number of
its format, except for float16, where it is the smallest subnormal number."""
LARGEST_FLOAT16 = 65_504
"""The largest finite float16. Larger numbers become infinite."""
Question = Callable[[str], Iterator[Part]]
"""Takes a device and yields the comparisons on it. Nothing is computed before the first comparison
is requested."""


class Limit(NamedTuple):
    """The largest error allowed for an element. It has a part that is relative to the exact value,
    and an absolute part."""

    relative: float = 0.0
    absolute: float = 0.0

    def of(self, exact: Number) -> float:
        """The largest error allowed for an element with this exact value."""
        return self.relative * abs(exact) + self.absolute


def roundoff(dtype_name: str) -> float:
    """Returns the unit roundoff of a format: half the distance from 1 to the next larger number.

    >>> roundoff("float32") == 2.0 ** -24
    True
    """
    return 2.0 ** -SIGNIFICANT_BITS[dtype_name]


def rounded(whole: int, bits: int) -> int:
    """Round an integer to `bits` significant bits; ties go to the even number.

    >>> rounded(257, 8), rounded(259, 8), rounded(-257, 8), rounded(5, 8)
    (256, 260, -256, 5)
    """
    spare_bits = abs(whole).bit_length() - bits
    if spare_bits <= 0:
        return whole
    unit = 1 << spare_bits
    return round(Fraction(whole, unit)) * unit


def as_stored(value: Number, dtype_name: str) -> float:
    """Returns the value as a float. For float16, anything beyond 65,504 becomes infinite."""
    is_too_large = dtype_name == "float16" and abs(value) > LARGEST_FLOAT16
    if not is_too_large:
        return float(value)
    return inf if value > 0 else -inf


def dice(salt: str) -> random.Random:
    """A Python random generator, seeded with the seed of this run and `salt`."""
    return random.Random(f"{asked().seed} {salt}")


def formats_on(device: str) -> Tuple[str, ...]:
    """The floating-point formats that the device can compute in. bfloat16 is included only if the
    device supports it."""
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
    """Returns the images in the plain layout (NCHW) and in channels-last (NHWC), each with the
    layout's name."""
    channels_last = images.contiguous(memory_format=torch.channels_last)
    return [("plain", images), ("channels last", channels_last)]


def tensor_of(values: Sequence[Number], dtype_name: str, device: str, *shape: int) -> Any:
    """Make a tensor on the device from these numbers, with this format and shape. Without a shape,
    the tensor is one row."""
    tensor = torch.tensor(list(values), dtype=dtype_of(dtype_name))
    if not shape:
        shape = (len(values),)
    return tensor.reshape(shape).to(device)


def flat_list(computed: Any) -> List[Any]:
    """The elements of a tensor as one flat Python list, in row-major order."""
    computed = computed.detach().to("cpu")
    if computed.is_contiguous():
        # A view copies nothing, and `tolist` is ten times faster for a flat tensor than for a
        # nested one.
        return list(computed.view(-1).tolist())
    values = computed.tolist()
    # Each step of the loop removes one level of nesting.
    for _ in range(computed.dim() - 1):
        values = joined(values)
    return list(values)


# --- comparisons ----------------------------------------------------------------------------------


def exactly(label: str, computed: Any, expected: Sequence[Number]) -> Part:
    """Compare every element with the exact expected number. An expected NaN only matches NaN."""
    return near(label, computed, expected, Limit())


def near(label: str, computed: Any, expected: Sequence[Number], limit: Limit) -> Part:
    """Compare every element with its expected number, and allow errors up to the limit."""
    values = flat_list(computed)
    if len(values) != len(expected):
        return holds(label, False, f"{len(values)} elements, not {len(expected)}")
    part = fast_comparison(label, values, expected, limit)
    if part is not None:
        return part
    # The fast comparison found an error or could not decide, so compare element by element.
    row = JudgedRow(label, values, tuple(computed.shape))
    return near_one_by_one(row, expected, limit)


def near_in_periods(label: str, computed: Any, period: Sequence[Number], limit: Limit) -> Part:
    """Like `near`, for a long tensor whose expected elements repeat with a period.

    If all computed periods are equal, only the first one is compared with the expected numbers,
    which saves time.
    """
    values = flat_list(computed)
    period_length = len(period)
    first_period = values[:period_length]
    is_complete = len(first_period) == period_length
    if is_complete and values == repeated(first_period, len(values)):
        first_elements = computed.reshape(-1)[:period_length]
        return near(label, first_elements, period, limit)
    # The periods differ: compare every element, so that the report names the wrong one.
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
            # Equal values are right even if the limit is 0, or if both are infinite.
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
    """Returns the result of a call, or None if torch does not support it in this form or format on
    this device.

    Wrap each call separately, so that the calls after an unsupported one still run. All other
    errors are raised, because then the kernel is faulty or the device can no longer be used
    (`sticky`).
    """
    try:
        return run()
    except Exception as problem:  # kernels raise many types of errors
        if sticky(problem) or not refuses(problem):
            raise
        return None


def fast_comparison(
    label: str, values: Sequence[Number], expected: Sequence[Number], limit: Limit
) -> Optional[Part]:
    """Compare two lists as a whole, ten times as fast as a loop.

    Returns None if only a loop can decide, because an element is wrong, infinite or NaN, or because
    the limit has no absolute part.
    """
    if list(values) == list(expected):
        return Part(label, 0.0, 0.0)
    # Without an absolute part, the allowed error is 0 where the exact value is 0, and the division
    # below would fail.
    if not limit.absolute:
        return None
    differences = map(sub, values, expected)
    errors = list(map(abs, differences))
    # Equal infinities are right, but their difference is NaN. The loop handles them.
    if not isfinite(sum(errors)):
        return None
    allowed = list(map(limit.of, expected))
    worst_share = max(map(truediv, errors, allowed))
    if worst_share > 1.0:
        return None
    return Part(label, worst_share, max(allowed))


def share_of_limit(value: Number, exact: Number, allowed: float) -> float:
    """Returns the error divided by the allowed error. If the quotient is above 1, the value is
    wrong. For a wrong NaN or infinity, it is infinity.

    >>> share_of_limit(1.5, 1.0, 2.0), share_of_limit(float("nan"), float("nan"), 0.0)
    (0.25, 0.0)
    """
    if isnan(value) and isnan(exact):
        return 0.0
    error = abs(value - exact)
    if isnan(error) or error == inf:
        return inf
    if not allowed:
        # No error is allowed, so only the exact number is right (and dividing by 0 would fail).
        return inf if error else 0.0
    share = error / allowed
    if error > allowed:
        # The division may round down to 1, which would pass.
        return max(share, 2.0)
    return share


def index_of(position: int, shape: Tuple[int, ...]) -> List[int]:
    """Returns the index, one number per axis, of the element at this position in row-major order.

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
    """Run all questions and judge their comparisons together. A question that raises an error
    counts as wrong, unless the error says that the device does not support the operation."""
    parts: List[Part] = []
    for question in questions:
        try:
            parts.extend(question(device))
        except Exception as problem:  # an error that a kernel raises counts as a wrong result
            if sticky(problem):
                raise
            if not refuses(problem):
                parts.append(holds(question.__name__, False, first_line(problem)))
    return judged(parts, against)
