"""How "out of memory" is spelled: by torch, CUDA, its libraries, other accelerators and the host.

The batch search and the recovery read it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

OUT_OF_MEMORY = re.compile(
    r"out[ _]?of[ _]?memory|memoryerror\b|memoryallocation|alloc_?failed|bad_alloc"
    r"|invalid buffer size:|(?:can't|cannot) allocate memory|allocator: not enough memory"
    r"|unable to allocate .* for an array"  # numpy
    r"|nvml_success == r.*cudacachingallocator"  # it asks NVML only while it reports a shortage
    r"|dataloader worker.*is killed by signal: killed",  # by the Linux OOM killer
    re.IGNORECASE,
)
KILLED_EXITS = (-9, 137)
"""How a child ends that the Linux OOM killer took: by SIGKILL, and as a shell reports that."""


def is_out_of_memory(problem: BaseException | str) -> bool:
    """Whether a text, an exception or one of its causes says that memory ran out, on the device or
    on the host.

    >>> is_out_of_memory("RuntimeError: CUDA error: out of memory"), is_out_of_memory(MemoryError())
    (True, True)
    """
    if isinstance(problem, str):
        return bool(OUT_OF_MEMORY.search(problem))
    texts = (
        f"{' '.join(kind.__name__ for kind in type(one).__mro__)}: {one}" for one in causes(problem)
    )
    return any(map(is_out_of_memory, texts))


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
