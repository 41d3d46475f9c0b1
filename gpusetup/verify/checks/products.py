"""Checks matrix products of whole numbers, for which every bit of the result is known, and the
rounding of each number format."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

import torch

from ..judging.precision import amd_target, capability_of, has_bfloat16, read_precision
from ..judging.refusals import refuses
from ..judging.tolerance import Part, judged, same, source
from ..values import OTHER_ACCELERATORS, SKIPPED, Outcome, kind

Shape = Tuple[int, int, int]
"""Rows, inner length and columns of a product."""
ONES = 24
"""The most numbers other than 0 in a column of the right factor."""
GREATEST: Dict[str, Tuple[int, int]] = {
    "float64": (2**20, 2**10),
    "ieee": (2**15, 2**4),
    "tf32": (2**11, 2**4),
    "bf16": (2**8, 2**4),
    "float16": (2**4, 2**2),
    "bfloat16": (2**2, 2),
    "float8_e4m3fn": (2**2, 2),
}
"""Number format, or precision of float32 -> the largest factors: one number for the left matrix and
one for the right. Each factor is exact in its format and, for float32, also in the precision to
which it may be rounded. Each sum of up to ONES products is exact in the result's format."""
SHAPES: Tuple[Shape, ...] = (
    *((256, 256, 256), (129, 257, 65), (2048, 33, 7), (8, 4096, 8), (1, 511, 129)),
    *((4097, 1023, 65), (63, 1025, 4095), (33, 131072, 31), (70001, 33, 9)),
)
LARGEST = {"cuda": (4096, 4096, 4096)}
"""Kind of device -> the largest product, tested in addition to SHAPES."""
LARGEST_ELSEWHERE = (2048, 2048, 2048)
"""The largest product on other devices: Intel's and Apple's GPUs may have little memory."""
Product = Callable[[Any, Any], Any]


def matmul(device: str) -> Outcome:
    """Check one 1000 x 1000 float32 product at every element.

    It finds out in the shortest time whether a device computes wrong numbers.
    """
    outcome = products_of_format("float32", device, ((1000, 1000, 1000),))
    words = "1000 x 1000 float32 product of whole numbers: every element is exact"
    # This check computes one product, so the report gives its size instead of a count of
    # comparisons.
    detail = outcome.detail.replace("1 comparisons with whole numbers, every element", words)
    return outcome._replace(detail=detail)


def float32_modes(device: str) -> Outcome:
    """Check each setting of `torch.set_float32_matmul_precision`.

    It catches a setting that rounds more than it permits, or that is still in force after `highest`
    is set again.
    """
    user_mode = torch.get_float32_matmul_precision()
    parts: List[Part] = []
    try:
        # Test `highest` again at the end, in case a coarser setting stays in force by mistake.
        for mode in ("highest", "high", "medium", "highest"):
            torch.set_float32_matmul_precision(mode)
            for part in multiplied(device, "float32", SHAPES[:2]):
                parts.append(part._replace(label=f"{mode} {part.label}"))
    finally:
        torch.set_float32_matmul_precision(user_mode)
    return judged(parts, "whole numbers in each setting")


def products_of_format(name: str, device: str, shapes: Tuple[Shape, ...] = ()) -> Outcome:
    """Check products of whole numbers in a format, and how bfloat16 and float16 round.

    It catches a kernel that is wrong for some shapes, for example at the end of a tile, and a unit
    that does not round as its format requires.
    """
    if not shapes:
        shapes = SHAPES
        # In formats other than float32, a CPU takes up to thirty times as long.
        is_slow = kind(device) == "cpu" and name != "float32"
        if not is_slow:
            largest = LARGEST.get(kind(device), LARGEST_ELSEWHERE)
            shapes = (*SHAPES, largest)
    try:
        parts = list(multiplied(device, name, shapes))
        # If a format has few enough numbers, read and write each of them.
        if name in CODED:
            parts += codes_are_exact(device, name)
    # Apple's backend raises TypeError for a format that it lacks.
    except (RuntimeError, TypeError) as problem:
        if not lacks(device, name, problem):
            raise
        detail = f"torch {torch.__version__} multiplies no {name} on {device}"
        return Outcome(SKIPPED, detail)
    permitted = read_precision(torch, device)
    # If the user has allowed a coarser format for float32 products, the report names it.
    setting = ""
    if name == "float32" and permitted.name != "ieee":
        setting = f", {permitted.name} by {permitted.because}"
    hint = WRONG_ELSEWHERE if kind(device) in OTHER_ACCELERATORS else WRONG
    return judged(parts, f"whole numbers, every element{setting}", hint)


float64 = partial(products_of_format, "float64")
float32 = partial(products_of_format, "float32")
float16 = partial(products_of_format, "float16")
bfloat16 = partial(products_of_format, "bfloat16")
WRONG = (
    "`env` shows variables that override the program (NVIDIA_TF32_OVERRIDE, DNNL_*). If there is "
    "none, the device computes wrong numbers: run the check again, then look for Xid and ECC in "
    "`dmesg`"
)


WRONG_ELSEWHERE = (
    "the device computes wrong numbers: run the check again, then try another release of torch or "
    "an update of the system, which brings the driver"
)
"""The hint for Intel's and Apple's GPUs, because Xid errors and NVIDIA's variables do not exist
there."""


def lacks(device: str, name: str, problem: BaseException) -> bool:
    """Whether an error only means that this device cannot multiply in the format `name`.

    If the device can multiply in the format, other refusals (see `refuses`) are failures.
    """
    # The backends of Intel and Apple lack some formats, and report that in several ways.
    if kind(device) in OTHER_ACCELERATORS:
        return refuses(problem)
    # A GPU without bfloat16 units either emulates the format or refuses it.
    if name == "bfloat16" and not has_bfloat16(torch, device):
        return refuses(problem)
    # torch's message for a format that this build has no kernel for, such as float16 on the CPU in
    # old releases.
    return "not implemented for" in str(problem)


def multiplied(
    device: str, name: str, shapes: Tuple[Shape, ...], run: Product = operator.matmul
) -> Iterator[Part]:
    """Check every row of the products by its sum with weights (Freivalds' algorithm).

    (A @ B) @ w must equal A @ (B @ w). All numbers are whole, so even a single wrong element among
    16 million shows.
    """
    dtype = getattr(torch, name)
    format_name = name
    # For float32, the user's setting decides to which format the factors are rounded.
    if name == "float32":
        format_name = read_precision(torch, device).name
    for shape in shapes:
        factors = draw_factors(shape, format_name)
        left_factor = factors.left.to(dtype).to(device)
        right_factor = factors.right.to(dtype).to(device)
        product = run(left_factor, right_factor).cpu()
        sums_of_right = weighed(factors.right, factors.weights)
        exact_sums = weighed(factors.left, sums_of_right)
        label = " x ".join(str(length) for length in shape)
        yield same(label, weighed(product, factors.weights), exact_sums)


class ProductFactors(NamedTuple):
    """Two integer factors on the CPU, with the weights that check their product."""

    left: Any
    right: Any
    weights: Any
    """One weight for each column of the product."""


def draw_factors(shape: Shape, format_name: str) -> ProductFactors:
    """Draws factors whose product is exact in a format: each column of the right one has at most
    ONES numbers other than zero."""
    rows, inner, columns = shape
    greatest_left, greatest_right = GREATEST[format_name]
    generator = source(torch, inner)

    def draw(low: int, end: int, *lengths: int) -> Any:
        return torch.randint(low, end, lengths, generator=generator)

    left_factor = draw(-greatest_left, greatest_left + 1, rows, inner)
    indices = draw(0, inner, ONES, columns)
    numbers = draw(-greatest_right, greatest_right + 1, ONES, columns)
    right_factor = torch.zeros(inner, columns, dtype=torch.int64)
    right_factor.scatter_(0, indices, numbers)
    weights = draw(1, 9, columns).double()
    return ProductFactors(left_factor, right_factor, weights)


def weighed(x: Any, weights: Any) -> Any:
    """The product of each row with the weights, computed in float64."""
    sums = []
    # Work in parts, so that the whole matrix is never in float64 at once.
    for rows in x.split(256):
        sums.append((rows.double() * weights).sum(1))
    return torch.cat(sums)


CODED = {"bfloat16": (8, 7), "float16": (5, 10), "float8_e4m3fn": (4, 3), "float8_e5m2": (5, 2)}
"""Number format -> its exponent bits and fraction bits (for 8 bits: OCP 8-bit floating point
specification, revision 1.0)."""
FLOAT8_FROM = (8, 9)
"""The first compute capability that can multiply 8-bit floating point numbers."""


class CodedNumbers(NamedTuple):
    """The numbers of a format from 0 upwards, each with its bit pattern without the sign."""

    codes: Any
    numbers: Any


def numbers_of_format(name: str) -> CodedNumbers:
    """All numbers of a format, by its definition, that float32 represents as normal numbers."""
    exponent_bits, fraction_bits = CODED[name]
    leading_one = 2**fraction_bits
    bias = 2 ** (exponent_bits - 1) - 1
    code_count = 2 ** (exponent_bits + fraction_bits)
    codes = torch.arange(code_count)
    exponents = codes >> fraction_bits
    fractions = codes % leading_one
    # A number with an exponent has a leading one, but a subnormal number does not.
    with_leading_one = fractions + leading_one
    digits = torch.where(exponents > 0, with_leading_one, fractions)
    powers = exponents.clamp(min=1) - bias - fraction_bits
    numbers = digits.double() * 2.0 ** powers.double()
    format = torch.finfo(getattr(torch, name))
    is_normal = (numbers == 0) | (numbers >= 2.0**-126)
    is_tested = is_normal & (numbers <= format.max)
    return CodedNumbers(codes[is_tested], numbers[is_tested])


def codes_are_exact(device: str, name: str) -> Iterator[Part]:
    """Check that each number is read from its bits and written back, and that midpoints are rounded
    to the even neighbor."""
    dtype = getattr(torch, name)
    codes, exact = numbers_of_format(name)
    code_format = torch.uint8 if "float8" in name else torch.int16
    read = codes.to(code_format).to(device).view(dtype)
    yield same(f"{name} read", read.double(), exact)
    # Of two neighbors, one has an even code, and a midpoint must be rounded to that neighbor.
    next_numbers = exact.roll(-1)
    even_numbers = torch.where(codes % 2 == 0, exact, next_numbers)[1:-1]
    middles = (exact[2:] + exact[1:-1]) / 2

    for label, numbers, expected in (
        ("written", exact, exact),
        ("rounded", middles, even_numbers),
    ):
        both_signs = torch.cat([numbers, -numbers])
        expected_of_both = torch.cat([expected, -expected])
        # float32 represents each number exactly, and the device rounds it to the format.
        rounded = both_signs.float().to(device).to(dtype)
        yield same(f"{name} {label}", rounded.double(), expected_of_both)


def float8(device: str) -> Outcome:
    """Check that both 8-bit formats read and write each number as defined and, if the hardware
    supports them, that products are exact.

    It catches conversions that round or saturate wrongly.
    """
    if not hasattr(torch, "float8_e4m3fn"):
        return Outcome(SKIPPED, f"torch {torch.__version__} has no 8-bit floating point")
    parts: List[Part] = []
    for name in CODED:
        if "float8" in name:
            parts += codes_are_exact(device, name)
    if amd_target(torch, device):
        return judged(
            parts,
            "only reading, writing and rounding were tested: AMD's GPUs multiply other 8-bit "
            "formats (fnuz) or none",
        )
    # A CPU cannot multiply 8-bit formats.
    capability = capability_of(torch, device)
    if capability is None or capability < FLOAT8_FROM:
        return judged(
            parts,
            "only reading, writing and rounding were tested: float8 products need compute "
            "capability 8.9",
        )
    shapes = ((64, 64, 64), (48, 512, 32))
    try:
        parts += multiplied(device, "float8_e4m3fn", shapes, scaled_product)
    except RuntimeError as problem:
        if not refuses(problem):
            raise
        return judged(parts, "the definition; this torch has no products for this device")
    return judged(parts, "the definition and float64")


def scaled_product(left: Any, right: Any) -> Any:
    """The product computed by `torch._scaled_mm` with scales of 1, with the right factor stored
    column-major."""
    scale = torch.ones((), device=left.device)
    by_columns = right.t().contiguous().t()
    product = torch._scaled_mm(
        left, by_columns, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16
    )
    # An older torch also returns the largest number of the product.
    return product[0] if isinstance(product, tuple) else product
