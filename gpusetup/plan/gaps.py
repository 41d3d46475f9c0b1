"""The gaps of torch's allocator: memory that it has reserved but no tensor uses."""

from __future__ import annotations

from typing import NamedTuple

from gpusetup.plan.forward_memory import activations, logit_count, logits
from gpusetup.plan.job import Recipe, TrainingJob, samples
from gpusetup.plan.losses import TRAINER_LOGIT
from gpusetup.plan.states import gradients, gradients_stay

LOST_LOGIT = 1.667
"""Bytes a logit in gaps, of an RL trainer, fitted to the measured cells."""


class Gaps(NamedTuple):
    """The bytes that the allocator reserves and no tensor uses."""

    staying: float
    """Those that it cannot give back."""
    given_back: float
    """Those that it gives back before it fails."""


def gaps(job: TrainingJob, recipe: Recipe, transient: float, *, logits_decide: bool) -> Gaps:
    """The bytes in the allocator's gaps: those that stay, and those that it can give back.

    `transient`: bytes of the largest tensors that come and go; `logits_decide`: whether the logits
    are at the peak. Segments of fixed size leave more gaps than expandable ones. The shares were
    fitted to published pairs of allocated and reserved memory.
    """
    if job.fills_token_budget:
        return Gaps(staying=gaps_of_measured_trainer(recipe, transient), given_back=0.0)
    logit_segments = own_segments(job, recipe)
    logit_bytes = logits(job, recipe)
    moving_bytes = activations(job, recipe) + transient
    if not gradients_stay(job):
        moving_bytes += gradients(job, recipe)
    # Logits come and go in pieces of one size, which leave no gaps, except for shifted copies.
    bytes_of_uneven_size = moving_bytes
    if logits_decide and job.loss != "eager-old":
        bytes_of_uneven_size -= logit_bytes
    shares = gap_shares(job, recipe)
    # Expandable segments round the logits up as well.
    bytes_with_gaps = moving_bytes if recipe.env else bytes_of_uneven_size
    reserved = bytes_with_gaps * shares.reserved + logit_segments
    # A third of the logits' own segments stays; fitted, as the shares are.
    after_collection = bytes_of_uneven_size * shares.staying + logit_segments / 3
    staying = min(reserved, after_collection)
    # Tensors that live between attention scores in memory hold the segments of those scores.
    if job.attention == "eager" and not job.gathers and not recipe.env:
        staying = reserved
    given_back = reserved - staying
    # Half of the logits' segments are idle if the peak is elsewhere.
    if segments_of_logits_idle(job, recipe) and not logits_decide:
        given_back += 0.5 * logit_bytes
    return Gaps(staying, given_back)


class GapShares(NamedTuple):
    """How large the gaps are, as shares of the bytes that come and go."""

    reserved: float
    """All gaps, while there is room."""
    staying: float
    """The gaps that are left after the allocator has given back what it can."""


FIXED_SEGMENTS = GapShares(reserved=0.15, staying=0.05)
"""Unsloth's longest contexts end within 5 % of what is allocated."""
EXPANDABLE_SEGMENTS = GapShares(reserved=0.15, staying=0.02)
FIXED_SEGMENTS_FREED_LATE = GapShares(reserved=0.31, staying=0.18)
"""Runs of FSDP1 end within 17 to 24 % of what is allocated."""
EXPANDABLE_SEGMENTS_FREED_LATE = GapShares(reserved=0.15, staying=0.05)


def gap_shares(job: TrainingJob, recipe: Recipe) -> GapShares:
    """The shares for the kind of segments that the job has."""
    # Units that FSDP1 and DeepSpeed gather are free only when another stream is done with them.
    frees_late = job.gathers and job.strategy not in ("fsdp", "hsdp")
    if frees_late:
        return EXPANDABLE_SEGMENTS_FREED_LATE if recipe.env else FIXED_SEGMENTS_FREED_LATE
    return EXPANDABLE_SEGMENTS if recipe.env else FIXED_SEGMENTS


def gaps_of_measured_trainer(recipe: Recipe, transient: float) -> float:
    """The bytes in gaps for the measured RL trainer, fitted to the size of the logits alone."""
    if recipe.env:
        return 0.0
    lost_share = LOST_LOGIT / TRAINER_LOGIT
    return transient * lost_share


def segments_of_logits_idle(job: TrainingJob, recipe: Recipe) -> bool:
    """Whether the memory segments of the logits stay unused while other tensors are at their
    peak."""
    # Expandable segments are unmapped, and gathered units fill what is idle.
    reuses_segments = recipe.env or recipe.offload or job.gathers
    return not reuses_segments


def own_segments(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes in segments for logits or copies of them, which no other tensor can reuse because
    none has that size."""
    if recipe.env or job.gathers:
        return 0.0
    bytes_per_logit = 0.0
    # Old transformers copy the shifted logits in float32 (4 bytes, and 5 % for the segment's
    # rounding); one sample alone is shifted as a view. Megatron's loss keeps a copy as large.
    copies_shifted_logits = job.loss == "eager-old" and samples(job, recipe) > 1
    if copies_shifted_logits or job.loss == "vocab-parallel":
        bytes_per_logit += 4.2
    # Today's transformers upcast 16-bit logits once more, in their own format.
    if job.loss == "hf" and job.compute_bytes < 4:
        bytes_per_logit += job.compute_bytes
    return logit_count(job, recipe) * bytes_per_logit
