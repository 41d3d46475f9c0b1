"""The precision that a float32 matrix product should have: torch's setting decides it, and
environment variables of the libraries can override that."""

from __future__ import annotations

import os
from typing import Any, Dict, Optional, Tuple

UNIT_ROUNDOFF = {"ieee": 2.0**-24, "tf32": 2.0**-11, "bf16": 2.0**-8}
"""The unit roundoff of each format to which factors may be rounded (24, 11 or 8 bits)."""
BFLOAT16_FROM = (8, 0)
"""The first compute capability with bfloat16 in hardware; from 7.0 on GPUs emulate it."""
BY_MODE = {"highest": "ieee", "high": "tf32", "medium": "bf16"}
"""What `torch.get_float32_matmul_precision` returns -> the coarsest format that it permits. Torch
starts with `high` if TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1 is set, as in some of NVIDIA's images."""
ONEDNN_MODES = {"BF16": "bf16", "F16": "bf16", "TF32": "tf32", "ANY": "bf16"}
"""oneDNN's mode, by its environment variable -> the coarsest format that it permits."""
ONEDNN_VARIABLES: Dict[str, Dict[str, str]] = {
    "ONEDNN_DEFAULT_FPMATH_MODE": ONEDNN_MODES,
    "DNNL_DEFAULT_FPMATH_MODE": ONEDNN_MODES,
}
"""oneDNN's environment variable by its current and by its earlier name, with its values."""
CUDA_VARIABLES: Dict[str, Dict[str, str]] = {"NVIDIA_TF32_OVERRIDE": {"1": "tf32"}}
"""The NVIDIA libraries' environment variable, which overrides torch's setting."""


def read_precision(torch: Any, device: str) -> str:
    """The coarsest format, a key of UNIT_ROUNDOFF, to which torch's setting or a library's
    environment variable permits rounding the factors.

    A device may compute more precisely than is permitted, for example a GPU without TF32.
    """
    permitted = [BY_MODE[torch.get_float32_matmul_precision()]]
    # On a CPU and on Intel's GPUs, torch multiplies with oneDNN.
    variables = CUDA_VARIABLES if device.startswith("cuda") else ONEDNN_VARIABLES
    for name, formats in variables.items():
        value = os.environ.get(name, "").upper()
        # Other values, such as "STRICT", permit nothing.
        if value in formats:
            permitted.append(formats[value])
    return max(permitted, key=UNIT_ROUNDOFF.__getitem__)


def capability_of(torch: Any, device: str) -> Optional[Tuple[int, int]]:
    """The compute capability of a GPU as (major, minor), or None for any other device."""
    if not device.startswith("cuda"):
        return None
    major, minor = torch.cuda.get_device_capability(device)
    return int(major), int(minor)


def has_bfloat16(torch: Any, device: str) -> bool:
    """Whether the device computes in bfloat16 without emulating it."""
    capability = capability_of(torch, device)
    return capability is None or capability >= BFLOAT16_FROM
