"""How exact a float32 matrix product may be expected to be here. Rules pure, readers thin.

The limit follows from the arithmetic that the libraries were told to use, which is read from
torch's settings and the libraries' own variables, never assumed.
"""

from __future__ import annotations

import operator
import os
import warnings
from math import sqrt
from typing import Any, List, Mapping, NamedTuple, Optional, Sequence, Tuple

UNIT_ROUNDOFF = {"ieee": 2.0**-24, "tf32": 2.0**-11, "bf16": 2.0**-8}
"""Half the distance from 1 to the next number, of what the factors are rounded to first:
24, 11 and 8 significant bits."""
ACCUMULATOR_ROUNDOFF = 2.0**-24
"""Sums are kept in float32 under every setting."""

ROUNDED_FACTORS = 16.0
"""The worst of a million elements, in u * sqrt(K): 3 where both factors are rounded to nearest,
8 where the low bits are cut off (both measured in float64, K = 1000). 16 leaves the double."""
RUNNING_SUM = 8.0
"""The worst of a million elements, in u * K: 3.6 where each product is added to one running sum,
0.9 with the blocked sums of a CPU library (both measured, K = 1000). 8 leaves the double."""

TF32_FROM = (8, 0)
"""The first compute capability whose tensor cores know TF32."""
ONEDNN_MODES = {"BF16": "bf16", "F16": "bf16", "TF32": "tf32", "ANY": "bf16"}
"""DNNL_DEFAULT_FPMATH_MODE -> the coarsest it permits."""
COARSE = {"True": "tf32", "tf32": "tf32", "bf16": "bf16", "high": "tf32", "medium": "bf16"}
"""What a setting of torch says -> what it permits, where that is not IEEE: `high` permits TF32 (or
three bf16 products), `medium` one bf16 product."""
MATMUL = "get_float32_matmul_precision"
SETTINGS = {
    "cuda": ("backends.cuda.matmul.fp32_precision", "backends.cuda.matmul.allow_tf32", MATMUL),
    "cpu": ("backends.mkldnn.matmul.fp32_precision", MATMUL),
    "cuda conv": ("backends.cudnn.conv.fp32_precision", "backends.cudnn.allow_tf32"),
    "cpu conv": ("backends.mkldnn.conv.fp32_precision",),
}
"""Where torch keeps it; `fp32_precision` in torch 2.9 and later."""


class Precision(NamedTuple):
    name: str
    """A key of UNIT_ROUNDOFF."""
    because: str
    """The setting that says so; empty for the plain IEEE default."""


IEEE = Precision("ieee", "")


def matmul_limit(name: str, inner: int) -> float:
    """The greatest error allowed, relative to |row| * |column|, for random factors.

    Absolute: ROUNDED_FACTORS * u * sqrt(K) + RUNNING_SUM * u32 * K, and |row| * |column| is
    about K.

    >>> f"{matmul_limit('ieee', 1000):.1e} {matmul_limit('tf32', 1000):.1e}"
    '5.1e-07 2.5e-04'
    """
    factors = ROUNDED_FACTORS * UNIT_ROUNDOFF[name] / sqrt(inner)
    return factors + RUNNING_SUM * ACCUMULATOR_ROUNDOFF


def coarsest(found: Sequence[Precision]) -> Precision:
    """The one with the largest unit roundoff.

    >>> coarsest((IEEE, Precision("tf32", "a setting"))).name
    'tf32'
    """
    return max(found, key=lambda each: UNIT_ROUNDOFF[each.name])


def effective_cuda(
    settings: Sequence[Precision], environ: Mapping[str, str], capability: Tuple[int, int]
) -> Precision:
    """What cuBLAS may do with float32: the variable of the NVIDIA libraries outranks torch.

    TORCH_ALLOW_TF32_CUBLAS_OVERRIDE only sets with what torch's own setting begins.
    """
    override = environ.get("NVIDIA_TF32_OVERRIDE", "")
    if capability < TF32_FROM or override == "0":
        return IEEE
    forced = [Precision("tf32", f"NVIDIA_TF32_OVERRIDE={override}")] if override == "1" else []
    # cuBLAS reads `medium` as TF32 too.
    usual = [each._replace(name="tf32") for each in settings if each.name != "ieee"]
    return coarsest((IEEE, *forced, *usual))


def effective_cpu(settings: Sequence[Precision], environ: Mapping[str, str]) -> Precision:
    """What oneDNN may do with float32."""
    named = [
        Precision(ONEDNN_MODES[environ[name].upper()], f"{name}={environ[name]}")
        for name in ("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE")
        if environ.get(name, "").upper() in ONEDNN_MODES
    ]
    return coarsest((IEEE, *named, *settings))


def read_precision(
    torch: Any, device: str, capability: Optional[Tuple[int, int]], what: str = ""
) -> Precision:
    """The effective precision of float32 products on a device, from this torch's settings."""
    if capability is None:
        return effective_cpu(_said(torch, "cpu" + what), os.environ)
    return effective_cuda(_said(torch, "cuda" + what), os.environ, capability)


def read_conv_precision(
    torch: Any, device: str, capability: Optional[Tuple[int, int]]
) -> Precision:
    """The same of convolutions; cuDNN may use TF32 by default, and some of its ways, and all of
    those without it, are matrix products."""
    kinds = ("", " conv")
    return coarsest([read_precision(torch, device, capability, what) for what in kinds])


def _said(torch: Any, of: str) -> List[Precision]:
    """What each setting says. An older torch lacks some; one where old and new settings were
    mixed refuses to read the old ones (RuntimeError), and the new ones count; torch 2.9 warns
    that the old ones will go."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path in SETTINGS[of]:
            try:
                said = operator.attrgetter(path)(torch)
            except (AttributeError, RuntimeError):
                continue
            said = str(said() if callable(said) else said)
            found.append(Precision(COARSE.get(said, "ieee"), f"torch.{path}={said}"))
    return found
