"""The methods of preference and reinforcement learning, and the additional models that each needs
by default.

The names are those in TRL, LLaMA-Factory, ms-swift, axolotl, OpenRLHF, verl and NeMo-RL.
"""

from __future__ import annotations

from gpusetup.errors import UsageError
from gpusetup.plan.models_beside import SAME_AS_POLICY, RlSetup

PAIRED = frozenset((
    "dpo", "ipo", "kto", "bco", "simpo", "orpo", "cpo", "rm", "reward", "robust", "exo_pair",
    "nca_pair", "sppo_hard", "aot", "apo_zero", "apo_down", "discopop",
))  # fmt: skip
"""Methods whose samples are pairs of a chosen and a rejected answer."""
SUPERVISED = frozenset(("sft", "pt", "pretrain"))
WITHOUT_REFERENCE = frozenset(("simpo", "orpo", "cpo", "rm", "reward"))
WITH_CRITIC = frozenset(("ppo", "gae"))
GENERATING = frozenset((
    "ppo", "gae", "grpo", "gspo", "dapo", "rloo", "reinforce", "reinforce_plus_plus", "remax",
    "opo", "dr_grpo", "online_dpo", "gpg",
))  # fmt: skip
"""Methods that train on answers which the policy generates."""
BY_TRL = ("trl", "axolotl")
"""Trainers that use TRL's GRPO."""
BY_VERL = ("verl", "openrlhf")
"""Trainers that generate answers with an engine on the same GPUs, which sleeps during the
training."""
ENGINE_SHARE = 0.5
"""The engine's default share of the card (verl 0.9, rollout.yaml)."""


def method_named(text: str) -> str:
    """The method for a value of `--method`; UsageError if plan does not know it.

    >>> method_named("GRPO")
    'grpo'
    """
    method = text.strip().lower().replace("-", "_")
    possible = sorted(PAIRED | GENERATING | SUPERVISED)
    if method not in possible:
        raise UsageError(
            f"No method is called {text!r}",
            hint=f"one of: {', '.join(possible)}",
        )
    return method


def usual_loss(method: str) -> str:
    """The loss kernel that plan assumes for a method."""
    if method in ("rm", "reward"):
        return "fused"  # one number per sequence, no logits
    # Log-probabilities of each token need the logits, so a fused loss is not possible.
    return "eager"


def usual_setup(method: str, trainer: str | None, sequences: int, *, adapters: bool) -> RlSetup:
    """The additional models and the engine that a method uses by default.

    `sequences`: the number of sequences on one GPU at once. `adapters`: whether only adapters are
    trained, in which case their base model also serves as the reference.
    """
    generates = method in GENERATING
    uses_engine = generates and trainer in BY_VERL
    # GRPO in TRL and axolotl has no reference unless `beta` is set (GRPOConfig, TRL 1.16).
    without_reference = method in WITHOUT_REFERENCE
    if method in GENERATING - WITH_CRITIC and (trainer is None or trainer in BY_TRL):
        without_reference = True
    judged_by_model = method == "ppo"
    return RlSetup(
        method=method,
        generates=generates,
        pairs=method in PAIRED,
        has_reference=not (without_reference or adapters),
        reward_models=(SAME_AS_POLICY,) if judged_by_model else (),
        critic="model" if method in WITH_CRITIC else "none",
        engine_share=ENGINE_SHARE if uses_engine else None,
        engine_sleeps=uses_engine,
        generated_at_once=sequences if generates and not uses_engine else 0,
    )
