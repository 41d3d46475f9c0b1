"""A training config as a question of `plan`: what it says, what was assumed, what was not read.

What is asked for are roles of keys (`data/plan/keys.json`). A map `plan:` in the file holds
settings of a job by their own names (`plan: {loss: eager, step: loop}`), for what no option and no
trainer's key says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_type_hints

from gpusetup import named_file
from gpusetup.configs.config import Config
from gpusetup.configs.keys import meaning
from gpusetup.configs.settings import TRUE, Setting, name_of
from gpusetup.configs.settings import said as said_by
from gpusetup.model.codec import from_plain
from gpusetup.model.documents import ConfigRead
from gpusetup.model.frozen import Frozen, defaults, replace
from gpusetup.plan.job import FIELDS, Job
from gpusetup.plan.models import is_known
from gpusetup.plan.question import MOST, Question
from gpusetup.plan.reading import Reader
from gpusetup.plan.trainers import trainer_of

Said = dict[str, Any]
NUMBERS = {
    "tp": "tensor_parallel", "pp": "pipeline_parallel", "cp": "context_parallel",
    "sp": "sp", "accumulation": "accumulate",
}  # fmt: skip
SWITCHES = {"tp-sp": "sequence_parallel", "compile": "compile"}
"""Role of a key -> the field of a job or question that it says."""


def worded(kind: str, switched: str | None = None) -> Callable[[Setting, str], Any]:
    """What a setting says of a kind by its text, or by its name if it is a switch that is on."""
    return lambda setting, text: (
        meaning(kind, name_of(setting.path)) or switched if text in TRUE else meaning(kind, text)
    )


class FromConfig(Frozen):
    """A question whose batch waits for the number of GPUs."""

    question: Question
    per_gpu: int | None
    """Sequences of one micro-batch of a group of GPUs."""
    total: int | None
    """Sequences of one step of all, accumulated."""
    gpus: int | None
    read: ConfigRead
    notes: tuple[str, ...] = ()
    """What the plan cannot count, as sentences."""


def question_of(
    config: Config, trainer: str | None = None, variables: Mapping[str, str] | None = None
) -> FromConfig:
    """What a config says; `BadInput` with the place of what cannot be meant.

    `trainer`: whose config it is, if that is known. `variables`: those of the environment.
    """
    reader = Reader(config, variables or {})
    trainer = trainer or trainer_of(config)
    said: Said = {"trainer": trainer, "notes": [], "per_gpu": None, "total": None}
    said |= {field: reader.number(role, MOST[field]) for role, field in NUMBERS.items()}
    said |= {field: reader.switch(role) for role, field in SWITCHES.items()}
    for part in PARTS:
        said |= part(reader, said)
    if trainer is None:
        reader.assumed.append(
            "the trainer is unknown: plan assumes a plain loop in 32 bits, "
            "unless the config says otherwise"
        )
    own = {name: said[name] for name in dict(defaults(Question)) if name in said}
    how = {name: said[name] for name in FIELDS if said.get(name) is not None and name not in own}
    return FromConfig(
        question=Question(**own, how=how),
        per_gpu=said["per_gpu"],
        total=said["total"],
        gpus=said["devices"],
        notes=tuple(said["notes"]),
        read=ConfigRead(
            file=config.name,
            trainer=trainer,
            read=tuple(sorted(reader.used.values(), key=lambda one: one.line)),
            assumed=tuple(dict.fromkeys(reader.assumed)),
            not_understood=tuple(reader.not_understood()),
        ),
    )


def for_gpus(found: FromConfig, gpus: int) -> Question:
    """The question with its batch, which is of all GPUs together."""
    q = replace(found.question, gpus=gpus)
    groups = max(gpus // q.inner, 1)
    if found.per_gpu is not None:
        batch = found.per_gpu * groups
        times = max(found.total // batch, 1) if found.total and q.accumulate is None else None
        return replace(q, batch=batch, accumulate=times or q.accumulate)
    if found.total is not None:
        return replace(q, batch=max(found.total // (q.accumulate or 1), groups))
    return q


# --- what is trained ------------------------------------------------------------------------------


def model(reader: Reader, said: Said) -> Said:
    named = (
        (setting, text)
        for setting, text in reader.all("named-model")
        if setting.path[-1] != "model" or is_known(known_name(text))  # `model: lstm` is a kind
    )
    setting, text = next(named, (None, ""))
    if setting is None:
        return {}
    flavor = reader.word("flavor")
    text = f"{text}-{flavor}" if flavor else text
    reader.note(setting, f"the model {text}")
    name = known_name(text)
    file = Path(name)
    is_file = named_file.is_there(file) and not named_file.is_folder(file)
    if is_file and file.name != "config.json":
        hint = "a name, a config.json or its folder"
        raise reader.refused(setting, "this file is no model's config.json", hint)
    return {"model": name, **({"quantize": "nf4"} if ".qlora_" in text else {})}


def known_name(text: str) -> str:
    """A name that is in the table if the text holds one: a path's end, a component's."""
    if named_file.is_there(Path(text) / "config.json"):
        return text
    last = text
    if "torchtune." in text:
        last = re.sub(r"^(?:qlora|lora|dora)_", "", text.rpartition(".")[2])
        last = re.sub(r"(?<=\d)_(?=\d)", ".", last, count=1)
    last = re.sub(r"^llama3-(?=\d+[bB]$)", "llama-3.1-", last)
    end = last.rstrip("/").rpartition("/")[2]
    return end if is_known(end) and not is_known(last) else last


def adapters(reader: Reader, said: Said) -> Said:
    """LoRA if the config says it, of which rank and beside what."""
    method = (reader.word("adapter") or "").lower()
    if method == "freeze":
        said["notes"].append(
            "frozen layers are not counted: plan assumes that all layers are trained"
        )
        return {}
    on = method in ("lora", "qlora", "true", "yes")
    off = not on and (method or said["trainer"] == "trl")
    rank = None if off else reader.number("rank", MOST["lora"])
    if on and rank is None:
        rank = 16 if said["trainer"] == "trl" else 8
        reader.assumed.append(f"no rank is named: {rank}")
    if rank is None:
        return {}
    part: Said = {"lora": rank, **({"quantize": "nf4"} if method == "qlora" else {})}
    reader.names("targets")  # all linear layers are counted
    if reader.names("trained-too") & {"embed_tokens", "lm_head", "wte", "embeddings"}:
        part["trained_embeddings"] = True
    return part


def quantised(reader: Reader, said: Said) -> Said:
    kind = "nf4" if reader.switch("four-bit") else said.get("quantize")
    kind = "int8" if reader.switch("eight-bit") else kind
    kind = reader.word("quantize", worded("quantize")) or kind
    double = reader.switch("double-quantize")
    usual = said["trainer"] in ("axolotl", "llama-factory")
    if kind == "nf4" and (usual if double is None else double):
        kind = "nf4-dq"
    if kind and said.get("lora") is None:
        reader.assumed.append(f"weights in {kind} are not trained themselves: LoRA of rank 16")
        return {"quantize": kind, "lora": 16}
    return {"quantize": kind}


LENGTHS = {"trl": 1024, "llama-factory": 2048, "torchtitan": 2048}
"""Trainer -> tokens of a sequence if its config says nothing (their own documentation)."""


def length(reader: Reader, said: Said) -> Said:
    """Tokens of a sequence, which an RL trainer may have in two parts."""
    trainer, roles = said["trainer"], ("length", "total-length", "prompt", "response")
    own, total, prompt, response = (reader.number(role, MOST["context"]) for role in roles)
    found = total if trainer == "trinity" else own or total
    if found is None and trainer == "trinity" and prompt and response:
        found = prompt + response
        reader.assumed.append(f"the longest sequence is prompt plus response: {found:,}")
    usual = LENGTHS.get(trainer or "")
    if found is None and usual:
        reader.assumed.append(f"no length is named: {trainer}'s own {usual:,} tokens")
    return {"context": found or usual}


def batch(reader: Reader, said: Said) -> Said:
    trinity = said["trainer"] == "trinity"
    if trinity and reader.switch("dynamic") is not False:
        return {"tokens": reader.number("tokens", MOST["tokens"])}
    each = reader.number("batch", MOST["batch"])
    total = None if trinity and each else reader.number("total", MOST["batch"])
    if each is None and total is None and not trinity:
        reader.assumed.append("the config names no batch: plan assumes 1 on each GPU")
        each = 1
    return {"per_gpu": each, "total": total}


# --- how ------------------------------------------------------------------------------------------


def checkpointing(reader: Reader, said: Said) -> Said:
    off, text = reader.switch("no-checkpoints"), (reader.word("checkpoints") or "").lower()
    away = bool(reader.switch("checkpoint-offload")) or text == "unsloth"
    part: Said = {"offload_checkpoints": away or None}
    if off is not None:
        return part | {"checkpointing": not off}
    if text == "selective" and said["trainer"] != "megatron":
        return part | {"selective": True}
    # Megatron-LM's selective recomputing is of what attention without a flash kernel holds.
    on = text not in ("selective", "none", "no", "false", "off", "n")
    return part | ({"checkpointing": on} if text else {})


def optimizer(reader: Reader, said: Said) -> Said:
    name, step = (reader.word("optimizer", worded(kind)) for kind in ("optimizer", "step"))
    return {"optimizer": name, "step": "backward" if reader.switch("step-in-backward") else step}


IN_16_BITS = ("axolotl", "unsloth", "torchtune", "litgpt", "torchtitan", "megatron", "trinity")
"""Trainers that compute in 16 bits anyway, whose `bf16: true` says nothing of the weights."""


def precision(reader: Reader, said: Said) -> Said:
    """What weights are kept in and what is computed in, by the words of each trainer.

    `bf16: true` is autocast over 32-bit weights, unless trainer or adapters say otherwise.
    """
    kept = meaning("dtype", reader.word("dtype") or "")
    pair = meaning("precision", reader.word("precision") or "")
    pure, mixed = reader.switch("pure-16-bit"), reader.switch("amp")
    bf16, fp16 = reader.switch("bf16"), reader.switch("fp16")
    half = "bf16" if bf16 or (mixed and not kept) else "fp16" if fp16 else None
    if kept:
        return {"dtype": kept, "amp": half if kept == "fp32" else None}
    if pair:
        return {"dtype": pair[0], "amp": pair[1]}
    if pure:
        return {"dtype": "bf16", "amp": "none"}
    if said["trainer"] in IN_16_BITS:
        return {}
    if half is None:
        return {"dtype": "fp32", "amp": "none"} if bf16 is False and said["trainer"] else {}
    if said.get("lora") is not None:
        return {"dtype": half}
    reader.assumed.append(f"weights in 32 bits under {half} autocast, as {half}: true means")
    return {"dtype": "fp32", "amp": half}


def kernels(reader: Reader, said: Said) -> Said:
    plugins = " ".join(one.text for path, one in reader.by_path.items() if "plugins" in path)
    fused = bool(reader.switch("kernels"))
    usual = "fused" if fused or "cut_cross_entropy" in plugins else None
    return {
        "fused_kernels": fused or "liger" in plugins.lower() or None,
        "loss": reader.word("loss-kernel", worded("loss", "fused"))
        or usual
        or ("eager" if said["trainer"] == "axolotl" else None),
        "attention": reader.word("attention", worded("attention")),
    }


# --- among GPUs -----------------------------------------------------------------------------------


def parallel(reader: Reader, said: Said) -> Said:
    gpus, nodes = reader.number("gpus", MOST["gpus"]), reader.number("nodes", 10**4)
    if (reader.number("replicas", MOST["gpus"]) or 1) > 1:
        said["notes"].append(
            "replicas of shards are not counted: plan assumes one shard over all GPUs"
        )
    if (reader.number("ep", MOST["gpus"]) or 1) > 1:
        said["notes"].append(
            "expert parallelism is not counted: plan assumes that each GPU has all experts"
        )
    return {"devices": gpus * (nodes or 1) if gpus else None}


def strategy(reader: Reader, said: Said) -> Said:
    """DeepSpeed's stage, a number or in the name of a file; else FSDP's words."""
    stage = reader.word("zero", stage_of)
    if stage is not None:
        if not any(text.isdigit() for _, text in reader.all("zero")):
            reader.assumed.append(f"ZeRO stage {stage} by the name of a file that was not opened")
        return {"strategy": f"zero{stage}" if stage else "ddp"}
    words = list[str]()
    for role in ("fsdp", "strategy"):
        reader.word(role)
        for _, text in reader.all(role):
            words += text.lower().replace(",", " ").split()
    known = [name for word in words if (name := meaning("strategy", word))]
    divided = reader.switch("distributed-optimizer")
    if not known:
        return {"strategy": {True: "zero1", False: "ddp", None: None}[divided]}
    newer = "fsdp" if {"2", "fsdp2"} & {*words} else known[0]
    return {"strategy": newer}


def stage_of(setting: Setting, text: str) -> int | None:
    found = re.fullmatch(r"[0-3]", text) or re.search(r"z(?:ero)?[_-]?([0-3])", text.lower())
    return int(found[0][-1]) if found else None


PAIRS = ("dpo", "kto", "ipo", "simpo", "orpo", "ppo", "rm", "grpo")


def elsewhere(reader: Reader, said: Said) -> Said:
    """What goes to the host; preference training, which holds more than the plan counts."""
    reader.word("offload")  # the plan says whether that is needed
    stage = (reader.word("stage") or "").lower()
    if stage in PAIRS and said["trainer"] != "trinity":
        said["notes"].append(
            f"{stage} trains on pairs and may hold a reference model: plan counts neither"
        )
    place = (reader.word("optimizer-offload") or "").lower()
    return {"offload_optimizer": place in ("cpu", "nvme", "true", "yes", "on") or None}


def own_words(reader: Reader, said: Said) -> Said:
    """The map `plan:`, settings of a job by their own names."""
    found: Said = {}
    for path, one in reader.by_path.items():
        name = str(path[-1]) if path[:-1] == ("plan",) else ""
        if name in FIELDS and name != "shape":
            kind = get_type_hints(Job)[name]
            found[name] = from_plain(said_by(one), kind, what=f"plan.{name}")
            reader.note(one, f"{name} of the job")
    return found


PARTS: tuple[Callable[[Reader, Said], Said], ...] = (
    model, adapters, quantised, length, batch, checkpointing, optimizer, precision, kernels,
    parallel, strategy, elsewhere, own_words,
)  # fmt: skip
