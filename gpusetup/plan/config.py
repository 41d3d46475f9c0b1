"""A training config as a question of `plan`: what it says, what was assumed, what was not read.

What is asked for are roles of keys (`data/plan/keys.json`). A map `plan:` in the file holds
settings of a job by their own names (`plan: {loss: eager, step: loop}`), for what no option and no
trainer's key says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import get_type_hints

from gpusetup.configs.config import Config
from gpusetup.configs.keys import meaning
from gpusetup.configs.settings import Setting, value_of
from gpusetup.configs.trainer import trainer_of
from gpusetup.model.codec import from_plain
from gpusetup.model.documents import ConfigRead
from gpusetup.model.frozen import Frozen, defaults, replace
from gpusetup.plan.config_model import adapters, frozen, model, quantised, tables
from gpusetup.plan.config_reader import OTHER_MODELS, Fields, Reader, by_words
from gpusetup.plan.config_rl import method_of, reinforcement
from gpusetup.plan.job import JOB_DEFAULTS, Job
from gpusetup.plan.question import LARGEST, Question
from gpusetup.plan.rl_methods import GENERATING
from gpusetup.plan.rope import RopeScaling
from gpusetup.plan.trainers import usual_batch

NUMBERS = {
    "tp": "tensor_parallel", "pp": "pipeline_parallel", "cp": "context_parallel",
    "sp": "sp", "ep": "expert_parallel", "accumulation": "accumulate",
}  # fmt: skip
SWITCHES = {"tp-sp": "sequence_parallel", "compile": "compile"}
"""Role of a key -> the field of a job or question that it says."""


class FromConfig(Frozen):
    """A question whose batch waits for the number of GPUs."""

    question: Question
    per_gpu: int | None
    """Sequences of one micro-batch of a group of GPUs (see `Question.group_size`)."""
    total: int | None
    """Sequences of one optimizer step of all GPUs, accumulated."""
    gpus: int | None
    read: ConfigRead
    notes: tuple[str, ...] = ()
    """What the plan cannot count, as sentences."""
    rope: RopeScaling | None = None
    """How far the config extends the model's positions."""
    rank: int | None = None
    """The rank of adapters that the config names, whether it uses them or not."""


def question_of(
    config: Config, trainer: str | None = None, variables: Mapping[str, str] | None = None
) -> FromConfig:
    """What a config says; `BadInput` with the place of what cannot be meant.

    `trainer`: whose config it is, if that is known. `variables`: those of the environment.
    """
    reader = Reader(config, variables or {})
    trainer = trainer or trainer_of(config)
    fields: Fields = {"trainer": trainer, "notes": [], "per_gpu": None, "total": None}
    fields |= {field: reader.number(role, LARGEST[field]) for role, field in NUMBERS.items()}
    fields |= {field: reader.switch(role) for role, field in SWITCHES.items()}
    for part in PARTS:
        fields |= part(reader, fields)
    if trainer is None:
        usual = "a plain loop in 32 bits"
        if fields.get("lora") is not None:
            usual = "transformers' Trainer with PEFT"
        reader.assumed.append(
            f"the trainer is unknown: plan assumes {usual}, unless the config says otherwise"
        )
    question_fields = {name: fields[name] for name in dict(defaults(Question)) if name in fields}
    job_fields = {
        name: fields[name]
        for name in JOB_DEFAULTS.keys() - question_fields
        if fields.get(name) is not None
    }
    return FromConfig(
        question=Question(**question_fields, job_fields=job_fields),
        per_gpu=fields["per_gpu"],
        total=fields["total"],
        gpus=fields["devices"],
        notes=tuple(fields["notes"]),
        rope=rope_scaling(reader),
        rank=reader.number("rank", LARGEST["lora"]),
        read=ConfigRead(
            file=config.name,
            trainer=trainer,
            read=tuple(sorted(reader.used.values(), key=lambda one: one.line)),
            assumed=tuple(dict.fromkeys(reader.assumed)),
            not_understood=tuple(reader.not_understood(counted_maps(fields))),
        ),
    )


def counted_maps(fields: Fields) -> frozenset[str]:
    """The maps about other models than the one that is trained which the plan counts as a whole.

    Trinity-RFT's are on other GPUs, or within what was measured; of a teacher nothing is counted.
    """
    if fields["trainer"] == "trinity" or fields.get("rl"):
        return OTHER_MODELS - {"teacher"}
    return frozenset(("rollout", "explorer", "inference"))


def for_gpus(from_config: FromConfig, gpus: int) -> Question:
    """The question with its batch, which is of all GPUs together."""
    question = replace(from_config.question, gpus=gpus)
    gpu_groups = max(gpus // question.group_size, 1)
    if from_config.per_gpu is not None:
        batch = from_config.per_gpu * gpu_groups
        steps = question.accumulate
        if steps is None and from_config.total:
            steps = max(from_config.total // batch, 1)
        return replace(question, batch=batch, accumulate=steps)
    if from_config.total is not None:
        return replace(
            question, batch=max(from_config.total // (question.accumulate or 1), gpu_groups)
        )
    return question


def read_for_gpus(from_config: FromConfig, gpus: int) -> ConfigRead:
    """What was read of the config, with what is assumed of its batch on several GPUs.

    A plain loop under DDP gives each GPU its `batch_size`; under DataParallel it is divided.
    """
    read = from_config.read
    if gpus == 1 or from_config.per_gpu is None or read.trainer is not None:
        return read
    assumption = (
        f"each GPU has a batch of {from_config.per_gpu:,}; if that is the batch of all {gpus} GPUs "
        f"together, add `--batch {from_config.per_gpu}`"
    )
    return replace(read, assumed=(*read.assumed, assumption))


# --- how much at once ----------------------------------------------------------------------------

LENGTHS = {"trl": 1024, "llama-factory": 2048, "torchtitan": 2048}
"""Trainer -> tokens of a sequence if its config says nothing (their own documentation)."""


def length(reader: Reader, fields: Fields) -> Fields:
    """Tokens of a sequence, which an RL trainer may have in two parts."""
    trainer, roles = fields["trainer"], ("length", "total-length", "prompt", "response")
    sequence, total, prompt, response = (reader.number(role, LARGEST["context"]) for role in roles)
    tokens = total if trainer == "trinity" else sequence or total
    is_verl = reader.has_map("actor_rollout_ref")
    if tokens is None and trainer == "trinity" and prompt and response and not is_verl:
        tokens = prompt + response
        reader.assumed.append(f"the longest sequence is prompt plus response: {tokens:,}")
    if trainer != "trinity" or (is_verl and tokens is None):
        answers = prompt_and_answer(reader, sequence or prompt, response)
        if answers is not None:
            return {"context": answers}
    default = LENGTHS.get(trainer or "")
    if tokens is None and default:
        reader.assumed.append(f"no length is named: {trainer}'s own {default:,} tokens")
    return {"context": tokens or default}


PROMPT_TOKENS, ANSWER_TOKENS = 512, 256
"""Tokens of a prompt and of its answer where nothing is said (TRL, GRPOConfig)."""


def prompt_and_answer(reader: Reader, prompt: int | None, response: int | None) -> int | None:
    """Tokens of a prompt with the answer that is generated; None if nothing is generated."""
    if method_of(reader) not in GENERATING:
        return None
    if response is None:
        new_tokens = reader.text_named("max_new_tokens", "tokens of an answer") or ""
        response = int(new_tokens) if re.fullmatch(r"[1-9]\d{0,6}", new_tokens) else None
    prompt_tokens, answer_tokens = prompt or PROMPT_TOKENS, response or ANSWER_TOKENS
    reader.assumed.append(
        f"the longest sequence is a prompt of {prompt_tokens:,} tokens and an answer of "
        f"{answer_tokens:,}"
    )
    return prompt_tokens + answer_tokens


def rope_scaling(reader: Reader) -> RopeScaling | None:
    """How far the config extends the model's positions; None if it says nothing of it."""
    factor = reader.decimal("rope-factor")
    original = reader.number("rope-original", LARGEST["context"])
    kind = reader.word("rope-kind")
    if factor is None:
        return None
    return RopeScaling(
        key=reader.place("rope-factor"),
        factor=factor,
        original=original,
        kind=(kind or "yarn").lower(),
    )


def batch(reader: Reader, fields: Fields) -> Fields:
    """Sequences of a GPU or of all, or the budget of tokens that RL trainers fill.

    Trinity-RFT fills a budget unless it is told not to, verl only if it is told to.
    """
    trinity = fields["trainer"] == "trinity"
    is_dynamic = reader.switch("dynamic")
    if is_dynamic is None:
        is_dynamic = not reader.has_map("actor_rollout_ref")
    if trinity and is_dynamic:
        return {
            "tokens": reader.number("tokens", LARGEST["tokens"]),
            "log_prob_tokens": reader.number_anywhere(
                "log_prob_max_token_len_per_gpu", "tokens", LARGEST["tokens"]
            ),
        }
    if trinity:
        reader.number("tokens", LARGEST["tokens"])  # of no effect beside a number of sequences
    each = reader.number("batch", LARGEST["batch"])
    total = None if trinity and each else reader.number("total", LARGEST["batch"])
    if each is None and total is None and not trinity:
        each = usual_batch(fields["trainer"])
        whose = f"{fields['trainer']}'s own {each}" if each > 1 else "plan assumes 1"
        reader.assumed.append(f"the config names no batch: {whose} on each GPU")
    return {"per_gpu": each, "total": total}


# --- how ------------------------------------------------------------------------------------------


def checkpointing(reader: Reader, fields: Fields) -> Fields:
    is_off, text = reader.switch("no-checkpoints"), (reader.word("checkpoints") or "").lower()
    offloads = bool(reader.switch("checkpoint-offload")) or text == "unsloth"
    checkpoints: Fields = {"offload_checkpoints": offloads or None}
    if is_off is not None:
        return checkpoints | {"checkpointing": not is_off}
    if text == "selective" and fields["trainer"] != "megatron":
        return checkpoints | {"selective": True}
    # Megatron-LM's selective recomputing is of what attention without a flash kernel holds.
    is_on = text not in ("selective", "none", "no", "false", "off", "n")
    return checkpoints | ({"checkpointing": is_on} if text else {})


def optimizer(reader: Reader, fields: Fields) -> Fields:
    name, step = (reader.word("optimizer", by_words(kind)) for kind in ("optimizer", "step"))
    return {"optimizer": name, "step": "backward" if reader.switch("step-in-backward") else step}


IN_16_BITS = ("axolotl", "unsloth", "torchtune", "litgpt", "torchtitan", "megatron", "trinity")
"""Trainers that compute in 16 bits anyway, whose `bf16: true` says nothing of the weights."""


def precision(reader: Reader, fields: Fields) -> Fields:
    """What weights are kept in and what is computed in, by the words of each trainer.

    `bf16: true` is autocast over 32-bit weights, unless trainer or adapters say otherwise.
    """
    weights = meaning("dtype", reader.word("dtype") or "")
    pair = meaning("precision", reader.word("precision") or "")
    pure, mixed = reader.switch("pure-16-bit"), reader.switch("amp")
    bf16, fp16 = reader.switch("bf16"), reader.switch("fp16")
    amp = None
    if bf16 or (mixed and not weights):
        amp = "bf16"
    elif fp16:
        amp = "fp16"
    if weights:
        # `bf16: true` beside 16-bit weights: whether a 32-bit copy is stepped is the trainer's own
        # choice (`trainer_defaults`), so what is computed in is kept as it was said.
        return {"dtype": weights, "amp": amp}
    if pair:
        return {"dtype": pair[0], "amp": pair[1]}
    if pure:
        return {"dtype": "bf16", "amp": "none"}
    if fields["trainer"] in IN_16_BITS:
        return {}
    if amp is None:
        says_32_bits = bf16 is False and fields["trainer"]
        return {"dtype": "fp32", "amp": "none"} if says_32_bits else {}
    if fields.get("lora") is not None:
        return {"dtype": amp}
    reader.assumed.append(f"weights in 32 bits under {amp} autocast, as {amp}: true means")
    return {"dtype": "fp32", "amp": amp}


def kernels(reader: Reader, fields: Fields) -> Fields:
    plugins = " ".join(reader.texts_named("plugins", "a plugin"))
    has_kernels = bool(reader.switch("kernels"))
    default_loss = "fused" if has_kernels or "cut_cross_entropy" in plugins else None
    return {
        "fused_kernels": has_kernels or "liger" in plugins.lower() or None,
        "loss": reader.word("loss-kernel", by_words("loss", "fused"))
        or default_loss
        or ("eager" if fields["trainer"] == "axolotl" else None),
        "attention": reader.word("attention", by_words("attention")),
    }


# --- among GPUs -----------------------------------------------------------------------------------


def parallel(reader: Reader, fields: Fields) -> Fields:
    gpus, nodes = reader.number("gpus", LARGEST["gpus"]), reader.number("nodes", 10**4)
    if (reader.number("replicas", LARGEST["gpus"]) or 1) > 1:
        fields["notes"].append(
            "replicas of shards are not counted: plan assumes one shard over all GPUs"
        )
    if gpus is None:
        return {"devices": None}
    return {"devices": gpus if nodes is None else gpus * nodes}


def strategy(reader: Reader, fields: Fields) -> Fields:
    """DeepSpeed's stage, a number or in the name of a file; else FSDP's words."""
    stage = reader.word("zero", stage_of)
    if stage is not None:
        if not any(text.isdigit() for _, text in reader.all("zero")):
            reader.assumed.append(f"ZeRO stage {stage} by the name of a file that was not opened")
        return {"strategy": f"zero{stage}" if stage else "ddp"}
    words = list[str]()
    for role in ("fsdp", "strategy"):
        for setting, text in reader.all(role):
            reader.note(setting, f"{role}: {text}")
            words += text.lower().replace(",", " ").split()
    strategies = [meaning("strategy", word) for word in words]
    known_strategies = [name for name in strategies if name]
    if known_strategies:
        names_fsdp2 = bool({"2", "fsdp2"} & set(words))
        return {"strategy": "fsdp" if names_fsdp2 else known_strategies[0]}
    shards_optimizer = reader.switch("distributed-optimizer")  # Megatron-LM's
    if shards_optimizer is None:
        return {"strategy": None}
    return {"strategy": "zero1" if shards_optimizer else "ddp"}


def stage_of(setting: Setting, text: str) -> int | None:
    hit = re.fullmatch(r"[0-3]", text) or re.search(r"z(?:ero)?[_-]?([0-3])", text.lower())
    return int(hit[0][-1]) if hit else None


def offload(reader: Reader, fields: Fields) -> Fields:
    reader.word("offload")  # the plan says whether that is needed
    place = (reader.word("optimizer-offload") or "").lower()
    return {"offload_optimizer": place in ("cpu", "nvme", "true", "yes", "on") or None}


def plan_map(reader: Reader, fields: Fields) -> Fields:
    """The map `plan:`, settings of a job by their own names."""
    found: Fields = {}
    for path, one in reader.by_path.items():
        name = str(path[-1]) if path[:-1] == ("plan",) else ""
        if name in JOB_DEFAULTS and name != "shape":
            kind = get_type_hints(Job)[name]
            found[name] = from_plain(value_of(one), kind, what=f"plan.{name}")
            reader.note(one, f"{name} of the job")
    return found


PARTS: tuple[Callable[[Reader, Fields], Fields], ...] = (
    model, adapters, frozen, tables, quantised, length, batch, checkpointing, optimizer, precision,
    kernels, parallel, strategy, offload, reinforcement, plan_map,
)  # fmt: skip
