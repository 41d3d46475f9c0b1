"""Reads a model's name: its short form, the format of its weights, its base model, and its size.

Names usually have the form `owner/Family-Version-Size-Tuning-Date-Format`. Parts that do not affect
the shape (tuning, date, format) are removed before a name is looked up. A fine-tuned model often
has its base in its name (`Hermes-3-Llama-3.1-8B`), and nearly every name says how many parameters
it has (`Kimi-Linear-48B-A3B`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpusetup.model.frozen import Frozen

NAME_VARIANT = re.compile(
    r"-(?:hf|diffusers|instruct|chat|it|pt|base|sft|dpo|thinking|reasoning"
    r"|2[3-6]\d\d|(?:0[1-9]|1[0-2])[0-3]\d|4k|128k)(?=-|$)"
)
"""Parts of a name that do not affect the shape: the tuning and the date."""
REVISION = re.compile(r"(?<=\d[bm])(.*?)-v\d+(?:\.\d+)?(?=-|$)")
"""A revision after a size (`Mistral-7B-v0.3`), which keeps the shape. Without a size before it,
such a part names another model (`DeepSeek-V3`)."""
FORMAT_PART = re.compile(
    r"-(?:(?:unsloth-)?bnb-[48]bit|gguf|awq|gptq|int[48]|[48]bits?|fp8|w4a16|w8a8|w8a16|nvfp4|mxfp4"
    r"|bf16|fp16|dynamic|marlin|quantized|autoround)(?=-|$|\.)"
)
"""Parts of a name that tell how the weights are stored."""
FORMAT_OF_WORD = (
    ("bnb-4bit", "nf4"), ("bnb-8bit", "int8"), ("mxfp4", "mxfp4"), ("nvfp4", "nvfp4"),
    ("fp8", "fp8"), ("w8a8", "int8"), ("w8a16", "int8"), ("int8", "int8"), ("8bit", "int8"),
    ("awq", "int4"), ("gptq", "int4"), ("w4a16", "int4"), ("int4", "int4"), ("4bit", "int4"),
    ("autoround", "int4"),
)  # fmt: skip
"""Word in a name -> the format of the weights. The first pair whose word is in the name counts."""


def short_name(text: str) -> str:
    """A model's name reduced for comparison: lower case, without owner, variant, format and dashes.

    >>> short_name("Qwen/Qwen3-8B") == short_name("qwen3_8b")
    True
    >>> short_name("meta-llama/Meta-Llama-3.1-8B-Instruct") == short_name("llama-3.1-8b")
    True
    >>> short_name("Qwen1.5-7B-Chat-GPTQ-Int4") == short_name("Qwen/Qwen1.5-7B")
    True
    """
    return re.sub(r"[- ]", "", plain_name(text))


def plain_name(text: str) -> str:
    """A model's name in lower case with dashes, without owner, variant and format."""
    name = name_with_dashes(text).removeprefix("meta-")
    # Remove the format first, because it comes after the variant.
    without_format = FORMAT_PART.sub("", name.replace(" ", "-"))
    return NAME_VARIANT.sub("", REVISION.sub(r"\1", without_format))


def name_with_dashes(text: str) -> str:
    """A model's name in lower case without its owner, with dashes for underscores."""
    return text.strip().lower().rpartition("/")[2].replace("_", "-")


def format_in_name(text: str) -> str | None:
    """The weight format that a model's name contains; None if there is none.

    >>> format_in_name("Qwen3-30B-A3B-AWQ"), format_in_name("unsloth/Qwen3-8B-unsloth-bnb-4bit")
    ('int4', 'nf4')
    >>> format_in_name("Qwen/Qwen3-8B") is None
    True
    """
    parts = "".join(hit[0] for hit in FORMAT_PART.finditer(name_with_dashes(text)))
    return next((storage for word, storage in FORMAT_OF_WORD if word in parts), None)


# --- the base of a fine-tuned model ---------------------------------------------------------------

WORD = re.compile(r"[a-z]+|\d+(?:\.\d+)?[bm](?![a-z])|\d+(?:\.\d+)?")
"""A word of a name; numbers and sizes are separated from letters (`hermes 3 llama 3.1 8b`)."""
SIZE_WORD = re.compile(r"\d+(?:\.\d+)?b|\d{2,}(?:\.\d+)?m")
"""A number of parameters. `1M` is left out, because it names a context (`Qwen2.5-7B-1M`)."""
VERSION_WORD = re.compile(r"\d+(?:\.\d+)?")
PARTS_OF_OTHER_KINDS = frozenset((
    "audio", "document", "image", "multimodal", "ocr", "omni", "speech", "tts", "video", "vision",
    "vl", "vla",
))  # fmt: skip
"""Words in a name which show that the model has more parts than a text model."""


def base_in_name(text: str, names: Iterable[str]) -> str | None:
    """The known model whose name is contained in a longer name, word by word in the same order;
    None if there is none. The longest match wins.

    Only names with a size count, because a word such as `phi` occurs in too many other names. Both
    names must have the same sizes, and a version after the family's name must be the same.

    >>> base_in_name("Hermes-3-Llama-3.1-8B", ("llama-3-8b", "llama-3.1-8b", "hermes"))
    'llama-3.1-8b'
    >>> base_in_name("Llama-4-8B", ("llama-8b",)) is None
    True
    """
    words = WORD.findall(plain_name(text))
    sizes = set(filter(SIZE_WORD.fullmatch, words))
    best: str | None = None
    most_words = 0
    for name in names:
        name_words = WORD.findall(plain_name(name))
        # An active size (`a3b`) is a size too, so both must agree in all sizes.
        has_same_sizes = sizes == set(filter(SIZE_WORD.fullmatch, name_words))
        if len(name_words) > most_words and has_same_sizes and is_in_order(name_words, words):
            best = name
            most_words = len(name_words)
    return best


def is_in_order(part: list[str], whole: list[str]) -> bool:
    """Whether `whole` contains all words of `part` in the same order, and no other version after
    one of them.

    >>> is_in_order(["llama", "8b"], ["llama", "tuned", "8b"])
    True
    >>> is_in_order(["llama", "8b"], ["llama", "3.1", "8b"])
    False
    """
    position = 0
    follows_match = False
    for word in whole:
        if part[position : position + 1] == [word]:
            position += 1
            follows_match = True
            continue
        # `llama-4-8b` is another model than `llama-8b`; a number after a word that the base lacks
        # (`tulu-3`) is that word's.
        if VERSION_WORD.fullmatch(word) and follows_match and position < len(part):
            return False
        follows_match = False
    return position == len(part)


def parts_beyond(text: str, base: str) -> list[str]:
    """The words in a name for parts that the base model lacks, such as `vl` or `audio`.

    >>> parts_beyond("Qwen2-Audio-7B", "Qwen2-7B")
    ['audio']
    """
    base_words = WORD.findall(plain_name(base))
    words = WORD.findall(plain_name(text))
    return [word for word in words if word in PARTS_OF_OTHER_KINDS and word not in base_words]


# --- the size in a name ---------------------------------------------------------------------------


class SizeInName(Frozen):
    """The parameter counts that a model's name contains."""

    parameters: int
    active: int
    """The parameters that one token uses; fewer than all in a mixture of experts."""


SIZES = re.compile(
    r"(?<![\w.])(\d+(?:\.\d+)?(?=b)|\d{2,}(?:\.\d+)?(?=m))([bm])(?:-a(\d+(?:\.\d+)?)([bm]))?(?![a-z0-9])"
)
UNITS = {"b": 10**9, "m": 10**6}


def size_in_name(text: str) -> SizeInName | None:
    """The parameter counts in a model's name; None if it has none, or more than one.

    >>> size = size_in_name("moonshotai/Kimi-Linear-48B-A3B-Instruct")
    >>> size.parameters, size.active
    (48000000000, 3000000000)
    """
    # `1_8b` means 1.8 billion.
    hits = list(SIZES.finditer(name_with_dashes(re.sub(r"(?<=\d)_(?=\d)", ".", text))))
    # With two sizes (`Llama-8B-70B-merge`) the name does not tell which is the model's.
    if len({hit[0] for hit in hits}) != 1:
        return None
    number, unit, active_number, active_unit = hits[0].groups()
    parameters = round(float(number) * UNITS[unit])
    active = round(float(active_number) * UNITS[active_unit]) if active_number else parameters
    # A model cannot have more active parameters than parameters, so such a word means something
    # else (`A100`).
    return SizeInName(parameters=parameters, active=min(active, parameters))
