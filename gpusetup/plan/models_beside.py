"""The models and the engine that preference and reinforcement learning keep in memory besides the
policy.

PPO holds a policy, its reference, a reward model and a critic; GRPO and its kind need no critic;
DPO trains on pairs against a reference. What generates the answers is an engine on the same GPUs
(its share of the card), an engine elsewhere, or the policy itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from gpusetup.errors import GpuSetupError
from gpusetup.model.frozen import Frozen
from gpusetup.plan.job import BYTES, ModelBeside, Recipe, TrainingJob
from gpusetup.plan.models import model_named
from gpusetup.plan.shape import Shape

Critic = Literal["none", "model", "head"]
"""Who estimates the value of an answer: nobody, a model of its own, a head on the policy."""
SAME_AS_POLICY = ""
"""The name of a model that is as large as the policy."""


class RlSetup(Frozen):
    """The models and the inference engine in memory besides the policy."""

    method: str
    """As it is called: `ppo`, `grpo`, `dpo`, `kto`, `rm`, ..."""
    generates: bool = False
    """Whether the policy answers prompts within the training."""
    pairs: bool = False
    """Whether a sample is two sequences: the chosen and the rejected answer."""
    has_reference: bool = False
    reference_on_host: bool = False
    reward_models: tuple[str, ...] = ()
    """Their names; `SAME_AS_POLICY` if the config has one without a name."""
    critic: Critic = "none"
    critic_name: str = SAME_AS_POLICY
    frozen_in_16_bits: bool = True
    """Whether frozen models are 16-bit; else they are kept as the policy is."""
    engine_share: float | None = None
    """The share of the card that an engine on the same GPUs reserves; None: there is none."""
    engine_sleeps: bool = False
    """Whether the engine frees its memory while the policy is trained (verl, sleep mode)."""
    policy_leaves: bool = False
    """Whether the policy's states are on the host while the engine generates (verl's offload)."""
    generated_at_once: int = 0
    """Sequences that the policy itself generates at once on a GPU; 0 if an engine does."""


def shape_of_model(name: str, policy: Shape) -> Shape | None:
    """The shape of an additional model; None if plan does not know its name."""
    if name == SAME_AS_POLICY:
        return policy
    try:
        return model_named(name)
    except GpuSetupError:
        return None


def models_beside(setup: RlSetup, job: TrainingJob) -> tuple[ModelBeside, ...]:
    """The job's additional models, as far as their size is known."""
    policy = job.shape
    policy_bytes = BYTES[job.dtype]
    frozen_bytes = 2 if setup.frozen_in_16_bits else policy_bytes
    models: list[ModelBeside] = []
    if setup.has_reference:
        reference = ModelBeside(
            role="reference",
            parameters=policy.parameters,
            weight_bytes=frozen_bytes,
            on_host=setup.reference_on_host,
        )
        models.append(reference)
    for name in setup.reward_models:
        reward = shape_of_model(name, policy)
        # A model of unknown size is named in the answer instead.
        if reward is not None:
            parameters = reward.parameters
            models.append(
                ModelBeside(role="reward", parameters=parameters, weight_bytes=frozen_bytes)
            )
    if setup.critic != "model":
        return tuple(models)
    critic = shape_of_model(setup.critic_name, policy)
    if critic is not None:
        # Where the policy is trained by adapters the critic is too (ms-swift, verl): its base is
        # frozen, and its adapters are too small to count.
        critic_model = ModelBeside(
            role="critic",
            parameters=critic.parameters,
            weight_bytes=policy_bytes,
            trained=job.lora is None,
        )
        models.append(critic_model)
    return tuple(models)


def uncounted_models(setup: RlSetup | None, policy: Shape) -> Iterator[str]:
    """Names of the additional models whose size is unknown, as the answer lists them."""
    if setup is None:
        return
    for name in setup.reward_models:
        if shape_of_model(name, policy) is None:
            yield f"the reward model {name}"
    if shape_of_model(setup.critic_name, policy) is None:
        yield f"the critic {setup.critic_name}"


def beside_in_words(job: TrainingJob) -> str:
    """The counted additional models as part of a sentence; empty if there are none."""
    roles = [f"the {model.role} model" for model in job.models_beside]
    if job.engine_bytes:
        roles.append("the inference engine on the same GPUs")
    if job.generated_at_once:
        sequences = f"{job.generated_at_once:,} sequences"
        roles.append(f"a cache for {sequences} that are generated at once")
    if len(roles) < 2:
        return "".join(roles)
    first_roles = ", ".join(roles[:-1])
    return f"{first_roles} and {roles[-1]}"


# --- in bytes of one GPU --------------------------------------------------------------------------


def generation_cache(job: TrainingJob, recipe: Recipe) -> float:
    """The bytes for generation by the policy itself: cached keys and values, and the last token's
    logits."""
    shape = job.shape
    # Keys and values, in the dtype that is computed in.
    bytes_per_token = 2 * shape.layers * shape.key_value * job.compute_bytes
    cached_tokens = job.generated_at_once * job.length
    cache = cached_tokens * bytes_per_token / job.tensor_parallel
    # The logits of the last token of each sequence, in 32 bits.
    logit_bytes = job.generated_at_once * shape.vocabulary * 4
    return cache + logit_bytes
