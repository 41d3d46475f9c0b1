"""How exact a float32 matrix product may be expected to be here. Rules pure, readers thin.

The limit follows from the arithmetic that the libraries were told to use, which is read from
torch's settings and the libraries' own variables, never assumed.
"""

from __future__ import annotations

import os
import warnings
from math import sqrt
from typing import Any, Callable, Mapping, NamedTuple, Optional, Tuple

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


def coarsest(found: Tuple[Precision, ...]) -> Precision:
    """The one with the largest unit roundoff.

    >>> coarsest((IEEE, Precision("tf32", "a setting"))).name
    'tf32'
    """
    return max(found, key=lambda each: UNIT_ROUNDOFF[each.name])


def effective_cuda(
    settings: Tuple[Precision, ...], environ: Mapping[str, str], capability: Tuple[int, int]
) -> Precision:
    """What cuBLAS may do with float32: the variable of the NVIDIA libraries outranks torch.

    TORCH_ALLOW_TF32_CUBLAS_OVERRIDE only sets with what torch's own setting begins.
    """
    override = environ.get("NVIDIA_TF32_OVERRIDE", "")
    if capability < TF32_FROM or override == "0":
        return IEEE
    forced = [Precision("tf32", f"NVIDIA_TF32_OVERRIDE={override}")] if override == "1" else []
    usual = tuple(_as_tf32(each) for each in settings)
    return coarsest((*forced, *usual, IEEE))


def effective_cpu(settings: Tuple[Precision, ...], environ: Mapping[str, str]) -> Precision:
    """What oneDNN may do with float32."""
    named = [
        Precision(ONEDNN_MODES[environ[name].upper()], f"{name}={environ[name]}")
        for name in ("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE")
        if environ.get(name, "").upper() in ONEDNN_MODES
    ]
    return coarsest((*named, *settings, IEEE))


def _as_tf32(setting: Precision) -> Precision:
    """cuBLAS reads `medium` as TF32 too."""
    return setting if setting.name == "ieee" else setting._replace(name="tf32")


def read_precision(torch: Any, device: str, capability: Optional[Tuple[int, int]]) -> Precision:
    """The effective precision of float32 products on a device, from this torch's settings."""
    if capability is None:
        return effective_cpu(_said(torch, CPU_SETTINGS), os.environ)
    return effective_cuda(_said(torch, CUDA_SETTINGS), os.environ, capability)


def read_conv_precision(
    torch: Any, device: str, capability: Optional[Tuple[int, int]]
) -> Precision:
    """The same of convolutions; cuDNN may use TF32 by default, and some of its ways, and all of
    those without it, are matrix products."""
    product = read_precision(torch, device, capability)
    if capability is None:
        return coarsest((product, effective_cpu(_said(torch, CPU_CONV), os.environ)))
    return coarsest((product, effective_cuda(_said(torch, CUDA_CONV), os.environ, capability)))


def _new_setting(path: str) -> Callable[[Any], Precision]:
    """`torch.backends.X.matmul.fp32_precision`, torch 2.9 and later: ieee, tf32, bf16, none."""

    def read(torch: Any) -> Precision:
        where = torch.backends
        for part in path.split("."):
            where = getattr(where, part)
        name = str(where.fp32_precision)
        return Precision(name if name in UNIT_ROUNDOFF else "ieee", f"torch.backends.{path}")

    return read


def _allow_tf32(torch: Any) -> Precision:
    allowed = bool(torch.backends.cuda.matmul.allow_tf32)
    return Precision("tf32" if allowed else "ieee", "torch.backends.cuda.matmul.allow_tf32")


def _matmul_precision(torch: Any) -> Precision:
    """`high` permits TF32 (or three bf16 products), `medium` one bf16 product."""
    said = str(torch.get_float32_matmul_precision())
    name = {"high": "tf32", "medium": "bf16"}.get(said, "ieee")
    return Precision(name, f"torch.set_float32_matmul_precision({said!r})")


CUDA_SETTINGS = (_new_setting("cuda.matmul"), _allow_tf32, _matmul_precision)


def _cudnn_tf32(torch: Any) -> Precision:
    allowed = bool(torch.backends.cudnn.allow_tf32)
    return Precision("tf32" if allowed else "ieee", "torch.backends.cudnn.allow_tf32")


CPU_SETTINGS = (_new_setting("mkldnn.matmul"), _matmul_precision)
CUDA_CONV = (_new_setting("cudnn.conv"), _cudnn_tf32)
CPU_CONV = (_new_setting("mkldnn.conv"),)


def _said(torch: Any, readers: Tuple[Callable[[Any], Precision], ...]) -> Tuple[Precision, ...]:
    """What each setting says. An older torch lacks some; one where old and new settings were
    mixed refuses to read the old ones (RuntimeError), and the new ones count; torch 2.9 warns
    that the old ones will go."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for reader in readers:
            try:
                found.append(reader(torch))
            except (AttributeError, RuntimeError):
                continue
    return tuple(found)
