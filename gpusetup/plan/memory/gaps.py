"""Gaps: what the allocator reserves and nothing uses, and what of it stays without room."""

from __future__ import annotations

from gpusetup.plan.memory.activations import WRITES_SCORES
from gpusetup.plan.memory.constants import Constants
from gpusetup.plan.memory.loss import logit_amount, shifts
from gpusetup.plan.memory.states import SHARDED, divisors, optimizer_bytes, present
from gpusetup.plan.model.workload import Recipe, Workload


def gaps(w: Workload, r: Recipe, c: Constants, moving: float, passing: float) -> float:
    """What the allocator holds and does not use, on a GPU that has room.

    A share of what comes and goes: what was kept, the logits or a layer, and gradients that do not
    stay. Segments of fixed size leave more of it than expandable ones (both shares were fitted to
    published pairs of allocated and reserved memory). A trainer that fills a budget of tokens
    frees its cache between its phases, so that only what passes at once leaves gaps. Copies of the
    logits of another size have segments of their own: shifted ones, and Megatron's in 32 bits (two
    of four logs that print both counters leave 4.0 bytes a logit). 16-bit logits that are let go
    before the backward pass leave theirs, too small for its 32-bit gradients. Where every batch has
    its own length, blocks of all lengths stay.
    """
    if w.batch is None:
        return 0.0 if r.env else passing * (c.fragmentation / c.logit)
    if w.varied and not r.env:
        return moving * c.gaps_varied
    fixed = c.gaps_sharded if frees_late(w) else c.gaps
    if r.env:
        return moving * min(c.gaps_expandable, fixed)
    if gathers(w):
        return moving * fixed
    return moving * fixed + own_segments(w, r, c)


IDLE = 0.5
"""The share of the logits whose segments are idle at a peak that is not theirs. Where torch's
allocator is computed step by step (best fit, segments of 2 and 20 MiB, blocks that are split and
merged), a step of Qwen2.5 0.5B and 1.5B leaves 0.3 to 1.1 of them: the optimizer's states of the
first step lie where the logits were, so that the second step's need room of their own."""


def idle_logits(w: Workload, r: Recipe, logits: float, *, at_peak: bool) -> float:
    """Segments of the logits that nothing of a layer or of the optimizer's step lies in.

    Where the logits are the peak, what they had in the first step is partly the optimizer's: under
    FSDP Llama 2 7B has 22.7 GiB active and 31.0 reserved (torchtitan's PR 165), of which 6.3 are
    states and 7.8 logits. On one GPU the shares of the gaps count that.
    """
    if w.batch is None or r.env or r.offload or gathers(w) != at_peak:
        return 0.0
    if not at_peak:
        return IDLE * logits
    return IDLE * min(logits, present(w, w.trained, divisors(w)[2]) * optimizer_bytes(w))


OWN_STAY = 1 / 3
"""The share of logits' own segments that stays at the limit: with 8 x 1024 tokens of Qwen2.5 0.5B
TRL has 20.3 GiB allocated and 4.9 of such segments, ran out on 22.05 and took 21.3 with expandable
ones (TRL's PR 5472)."""


def own_segments(w: Workload, r: Recipe, c: Constants) -> float:
    """Segments of logits, or their copies, of a size that nothing else has."""
    if r.env or gathers(w) or w.batch is None:
        return 0.0
    shifted = c.gaps_shifted if shifts(w, r) or w.loss == "vocab-parallel" else 0.0
    shifted += w.compute_bytes * (w.loss == "hf" and w.compute_bytes < 4)
    return logit_amount(w, r) * shifted


STAYING = {(False, False): 0.05, (False, True): 0.02, (True, False): 0.18, (True, True): 0.05}
"""(Gathers units, expandable segments) -> the share of what moves whose gaps stay at the limit.

The allocator gives cached segments back and tries again before it fails. Unsloth's longest contexts
on five sizes of cards end within 5 % of what is allocated. Of two runs of Llama 2 70B with 4-bit
weights under FSDP1 the one with 65.8 GiB allocated fitted into 79.15 and the one with 68.8 did not
(fms-acceleration's reference table): 17 to 24 %. Expandable segments were set beforehand."""


def keeps_gaps(w: Workload, r: Recipe) -> bool:
    """Whether nothing of the gaps can be given back: where scores are written to memory.

    What lives beside them holds their segments. Of some ninety judged runs six that ran out of
    memory are said to since (BERT on a K80, GPT-2 of 2021, CS336) and two that fitted are not said
    to any more, with no share to fit. Expandable segments have no such ends.
    """
    return w.attention in WRITES_SCORES and not gathers(w) and not r.env


def staying_share(w: Workload, r: Recipe) -> float:
    """The share of what moves that no use is made of, even where there is no room."""
    return STAYING[frees_late(w), r.env]


def frees_late(w: Workload) -> bool:
    """Whether what was gathered is free for other uses only after another stream is done with it.

    FSDP1 and DeepSpeed mark it by `record_stream`; FSDP2 does without, which torch's documentation
    of `fully_shard` gives as the reason for its lower and deterministic memory.
    """
    return gathers(w) and w.strategy not in ("fsdp", "hsdp")


def gathers(w: Workload) -> bool:
    """Whether units of parameters are gathered and freed between."""
    return SHARDED[w.strategy][0] and w.gpus > 1
