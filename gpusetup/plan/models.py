"""Models as a person names them: a known name, a `config.json`, or a number of parameters."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpusetup import named_file
from gpusetup.errors import BadInput, UsageError
from gpusetup.model.codec import from_json, from_plain
from gpusetup.model.frozen import Frozen, replace
from gpusetup.plan.config_json import shape_of
from gpusetup.plan.model_names import (
    SizeInName,
    base_in_name,
    parts_beyond,
    short_name,
    size_in_name,
)
from gpusetup.plan.shape import Shape

KNOWN = Path(__file__).resolve().parents[1] / "data" / "plan" / "models.json"
PUBLISHED_SIZES = (
    (14e6, 6, 128), (70e6, 6, 512), (124e6, 12, 768), (355e6, 24, 1024), (774e6, 36, 1280),
    (1.5e9, 48, 1600), (3e9, 32, 2560), (7e9, 32, 4096), (13e9, 40, 5120), (34e9, 48, 8192),
    (70e9, 80, 8192), (175e9, 96, 12288), (405e9, 126, 16384),
)  # fmt: skip
"""Parameters -> layers and hidden width as published models have them (Pythia, GPT-2, Llama)."""
LARGEST_CONFIG_BYTES = 1 << 20
"""The largest `config.json`; a device that never ends has no size and is no file."""
UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}


class ModelTable(Frozen):
    """The models that are known by name: hub id -> fields of its shape.

    `checked` says how sure a row is: its count is the `published` one to the last, `counted` on the
    class, `read` in a public list, or an `approximate` picture. `also`: what people call it.
    """

    as_of: str
    models: Mapping[str, Mapping[str, Any]]


@lru_cache(maxsize=1)
def model_table() -> ModelTable:
    return from_json(KNOWN.read_bytes(), ModelTable, what=KNOWN.name)


@lru_cache(maxsize=1)
def hub_ids() -> Mapping[str, str]:
    """Key, or hub id in small letters -> hub id."""
    ids: dict[str, str] = {}
    for name, row in model_table().models.items():
        ids |= dict.fromkeys((*row.get("also", ()), name.lower()), name)
    for name in model_table().models:
        ids.setdefault(short_name(name), name)
        ids.setdefault(short_name(re.sub(r"(?<=\d)_(?=\d)", ".", name)), name)
    for name, row in model_table().models.items():
        for other_name in row.get("also", ()):
            ids.setdefault(short_name(other_name), name)
    return ids


def hub_id(text: str) -> str:
    """The id at a hub of a model that is known by name; the name itself of another.

    >>> hub_id("Qwen3-8B"), hub_id("mine")
    ('Qwen/Qwen3-8B', 'mine')
    """
    return hub_ids().get(text.strip().lower()) or hub_ids().get(short_name(text)) or text


def is_known(text: str) -> bool:
    return hub_id(text) in model_table().models


def is_at_hand(text: str) -> bool:
    """Whether a model is known by its name, or is a file or folder here."""
    path = Path(text)
    is_file = text.endswith(".json") or named_file.is_there(path) or named_file.is_folder(path)
    return is_file or is_known(text)


WITHOUT_ATTENTION = re.compile(
    r"(?<![a-z])(?:resnet|resnext|wide-?resnet|convnext|efficientnet|mobilenet|densenet|regnet|vgg"
    r"|inception|unet|yolo|deeplab|pspnet|(?:mask|faster)-?_?rcnn|stylegan|rwkv|mamba|lstm)"
)
"""Names of networks that are convolutions, recurrent, or of state space."""
TRACE_HINT = "`gpusetup plan --code train:build --batch 32` traces a step of your model"


def model_named(text: str) -> Shape:
    """The shape of a model: a hub's id, a short name, a `config.json` or its folder.

    Raises UsageError with the nearest names, BadInput for a file that is no config.

    >>> model_named("meta-llama/Llama-3.1-8B-Instruct").parameters
    8030261248
    """
    if is_known(text):
        return known_shape(hub_id(text))
    if text and is_at_hand(text):
        return model_in(Path(text))
    if WITHOUT_ATTENTION.search(text.lower()):
        lacks = (
            "has no attention layers; by name or `config.json`, plan knows only models with "
            "attention"
        )
        raise UsageError(f"{text!r} {lacks}", hint=TRACE_HINT)
    raise UsageError(f"No model is called {text!r}", hint=unknown_hint(text))


def shape_or_relative(text: str) -> Shape:
    """The shape of a model; if only its name is known, that of its base or of a relative.

    A fine-tuned model has its base's shape (`Hermes-3-Llama-3.1-8B`). Another model at a hub whose
    name says a size gets the shape of a known relative, made as large; `assumed` says so, and no
    plan of such a shape is sure. Raises UsageError if the name says nothing.

    >>> shape_or_relative("NousResearch/Hermes-3-Llama-3.1-8B").layers
    32
    >>> shape_or_relative("some-lab/Thing-48B-A3B").assumed != ""
    True
    """
    if is_at_hand(text) or WITHOUT_ATTENTION.search(text.lower()):
        return model_named(text)
    base = base_in_name(text, hub_ids())
    if base is not None:
        return shape_of_fine_tuned(text, hub_ids()[base])
    size = size_in_name(text)
    if size is None or not HUB_ID.fullmatch(text):
        return model_named(text)  # the error with the nearest names
    return shape_of_relative(text, size)


def shape_of_fine_tuned(text: str, base: str) -> Shape:
    """The shape of a model whose name holds its base's."""
    shape = known_shape(base)
    more_parts = parts_beyond(text, base)
    assumed = ""
    if more_parts:
        assumed = f"as {shape.name} by its name, without what {', '.join(more_parts)} adds"
    name = text.rpartition("/")[2]
    return replace(shape, name=name, base=shape.name, assumed=assumed)


def shape_of_relative(text: str, size: SizeInName) -> Shape:
    """A known decoder of text that is near in family and size, with layers for the whole size."""
    is_mixture = size.active < size.parameters
    family = re.match(r"[a-z]+", short_name(text))
    relatives: list[tuple[float, str]] = []
    for name, row in model_table().models.items():
        has_experts = "experts" in row
        writes_text = "vocabulary" in row and "tokens" not in row and "tower" not in row
        if has_experts != is_mixture or not writes_text:
            continue
        distance = abs(math.log(row["parameters"] / size.parameters))
        # A relative by name is nearer than a stranger that is up to 2.7 times as large.
        if family is None or not short_name(name).startswith(family[0]):
            distance += 1
        if row["vocabulary"] < RECENT_VOCABULARY:
            distance += 2
        relatives.append((distance, name))
    shape = known_shape(min(relatives)[1])
    ratio = size.parameters / shape.parameters
    return replace(
        shape,
        name=text.rpartition("/")[2],
        parameters=size.parameters,
        active=size.active,
        layers=max(1, round(shape.layers * ratio)),
        assumed=f"like {shape.name}, by its name and size; `--fetch-config` reads its own",
    )


RECENT_VOCABULARY = 100_000
"""Models since 2024 have at least as many tokens; the logits are as wide."""
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def unknown_hint(text: str) -> str:
    """How to go on with a model whose name is not known, one way a line."""
    close = difflib.get_close_matches(short_name(text), hub_ids(), 3, 0.4)
    close_names = ", ".join(dict.fromkeys(hub_ids()[key].rpartition("/")[2] for key in close))
    lines = [f"similar known names: {close_names or 'none'}"]
    if HUB_ID.fullmatch(text):
        lines.append(
            f"its config.json from the hub: add `--fetch-config`, or run `hf download {text} "
            "config.json --local-dir .` and give `--model ./config.json`"
        )
    else:
        lines.append(
            "any model by its config.json: `--model path/to/config.json` (the file or its folder), "
            "or its id at the hub with `--fetch-config`"
        )
    size_word = re.search(r"(?<![\w.])(\d+(?:\.\d+)?[bm])(?![a-z0-9])", text.lower())
    size = size_word[1].upper() if size_word else "7B"
    lines.append(f"by its size alone, roughly: `--params {size}`")
    return "\n".join(lines)


@lru_cache(maxsize=256)
def known_shape(name: str) -> Shape:
    row = {"active": model_table().models[name]["parameters"], **model_table().models[name]}
    fields = {field: value for field, value in row.items() if field not in ("checked", "also")}
    return from_plain({"name": name.rpartition("/")[2], **fields}, Shape, what=name)


def model_in(path: Path) -> Shape:
    """The shape of the `config.json` at a path, or in the folder there."""
    file = path / "config.json" if named_file.is_folder(path) else path
    try:
        raw = named_file.read_text(file, LARGEST_CONFIG_BYTES)
    except BadInput as problem:
        hint = "give the model's `config.json` or its folder"
        raise BadInput(f"{problem.message}: no model's `config.json`", hint=hint) from problem
    shape = shape_of(from_json(raw, dict[str, Any], what=str(file)), source=str(file))
    folder = file.parent.resolve().name
    return replace(shape, name=folder) if shape.name == shape.kind and folder else shape


def parameter_count(text: str) -> int:
    """A number of parameters as people write it; UsageError for anything else or absurd.

    >>> [parameter_count(text) for text in ("124M", "7b", "1.5B", "7 billion")]
    [124000000, 7000000000, 1500000000, 7000000000]
    >>> parameter_count("7,5B"), parameter_count("124,439,808")
    (7500000000, 124439808)
    """
    plain = re.sub(r"(?<=\d)[,_ ](?=\d{3}(?!\d))", "", text.strip().lower()).replace(",", ".")
    hit = re.fullmatch(
        r"(\d{1,20}(?:\.\d+)?)\s*([kmbgt]?)(?:n|illions?|rillions?)?(?:\s*(?:params|parameters))?",
        plain,
    )
    value = round(float(hit[1]) * UNITS[hit[2]]) if hit else 0
    if not 1000 <= value <= 10**14:  # fewer: the unit was left out
        raise UsageError(f"{text!r} is no number of parameters", hint="write it as 124M or 7B")
    return value


GPT2_VOCABULARY = 50257
SMALLEST_LANGUAGE_MODEL = PUBLISHED_SIZES[0][0]
"""Below the smallest published language model a vocabulary would be most of the parameters, so a
small network is taken as one that writes no text."""


def model_of_size(parameters: int, *, has_tokens: bool) -> Shape:
    """A transformer of a size, shaped as published models of that size are.

    `has_tokens`: whether its samples are sequences; then it has the vocabulary of GPT-2's tokens,
    unless it is too small for a language model. Without a vocabulary there are no logits.
    """
    near, layers, hidden = min(PUBLISHED_SIZES, key=lambda row: abs(math.log(row[0] / parameters)))
    layers = max(1, round(layers * min(parameters / near, 1)))
    writes_text = has_tokens and parameters >= SMALLEST_LANGUAGE_MODEL
    vocabulary = GPT2_VOCABULARY if writes_text else 0
    block = max(parameters - vocabulary * hidden, parameters // 2) // layers
    return Shape(
        name=f"{parameters / 1e6:g}M" if parameters < 10**9 else f"{parameters / 1e9:g}B",
        parameters=parameters,
        active=parameters,
        largest_unit=max(block, min(vocabulary * hidden, parameters)),
        layers=layers,
        hidden=hidden,
        heads=max(1, hidden // 64),
        query=hidden,
        key_value=hidden,
        intermediate=4 * hidden,
        gated=False,
        rms_norm=False,
        vocabulary=vocabulary,
    )
