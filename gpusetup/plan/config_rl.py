"""Reads preference tuning and reinforcement learning from a config: the method and the additional
models.

It knows the setting names of TRL, LLaMA-Factory, ms-swift, axolotl, OpenRLHF, verl and NeMo-RL.
"""

from __future__ import annotations

import re
from typing import NamedTuple

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
"""Keys whose value names the training method."""
SIGNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("ppo", ("num_ppo_epochs", "sft_model_path", "reward_model_path", "critic_pretrain")),
    ("grpo", ("num_generations", "num_generations_per_prompt", "reward_funcs")),
    ("kto", ("desirable_weight", "undesirable_weight")),
    ("dpo", ("precompute_ref_log_probs", "rpo_alpha", "pref_beta", "pref_loss", "ref_model")),
)  # fmt: skip
"""Method -> keys that only its trainers have, to recognise it in configs that do not name it."""
TRL_ENGINE_SHARE = 0.3
"""The default of `vllm_gpu_memory_utilization` in TRL (1.16, GRPOConfig)."""
VERL_ENGINE_SHARE = 0.5
"""The default of `rollout.gpu_memory_utilization` in verl (0.9, rollout.yaml)."""


def method_of(reader: Reader) -> str | None:
    """The preference or RL method that a config uses; None for supervised training."""
    for name in METHOD_NAMES:
        for setting, text in reader.settings_named(name):
            method = re.sub(r"[^a-z]+", "_", text.lower()).strip("_")
            if method not in SUPERVISED | PAIRED | GENERATING:
                continue
            reader.note(setting, f"the method of training: {text}")
            if method in SUPERVISED:
                return None
            return "ppo" if method == "gae" else method
    if reader.has_map("critic") and reader.has_map("actor_rollout_ref"):
        return "ppo"  # verl's own default is `adv_estimator: gae`
    return method_by_signs(reader)


def method_by_signs(reader: Reader) -> str | None:
    """The method of a config that does not name one, recognised by keys that only trainers for this
    method have."""
    for method, keys in SIGNS:
        for key in keys:
            if reader.text_named(key, f"a key of {method}"):
                return method
    return None


def reinforcement(reader: Reader, fields: Fields) -> Fields:
    """The preference or RL setup with its additional models, as fields of the question; empty for
    supervised training.

    For Trinity-RFT the setup is empty too, because its explorer generates on other GPUs, and
    because the measured table already includes its reference model's memory.
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
    """The preference or RL setup of a config for TRL, LLaMA-Factory, ms-swift, axolotl or
    OpenRLHF."""
    generates = method in GENERATING
    engine = engine_of(reader) if generates else NO_ENGINE
    reader.text_named("num_generations", "answers to one prompt")
    # Without an inference engine, here or on other GPUs, the trainer itself generates the answers.
    uses_engine = engine.share is not None or is_on(reader, "use_vllm") or is_elsewhere(reader)
    generated_at_once = 0
    if generates and not uses_engine:
        generated_at_once = generated_sequences(reader, fields)
    return RlSetup(
        method=method,
        generates=generates,
        pairs=method in PAIRED,
        has_reference=has_reference(reader, fields, method),
        reward_models=reward_models(reader, fields, method),
        critic=critic_of(fields, method),
        critic_name=reader.text_named("critic_pretrain", "the critic") or SAME_AS_POLICY,
        frozen_in_16_bits=frozen_in_16_bits(fields),
        engine_share=engine.share,
        engine_sleeps=engine.sleeps,
        generated_at_once=generated_at_once,
    )


def frozen_in_16_bits(fields: Fields) -> bool:
    """Whether the frozen models are loaded in 16 bits; TRL loads all models in 32 bits unless
    `dtype` or FSDP is set."""
    if fields["trainer"] != "trl" or fields.get("strategy"):
        return True
    dtype = fields.get("dtype")
    return dtype not in (None, "fp32")


def has_reference(reader: Reader, fields: Fields, method: str) -> bool:
    """Whether a frozen reference copy of the policy is kept in memory."""
    if method in WITHOUT_REFERENCE:
        return False
    if reader.text_named("ref_model", "the reference model"):
        return fields.get("lora") is None
    ahead = reader.text_named("precompute_ref_log_probs", "log-probabilities before the training")
    if ahead in TRUE:
        return False
    weight = weight_of_reference(reader, fields, method)
    # With adapters, the base model without them serves as the reference, so there is no second
    # copy.
    return weight > 0 and fields.get("lora") is None


def weight_of_reference(reader: Reader, fields: Fields, method: str) -> float:
    """The weight of the reference model in the loss. If it is 0, the trainer loads no reference, so
    it only matters whether the result is zero."""
    strength = reader.text_named("beta", "the weight of the reference")
    strength = strength or reader.text_named("init_kl_coef", "the weight of the reference")
    if strength:
        return 0.0 if re.fullmatch(r"0(\.0*)?", strength) else 1.0
    # The default weight of TRL's GRPO, which axolotl also uses, is 0 (GRPOConfig, 1.16); that of
    # ms-swift is 0.04.
    is_grpo = method in GENERATING - WITH_CRITIC
    return 0.0 if is_grpo and fields["trainer"] in BY_TRL else 0.1


def reward_models(reader: Reader, fields: Fields, method: str) -> tuple[str, ...]:
    """The names of the reward models, without reward functions and remote servers."""
    if method not in GENERATING:
        return ()
    judge = reader.text_named("reward_model_type", "how answers are judged")
    names = reward_model_names(reader)
    if method == "ppo" and not names and not is_on(reader, "remote_rm_url"):
        names.append(SAME_AS_POLICY)
    # With LoRA, LLaMA-Factory's reward model is a second adapter on the same base, not a second
    # model.
    shares_base = fields["trainer"] == "llama-factory" and fields.get("lora") is not None
    if judge == "api" or shares_base:
        return ()
    return tuple(names)


def reward_model_names(reader: Reader) -> list[str]:
    """The reward models that a config names by a model id or a path."""
    names: list[str] = []
    for key in ("reward_model", "reward_model_path", "reward_pretrain"):
        name = reader.text_named(key, "the reward model")
        if name and "://" not in name:
            names.append(name)
    for name in reader.texts_named("reward_funcs", "how answers are judged"):
        if "/" in name:  # a model id; a bare word names a function
            names.append(name)
    return names


def critic_of(fields: Fields, method: str) -> Critic:
    """The kind of critic: a head on the policy in LLaMA-Factory, a separate model in other PPO
    trainers, `none` without PPO."""
    if method not in WITH_CRITIC:
        return "none"
    return "head" if fields["trainer"] == "llama-factory" else "model"


class SharedEngine(NamedTuple):
    """An inference engine that shares the training's GPUs."""

    share: float | None
    """The share of each card's memory that the engine reserves; None if there is no engine."""
    sleeps: bool
    """Whether the engine frees its memory during the training step."""


NO_ENGINE = SharedEngine(share=None, sleeps=False)


def engine_of(reader: Reader) -> SharedEngine:
    """The inference engine that the config starts on the training's GPUs; `NO_ENGINE` if there is
    none."""
    mode = reader.text_named("vllm_mode", "where the engine runs")
    share = reader.text_named("vllm_gpu_memory_utilization", "the engine's share of the card")
    share = share or reader.text_named("gpu_memory_utilization", "the engine's share")
    is_colocated = mode == "colocate" or is_on(reader, "colocate_all_models")
    uses_engine = is_on(reader, "use_vllm") or is_colocated
    sleep = reader.text_named("vllm_enable_sleep_mode", "the engine sleeps")
    sleep = sleep or reader.text_named("sleep_level", "the engine sleeps")
    if not uses_engine or is_elsewhere(reader):
        return NO_ENGINE
    sleeps = sleep is not None and sleep not in (*FALSE, "0")
    return SharedEngine(share_of(share, TRL_ENGINE_SHARE), sleeps)


SERVER_KEYS = ("vllm_server_host", "vllm_server_base_url", "vllm_num_engines")
"""Keys that occur only if a server on other GPUs generates the answers."""


def is_elsewhere(reader: Reader) -> bool:
    """Whether an inference server on other GPUs generates the answers."""
    if reader.text_named("vllm_mode", "where the engine runs") == "server":
        return True
    texts = [reader.text_named(key, "a server elsewhere") for key in SERVER_KEYS]
    return any(texts)


def is_on(reader: Reader, name: str) -> bool:
    """Whether a key is set to a value other than those that mean off."""
    words = name.replace("_", " ")
    text = reader.text_named(name, words)
    # Any other word, such as a server's address, means on.
    return text is not None and text not in FALSE


def share_of(text: str | None, default: float) -> float:
    """The share of the card's memory in a text, from 0 to 1; the default if the text is not a
    number in this range."""
    if text is None or not re.fullmatch(r"0?\.\d{1,6}|1(\.0*)?", text):
        return default
    return float(text)


def generated_sequences(reader: Reader, fields: Fields) -> int:
    """The number of sequences that a GPU generates at once: its batch times the micro-batches of
    one generation."""
    # By default, TRL generates the answers for all micro-batches of an optimizer step at once.
    micro_batches = int(fields.get("accumulate") or 1)
    text = reader.text_named("steps_per_generation", "micro-batches of one generation")
    if text and re.fullmatch(r"\d{1,5}", text):
        micro_batches = int(text)
    batch = int(fields.get("per_gpu") or 1)
    return batch * micro_batches


def verl_setup(reader: Reader, method: str) -> RlSetup:
    """The models that verl keeps on the same GPUs: actor, rollout engine, reference, critic and
    reward model.

    The engine frees its memory for the training unless `free_cache_engine` is off. With
    `param_offload` the actor is on the host while the engine generates, but during a training step
    its weights and optimizer states are on the GPU.
    """
    share = reader.text_named("gpu_memory_utilization", "the engine's share of the card", "rollout")
    sleeps = reader.text_named("free_cache_engine", "the engine frees its memory", "rollout")
    has_reference = is_on(reader, "use_kl_loss") or is_on(reader, "use_kl_in_reward")
    actor_leaves = reader.text_named("param_offload", "the actor's weights on the host", "actor")
    optimizer_leaves = reader.text_named("optimizer_offload", "its states on the host", "actor")
    reference_leaves = reader.text_named("param_offload", "the reference on the host", "ref")
    rewards = verl_reward_models(reader)
    reader.text_named("n", "answers to one prompt", "rollout")
    reader.assumed.append(
        "actor_rollout_ref: the engine shares the GPUs, and sleeps while the actor is trained"
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


def verl_reward_models(reader: Reader) -> tuple[str, ...]:
    """The name of verl's reward model in a tuple; empty unless the config enables one."""
    enabled = reader.text_named("enable", "a reward model", "reward_model")
    if enabled not in TRUE:
        return ()
    name = reader.text_named("path", "the reward model", "reward_model")
    return (name or SAME_AS_POLICY,)
