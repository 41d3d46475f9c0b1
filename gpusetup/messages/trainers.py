"""The trainers that people mention most, and the settings with which each saves GPU memory.

Sources: verl's and Trinity-RFT's configuration pages, DeepSpeed's ZeRO and Ulysses pages, the
arguments of Megatron-LM, torch.distributed.fsdp; November 2026.
"""

from __future__ import annotations

from gpusetup.messages.row import row
from gpusetup.model.frozen import Frozen


class Trainer(Frozen):
    """A program that trains a model on several GPUs."""

    name: str
    shown_by: tuple[str, ...]
    """Patterns for its paths, options and log lines. A bare name in a sentence is not enough."""
    sequence_parallel: str = ""
    """The setting that splits each sequence over several GPUs; "" if the trainer has none."""
    offload: str = ""
    """The setting that keeps parameters and the optimizer in CPU memory; "" if the trainer has
    none."""
    before_start: str = "before you start the training"
    """When the allocator's environment variable must be set so that every worker inherits it."""


# A trainer that is built on another trainer comes first, because its paths match both:
# Trinity-RFT's paths contain verl's and FSDP's.
TRAINERS = (
    Trainer(
        name="Trinity-RFT",
        shown_by=(
            r"\btrinity[/\\](?:trainer|explorer|buffer|common|manager|cli)\b",
            r"\bTrinity-RFT\b",
            r"\btrinity run --config\b",
        ),
        sequence_parallel="ulysses_sequence_parallel_size: 2",
        offload="fsdp_config.offload_policy: true, with strategy: fsdp2",
        before_start="before `ray start`, so that Ray and its workers inherit it",
    ),
    Trainer(
        name="verl",
        shown_by=(
            r"\bverl[/\\](?:trainer|workers|utils|models|single_controller)\b",
            r"\bverl\.trainer\.",
            r"\bactor_rollout_ref\.",
        ),
        sequence_parallel="actor_rollout_ref.actor.ulysses_sequence_parallel_size=2",
        offload="actor_rollout_ref.actor.fsdp_config.offload_policy=True, with strategy=fsdp2",
        before_start="before `ray start`, so that Ray and its workers inherit it",
    ),
    Trainer(
        name="DeepSpeed",
        shown_by=(r"\bdeepspeed[/\\]runtime[/\\]", r"\bDeepSpeed(?:Engine\b|ZeroOptimizer\w*)"),
        sequence_parallel="sequence_parallel_size: 2 (Ulysses)",
        offload="zero_optimization with offload_optimizer and offload_param on the device cpu",
    ),
    Trainer(
        name="FSDP",
        shown_by=(
            r"\btorch[/\\]distributed[/\\]fsdp[/\\]",
            r"\bFullyShardedDataParallel\b",
            r"\bfully_shard\(",
        ),
        offload="fully_shard(model, offload_policy=CPUOffloadPolicy())",
    ),
)

TRAINER_NAMED = "trainer-named"
"""The kind of event that names a trainer. It is a fact, not a failure."""

ROWS = tuple(
    row(TRAINER_NAMED, pattern, trainer=trainer.name)
    for trainer in TRAINERS
    for pattern in trainer.shown_by
)
