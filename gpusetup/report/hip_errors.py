"""Errors of HIP that a program prints with CUDA's name, or that ggml calls "ROCm error".

ggml (llama.cpp, whisper.cpp, stable-diffusion.cpp, ollama) compiles its CUDA code for HIP, so its
messages and files keep CUDA's name there.
"""

from __future__ import annotations

import re

from gpusetup.messages.search import Text
from gpusetup.model.frozen import replace
from gpusetup.model.patterns import lazy, lowered

SHOWS_HIP = lazy(
    r"\bfound [1-9]\d? ROCm devices|\bROCm error\b|\bamdhip64|\bhip(?:blas|info|cc)?\b|\brocm[\d-]|\bgfx(?:[789]|1\d)\w{2}\b",
    re.I,
)
"""Words of a program that was compiled for HIP."""
SHOWS_NVIDIA = lazy(
    r"NVIDIA(?! driver)|GeForce|\b(?:RTX|GTX|Tesla)\b|\bsm_\d\d|found [1-9]\d? CUDA devices"
)
# ggml's `CUDA error: invalid device function`; a ROCm program also calls an image invalid.
NO_KERNEL = lazy(
    r"\b(?:CUDA|ROCm) error: (?:invalid device function|device kernel image is invalid"
    r"|no kernel image is available for execution on the device)",
    re.I,
)
"""What ggml prints if its build has no kernel for the GPU."""
OF_HIP = " HIP error: invalid device function"
"""The same error in HIP's own words. It is as long as the shortest of the others."""


def with_hips_own_words(text: Text) -> Text:
    """The text with HIP's words for a missing kernel, if ggml ran on HIP; its lines, which are
    quoted, stay as they are.

    >>> from gpusetup.report.cleaning import text_of
    >>> log = "ggml: found 1 ROCm devices, CUDA error: invalid device function"
    >>> with_hips_own_words(text_of(log)).flat
    'ggml: found 1 ROCm devices,  HIP error: invalid device function'
    """
    if not text.has_any(("ggml", "rocm error")) or not NO_KERNEL.search(text.flat):
        return text
    if not SHOWS_HIP.search(text.flat) or SHOWS_NVIDIA.search(text.flat):
        return text
    # A text's positions lead to its lines, so every message keeps its length.
    flat = NO_KERNEL.sub(lambda message: OF_HIP.ljust(len(message[0])), text.flat)
    return replace(text, flat=flat, low=lowered(flat))
