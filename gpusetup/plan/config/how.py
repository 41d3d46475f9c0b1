"""How a config trains: precision, optimizer, kernels, and what stands among GPUs."""

from __future__ import annotations

import re
from typing import Any

from gpusetup.configs import keys, values
from gpusetup.configs.settings import name_of
from gpusetup.plan.answer.question import MOST
from gpusetup.plan.config.reading import Reader

Part = dict[str, Any]


def checkpointing(reader: Reader, said: Part) -> Part:
    off = reader.switch(keys.NO_CHECKPOINTS)
    if off is not None:
        return {"checkpointing": not off}
    found = reader.word(keys.CHECKPOINTS)
    if found is None:
        return {}
    setting, text = found
    text = text.lower()
    reader.note(setting, f"checkpointing {text}")
    if text == "selective":
        # Megatron-LM's recomputes what attention without a flash kernel holds.
        of_attention = {"checkpointing": False}
        return of_attention if said["trainer"] == "megatron" else {"selective": _selective(reader)}
    part: Part = {"checkpointing": text not in ("none", "no", *FALSE)}
    return part | ({"offload": ("checkpoints",)} if text == "unsloth" else {})


FALSE = ("false", "off", "n")


def _selective(reader: Reader) -> str:
    """torchtitan's `selective_ac_option`: `op`, or every how many layers."""
    for path, one in reader.by_path.items():
        text = reader.text(one) if path[-1:] == ("selective_ac_option",) else None
        if text:
            reader.note(one, f"selective checkpointing: {text}")
            return text
    reader.assumed.append("selective checkpointing by operator")
    return "op"


def checkpoint_offload(reader: Reader, said: Part) -> Part:
    if reader.switch(keys.CHECKPOINT_OFFLOAD):
        return {"offload": ("checkpoints",)}
    return {}


def optimizer(reader: Reader, said: Part) -> Part:
    for setting, text in reader.all(keys.OPTIMIZER):
        known = values.optimizer(text)
        if known:
            reader.note(setting, f"the optimizer {known[0]}")
            step = {"step": known[1]} if known[1] else {}
            return {"optimizer": known[0]} | step
    return {}


def in_backward(reader: Reader, said: Part) -> Part:
    return {"step": "backward"} if reader.switch(keys.IN_BACKWARD) else {}


def precision(reader: Reader, said: Part) -> Part:
    """What weights are kept in and what is computed in, by the words of each trainer."""
    kept = reader.word(keys.DTYPE)
    if kept and (known := values.dtype(kept[1])):
        reader.note(kept[0], f"weights in {known}")
        return {"dtype": known} | _computed(reader, known)
    for setting, text in reader.all(keys.PRECISION):
        pair = values.PRECISIONS.get(text.lower())
        if pair:
            reader.note(setting, f"weights in {pair[0]}, computing in {pair[1]}")
            return {"dtype": pair[0], "amp": pair[1]}
    return _switches(reader, said)


def _computed(reader: Reader, kept: str) -> Part:
    half = "bf16" if reader.switch(keys.BF16) else "fp16" if reader.switch(keys.FP16) else None
    return {"amp": half} if half and kept == "fp32" else {}


PURE_BASE = ("axolotl", "unsloth", "torchtune", "litgpt")
"""Trainers whose base is in 16 bits where they compute so."""


def _switches(reader: Reader, said: Part) -> Part:
    """`bf16: true` is autocast over 32-bit weights, unless trainer or adapters say otherwise."""
    pure, bf16, fp16 = (reader.switch(role) for role in (keys.PURE, keys.BF16, keys.FP16))
    mixed = reader.switch(keys.AMP)
    if pure:
        return {"dtype": "bf16", "amp": "none"}
    if bf16 is False and not fp16 and not mixed and said["trainer"] not in (None, *PURE_BASE):
        return {"dtype": "fp32", "amp": "none"}
    half = "bf16" if bf16 or mixed else "fp16" if fp16 else None
    if half == "fp16" and said["trainer"] in ("axolotl", "unsloth"):
        return {"dtype": "fp16"}
    if half == "fp16" and said["trainer"] == "megatron":
        return {"amp": "fp16"}
    if half is None or said["trainer"] in (*PURE_BASE, "torchtitan", "megatron", "trinity"):
        return {}
    if said.get("lora") is not None:
        return {"dtype": half}
    if said.get("trained_layers") is not None and half == "bf16":
        return {}
    reader.assumed.append(f"weights in 32 bits under {half} autocast, as {half}: true means")
    return {"dtype": "fp32", "amp": half}


def kernels(reader: Reader, said: Part) -> Part:
    part: Part = {}
    if reader.switch(keys.KERNELS):
        part |= {"fused_kernels": True, "loss": "fused"}
    for setting, text in reader.all(keys.LOSS_KERNEL):
        known = values.LOSSES.get(text.rpartition(".")[2])
        if text.lower() in ("true", "yes", "on"):
            known = values.LOSS_SWITCHES.get(name_of(setting.path), "fused")
        if known:
            reader.note(setting, f"the loss {known}")
            return part | {"loss": known}
    plugins = " ".join(one.text for path, one in reader.by_path.items() if "plugins" in path)
    if "liger" in plugins.lower():
        part |= {"fused_kernels": True}
    if said["trainer"] == "axolotl" and "loss" not in part:
        cut = "cut_cross_entropy" in plugins
        part["loss"] = "fused" if cut else "eager"
    return part


def attention(reader: Reader, said: Part) -> Part:
    for setting, text in reader.all(keys.ATTENTION):
        name = name_of(setting.path)
        known = values.ATTENTION.get(text.lower())
        if text.lower() in ("true", "yes", "on"):
            known = {"flash_attention": "flash", "sdp_attention": "sdpa"}.get(name, "eager")
        if known:
            reader.note(setting, f"attention by {known}")
            # SDPA without a mask is flash attention's kernel.
            return {"attention": "flash" if known == "sdpa" else known}
    return {}


def compiled(reader: Reader, said: Part) -> Part:
    on = reader.switch(keys.COMPILE)
    return {} if on is None else {"compile": on}


# --- among GPUs -----------------------------------------------------------------------------------


def parallel(reader: Reader, said: Part) -> Part:
    part: Part = {}
    for role, name in PARALLEL:
        number = reader.number(role, MOST.get(name, 1024))
        if number is not None and (number > 1 or name == "sp"):
            part[name] = number
    replicas = reader.number(keys.REPLICAS, MOST["gpus"])
    if replicas and replicas > 1:
        part["notes"] = ["replicas of shards are not counted: all GPUs are taken as one shard"]
    beside = reader.switch(keys.TP_SP)
    if beside is not None:
        part["sequence_parallel"] = beside
    gpus, nodes = reader.number(keys.GPUS, MOST["gpus"]), reader.number(keys.NODES, 10**4)
    return part | {"gpus": gpus * (nodes or 1) if gpus else None}


PARALLEL = (
    (keys.TP, "tensor_parallel"),
    (keys.PP, "pipeline_parallel"),
    (keys.CP, "context_parallel"),
    (keys.EP, "expert_parallel"),
    (keys.SP, "sp"),
)


def strategy(reader: Reader, said: Part) -> Part:
    zero = _zero(reader)
    if zero is not None:
        return {"strategy": f"zero{zero}" if zero else "ddp"}
    found, part = None, Part()
    for role in (keys.FSDP, keys.STRATEGY):
        for setting, text in reader.all(role):
            for word in text.lower().replace(",", " ").split():
                known = values.SHARDING.get(word)
                if known and (found is None or word in ("2", "fsdp2")):
                    reader.note(setting, f"the strategy {known}")
                    found = known
                    part = {"reshard": False} if word == "shard_grad_op" else {}
    if found is None and (divided := reader.switch(keys.DISTRIBUTED)) is not None:
        found = "zero1" if divided else "ddp"
    return {"strategy": found, **part} if found else {}


def _zero(reader: Reader) -> int | None:
    """DeepSpeed's stage: a number, or in the name of the file that is referred to."""
    for setting, text in reader.all(keys.ZERO):
        stage = re.fullmatch(r"[0-3]", text) or re.search(r"z(?:ero)?[_-]?([0-3])", text.lower())
        if stage:
            number = int(stage[1] if stage.lastindex else stage[0])
            reader.note(setting, f"ZeRO stage {number}")
            if not stage.lastindex:
                return number
            reader.assumed.append(f"{text} is ZeRO stage {number} by its name: it was not opened")
            return number
    return None


def offload(reader: Reader, said: Part) -> Part:
    kept = set(said.get("offload", ()))
    if _on_host(reader, keys.OPTIMIZER_OFFLOAD):
        kept.add("optimizer")
    notes = list(said.get("notes", ()))
    in_words = any("offload" in text.lower().split() for _, text in reader.all(keys.FSDP))
    if _on_host(reader, keys.OFFLOAD) or in_words:
        notes.append("the file offloads parameters; the plan says whether that is needed")
    return {"offload": tuple(sorted(kept)), "notes": notes}


def _on_host(reader: Reader, role: str) -> bool:
    for setting, text in reader.all(role):
        if text.lower() in ("cpu", "nvme", "true", "yes", "on"):
            reader.note(setting, f"{role}: on the host")
            return True
    return False


def stage(reader: Reader, said: Part) -> Part:
    """Preference training holds more than the plan counts: said, not guessed."""
    found = reader.word(keys.STAGE)
    if found is None:
        return {}
    setting, text = found
    reader.note(setting, f"the stage {text}")
    if said["trainer"] == "trinity" or text.lower() not in PAIRS:
        return {}
    line = f"{text} computes pairs and may hold a reference model: `--batch` counts each sequence"
    line += ", `--reference` the model"
    return {"notes": [*said.get("notes", ()), line]}


PAIRS = ("dpo", "kto", "ipo", "simpo", "orpo", "ppo", "rm", "grpo")
