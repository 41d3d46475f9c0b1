"""How "out of memory" is spelled: by torch, CUDA, its libraries, other accelerators and the host.

Pure rows and a look-up, so that the batch search, its children and the recovery agree. Rows that
are not `certain` stand for what some libraries say *instead* where memory was short: whoever saw a
smaller batch work may count them (`maybe=True`), nobody else should.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from gpusetup.model.frozen import Frozen

PYTORCH = "pytorch, c10/cuda/CUDACachingAllocator.cpp and its siblings"
LIBRARY = "the library's status codes"


class Spelling(Frozen):
    """One way to say it: every word of `holds` stands in the text, whatever its case."""

    id: str
    holds: tuple[str, ...]
    memory: Literal["device", "host"] = "device"
    certain: bool = True
    source: str = PYTORCH


SPELLINGS = (
    Spelling(id="torch-cuda", holds=("cuda out of memory",)),
    Spelling(id="torch-hip", holds=("hip out of memory",)),
    Spelling(id="torch-mps", holds=("mps backend out of memory",)),
    Spelling(id="torch-mps-buffer", holds=("invalid buffer size:",)),
    Spelling(id="torch-xpu", holds=("xpu out of memory",)),
    Spelling(id="torch-npu", holds=("npu out of memory",)),
    Spelling(
        id="nccl",
        holds=("nccl", "cuda failure", "out of memory"),
        source="NCCL's `Cuda failure 2 'out of memory'`",
    ),
    Spelling(id="cuda-runtime", holds=("cuda error", "out of memory")),
    Spelling(id="cuda-runtime-name", holds=("cudaerrormemoryallocation",)),
    Spelling(id="cuda-driver", holds=("cuda_error_out_of_memory",)),
    Spelling(id="cuda-malloc", holds=("cudamalloc", "out of memory")),
    Spelling(id="hip-runtime", holds=("hip error", "out of memory")),
    Spelling(id="hip-runtime-name", holds=("hiperroroutofmemory",)),
    Spelling(id="cublas", holds=("cublas_status_alloc_failed",), source=LIBRARY),
    Spelling(id="cudnn", holds=("cudnn_status_alloc_failed",), source=LIBRARY),
    Spelling(id="cusolver", holds=("cusolver_status_alloc_failed",), source=LIBRARY),
    Spelling(id="cusparse", holds=("cusparse_status_alloc_failed",), source=LIBRARY),
    Spelling(id="cufft", holds=("cufft_alloc_failed",), source=LIBRARY),
    Spelling(id="hipblas", holds=("hipblas_status_alloc_failed",), source=LIBRARY),
    Spelling(id="miopen", holds=("miopenstatusallocfailed",), source=LIBRARY),
    Spelling(
        id="allocator-without-nvml",
        holds=("nvml_success == r", "cudacachingallocator"),
        source="pytorch: the allocator asks NVML only while it reports that memory is out",
    ),
    Spelling(id="cpu-linux", holds=("defaultcpuallocator: can't allocate memory",), memory="host"),
    Spelling(id="cpu-windows", holds=("defaultcpuallocator: not enough memory",), memory="host"),
    Spelling(id="bad-alloc", holds=("std::bad_alloc",), memory="host", source="C++"),
    Spelling(
        id="errno",
        holds=("[errno 12]", "cannot allocate memory"),
        memory="host",
        source="Linux, ENOMEM",
    ),
    Spelling(
        id="numpy", holds=("unable to allocate", "for an array"), memory="host", source="numpy"
    ),
    Spelling(
        id="worker-killed",
        holds=("dataloader worker", "is killed by signal: killed"),
        memory="host",
        source="torch.utils.data: the Linux OOM killer took a loader's worker",
    ),
    Spelling(id="cudnn-no-plan", holds=("unable to find an engine to execute",), certain=False),
    Spelling(id="cudnn-not-supported", holds=("cudnn_status_not_supported",), certain=False),
    Spelling(id="cudnn-internal", holds=("cudnn_status_internal_error",), certain=False),
    Spelling(id="cublas-no-handle", holds=("cublas_status_not_initialized",), certain=False),
    Spelling(id="cublas-internal", holds=("cublas_status_internal_error",), certain=False),
    Spelling(
        id="onednn-create",
        holds=("could not create a primitive",),
        memory="host",
        certain=False,
        source="oneDNN: the same words for memory that ran out and for what it does not implement",
    ),
    Spelling(
        id="onednn-execute",
        holds=("could not execute a primitive",),
        memory="host",
        certain=False,
        source="oneDNN",
    ),
)
"""Read in order; the first that fits names it. As of torch 2.13, July 2026."""

TYPES: dict[str, Literal["device", "host"]] = {
    "OutOfMemoryError": "device",
    "MemoryError": "host",
    "ArrayMemoryError": "host",
}
"""Exception types that mean it whatever they say (torch's, Python's and numpy's)."""

KILLED_EXITS = (-9, 137)
"""How a child ends that the Linux OOM killer took: by SIGKILL, and as a shell reports that."""


def spelling_of(problem: BaseException | str, *, maybe: bool = False) -> Spelling | None:
    """The row that a text, an exception or one of its causes fits; None where none does.

    >>> spelling_of("RuntimeError: CUDA error: out of memory").id
    'cuda-runtime'
    >>> spelling_of(MemoryError()).memory
    'host'
    >>> spelling_of("CUDA error: an illegal memory access was encountered") is None
    True
    """
    if isinstance(problem, str):
        return _by_text(problem, maybe)
    for one in causes(problem):
        row = _by_text(str(one), maybe) or _by_type(one)
        if row is not None:
            return row
    return None


def is_out_of_memory(problem: BaseException | str, *, maybe: bool = False) -> bool:
    """Whether it says that memory ran out, on the device or on the host.

    >>> is_out_of_memory("CUDNN_STATUS_NOT_SUPPORTED"), is_out_of_memory(
    ...     "CUDNN_STATUS_NOT_SUPPORTED", maybe=True
    ... )
    (False, True)
    """
    return spelling_of(problem, maybe=maybe) is not None


def is_answer_short(answer: Mapping[str, Any], *, maybe: bool) -> bool:
    """The same of what a child answered: the `kinds` of what was raised, and its `detail`."""
    kinds = " ".join(answer.get("kinds") or ())
    return is_out_of_memory(f"{kinds}: {answer.get('detail')}", maybe=maybe) or any(
        kind in TYPES for kind in kinds.split()
    )


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


def _by_text(text: str, maybe: bool) -> Spelling | None:
    low = text.lower()
    return next(
        (row for row in SPELLINGS if (row.certain or maybe) and all(p in low for p in row.holds)),
        None,
    )


def _by_type(problem: BaseException) -> Spelling | None:
    for kind in type(problem).__mro__:
        memory = TYPES.get(kind.__name__.lstrip("_"))
        if memory is not None:
            return Spelling(
                id=kind.__name__, holds=(), memory=memory, source="the exception's type"
            )
    return None
