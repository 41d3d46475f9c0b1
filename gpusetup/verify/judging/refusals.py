"""What a library says when it does not do a thing at all, as against doing it wrong."""

from __future__ import annotations

from typing import Any

WORDS = (
    "not implemented for",
    "NOT_SUPPORTED",
    "ARCH_MISMATCH",
    "not compiled for",
    "only supported on",
    "only supported for",
)
"""Of torch's and the CUDA libraries' messages. After one of these the device is as before."""
BFLOAT16_FROM = (8, 0)
"""The first compute capability that computes bfloat16. Older ones imitate it by float32, from 7.0
on nearly everywhere, before that nowhere (CUBLAS_STATUS_NOT_SUPPORTED)."""


def refuses(problem: BaseException) -> bool:
    """Whether the library only says that it lacks this.

    >>> refuses(RuntimeError("_int_mm_out_cuda not compiled for this platform."))
    True
    >>> refuses(RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling"))
    False
    """
    return any(words in str(problem) for words in WORDS)


def has_bfloat16(capability: Any) -> bool:
    """Whether a GPU of this capability (None: the CPU) computes bfloat16 itself.

    >>> has_bfloat16((7, 5)), has_bfloat16((8, 6)), has_bfloat16(None)
    (False, True, True)
    """
    return capability is None or tuple(capability) >= BFLOAT16_FROM
