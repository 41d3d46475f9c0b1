"""Where a workload is to run: which GPU, how many, what CUDA gives and the system allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gpusetup.catalog.gpus import GpuRow, each_gpu, gpu_described, tokens
from gpusetup.errors import Unsatisfiable, UsageError
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Gpu, Snapshot, visible_gpus
from gpusetup.model.shell import own_word
from gpusetup.model.units import GIB
from gpusetup.plan.capacity import capacity, is_linked
from gpusetup.plan.decide import Limits
from gpusetup.plan.measured import gpu_of

System = Literal["linux", "windows", "wsl", "jetson"]
OTHER_GPU = "`--gpu NAME` or `--gpu-mem 24GiB` plans for another machine"


class Place(Frozen):
    """One machine, or a described GPU."""

    gpu: str
    """Its name, as shown."""
    total_bytes: float
    """As `nvidia-smi` prints it, or as given."""
    capacity: float
    """Bytes that CUDA gives."""
    count: int | None = None
    """GPUs of the machine; None where only a GPU was named."""
    system: System = "linux"
    host_bytes: int | None = None
    unified: bool = False
    """Whether the GPU uses the machine's own memory (Jetson, GB10): Offload gains nothing."""
    used_bytes: int = 0
    """What other programs take of the fullest GPU."""

    linked: bool = False
    """Whether several such GPUs talk by NVLink."""

    def limits(self, sp: int | None = None, *, predict: bool = False) -> Limits:
        """What may be used: expandable segments need plain Linux, SP and Offload Linux."""
        return Limits(
            capacity=self.capacity,
            env=self.system == "linux",
            linux=self.system != "windows",
            offload=not self.unified,
            host=self.host_bytes,
            sp=sp,
            measured=None if predict else gpu_of(self.gpu, self.total_bytes),
        )


def named_gpu(text: str, rows: Sequence[GpuRow]) -> Place:
    """A GPU by its name; UsageError where it is unknown, or names several sizes of memory."""
    names = each_gpu(text, rows)
    if len(names) > 1:
        count = f" --gpus {len(names)}" if len(set(names)) == 1 else ""
        raise UsageError(
            f"{text!r} names {len(names)} GPUs; `--gpu` takes one name, for GPUs that are alike",
            hint=f"`--gpu {own_word(names[0])}{count}`",
        )
    gpu = gpu_described(names[0], rows)
    if gpu.memory_total_bytes is None:
        raise UsageError(f"{text!r} does not name one memory size", hint=_sizes(text, rows))
    return _of_gpu(gpu)


def sized_gpu(total_bytes: int) -> Place:
    """A GPU of which only the memory is known."""
    name = f"GPU with {total_bytes / GIB:g} GiB"
    return Place(
        gpu=name,
        total_bytes=total_bytes,
        capacity=capacity(None, total_bytes),
        linked=is_linked(None, total_bytes),
    )


def machine_place(snapshot: Snapshot) -> Place:
    """The GPUs of a machine; the smallest sets the limit.

    Raises Unsatisfiable where there is none, UsageError where its memory is unknown.
    """
    gpus = visible_gpus(snapshot)
    if not gpus:
        raise Unsatisfiable("This machine has no NVIDIA GPU", hint=OTHER_GPU)
    gpus = tuple(_with_shared(gpu, snapshot) for gpu in gpus)
    known = [gpu for gpu in gpus if gpu.memory_total_bytes]
    if len(known) < len(gpus):
        raise UsageError(f"The memory of {gpus[0].name} is not known", hint=OTHER_GPU)
    least = min(known, key=lambda gpu: gpu.memory_total_bytes or 0)
    return replace(
        _of_gpu(least),
        count=len(gpus),
        system=_system(snapshot),
        unified=_is_unified(least, snapshot),
        host_bytes=snapshot.memory.total_bytes,
        used_bytes=max(gpu.memory_used_bytes or 0 for gpu in gpus),
    )


def _of_gpu(gpu: Gpu) -> Place:
    total = gpu.memory_total_bytes or 0
    return Place(
        gpu=gpu.name,
        total_bytes=total,
        capacity=capacity(gpu.name, total),
        linked=is_linked(gpu.name, total),
    )


UNIFIED = frozenset({"gb10", "orin", "thor", "xavier", "nano"})
"""Words in the names of GPUs that have no memory of their own."""


def _is_unified(gpu: Gpu, snapshot: Snapshot) -> bool:
    return bool(snapshot.os.jetson) or bool(UNIFIED & tokens(gpu.name))


def _with_shared(gpu: Gpu, snapshot: Snapshot) -> Gpu:
    """The GPU with the machine's memory as its own, where that is what it uses."""
    shared = snapshot.memory.total_bytes
    if gpu.memory_total_bytes or shared is None or not _is_unified(gpu, snapshot):
        return gpu
    return replace(gpu, memory_total_bytes=shared)


def _system(snapshot: Snapshot) -> System:
    if snapshot.os.jetson:
        return "jetson"
    if snapshot.os.wsl:
        return "wsl"
    return "linux" if snapshot.os.family in ("linux", None) else "windows"


def _sizes(text: str, rows: Sequence[GpuRow]) -> str:
    from gpusetup.catalog.gpus import rows_named

    try:
        hits = rows_named(text, rows)
    except UsageError:  # a capability (`sm_86`) names no card
        return "name the card, or give `--gpu-mem 24GiB`"
    names = dict.fromkeys(row.name for row in hits if row.memory_gb)
    return f"one of: {', '.join(names)}" if names else "give `--gpu-mem 24GiB`"
