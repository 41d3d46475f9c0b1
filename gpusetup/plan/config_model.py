"""What a training config trains: the model, its adapters, what is frozen, tables beside it."""

from __future__ import annotations

import re
from pathlib import Path

from gpusetup import named_file
from gpusetup.configs.settings import Setting
from gpusetup.plan.config_reader import Fields, Reader, by_words
from gpusetup.plan.frozen_parts import frozen_in
from gpusetup.plan.models import is_known
from gpusetup.plan.question import LARGEST
from gpusetup.plan.tables import tables_in


def model(reader: Reader, fields: Fields) -> Fields:
    named = [pair for pair in reader.all("named-model") if names_model(*pair)]
    if not named:
        return {}
    setting, text = named[0]
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


def names_model(setting: Setting, text: str) -> bool:
    """Whether a setting names one model: under `model` may also stand a kind (`model: lstm`)."""
    is_hub_id = re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", text) is not None
    return setting.path[-1] != "model" or is_hub_id or is_known(known_name(text))


def known_name(text: str) -> str:
    """A name that is in the table if the text holds one: a path's end, a component's."""
    if named_file.is_there(Path(text) / "config.json"):
        return text
    name = text
    if "torchtune." in text:
        name = _name_of_component(text.rpartition(".")[2])
    name = re.sub(r"^llama3-(?=\d+[bB]$)", "llama-3.1-", name)
    last_part = name.rstrip("/").rpartition("/")[2]
    return last_part if is_known(last_part) and not is_known(name) else name


def _name_of_component(component: str) -> str:
    """The model that a builder of torchtune is for, which spells `.` as `_`.

    >>> [_name_of_component(name) for name in ("lora_llama3_1_8b", "llama3_8b", "qwen3_0_6b")]
    ['llama3.1_8b', 'llama3_8b', 'qwen3_0.6b']
    """
    name = re.sub(r"^(?:qlora|lora|dora)_", "", component)
    # A version (`llama3_1_8b`) and a size (`qwen3_0_6b`) are spelled alike: the table knows which.
    with_version = re.sub(r"(?<=\d)_(?=\d)", ".", name, count=1)
    with_size = re.sub(r"_(\d+)_(\d+b)", r"_\1.\2", name)
    with_both = re.sub(r"(\d)_(\d)", r"\1.\2", name)
    return next(filter(is_known, (with_version, with_size, with_both)), name)


TRAINERS_THAT_NAME_LORA = ("trl", "axolotl")
"""Trainers that train the whole model unless `use_peft` or `adapter` says LoRA, whatever rank their
config has (TRL, ModelConfig; axolotl's examples leave `adapter:` empty beside `lora_r: 8`)."""


def adapters(reader: Reader, fields: Fields) -> Fields:
    """LoRA if the config says it, of which rank and beside what."""
    method = (reader.word("adapter") or "").lower()
    if method == "freeze":  # LLaMA-Factory trains the last layers, two by default
        trained_layers = reader.number("trained-layers", 10**4) or 2
        return {"freeze": f"-{trained_layers}"}
    is_lora = method in ("lora", "qlora", "true", "yes")
    is_off = not is_lora and (method or fields["trainer"] in TRAINERS_THAT_NAME_LORA)
    rank = None if is_off else reader.number("rank", LARGEST["lora"])
    if is_lora and rank is None:
        rank = 16 if fields["trainer"] == "trl" else 8
        reader.assumed.append(f"no rank is named: {rank}")
    if rank is None:
        return {}
    lora: Fields = {"lora": rank, **({"quantize": "nf4"} if method == "qlora" else {})}
    reader.names("targets")  # all linear layers are counted
    if reader.names("trained-too") & {"embed_tokens", "lm_head", "wte", "embeddings"}:
        lora["trained_embeddings"] = True
    return lora


def quantised(reader: Reader, fields: Fields) -> Fields:
    kind = "nf4" if reader.switch("four-bit") else fields.get("quantize")
    kind = "int8" if reader.switch("eight-bit") else kind
    kind = reader.word("quantize", by_words("quantize")) or kind
    double = reader.switch("double-quantize")
    doubles_by_default = fields["trainer"] in ("axolotl", "llama-factory")
    if kind == "nf4" and (doubles_by_default if double is None else double):
        kind = "nf4-dq"
    if kind and fields.get("lora") is None:
        reader.assumed.append(f"weights in {kind} are not trained themselves: LoRA of rank 16")
        return {"quantize": kind, "lora": 16}
    return {"quantize": kind}


def frozen(reader: Reader, fields: Fields) -> Fields:
    """The part of the model that is not trained; beside adapters that is all of it anyway."""
    part = frozen_in(reader, fields.get("model"))
    return {"freeze": part} if part and fields.get("lora") is None else {}


def tables(reader: Reader, fields: Fields) -> Fields:
    """Embedding tables of users, items and the like."""
    return {"tables": tables_in(reader)}
