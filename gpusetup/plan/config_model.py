"""Reads from a training config what is trained: the model, its adapters, frozen parts and embedding
tables."""

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
    """The field `model`, from the first setting that names a model or its folder; empty if there is
    none. `fields` is unused, but all functions that read a part of the config have the same
    parameters."""
    for setting, text in reader.all("named-model"):
        if names_model(setting, text):
            return model_of_setting(reader, setting, text)
    return {}


def model_of_setting(reader: Reader, setting: Setting, text: str) -> Fields:
    """The model that a setting names; `BadInput` for a file that is not a config.json."""
    # torchtitan gives the size in a separate key: name `llama3`, flavor `8B`.
    flavor = reader.word("flavor")
    if flavor:
        text = f"{text}-{flavor}"
    reader.note(setting, f"the model {text}")
    name = known_name(text)
    file = Path(name)
    is_file = named_file.is_there(file) and not named_file.is_folder(file)
    if is_file and file.name != "config.json":
        raise reader.refused(
            setting,
            "this file is not the config.json of a model",
            hint="a name, a config.json or its folder",
        )
    # torchtune's QLoRA builders quantise the base model.
    return {"model": name, "quantize": "nf4"} if ".qlora_" in text else {"model": name}


def names_model(setting: Setting, text: str) -> bool:
    """Whether a setting names a model; the key `model` may name a kind of network instead (`model:
    lstm`)."""
    if setting.path[-1] != "model":
        return True
    is_hub_id = re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", text)
    if is_hub_id:
        return True
    return is_known(known_name(text))


def known_name(text: str) -> str:
    """The known model name that a text contains, for example at the end of a path; otherwise the
    text itself."""
    if named_file.is_there(Path(text) / "config.json"):
        return text
    name = text
    if "torchtune." in text:
        name = _name_of_component(text.rpartition(".")[2])
    # In torchtitan, `llama3` means Llama 3.1.
    name = re.sub(r"^llama3-(?=\d+[bB]$)", "llama-3.1-", name)
    if is_known(name):
        return name
    # A local path often ends in the model's name.
    last_part = name.rstrip("/").rpartition("/")[2]
    return last_part if is_known(last_part) else name


def _name_of_component(component: str) -> str:
    """The model that a torchtune builder function creates; its name has `_` in place of `.`.

    >>> [_name_of_component(name) for name in ("lora_llama3_1_8b", "llama3_8b", "qwen3_0_6b")]
    ['llama3.1_8b', 'llama3_8b', 'qwen3_0.6b']
    """
    name = re.sub(r"^(?:qlora|lora|dora)_", "", component)
    # The first `_` may be the point of a version (`llama3_1_8b`) or of a size (`qwen3_0_6b`), so
    # try each spelling in the table of models.
    with_version = re.sub(r"(?<=\d)_(?=\d)", ".", name, count=1)
    with_size = re.sub(r"_(\d+)_(\d+b)", r"_\1.\2", name)
    with_both = re.sub(r"(\d)_(\d)", r"\1.\2", name)
    for spelling in (with_version, with_size, with_both):
        if is_known(spelling):
            return spelling
    return name


TRAINERS_THAT_NAME_LORA = ("trl", "axolotl")
"""Trainers that use LoRA only if `use_peft` or `adapter` asks for it, even if the config sets a
rank (TRL, ModelConfig; axolotl's examples have an empty `adapter:` and `lora_r: 8`)."""


def adapters(reader: Reader, fields: Fields) -> Fields:
    """The adapters that the config trains: LoRA with its rank, or the last layers under
    LLaMA-Factory's `freeze`."""
    method = (reader.word("adapter") or "").lower()
    if method == "freeze":
        # With `freeze`, LLaMA-Factory trains only the last layers, two by default.
        trained_layers = reader.number("trained-layers", 10**4) or 2
        return {"freeze": f"-{trained_layers}"}
    rank = rank_of(reader, fields, method)
    if rank is None:
        return {}
    lora: Fields = {"lora": rank}
    if method == "qlora":
        lora["quantize"] = "nf4"
    targets = reader.names("targets")
    if targets and not targets & EVERY_LINEAR_LAYER:
        reader.assumed.append(
            "adapters are counted on all linear layers; fewer, as the config names, need less"
        )
    if not EMBEDDINGS.isdisjoint(reader.names("trained-too")):
        lora["trained_embeddings"] = True
    return lora


EVERY_LINEAR_LAYER = frozenset(("all", "all-linear", "down_proj", "fc2", "w2"))
"""LoRA targets that mean all linear layers: `all`, `all-linear`, and the names of the MLP's down
projection, which only occur in lists of all linear layers."""
EMBEDDINGS = frozenset(("embed_tokens", "lm_head", "wte", "embeddings"))
"""Modules with a row for each token of the vocabulary, which cost much memory if they are trained
together with the adapters."""


def rank_of(reader: Reader, fields: Fields, method: str) -> int | None:
    """The rank of the LoRA adapters to train; None if the config trains none."""
    is_lora = method in ("lora", "qlora", "true", "yes")
    is_other_method = method != "" and not is_lora
    needs_word = fields["trainer"] in TRAINERS_THAT_NAME_LORA and not is_lora
    if is_other_method or needs_word:
        return None
    rank: int | None = reader.number("rank", LARGEST["lora"])
    if is_lora and rank is None:
        rank = 16 if fields["trainer"] == "trl" else 8
        reader.assumed.append(f"no rank is named: {rank}")
    return rank


def quantised(reader: Reader, fields: Fields) -> Fields:
    """The format of a quantised, frozen base model, on which adapters are trained."""
    storage = fields.get("quantize")
    if reader.switch("four-bit"):
        storage = "nf4"
    if reader.switch("eight-bit"):
        storage = "int8"
    storage = reader.word("quantize", by_words("quantize")) or storage
    quantises_scales = reader.switch("double-quantize")
    if quantises_scales is None:
        quantises_scales = fields["trainer"] in ("axolotl", "llama-factory")
    if storage == "nf4" and quantises_scales:
        storage = "nf4-dq"
    if storage and fields.get("lora") is None:
        reader.assumed.append(f"weights in {storage} are not trained themselves: LoRA of rank 16")
        return {"quantize": storage, "lora": 16}
    return {"quantize": storage}


def frozen(reader: Reader, fields: Fields) -> Fields:
    """The part of the model that the config freezes; empty with adapters, because they freeze the
    whole model anyway."""
    part = frozen_in(reader, fields.get("model"))
    if part is None:
        return {}
    has_adapters = fields.get("lora") is not None
    if has_adapters:
        return {}
    return {"freeze": part}


def tables(reader: Reader, fields: Fields) -> Fields:
    """The embedding tables (for users, items and the like) that are trained in addition to the
    model."""
    return {"tables": tables_in(reader)}
