"""The precision that a float32 matrix product should have, by torch's settings and by the
environment variables of the libraries."""

from __future__ import annotations

import operator
import os
import warnings
from typing import Any, List, NamedTuple, Optional, Tuple

UNIT_ROUNDOFF = {"ieee": 2.0**-24, "tf32": 2.0**-11, "bf16": 2.0**-8}
"""The unit roundoff of each format to which factors may be rounded (24, 11 or 8 bits)."""
TF32_FROM = (8, 0)
"""The first compute capability whose tensor cores support TF32."""
BFLOAT16_FROM = (8, 0)
"""The first compute capability with bfloat16 in hardware; from 7.0 on GPUs emulate it."""
ONEDNN_MODES = {"BF16": "bf16", "F16": "bf16", "TF32": "tf32", "ANY": "bf16"}
"""Maps the value of a variable in ONEDNN to the coarsest format that it permits."""
ONEDNN = ("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE")
"""oneDNN's environment variable, by its current and by its earlier name."""
COARSE = {"True": "tf32", "tf32": "tf32", "bf16": "bf16", "high": "tf32", "medium": "bf16"}
"""Maps the value of a torch setting to the format that it permits, if that is not IEEE. `high`
permits TF32 (or three bf16 products), and `medium` permits one bf16 product."""
MATMUL = "get_float32_matmul_precision"
SETTINGS = {
    "cuda": ("backends.cuda.matmul.fp32_precision", "backends.cuda.matmul.allow_tf32", MATMUL),
    "cpu": ("backends.mkldnn.matmul.fp32_precision", MATMUL),
}
"""The torch settings that determine it; `fp32_precision` exists from torch 2.9 on."""


class Precision(NamedTuple):
    """The format to which factors may be rounded, and the setting that permits it."""

    name: str
    """A key of UNIT_ROUNDOFF."""
    because: str
    """The setting that permits this format, with its value; empty for the IEEE default."""


IEEE = Precision("ieee", "")


def capability_of(torch: Any, device: str) -> Optional[Tuple[int, int]]:
    """The compute capability of a GPU as (major, minor), or None for any other device."""
    # A CPU has no compute capability.
    if not device.startswith("cuda"):
        return None
    major, minor = torch.cuda.get_device_capability(device)
    return int(major), int(minor)


TF32_TARGETS = ("gfx94", "gfx95")
"""The AMD targets whose matrix cores support TF32: the Instinct MI300 and MI350 series. All others
multiply in full float32 even with `allow_tf32` (ROCm documentation, "Precision support"). The
compute capability that torch reports for AMD GPUs does not show this."""


def amd_target(torch: Any, device: str) -> str:
    """The target of an AMD GPU, e.g. `gfx1100`; empty for NVIDIA GPUs and the CPU."""
    if not device.startswith("cuda") or not getattr(torch.version, "hip", None):
        return ""
    properties = torch.cuda.get_device_properties(device)
    # `gfx90a:sramecc+:xnack-`
    return str(getattr(properties, "gcnArchName", "gfx")).partition(":")[0]


def has_bfloat16(torch: Any, device: str) -> bool:
    """Whether the device computes in bfloat16 without emulating it."""
    capability = capability_of(torch, device)
    return capability is None or capability >= BFLOAT16_FROM


def read_precision(torch: Any, device: str) -> Precision:
    """The effective precision on a device: the coarsest one that is permitted."""
    capability = capability_of(torch, device)
    target = amd_target(torch, device)
    # AMD's other GPUs do not support TF32.
    if target and not target.startswith(TF32_TARGETS):
        return IEEE
    permitted = [IEEE]
    # A CPU computes with oneDNN, which also reads its own environment variables.
    if capability is None:
        permitted += by_settings(torch, "cpu")
        for name in ONEDNN:
            value = os.environ.get(name, "")
            # "STRICT" and values that oneDNN does not know permit nothing.
            if value.upper() in ONEDNN_MODES:
                permitted.append(Precision(ONEDNN_MODES[value.upper()], f"{name}={value}"))
    else:
        # The NVIDIA libraries' environment variable overrides torch's settings.
        override = os.environ.get("NVIDIA_TF32_OVERRIDE", "")
        if capability < TF32_FROM or override == "0":
            return IEEE
        if override == "1":
            permitted.append(Precision("tf32", f"NVIDIA_TF32_OVERRIDE={override}"))
        for precision in by_settings(torch, "cuda"):
            # cuBLAS treats `medium` as TF32 too.
            is_exact = precision.name == "ieee"
            permitted.append(precision if is_exact else precision._replace(name="tf32"))
    return max(permitted, key=lambda precision: UNIT_ROUNDOFF[precision.name])


def by_settings(torch: Any, device_kind: str) -> List[Precision]:
    """The precision that each torch setting permits. Older releases lack some. If a program has
    mixed old and new ones, torch refuses to read the old ones."""
    permitted = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path in SETTINGS[device_kind]:
            try:
                setting = operator.attrgetter(path)(torch)
            except (AttributeError, RuntimeError):
                continue
            value = str(setting() if callable(setting) else setting)
            permitted.append(Precision(COARSE.get(value, "ieee"), f"torch.{path}={value}"))
    return permitted
