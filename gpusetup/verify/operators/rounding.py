"""In which arithmetic a device computes an operator in a format."""

from __future__ import annotations

from typing import Any

from ..checks.trials import capability_of
from ..judging.precision import UNIT_ROUNDOFF, read_conv_precision, read_precision
from ..judging.tolerance import ROUNDOFF
from .releases import HALVES
from .table import Operator


def roundoff(torch: Any, device: str, arithmetic: str, dtype: str) -> float:
    """Of the format, or of the coarser arithmetic that this operator may use for float32 here."""
    if dtype != "float32" or not arithmetic:
        return ROUNDOFF.get(dtype, 0.0)
    read = read_conv_precision if arithmetic == "convolution" else read_precision
    return UNIT_ROUNDOFF[read(torch, device, capability_of(device)).name]


def lessened(torch: Any, device: str, row: Operator, dtype: str) -> bool:
    """Whether parts of a product's sums may be rounded to half precision here."""
    product = row.arithmetic == "product" and dtype in HALVES
    return product and device != "cpu"
