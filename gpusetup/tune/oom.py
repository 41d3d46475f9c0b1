"""Recognises how torch, CUDA, its libraries, other accelerators and the host report that memory ran
out.

The batch search and `recover_from_oom` use it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

OUT_OF_MEMORY = re.compile(
    r"out[ _]?of[ _]?memory|memoryerror\b|memoryallocation|alloc_?failed|bad_alloc"
    r"|invalid buffer size:|(?:can't|cannot) allocate memory|allocator: not enough memory"
    r"|unable to allocate .* for an array"  # numpy
    r"|nvml_success == r.*cudacachingallocator"  # torch asks NVML only when it reports an OOM
    r"|dataloader worker.*is killed by signal: killed",  # the Linux OOM killer ended it
    re.IGNORECASE,
)
KILLED_EXITS = (-9, 137)
"""The exit codes of a child that the Linux OOM killer ended: the negative number of SIGKILL, and
137, by which a shell reports that signal."""


def is_out_of_memory(problem: BaseException | str) -> bool:
    """Whether a text, an exception or one of its causes reports that the device or the host ran out
    of memory.

    >>> is_out_of_memory("RuntimeError: CUDA error: out of memory"), is_out_of_memory(MemoryError())
    (True, True)
    """
    if isinstance(problem, str):
        match = OUT_OF_MEMORY.search(problem)
        return match is not None
    for cause in causes(problem):
        # Look at the class names too, because the exception's class or its base class may show the
        # cause even if the message does not.
        class_names = [kind.__name__ for kind in type(cause).__mro__]
        text = f"{' '.join(class_names)}: {cause}"
        if OUT_OF_MEMORY.search(text):
            return True
    return False


def is_killed_for_memory(exit_code: int | None) -> bool:
    """Whether a child's exit code means that the OOM killer may have ended it.

    >>> is_killed_for_memory(137), is_killed_for_memory(-11)
    (True, False)
    """
    return exit_code in KILLED_EXITS


def causes(problem: BaseException) -> Iterator[BaseException]:
    """An exception, followed by the chain of exceptions that caused it."""
    seen: set[int] = set()
    cause: BaseException | None = problem
    # Stop if an exception occurs twice, because causes can form a cycle.
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        context = None if cause.__suppress_context__ else cause.__context__
        cause = cause.__cause__ or context
