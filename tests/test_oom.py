"""Every spelling of out-of-memory is recognised, and nothing that only looks like it."""

from __future__ import annotations

from typing import Any

import pytest
from each_row import each

from gpusetup.tune.oom import SPELLINGS, is_out_of_memory, spelling_of

SAID = {
    "torch-cuda": "CUDA out of memory. Tried to allocate 20.00 MiB",
    "torch-hip": "HIP out of memory. Tried to allocate 2.00 GiB.",
    "torch-mps": "MPS backend out of memory (MPS allocated: 17.00 GB, other allocations: 1.02 GB)",
    "torch-mps-buffer": "Invalid buffer size: 24.00 GB",
    "torch-xpu": "XPU out of memory. Tried to allocate 8.00 GiB",
    "torch-npu": "NPU out of memory. Tried to allocate 8.00 GiB",
    "cuda-runtime": "CUDA error: out of memory\nCUDA kernel errors might be reported later",
    "cuda-runtime-name": "cudaErrorMemoryAllocation: the API call failed",
    "cuda-driver": "cuMemCreate failed: CUDA_ERROR_OUT_OF_MEMORY",
    "cuda-malloc": "cudaMalloc failed: out of memory",
    "hip-runtime": "HIP error: out of memory",
    "hip-runtime-name": "hipErrorOutOfMemory",
    "cublas": "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "cudnn": "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "cusolver": "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate`",
    "cusparse": "CUDA error: CUSPARSE_STATUS_ALLOC_FAILED",
    "cufft": "cuFFT error: CUFFT_ALLOC_FAILED",
    "hipblas": "CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`",
    "miopen": "MIOpen Error: miopenStatusAllocFailed",
    "nccl": "NCCL error in: x.cpp, unhandled cuda error\nCuda failure 'out of memory'",
    "allocator-without-nvml": "NVML_SUCCESS == r INTERNAL ASSERT FAILED, CUDACachingAllocator.cpp",
    "cpu-linux": "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't "
    "allocate memory: you tried to allocate 40000000000 bytes. Error code 12 "
    "(Cannot allocate memory)",
    "cpu-windows": "DefaultCPUAllocator: not enough memory: you tried to allocate 40000 bytes.",
    "bad-alloc": "terminate called after throwing an instance of 'std::bad_alloc'",
    "errno": "OSError: [Errno 12] Cannot allocate memory",
    "numpy": "Unable to allocate 74.5 GiB for an array with shape (100000, 100000)",
    "worker-killed": "DataLoader worker (pid 4711) is killed by signal: Killed. ",
    "cudnn-no-plan": "GET was unable to find an engine to execute this computation",
    "cudnn-not-supported": "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if",
    "cudnn-internal": "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
    "cublas-no-handle": "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate`",
    "cublas-internal": "CUDA error: CUBLAS_STATUS_INTERNAL_ERROR when calling `cublasSgemm`",
    "onednn-create": "could not create a primitive",
    "onednn-execute": "could not execute a primitive",
}
OTHERWISE = (
    "CUDA error: an illegal memory access was encountered",
    "out of resource: shared memory, Required: 147456, Hardware limit: 101376",
    "DataLoader worker (pid 4711) is killed by signal: Bus error. insufficient shared memory (shm)",
    "[Errno 28] No space left on device",
    "IndexError: index out of range in self",
    "CUDA error: device-side assert triggered",
    "",
)


def test_every_row_has_a_sentence_that_was_said() -> None:
    assert set(SAID) == {row.id for row in SPELLINGS}


@each("row", SPELLINGS)
def test_what_was_said_is_recognised_by_its_own_row(row: Any) -> None:
    found = spelling_of(RuntimeError(SAID[row.id]), maybe=True)
    assert found is not None and found.id == row.id
    assert is_out_of_memory(SAID[row.id]) is row.certain


@pytest.mark.parametrize("text", OTHERWISE)
def test_what_only_looks_like_it_is_something_else(text: str) -> None:
    assert not is_out_of_memory(RuntimeError(text), maybe=True)


def test_the_type_is_enough_where_the_text_says_nothing() -> None:
    import torch

    assert is_out_of_memory(torch.OutOfMemoryError(""))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(ValueError(""))


def test_an_error_that_wraps_it_is_it() -> None:
    try:
        try:
            raise RuntimeError(SAID["torch-cuda"])
        except RuntimeError as inner:
            raise ValueError("the step failed") from inner
    except ValueError as outer:
        assert is_out_of_memory(outer)


def test_what_was_silenced_on_purpose_does_not_count() -> None:
    try:
        try:
            raise RuntimeError(SAID["torch-cuda"])
        except RuntimeError:
            raise ValueError("bad label") from None
    except ValueError as outer:
        assert not is_out_of_memory(outer)
