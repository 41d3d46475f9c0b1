"""Finds the shape of the model that the user names: a known name, a `config.json` (a file, or in
the hub's cache), or a number of parameters.

Names usually have the form `owner/Family-Version-Size-Tuning-Date-Format`. Parts that do not affect
the shape (tuning, date, format) are removed before a name is looked up; the rest must match whole.
Nearly every name says how many parameters the model has (`Kimi-Linear-48B-A3B`).
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from gpusetup import named_file
from gpusetup.errors import BadInput, UsageError
from gpusetup.model.codec import from_json, from_plain
from gpusetup.model.frozen import Frozen, replace
from gpusetup.plan.config_json import MEASURE_HINT, shape_of
from gpusetup.plan.job import Shape

KNOWN = Path(__file__).resolve().parents[1] / "data" / "plan" / "models.json"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")

NAME_VARIANT = re.compile(
    r"-(?:hf|diffusers|instruct|chat|it|pt|base|sft|dpo|thinking|reasoning"
    r"|2[3-6]\d\d|(?:0[1-9]|1[0-2])[0-3]\d|4k|128k)(?=-|$)"
)
"""Parts of a name that do not affect the shape: the tuning (`-Instruct`) and the date (`-2507`)."""
REVISION = re.compile(r"(?<=\d[bm])(.*?)-v\d+(?:\.\d+)?(?=-|$)")
"""A revision after a size (`Mistral-7B-v0.3`), which keeps the shape. Without a size before it,
such a part names another model (`DeepSeek-V3`)."""
FORMAT_PART = re.compile(
    r"-(?:(?:unsloth-)?bnb-[48]bit|gguf|awq|gptq|int[48]|[48]bits?|fp8|w4a16|w8a8|w8a16|nvfp4|mxfp4"
    r"|bf16|fp16|dynamic|marlin|quantized|autoround)(?=-|$|\.)"
)
"""Parts of a name that tell how the weights are stored (`-bnb-4bit`, `-GPTQ`)."""
FORMAT_OF_WORD = (
    ("bnb-4bit", "nf4"), ("bnb-8bit", "int8"), ("mxfp4", "mxfp4"), ("nvfp4", "nvfp4"),
    ("fp8", "fp8"), ("w8a8", "int8"), ("w8a16", "int8"), ("int8", "int8"), ("8bit", "int8"),
    ("awq", "int4"), ("gptq", "int4"), ("w4a16", "int4"), ("int4", "int4"), ("4bit", "int4"),
    ("autoround", "int4"),
)  # fmt: skip
"""Word in a name -> the format of the weights. The first pair whose word is in the name counts."""


def name_with_dashes(text: str) -> str:
    """A model's name in lower case without its owner, with dashes for underscores."""
    return text.strip().lower().rpartition("/")[2].replace("_", "-")


def short_name(text: str) -> str:
    """A model's name reduced for comparison: lower case, without owner, variant, format and dashes.

    >>> short_name("Qwen/Qwen3-8B") == short_name("qwen3_8b")
    True
    >>> short_name("meta-llama/Meta-Llama-3.1-8B-Instruct") == short_name("llama-3.1-8b")
    True
    >>> short_name("Qwen1.5-7B-Chat-GPTQ-Int4") == short_name("Qwen/Qwen1.5-7B")
    True
    """
    name = name_with_dashes(text).removeprefix("meta-")
    # Remove the format first, because it comes after the variant.
    without_format = FORMAT_PART.sub("", name.replace(" ", "-"))
    return NAME_VARIANT.sub("", REVISION.sub(r"\1", without_format)).replace("-", "")


def format_in_name(text: str) -> str | None:
    """The weight format that a model's name contains; None if there is none.

    >>> format_in_name("Qwen3-30B-A3B-AWQ"), format_in_name("unsloth/Qwen3-8B-unsloth-bnb-4bit")
    ('int4', 'nf4')
    >>> format_in_name("Qwen/Qwen3-8B") is None
    True
    """
    parts = "".join(hit[0] for hit in FORMAT_PART.finditer(name_with_dashes(text)))
    return next((storage for word, storage in FORMAT_OF_WORD if word in parts), None)


SIZES = re.compile(
    r"(?<![\w.])(\d+(?:\.\d+)?(?=b)|\d{2,}(?:\.\d+)?(?=m))([bm])(?:-a(\d+(?:\.\d+)?)([bm]))?(?![a-z0-9])"
)
"""Sizes in a name: `8b`, `1.5b`, `350m`, or `30b-a3b` with the active parameters."""


class ModelSize(NamedTuple):
    """A model's parameters, and those that one token uses (fewer in a mixture of experts)."""

    parameters: int
    active: int


def size_in_name(text: str) -> ModelSize | None:
    """The size in a model's name; None if it has none, or more than one.

    >>> size_in_name("moonshotai/Kimi-Linear-48B-A3B-Instruct")
    ModelSize(parameters=48000000000, active=3000000000)
    """
    # `1_8b` means 1.8 billion.
    hits = list(SIZES.finditer(name_with_dashes(re.sub(r"(?<=\d)_(?=\d)", ".", text))))
    # With two sizes (`Llama-8B-70B-merge`) the name does not tell which is the model's.
    if len({hit[0] for hit in hits}) != 1:
        return None
    number, unit, active_number, active_unit = hits[0].groups()
    parameters = round(float(number) * UNITS[unit])
    active = round(float(active_number) * UNITS[active_unit]) if active_number else parameters
    # If the second number is larger than the first, it means something else.
    return ModelSize(parameters, min(active, parameters))


class ModelTable(Frozen):
    """The models that plan knows by name: hub id -> the fields of the model's shape.

    `checked` tells where a row's parameter count comes from: it equals the `published` count
    exactly, was `counted` on the model class, `read` in a public list, or is only `approximate`.
    `also` lists other names of the model, and models with exactly the same shape.
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
    rows = model_table().models
    names = [(name, name) for name in rows]
    names += [(alias, name) for name, row in rows.items() for alias in row.get("also", ())]
    ids = {text.lower(): name for text, name in names}
    # Add short names later, so that they never replace the full name of another model.
    for text, name in names:
        ids.setdefault(short_name(text), name)
        # An id may have an underscore in its version (`3_1`), while people write 3.1.
        ids.setdefault(short_name(re.sub(r"(?<=\d)_(?=\d)", ".", text)), name)
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


@lru_cache(maxsize=256)
def known_shape(name: str) -> Shape:
    """The shape of a known model, given by its hub id."""
    row = model_table().models[name]
    # Only rows of models with experts give the active parameters.
    fields = {"name": name.rpartition("/")[2], "active": row["parameters"], **row}
    # Leave out the fields that describe the table's row, not the model's shape.
    return from_plain(
        {key: value for key, value in fields.items() if key not in ("checked", "also")},
        Shape,
        what=name,
    )


UNCOUNTED = (
    (
        "is a convolutional or recurrent network; plan can only estimate models with attention",
        r"resnet|resnext|wide-?resnet|convnext|efficientnet|mobilenet|densenet|regnet|vgg|inception"
        r"|unet|yolo|deeplab|pspnet|(?:mask|faster)-?_?rcnn|stylegan|rwkv|mamba|lstm",
    ),
    (
        "is a diffusion model; published runs needed 0.7 to 2.4 times what plan can estimate",
        r"(?:flux|sdxl|sd3|mochi|kolors)(?![a-z])|stable-?diffusion|cogvideo|wan-?\d|hunyuan-?video"
        r"|ltx-?video|pixart|qwen-?image|z-image|hidream|sana_|auraflow|chroma1|lumina-image",
    ),
)
"""Why plan gives no number for a model, and the names of such models."""


def refuse_uncounted(text: str) -> None:
    """Raise UsageError if the name is that of a network for which plan gives no number."""
    for reason, names in UNCOUNTED:
        if re.search(rf"(?<![a-z])(?:{names})", text.lower()):
            raise UsageError(f"{text!r} {reason}", hint=MEASURE_HINT)


SIZE_ERROR = 2
"""The factor within which a name's size may differ from the number of parameters: names round, and
some leave out the embedding."""
RECENT_VOCABULARY = 128_256
"""The vocabulary of Llama 3, for models of unknown shape: most models since 2024 have at least
100,000 tokens, which is the width of the logits."""


def model_named(text: str, *, assume: bool = False) -> Shape:
    """The shape of a model, given by hub id, short name, `config.json`, or the folder with that
    file. With `assume`, an unknown hub id with a size in its name has the usual shape of that size,
    which its field `assumed` then says.

    Raises UsageError with similar names if the name is unknown, and BadInput if the file is not a
    model's config.

    >>> model_named("meta-llama/Llama-3.1-8B-Instruct").parameters
    8030261248
    >>> model_named("some-lab/Thing-48B-A3B", assume=True).assumed != ""
    True
    """
    size = size_in_name(text)
    if is_known(text):
        shape = known_shape(hub_id(text))
        refuse_other_size(shape, text, size)
        return shape
    name, path = text.rpartition("/")[2], Path(text)
    if cached := config_in_hub_cache(text):
        return replace(model_in(cached), name=name)
    is_path = text.endswith(".json") or named_file.is_there(path) or named_file.is_folder(path)
    # An empty text would be the path of the current folder.
    if text and is_path:
        return model_in(path)
    refuse_uncounted(text)
    if not assume or size is None or not HUB_ID.fullmatch(text):
        raise UsageError(f"No model is called {text!r}", hint=unknown_hint(text))
    return replace(
        model_of_size(size.parameters, vocabulary=RECENT_VOCABULARY),
        name=name,
        active=size.active,
        assumed=f"the usual one for its size; for its own, run `hf download {text} config.json`",
    )


def refuse_other_size(shape: Shape, text: str, size: ModelSize | None) -> None:
    """Raise UsageError if the size in a name contradicts the shape that plan knows by this name."""
    if size is None:
        return
    # A name may give the parameters that a token uses instead of all (`Llama-4-Scout-17B`); only
    # one of the two must match.
    for count in (shape.parameters, shape.active):
        if 1 / SIZE_ERROR < size.parameters / count < SIZE_ERROR:
            return
    raise UsageError(
        f"{text!r} has {size_name(size.parameters)} parameters in its name, but plan knows it as "
        f"{shape.name} with {size_name(shape.parameters)}",
        hint=unknown_hint(text),
    )


def unknown_hint(text: str) -> str:
    """A hint for an unknown model name, with one option per line."""
    ids = hub_ids()
    close = difflib.get_close_matches(short_name(text), ids, n=3, cutoff=0.4)
    similar = dict.fromkeys(ids[key].rpartition("/")[2] for key in close)
    config = (
        "for any other model, give its config.json (`--model path/to/config.json`, the file or "
        "its folder), or its hub id if you have downloaded it"
    )
    if HUB_ID.fullmatch(text):
        config = f"to let plan read its shape, run `hf download {text} config.json` first"
    size = size_in_name(text)
    # Without a size in the name, the hint shows an example.
    parameters = size.parameters if size else 7 * 10**9
    return (
        f"similar known names: {', '.join(similar) or 'none'}\n{config}\n"
        f"for a rough plan, give only the size: `--params {size_name(parameters)}`"
    )


LARGEST_CONFIG_BYTES = 1 << 20
"""The size limit for a `config.json`, in case the path is a very large file."""


def model_in(path: Path) -> Shape:
    """The shape of the model in a `config.json`, given by the file's path or its folder."""
    file = path / "config.json" if named_file.is_folder(path) else path
    try:
        text = named_file.read_text(file, LARGEST_CONFIG_BYTES)
    except BadInput as problem:
        raise BadInput(
            f"{problem.message}, so it is not a model's `config.json`",
            hint="give the model's `config.json` or its folder",
        ) from problem
    shape = shape_of(from_json(text, dict[str, Any], what=str(file)), source=str(file))
    folder = file.parent.resolve().name
    # If the config does not name the model, its family is the name: use that of its folder instead,
    # unless the folder is the root, which has none.
    if shape.name == shape.kind and folder:
        return replace(shape, name=folder)
    return shape


def config_in_hub_cache(model: str) -> Path | None:
    """The newest `config.json` of a model in the cache in which transformers and `hf download` keep
    what they fetched from the hub; None if it is not there."""
    if not HUB_ID.fullmatch(model):
        return None
    home = os.environ.get("HF_HOME") or "~/.cache/huggingface"
    cache = Path(os.environ.get("HF_HUB_CACHE") or f"{home}/hub")
    with suppress(OSError, RuntimeError):  # an unreadable folder, or no home
        folder = cache.expanduser() / f"models--{model.replace('/', '--')}"
        found = folder.glob("snapshots/*/config.json")
        return max(found, key=lambda file: file.lstat().st_mtime, default=None)
    return None


FEWEST_PARAMETERS, MOST_PARAMETERS = 1000, 10**14
"""The plausible parameter counts. With fewer, the user probably forgot the unit."""
UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}
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


def parameter_count(text: str) -> int:
    """The parameter count in a text such as `7B` or `124M`; UsageError if it is not a number or
    absurdly small or large.

    >>> [parameter_count(text) for text in ("124M", "7b", "1.5 B", "124,439,808")]
    [124000000, 7000000000, 1500000000, 124439808]
    """
    # Remove the separators of thousands.
    plain = re.sub(r"(?<=\d)[,_](?=\d{3}(?!\d))", "", text.strip().lower())
    hit = re.fullmatch(r"(\d{1,20}(?:\.\d+)?)\s*([kmbgt]?)", plain)
    # A text that is no number counts as 0, which is refused below.
    count = round(float(hit[1]) * UNITS[hit[2]]) if hit else 0
    if not FEWEST_PARAMETERS <= count <= MOST_PARAMETERS:
        raise UsageError(f"{text!r} is not a number of parameters", hint="write it as 124M or 7B")
    return count


def model_of_size(parameters: int, vocabulary: int = GPT2_VOCABULARY) -> Shape:
    """A transformer with this many parameters, shaped like published models of that size.

    It has no vocabulary, and so no logits, if `vocabulary` is 0 because its samples are no texts,
    or if it is too small for a language model.
    """
    # Compare sizes by ratio, so that 14B is as close to 7B as 3.5B is.
    published_size, published_layers, hidden = min(
        PUBLISHED_SIZES, key=lambda row: abs(math.log(row[0] / parameters))
    )
    # A model smaller than the smallest published one has fewer layers of the same width.
    layers = max(1, round(published_layers * min(parameters / published_size, 1)))
    if parameters < SMALLEST_LANGUAGE_MODEL:
        vocabulary = 0
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
        heads=hidden // 64,  # heads of 64, as in GPT-2
        query=hidden,
        key_value=hidden,
        intermediate=4 * hidden,
        gated=False,
        rms_norm=False,
        vocabulary=vocabulary,
    )


def size_name(parameters: int) -> str:
    """A parameter count as people write it, with three digits.

    >>> size_name(8190735360), size_name(124439808)
    ('8.19B', '124M')
    """
    rounded = float(f"{parameters:.3g}")
    return f"{rounded / 1e9:g}B" if rounded >= 1e9 else f"{rounded / 1e6:g}M"
