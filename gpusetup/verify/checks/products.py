"""Checks matrix products of whole numbers, for which every bit of the result is known, and the
rounding of each number format."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Tuple

import torch

from ..judging.answers import generator as seeded
from ..judging.precision import capability_of, has_bfloat16, read_precision
from ..judging.refusals import refuses
from ..judging.tolerance import Comparison, outcome_of, same
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
LARGEST = (4096, 4096, 4096)
"""The largest product, in addition to SHAPES, on CUDA: Intel's and Apple's GPUs may have little
memory, and a CPU takes long."""
Product = Callable[[Any, Any], Any]


def matmul(device: str) -> Outcome:
    """One 1000 x 1000 float32 product: it finds wrong numbers in the shortest time."""
    outcome = of_format("float32", device, ((1000, 1000, 1000),))
    # The report gives the size of the one product instead of a count of comparisons.
    words = "1000 x 1000 float32 product of whole numbers: every element is exact"
    detail = outcome.detail.replace("1 comparisons with whole numbers, every element", words)
    return outcome._replace(detail=detail)


def float32_modes(device: str) -> Outcome:
    """Each setting rounds no more than it permits, and `highest` is exact again at the end. Two
    sizes are enough, because the check `float32` tests all of them."""
    user_mode = torch.get_float32_matmul_precision()
    parts: List[Comparison] = []
    try:
        for mode in ("highest", "high", "medium", "highest"):
            torch.set_float32_matmul_precision(mode)
            for part in multiplied(device, "float32", SHAPES[:2]):
                parts.append(part._replace(label=f"{mode} {part.label}"))
    finally:
        torch.set_float32_matmul_precision(user_mode)
    return outcome_of(parts, "whole numbers in each setting")


def of_format(name: str, device: str, shapes: Tuple[Shape, ...] = ()) -> Outcome:
    """Products of whole numbers in a format, by default of all sizes that suit the device, and how
    bfloat16 and float16 round."""
    if not shapes:
        shapes = (*SHAPES, LARGEST) if kind(device) == "cuda" else SHAPES
    try:
        parts = list(multiplied(device, name, shapes))
        # A format of 16 bits has so few numbers that each of them can be read and written.
        if name in CODE_BITS:
            parts += codes_are_exact(device, name)
    # Apple's backend raises TypeError for a format that it lacks.
    except (RuntimeError, TypeError) as problem:
        if not lacks_format(problem, name, device):
            raise
        return Outcome(SKIPPED, f"torch {torch.__version__} multiplies no {name} on {device}")
    permitted = read_precision(torch, device)
    # If the user has allowed a coarser format for float32 products, the report names it.
    setting = ""
    if name == "float32" and permitted != "ieee":
        setting = f", {permitted} is permitted"
    return outcome_of(parts, f"whole numbers, every element{setting}")


def lacks_format(problem: Exception, name: str, device: str) -> bool:
    """Whether an error only means that this torch or device does not multiply in a format."""
    emulates = name == "bfloat16" and not has_bfloat16(torch, device)
    # The backends of Intel and Apple lack some formats, and a GPU that emulates bfloat16 may refuse
    # a call. On other GPUs, the same errors of a library mean that it does not fit this GPU.
    if emulates or kind(device) in OTHER_ACCELERATORS:
        return refuses(problem)
    # Old releases have no float16 product on the CPU.
    return "not implemented for" in str(problem)


float64 = partial(of_format, "float64")
float32 = partial(of_format, "float32")
float16 = partial(of_format, "float16")
bfloat16 = partial(of_format, "bfloat16")


def multiplied(
    device: str, name: str, shapes: Tuple[Shape, ...], run: Product = operator.matmul
) -> Iterator[Comparison]:
    """Check every row of the products by its sum with weights (Freivalds' algorithm).

    (A @ B) @ w must equal A @ (B @ w). All numbers are whole and no weight is 0, so even a single
    wrong element among 16 million shows.
    """
    dtype = getattr(torch, name)
    # For float32, the user's setting decides to which format the factors are rounded.
    greatest = GREATEST[read_precision(torch, device) if name == "float32" else name]
    for rows, inner, columns in shapes:
        generator = seeded(f"product {rows} {inner} {columns}")
        left = torch.randint(-greatest[0], greatest[0] + 1, (rows, inner), generator=generator)
        # Each column of the right factor has at most ONES numbers other than zero.
        places = torch.randint(0, inner, (ONES, columns), generator=generator)
        numbers = torch.randint(-greatest[1], greatest[1] + 1, places.shape, generator=generator)
        right = torch.zeros(inner, columns, dtype=torch.int64).scatter_(0, places, numbers)
        weights = torch.randint(1, 9, (columns,), generator=generator).double()
        product = run(left.to(dtype).to(device), right.to(dtype).to(device)).cpu()
        known = weighed(left, weighed(right, weights))
        yield same(f"{rows} x {inner} x {columns}", weighed(product, weights), known)


def weighed(x: Any, weights: Any) -> Any:
    """The product of each row with the weights, computed in float64."""
    # Work in parts, so that the whole matrix is never in float64 at once.
    return torch.cat([(rows.double() * weights).sum(1) for rows in x.split(256)])


CODE_BITS = {"bfloat16": (8, 7), "float16": (5, 10), "float8_e4m3fn": (4, 3), "float8_e5m2": (5, 2)}
"""Number format -> its exponent bits and fraction bits (for 8 bits: OCP 8-bit floating point
specification, revision 1.0)."""
FLOAT8_FROM = (8, 9)
"""The first compute capability that can multiply 8-bit floating point numbers."""


def codes_are_exact(device: str, name: str) -> Iterator[Comparison]:
    """Each number of a format (if float32 represents it as a normal number) is read from its bits
    and written back, and midpoints are rounded to the even neighbor."""
    dtype = getattr(torch, name)
    exponent_bits, fraction_bits = CODE_BITS[name]
    codes = torch.arange(2 ** (exponent_bits + fraction_bits))
    exponents, fractions = codes >> fraction_bits, codes % 2**fraction_bits
    # A number with an exponent has a leading one, but a subnormal number does not.
    digits = torch.where(exponents > 0, fractions + 2**fraction_bits, fractions)
    bias = 2 ** (exponent_bits - 1) - 1
    powers = exponents.clamp(min=1) - bias - fraction_bits
    exact = digits.double() * 2.0 ** powers.double()
    # The largest codes mean infinity and NaN. A kernel may flush numbers that are subnormal in
    # float32 to zero.
    is_finite = exact <= torch.finfo(dtype).max
    is_tested = is_finite & ((exact == 0) | (exact >= torch.finfo(torch.float32).tiny))
    codes, exact = codes[is_tested], exact[is_tested]
    code_format = torch.uint8 if "float8" in name else torch.int16
    read = codes.to(code_format).to(device).view(dtype)
    yield same(f"{name} read", read.double(), exact)
    # Of two neighbors, one has an even code, and a midpoint must be rounded to that neighbor. Start
    # behind 0, because the numbers next to it may be subnormal in float32 and left out.
    lower, upper = exact[1:-1], exact[2:]
    middles = (lower + upper) / 2
    even_numbers = torch.where(codes[1:-1] % 2 == 0, lower, upper)
    for label, numbers, expected in (("written", exact, exact), ("rounded", middles, even_numbers)):
        # float32 represents each number exactly, and the device rounds it to the format.
        rounded = torch.cat([numbers, -numbers]).float().to(device).to(dtype)
        yield same(f"{name} {label}", rounded.double(), torch.cat([expected, -expected]))


def float8(device: str) -> Outcome:
    """Both 8-bit formats are read and rounded right, and multiplied on GPUs that can do that."""
    if not hasattr(torch, "float8_e4m3fn"):
        return Outcome(SKIPPED, f"torch {torch.__version__} has no 8-bit floating point")
    parts: List[Comparison] = []
    for name in CODE_BITS:
        if "float8" in name:
            parts += codes_are_exact(device, name)
    against = "the definition"
    capability = capability_of(torch, device)
    # A CPU multiplies no 8-bit formats, and AMD's GPUs multiply others.
    is_amd = getattr(torch.version, "hip", None) is not None
    if capability and capability >= FLOAT8_FROM and not is_amd:
        try:
            # `torch._scaled_mm` takes only multiples of 16.
            shapes = ((64, 64, 64), (48, 512, 32))
            parts += multiplied(device, "float8_e4m3fn", shapes, scaled_product)
            against = "the definition and whole numbers"
        except RuntimeError as problem:
            if not refuses(problem):
                raise
    return outcome_of(parts, against)


def scaled_product(left: Any, right: Any) -> Any:
    """The product by `torch._scaled_mm`, which needs its right factor stored column-major."""
    scale = torch.ones((), device=left.device)
    by_columns = right.t().contiguous().t()
    scales = {"scale_a": scale, "scale_b": scale}
    product = torch._scaled_mm(left, by_columns, out_dtype=torch.bfloat16, **scales)
    # An older torch also returns the largest number of the product.
    return product[0] if isinstance(product, tuple) else product
