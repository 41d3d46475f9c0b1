"""Finds the memory that torch can use on a GPU from AMD, Intel or Apple.

The memory model was fitted to jobs on NVIDIA GPUs. torch allocates the same tensors on GPUs of any
maker, but the model was never checked on these GPUs, so the answer contains a warning.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpusetup.accelerators.amd import BUILT_FOR, RELATIVES
from gpusetup.accelerators.apple import metal_bytes
from gpusetup.accelerators.board_memory import STRIX_HALO, STRIX_HALO_SHARE, board_sizes
from gpusetup.accelerators.makers import AMD, APPLE, BY_ID, Maker
from gpusetup.accelerators.other_gpus import other_gpu
from gpusetup.catalog.gpus import GpuRow, maker_of_name, memory_in, tokens
from gpusetup.errors import Unsatisfiable, UsageError
from gpusetup.model.machine import Snapshot
from gpusetup.model.units import GIB
from gpusetup.plan.place import Place, cuda_bytes, machine_place, named_gpu

NOT_MEASURED = (
    "no {maker} GPU was measured: the memory model was fitted on NVIDIA GPUs, but torch allocates "
    "the same memory for a model on every GPU. 8-bit AdamW and QLoRA need a bitsandbytes build "
    "for {label}"
)
LABELS = {"amd": "ROCm", "intel": "XPU", "apple": "MPS"}

UNIFIED_ADVICE = {
    "amd": " on Linux as it is installed (half of it; the kernel's parameter ttm.pages_limit "
    "raises that)",
    "apple": " (`torch.mps.recommended_max_memory()` prints the exact figure)",
}


def place_of_name(text: str, rows: Sequence[GpuRow]) -> Place:
    """The GPU with this name, from any maker; UsageError if the name is unknown or does not
    determine the memory size."""
    maker = maker_of_name(text, rows)
    if maker is None:
        return named_gpu(text, rows)
    gpu = other_gpu(text, maker)
    # A plan for a GPU that torch does not support would be useless.
    if gpu.target and gpu.target not in (*BUILT_FOR, *RELATIVES):
        raise Unsatisfiable(
            f"{text!r} is AMD's {gpu.target}: no ROCm build of torch has kernels for it"
        )
    is_strix = STRIX_HALO.search(text) is not None
    unified = maker is APPLE or is_strix
    sizes = () if unified else board_sizes(text)
    written_gb = memory_in(tokens(text)) or (sizes[0] if len(sizes) == 1 else None)
    if written_gb is None:
        several = " or ".join(f"{size}GB" for size in sizes)
        known = f"the card has {several}" if sizes else "it is not in gpusetup's table"
        if unified:
            known = "it uses the machine's memory"
        size = 64 if unified else (sizes[-1] if sizes else None)
        raise UsageError(
            f"The memory size of {text!r} is unclear: {known}",
            hint=f"add it: `--gpu '{gpu.name} {size}GB'`" if size else "give `--gpu-mem 16GiB`",
        )
    total = written_gb * GIB
    capacity = metal_bytes(total) if maker is APPLE else cuda_bytes(total)
    if is_strix:
        capacity = total * STRIX_HALO_SHARE
    return place(gpu.name, total, capacity, maker, unified)


def place_of_machine(machine: Snapshot) -> Place:
    """The GPUs of a machine, from any maker, limited by the one with the least memory; if there are
    NVIDIA GPUs, only these count. UsageError if a memory size is unknown."""
    stack = machine.makers
    if stack is None or machine.gpus:
        return machine_place(machine)
    maker = BY_ID[stack.maker]
    found: list[tuple[float, bool, str]] = []
    for gpu in stack.gpus:
        is_strix = STRIX_HALO.search(f"{gpu.name} {gpu.target}") is not None
        sizes = board_sizes(gpu.name)
        # The driver's report (on a Mac, Metal's limit), or the size of all boards with this name.
        size: float | None = gpu.memory_total_bytes or (sizes[0] * GIB if len(sizes) == 1 else None)
        if is_strix and machine.memory.total_bytes:
            size = machine.memory.total_bytes * STRIX_HALO_SHARE
        if not size:
            raise UsageError(
                f"The memory of {gpu.name} is not known",
                hint="`--gpu NAME` or `--gpu-mem 24GiB` plans for another machine",
            )
        found.append((size, maker is APPLE or is_strix, gpu.name))
    if not found:
        raise UsageError("This machine lists no GPU", hint="name one: `--gpu NAME`")
    size, unified, name = min(found)
    # If memory is shared, the size already is the part that torch can use.
    return place(name, size, size if unified else cuda_bytes(size), maker, unified)


def place(name: str, total: float, capacity: float, maker: Maker, unified: bool) -> Place:
    """The `Place` for a GPU from another maker, with the remarks that apply to this GPU."""
    remark = NOT_MEASURED.format(maker=maker.name, label=LABELS[maker.id])
    if unified:
        remark += (
            f". Of the machine's {total / GIB:.0f} GiB, torch can use about "
            f"{capacity / GIB:.1f} GiB{UNIFIED_ADVICE[maker.id]}"
        )
    return Place(
        gpu=name,
        total_bytes=total,
        capacity=capacity,
        unified=unified,
        host_bytes=int(total) if unified else None,
        remark=remark,
        # Only the allocator for CUDA and ROCm has expandable segments; XPU and MPS have other
        # allocators.
        has_expandable_segments=maker is AMD,
    )
