"""Models as a person names them: a known name, a `config.json`, or a number of parameters."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from gpusetup import named_file
from gpusetup.errors import BadInput, UsageError
from gpusetup.model.codec import from_json
from gpusetup.model.frozen import Frozen, replace
from gpusetup.plan.model.config_json import shape_of
from gpusetup.plan.model.shape import Sample, Shape

KNOWN = Path(__file__).resolve().parents[2] / "data" / "plan" / "models.json"

USUAL = (
    (14e6, 6, 128), (70e6, 6, 512), (124e6, 12, 768), (355e6, 24, 1024), (774e6, 36, 1280),
    (1.5e9, 48, 1600), (3e9, 32, 2560), (7e9, 32, 4096), (13e9, 40, 5120), (34e9, 48, 8192),
    (70e9, 80, 8192), (175e9, 96, 12288), (405e9, 126, 16384),
)  # fmt: skip
"""Parameters -> layers and hidden width as published models have them (Pythia, GPT-2, Llama)."""

MOST_BYTES = 1 << 20
"""The largest `config.json`; a device that never ends has no size and is no file."""
FEWEST = 1000
"""Fewer parameters are no model, but a number whose unit was left out."""
USUAL_BILLIONS = 100
"""Up to here people mean billions (8, 70), beyond it millions (124, 355)."""
UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}


def model_named(text: str) -> Shape:
    """The shape of a model: a hub's id, a short name, a `config.json` or its folder.

    Raises UsageError with the nearest names, BadInput for a file that is no config.

    >>> model_named("meta-llama/Llama-3.1-8B-Instruct").parameters
    8030261248
    """
    known = _known()
    found = known.get(text.strip().lower()) or known.get(_key(text))
    if found:
        return _shape(found)
    if WITHOUT_ATTENTION.search(text.lower()) and not named_file.is_there(Path(text)):
        what = "has no layers of attention, which is what is read by name and `config.json`"
        raise UsageError(f"{text!r} {what}", hint=TRACED)
    if text and _is_path(text):
        if re.fullmatch(r"[\w.-]+/[\w.-]+", text) and not named_file.is_there(text):
            raise UsageError(f"No model is called {text!r}", hint=_at_its_hub(text))
        return model_in(Path(text))
    raise UsageError(f"No model is called {text!r}", hint=_nearest(text))


def is_known(text: str) -> bool:
    """Whether a name is in the table.

    >>> is_known("qwen3-8b"), is_known("mine/own")
    (True, False)
    """
    return text.strip().lower() in _known() or _key(text) in _known()


def hub_id(short: str) -> str:
    """The id at a hub of a model that is known by name; the name itself of another.

    >>> hub_id("Qwen3-8B"), hub_id("mine")
    ('Qwen/Qwen3-8B', 'mine')
    """
    return _known().get(short.lower()) or _known().get(_key(short)) or short


def model_in(path: Path) -> Shape:
    """The shape of the `config.json` at a path, or in the folder there."""
    file = path / "config.json" if named_file.is_folder(path) else path
    try:
        raw = named_file.read_text(file, MOST_BYTES)
    except BadInput as problem:
        hint = "name the model's `config.json` or its folder"
        raise BadInput(f"{problem.message}: no model's `config.json`", hint=hint) from problem
    values = from_json(raw, dict[str, Any], what=str(file))
    shape = shape_of(values, what=str(file))
    if shape.name == shape.kind:
        return replace(shape, name=file.parent.resolve().name or shape.kind)
    return shape


def count(text: str) -> int:
    """A number of parameters as people write it; UsageError for anything else or absurd.

    >>> count("124M"), count("7b"), count("1.5B"), count("7 billion")
    (124000000, 7000000000, 1500000000, 7000000000)
    >>> count("7,5B"), count("124,439,808")
    (7500000000, 124439808)
    """
    plain = re.sub(r"(?<=\d)[,_ ](?=\d{3}(?!\d))", "", text.strip().lower())
    plain = re.sub(r"\s*(params|parameters)$", "", plain.replace(",", ".").replace("_", ""))
    hit = re.fullmatch(r"(\d{1,20}(?:\.\d+)?)\s*([kmbgt]?)(?:n|illions?|rillions?)?", plain)
    value = round(float(hit[1]) * UNITS[hit[2]]) if hit else 0
    if meant := _unit_left_out(text):
        raise UsageError(
            f"{text!r} is no number of parameters", hint=f"did you mean `--params {meant}`?"
        )
    if not 1 <= value <= 10**14:
        raise UsageError(
            f"{text!r} is no number of parameters", hint="write it as 124M or 7B (1 to 100T)"
        )
    return value


def _unit_left_out(text: str) -> str | None:
    """What a bare small number, or one of bytes, was probably meant to be.

    >>> _unit_left_out("8"), _unit_left_out("8 GB"), _unit_left_out("124"), _unit_left_out("4096")
    ('8B', '8B', '124M', None)
    """
    hit = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(gi?b)?", text.strip().lower())
    if hit is None or float(hit[1]) >= FEWEST or not float(hit[1]):
        return None
    return f"{hit[1]}{'B' if hit[2] or float(hit[1]) <= USUAL_BILLIONS else 'M'}"


def model_of_size(parameters: int, *, text: bool) -> Shape:
    """A transformer of a size, shaped as published models of that size are.

    `text` gives it the vocabulary of GPT-2's tokens; without it there are no logits.
    """
    near = min(USUAL, key=lambda row: abs(math.log(row[0] / parameters)))
    _, layers, hidden = near
    layers = max(1, round(layers * parameters / near[0])) if parameters < near[0] else layers
    vocabulary = 50257 if text else 0
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
        activation="gelu",
        rms_norm=False,
        vocabulary=vocabulary,
    )


def with_classes(shape: Shape, classes: int) -> Shape:
    """The model with so many numbers a sample in place of its logits: a classifier, a reward model.

    >>> reward = with_classes(model_named("llama-3.1-8b"), 1)
    >>> reward.parameters, reward.vocabulary, reward.classes
    (7504928768, 0, 1)
    """
    head = 0 if shape.tied else shape.vocabulary * shape.hidden
    total = shape.parameters - head + classes * shape.hidden
    return replace(
        shape,
        name=f"{shape.name} with {classes} classes",
        parameters=total,
        active=shape.active - head + classes * shape.hidden,
        rows=shape.vocabulary or shape.rows,
        vocabulary=0,
        classes=classes,
    )


ENCODERS = ("bert", "distilbert", "roberta", "xlm-roberta", "modernbert")
"""Families that are shaped with a classifier; their largest unit is the table of tokens."""


def with_masked_head(shape: Shape) -> Shape:
    """An encoder as it is pretrained: a dense layer, its norm and the table give logits.

    >>> with_masked_head(model_named("bert")).vocabulary
    30522
    """
    if shape.kind not in ENCODERS:
        raise UsageError(
            f"{shape.name} has no masked-language head",
            hint=f"`--mlm` goes with encoders: {', '.join(ENCODERS)}",
        )
    vocabulary, hidden = shape.largest_unit // shape.hidden, shape.hidden
    total = shape.parameters + hidden * (hidden + 3) + vocabulary
    return replace(
        shape,
        name=f"{shape.name} with its masked-language head",
        parameters=total,
        active=total,
        vocabulary=vocabulary,
        classes=0,
        tied=True,
    )


class Row(Frozen):
    """A model of the table: its config where the family is known, else its counted shape."""

    checked: Literal["published", "counted", "read", "approximate"]
    """How sure the row is: its count of parameters is the published one to the last, counted on
    the class of transformers, as a public source lists the sizes, or a rough picture only."""
    parameters: int | None = None
    """The published count, where the config gives it to the last."""
    config: Mapping[str, Any] | None = None
    shape: Mapping[str, Any] | None = None


class Table(Frozen):
    as_of: str
    models: Mapping[str, Row]


@lru_cache(maxsize=1)
def table() -> Table:
    """The models that are known by name: hub id -> row."""
    return from_json(KNOWN.read_bytes(), Table, what=KNOWN.name)


@lru_cache(maxsize=1)
def _known() -> dict[str, str]:
    """Key, or hub id in small letters -> hub id."""
    found: dict[str, str] = dict(NICKNAMES)
    for name in table().models:
        found[name.lower()] = name
        found.setdefault(_key(name), name)
        found.setdefault(_key(re.sub(r"(?<=\d)_(?=\d)", ".", name)), name)
    return found


@lru_cache(maxsize=256)
def _shape(name: str) -> Shape:
    row, short = table().models[name], name.rpartition("/")[2]
    if row.config is not None:
        shape = shape_of({**row.config, "name": short}, name)
        return replace(shape, name=short, note=shape.note if shape.tower else "")
    sizes = dict(row.shape or {})
    sample = {"sample": _sample(sizes["sample"])} if "sample" in sizes else {}
    return Shape(name=short, **sizes | sample)


def _sample(row: Mapping[str, Any]) -> Sample:
    """A row of the table as a record: its lists are tuples there."""
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
    return Sample(**fields)


NICKNAMES = {
    "sdxl": "stabilityai/stable-diffusion-xl-base-1.0",
    "flux": "black-forest-labs/FLUX.1-dev",
    "flux.1": "black-forest-labs/FLUX.1-dev",
    "wan2.1-1.3b": "Wan-AI/Wan2.1-T2V-1.3B-Diffusers",
    "wan2.1-14b": "Wan-AI/Wan2.1-T2V-14B-Diffusers",
    "mochi": "genmo/mochi-1-preview",
    "gpt-oss": "openai/gpt-oss-20b",
    "gptj": "EleutherAI/gpt-j-6b",
    "bert": "google-bert/bert-base-uncased",
    "bert-base": "google-bert/bert-base-uncased",
    "bert-large": "google-bert/bert-large-uncased",
    "distilbert": "distilbert/distilbert-base-uncased",
    "tinyllama": "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
    "tinyllama-1.1b": "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
    "vit-base": "google/vit-base-patch16-224",
    "vit-b-16": "google/vit-base-patch16-224",
    "vit-large": "google/vit-large-patch16-224",
    "vit-l-16": "google/vit-large-patch16-224",
    "vit-huge": "google/vit-huge-patch14-224-in21k",
    "vit-h-14": "google/vit-huge-patch14-224-in21k",
    "clip": "openai/clip-vit-base-patch32",
    "clip-vit-b-32": "openai/clip-vit-base-patch32",
    "clip-vit-large": "openai/clip-vit-large-patch14",
    "clip-vit-l-14": "openai/clip-vit-large-patch14",
    "stablelm-3b": "stabilityai/stablelm-3b-4e1t",
    "stablelm-2-1.6b": "stabilityai/stablelm-2-1_6b",
}
"""What people call a model whose id says it otherwise."""

WITHOUT_ATTENTION = re.compile(
    r"(?<![a-z])(?:resnet|resnext|wide-?resnet|convnext|efficientnet|mobilenet|densenet|regnet|vgg"
    r"|inception|unet|yolo|deeplab|pspnet|(?:mask|faster)-?_?rcnn|stylegan|rwkv|mamba|lstm)"
)
"""Names of networks that are convolutions, recurrent, or of state space."""
TRACED = (
    "`gpusetup plan --code train:build --batch 32` traces a step of it, whatever its layers are: "
    "`build` in `train.py` returns the model and a batch"
)

VARIANT = re.compile(
    r"-(?:hf|diffusers|instruct|chat|it|pt|base|sft|dpo|v\d+(?:\.\d+)?|2[3-6]\d\d|(?:0[1-9]|1[0-2])[0-3]\d|4k|128k)(?=-|$)"
)
"""Parts of a name that change nothing of the shape: the tuning, the revision, the format."""


def _key(text: str) -> str:
    """A name without owner, variant and dashes.

    >>> _key("Qwen/Qwen3-8B") == _key("qwen3_8b")
    True
    >>> _key("meta-llama/Meta-Llama-3.1-8B-Instruct") == _key("llama-3.1-8b")
    True
    """
    bare = text.strip().lower().rpartition("/")[2].removeprefix("meta-").replace("_", "-")
    bare = re.sub(r"-?bnb-[48]bit$|-gguf$|-awq$|-gptq$|-int[48]$", "", bare)
    return re.sub(r"[- ]", "", VARIANT.sub("", bare.replace(" ", "-")))


def _is_path(text: str) -> bool:
    return text.endswith(".json") or "/" in text or "\\" in text or named_file.is_folder(text)


def _at_its_hub(text: str) -> str:
    """What to do for a model that is named as its owner publishes it."""
    size = re.search(r"(?<![\w.])(\d+(?:\.\d+)?[bm])(?![a-z0-9])", text.lower())
    by_size = f"`--params {size[1].upper()}` takes the usual shape of its size; " if size else ""
    fetch = f"`hf download {text} config.json --local-dir .` fetches its config.json, name that"
    return f"{by_size}{fetch} file; {_nearest(text)}"


def _nearest(text: str) -> str:
    import difflib

    known = _known()
    close = difflib.get_close_matches(_key(text), known, 3, 0.4) or list(known)[:3]
    names = ", ".join(dict.fromkeys(known[key].rpartition("/")[2] for key in close))
    return (
        f"of the {len(table().models)} known by name these are near: {names}; any other by its "
        "`config.json` or folder, or `--params 7B`"
    )
