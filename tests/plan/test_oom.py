"""Every spelling of out-of-memory is recognised, and nothing that only looks like it."""

from __future__ import annotations

import pytest

from gpusetup.tune.oom import is_out_of_memory

SAID = """\
CUDA out of memory. Tried to allocate 20.00 MiB
HIP out of memory. Tried to allocate 2.00 GiB.
MPS backend out of memory (MPS allocated: 17.00 GB, other allocations: 1.02 GB)
Invalid buffer size: 24.00 GB
XPU out of memory. Tried to allocate 8.00 GiB
NPU out of memory. Tried to allocate 8.00 GiB
CUDA error: out of memory CUDA kernel errors might be reported later
cudaErrorMemoryAllocation: the API call failed
cuMemCreate failed: CUDA_ERROR_OUT_OF_MEMORY
cudaMalloc failed: out of memory
HIP error: out of memory
hipErrorOutOfMemory
CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`
cuDNN error: CUDNN_STATUS_ALLOC_FAILED
cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate`
CUDA error: CUSPARSE_STATUS_ALLOC_FAILED
cuFFT error: CUFFT_ALLOC_FAILED
CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`
MIOpen Error: miopenStatusAllocFailed
NCCL error in: x.cpp, unhandled cuda error Cuda failure 'out of memory'
NVML_SUCCESS == r INTERNAL ASSERT FAILED, CUDACachingAllocator.cpp
DefaultCPUAllocator: can't allocate memory: you tried to allocate 40000000000 bytes.
DefaultCPUAllocator: not enough memory: you tried to allocate 40000 bytes.
terminate called after throwing an instance of 'std::bad_alloc'
OSError: [Errno 12] Cannot allocate memory
Unable to allocate 74.5 GiB for an array with shape (100000, 100000)
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


@pytest.mark.parametrize("text", SAID)
def test_what_was_said_is_recognised(text: str) -> None:
    assert is_out_of_memory(RuntimeError(text))


@pytest.mark.parametrize("text", OTHERWISE)
def test_what_only_looks_like_it_is_something_else(text: str) -> None:
    assert not is_out_of_memory(RuntimeError(text))


def test_the_type_is_enough_where_the_text_says_nothing() -> None:
    import torch

    assert is_out_of_memory(torch.OutOfMemoryError(""))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(ValueError(""))


def test_an_error_that_wraps_it_is_it() -> None:
    try:
        try:
            raise RuntimeError(SAID[0])
        except RuntimeError as inner:
            raise ValueError("the step failed") from inner
    except ValueError as outer:
        assert is_out_of_memory(outer)


def test_what_was_silenced_on_purpose_does_not_count() -> None:
    try:
        try:
            raise RuntimeError(SAID[0])
        except RuntimeError:
            raise ValueError("bad label") from None
    except ValueError as outer:
        assert not is_out_of_memory(outer)
