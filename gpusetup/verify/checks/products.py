"""Matrix products in every number format, over many shapes, against an exact reference."""

from __future__ import annotations

import platform
from math import sqrt
from typing import Any, Iterator, List, NamedTuple, Tuple

from ..judging.precision import RUNNING_SUM, UNIT_ROUNDOFF, matmul_limit, read_precision
from ..judging.refusals import has_bfloat16, refuses
from ..judging.tolerance import ROUNDOFF, SINGLE, Part, agree, judged, numbers, same, source
from ..values import SKIPPED, Outcome
from .computing import capability_of


class Shape(NamedTuple):
    name: str
    left: Tuple[int, ...]
    right: Tuple[int, ...]
    strided: bool = False
    """Both factors are views with steps: transposed on the left, every other column right."""


SHAPES = (
    Shape("square", (256, 256), (256, 256)),
    Shape("odd", (129, 257), (257, 65)),
    Shape("tall", (2048, 33), (33, 7)),
    Shape("long inner", (8, 4096), (4096, 8)),
    Shape("batched", (4, 3, 33, 65), (4, 3, 65, 17)),
    Shape("one row", (1, 511), (511, 129)),
    Shape("strided", (130, 96), (96, 66), strided=True),
)
WORD = 24.0
"""Of the splits of a sum along K that are rounded to the low format: see `reduced`."""


def factors(torch: Any, shape: Shape, salt: int) -> Tuple[Any, Any]:
    """Two random factors on the CPU, contiguous."""
    return numbers(torch, *shape.left, salt=salt), numbers(torch, *shape.right, salt=salt + 50)


def placed(torch: Any, shape: Shape, left: Any, right: Any, device: str) -> Tuple[Any, Any]:
    """The factors on the device, laid out as the shape asks."""
    if not shape.strided:
        return left.to(device), right.to(device)
    turned = left.to(device).t().contiguous().t()
    wide = torch.zeros(right.shape[0], 2 * right.shape[1], dtype=right.dtype, device=device)
    wide[:, ::2] = right.to(device)
    return turned, wide[:, ::2]


def sizes(left: Any, right: Any) -> Any:
    """|row| * |column| for each element of a product, in float64."""
    return left.norm(dim=-1).unsqueeze(-1) * right.norm(dim=-2).unsqueeze(-2)


def float64(device: str) -> Outcome:
    """Products of whole numbers are exact in float64 in whatever order they are added, so every
    bit must be the one that integers give."""
    import torch

    parts = []
    for salt, shape in enumerate(SHAPES):
        left, right = (whole(torch, each, salt) for each in (shape.left, shape.right))
        here = placed(torch, shape, left.double(), right.double(), device)
        parts.append(same(shape.name, here[0] @ here[1], multiplied(left, right).double()))
    return judged(parts, "exact integers, every bit")


def whole(torch: Any, shape: Tuple[int, ...], salt: int) -> Any:
    """Whole numbers of 19 bits and a sign: 4096 products of them stay below 2^53."""
    return torch.randint(-(2**19), 2**19, shape, generator=source(torch, salt))


def multiplied(left: Any, right: Any) -> Any:
    """The exact product of two int64 matrices, by elementwise operations alone."""
    return sum(
        left[..., :, k : k + 64, None].mul(right[..., None, k : k + 64, :]).sum(dim=-2)
        for k in range(0, left.shape[-1], 64)
    )


def float32(device: str) -> Outcome:
    """Products in float32, in the precision that the settings permit."""
    import torch

    name = precision_here(torch, device)
    return judged(singles(torch, device), f"float64 as {name}{told(UNIT_ROUNDOFF[name])}")


def told(u: float) -> str:
    """What the limits are made of, for the reader of a report."""
    inners = [shape.left[-1] for shape in SHAPES]
    return f" (u {u:.1e}, inner {min(inners)} to {max(inners)})"


def singles(torch: Any, device: str, prefix: str = "", shapes: Any = SHAPES) -> List[Part]:
    name = read_precision(torch, device, capability_of(torch, device)).name
    parts = []
    for salt, shape in enumerate(shapes):
        left, right = factors(torch, shape, salt)
        here = placed(torch, shape, left, right, device)
        rows, columns = left.double(), right.double()
        allowed = matmul_limit(name, left.shape[-1]) * sizes(rows, columns)
        parts.append(agree(prefix + shape.name, here[0] @ here[1], rows @ columns, allowed))
    return parts


def precision_here(torch: Any, device: str) -> str:
    return read_precision(torch, device, capability_of(torch, device)).name


MODES = ("highest", "high", "medium")


def float32_modes(device: str) -> Outcome:
    """`torch.set_float32_matmul_precision`: each setting keeps to the precision that it permits,
    and the finest gives the finest again afterwards."""
    import torch

    before = torch.get_float32_matmul_precision()
    parts: List[Part] = []
    try:
        for mode in (*MODES, MODES[0]):
            torch.set_float32_matmul_precision(mode)
            said = f"{mode} ({precision_here(torch, device)}) "
            parts += singles(torch, device, said, (SHAPES[0], SHAPES[1]))
    finally:
        torch.set_float32_matmul_precision(before)
    return judged(parts, "float64 in each setting")


def float16(device: str) -> Outcome:
    """Products in float16."""
    return low(device, "float16")


def bfloat16(device: str) -> Outcome:
    """Products in bfloat16."""
    return low(device, "bfloat16")


def low(device: str, name: str) -> Outcome:
    """Products of numbers that the low format holds exactly: what differs is the rounding of the
    result and of what is added on the way."""
    import torch

    dtype = getattr(torch, name)
    u, lessened = ROUNDOFF[name], reduced(torch, device, name)
    parts = []
    try:
        for salt, shape in enumerate(SHAPES):
            left, right = (each.to(dtype) for each in factors(torch, shape, salt))
            here = placed(torch, shape, left, right, device)
            parts.append(agree(shape.name, here[0] @ here[1], *bound(left, right, name, lessened)))
    except RuntimeError as problem:
        if not _lacks(torch, device, name, problem):
            raise
        return Outcome(SKIPPED, f"torch {torch.__version__} multiplies no {name} on {device}")
    return judged(parts, f"float64{told(u)}, sums {lessened or 'in float32'}")


def _lacks(torch: Any, device: str, name: str, problem: BaseException) -> bool:
    """Whether an error only says that this device has no such products; a GPU that has the units
    for it must not say so."""
    if name == "bfloat16" and not has_bfloat16(capability_of(torch, device)):
        return refuses(problem)
    return "not implemented for" in str(problem)


def bound(left: Any, right: Any, name: str, lessened: str) -> Tuple[Any, Any]:
    """The exact product, and the error allowed at each element."""
    u, inner = ROUNDOFF[name], left.shape[-1]
    rows, columns = left.double(), right.double()
    exact = rows @ columns
    added = {
        "": RUNNING_SUM * SINGLE,
        SPLIT: RUNNING_SUM * SINGLE + WORD * u / sqrt(inner),
        WHOLLY: RUNNING_SUM * u,
    }[lessened]
    smallest = 2.0**-24 if name == "float16" else 0.0
    return exact, ROUNDED * u * exact.abs() + added * sizes(rows, columns) + smallest


ROUNDED = 1.25
"""In front of the rounding of the result: at 1 a sound result stands at its limit."""
SPLIT = "partly in the low format"
WHOLLY = "wholly in the low format"


def reduced(torch: Any, device: str, name: str) -> str:
    """How much of a sum this torch's settings allow to be kept in the low format.

    cuBLAS may split K and round the partial sums. Simulated for the shapes here, with tensor cores
    that cut their sums off and every addition of a split rounded to the low format, the worst
    element is 12 * u / sqrt(K) of |row| * |column| wrong with 16 splits, 16 with 128 of 32 terms;
    WORD leaves half as much again.
    """
    if device == "cpu":
        get = getattr(torch._C, "_get_cpu_allow_fp16_reduced_precision_reduction", None)
        arm = platform.machine().lower() in ("aarch64", "arm64")
        return WHOLLY if name == "float16" and arm and get and get() else ""
    settings = torch.backends.cuda.matmul
    if name == "float16" and _setting(settings, "allow_fp16_accumulation"):
        return WHOLLY
    short = {"float16": "fp16", "bfloat16": "bf16"}[name]
    allowed = _setting(settings, f"allow_{short}_reduced_precision_reduction")
    return SPLIT if allowed else ""


def _setting(settings: Any, name: str) -> bool:
    """A setting that may be a truth value, a pair of them, or missing in this torch."""
    try:
        found = getattr(settings, name)
    except (AttributeError, AssertionError):
        return False
    return bool(found[0] if isinstance(found, tuple) else found)


SEVEN_BITS, EIGHT_BITS = 64, 128
"""Bounds of the numbers. A CPU without VNNI adds pairs of products up in 16 bits, which overflow
where the numbers have eight bits (oneDNN's guide, "Nuances of int8 computations"); seven fit."""


def int8(device: str) -> Outcome:
    """Products of 8-bit integers summed in 32 bits: exact."""
    import torch

    if not hasattr(torch, "_int_mm"):
        return Outcome(SKIPPED, f"torch {torch.__version__} multiplies no int8")
    parts, top = [], SEVEN_BITS if device == "cpu" else EIGHT_BITS
    for salt, (rows, inner, columns) in enumerate(((64, 128, 64), (32, 512, 40), (136, 64, 8))):
        made = source(torch, salt)
        left = torch.randint(-top, top, (rows, inner), generator=made)
        right = torch.randint(-top, top, (inner, columns), generator=made)
        exact = multiplied(left, right).to(torch.int32)
        eight = [each.to(torch.int8).to(device) for each in (left, right)]
        try:
            found = _eight(torch, *eight)
        except RuntimeError as problem:
            if not refuses(problem):
                raise
            return Outcome(SKIPPED, "the library multiplies no int8 on this device")
        parts.append(same(f"{rows} x {inner} x {columns}", found, exact))
    return judged(parts, "exact integers")


def _eight(torch: Any, left: Any, right: Any) -> Any:
    """The product, with the right factor by columns where the library takes no other."""
    try:
        return torch._int_mm(left, right)
    except RuntimeError as problem:
        if not refuses(problem):
            raise
        return torch._int_mm(left, right.t().contiguous().t())


FORMATS = (("float8_e4m3fn", 4, 3, 7, 448.0), ("float8_e5m2", 5, 2, 15, 57344.0))
"""Name, bits of the exponent and of the fraction, bias, greatest number (OCP 8-bit floating
point specification, revision 1.0)."""
FLOAT8_FROM = (8, 9)


def float8(device: str) -> Outcome:
    """Every number of both 8-bit formats is read and written as the format's definition says;
    where the hardware multiplies them, products agree with float64."""
    import torch

    if not hasattr(torch, "float8_e4m3fn"):
        return Outcome(SKIPPED, f"torch {torch.__version__} has no 8-bit floating point")
    parts = [part for row in FORMATS for part in _codes(torch, device, *row)]
    capability = capability_of(torch, device)
    if capability is None or capability < FLOAT8_FROM:
        return judged(parts, "the definition; no products: hardware from 8.9 on has them")
    try:
        parts.append(_scaled(torch, device))
    except RuntimeError as problem:
        if not refuses(problem):
            raise
        return judged(parts, "the definition; this torch has no products for this device")
    return judged(parts, "the definition and float64")


def _codes(
    torch: Any, device: str, name: str, exponent: int, fraction: int, bias: int, greatest: float
) -> Iterator[Part]:
    """All finite codes read; each written back; halves rounded to the even neighbour."""
    codes = [c for c in range(256) if abs(number(c, exponent, fraction, bias)) <= greatest]
    exact = torch.tensor([number(c, exponent, fraction, bias) for c in codes])
    raw = torch.tensor(codes, dtype=torch.uint8)
    dtype = getattr(torch, name)
    yield same(f"{name} read", raw.to(device).view(dtype).to(torch.float32), exact)
    yield same(f"{name} written", exact.to(device).to(dtype).view(torch.uint8), raw)
    low = [c for c in codes[:-1] if c < 127 and c + 1 in codes]
    middle = [
        (number(c, exponent, fraction, bias) + number(c + 1, exponent, fraction, bias)) / 2
        for c in low
    ]
    even = torch.tensor([c + c % 2 for c in low], dtype=torch.uint8)
    rounded = torch.tensor(middle).to(device).to(dtype).view(torch.uint8)
    yield same(f"{name} rounded", rounded, even)


def number(code: int, exponent: int, fraction: int, bias: int) -> float:
    """The number of a code, infinities and NaNs read as if they were numbers.

    >>> number(0x7E, 4, 3, 7), number(0x81, 4, 3, 7), number(0x3C, 5, 2, 15)
    (448.0, -0.001953125, 1.0)
    """
    sign = -1.0 if code & 0x80 else 1.0
    raised, part = (code >> fraction) & (2**exponent - 1), code & (2**fraction - 1)
    if raised == 2**exponent - 1 and part == 2**fraction - 1 and exponent == 4:
        return float("inf")
    if raised == 0:
        return float(sign * part * 2.0 ** (1 - bias - fraction))
    return float(sign * (1 + part / 2**fraction) * 2.0 ** (raised - bias))


def _scaled(torch: Any, device: str) -> Part:
    """A product by `torch._scaled_mm`.

    Hopper's units keep 14 bits of each product, counted from the greatest of a sum, and cut the
    rest off (measured by the authors of DeepSeek-V3, arXiv 2412.19437). Simulated for factors as
    these, the worst element is 2^-11.8 of |row| * |column| wrong; 2^-11 is allowed, besides the
    rounding of the result.
    """
    left, right = (numbers(torch, 64, 64, salt=each).to(torch.float8_e4m3fn) for each in (1, 2))
    one = torch.ones((), device=device)
    found = torch._scaled_mm(
        left.to(device), right.to(device).t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16
    )
    found = found[0] if isinstance(found, tuple) else found
    rows, columns = left.double(), right.double().t()
    exact = rows @ columns
    allowed = ROUNDOFF["bfloat16"] * exact.abs() + 2.0**-11 * sizes(rows, columns)
    return agree("float8_e4m3fn product", found, exact, allowed)
