"""Compares computed numbers with known ones: from whole numbers, a formula in plain Python, or the
same formula in float64 on the CPU. The error that is allowed follows from the number format."""

from __future__ import annotations

import contextlib
import math
import random
from fractions import Fraction
from typing import Any, Callable, Iterator, List, Sequence, Tuple, Union

import torch

from ..values import SKIPPED, Outcome, asked
from .precision import has_bfloat16
from .refusals import refuses
from .tolerance import ROUNDOFF, Part, agree, holds, judged, real_numbers

Question = Callable[[str], Iterator[Part]]
"""Takes a device, and yields one comparison after the other."""
Expected = Union[Sequence[float], Any]
"""The known numbers: a flat list, or a tensor on the CPU."""


def answered(against: str, *questions: Question) -> Callable[[str], Outcome]:
    """A check of all questions. What this device or torch does not support is left out."""

    def run(device: str) -> Outcome:
        parts: List[Part] = []
        refused = ""
        with exact_products():
            for question in questions:
                try:
                    parts += question(device)
                except (RuntimeError, TypeError, AttributeError) as problem:
                    # An older torch lacks some functions.
                    if not refuses(problem) and not isinstance(problem, AttributeError):
                        raise
                    refused = str(problem).split("\n")[0]
        if not parts:
            return Outcome(SKIPPED, f"not supported here: {refused}")
        return judged(parts, against)

    return run


@contextlib.contextmanager
def exact_products() -> Iterator[None]:
    """Inside the `with` block, products are not rounded to TF32, and sums not kept in 16 bits."""
    matmul = torch.backends.cuda.matmul
    switches = [(torch.backends.cudnn, "allow_tf32"), (matmul, "allow_tf32")]
    for name in ("fp16", "bf16"):
        switches.append((matmul, f"allow_{name}_reduced_precision_reduction"))
    before = []
    for owner, name in switches:
        # Older releases lack some switches; newer ones refuse the old name after the new was used.
        with contextlib.suppress(AttributeError, AssertionError, RuntimeError):
            before.append((owner, name, getattr(owner, name)))
            setattr(owner, name, False)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def formats(device: str, *more: str) -> Tuple[str, ...]:
    """float32, the device's 16-bit formats, and `more`; float64 if a failure is asked in it."""
    if asked().in_float64:
        return ("float64",)
    low = ("float16", "bfloat16") if has_bfloat16(torch, device) else ("float16",)
    return ("float32", *low, *more)


def format_of(name: str) -> Any:
    """The dtype of this name; float64 in place of every fraction if a failure is asked again."""
    dtype = getattr(torch, name)
    return torch.float64 if asked().in_float64 and dtype.is_floating_point else dtype


def dice(salt: str) -> random.Random:
    """Python's random generator, seeded with the seed of this run and `salt`."""
    return random.Random(f"{asked().seed} {salt}")


def whole_numbers(count: int, most: int, salt: str) -> List[int]:
    """Random whole numbers from -most to most."""
    draw = dice(salt)
    return [draw.randint(-most, most) for _ in range(count)]


def tensor(values: Sequence[float], device: str, *shape: int, name: str = "float32") -> Any:
    """The numbers as a tensor of a format on a device; flat without a shape."""
    flat = torch.tensor(values, dtype=torch.float64).to(format_of(name))
    return flat.reshape(shape or (-1,)).to(device)


def normal(device: str, *shape: int, salt: str, name: str = "float32") -> Any:
    """Normally distributed numbers, rounded to a format; the same on every device."""
    generator = torch.Generator().manual_seed(dice(salt).getrandbits(62))
    drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
    return drawn.to(format_of(name)).to(device)


def exact(*tensors: Any) -> List[Any]:
    """Copies of the tensors in float64 on the CPU that record gradients."""
    return [x.detach().cpu().double().requires_grad_() for x in tensors]


def flat(numbers: Expected) -> Any:
    """The numbers in float64 on the CPU, without a shape. NaN stays NaN."""
    if not isinstance(numbers, torch.Tensor):
        numbers = torch.tensor(numbers, dtype=torch.float64)
    return real_numbers(torch, numbers).reshape(-1)


def exactly(label: str, computed: Any, known: Expected) -> Part:
    """Every number must be the known one."""
    return agree(label, flat(computed), flat(known), 0.0)


def relatively(label: str, computed: Any, known: Expected, error: float) -> Part:
    """Each number may be off by `error` times its own size."""
    right = flat(known)
    # Numbers that a kernel may flush to zero are far below any result here.
    return agree(label, flat(computed), right, error * right.abs() + 1e-38)


def closely(label: str, computed: Any, known: Expected, roundings: float, name: str) -> Part:
    """Each number may be off by so many roundings of a number as large as the largest result."""
    right = flat(known)
    if not bool(right.isfinite().all()):
        return holds(label, False, "the expected result is not finite")
    size = float(right.abs().max()) if right.numel() else 0.0
    # If the answer is in float64, the known one has rounding errors of the same size: both add up,
    # and twice their sum leaves room, because no more exact answer is known.
    roundings *= 4 if name == "float64" else 1
    return agree(label, flat(computed), right, roundings * ROUNDOFF[name] * size)


def rounded(whole: int, name: str) -> int:
    """The number of a format that is nearest to a whole number; ties go to the even one.

    >>> rounded(257, "bfloat16"), rounded(259, "bfloat16"), rounded(-257, "bfloat16")
    (256, 260, -256)
    """
    significant_bits = -int(math.log2(ROUNDOFF[name]))
    unit = 1 << max(0, abs(whole).bit_length() - significant_bits)
    return round(Fraction(whole, unit)) * unit


def product(a: Sequence[int], b: Sequence[int], rows: int, inner: int, columns: int) -> List[int]:
    """The product of two matrices of whole numbers, row by row."""
    rows_of_a = [a[row * inner : (row + 1) * inner] for row in range(rows)]
    columns_of_b = [b[column::columns] for column in range(columns)]
    return [sum(map(int.__mul__, row, column)) for row in rows_of_a for column in columns_of_b]
