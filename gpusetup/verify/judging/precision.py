"""How exact a float32 matrix product is expected to be with the current settings.

That follows from the arithmetic that the libraries were told to use, which is read from torch's
settings and the libraries' own variables, never assumed.
"""

from __future__ import annotations

import operator
import os
import warnings
from typing import Any, List, NamedTuple, Optional, Tuple

UNIT_ROUNDOFF = {"ieee": 2.0**-24, "tf32": 2.0**-11, "bf16": 2.0**-8}
"""The format that the factors of a product are rounded to first (24, 11 or 8 significant bits) ->
half the distance from 1 to the next number."""
TF32_FROM = (8, 0)
"""The first compute capability whose tensor cores know TF32."""
BFLOAT16_FROM = (8, 0)
"""The first compute capability that computes in bfloat16. From 7.0 on, older GPUs imitate it by
float32 nearly everywhere; before 7.0, nowhere."""
ONEDNN_MODES = {"BF16": "bf16", "F16": "bf16", "TF32": "tf32", "ANY": "bf16"}
"""The value of a variable of ONEDNN -> the coarsest format that it permits."""
ONEDNN = ("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE")
"""oneDNN's variables, the second one with its earlier name."""
COARSE = {"True": "tf32", "tf32": "tf32", "bf16": "bf16", "high": "tf32", "medium": "bf16"}
"""What a setting of torch says -> what it permits, where that is not IEEE: `high` permits TF32 (or
three bf16 products), `medium` one bf16 product."""
MATMUL = "get_float32_matmul_precision"
SETTINGS = {
    "cuda": ("backends.cuda.matmul.fp32_precision", "backends.cuda.matmul.allow_tf32", MATMUL),
    "cpu": ("backends.mkldnn.matmul.fp32_precision", MATMUL),
}
"""The kind of device -> torch's settings that decide; `fp32_precision` is in torch 2.9 and
later."""


class Precision(NamedTuple):
    """The format that the factors of a product may be rounded to, and the setting that
    permits it."""

    name: str
    """A key of UNIT_ROUNDOFF."""
    because: str
    """The setting that says so; empty for the plain IEEE default."""


IEEE = Precision("ieee", "")


def capability_of(torch: Any, device: str) -> Optional[Tuple[int, int]]:
    """The compute capability of a GPU as (major, minor); None for any other device."""
    # A CPU has no such number.
    if not device.startswith("cuda"):
        return None
    major, minor = torch.cuda.get_device_capability(device)
    return int(major), int(minor)


TF32_TARGETS = ("gfx94", "gfx95")
"""AMD's targets whose matrix cores know TF32: the Instinct MI300 and MI350 series. The others
multiply float32 exactly as it is, whatever `allow_tf32` says (ROCm documentation, "Precision
support"), and AMD's numbers in place of a compute capability tell nothing about it."""


def amd_target(torch: Any, device: str) -> str:
    """The target of an AMD GPU, e.g. `gfx1100`; empty for NVIDIA GPUs and the CPU."""
    if not device.startswith("cuda") or not getattr(torch.version, "hip", None):
        return ""
    properties = torch.cuda.get_device_properties(device)
    # `gfx90a:sramecc+:xnack-`
    return str(getattr(properties, "gcnArchName", "gfx")).partition(":")[0]


def has_bfloat16(torch: Any, device: str) -> bool:
    """Whether the device supports bfloat16 in hardware: a CUDA GPU from compute capability 8.0 on,
    and every other device."""
    capability = capability_of(torch, device)
    return capability is None or capability >= BFLOAT16_FROM


def read_precision(torch: Any, device: str) -> Precision:
    """The effective precision of float32 products on a device: the coarsest one that is
    permitted."""
    capability = capability_of(torch, device)
    target = amd_target(torch, device)
    # AMD's other GPUs have no coarser format.
    if target and not target.startswith(TF32_TARGETS):
        return IEEE
    # A CPU computes by oneDNN, which has variables of its own.
    if capability is None:
        permitted = [IEEE, *by_settings(torch, "cpu"), *by_onednn_variables()]
        return coarsest(permitted)
    # The variable of the NVIDIA libraries outranks torch.
    override = os.environ.get("NVIDIA_TF32_OVERRIDE", "")
    if capability < TF32_FROM or override == "0":
        return IEEE
    permitted = []
    if override == "1":
        permitted.append(Precision("tf32", f"NVIDIA_TF32_OVERRIDE={override}"))
    permitted.append(IEEE)
    for precision in by_settings(torch, "cuda"):
        # cuBLAS reads `medium` as TF32, too.
        is_exact = precision.name == "ieee"
        permitted.append(precision if is_exact else precision._replace(name="tf32"))
    return coarsest(permitted)


def coarsest(precisions: List[Precision]) -> Precision:
    """The precision that rounds most; the first one if several are equal."""

    def roundoff(precision: Precision) -> float:
        return UNIT_ROUNDOFF[precision.name]

    return max(precisions, key=roundoff)


def by_onednn_variables() -> List[Precision]:
    """The precisions that the environment variables of oneDNN permit on a CPU."""
    permitted = []
    for name in ONEDNN:
        value = os.environ.get(name, "")
        mode = ONEDNN_MODES.get(value.upper())
        # "STRICT", or a word that oneDNN does not know either.
        if mode:
            permitted.append(Precision(mode, f"{name}={value}"))
    return permitted


def by_settings(torch: Any, device_kind: str) -> List[Precision]:
    """The precision that each setting of torch permits.

    An older torch lacks some. One where old and new settings were mixed refuses to read the old
    ones (RuntimeError), and the new ones count. torch 2.9 warns that the old ones will go.
    """
    permitted = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path in SETTINGS[device_kind]:
            try:
                setting = operator.attrgetter(path)(torch)
            except (AttributeError, RuntimeError):
                continue
            value = str(setting() if callable(setting) else setting)
            name = COARSE.get(value, "ieee")
            permitted.append(Precision(name, f"torch.{path}={value}"))
    return permitted
