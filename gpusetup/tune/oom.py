"""Recognises how torch, CUDA, its libraries, other accelerators and the host report that memory ran
out."""

from __future__ import annotations

import re

OUT_OF_MEMORY = re.compile(
    r"out[ _]?of[ _]?memory|memoryerror\b|memoryallocation|alloc_?failed|bad_alloc"
    r"|invalid buffer size:|(?:can't|cannot) allocate memory|allocator: not enough memory"
    r"|unable to allocate .* for an array"  # numpy
    r"|nvml_success == r.*cudacachingallocator"  # torch asks NVML only when it reports an OOM
    r"|dataloader worker.*is killed by signal: killed",  # the Linux OOM killer ended it
    re.IGNORECASE,
)


def is_out_of_memory(problem: BaseException | str) -> bool:
    """Whether a text, an exception or one of its causes reports that the device or the host ran out
    of memory.

    >>> is_out_of_memory("RuntimeError: CUDA error: out of memory"), is_out_of_memory(MemoryError())
    (True, True)
    """
    if isinstance(problem, str):
        return OUT_OF_MEMORY.search(problem) is not None
    seen: set[int] = set()
    cause: BaseException | None = problem
    # Stop if an exception occurs twice, because causes can form a cycle.
    while cause is not None and id(cause) not in seen:
        # The name of the exception's class or its base class may show what the message does not.
        if OUT_OF_MEMORY.search(f"{[kind.__name__ for kind in type(cause).__mro__]}: {cause}"):
            return True
        seen.add(id(cause))
        context = None if cause.__suppress_context__ else cause.__context__
        cause = cause.__cause__ or context
    return False
