"""Reads preference tuning and reinforcement learning from a config: the method and the additional
models.

It knows the setting names of TRL, LLaMA-Factory, ms-swift, axolotl, OpenRLHF, verl and NeMo-RL.
"""

from __future__ import annotations

import re
from typing import Literal

from gpusetup.configs.settings import FALSE, TRUE
from gpusetup.plan.config_reader import Fields, Reader
from gpusetup.plan.rl import (
    BY_TRL,
    ENGINE_SHARE,
    GENERATING,
    PAIRED,
    SAME_AS_POLICY,
    SUPERVISED,
    WITH_CRITIC,
    WITHOUT_REFERENCE,
    RlSetup,
    usual_loss,
)

METHOD_NAMES = ("stage", "rl", "rlhf_type", "adv_estimator", "advantage_estimator", "pref_loss")
"""Keys whose value names the training method."""
SIGNS = {
    "ppo": ("num_ppo_epochs", "sft_model_path", "reward_model_path", "critic_pretrain"),
    "grpo": ("num_generations", "num_generations_per_prompt", "reward_funcs"),
    "kto": ("desirable_weight", "undesirable_weight"),
    "dpo": ("precompute_ref_log_probs", "rpo_alpha", "pref_beta", "pref_loss", "ref_model"),
}
"""Method -> keys that only its trainers have, to recognise it in configs that do not name it."""
SERVER_KEYS = ("vllm_server_host", "vllm_server_base_url", "vllm_num_engines")
"""Keys that occur only if a server on other GPUs generates the answers."""


def method_of(reader: Reader) -> str | None:
    """The preference or RL method that a config uses; None for supervised training."""
    for name in METHOD_NAMES:
        for setting, text in reader.named(name):
            method = re.sub(r"[^a-z]+", "_", text.lower()).strip("_")
            if method not in SUPERVISED | PAIRED | GENERATING:
                continue
            reader.note(setting, f"the method of training: {text}")
            if method in SUPERVISED:
                return None
            return "ppo" if method == "gae" else method
    if reader.has_map("critic") and reader.has_map("actor_rollout_ref"):
        return "ppo"  # verl's own default is `adv_estimator: gae`
    for method, keys in SIGNS.items():
        if any(reader.text_named(key, f"a key of {method}") for key in keys):
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
    trainer, generates, read = fields["trainer"], method in GENERATING, reader.text_named
    read("num_generations", "answers to one prompt")
    # LLaMA-Factory's critic is a head on the policy.
    critic: Literal["model", "head"] = "head" if trainer == "llama-factory" else "model"
    # TRL loads all models in 32 bits unless `dtype` or FSDP is set.
    says_16_bits = fields.get("strategy") or fields.get("dtype") not in (None, "fp32")
    return RlSetup(
        method=method,
        has_reference=has_reference(reader, fields, method),
        reward_models=reward_models(reader, fields, method) if generates else (),
        critic=critic if method in WITH_CRITIC else "none",
        critic_name=read("critic_pretrain", "the critic") or SAME_AS_POLICY,
        frozen_in_16_bits=trainer != "trl" or bool(says_16_bits),
        **(generation(reader, fields) if generates else {}),
    )


def generation(reader: Reader, fields: Fields) -> Fields:
    """The fields of a setup that say what generates the answers: an engine beside the training or
    the trainer itself; empty for a server elsewhere."""
    read = reader.text_named
    mode = read("vllm_mode", "where the engine runs")
    servers = [read(key, "a server elsewhere") for key in SERVER_KEYS]
    share = read("vllm_gpu_memory_utilization", "the engine's share")
    share = share or read("gpu_memory_utilization", "the share")
    sleep = read("vllm_enable_sleep_mode", "the engine sleeps")
    sleep = sleep or read("sleep_level", "the engine sleeps")
    colocates = is_on(reader, "colocate_all_models") or mode == "colocate"
    uses_engine = is_on(reader, "use_vllm") or colocates
    if mode == "server" or any(servers):
        return {}
    if not uses_engine:
        return {"generated_at_once": sequences_at_once(reader, fields)}
    return {
        "engine_share": share_of(share, ENGINE_SHARE["trl"]),
        "engine_sleeps": sleep is not None and sleep not in (*FALSE, "0"),
    }


def sequences_at_once(reader: Reader, fields: Fields) -> int:
    """The number of sequences that a GPU generates at once if the trainer itself generates the
    answers: by default those for all micro-batches of an optimizer step (TRL)."""
    text = reader.text_named("steps_per_generation", "micro-batches of one generation") or ""
    is_number = re.fullmatch(r"\d{1,5}", text)
    micro_batches = int(text) if is_number else int(fields.get("accumulate") or 1)
    return int(fields.get("per_gpu") or 1) * micro_batches


def has_reference(reader: Reader, fields: Fields, method: str) -> bool:
    """Whether a frozen reference copy of the policy is kept in memory."""
    named = reader.text_named("ref_model", "the reference model")
    ahead = reader.text_named("precompute_ref_log_probs", "log-probabilities before the training")
    weight = reader.text_named("beta", "the weight of the reference")
    weight = weight or reader.text_named("init_kl_coef", "the weight of the reference")
    # With adapters, the base model without them is the reference.
    if method in WITHOUT_REFERENCE or fields.get("lora") is not None:
        return False
    if named:
        return True
    if ahead in TRUE:
        return False
    # With a weight of 0 the trainer loads no reference.
    if weight:
        return re.fullmatch(r"0(\.0*)?", weight) is None
    return not (method in GENERATING - WITH_CRITIC and fields["trainer"] in BY_TRL)


def reward_models(reader: Reader, fields: Fields, method: str) -> tuple[str, ...]:
    """The names of the reward models, without reward functions and remote servers."""
    judge = reader.text_named("reward_model_type", "how answers are judged")
    names: list[str] = []
    for key in ("reward_model", "reward_model_path", "reward_pretrain"):
        name = reader.text_named(key, "the reward model")
        if name and "://" not in name:
            names.append(name)
    for setting, name in reader.named("reward_funcs"):
        reader.note(setting, f"how answers are judged: {name}")
        if "/" in name:  # a model id; a bare word names a function
            names.append(name)
    if method == "ppo" and not names and not is_on(reader, "remote_rm_url"):
        names.append(SAME_AS_POLICY)
    # With LoRA, LLaMA-Factory's reward model is a second adapter on the same base.
    shares_base = fields["trainer"] == "llama-factory" and fields.get("lora") is not None
    return () if judge == "api" or shares_base else tuple(names)


def is_on(reader: Reader, name: str) -> bool:
    """Whether a key is set to a value other than those that mean off; any other word, such as a
    server's address, means on."""
    text = reader.text_named(name, name.replace("_", " "))
    return text is not None and text not in FALSE


def share_of(text: str | None, default: float) -> float:
    """The share of the card's memory in a text; the default if it is no number from 0 to 1."""
    is_share = text is not None and re.fullmatch(r"0?\.\d{1,6}|1(\.0*)?", text)
    return float(text) if text is not None and is_share else default


def verl_setup(reader: Reader, method: str) -> RlSetup:
    """The models that verl keeps on the same GPUs: actor, rollout engine, reference, critic and
    reward model.

    The engine frees its memory for the training unless `free_cache_engine` is off. With
    `param_offload` the actor is on the host while the engine generates, but during a training step
    its weights and optimizer states are on the GPU.
    """
    share = reader.text_named("gpu_memory_utilization", "the engine's share of the card", "rollout")
    sleeps = reader.text_named("free_cache_engine", "the engine frees its memory", "rollout")
    actor_leaves = reader.text_named("param_offload", "the actor's weights on the host", "actor")
    states_leave = reader.text_named("optimizer_offload", "its states on the host", "actor")
    reference_leaves = reader.text_named("param_offload", "the reference on the host", "ref")
    judges = reader.text_named("enable", "a reward model", "reward_model") in TRUE
    judge = reader.text_named("path", "the reward model", "reward_model") if judges else None
    weighs_reference = [is_on(reader, key) for key in ("use_kl_loss", "use_kl_in_reward")]
    reader.text_named("n", "answers to one prompt", "rollout")
    reader.assumed.append(
        "actor_rollout_ref: the engine shares the GPUs, and sleeps while the actor is trained"
    )
    return RlSetup(
        method=method,
        has_reference=any(weighs_reference),
        reference_on_host=reference_leaves in TRUE,
        reward_models=(judge or SAME_AS_POLICY,) if judges else (),
        critic="model" if method == "ppo" else "none",
        critic_name=reader.text_named("path", "the critic", "critic") or SAME_AS_POLICY,
        engine_share=share_of(share, ENGINE_SHARE["verl"]),
        engine_sleeps=sleeps not in FALSE,
        policy_leaves=actor_leaves in TRUE and states_leave in TRUE,
    )
