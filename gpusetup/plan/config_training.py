"""Reads the settings for how a training runs from its config: checkpointing, optimizer, precision,
kernels, and how the GPUs share the work."""

from __future__ import annotations

import re
from collections.abc import KeysView
from typing import get_type_hints

from gpusetup.configs.keys import meaning
from gpusetup.configs.settings import Setting, value_of
from gpusetup.model.codec import from_plain
from gpusetup.plan.config_reader import Fields, Reader, by_words
from gpusetup.plan.job import JOB_DEFAULTS, TrainingJob
from gpusetup.plan.question import LARGEST


def checkpointing(reader: Reader, fields: Fields) -> Fields:
    """The checkpointing settings: whether activations are recomputed, in which layers, and whether
    they are moved to the host."""
    text = (reader.word("checkpoints") or "").lower()
    is_off = reader.switch("no-checkpoints")
    offloads = reader.switch("checkpoint-offload") or text == "unsloth"
    checkpoints: Fields = {"offload_checkpoints": True if offloads else None}
    if is_off is not None:
        checkpoints["checkpointing"] = not is_off
    elif text == "selective" and fields["trainer"] != "megatron":
        checkpoints["selective"] = True
    elif text:
        # `selective` counts as none, because Megatron-LM's selective recomputation affects only
        # attention without a flash kernel.
        words_for_none = ("selective", "none", "no", "false", "off", "n")
        checkpoints["checkpointing"] = text not in words_for_none
    return checkpoints


def optimizer(reader: Reader, fields: Fields) -> Fields:
    """The optimizer's name, and how it steps (for example fused, or within the backward pass)."""
    # Read the name first, because the answer shows the first meaning recorded for a setting.
    name = reader.word("optimizer", by_words("optimizer"))
    step = reader.word("optimizer", by_words("step"))
    # torchtune's `optimizer_in_bwd` updates each weight as soon as its gradient exists.
    if reader.switch("step-in-backward"):
        step = "backward"
    return {"optimizer": name, "step": step}


IN_16_BITS = ("axolotl", "unsloth", "torchtune", "litgpt", "torchtitan", "megatron", "trinity")
"""Trainers that always compute in 16 bits. Their `bf16: true` therefore says nothing about the type
of the weights."""


def precision(reader: Reader, fields: Fields) -> Fields:
    """The types of the weights (`dtype`) and of the computation (`amp`) that the config sets, read
    the way its trainer means them; empty if the trainer's default holds.

    The first of these settings decides:
    1. The type of the weights (`torch_dtype`).
    2. A precision that names both types (`bf16-mixed`).
    3. A switch for weights and computation in 16 bits.
    4. No setting, for a trainer that always computes in 16 bits.
    5. Autocast that is switched off (`bf16: false`): everything is in 32 bits.
    6. Autocast (`bf16: true`): weights are in 32 bits, or with adapters the base is in 16 bits.
    """
    weights = meaning("dtype", reader.word("dtype") or "")
    precision_pair = meaning("precision", reader.word("precision") or "")
    is_pure_16_bit = reader.switch("pure-16-bit")
    amp = autocast_of(reader, has_dtype=bool(weights))
    if weights:
        # With `bf16: true` and 16-bit weights the trainer decides whether the optimizer updates a
        # 32-bit copy (`trainer_defaults`), so keep the type that the config sets for computing.
        return {"dtype": weights, "amp": amp}
    if precision_pair:
        pair_weights, pair_computation = precision_pair
        return {"dtype": pair_weights, "amp": pair_computation}
    if is_pure_16_bit:
        return {"dtype": "bf16", "amp": "none"}
    if fields["trainer"] in IN_16_BITS:
        return {}
    if amp is None:
        turns_bf16_off = reader.switch("bf16") is False
        # Only for a known trainer is it certain that weights are in 32 bits without autocast.
        has_known_trainer = fields["trainer"] is not None
        if turns_bf16_off and has_known_trainer:
            return {"dtype": "fp32", "amp": "none"}
        return {}
    if fields.get("lora") is not None:
        # The frozen base is loaded in the type used for computing.
        return {"dtype": amp}
    reader.assumed.append(f"weights in 32 bits under {amp} autocast, as {amp}: true means")
    return {"dtype": "fp32", "amp": amp}


def autocast_of(reader: Reader, *, has_dtype: bool) -> str | None:
    """The type of the computation according to the config's switches; None if none is on.
    `has_dtype`: whether the config sets the type of the weights."""
    is_mixed = reader.switch("amp")
    bf16 = reader.switch("bf16")
    fp16 = reader.switch("fp16")
    if bf16 or (is_mixed and not has_dtype):
        return "bf16"
    return "fp16" if fp16 else None


def kernels(reader: Reader, fields: Fields) -> Fields:
    """The kernels that the config selects for attention, for the loss and inside the layers."""
    plugins = " ".join(reader.texts_named("plugins", "a plugin"))
    has_liger = bool(reader.switch("kernels"))
    loss = reader.word("loss-kernel", by_words("loss", "fused"))
    if loss is None:
        # Liger's kernels include a fused loss, but axolotl's plugin does not switch it on.
        has_fused_loss = has_liger or "cut_cross_entropy" in plugins
        default = "eager" if fields["trainer"] == "axolotl" else None
        loss = "fused" if has_fused_loss else default
    has_kernels = has_liger or "liger" in plugins.lower()
    return {
        "fused_kernels": True if has_kernels else None,
        "loss": loss,
        "attention": reader.word("attention", by_words("attention")),
    }


# --- several GPUs ---------------------------------------------------------------------------------


def parallel(reader: Reader, fields: Fields) -> Fields:
    """The number of GPUs in the config, over all nodes; None if it does not set one."""
    gpus = reader.number("gpus", LARGEST["gpus"])
    nodes = reader.number("nodes", 10**4)
    replicas = reader.number("replicas", LARGEST["gpus"])
    if replicas is not None and replicas > 1:
        fields["notes"].append(
            "replicas of shards are not counted: plan assumes one shard over all GPUs"
        )
    if gpus is None:
        return {"devices": None}
    return {"devices": gpus * (nodes or 1)}


def strategy(reader: Reader, fields: Fields) -> Fields:
    """The parallel strategy: DeepSpeed's ZeRO stage if the config names one, otherwise the strategy
    in the settings of FSDP or Megatron-LM."""
    stage = reader.word("zero", stage_of)
    if stage is not None:
        texts = [text for _, text in reader.all("zero")]
        says_stage = any(map(str.isdigit, texts))
        if not says_stage:
            reader.assumed.append(f"ZeRO stage {stage} by the name of a file that was not opened")
        return {"strategy": f"zero{stage}" if stage else "ddp"}
    words = strategy_words(reader)
    strategies = [name for word in words if (name := meaning("strategy", word))]
    if strategies:
        names_fsdp2 = not words.isdisjoint(("2", "fsdp2"))
        return {"strategy": "fsdp" if names_fsdp2 else strategies[0]}
    # Megatron-LM shards only the optimizer states.
    shards_optimizer = reader.switch("distributed-optimizer")
    if shards_optimizer is None:
        return {"strategy": None}
    return {"strategy": "zero1" if shards_optimizer else "ddp"}


def strategy_words(reader: Reader) -> KeysView[str]:
    """The words of the config's FSDP and strategy settings, in order and without repetition."""
    words: dict[str, None] = {}
    for role in ("fsdp", "strategy"):
        for setting, text in reader.all(role):
            reader.note(setting, f"{role}: {text}")
            separate = text.lower().replace(",", " ").split()
            words |= dict.fromkeys(separate)
    return words.keys()


def stage_of(_: Setting, text: str) -> int | None:
    """DeepSpeed's stage from a number or from a file name (`ds_z3_config.json`, `zero2.json`); None
    if there is none."""
    if re.fullmatch(r"[0-3]", text):
        return int(text)
    in_name = re.search(r"z(?:ero)?[_-]?([0-3])", text.lower())
    if in_name is None:
        return None
    return int(in_name[1])


def offload(reader: Reader, fields: Fields) -> Fields:
    """Whether the optimizer states are offloaded to the host. Other kinds of offload are left to
    plan's choice of a recipe."""
    reader.word("offload")
    target = (reader.word("optimizer-offload") or "").lower()
    is_on_host = target in ("cpu", "nvme", "true", "yes", "on")
    return {"offload_optimizer": True if is_on_host else None}


def plan_map(reader: Reader, fields: Fields) -> Fields:
    """The job fields that the config sets under their own names in its map `plan:`."""
    job_fields: Fields = {}
    types = get_type_hints(TrainingJob)
    for path, setting in reader.by_path.items():
        if path[:-1] != ("plan",):
            continue
        name = str(path[-1])
        if name in JOB_DEFAULTS and name != "shape":
            value = value_of(setting)
            job_fields[name] = from_plain(value, types[name], what=f"plan.{name}")
            reader.note(setting, f"{name} of the job")
    return job_fields
