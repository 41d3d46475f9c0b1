"""The gaps of torch's allocator: memory that it has reserved but no tensor uses."""

from __future__ import annotations

from gpusetup.plan.forward_memory import activations, logit_count, logits
from gpusetup.plan.job import Recipe, TrainingJob, samples
from gpusetup.plan.losses import TRAINER_LOGIT
from gpusetup.plan.states import gradients, gradients_stay

LOST_LOGIT = 1.667
"""Bytes a logit in gaps, of an RL trainer, fitted to the measured cells."""

Gaps = tuple[float, float]
"""Bytes that the allocator reserves and no tensor uses: those that it cannot give back, and those
that it gives back before it fails."""


def gaps(job: TrainingJob, recipe: Recipe, transient: float, *, logits_decide: bool) -> Gaps:
    """The bytes in the allocator's gaps: those that stay, and those that it can give back.

    `transient`: bytes of the largest tensors that come and go; `logits_decide`: whether the logits
    are at the peak. Segments of fixed size leave more gaps than expandable ones. The shares were
    fitted to published pairs of allocated and reserved memory.
    """
    if job.fills_token_budget:
        return gaps_of_measured_trainer(recipe, transient), 0.0
    own = own_segments(job, recipe)
    logit_bytes = logits(job, recipe)
    moving = activations(job, recipe) + transient
    if not gradients_stay(job):
        moving += gradients(job, recipe)
    # Logits come and go in pieces of one size, which leave no gaps, but for shifted copies.
    uneven = moving
    if logits_decide and job.loss != "eager-old":
        uneven -= logit_bytes
    # What FSDP1 and DeepSpeed gathered is free only when another stream is done with it.
    frees_late = job.gathers and job.strategy not in ("fsdp", "hsdp")
    share = 0.31 if frees_late and not recipe.env else 0.15
    # Expandable segments round the logits up as well.
    reserved = (moving if recipe.env else uneven) * share + own
    lasting_share = LASTING_GAPS[frees_late, recipe.env]
    after_collection = uneven * lasting_share + own / 3
    staying = min(reserved, after_collection)
    # What lives between scores that are written to memory holds their segments.
    if job.attention == "eager" and not job.gathers and not recipe.env:
        staying = reserved
    given_back = reserved - staying
    # Half of the logits' segments are idle at another peak.
    if segments_of_logits_idle(job, recipe) and not logits_decide:
        given_back += 0.5 * logit_bytes
    return staying, given_back


LASTING_GAPS = {(False, False): 0.05, (False, True): 0.02, (True, False): 0.18, (True, True): 0.05}
"""(Frees gathered units late, expandable segments) -> the share of what moves whose gaps stay:
Unsloth's longest contexts end within 5 % of what is allocated, runs of FSDP1 within 17 to 24 %."""


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
