"""Matrix products of whole numbers in every format, and how formats round: each bit is known."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Tuple

import torch

from ..judging.precision import amd_target, capability_of, has_bfloat16, read_precision
from ..judging.refusals import refuses
from ..judging.tolerance import Part, judged, same, source
from ..values import SKIPPED, Outcome, kind

Shape = Tuple[int, int, int]
"""Rows, inner length, columns."""
ONES = 24
"""Numbers other than 0 in a column of the right factor."""
MOST: Dict[str, Tuple[int, int]] = {
    "float64": (2**20, 2**10),
    "ieee": (2**15, 2**4),
    "tf32": (2**11, 2**4),
    "bf16": (2**8, 2**4),
    "float16": (2**4, 2**2),
    "bfloat16": (2**2, 2),
    "float8_e4m3fn": (2**2, 2),
}
"""The greatest numbers of the factors. Each number is exact in its format, or in that to which a
setting permits to round it, and so is each sum of ONES products and each part of it."""
SHAPES: Tuple[Shape, ...] = (
    *((256, 256, 256), (129, 257, 65), (2048, 33, 7), (8, 4096, 8), (1, 511, 129)),
    *((4097, 1023, 65), (63, 1025, 4095), (33, 131072, 31), (70001, 33, 9)),
)
LARGEST = {"cpu": (2048, 2048, 2048), "cuda": (4096, 4096, 4096)}
Product = Callable[[Any, Any], Any]


def matmul(device: str) -> Outcome:
    """A 1000 x 1000 product in float32, at every element."""
    found = _of_format("float32", device, ((1000, 1000, 1000),))
    said = "1000 x 1000 float32 product of whole numbers: every element is exact"
    return found._replace(
        detail=found.detail.replace("1 comparisons with whole numbers, every element", said)
    )


def float32_modes(device: str) -> Outcome:
    """`torch.set_float32_matmul_precision`: each setting keeps to the precision that it permits,
    and the finest gives the finest again afterwards."""
    before = torch.get_float32_matmul_precision()
    parts: List[Part] = []
    try:
        for mode in ("highest", "high", "medium", "highest"):
            torch.set_float32_matmul_precision(mode)
            for part in multiplied(device, "float32", SHAPES[:2]):
                parts.append(part._replace(label=f"{mode} {part.label}"))
    finally:
        torch.set_float32_matmul_precision(before)
    return judged(parts, "whole numbers in each setting")


def _of_format(name: str, device: str, shapes: Tuple[Shape, ...] = ()) -> Outcome:
    largest = LARGEST[kind(device)]
    # a CPU takes thirty times as long for a half
    usual = SHAPES if kind(device) == "cpu" and name != "float32" else (*SHAPES, largest)
    try:
        parts = list(multiplied(device, name, shapes or usual))
        parts += _codes(device, name) if name in CODED else []
    except RuntimeError as problem:
        if not lacks(device, name, problem):
            raise
        return Outcome(SKIPPED, f"torch {torch.__version__} multiplies no {name} on {device}")
    permitted = read_precision(torch, device)
    coarse = name == "float32" and permitted.name != "ieee"
    said = f", {permitted.name} by {permitted.because}" if coarse else ""
    return judged(parts, f"whole numbers, every element{said}", WRONG)


float64 = partial(_of_format, "float64")
float32 = partial(_of_format, "float32")
float16 = partial(_of_format, "float16")
bfloat16 = partial(_of_format, "bfloat16")
WRONG = (
    "`env` shows variables that override the program (NVIDIA_TF32_OVERRIDE, DNNL_*). If there is "
    "none, the device computes wrong numbers: run the check again, then look for Xid and ECC in "
    "`dmesg`"
)


def lacks(device: str, name: str, problem: BaseException) -> bool:
    """Whether an error only says that this device has no such products; a GPU that has the units
    for it must not say so."""
    if name == "bfloat16" and not has_bfloat16(torch, device):
        return refuses(problem)
    return "not implemented for" in str(problem)


def multiplied(
    device: str, name: str, shapes: Tuple[Shape, ...], run: Product = lambda a, b: a @ b
) -> Iterator[Part]:
    """Each element of a product is checked by its row's sum with weights.

    A row of a product times weights is a row of the left factor times what the right one makes of
    the weights (Freivalds). All are whole numbers, so one wrong element of 16 millions is seen.
    """
    most, least = MOST[read_precision(torch, device).name if name == "float32" else name]
    for rows, inner, columns in shapes:
        made = source(torch, inner)
        left = torch.randint(-most, most + 1, (rows, inner), generator=made)
        places = torch.randint(0, inner, (ONES, columns), generator=made)
        factors = torch.randint(-least, least + 1, places.shape, generator=made)
        right = torch.zeros(inner, columns, dtype=torch.int64).scatter_(0, places, factors)
        weights = torch.randint(1, 9, (columns,), generator=made).double()
        wanted = _weighed(left, _weighed(right, weights))
        found = run(*(x.to(getattr(torch, name)).to(device) for x in (left, right)))
        yield same(f"{rows} x {inner} x {columns}", _weighed(found.cpu(), weights), wanted)


def _weighed(x: Any, weights: Any) -> Any:
    """Each row times the weights, in float64 by single products and a sum."""
    return torch.cat([(part.double() * weights).sum(1) for part in x.split(256)])


CODED = {"bfloat16": (8, 7), "float16": (5, 10), "float8_e4m3fn": (4, 3), "float8_e5m2": (5, 2)}
"""Bits of exponent and fraction (OCP 8-bit floating point specification, revision 1.0)."""
FLOAT8_FROM = (8, 9)


def _codes(device: str, name: str) -> Iterator[Part]:
    """Each number is read from its code and written again; what lies in the middle of two is
    rounded to the one whose code is even."""
    dtype, (wide, fraction) = getattr(torch, name), CODED[name]
    bias, codes = 2 ** (wide - 1) - 1, torch.arange(2 ** (wide + fraction))
    exponents, fractions = codes >> fraction, codes % 2**fraction
    whole = fractions + (exponents > 0) * 2**fraction
    exact = whole.double() * 2.0 ** (exponents.clamp(min=1) - bias - fraction).double()
    # float32 must hold them without being subnormal
    kept = (exact <= torch.finfo(dtype).max) & ((exact == 0) | (exact >= 2.0**-126))
    codes, exact = codes[kept], exact[kept]
    raw = codes.to(torch.uint8 if "float8" in name else torch.int16).to(device)
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
    parts = [part for name in CODED if "float8" in name for part in _codes(device, name)]
    if amd_target(torch, device):
        return judged(
            parts,
            "only reading, writing and rounding were tested: AMD's GPUs multiply other 8-bit "
            "formats (fnuz) or none",
        )
    capability = capability_of(torch, device)
    if capability is None or capability < FLOAT8_FROM:
        return judged(
            parts,
            "only reading, writing and rounding were tested: float8 products need compute "
            "capability 8.9",
        )
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
