"""A config as a question of `plan`: each part of a workload from the keys that say it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpusetup import named_file
from gpusetup.configs import keys, values
from gpusetup.configs.config import Config
from gpusetup.configs.settings import TRUE
from gpusetup.model.documents import ConfigRead
from gpusetup.model.frozen import Frozen, replace
from gpusetup.plan.answer.question import MOST, Question
from gpusetup.plan.config import how
from gpusetup.plan.config.family import LENGTHS, trainer_of
from gpusetup.plan.config.reading import Reader
from gpusetup.plan.model.named import is_known


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


Part = dict[str, Any]


def question_of(
    config: Config, trainer: str | None = None, variables: Mapping[str, str] | None = None
) -> FromConfig:
    """What a config says; `BadInput` with the place of what cannot be meant.

    `trainer`: whose config it is, where that is known. `variables`: those of the environment.
    """
    reader, trainer = Reader(config, variables or {}), trainer or trainer_of(config)
    said: Part = {"trainer": trainer}
    for part in PARTS:
        said |= part(reader, said)
    notes = tuple(said.pop("notes", ()))
    per_gpu, total, gpus = said.pop("per_gpu"), said.pop("total"), said.pop("gpus")
    if trainer is None:
        reader.assumed.append("no trainer is recognised: a plain loop, in 32 bits unless said")
    return FromConfig(
        question=Question(**said),
        per_gpu=per_gpu,
        total=total,
        gpus=gpus,
        notes=notes,
        read=ConfigRead(
            file=config.name,
            trainer=trainer,
            read=tuple(sorted(reader.used.values(), key=lambda one: one.line)),
            assumed=tuple(dict.fromkeys(reader.assumed)),
            not_understood=reader.not_understood(),
        ),
    )


def for_gpus(found: FromConfig, gpus: int) -> Question:
    """The question with its batch, which is of all GPUs together.

    >>> class Said: question, per_gpu, total = Question(trainer="hf"), 4, None
    >>> for_gpus(Said, 2).batch
    8
    >>> class Said: question, per_gpu, total = Question(trainer="megatron"), 4, 32
    >>> for_gpus(Said, 2).accumulate
    4
    """
    q = found.question
    inner = q.tensor_parallel * q.pipeline_parallel * (q.context_parallel or 1) * (q.sp or 1)
    groups = max(gpus // inner, 1)
    if found.per_gpu is not None:
        batch = found.per_gpu * groups
        times = max(found.total // batch, 1) if found.total and q.accumulate is None else None
        return replace(q, batch=batch, accumulate=times or q.accumulate)
    if found.total is not None:
        return replace(q, batch=max(found.total // (q.accumulate or 1), groups))
    return q


# --- what is trained ------------------------------------------------------------------------------


def _model(reader: Reader, said: Part) -> Part:
    found = reader.word(keys.NAMED)
    if found is None:
        return {}
    setting, text = found
    flavor = reader.word(keys.FLAVOR)
    if flavor:
        reader.note(flavor[0], "the model's size")
        text = f"{text}-{flavor[1]}"
    reader.note(setting, f"the model {text}")
    name = _known(reader, text)
    file = Path(name)
    if named_file.is_there(file) and not named_file.is_folder(file) and file.name != "config.json":
        hint = "a name, a config.json or its folder"
        raise reader.refused(setting, "a file, but no model's config.json", hint)
    part: Part = {"model": name}
    if "torchtune.models" in text:
        part["component"] = text.rpartition(".")[2]
    return part


PREFIX = re.compile(r"^(?:qlora|lora|dora)_")


def _known(reader: Reader, text: str) -> str:
    """A name that is in the table where the text holds one: a path's end, a component's."""
    last = PREFIX.sub("", text.rpartition(".")[2]) if "torchtune." in text else text
    last = re.sub(r"^llama3-(?=\d+[bB]$)", "llama-3.1-", last)
    if named_file.is_there(Path(text) / "config.json"):
        return text
    dotted = re.sub(r"(?<=\d)_(?=\d)", ".", last, count=1)
    for name in (last, dotted, text.rstrip("/").rpartition("/")[2]):
        if is_known(name):
            if name not in (text, last, dotted):
                reader.assumed.append(f"{text} is taken for the {name} that is known by name")
            return name
    return last


TRAINS = {"true": "adapters", "yes": "adapters", "freeze": "some layers alone"}
"""What a config's word for its method means, where it does not say so itself."""


def _adapters(reader: Reader, said: Part) -> Part:
    """LoRA where the config says it, of which rank and beside what."""
    component = said.pop("component", "")
    word, rank = reader.word(keys.ADAPTER), None
    method = word[1].lower() if word else ""
    if word:
        reader.note(word[0], f"trains {TRAINS.get(method, method)}")
    if method == "freeze":
        return _last_layers(reader)
    off = method in ("full", "false", "none", "no")
    usual = said["trainer"] == "trl" and not word
    if not off and not usual:
        rank = reader.number(keys.RANK, MOST["lora"])
    on = method in ("lora", "qlora", "true", "yes") or PREFIX.match(component)
    if on and rank is None and not off:
        rank = 16 if said["trainer"] == "trl" else 8
        reader.assumed.append(f"no rank is named: {rank}")
    if rank is None:
        return {}
    part: Part = {"lora": rank, "dora": reader.switch(keys.DORA)}
    names = reader.names(keys.TARGETS) | _litgpt_targets(reader)
    if names:
        mlp = frozenset(("mlp",)) if reader.switch(keys.BESIDE_MLP) else frozenset()
        part["lora_targets"] = values.targets(names | mlp)
    if reader.names(keys.TRAINED_TOO) & {"embed_tokens", "lm_head", "wte", "embeddings"}:
        part["trained_embeddings"] = True
    quantised = method == "qlora" or component.startswith("qlora")
    return part | ({"quantize": "nf4"} if quantised else {})


FREEZE_TRAINS = 2
"""`freeze_trainable_layers` where it is not said (LLaMA-Factory 0.9.5); below 0: the first ones."""


def _last_layers(reader: Reader) -> Part:
    """LLaMA-Factory's `finetuning_type: freeze`: the last layers alone are trained."""
    said = reader.word(keys.TRAINED_LAYERS)
    if said is not None and said[1].startswith("-"):
        reader.note(said[0], "trains the first layers")
        return {"notes": ["the first layers alone are trained: all are counted as if they were"]}
    layers = reader.number(keys.TRAINED_LAYERS, MOST["trained_layers"])
    if layers is None:
        reader.assumed.append(f"no number of trained layers is named: {FREEZE_TRAINS}")
    return {"trained_layers": layers or FREEZE_TRAINS}


def _litgpt_targets(reader: Reader) -> frozenset[str]:
    """litgpt has a switch for each: `lora_query: true`."""
    found = set()
    for path, one in reader.by_path.items():
        name = str(path[-1]) if path else ""
        layer = values.LITGPT_LAYERS.get(name)
        if layer:
            on = reader.text(one) in TRUE
            reader.note(one, f"adapters beside {layer}" if on else f"none beside {layer}")
            found |= {layer} if on else set()
    return frozenset(found)


def _quantised(reader: Reader, said: Part) -> Part:
    four, eight = reader.switch(keys.FOUR_BIT), reader.switch(keys.EIGHT_BIT)
    word = reader.word(keys.QUANTIZE)
    kind = "nf4" if four else "int8" if eight else said.get("quantize")
    if word and (known := values.QUANTIZED.get(word[1])):
        reader.note(word[0], f"the base in {known}")
        kind = known
    usual = said["trainer"] in ("axolotl", "llama-factory")
    double = reader.switch(keys.DOUBLE)
    if kind == "nf4" and (usual if double is None else double):
        kind = "nf4-dq"
    if kind and said.get("lora") is None:
        reader.assumed.append(f"weights in {kind} are not trained themselves: LoRA of rank 16")
        return {"quantize": kind, "lora": 16}
    return {"quantize": kind} if kind else {}


def _length(reader: Reader, said: Part) -> Part:
    most = MOST["context"]
    if said["trainer"] == "trinity":
        length = reader.number(keys.TOTAL_LENGTH, most)
        prompt, response = (reader.number(role, most) for role in (keys.PROMPT, keys.RESPONSE))
        if length is None and prompt and response:
            length = prompt + response
            reader.assumed.append(f"the longest sequence is prompt and response: {length:,}")
        return {"context": length} if length else {}
    length = reader.number(keys.LENGTH, most) or reader.number(keys.TOTAL_LENGTH, most)
    usual = LENGTHS.get(said["trainer"] or "")
    if length is None and usual:
        reader.assumed.append(f"no length is named: {said['trainer']}'s own {usual:,} tokens")
        length = usual
    return {"context": length} if length else {}


def _positions(reader: Reader, said: Part) -> Part:
    """YaRN as the config has it: its factor, and the length that the factor multiplies."""
    found = reader.word(keys.YARN)
    if found is None or not re.fullmatch(r"\d{1,6}(\.\d*)?", found[1]):
        return {}
    reader.note(found[0], f"YaRN with factor {found[1]}")
    return {"yarn": (float(found[1]), reader.number(keys.YARN_FROM, MOST["context"]))}


def _batch(reader: Reader, said: Part) -> Part:
    steps = reader.number(keys.ACCUMULATION, MOST["accumulate"])
    part: Part = {"accumulate": steps, "per_gpu": None, "total": None}
    if said["trainer"] == "trinity":
        for setting, _ in reader.all(keys.ROLLOUT):
            reader.note(setting, "the algorithm's batch: takes no memory of its own")
        if reader.switch(keys.DYNAMIC) is not False:
            return part | {"tokens": reader.number(keys.TOKENS, MOST["tokens"])}
    part["per_gpu"] = reader.number(keys.BATCH, MOST["batch"])
    if part["per_gpu"] is None or said["trainer"] != "trinity":
        part["total"] = reader.number(keys.TOTAL, MOST["batch"])
    for setting, _ in reader.all(keys.TOTAL):
        reader.note(setting, "the batch of all GPUs, accumulated")
    if part["per_gpu"] is None and part["total"] is None and said["trainer"] != "trinity":
        reader.assumed.append("no batch is named: 1 on each GPU")
        part["per_gpu"] = 1
    return part


EVAL_BATCH = 8
"""transformers' `per_device_eval_batch_size` where it is not said (5.23.0)."""


def _evaluation(reader: Reader, said: Part) -> Part:
    """The sequences of a GPU when transformers' Trainer evaluates between its steps."""
    found = reader.word(keys.EVALUATES)
    batch = reader.number(keys.EVAL_BATCH, MOST["eval_batch"])
    if found is None or found[1].lower() in ("no", "none", "false"):
        return {}
    reader.note(found[0], f"evaluates by {found[1]}")
    if batch is None:
        reader.assumed.append(f"no batch of the evaluation is named: {EVAL_BATCH} on each GPU")
    return {"eval_batch": batch or EVAL_BATCH}


PARTS: tuple[Callable[[Reader, Part], Part], ...] = (
    _model,
    _adapters,
    _quantised,
    _length,
    _positions,
    _batch,
    _evaluation,
    how.checkpointing,
    how.checkpoint_offload,
    how.optimizer,
    how.in_backward,
    how.precision,
    how.kernels,
    how.attention,
    how.compiled,
    how.parallel,
    how.strategy,
    how.offload,
    how.stage,
)
"""In order: what a later part needs of an earlier one stands before it."""
