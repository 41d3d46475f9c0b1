"""The gaps of torch's allocator: memory that it has reserved but no tensor uses."""

from __future__ import annotations

from typing import NamedTuple

from gpusetup.plan.forward_memory import TRAINER_LOGIT, activations, logit_count, logits
from gpusetup.plan.job import Recipe, TrainingJob, samples
from gpusetup.plan.states import gradients, gradients_stay

LOST_LOGIT = 1.667
"""Bytes of gaps per logit with Trinity-RFT, fitted to the measured table (`measured.py`)."""


class Gaps(NamedTuple):
    """The bytes that the allocator reserves and no tensor uses."""

    staying: float
    """The bytes that the allocator cannot give back."""
    given_back: float
    """The bytes that the allocator gives back before it runs out of memory."""


class GapShares(NamedTuple):
    """The size of the gaps as shares of the memory for temporary tensors."""

    reserved: float
    """All gaps, as long as there is enough free memory."""
    staying: float
    """The gaps that are left after the allocator has given back what it can."""


FIXED_SEGMENTS = GapShares(reserved=0.15, staying=0.05)
"""The gap shares with fixed-size segments. At Unsloth's longest contexts, gaps are at most 5 % of
the allocated memory."""
EXPANDABLE_SEGMENTS = GapShares(reserved=0.15, staying=0.02)
FIXED_SEGMENTS_FREED_LATE = GapShares(reserved=0.31, staying=0.18)
"""The gap shares with fixed-size segments that are freed late. When FSDP1 runs out of memory, gaps
are 17 to 24 % of the allocated memory."""
EXPANDABLE_SEGMENTS_FREED_LATE = GapShares(reserved=0.15, staying=0.05)


def gaps(job: TrainingJob, recipe: Recipe, transient: float, *, logits_decide: bool) -> Gaps:
    """The bytes in the allocator's gaps: those that stay, and those that it can give back.

    `transient`: the bytes of the largest temporary tensors; `logits_decide`: whether memory peaks
    while the logits exist. Fixed-size segments leave more gaps than expandable ones. The shares
    were fitted to published pairs of allocated and reserved memory.
    """
    if job.fills_token_budget:
        # With Trinity-RFT, they were fitted as a share of the largest temporary tensor.
        staying = 0.0 if recipe.env else transient * (LOST_LOGIT / TRAINER_LOGIT)
        return Gaps(staying=staying, given_back=0.0)
    logit_segments = own_segments(job, recipe)
    logit_bytes = logits(job, recipe)
    moving_bytes = activations(job, recipe) + transient
    if not gradients_stay(job):
        moving_bytes += gradients(job, recipe)
    # Logits are allocated and freed in pieces of one size, which leave no gaps, except for shifted
    # copies.
    bytes_of_uneven_size = moving_bytes
    if logits_decide and job.loss != "eager-old":
        bytes_of_uneven_size -= logit_bytes
    # FSDP1 and DeepSpeed free gathered units late, because another CUDA stream must finish using
    # them first.
    frees_late = job.gathers and job.strategy not in ("fsdp", "hsdp")
    if recipe.env:
        shares = EXPANDABLE_SEGMENTS_FREED_LATE if frees_late else EXPANDABLE_SEGMENTS
    else:
        shares = FIXED_SEGMENTS_FREED_LATE if frees_late else FIXED_SEGMENTS
    # With expandable segments, logits leave gaps too, because their size is rounded up.
    bytes_with_gaps = moving_bytes if recipe.env else bytes_of_uneven_size
    reserved = bytes_with_gaps * shares.reserved + logit_segments
    # The allocator cannot give back about a third of the logits' own segments. This share was
    # fitted too.
    after_collection = bytes_of_uneven_size * shares.staying + logit_segments / 3
    staying = min(reserved, after_collection)
    # Tensors that lie between attention scores in memory keep the segments of those scores from
    # being freed.
    if job.attention == "eager" and not job.gathers and not recipe.env:
        staying = reserved
    given_back = reserved - staying
    # If memory peaks while there are no logits, half of the logits' segments are idle at the peak.
    # Expandable segments are unmapped when idle, and gathered units reuse idle segments.
    reuses_segments = recipe.env or recipe.offload or job.gathers
    if not reuses_segments and not logits_decide:
        given_back += 0.5 * logit_bytes
    return Gaps(staying, given_back)


def own_segments(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes of memory segments for logits or their copies, which no other tensor reuses because
    none has the same size."""
    # Expandable segments take any size, and gathered units reuse idle segments.
    if recipe.env or job.gathers:
        return 0.0
    bytes_per_logit = 0.0
    # Old transformers copy the shifted logits in float32 (4 bytes, and 5 % for the segment's
    # rounding); a single sample is shifted as a view, without a copy. Megatron's loss keeps a copy
    # of the same size.
    copies_shifted_logits = job.loss == "eager-old" and samples(job, recipe) > 1
    if copies_shifted_logits or job.loss == "vocab-parallel":
        bytes_per_logit += 4.2
    # Current transformers versions keep one more copy of 16-bit logits, in 16 bits.
    if job.loss == "hf" and job.compute_bytes < 4:
        bytes_per_logit += job.compute_bytes
    return logit_count(job, recipe) * bytes_per_logit
