"""Preference and reinforcement learning in a training config: the method, and what is beside it.

Names are those of TRL, LLaMA-Factory, ms-swift, axolotl, OpenRLHF, verl and NeMo-RL.
"""

from __future__ import annotations

import re

from gpusetup.configs.settings import FALSE, TRUE
from gpusetup.plan.config_reader import Fields, Reader
from gpusetup.plan.models_beside import SAME_AS_POLICY, Critic, RlSetup
from gpusetup.plan.rl_methods import (
    BY_TRL,
    GENERATING,
    PAIRED,
    SUPERVISED,
    WITH_CRITIC,
    WITHOUT_REFERENCE,
    usual_loss,
)

METHOD_NAMES = ("stage", "rl", "rlhf_type", "adv_estimator", "advantage_estimator", "pref_loss")
"""Keys whose value is the method."""
SIGNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("ppo", ("num_ppo_epochs", "sft_model_path", "reward_model_path", "critic_pretrain")),
    ("grpo", ("num_generations", "num_generations_per_prompt", "reward_funcs")),
    ("kto", ("desirable_weight", "undesirable_weight")),
    ("dpo", ("precompute_ref_log_probs", "rpo_alpha", "pref_beta", "pref_loss", "ref_model")),
)  # fmt: skip
"""Method -> keys that only its trainers have, for configs that do not name it."""
TRL_ENGINE_SHARE = 0.3
"""`vllm_gpu_memory_utilization` where nothing is said (TRL 1.16, GRPOConfig)."""
VERL_ENGINE_SHARE = 0.5
"""`rollout.gpu_memory_utilization` where nothing is said (verl 0.9, rollout.yaml)."""


def method_of(reader: Reader) -> str | None:
    """The method that a config trains by; None for supervised training."""
    for name in METHOD_NAMES:
        for setting, text in reader.settings_named(name):
            method = re.sub(r"[^a-z]+", "_", text.lower()).strip("_")
            if method in SUPERVISED:
                reader.note(setting, f"the method of training: {text}")
                return None
            if method in PAIRED or method in GENERATING:
                reader.note(setting, f"the method of training: {text}")
                return "ppo" if method == "gae" else method
    if reader.has_map("critic") and reader.has_map("actor_rollout_ref"):
        return "ppo"  # verl's own default is `adv_estimator: gae`
    for method, names in SIGNS:
        if any(reader.text_named(name, f"a key of {method}") for name in names):
            return method
    return None


def reinforcement(reader: Reader, fields: Fields) -> Fields:
    """What is held beside the policy; nothing for supervised training.

    Trinity-RFT's explorer generates on other GPUs, and the measured cells hold its reference.
    """
    is_verl = reader.has_map("actor_rollout_ref")
    if fields["trainer"] == "trinity" and not is_verl:
        reader.text_named("algorithm_type", "the method of training")
        return {}
    method = method_of(reader)
    if method is None:
        return {}
    if is_verl:
        return {"rl": verl_setup(reader, method), "offload_optimizer": None}
    setup = trainer_setup(reader, fields, method)
    if fields.get("loss") or fields.get("fused_kernels"):
        return {"rl": setup}
    return {"rl": setup, "loss": usual_loss(method)}


def trainer_setup(reader: Reader, fields: Fields, method: str) -> RlSetup:
    """The setup of TRL, LLaMA-Factory, ms-swift, axolotl and OpenRLHF."""
    generates = method in GENERATING
    has_adapters = fields.get("lora") is not None
    share, sleeps = engine_of(reader) if generates else (None, False)
    uses_engine = share is not None or is_on(reader, "use_vllm") or is_elsewhere(reader)
    reader.text_named("num_generations", "answers to one prompt")
    generated_at_once = 0
    if generates and not uses_engine:
        generated_at_once = generated_sequences(reader, fields)
    rewards = reward_models(reader, method)
    if has_adapters and fields["trainer"] == "llama-factory":
        rewards = ()  # its reward model is a second adapter on the same base
    return RlSetup(
        method=method,
        generates=generates,
        pairs=method in PAIRED,
        has_reference=has_reference(reader, fields, method) and not has_adapters,
        reward_models=rewards,
        critic=critic_of(fields, method),
        critic_name=reader.text_named("critic_pretrain", "the critic") or SAME_AS_POLICY,
        frozen_in_16_bits=frozen_in_16_bits(fields),
        engine_share=share,
        engine_sleeps=sleeps,
        generated_at_once=generated_at_once,
    )


def frozen_in_16_bits(fields: Fields) -> bool:
    """Whether frozen models are 16-bit: TRL loads all in 32 bits unless `dtype` or FSDP says so."""
    says_16_bits = fields.get("dtype") not in (None, "fp32")
    return fields["trainer"] != "trl" or says_16_bits or bool(fields.get("strategy"))


def has_reference(reader: Reader, fields: Fields, method: str) -> bool:
    """Whether a frozen copy of the policy is held for the divergence from it."""
    if method in WITHOUT_REFERENCE:
        return False
    if reader.text_named("ref_model", "the reference model"):
        return True
    ahead = reader.text_named("precompute_ref_log_probs", "log-probabilities before the training")
    if ahead in TRUE:
        return False
    weight_of_reference = "the weight of the reference"
    strength = reader.text_named("beta", weight_of_reference)
    strength = strength or reader.text_named("init_kl_coef", weight_of_reference)
    # TRL's GRPO, which axolotl runs, has a weight of 0 unless it is said (GRPOConfig, 1.16);
    # ms-swift's is 0.04.
    needs_no_reference = method in GENERATING - WITH_CRITIC and fields["trainer"] in BY_TRL
    default = "0" if needs_no_reference else "0.1"
    return not re.fullmatch(r"0(\.0*)?", strength or default)


def reward_models(reader: Reader, method: str) -> tuple[str, ...]:
    """The models that judge answers; a function or a remote server is none."""
    if method not in GENERATING:
        return ()
    if reader.text_named("reward_model_type", "how answers are judged") == "api":
        return ()
    names: list[str] = []
    for key in ("reward_model", "reward_model_path", "reward_pretrain"):
        name = reader.text_named(key, "the reward model")
        if name and "://" not in name:
            names.append(name)
    for name in reader.texts_named("reward_funcs", "how answers are judged"):
        if "/" in name:  # the id of a model; a bare word is a function
            names.append(name)
    if method == "ppo" and not names and not is_on(reader, "remote_rm_url"):
        names.append(SAME_AS_POLICY)
    return tuple(names)


def critic_of(fields: Fields, method: str) -> Critic:
    """LLaMA-Factory's critic is a head on the policy; other trainers of PPO hold a model."""
    if method not in WITH_CRITIC:
        return "none"
    return "head" if fields["trainer"] == "llama-factory" else "model"


def engine_of(reader: Reader) -> tuple[float | None, bool]:
    """The share of the card of an engine on the same GPUs, and whether it sleeps in between."""
    mode = reader.text_named("vllm_mode", "where the engine runs")
    said_share = reader.text_named("vllm_gpu_memory_utilization", "the engine's share of the card")
    said_share = said_share or reader.text_named("gpu_memory_utilization", "the engine's share")
    colocated = mode == "colocate" or is_on(reader, "colocate_all_models")
    uses_engine = is_on(reader, "use_vllm") or colocated
    sleep = reader.text_named("vllm_enable_sleep_mode", "the engine sleeps")
    sleep = sleep or reader.text_named("sleep_level", "the engine sleeps")
    sleeps = (sleep or "0") not in (*FALSE, "0")
    if not uses_engine or is_elsewhere(reader):
        return None, False
    return share_of(said_share, TRL_ENGINE_SHARE), sleeps


def is_elsewhere(reader: Reader) -> bool:
    """Whether answers come from a server on other GPUs."""
    return reader.text_named("vllm_mode", "where the engine runs") == "server" or any(
        reader.text_named(name, "a server elsewhere")
        for name in ("vllm_server_host", "vllm_server_base_url", "vllm_num_engines")
    )


def is_on(reader: Reader, name: str) -> bool:
    text = reader.text_named(name, f"{name.replace('_', ' ')}")
    return text is not None and text not in FALSE


def share_of(text: str | None, default: float) -> float:
    """A share of the card; the default for what is none."""
    is_share = re.fullmatch(r"0?\.\d{1,6}|1(\.0*)?", text or "")
    return float(text or default) if is_share else default


def generated_sequences(reader: Reader, fields: Fields) -> int:
    """The sequences that a GPU generates at once: those of all micro-batches of a step."""
    batch = fields.get("per_gpu") or 1
    steps = reader.text_named("steps_per_generation", "micro-batches of one generation")
    number = re.fullmatch(r"\d{1,5}", steps or "")
    return int(batch) * (int(steps or 1) if number else fields.get("accumulate") or 1)


def verl_setup(reader: Reader, method: str) -> RlSetup:
    """verl's workers on the same GPUs: actor, rollout, reference, critic, reward model.

    The engine frees its memory for the training unless `free_cache_engine` is off. With
    `param_offload` the actor is on the host while the engine generates; in a step its weights and
    its optimizer's states are on the GPU all the same.
    """
    place = "actor_rollout_ref"
    share = reader.text_named("gpu_memory_utilization", "the engine's share of the card", "rollout")
    sleeps = reader.text_named("free_cache_engine", "the engine frees its memory", "rollout")
    has_reference = is_on(reader, "use_kl_loss") or is_on(reader, "use_kl_in_reward")
    actor_leaves = reader.text_named("param_offload", "the actor's weights on the host", "actor")
    optimizer_leaves = reader.text_named("optimizer_offload", "its states on the host", "actor")
    reference_leaves = reader.text_named("param_offload", "the reference on the host", "ref")
    rewards: tuple[str, ...] = ()
    if (reader.text_named("enable", "a reward model", "reward_model") or "false") in TRUE:
        rewards = (reader.text_named("path", "the reward model", "reward_model") or SAME_AS_POLICY,)
    reader.text_named("n", "answers to one prompt", "rollout")
    reader.assumed.append(
        f"{place}: the engine shares the GPUs, and sleeps while the actor is trained"
    )
    return RlSetup(
        method=method,
        generates=True,
        has_reference=has_reference,
        reference_on_host=reference_leaves in TRUE,
        reward_models=rewards,
        critic="model" if method == "ppo" else "none",
        critic_name=reader.text_named("path", "the critic", "critic") or SAME_AS_POLICY,
        engine_share=share_of(share, VERL_ENGINE_SHARE),
        engine_sleeps=sleeps not in FALSE,
        policy_leaves=actor_leaves in TRUE and optimizer_leaves in TRUE,
    )
