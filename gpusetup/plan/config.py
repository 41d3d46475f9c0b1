"""A training config as a question of `plan`: what it says, what was assumed, what was not read.

What is asked for are roles of keys (`data/plan/keys.json`). A map `plan:` in the file holds
settings of a job by their own names (`plan: {loss: eager, step: loop}`), for what no option and no
trainer's key says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, KeysView, Mapping
from typing import NamedTuple, get_type_hints

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
        reader.assumed.append(assumed_trainer(fields))
    return FromConfig(
        question=question_of_fields(fields),
        per_gpu=fields["per_gpu"],
        total=fields["total"],
        gpus=fields["devices"],
        notes=tuple(fields["notes"]),
        rope=rope_scaling(reader),
        rank=reader.number("rank", LARGEST["lora"]),
        # Last, after everything was read.
        read=read_of(reader, fields),
    )


def assumed_trainer(fields: Fields) -> str:
    """What plan assumes of a config that shows no trainer."""
    usual = "a plain loop in 32 bits"
    if fields.get("lora") is not None:
        usual = "transformers' Trainer with PEFT"
    return f"the trainer is unknown: plan assumes {usual}, unless the config says otherwise"


def question_of_fields(fields: Fields) -> Question:
    """The question with its own fields, and those of the job that the config says."""
    question_fields: Fields = {}
    job_fields: Fields = {}
    for name in dict(defaults(Question)):
        if name in fields:
            question_fields[name] = fields[name]
    for name in JOB_DEFAULTS.keys() - question_fields:
        if fields.get(name) is not None:
            job_fields[name] = fields[name]
    return Question(**question_fields, job_fields=job_fields)


def read_of(reader: Reader, fields: Fields) -> ConfigRead:
    """What was read of the config, what was assumed, and what may take memory and was not read."""
    keys_by_line = sorted(reader.used.values(), key=lambda key: key.line)
    not_understood = reader.not_understood(counted_maps(fields))
    return ConfigRead(
        file=reader.config.name,
        trainer=fields["trainer"],
        read=tuple(keys_by_line),
        assumed=tuple(dict.fromkeys(reader.assumed)),
        not_understood=tuple(not_understood),
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
    if from_config.per_gpu is None and from_config.total is None:
        return question
    gpu_groups = max(gpus // question.group_size, 1)
    if from_config.per_gpu is None:
        # The batch of a step, in as many parts as are accumulated.
        batch = (from_config.total or 0) // (question.accumulate or 1)
        return replace(question, batch=max(batch, gpu_groups))
    batch = from_config.per_gpu * gpu_groups
    accumulate = question.accumulate
    if accumulate is None and from_config.total:
        accumulate = max(from_config.total // batch, 1)
    return replace(question, batch=batch, accumulate=accumulate)


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
    trainer = fields["trainer"]
    parts = read_lengths(reader)
    if trainer != "trinity":
        tokens = prompt_and_answer(reader, parts) or parts.sequence or parts.total
    elif reader.has_map("actor_rollout_ref"):
        tokens = parts.total or prompt_and_answer(reader, parts)
    else:
        tokens = parts.total or trinity_length(reader, parts)
    default = LENGTHS.get(trainer or "")
    if tokens is None and default:
        reader.assumed.append(f"no length is named: {trainer}'s own {default:,} tokens")
    return {"context": tokens or default}


class Lengths(NamedTuple):
    """Tokens as a config has them; None if it does not say."""

    sequence: int | None
    total: int | None
    """Prompt and response together."""
    prompt: int | None
    response: int | None


def read_lengths(reader: Reader) -> Lengths:
    most = LARGEST["context"]
    return Lengths(
        sequence=reader.number("length", most),
        total=reader.number("total-length", most),
        prompt=reader.number("prompt", most),
        response=reader.number("response", most),
    )


def trinity_length(reader: Reader, lengths: Lengths) -> int | None:
    """Trinity-RFT's longest sequence, if its config says the two parts alone."""
    if not lengths.prompt or not lengths.response:
        return None
    tokens = lengths.prompt + lengths.response
    reader.assumed.append(f"the longest sequence is prompt plus response: {tokens:,}")
    return tokens


PROMPT_TOKENS, ANSWER_TOKENS = 512, 256
"""Tokens of a prompt and of its answer where nothing is said (TRL, GRPOConfig)."""


def prompt_and_answer(reader: Reader, lengths: Lengths) -> int | None:
    """Tokens of a prompt with the answer that is generated; None if nothing is generated."""
    if method_of(reader) not in GENERATING:
        return None
    response = lengths.response
    if response is None:
        new_tokens = reader.text_named("max_new_tokens", "tokens of an answer") or ""
        is_number = re.fullmatch(r"[1-9]\d{0,6}", new_tokens)
        response = int(new_tokens) if is_number else ANSWER_TOKENS
    prompt = lengths.sequence or lengths.prompt or PROMPT_TOKENS
    reader.assumed.append(
        f"the longest sequence is a prompt of {prompt:,} tokens and an answer of {response:,}"
    )
    return prompt + response


def rope_scaling(reader: Reader) -> RopeScaling | None:
    """How far the config extends the model's positions; None if it says nothing of it."""
    factor = reader.decimal("rope-factor")
    original = reader.number("rope-original", LARGEST["context"])
    kind = reader.word("rope-kind")
    if factor is None:
        return None
    return RopeScaling(
        key=reader.key_and_line("rope-factor"),
        factor=factor,
        original=original,
        kind=(kind or "yarn").lower(),
    )


def batch(reader: Reader, fields: Fields) -> Fields:
    """Sequences of a GPU or of all, or the budget of tokens that RL trainers fill.

    Trinity-RFT fills a budget unless it is told not to, verl only if it is told to.
    """
    if fields["trainer"] == "trinity":
        return trinity_batch(reader)
    per_gpu = reader.number("batch", LARGEST["batch"])
    total = reader.number("total", LARGEST["batch"])
    if per_gpu is None and total is None:
        per_gpu = usual_batch(fields["trainer"])
        default = f"{fields['trainer']}'s own {per_gpu}" if per_gpu > 1 else "plan assumes 1"
        reader.assumed.append(f"the config names no batch: {default} on each GPU")
    return {"per_gpu": per_gpu, "total": total}


def trinity_batch(reader: Reader) -> Fields:
    """The budget or the batch of Trinity-RFT, and of verl, by which it trains."""
    is_dynamic = reader.switch("dynamic")
    if is_dynamic is None:
        is_dynamic = not reader.has_map("actor_rollout_ref")
    tokens = reader.number("tokens", LARGEST["tokens"])
    if is_dynamic:
        log_prob_tokens = reader.number_anywhere(
            "log_prob_max_token_len_per_gpu", "tokens", LARGEST["tokens"]
        )
        return {"tokens": tokens, "log_prob_tokens": log_prob_tokens}
    # A budget has no effect beside a number of sequences.
    per_gpu = reader.number("batch", LARGEST["batch"])
    if per_gpu is not None:
        return {"per_gpu": per_gpu}
    return {"total": reader.number("total", LARGEST["batch"])}


# --- how ------------------------------------------------------------------------------------------


def checkpointing(reader: Reader, fields: Fields) -> Fields:
    """Whether activations are recomputed, which of them, and whether they go to the host."""
    text = (reader.word("checkpoints") or "").lower()
    is_off = reader.switch("no-checkpoints")
    offloads = reader.switch("checkpoint-offload") or text == "unsloth"
    checkpoints: Fields = {"offload_checkpoints": True if offloads else None}
    if is_off is not None:
        checkpoints["checkpointing"] = not is_off
    elif text == "selective" and fields["trainer"] != "megatron":
        checkpoints["selective"] = True
    elif text:
        # Megatron-LM's selective recomputing is of what attention without a flash kernel holds.
        words_for_none = ("selective", "none", "no", "false", "off", "n")
        checkpoints["checkpointing"] = text not in words_for_none
    return checkpoints


def optimizer(reader: Reader, fields: Fields) -> Fields:
    """The optimizer, and when it steps."""
    # The name comes first: what a setting was first read as is what the answer shows.
    name = reader.word("optimizer", by_words("optimizer"))
    step = reader.word("optimizer", by_words("step"))
    if reader.switch("step-in-backward"):
        step = "backward"
    return {"optimizer": name, "step": step}


IN_16_BITS = ("axolotl", "unsloth", "torchtune", "litgpt", "torchtitan", "megatron", "trinity")
"""Trainers that compute in 16 bits anyway, whose `bf16: true` says nothing of the weights."""


def precision(reader: Reader, fields: Fields) -> Fields:
    """What weights are kept in and what is computed in, by the words of each trainer.

    `bf16: true` is autocast over 32-bit weights, unless trainer or adapters say otherwise.
    """
    weights = meaning("dtype", reader.word("dtype") or "")
    weights_and_amp = meaning("precision", reader.word("precision") or "")
    is_pure = reader.switch("pure-16-bit")
    amp = autocast_of(reader, has_dtype=bool(weights))
    if weights:
        # `bf16: true` beside 16-bit weights: whether a 32-bit copy is stepped is the trainer's own
        # choice (`trainer_defaults`), so what is computed in is kept as it was said.
        return {"dtype": weights, "amp": amp}
    if weights_and_amp:
        return {"dtype": weights_and_amp[0], "amp": weights_and_amp[1]}
    if is_pure:
        return {"dtype": "bf16", "amp": "none"}
    if fields["trainer"] in IN_16_BITS:
        return {}
    if amp is None:
        says_32_bits = reader.switch("bf16") is False and fields["trainer"]
        return {"dtype": "fp32", "amp": "none"} if says_32_bits else {}
    if fields.get("lora") is not None:
        return {"dtype": amp}
    reader.assumed.append(f"weights in 32 bits under {amp} autocast, as {amp}: true means")
    return {"dtype": "fp32", "amp": amp}


def autocast_of(reader: Reader, *, has_dtype: bool) -> str | None:
    """The type that switches say is computed in; `has_dtype`: whether the weights' type is said."""
    is_mixed = reader.switch("amp")
    bf16 = reader.switch("bf16")
    fp16 = reader.switch("fp16")
    if bf16 or (is_mixed and not has_dtype):
        return "bf16"
    return "fp16" if fp16 else None


def kernels(reader: Reader, fields: Fields) -> Fields:
    """The kernels of attention, of the loss and of the layers."""
    plugins = " ".join(reader.texts_named("plugins", "a plugin"))
    has_liger = bool(reader.switch("kernels"))
    loss = reader.word("loss-kernel", by_words("loss", "fused"))
    if loss is None:
        # Liger's kernels have its fused loss among them; axolotl's plugin does not switch it on.
        has_fused_loss = has_liger or "cut_cross_entropy" in plugins
        default = "eager" if fields["trainer"] == "axolotl" else None
        loss = "fused" if has_fused_loss else default
    has_kernels = has_liger or "liger" in plugins.lower()
    return {
        "fused_kernels": True if has_kernels else None,
        "loss": loss,
        "attention": reader.word("attention", by_words("attention")),
    }


# --- among GPUs -----------------------------------------------------------------------------------


def parallel(reader: Reader, fields: Fields) -> Fields:
    """How many GPUs the training is on."""
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
    """DeepSpeed's stage, a number or in the name of a file; else FSDP's words."""
    stage = reader.word("zero", stage_of)
    if stage is not None:
        texts = [text for _, text in reader.all("zero")]
        if not any(map(str.isdigit, texts)):
            reader.assumed.append(f"ZeRO stage {stage} by the name of a file that was not opened")
        return {"strategy": f"zero{stage}" if stage else "ddp"}
    words = strategy_words(reader)
    strategies = [name for word in words if (name := meaning("strategy", word))]
    if strategies:
        names_fsdp2 = not words.isdisjoint(("2", "fsdp2"))
        return {"strategy": "fsdp" if names_fsdp2 else strategies[0]}
    # Megatron-LM shards the states alone.
    shards_optimizer = reader.switch("distributed-optimizer")
    if shards_optimizer is None:
        return {"strategy": None}
    return {"strategy": "zero1" if shards_optimizer else "ddp"}


def strategy_words(reader: Reader) -> KeysView[str]:
    """The words of FSDP's settings and of a strategy, in their order."""
    words: dict[str, None] = {}
    for role in ("fsdp", "strategy"):
        for setting, text in reader.all(role):
            reader.note(setting, f"{role}: {text}")
            separate = text.lower().replace(",", " ").split()
            words |= dict.fromkeys(separate)
    return words.keys()


def stage_of(_: Setting, text: str) -> int | None:
    """DeepSpeed's stage by a number or a file's name (`ds_z3_config.json`, `zero2.json`)."""
    if re.fullmatch(r"[0-3]", text):
        return int(text)
    in_name = re.search(r"z(?:ero)?[_-]?([0-3])", text.lower())
    return int(in_name[1]) if in_name else None


def offload(reader: Reader, fields: Fields) -> Fields:
    """Whether the optimizer is on the host; whether the rest must be, the plan says itself."""
    reader.word("offload")
    target = (reader.word("optimizer-offload") or "").lower()
    is_on_host = target in ("cpu", "nvme", "true", "yes", "on")
    return {"offload_optimizer": True if is_on_host else None}


def plan_map(reader: Reader, fields: Fields) -> Fields:
    """The map `plan:`, settings of a job by their own names."""
    job_fields: Fields = {}
    types = get_type_hints(Job)
    for path, setting in reader.by_path.items():
        if path[:-1] != ("plan",):
            continue
        name = str(path[-1])
        if name in JOB_DEFAULTS and name != "shape":
            value = value_of(setting)
            job_fields[name] = from_plain(value, types[name], what=f"plan.{name}")
            reader.note(setting, f"{name} of the job")
    return job_fields


PARTS: tuple[Callable[[Reader, Fields], Fields], ...] = (
    model, adapters, frozen, tables, quantised, length, batch, checkpointing, optimizer, precision,
    kernels, parallel, strategy, offload, reinforcement, plan_map,
)  # fmt: skip
