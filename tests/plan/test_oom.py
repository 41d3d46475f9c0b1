"""Every spelling of out-of-memory is recognised, and nothing that only looks like it."""

from __future__ import annotations

from gpusetup.tune.oom import is_out_of_memory

SAID = """\
CUDA out of memory. Tried to allocate 20.00 MiB
MPS backend out of memory (MPS allocated: 17.00 GB, other allocations: 1.02 GB)
Invalid buffer size: 24.00 GB
CUDA error: out of memory CUDA kernel errors might be reported later
cuMemCreate failed: CUDA_ERROR_OUT_OF_MEMORY
hipErrorOutOfMemory
CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`
cuFFT error: CUFFT_ALLOC_FAILED
NVML_SUCCESS == r INTERNAL ASSERT FAILED, CUDACachingAllocator.cpp
DefaultCPUAllocator: can't allocate memory: you tried to allocate 40000000000 bytes.
terminate called after throwing an instance of 'std::bad_alloc'
OSError: [Errno 12] Cannot allocate memory
DataLoader worker (pid 4711) is killed by signal: Killed.
""".splitlines()
OTHERWISE = (
    "CUDA error: an illegal memory access was encountered",
    "out of resource: shared memory, Required: 147456, Hardware limit: 101376",
    "DataLoader worker (pid 4711) is killed by signal: Bus error. insufficient shared memory (shm)",
    "[Errno 28] No space left on device",
    "IndexError: index out of range in self",
    "CUDA error: device-side assert triggered",
    "",
)


def wrapped(*, silenced: bool) -> BaseException:
    """An error that was raised because of running out of memory, or in place of it."""
    try:
        try:
            raise RuntimeError(SAID[0])
        except RuntimeError as inner:
            raise ValueError("the step failed") from (None if silenced else inner)
    except ValueError as outer:
        return outer


def test_out_of_memory_is_recognised_by_its_text_its_type_or_its_cause() -> None:
    import torch

    for text in SAID:
        assert is_out_of_memory(RuntimeError(text)), text
    for text in OTHERWISE:
        assert not is_out_of_memory(RuntimeError(text)), text
    assert is_out_of_memory(torch.OutOfMemoryError(""))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(ValueError(""))
    assert is_out_of_memory(wrapped(silenced=False))
    assert not is_out_of_memory(wrapped(silenced=True))
