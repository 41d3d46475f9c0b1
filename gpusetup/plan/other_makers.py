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
from gpusetup.model.machine import Gpu, MakerStack, Snapshot
from gpusetup.model.units import GIB
from gpusetup.plan.place import Place, cuda_bytes, machine_place, named_gpu

NOT_MEASURED = (
    "no {maker} GPU was measured: the memory model was fitted on NVIDIA GPUs, but torch allocates "
    "the same memory for a model on every GPU. 8-bit AdamW and QLoRA need a bitsandbytes build "
    "for {label}"
)
LABELS = {"amd": "ROCm", "intel": "XPU", "apple": "MPS"}


def place_of_name(text: str, rows: Sequence[GpuRow]) -> Place:
    """The GPU with this name, from any maker; UsageError if the name is unknown or does not
    determine the memory size."""
    maker = maker_of_name(text, rows)
    return named_gpu(text, rows) if maker is None else named_place(text, maker)


def place_of_machine(machine: Snapshot) -> Place:
    """The GPUs of a machine, from any maker; if there are NVIDIA GPUs, only these count."""
    stack = machine.makers
    if stack is None or machine.gpus:
        return machine_place(machine)
    return stack_place(stack, machine)


def named_place(text: str, maker: Maker) -> Place:
    """The AMD, Intel or Apple GPU with this name; UsageError if the name does not determine its
    memory."""
    gpu = other_gpu(text, maker)
    name = gpu.name
    # Refuse GPUs that torch does not support, because a plan for them would be useless.
    if gpu.target and gpu.target not in (*BUILT_FOR, *RELATIVES):
        raise Unsatisfiable(
            f"{text!r} is AMD's {gpu.target}: no ROCm build of torch has kernels for it"
        )
    written_gb = memory_in(tokens(text))
    if maker is APPLE:
        return of_apple(name, written_gb)
    if STRIX_HALO.search(text):
        return of_unified_apu(name, written_gb)
    sizes = board_sizes(text)
    if written_gb is None and len(sizes) == 1:
        written_gb = sizes[0]
    if written_gb is None:
        several = " or ".join(f"{size}GB" for size in sizes)
        hint = f"add it: `--gpu '{name} {sizes[-1]}GB'`" if sizes else "give `--gpu-mem 16GiB`"
        known = f"has {several}" if sizes else "is not in gpusetup's table"
        raise UsageError(f"The memory size of {text!r} is unclear: the card {known}", hint=hint)
    total = written_gb * GIB
    return place(name, total, cuda_bytes(total), maker)


def of_apple(name: str, written_gb: int | None) -> Place:
    """A Mac's GPU. `written_gb` is the memory size in the given name; UsageError if it is None,
    because Macs with the same chip differ in memory."""
    if written_gb is None:
        raise UsageError(
            f"{name} is sold with several sizes of memory",
            hint=f"add it: `--gpu '{name} 64GB'`",
        )
    total = written_gb << 30
    return place(name, total, metal_bytes(total), APPLE, unified=True)


def of_unified_apu(name: str, written_gb: int | None) -> Place:
    """An AMD GPU that uses the machine's memory (Strix Halo); UsageError if the name does not give
    the memory size."""
    if written_gb is None:
        raise UsageError(
            f"{name} uses the machine's memory, which its name does not tell",
            hint=f"add it: `--gpu '{name} 128GB'`",
        )
    total = written_gb << 30
    return place(name, total, total * STRIX_HALO_SHARE, AMD, unified=True)


def place(
    name: str, total: float, capacity: float, maker: Maker, *, unified: bool = False
) -> Place:
    """The `Place` for a GPU from another maker, with the remarks that apply to this GPU."""
    remark = NOT_MEASURED.format(maker=maker.name, label=LABELS[maker.id])
    if unified:
        remark += (
            f". Of the machine's {total / GIB:.0f} GiB, torch can use about "
            f"{capacity / GIB:.1f} GiB"
        )
        remark += UNIFIED_ADVICE[maker.id]
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


UNIFIED_ADVICE = {
    "amd": " on Linux as it is installed (half of it; the kernel's parameter ttm.pages_limit "
    "raises that)",
    "apple": " (`torch.mps.recommended_max_memory()` prints the exact figure)",
}


def stack_place(stack: MakerStack, machine: Snapshot) -> Place:
    """The AMD, Intel or Apple GPUs of this machine, limited by the one with the least memory;
    UsageError if a memory size is unknown."""
    maker = BY_ID[stack.maker]
    least: tuple[float, Gpu] | None = None
    for gpu in stack.gpus:
        size = memory_of(gpu, machine)
        if size is None:
            raise UsageError(
                f"The memory of {gpu.name} is not known",
                hint="`--gpu NAME` or `--gpu-mem 24GiB` plans for another machine",
            )
        if least is None or size < least[0]:
            least = (size, gpu)
    if least is None:
        raise UsageError("This machine lists no GPU", hint="name one: `--gpu NAME`")
    size, gpu = least
    shares_memory = maker is APPLE or is_strix_halo(gpu)
    # If memory is shared, `size` already is the part that torch can use.
    capacity = size if shares_memory else cuda_bytes(size)
    return place(gpu.name, size, capacity, maker, unified=shares_memory)


def is_strix_halo(gpu: Gpu) -> bool:
    """Whether a GPU is AMD's Strix Halo, which uses the machine's RAM."""
    return STRIX_HALO.search(f"{gpu.name} {gpu.target}") is not None


def memory_of(gpu: Gpu, machine: Snapshot) -> float | None:
    """The bytes of memory of a GPU; None if unknown.

    For a Strix Halo this is its share of the machine's memory. For other GPUs it is the size that
    the driver reports (on a Mac, Metal's limit), or the board's size if all boards with this name
    have the same size.
    """
    if is_strix_halo(gpu) and machine.memory.total_bytes:
        return machine.memory.total_bytes * STRIX_HALO_SHARE
    if gpu.memory_total_bytes:
        return gpu.memory_total_bytes
    sizes = board_sizes(gpu.name)
    if len(sizes) != 1:
        return None
    return sizes[0] * GIB
