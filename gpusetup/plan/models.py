"""Finds the shape of the model that the user names: a known name, a `config.json` (local, or
downloaded from the hub for `plan --fetch-config`), or a number of parameters."""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from gpusetup import named_file
from gpusetup.errors import BadInput, ToolFailed, UsageError
from gpusetup.model.codec import from_json, from_plain
from gpusetup.model.frozen import Frozen, replace
from gpusetup.plan.config_json import MEASURE_HINT, shape_of
from gpusetup.plan.model_names import (
    SizeInName,
    base_in_name,
    parts_beyond,
    short_name,
    size_in_name,
)
from gpusetup.plan.shape import Shape

KNOWN = Path(__file__).resolve().parents[1] / "data" / "plan" / "models.json"
LARGEST_CONFIG_BYTES = 1 << 20
"""The size limit for a `config.json`, in case the path is a very large file."""
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")


class ModelTable(Frozen):
    """The models that plan knows by name: hub id -> the fields of the model's shape.

    `checked` tells where a row's parameter count comes from: it equals the `published` count
    exactly, was `counted` on the model class, `read` in a public list, or is only `approximate`.
    `also` lists other names of the model.
    """

    as_of: str
    models: Mapping[str, Mapping[str, Any]]


@lru_cache(maxsize=1)
def model_table() -> ModelTable:
    return from_json(KNOWN.read_bytes(), ModelTable, what=KNOWN.name)


@lru_cache(maxsize=1)
def hub_ids() -> Mapping[str, str]:
    """Maps the names of known models to their hub ids: the id in lower case, other names from the
    table (`also`), and short names without the owner."""
    ids: dict[str, str] = {}
    rows = model_table().models
    for name, row in rows.items():
        ids[name.lower()] = name
        ids |= dict.fromkeys(row.get("also", ()), name)
    # Add short names later, so that they never replace the full name of another model.
    for name in rows:
        ids.setdefault(short_name(name), name)
        # An id may have an underscore in its version (`3_1`), while people write 3.1.
        ids.setdefault(short_name(re.sub(r"(?<=\d)_(?=\d)", ".", name)), name)
    for name, row in rows.items():
        for alias in row.get("also", ()):
            ids.setdefault(short_name(alias), name)
    return ids


def hub_id(text: str) -> str:
    """The hub id of a known model; for any other name, the name itself.

    >>> hub_id("Qwen3-8B"), hub_id("mine")
    ('Qwen/Qwen3-8B', 'mine')
    """
    ids = hub_ids()
    return ids.get(text.strip().lower()) or ids.get(short_name(text), text)


def is_known(text: str) -> bool:
    """Whether plan knows a model of this name."""
    return hub_id(text) in model_table().models


def is_at_hand(text: str) -> bool:
    """Whether a model's shape is available without the network: a known name, or a file or folder
    on this machine."""
    path = Path(text)
    if text.endswith(".json") or is_known(text):
        return True
    return named_file.is_there(path) or named_file.is_folder(path)


WITHOUT_ATTENTION = re.compile(
    r"(?<![a-z])(?:resnet|resnext|wide-?resnet|convnext|efficientnet|mobilenet|densenet|regnet|vgg"
    r"|inception|unet|yolo|deeplab|pspnet|(?:mask|faster)-?_?rcnn|stylegan|rwkv|mamba|lstm)"
)
"""Names of networks without attention: convolutional, recurrent and state space models."""


def model_named(text: str) -> Shape:
    """The shape of a model, given by hub id, short name, `config.json`, or the folder with that
    file.

    Raises UsageError with similar names if the name is unknown, and BadInput if the file is not a
    model's config.

    >>> model_named("meta-llama/Llama-3.1-8B-Instruct").parameters
    8030261248
    """
    if is_known(text):
        shape = known_shape(hub_id(text))
        size = size_in_name(text)
        if size is not None and not is_near(size.parameters, (shape.parameters, shape.active)):
            raise UsageError(
                f"{text!r} names {size_name(size.parameters)} parameters, but {shape.name}, which "
                f"plan knows by this name, has {size_name(shape.parameters)}",
                hint=unknown_hint(text),
            )
        return shape
    if text and is_at_hand(text):
        return model_in(Path(text))
    if WITHOUT_ATTENTION.search(text.lower()):
        raise UsageError(
            f"{text!r} has no attention layers; by name or `config.json`, plan knows only models "
            "with attention",
            hint=MEASURE_HINT,
        )
    raise UsageError(f"No model is called {text!r}", hint=unknown_hint(text))


def shape_or_relative(text: str) -> Shape:
    """The shape of a model; for an unknown name, the shape of its base model or of a similar model.

    A fine-tuned model has the shape of its base model (`Hermes-3-Llama-3.1-8B`). Any other hub id
    with a size in its name gets the shape of a similar known model, scaled to that size; `assumed`
    then names that model, and the plan is never clear. Raises UsageError if the name contains
    neither a known base model nor a size.

    >>> shape_or_relative("NousResearch/Hermes-3-Llama-3.1-8B").layers
    32
    >>> shape_or_relative("some-lab/Thing-48B-A3B").assumed != ""
    True
    """
    if is_at_hand(text) or WITHOUT_ATTENTION.search(text.lower()):
        return model_named(text)
    names: dict[str, str] = {}
    for known, row in model_table().models.items():
        names |= dict.fromkeys((known, *row.get("also", ())), known)
    name = text.rpartition("/")[2]
    base = base_in_name(text, names)
    if base is not None:
        shape, more_parts = known_shape(names[base]), parts_beyond(text, names[base])
        lacks = f"as {shape.name} by its name, without what {', '.join(more_parts)} adds"
        return replace(shape, name=name, base=shape.name, assumed=lacks if more_parts else "")
    size = size_in_name(text)
    if size is None or not HUB_ID.fullmatch(text):
        return model_named(text)  # raises the error that lists similar names
    shape = known_shape(nearest_relative(text, size))
    return replace(
        shape,
        name=name,
        parameters=size.parameters,
        active=size.active,
        layers=max(1, round(shape.layers * size.parameters / shape.parameters)),
        assumed=f"like {shape.name}, by its name and size; `--fetch-config` reads its own",
    )


RECENT_VOCABULARY = 100_000
"""Models since 2024 have at least this vocabulary size, which is also the width of the logits."""


def nearest_relative(text: str, size: SizeInName) -> str:
    """The hub id of the known text decoder that is closest in family and size."""
    family = re.match(r"[a-z]+", short_name(text))
    distances: dict[str, float] = {}
    for name, row in model_table().models.items():
        is_plain = "vocabulary" in row and row.keys().isdisjoint(("tokens", "tower"))
        if not is_plain or ("experts" in row) != (size.active < size.parameters):
            continue
        distance = abs(math.log(row["parameters"] / size.parameters))
        # Prefer the same family, unless a model of another family is much closer in size (2.7
        # times).
        if family is None or not short_name(name).startswith(family[0]):
            distance += 1
        if row["vocabulary"] < RECENT_VOCABULARY:
            distance += 2
        distances[name] = distance
    return min(distances, key=lambda name: (distances[name], name))


SIZE_ERROR = 2
"""The factor within which a name's size may differ from the number of parameters: names round, and
some leave out the embedding."""


def is_near(size: int, counts: Iterable[int]) -> bool:
    """Whether a size in a name agrees with one of the counts: of all parameters, or of those that a
    token uses (`Llama-4-Scout-17B`)."""
    return any(1 / SIZE_ERROR < size / max(count, 1) < SIZE_ERROR for count in counts)


def unknown_hint(text: str) -> str:
    """A hint for an unknown model name, with one option per line."""
    ids = hub_ids()
    close = difflib.get_close_matches(short_name(text), ids, n=3, cutoff=0.4)
    similar = dict.fromkeys(ids[key].rpartition("/")[2] for key in close)
    config = (
        "for any other model, give its config.json (`--model path/to/config.json`, the file or "
        "its folder), or its hub id with `--fetch-config`"
    )
    if HUB_ID.fullmatch(text):
        config = f"to read its config.json from the hub, add `--fetch-config`, or {by_hand(text)}"
    size_word = re.search(r"(?<![\w.])(\d+(?:\.\d+)?[bm])(?![a-z0-9])", text.lower())
    size = size_word[1].upper() if size_word else "7B"
    return (
        f"similar known names: {', '.join(similar) or 'none'}\n{config}\n"
        f"for a rough plan, give only the size: `--params {size}`"
    )


@lru_cache(maxsize=256)
def known_shape(name: str) -> Shape:
    """The shape of a known model, given by its hub id."""
    row = model_table().models[name]
    fields = {"name": name.rpartition("/")[2], "active": row["parameters"], **row}
    # Leave out the fields that describe the table's row, not the model's shape.
    fields.pop("checked", None)
    fields.pop("also", None)
    return from_plain(fields, Shape, what=name)


def model_in(path: Path) -> Shape:
    """The shape of the model in a `config.json`, given by the file's path or its folder."""
    file = path / "config.json" if named_file.is_folder(path) else path
    try:
        text = named_file.read_text(file, LARGEST_CONFIG_BYTES)
    except BadInput as problem:
        raise BadInput(
            f"{problem.message}: no model's `config.json`",
            hint="give the model's `config.json` or its folder",
        ) from problem
    shape = shape_of(from_json(text, dict[str, Any], what=str(file)), source=str(file))
    folder = file.parent.resolve().name
    # If the config does not name the model, use the name of its folder.
    has_name = shape.name != shape.kind
    return shape if has_name or not folder else replace(shape, name=folder)


# --- from the hub ---------------------------------------------------------------------------------

HUB = "https://huggingface.co"
SECONDS = 20
"""The timeout for the hub; a config has only a few kilobytes."""


def by_hand(model: str) -> str:
    """The commands with which a user reads a model's config from the hub."""
    return f"run `hf download {model} config.json --local-dir .` and give `--model ./config.json`"


def fetched_shape(model: str, say: Callable[[str], None]) -> Shape:
    """The shape of a model, from the `config.json` on its hub or on the mirror in HF_ENDPOINT;
    plan uses the network for nothing else, without a login, and does not save the file. `say` is
    called with the URL before the download.

    Raises UsageError if the name is not a hub id, and ToolFailed if the hub has no such config.
    """
    if not HUB_ID.fullmatch(model):
        raise UsageError(
            f"`--fetch-config` needs the model's id at its hub; {model!r} is none",
            hint="an id has an owner and a name: `--model Qwen/Qwen3-8B --fetch-config`",
        )
    endpoint = (os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")
    if urlsplit(endpoint).scheme not in ("http", "https"):
        raise UsageError(f"HF_ENDPOINT is {endpoint!r}: an address with http or https is needed")
    url = f"{endpoint}/{model}/resolve/main/config.json"
    say(f"network: reading {url}")
    try:
        with urlopen(Request(url, headers={"User-Agent": "gpusetup"}), timeout=SECONDS) as answer:
            raw = answer.read(LARGEST_CONFIG_BYTES + 1)
    except (OSError, ValueError) as problem:
        reason = str(problem)
        if isinstance(problem, HTTPError):
            reason = f"the hub answers {problem.code}"
            if problem.code in (401, 403):
                reason = "the model is private or gated, or its name is wrong"
        raise ToolFailed(f"No config.json of {model}: {reason}", hint=by_hand(model)) from problem
    if len(raw) > LARGEST_CONFIG_BYTES:
        raise ToolFailed(f"The config.json of {model} is too large to be one", hint=by_hand(model))
    shape = shape_of(from_json(raw, dict[str, Any], what=url), source=url)
    return replace(shape, name=model.rpartition("/")[2])


# --- a number of parameters -----------------------------------------------------------------------

FEWEST_PARAMETERS, MOST_PARAMETERS = 1000, 10**14
"""The range of plausible parameter counts. With a smaller number the user probably forgot the
unit."""
PARAMETER_COUNT = re.compile(
    r"(\d{1,20}(?:\.\d+)?)\s*([kmbgt]?)(?:n|illions?|rillions?)?(?:\s*(?:params|parameters))?"
)
UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}


def parameter_count(text: str) -> int:
    """The parameter count in a text such as `7B` or `124M`; UsageError if it is not a number or
    absurdly small or large.

    >>> [parameter_count(text) for text in ("124M", "7b", "1.5B", "7 billion")]
    [124000000, 7000000000, 1500000000, 7000000000]
    >>> parameter_count("7,5B"), parameter_count("124,439,808")
    (7500000000, 124439808)
    """
    # A comma before three digits separates thousands; any other comma is a decimal point.
    without_separators = re.sub(r"(?<=\d)[,_ ](?=\d{3}(?!\d))", "", text.strip().lower())
    hit = PARAMETER_COUNT.fullmatch(without_separators.replace(",", "."))
    count = round(float(hit[1]) * UNITS[hit[2]]) if hit else 0
    if not FEWEST_PARAMETERS <= count <= MOST_PARAMETERS:
        raise UsageError(
            f"{text!r} is not a number of parameters",
            hint="write it as 124M or 7B",
        )
    return count


PUBLISHED_SIZES = (
    (14e6, 6, 128), (70e6, 6, 512), (124e6, 12, 768), (355e6, 24, 1024), (774e6, 36, 1280),
    (1.5e9, 48, 1600), (3e9, 32, 2560), (7e9, 32, 4096), (13e9, 40, 5120), (34e9, 48, 8192),
    (70e9, 80, 8192), (175e9, 96, 12288), (405e9, 126, 16384),
)  # fmt: skip
"""Sizes of published models (Pythia, GPT-2, Llama): parameters, layers and hidden width."""
GPT2_VOCABULARY = 50257
SMALLEST_LANGUAGE_MODEL = PUBLISHED_SIZES[0][0]
"""The parameters of the smallest published language model. In a smaller network a vocabulary would
take most of the parameters, so plan assumes that it does not write text."""


def model_of_size(parameters: int, *, has_tokens: bool) -> Shape:
    """A transformer with this many parameters, shaped like published models of that size.

    `has_tokens`: whether its samples are token sequences. If so, the model has GPT-2's vocabulary,
    unless it is too small for a language model. Without a vocabulary there are no logits.
    """
    # Compare sizes by ratio, so that 14B is as close to 7B as 3.5B is.
    published_size, published_layers, hidden = min(
        PUBLISHED_SIZES, key=lambda row: abs(math.log(row[0] / parameters))
    )
    # A model smaller than the smallest published one has fewer layers of the same width.
    layers = max(1, round(published_layers * min(parameters / published_size, 1)))
    writes_text = has_tokens and parameters >= SMALLEST_LANGUAGE_MODEL
    vocabulary = GPT2_VOCABULARY if writes_text else 0
    embedding = vocabulary * hidden
    # Even if the vocabulary is large, at least half of the parameters are in layers.
    largest_layer = max(parameters - embedding, parameters // 2) // layers
    return Shape(
        name=size_name(parameters),
        parameters=parameters,
        active=parameters,
        largest_unit=max(largest_layer, min(embedding, parameters)),
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


def size_name(parameters: int) -> str:
    """A parameter count as people write it, such as `124M` or `7B`."""
    if parameters < 10**9:
        return f"{parameters / 1e6:g}M"
    return f"{parameters / 1e9:g}B"
