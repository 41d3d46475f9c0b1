"""Distinguishes errors that say something is not supported from errors of a computation."""

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
"""Words of torch's and the libraries' messages that say something is not supported; the last four
are of Apple's and Intel's backends. Such an error leaves the device usable."""
NO_FORM = ("require", "support", "not implemented", "unexpected keyword", "could not run")
"""Words of which torch's refusal of an optimizer's form has at least one."""


FAULTS = (
    *("CUDA error", "HIP error", "cuDNN error", "_STATUS_", "nvrtc", "hiprtc", "Triton Error"),
    *("INTERNAL ASSERT", "launch failure", "out of memory", "Could not load", "cannot open shared"),
)
"""Words in the message of a library, driver or compiler that failed while working on a GPU."""


def is_fault(problem: BaseException) -> bool:
    """Whether the error is a failure of the GPU, its driver or a library. Otherwise torch only
    refused the arguments.

    Torch checks arguments before it computes, and a GPU takes fewer forms than the CPU.

    >>> is_fault(RuntimeError("cusolver error: CUSOLVER_STATUS_EXECUTION_FAILED"))
    True
    >>> is_fault(RuntimeError("torch.linalg.lstsq: parameter `driver` should be one of (gels)"))
    False
    """
    message = str(problem)
    return any(words in message for words in FAULTS)


def refuses(problem: BaseException) -> bool:
    """Whether the error only says that the library does not support this.

    >>> refuses(RuntimeError("_int_mm_out_cuda not compiled for this platform."))
    True
    >>> refuses(RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling"))
    False
    """
    message = str(problem)
    return any(words in message for words in WORDS)


def lacks_form(problem: Exception) -> bool:
    """Whether the error says that an optimizer does not support its fused or foreach form here
    (messages of torch 1.13 to 2.15).

    >>> lacks_form(RuntimeError("FusedAdam requires all the params to be CUDA, floating point"))
    True
    >>> lacks_form(RuntimeError("_fused_adamw_: an illegal memory access was encountered"))
    False
    """
    message = str(problem).lower()
    # Another refusal is not about the form.
    names_a_form = "fused" in message or "foreach" in message
    if not names_a_form:
        return False
    return any(words in message for words in NO_FORM)
