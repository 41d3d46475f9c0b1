"""Finds the smallest card that is enough for a job, with a safety margin for the error of the
estimate.

People may buy or rent the card that is named, so it must be large enough even if the run needs more
than estimated. About 9 of 10 published runs of each kind stayed within the margin.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpusetup.catalog.gpus import GpuRow, tokens
from gpusetup.model.documents import SmallestGpu
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.versions import Capability
from gpusetup.plan.decide import RecipeDecision, decide, error_margin
from gpusetup.plan.place import JETSON, UNIFIED, capacity

MOST_NAMES = 3
"""The maximum number of cards to name for one memory size."""
OLDEST_CAPABILITY = Capability.parse("7.0")
"""The compute capability of Volta. Older GPUs have no tensor cores, and current trainers have no
kernels for them."""
NOT_FOR_TRAINING = JETSON | UNIFIED | {"laptop"}
"""Words in the names of GPUs that people do not buy for training."""


class CardSize(Frozen):
    """All cards that have the same amount of memory."""

    memory_gb: float
    capacity: float
    """The bytes that CUDA can use on a card of this size; the lowest value of all these cards."""
    names: tuple[str, ...]
    """The names of the fastest cards, fastest first."""


def card_sizes(rows: Sequence[GpuRow]) -> Iterator[CardSize]:
    """The memory sizes of cards for training, smallest first, each with its cards."""
    rows_by_size: dict[float, list[GpuRow]] = {}
    for row in rows:
        if row.memory_gb and is_for_training(row):
            rows_of_size = rows_by_size.setdefault(row.memory_gb, [])
            rows_of_size.append(row)
    for memory_gb in sorted(rows_by_size):
        cards = rows_by_size[memory_gb]
        # Take the smallest capacity, because cards of the same size differ in how much memory ECC
        # and the driver keep.
        capacities = [capacity(row.name, row.memory_bytes) for row in cards if row.memory_bytes]
        yield CardSize(
            memory_gb=memory_gb,
            capacity=min(capacities),
            names=fastest_names(cards),
        )


def is_for_training(row: GpuRow) -> bool:
    """Whether people buy or rent this card for training: Volta or newer, not in a laptop or on a
    board such as Jetson, and not tied to one platform."""
    # A GPU that is tied to one platform is only sold with its machine (GB200).
    if row.on is not None or row.capability < OLDEST_CAPABILITY:
        return False
    words = tokens(row.name)
    return NOT_FOR_TRAINING.isdisjoint(words)


def fastest_names(cards: Sequence[GpuRow]) -> tuple[str, ...]:
    """The names of the fastest cards, fastest first, at most `MOST_NAMES`."""

    def speed(row: GpuRow) -> float:
        # Cards before Ampere have no bf16 peak, so they come last.
        return row.peak_tflops.get("bf16", 0)

    by_speed = sorted(cards, key=speed, reverse=True)
    names = [row.name for row in by_speed]
    return tuple(names[:MOST_NAMES])


def smallest_gpu(decision: RecipeDecision, rows: Sequence[GpuRow]) -> SmallestGpu | None:
    """The smallest card on which the job fits with the safety margin and without offload, on the
    same number of GPUs; None if there is none."""
    job = decision.job
    margin = error_margin(job, decision.shown.recipe)
    for size in card_sizes(rows):
        usable_bytes = size.capacity / (1 + margin)
        limits = replace(decision.limits, capacity=usable_bytes, offload=False, measured_gpu=None)
        on_this_card = decide(job, limits)
        if on_this_card.fits:
            return SmallestGpu(
                memory_gb=size.memory_gb,
                names=size.names,
                margin_percent=round(100 * margin),
                recipe=str(on_this_card.shown.recipe),
            )
    return None
