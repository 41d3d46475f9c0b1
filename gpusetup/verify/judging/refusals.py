"""Distinguish errors for unsupported operations from errors in a computation."""

from __future__ import annotations

WORDS = (
    "not implemented for",
    "NOT_SUPPORTED",
    "ARCH_MISMATCH",
    "not compiled for",
    "only supported on",
    "only supported for",
    "doesn't support float64",
    "aspect fp64",
    "not currently implemented for the MPS device",
    "Could not run 'aten::",
)
"""Parts of error messages from torch and its libraries for an unsupported operation. The last four
come from Apple's and Intel's backends. The device is still usable after such an error."""
NO_FORM = ("require", "support", "not implemented", "unexpected keyword", "could not run")
"""Each message of an optimizer that lacks an implementation contains one of them."""


def refuses(problem: BaseException) -> bool:
    """Whether the error only means that torch or a library does not support the operation."""
    message = str(problem)
    return any(words in message for words in WORDS)


def lacks_form(problem: Exception) -> bool:
    """Whether the error says that an optimizer's fused or foreach implementation is not supported
    here. Knows the messages of torch 1.13 to 2.15.

    >>> lacks_form(RuntimeError("FusedAdam requires all the params to be CUDA, floating point"))
    True
    >>> lacks_form(RuntimeError("_fused_adamw_: an illegal memory access was encountered"))
    False
    """
    message = str(problem).lower()
    names_a_form = "fused" in message or "foreach" in message
    return names_a_form and any(words in message for words in NO_FORM)
