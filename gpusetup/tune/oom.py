"""How "out of memory" is spelled: by torch, CUDA, its libraries, other accelerators and the host.

The batch search, its children and the recovery read these rows. What some libraries say *instead*
where memory was short counts only for who saw a smaller batch work (`maybe=True`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

CERTAIN: tuple[tuple[str, ...], ...] = (
    ("cuda out of memory",), ("hip out of memory",), ("mps backend out of memory",),
    ("invalid buffer size:",), ("xpu out of memory",), ("npu out of memory",),
    ("nccl", "cuda failure", "out of memory"), ("cuda error", "out of memory"),
    ("cudaerrormemoryallocation",), ("cuda_error_out_of_memory",),
    ("cudamalloc", "out of memory"), ("hip error", "out of memory"),
    ("hiperroroutofmemory",), ("cublas_status_alloc_failed",), ("cudnn_status_alloc_failed",),
    ("cusolver_status_alloc_failed",), ("cusparse_status_alloc_failed",),
    ("cufft_alloc_failed",), ("hipblas_status_alloc_failed",), ("miopenstatusallocfailed",),
    ("nvml_success == r", "cudacachingallocator"),  # it asks NVML only while it reports a shortage
    ("defaultcpuallocator: can't allocate memory",), ("defaultcpuallocator: not enough memory",),
    ("std::bad_alloc",), ("[errno 12]", "cannot allocate memory"),
    ("unable to allocate", "for an array"),  # numpy
    ("dataloader worker", "is killed by signal: killed"),  # by the Linux OOM killer
)  # fmt: skip
"""Words that stand in one text, whatever their case. As of torch 2.13, July 2026."""
DOUBTFUL: tuple[tuple[str, ...], ...] = (
    ("unable to find an engine to execute",), ("cudnn_status_not_supported",),
    ("cudnn_status_internal_error",), ("cublas_status_not_initialized",),
    ("cublas_status_internal_error",),
    ("could not create a primitive",), ("could not execute a primitive",),  # oneDNN
)  # fmt: skip
TYPES = ("OutOfMemoryError", "MemoryError", "ArrayMemoryError")
"""Exception types that mean it whatever they say (torch's, Python's and numpy's)."""
KILLED_EXITS = (-9, 137)
"""How a child ends that the Linux OOM killer took: by SIGKILL, and as a shell reports that."""


def is_out_of_memory(problem: BaseException | str, *, maybe: bool = False) -> bool:
    """Whether a text, an exception or one of its causes says that memory ran out, on the device or
    on the host.

    >>> is_out_of_memory("RuntimeError: CUDA error: out of memory"), is_out_of_memory(MemoryError())
    (True, True)
    >>> said = "CUDNN_STATUS_NOT_SUPPORTED"
    >>> is_out_of_memory(said), is_out_of_memory(said, maybe=True)
    (False, True)
    """
    if isinstance(problem, str):
        low, rows = problem.lower(), CERTAIN + (DOUBTFUL if maybe else ())
        return any(all(word in low for word in row) for row in rows)
    return any(
        is_out_of_memory(str(one), maybe=maybe)
        or any(kind.__name__.lstrip("_") in TYPES for kind in type(one).__mro__)
        for one in causes(problem)
    )


def is_answer_short(answer: Mapping[str, Any], *, maybe: bool) -> bool:
    """The same of what a child answered: the `kinds` of what was raised, and its `detail`."""
    kinds = answer.get("kinds") or ()
    said = f"{' '.join(kinds)}: {answer.get('detail')}"
    return is_out_of_memory(said, maybe=maybe) or any(kind in TYPES for kind in kinds)


def is_killed_for_memory(exit_code: int | None) -> bool:
    """Whether a child may have been taken by the OOM killer: nothing else says SIGKILL by itself.

    >>> is_killed_for_memory(137), is_killed_for_memory(-11)
    (True, False)
    """
    return exit_code in KILLED_EXITS


def causes(problem: BaseException) -> Iterator[BaseException]:
    """An exception, then what it was raised from or while handling."""
    seen: set[int] = set()
    one: BaseException | None = problem
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
