"""The GPUs that a job runs on: their number, the memory that torch can use, and what the system
supports.

The memory model was fitted to jobs on NVIDIA GPUs. For a GPU of AMD, Intel or Apple the user gives
the memory that torch can use there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpusetup.accelerators.makers import BY_ID, Maker
from gpusetup.catalog.gpus import (
    JETSON,
    SERIES_WORDS,
    GpuRow,
    gpu_described,
    maker_of_name,
    rows_named,
    shares_memory,
    tokens,
)
from gpusetup.errors import Unsatisfiable, UsageError
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Snapshot, visible_gpus
from gpusetup.model.units import GIB, MIB
from gpusetup.model.versions import Capability

FIRST_WITH_BFLOAT16 = Capability(8, 0)
"""The compute capability of Ampere; older GPUs emulate bfloat16 in float32."""
OTHER_GPU = "to plan for another machine, use `--gpu NAME` or `--gpu-mem 24GiB`"


class Place(Frozen):
    """The GPUs of a machine, or a single GPU that the user described; all are alike."""

    gpu: str
    """The GPU's name, as shown in the answer."""
    total_bytes: float
    """The total memory as `nvidia-smi` prints it, or as the user gave it."""
    capacity: float
    """The bytes of memory that torch can use."""
    capability: Capability | None = None
    count: int | None = None
    """The number of GPUs in the machine; None if the user only named a GPU."""
    linux: bool = True
    """Whether the system is Linux (WSL and Jetson included), which sequence parallelism and FSDP2
    with CPU offload need."""
    env: bool = True
    """Whether expandable segments work; they do not on Windows, WSL and Jetson."""
    host_bytes: int | None = None
    """The bytes of the machine's RAM; None if unknown."""
    unified: bool = False
    """Whether the GPU uses the machine's own memory (Jetson, GB10), so that offload is useless."""
    used_bytes: int = 0
    """The bytes that other programs use on the fullest GPU."""
    remark: str = ""
    """A sentence for the answer, such as which card was assumed if the name could mean several; ""
    if none is needed."""
    sp: int | None = None
    """The only degree of sequence parallelism to consider; None for every one."""
    offload: bool = True
    """Whether to consider offload."""
    predict: bool = False
    """Whether to predict even what was measured."""


def place_of(name: str | None, total_bytes: int, capability: Capability | None = None) -> Place:
    """A GPU described by its name and memory, or by its memory alone. Boards such as Jetson and
    GB10 share the machine's memory."""
    return Place(
        gpu=name or f"GPU with {total_bytes / GIB:g} GiB",
        total_bytes=total_bytes,
        capacity=capacity(name, total_bytes),
        capability=capability,
        unified=shares_memory(name or ""),
        env=JETSON.isdisjoint(tokens(name or "")),
    )


def count_in_name(text: str) -> tuple[int | None, str]:
    """The number of GPUs in a text such as `8x H100`, and the card's name; the number is None if
    the text has none.

    >>> count_in_name("8x H100"), count_in_name("RTX 4090")
    ((8, 'H100'), (None, 'RTX 4090'))
    """
    stripped = text.strip()
    hit = re.match(r"(\d{1,4})\s*[x×*]\s*(?=[a-z])", stripped, re.IGNORECASE)
    return (int(hit[1]), stripped[hit.end() :]) if hit else (None, text)


NOT_TELLING = SERIES_WORDS | frozenset({"gtx", "rtx"})
"""Words in card names that people often omit."""


def named_gpu(text: str, rows: Sequence[GpuRow]) -> Place:
    """The NVIDIA GPU with this name; UsageError if the name is unknown, another maker's or has
    several memory sizes.

    If cards with this name have several memory sizes, this function assumes the usual one: the SXM
    card if there is exactly one, because most servers and clouds have it ("H100"), otherwise the
    card with exactly this name ("RTX 3080", not "RTX 3080 12 GB"), or the only desktop card with
    this number.
    """
    if maker := maker_of_name(text, rows):
        raise error_for_other_maker(repr(text), maker)
    # It has no memory if cards with this name have several sizes.
    gpu = gpu_described(text, rows)
    if gpu.memory_total_bytes is not None:
        return place_of(gpu.name, gpu.memory_total_bytes, gpu.compute_capability)
    # `rows_named` raises UsageError for a compute capability (`sm_90`), which names no card.
    matching = [row for row in rows_named(text, rows) if row.memory_gb]
    names = ", ".join(dict.fromkeys(row.name for row in matching))
    hint = f"one of: {names}" if matching else "give `--gpu-mem 24GiB`"
    sxm_cards = [row for row in matching if "SXM" in row.name]
    # The card with exactly this name, or the only desktop card with this number: names of laptop
    # cards have more words.
    words = tokens(text) - NOT_TELLING
    exact_cards = [row for row in matching if tokens(row.name) - NOT_TELLING == words]
    # The first of these lists with exactly one card decides.
    usual = next((cards[0] for cards in (sxm_cards, exact_cards) if len(cards) == 1), None)
    if usual is None or usual.memory_bytes is None:
        raise UsageError(f"{text!r} exists with more than one memory size", hint=hint)
    # Use the driver's name, because a machine with this card would show it.
    name = usual.smi_names[0] if usual.smi_names else usual.name
    return replace(
        place_of(name, usual.memory_bytes, usual.capability),
        remark=f"for {text}, plan assumes {usual.name}; for another card, give its full name "
        f"({hint})",
    )


def error_for_other_maker(gpu: str, maker: Maker) -> UsageError:
    """The error for a GPU that is not NVIDIA's."""
    return UsageError(
        f"{gpu} is an {maker.name} GPU, whose memory plan does not know",
        hint="give the memory that torch can use there: `--gpu-mem 24GiB`",
    )


def place_of_machine(machine: Snapshot) -> Place:
    """The NVIDIA GPUs of a machine, limited by the one with the least memory. Raises Unsatisfiable
    if there is no GPU, and UsageError if it is another maker's or its memory is unknown."""
    stack = machine.makers
    if stack is not None and not machine.gpus:
        name = next((gpu.name for gpu in stack.gpus), "This machine's GPU")
        raise error_for_other_maker(name, BY_ID[stack.maker])
    gpus = visible_gpus(machine)
    if not gpus:
        raise Unsatisfiable("This machine has no NVIDIA GPU", hint=OTHER_GPU)
    # A GPU of unknown memory comes first, and is refused.
    smallest = min(gpus, key=lambda gpu: (gpu.memory_total_bytes or 0, gpu.name))
    name, total_bytes = smallest.name, smallest.memory_total_bytes
    if not total_bytes:
        raise UsageError(f"The memory of {name} is not known", hint=OTHER_GPU)
    unified = shares_memory(name, machine.os.jetson)
    capabilities = [gpu.compute_capability for gpu in gpus if gpu.compute_capability]
    # A system that is not known counts as Linux, on which most training runs.
    linux = machine.os.family in ("linux", None) or bool(machine.os.jetson or machine.os.wsl)
    return Place(
        gpu=name,
        total_bytes=total_bytes,
        # CUDA can use all of the unified memory that Linux sees.
        capacity=float(total_bytes) if unified else capacity(name, total_bytes),
        capability=min(capabilities, default=None),
        count=len(gpus),
        linux=linux,
        env=linux and not (machine.os.jetson or machine.os.wsl),
        unified=unified,
        host_bytes=machine.memory.total_bytes,
        used_bytes=max(gpu.memory_used_bytes or 0 for gpu in gpus),
    )


TOTAL_GIB: tuple[tuple[str, float], ...] = (
    ("A100 80GB", 79.15), ("H20", 95.0), ("H100 80GB", 79.1), ("RTX 4090", 23.65),
    ("Tesla T4", 14.75), ("L4", 22.18), ("A10G", 22.18), ("A10", 22.18), ("A40", 44.56),
    ("L40", 44.56), ("L40S", 44.56), ("RTX 6000 Ada", 47.55), ("H200", 139.5), ("B200", 177.97),
    ("RTX 5090", 31.48), ("GB10", 119.6),
)  # fmt: skip
"""Name -> GiB that CUDA can use, for cards that do not follow the rule in `capacity`. For example,
ECC takes a part of GDDR memory, and HBM is sold in decimal gigabytes. The numbers come from
out-of-memory messages ("a total capacity of 79.15 GiB"), or from applying the rule to the total
that `nvidia-smi` prints; both were read in public texts in 2026-11."""
DRIVER_BYTES = 0.2 * GIB
DRIVER_SHARE = 0.005
"""The memory that the driver keeps for itself: a share of the total, plus a fixed number of bytes.

The result is within 0.4 GiB of the real value for A100 40 GB (39.39 of 40), V100 (31.74 of 32), RTX
3060 (11.76 of 12), RTX A6000 (47.54 of 47.99), T4 (14.75 of 15) and H20.
"""
UNIFIED_SHARE = 0.93
"""The share of a board's memory that Linux and CUDA see, because firmware keeps the rest. GB10
shows 119.7 of 128 GiB, Jetson Orin Nano 7.4 of 8, and AGX Orin 61.4 of 64; we use about the lowest
of these shares."""


def capacity(name: str | None, total_bytes: float) -> float:
    """The bytes that CUDA can use on a GPU whose total memory `nvidia-smi` reports as
    `total_bytes`: from the table of known cards, otherwise estimated by what the driver keeps.

    >>> capacity("NVIDIA A100-SXM4-80GB", 80 * GIB) / GIB, round(capacity(None, 24 * GIB) / GIB, 2)
    (79.15, 23.68)
    """
    words = tokens(name or "")
    for card, gib in TOTAL_GIB:
        # Cards with the same name may differ in memory, so the size must match too.
        if tokens(card) - SERIES_WORDS <= words and abs(total_bytes / GIB / gib - 1) < 0.1:
            return gib * GIB
    if shares_memory(name or ""):
        return total_bytes * UNIFIED_SHARE
    return total_bytes - DRIVER_SHARE * total_bytes - DRIVER_BYTES


SMALLEST_GPU, LARGEST_GPU = 16 * MIB, 2048 * GIB
UNITS = {"": GIB, "gib": GIB, "g": GIB, "gb": GIB, "mib": MIB, "m": MIB, "mb": MIB}


def memory_size(text: str) -> int:
    """The bytes of a GPU memory size in a text: `24GiB`, `24 GB` (the same), `4096MiB`.

    Raises UsageError if the text is not a size from 16 MiB to 2 TiB.
    """
    hit = re.fullmatch(r"(\d{1,20}(?:\.\d+)?)\s*([kmg]?i?b?)", text.strip().lower())
    # A unit that is not used for GPU memory gives size 0, which is refused below.
    size = round(float(hit[1]) * UNITS.get(hit[2], 0)) if hit else 0
    if not SMALLEST_GPU <= size <= LARGEST_GPU:
        raise UsageError(
            f"{text!r} is not a valid GPU memory size",
            hint="write it as 24GiB or 4096MiB",
        )
    return size
