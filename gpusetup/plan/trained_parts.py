"""What is trained besides the whole model: a model with frozen parts, which have no gradients and
no optimizer states, and embedding tables for users, items and the like.

A recommender's tables are often larger than its network, and need gradients and optimizer states
like other trained weights.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gpusetup.configs.keys import key_of
from gpusetup.configs.settings import TRUE, Setting, name_of, words_of
from gpusetup.errors import UsageError
from gpusetup.plan.config_reader import Reader
from gpusetup.plan.shape import Shape

ALL, EMBEDDINGS = "all", "embeddings"


def frozen_share(what: str, shape: Shape) -> float:
    """The share of a model's parameters that is frozen, from 0 to 1, for a part as `frozen_in`
    gives it: `all`, `embeddings`, or a number of first layers (the embedding is then frozen too).
    Raises UsageError if the model has fewer layers.

    >>> from gpusetup.plan.models import model_named
    >>> gpt2 = model_named("gpt2")
    >>> [round(frozen_share(what, gpt2), 2) for what in ("all", "embeddings", "6")]
    [1.0, 0.31, 0.66]
    """
    embeddings = shape.outside / shape.parameters
    if what in (ALL, EMBEDDINGS):
        return 1.0 if what == ALL else embeddings
    if int(what) > shape.layers:
        raise UsageError(f"{shape.name} has {shape.layers} layers, not {what} to freeze")
    return embeddings + (1 - embeddings) * int(what) / shape.layers


FREEZES = re.compile(r"freeze(?:_(\w+))?|(?:(\w+)_)?(?:is_)?frozen")
"""Switches that freeze a part: `freeze_gpt2: true`, `freeze: true`, `backbone_frozen: true`."""
LAYERS_NAME = re.compile(r"(?:num_|n_)?(?:frozen|freeze)_(?:first_)?(?:n_)?layers")
EMBEDDING_WORDS = frozenset(("embedding", "embeddings", "embed", "emb", "wte", "wordembeddings"))
WHOLE_MODEL = frozenset((
    "all", "backbone", "base", "bert", "decoder", "encoder", "language", "llm", "lm", "model",
    "network", "pretrained", "transformer", "trunk",
))  # fmt: skip
"""Words for the whole model; if it is frozen, only the parts added to it are trained."""


def frozen_in(reader: Reader, model: str | None) -> str | None:
    """The part that a config freezes, as a text that `frozen_share` reads; None if it freezes
    nothing.

    `model` is the model's name, because a key may contain it: `freeze_gpt2` freezes gpt2-medium.
    """
    frozen: str | None = None
    for setting in reader.config.settings:
        text = reader.text(setting)
        part = frozen_by(name_of(setting.path), text, model or "") if text else None
        if part is not None:
            reader.note(setting, f"not trained: {part}")
            # The first frozen part counts, except that a later part replaces the embeddings.
            frozen = part if frozen in (None, EMBEDDINGS) else frozen
    return frozen


def frozen_by(name: str, text: str, model: str) -> str | None:
    """The part of the model that one key with this value freezes; None if it freezes nothing.

    >>> frozen_by("freeze_gpt2", "true", "gpt2-medium"), frozen_by("freeze_bn", "true", "gpt2")
    ('all', None)
    """
    if LAYERS_NAME.fullmatch(name):
        return text if re.fullmatch(r"[1-9]\d{0,4}", text) else None
    switch = FREEZES.fullmatch(name) if text in TRUE else None
    if switch is None:
        return None
    # The regex group that matched is the part's name; `freeze: true` names none and means all.
    part = next(filter(None, switch.groups()), "")
    words = words_of(part)
    if words & EMBEDDING_WORDS:
        return EMBEDDINGS
    letters, model_letters = (re.sub(r"[^a-z0-9]", "", one.lower()) for one in (part, model))
    return ALL if letters in model_letters or words & WHOLE_MODEL else None


MOST_DIGITS = 12
"""A number of rows or a width with more digits is a typo."""


class EmbeddingTable(NamedTuple):
    """An embedding table."""

    label: str
    """Its rows with a noun, and its width: `users 6,040 x 64`."""
    parameters: int


WIDTH_NAMES = (
    "embedding_dim", "embed_dim", "emb_dim", "embedding_size", "latent_dim", "n_factors",
)  # fmt: skip
"""Keys that give the width of a row in the configs of recommenders."""


def tables_in(reader: Reader) -> tuple[EmbeddingTable, ...]:
    """The embedding tables of users and of items that a config describes, and torch's
    `num_embeddings`. Their settings are recorded as read."""
    width_settings = [
        setting
        for setting in reader.config.settings
        if name_of(setting.path).endswith(("_dim", *WIDTH_NAMES)) and number_in(reader, setting)
    ]
    # If a name occurs twice, the first one counts.
    widths = {name_of(one.path): number_in(reader, one) for one in reversed(width_settings)}
    usual = next((widths[name] for name in WIDTH_NAMES if name in widths), None)
    tables: list[EmbeddingTable] = []
    for setting in reader.config.settings:
        name, key = name_of(setting.path), key_of(setting.path)
        # The other words of the name, such as `n_movies` or `user_count`, only say that it counts.
        noun = re.sub(r"^(?:n|num)_|_(?:num|count)$", "", name)
        if name == "num_embeddings":
            # torch.nn.Embedding and torchrec use this name, in a map with the table's name.
            noun = str(setting.path[-2]) if len(setting.path) > 1 else "rows"
        elif key is None or key.role not in ("users", "items"):
            continue
        # A width for the same noun (`movie_dim`) comes before that of all tables.
        width = widths.get(f"{noun.removesuffix('s')}_dim", usual)
        rows = number_in(reader, setting)
        if rows and width:
            table = EmbeddingTable(f"{noun} {rows:,} x {width:,}", rows * width)
            tables.append(table)
            reader.note(setting, f"embedding table: {table.label}")
    for setting in width_settings if tables else ():
        reader.note(setting, "width of the embedding tables")
    return tuple(tables)


def number_in(reader: Reader, setting: Setting) -> int:
    """The whole number in a setting; 0 if the setting is anything else."""
    digits = (reader.text(setting) or "").replace("_", "")
    return int(digits) if re.fullmatch(rf"\d{{1,{MOST_DIGITS}}}", digits) else 0
