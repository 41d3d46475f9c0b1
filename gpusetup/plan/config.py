"""Turns a training config into a question for `plan`, and records what was read, what was assumed
and which keys were not understood.

Each known key has a role, such as `batch` or `optimizer` (`data/plan/keys.json`), and the functions
in `PARTS` look up settings by role.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from gpusetup import named_file
from gpusetup.configs.config import Config
from gpusetup.configs.keys import meaning, trainer_of
from gpusetup.configs.settings import TRUE, Setting, dotted, name_of, words_of
from gpusetup.model.documents import ConfigRead
from gpusetup.model.frozen import Frozen, defaults, replace
from gpusetup.plan.config_reader import OTHER_MODELS, Fields, Reader, by_words
from gpusetup.plan.job import JOB_DEFAULTS
from gpusetup.plan.models import is_known
from gpusetup.plan.question import ALL, EMBEDDINGS, LARGEST, TrainingQuestion
from gpusetup.plan.rl import GENERATING, method_of, reinforcement
from gpusetup.plan.trainers import trainer_table


class RopeScaling(NamedTuple):
    """The YaRN scaling with which a config extends the model's context."""

    key: str
    """The key and line number of the factor, as shown in the answer."""
    factor: float
    original: int | None
    """The original length in the config; None means the model's native context."""


class FromConfig(Frozen):
    """A planning question that was read from a config. Its batch is not final, because it depends
    on the number of GPUs."""

    question: TrainingQuestion
    per_gpu: int | None
    """The number of sequences in one micro-batch of the GPUs that share a sequence (`sp`)."""
    total: int | None
    """The number of sequences in one optimizer step over all GPUs, accumulation included."""
    gpus: int | None
    read: ConfigRead
    rope: RopeScaling | None = None


def question_of(
    config: Config, trainer: str | None = None, variables: Mapping[str, str] | None = None
) -> FromConfig:
    """The planning question that a config describes; BadInput with the line number if a value is
    impossible.

    `trainer`: the trainer that the config is for, if known. `variables`: the environment variables.
    """
    reader = Reader(config, variables or {})
    trainer = trainer or trainer_of(config)
    fields: Fields = {
        "trainer": trainer,
        "per_gpu": None,  # the part `batch` need not set both
        "total": None,
        "sp": reader.number("sp", LARGEST["sp"]),
        "accumulate": reader.number("accumulation", LARGEST["accumulate"]),
        "compile": reader.switch("compile"),
    }
    for part in PARTS:
        fields |= part(reader, fields)
    question_names = dict(defaults(TrainingQuestion)).keys()
    # The caller chooses the number of GPUs (`for_gpus`), for which the config's is a proposal.
    question_fields = {name: fields[name] for name in question_names & fields.keys() - {"gpus"}}
    other_fields = JOB_DEFAULTS.keys() - question_names
    # Leave out fields that the config does not set, so that the trainer's defaults apply.
    job_fields = {name: fields[name] for name in other_fields if fields.get(name) is not None}
    # In supervised training, a map about sampling or serving belongs to another program. The other
    # models of RL, except a teacher, are counted as a whole; Trinity-RFT's run on other GPUs, or
    # were part of the measured runs.
    maps_without_report = frozenset(("rollout", "explorer", "inference"))
    if trainer == "trinity" or fields.get("rl"):
        maps_without_report = OTHER_MODELS - {"teacher"}
    return FromConfig(
        question=TrainingQuestion(**question_fields, job_fields=job_fields),
        per_gpu=fields["per_gpu"],
        total=fields["total"],
        gpus=fields["gpus"],
        rope=rope_scaling(reader),
        # Build the report last, because it lists all keys that were read.
        read=ConfigRead(
            file=config.name,
            trainer=trainer,
            read=tuple(sorted(reader.used.values(), key=lambda key: key.line)),
            assumed=tuple(dict.fromkeys(reader.assumed)),
            not_understood=tuple(reader.not_understood(maps_without_report)),
        ),
    )


def for_gpus(from_config: FromConfig, gpus: int) -> TrainingQuestion:
    """The question for this number of GPUs, with the batch of all GPUs together."""
    question = replace(from_config.question, gpus=gpus)
    per_gpu, total, accumulate = from_config.per_gpu, from_config.total, question.accumulate
    # The GPUs of a group share each sequence, so a group needs at least one.
    groups = max(gpus // (question.sp or 1), 1)
    if per_gpu is not None:
        batch = per_gpu * groups
        if accumulate is None and total:
            accumulate = max(total // batch, 1)
        return replace(question, batch=batch, accumulate=accumulate)
    if total is None:
        return question
    # The total is the batch of an optimizer step, so divide it among the micro-batches.
    return replace(question, batch=max(total // (accumulate or 1), groups))


def model(reader: Reader, fields: Fields) -> Fields:
    """The field `model`, from the first setting that names a model or its folder; `BadInput` for a
    file that is not a config.json."""
    for setting, text in reader.with_role("named-model"):
        name = text
        # A known model may stand at the end of a path (`checkpoints/Qwen/Qwen3-8B`), but the model
        # in an existing folder counts more.
        is_folder_of_model = named_file.is_there(Path(text) / "config.json")
        if not is_folder_of_model:
            last_part = text.rstrip("/").rpartition("/")[2]
            name = next(filter(is_known, (text, last_part)), text)
        # The key `model` may name a kind of network instead (`model: lstm`).
        is_hub_id = re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", text)
        names_model = is_folder_of_model or is_hub_id or is_known(name)
        if setting.path[-1] == "model" and not names_model:
            continue
        reader.note(setting, f"the model {name}")
        # Refuse a file that is no config.json here, where its line in the training config is known.
        file = Path(name)
        is_file = named_file.is_there(file) and not named_file.is_folder(file)
        if is_file and file.name != "config.json":
            raise reader.refused(
                setting,
                "this file is not a model's config.json",
                hint="give a model's name, a config.json or its folder",
            )
        return {"model": name}
    return {}


TRAINERS_THAT_NAME_LORA = ("trl", "axolotl")
"""Trainers that use LoRA only if `use_peft` or `adapter` asks for it, even if the config sets a
rank (TRL, ModelConfig; axolotl's examples have an empty `adapter:` and `lora_r: 8`)."""
FULL = ("full", "none", "false", "no")
"""Words that mean that no adapters are trained."""


def adapters(reader: Reader, fields: Fields) -> Fields:
    """The rank of the LoRA adapters that the config trains, and for QLoRA the format of their base;
    empty if it trains none."""
    # Other kinds of adapters are left unread, so that the answer names their key as not understood.
    known = (*FULL, "lora", "qlora", "true", "yes")
    method = reader.word("adapter", lambda _, text: text.lower() if text.lower() in known else None)
    # Read the rank in any case, because plan knows what it means even if no adapters are trained.
    rank = reader.number("rank", LARGEST["lora"])
    if method in FULL or (method is None and fields["trainer"] in TRAINERS_THAT_NAME_LORA):
        return {}
    if method and rank is None:
        # The defaults of TRL (ModelConfig) and of PEFT (LoraConfig), which other trainers keep.
        rank = 16 if fields["trainer"] == "trl" else 8
        reader.assumed.append(f"the config sets no LoRA rank: {rank}")
    if rank is None:
        return {}
    return {"lora": rank, "quantize": "nf4"} if method == "qlora" else {"lora": rank}


def quantised(reader: Reader, fields: Fields) -> Fields:
    """The format of a quantised, frozen base model, on which adapters are trained; None if the base
    is not quantised. The part `adapters` has set the format for `adapter: qlora`."""
    storage = fields.get("quantize")
    if reader.switch("four-bit"):
        storage = "nf4"
    if reader.switch("eight-bit"):
        storage = "int8"
    storage = reader.word("quantize", by_words("quantize")) or storage
    quantises_scales = reader.switch("double-quantize")
    # These two trainers quantise the scales by default.
    if quantises_scales is None:
        quantises_scales = fields["trainer"] in ("axolotl", "llama-factory")
    if storage == "nf4" and quantises_scales:
        storage = "nf4-dq"
    if storage and fields.get("lora") is None:
        reader.assumed.append(f"weights in {storage} cannot be trained directly: LoRA of rank 16")
        return {"quantize": storage, "lora": 16}
    return {"quantize": storage}


LENGTHS = {"trl": 1024, "llama-factory": 2048}
"""Trainer -> its default sequence length in tokens, from its documentation."""
FILL_BUDGETS = {"trinity": None, "verl": 16_384}
"""Trainer that can fill each micro-batch up to a token budget -> its default budget (verl 0.9,
actor.yaml); None means that of a job (`tokens_per_gpu`)."""
PROMPT_TOKENS, ANSWER_TOKENS = 512, 256
"""The default lengths in tokens of a prompt and of its answer (TRL, GRPOConfig)."""


def length(reader: Reader, fields: Fields) -> Fields:
    """The tokens of the longest sequence; None if the config does not show it and plan knows no
    default of its trainer."""
    trainer, most = fields["trainer"], LARGEST["context"]
    sequence, total = reader.number("length", most), reader.number("total-length", most)
    prompt, response = reader.number("prompt", most), reader.number("response", most)
    # Trinity-RFT and verl set one length for prompt and answer together, or one for each of them.
    if trainer in FILL_BUDGETS:
        tokens = total or sequence
        adds_answer = not total and bool(prompt or response)
    else:
        tokens = sequence or total
        # Trainers such as TRL that generate answers apply their sequence length to the prompt.
        prompt = sequence or prompt
        adds_answer = method_of(reader) in GENERATING
    if adds_answer:
        prompt, response = prompt or PROMPT_TOKENS, response or ANSWER_TOKENS
        reader.assumed.append(
            f"the longest sequence is a prompt of {prompt:,} tokens and an answer of {response:,}"
        )
        return {"context": prompt + response}
    default = LENGTHS.get(trainer or "")
    if tokens is None and default:
        reader.assumed.append(f"the config sets no length: {trainer}'s default, {default:,} tokens")
    return {"context": tokens or default}


def batch(reader: Reader, fields: Fields) -> Fields:
    """The batch: sequences per GPU or for all GPUs together, or the token budget of RL trainers."""
    trainer = fields["trainer"]
    if trainer in FILL_BUDGETS:
        is_dynamic = reader.switch("dynamic")
        tokens = reader.number("tokens", LARGEST["tokens"])
        # By default Trinity-RFT fills a token budget and verl does not.
        if is_dynamic or (is_dynamic is None and trainer == "trinity"):
            tokens = tokens or FILL_BUDGETS[trainer]
            return {"tokens": tokens, "log_prob_tokens": log_prob_tokens(reader)}
    # If the batch is a number of sequences, the token budget has no effect.
    per_gpu = reader.number("batch", LARGEST["batch"])
    # An RL step may make several updates, so the total would not give the accumulation of one.
    if trainer in FILL_BUDGETS and per_gpu is not None:
        return {"per_gpu": per_gpu}
    total = reader.number("total", LARGEST["batch"])
    if per_gpu is None and total is None and trainer not in FILL_BUDGETS:
        per_gpu = int(trainer_table().trainers.get(trainer or "", {}).get("usual_batch", 1))
        default = f"{trainer}'s default, {per_gpu}," if per_gpu > 1 else "plan assumes 1"
        reader.assumed.append(f"the config sets no batch size: {default} on each GPU")
    return {"per_gpu": per_gpu, "total": total}


def log_prob_tokens(reader: Reader) -> int | None:
    """The smallest token budget for log-probabilities in the whole config, whatever map it is in;
    None if there is none.

    The policy, the reference and the rollout each have one, and the trainer refuses to start if one
    of them is too small for the longest sequence (`refuse_contradictions`).
    """
    numbers = []
    for setting, text in reader.with_key("log_prob_max_token_len_per_gpu"):
        if number := reader.number_in(setting, text, LARGEST["tokens"]):
            numbers.append(number)
            reader.note(setting, f"tokens: {text}")
    return min(numbers, default=None)


def checkpointing(reader: Reader, fields: Fields) -> Fields:
    """The checkpointing settings: whether activations are recomputed, in which layers, and whether
    they are moved to the host."""
    text = (reader.word("checkpoints") or "").lower()
    is_off = reader.switch("no-checkpoints")
    # `use_gradient_checkpointing: unsloth` moves the checkpoints to the host.
    offloads = reader.switch("checkpoint-offload") or text == "unsloth"
    checkpoints: Fields = {"offload_checkpoints": True if offloads else None}
    if is_off is None and not text:
        return checkpoints
    is_on = not is_off
    # A switch that disables checkpointing, such as LLaMA-Factory's, counts more than a word.
    if is_off is None:
        is_on = text not in ("none", "no", "false", "off", "n")
    return {**checkpoints, "checkpointing": is_on, "selective": is_on and text == "selective"}


def optimizer(reader: Reader, fields: Fields) -> Fields:
    """The optimizer's name, how it steps (for example fused, or within the backward pass), and
    whether its states are on the host. Other kinds of offload are left to plan's choice."""
    # Read the name first, because the answer shows the first meaning recorded for a setting.
    name = reader.word("optimizer", by_words("optimizer"))
    step = reader.word("optimizer", by_words("step"))
    host = (reader.word("optimizer-offload") or "").lower() in ("cpu", "nvme", *TRUE)
    return {"optimizer": name, "step": step, "offload_optimizer": True if host else None}


IN_16_BITS = ("axolotl", "unsloth", "torchtune", "litgpt", "trinity", "verl")
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
    6. Autocast (`bf16: true`): weights are in 32 bits, or with adapters the base is in 16 bits,
       except with TRL, which loads it in 32 bits.
    """
    weights = meaning("dtype", reader.word("dtype") or "")
    precision_pair = meaning("precision", reader.word("precision") or "")
    is_pure_16_bit = reader.switch("pure-16-bit")
    is_mixed, bf16 = reader.switch("amp"), reader.switch("bf16")
    amp = "fp16" if reader.switch("fp16") else None
    # A switch that names no type (`amp: true`) tells less than the type of the weights.
    if bf16 or (is_mixed and not weights):
        amp = "bf16"
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
        # Only for a known trainer is it certain that weights are in 32 bits without autocast.
        is_32_bit = bf16 is False and fields["trainer"] is not None
        return {"dtype": "fp32", "amp": "none"} if is_32_bit else {}
    if fields.get("lora") is not None:
        # The frozen base is loaded in the type used for computing, but TRL's default type holds.
        return {"amp": amp} if fields["trainer"] == "trl" else {"dtype": amp}
    reader.assumed.append(f"weights in 32 bits with {amp} autocast, because of {amp}: true")
    return {"dtype": "fp32", "amp": amp}


def kernels(reader: Reader, fields: Fields) -> Fields:
    """The kernels that the config selects for attention, for the loss and inside the layers."""
    plugins = ""
    for setting, text in reader.with_key("plugins"):
        reader.note(setting, f"a plugin: {text}")
        plugins += f" {text.lower()}"
    has_liger = bool(reader.switch("kernels"))
    loss = reader.word("loss-kernel", by_words("loss", "fused"))
    # Liger's kernels include a fused loss, but axolotl's plugin does not switch it on.
    if loss is None and (has_liger or "cut_cross_entropy" in plugins):
        loss = "fused"
    elif loss is None and fields["trainer"] == "axolotl":
        # plan's default for axolotl is cut cross entropy, which this config does not switch on.
        loss = "hf"
    return {
        "fused_kernels": True if has_liger or "liger" in plugins else None,
        "loss": loss,
        "attention": reader.word("attention", by_words("attention")),
    }


UNCOUNTED = {
    "tp": "tensor", "pp": "pipeline", "cp": "context", "ep": "expert", "replicas": "replicated",
}  # fmt: skip
"""Role of a number -> the kind of parallelism that plan does not count if it is above 1."""


def parallel(reader: Reader, fields: Fields) -> Fields:
    """The number of GPUs in the config over all nodes, and the parallel strategy: DeepSpeed's ZeRO
    stage if the config names one, otherwise that in the settings of FSDP. None for what the config
    does not set."""
    for role, kind in UNCOUNTED.items():
        degree = reader.number(role, LARGEST["gpus"]) or 1
        if degree > 1:
            problem = f"{degree}: plan does not count {kind} parallelism"
            setting, _ = next(reader.with_role(role))
            raise reader.refused(setting, problem, "set it to 1 to plan with FSDP or ZeRO alone")
    gpus = reader.number("gpus", LARGEST["gpus"])
    nodes = reader.number("nodes", LARGEST["gpus"])
    return {"gpus": gpus and gpus * (nodes or 1), "strategy": strategy(reader)}


def strategy(reader: Reader) -> str | None:
    """The parallel strategy that a config names, as a job has it; None if it names none."""

    def stage_of(_: Setting, text: str) -> int | None:
        # DeepSpeed's config may be named instead (`ds_z3_config.json`, `zero2.json`).
        hit = re.fullmatch(r"([0-3])", text) or re.search(r"z(?:ero)?[_-]?([0-3])", text.lower())
        return int(hit[1]) if hit else None

    stage = reader.word("zero", stage_of)
    if stage is not None:
        if not any(text.isdigit() for _, text in reader.with_role("zero")):
            reader.assumed.append(f"ZeRO stage {stage}, judging by the name of its file")
        return f"zero{stage}" if stage else "ddp"
    words: list[str] = []
    for role in ("fsdp", "strategy"):
        for setting, text in reader.with_role(role):
            reader.note(setting, f"{role}: {text}")
            words += text.lower().replace(",", " ").split()
    strategies = [str(name) for word in words if (name := meaning("strategy", word))]
    # `fsdp` means FSDP2 here, which `fsdp_version: 2` also names; `fsdp1` is the older one.
    if strategies and ("2" in words or "fsdp2" in words):
        return "fsdp"
    return strategies[0] if strategies else None


def rope_scaling(reader: Reader) -> RopeScaling | None:
    """The YaRN scaling that the config sets; None if it sets none or another kind."""
    is_number = re.compile(r"\d{1,9}(\.\d{1,9})?")
    factor = reader.word("rope-factor", lambda _, text: text if is_number.fullmatch(text) else None)
    original = reader.number("rope-original", LARGEST["context"])
    kind = reader.word("rope-kind") or ""
    # With another kind, the factor need not be the longest length divided by the original one.
    if factor is None or kind.lower() != "yarn":
        return None
    setting, _ = next(reader.with_role("rope-factor"))
    key = f"`{dotted(setting.path)}` (line {setting.line})"
    return RopeScaling(key, float(factor), original)


FREEZES = re.compile(r"freeze(?:_(\w+))?|(?:(\w+)_)?(?:is_)?frozen")
"""Switches that freeze a part: `freeze_gpt2: true`, `freeze: true`, `backbone_frozen: true`."""
LAYERS_NAME = re.compile(r"(?:num_|n_)?(?:frozen|freeze)_(?:first_)?(?:n_)?layers")
EMBEDDING_WORDS = frozenset(("embedding", "embeddings", "embed", "emb", "wte", "wordembeddings"))
WHOLE_MODEL = frozenset((
    "all", "backbone", "base", "bert", "decoder", "encoder", "language", "llm", "lm", "model",
    "network", "pretrained", "transformer", "trunk",
))  # fmt: skip
"""Words for the whole model; if it is frozen, only the parts added to it are trained."""


def frozen(reader: Reader, fields: Fields) -> Fields:
    """The part of the model that the config freezes, as a text that `frozen_share` reads; empty if
    it freezes nothing, or if adapters are trained, which freeze the whole model anyway."""
    frozen_part: str | None = None
    for setting in reader.config.settings:
        text = reader.text(setting) or ""
        part = part_frozen_by(name_of(setting.path), text, fields.get("model") or "")
        if part is None:
            continue
        reader.note(setting, f"not trained: {part}")
        # The first frozen part counts, except that a later part replaces the embeddings.
        if frozen_part in (None, EMBEDDINGS):
            frozen_part = part
    if frozen_part is None or fields.get("lora") is not None:
        return {}
    return {"freeze": frozen_part}


def part_frozen_by(key: str, text: str, model: str) -> str | None:
    """The part of the model that this key freezes if it is set to this text, as `frozen_share`
    reads it; None if the key is about something else, or switched off."""
    # A number of first layers.
    if LAYERS_NAME.fullmatch(key) and re.fullmatch(r"[1-9]\d{0,4}", text):
        return text
    switch = FREEZES.fullmatch(key)
    if switch is None or text not in TRUE:
        return None
    # The group that matched is the part's name.
    part = next(filter(None, switch.groups()), "")
    if words_of(part) & EMBEDDING_WORDS:
        return EMBEDDINGS
    # A key may contain the model's name: `freeze_gpt2` freezes gpt2-medium. Every name contains the
    # empty part of `freeze: true`.
    letters = re.sub(r"[^a-z0-9]", "", part.lower())
    is_model = letters in re.sub(r"[^a-z0-9]", "", model.lower())
    return ALL if is_model or words_of(part) & WHOLE_MODEL else None


LARGEST_TABLE = 10**9
"""More rows, or a wider row, than any embedding table has."""


def tables(reader: Reader, fields: Fields) -> Fields:
    """The embedding tables of users and items, trained with the model, all of one width."""
    row_counts: list[tuple[Setting, int]] = []
    for role in ("users", "items"):
        for setting, text in reader.with_role(role):
            rows = reader.number_in(setting, text, LARGEST_TABLE)
            if rows is not None:
                row_counts.append((setting, rows))
    # Without tables, a width belongs to something else, which plan does not understand.
    width = reader.number("embedding-dim", LARGEST_TABLE) if row_counts else None
    if width is None:
        return {}
    for setting, rows in row_counts:
        reader.note(setting, f"embedding table: {rows:,} x {width:,}")
    return {"tables": sum(rows for _, rows in row_counts) * width}


PARTS: tuple[Callable[[Reader, Fields], Fields], ...] = (
    model, adapters, frozen, tables, quantised, length, batch, checkpointing,
    optimizer, precision, kernels, parallel, reinforcement,
)  # fmt: skip
"""The functions that read a part of the config, in order: each gets the fields read before it."""
