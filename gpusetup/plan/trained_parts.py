"""What is trained besides the whole model: a model with frozen parts, which have no gradients and
no optimizer states, and embedding tables for users, items and the like.

A recommender's tables are often larger than its network, and need gradients and optimizer states
like other trained weights.
"""

from __future__ import annotations

import re

from gpusetup.configs.keys import key_of
from gpusetup.configs.settings import FALSE, TRUE, Path, Setting, name_of, words_of
from gpusetup.errors import UsageError
from gpusetup.model.frozen import Frozen
from gpusetup.plan.config_reader import Reader
from gpusetup.plan.shape import Shape

# --- frozen parts ---------------------------------------------------------------------------------

ALL, EMBEDDINGS = "all", "embeddings"
FREEZE_HINT = "`--freeze` alone, `--freeze embeddings`, `--freeze 10` (layers) or `--freeze 90%`"


def frozen_share(what: str, shape: Shape) -> float:
    """The share of a model's parameters that is frozen, from 0 to 1.

    `what` can be `all`, `embeddings`, a number of first layers (the embedding is then frozen too),
    `-2` for all layers but the last two, or a share such as `90%`. Raises UsageError for anything
    else.

    >>> from gpusetup.plan.models import model_named
    >>> gpt2 = model_named("gpt2")
    >>> [round(frozen_share(what, gpt2), 2) for what in ("all", "embeddings", "6", "-2", "90%")]
    [1.0, 0.31, 0.66, 0.89, 0.9]
    """
    text = what.strip().lower()
    embeddings = shape.outside / shape.parameters
    if text in (ALL, EMBEDDINGS):
        return 1.0 if text == ALL else embeddings
    if re.fullmatch(r"-?\d{1,5}", text):
        frozen_layers = int(text) if int(text) > 0 else shape.layers + int(text)
        if 0 <= frozen_layers <= shape.layers:
            return embeddings + (1 - embeddings) * frozen_layers / shape.layers
        raise UsageError(
            f"`--freeze {what}`: {shape.name} has {shape.layers} layers", hint=FREEZE_HINT
        )
    percent = re.fullmatch(r"(\d{1,3}(?:\.\d+)?)\s*%", text)
    if percent and 0 < float(percent[1]) <= 100:
        return float(percent[1]) / 100
    raise UsageError(f"`--freeze {what}` is not a part of a model", hint=FREEZE_HINT)


FREEZES = re.compile(r"freeze(?:_(\w+))?|(?:(\w+)_)?(?:is_)?frozen")
"""Switches that freeze a part: `freeze_gpt2: true`, `freeze: true`, `backbone_frozen: true`."""
TRAINS = re.compile(r"train(?:able)?_(\w+)|(\w+)_trainable|()trainable")
"""Switches that freeze a part if they are off: `train_backbone: false`, `trainable: false`."""
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

    >>> frozen_by("freeze_gpt2", "true", "gpt2-medium"), frozen_by("train_bn", "false", "")
    ('all', None)
    """
    if LAYERS_NAME.fullmatch(name):
        return text if re.fullmatch(r"[1-9]\d{0,4}", text) else None
    pattern = FREEZES if text in TRUE else TRAINS if text in FALSE else None
    switch = pattern.fullmatch(name) if pattern else None
    if switch is None:
        return None
    # The regex group that matched is the part's name; `freeze: true` names none and means all.
    part = next(filter(None, switch.groups()), "")
    words = words_of(part)
    if words & EMBEDDING_WORDS:
        return EMBEDDINGS
    letters, model_letters = (re.sub(r"[^a-z0-9]", "", one.lower()) for one in (part, model))
    return ALL if letters in model_letters or words & WHOLE_MODEL else None


# --- embedding tables -----------------------------------------------------------------------------

LARGEST_ROWS, LARGEST_WIDTH = 10**12, 10**6
"""The largest plausible values; anything above is a typo."""


class EmbeddingTable(Frozen):
    """An embedding table with its number of rows and its width."""

    name: str
    """A noun for the rows: `users`; a table from an option may have no name."""
    rows: int
    width: int

    @property
    def parameters(self) -> int:
        return self.rows * self.width

    def __str__(self) -> str:
        return f"{self.name} {self.rows:,} x {self.width:,}".lstrip()


def table_named(text: str) -> EmbeddingTable:
    """The embedding table in an option's text: `20000000x64`, or with a name, `users=20000000x64`.

    >>> table_named("users=20_000_000x64").parameters
    1280000000
    """
    hit = re.fullmatch(r"(?:([\w-]{1,40})=)?(\d[\d_,]{0,15})\s*[xX*]\s*(\d{1,7})", text.strip())
    rows = int(re.sub(r"[_,]", "", hit[2])) if hit else 0
    width = int(hit[3]) if hit else 0
    if hit is None or not 1 <= rows <= LARGEST_ROWS or not 1 <= width <= LARGEST_WIDTH:
        raise UsageError(
            f"{text!r} is not an embedding table",
            hint=f"rows x width: `--embedding users=6040x64` (up to {LARGEST_ROWS:,} rows of "
            f"{LARGEST_WIDTH:,})",
        )
    return EmbeddingTable(name=hit[1] or "", rows=rows, width=width)


WIDTH_NAMES = (
    "embedding_dim", "embed_dim", "emb_dim", "embedding_size", "latent_dim", "n_factors",
)  # fmt: skip
"""Keys that give the width of a row in the configs of recommenders."""
LISTS = frozenset(("cardinalities", "cat_cardinalities", "field_dims", "embedding_sizes"))
"""Keys of lists that give the number of rows of each table (FuxiCTR, tabular models)."""


def tables_in(reader: Reader) -> tuple[EmbeddingTable, ...]:
    """The embedding tables that a config describes: of users and of items (by their role), and
    torch's `num_embeddings`, alone or in a list. Their settings are recorded as read."""
    width_settings: list[Setting] = []
    by_noun: dict[str, int] = {}
    by_map: dict[Path, int] = {}
    for setting in reader.config.settings:
        name = name_of(setting.path)
        width = positive_number(reader, setting, LARGEST_WIDTH)
        if width and name in WIDTH_NAMES:
            by_map.setdefault(setting.path[:-1], width)
            width_settings.append(setting)
        elif width and name.endswith("_dim"):
            by_noun.setdefault(name.removesuffix("_dim"), width)
    tables: list[EmbeddingTable] = []
    for setting in reader.config.settings:
        rows, noun = positive_number(reader, setting, LARGEST_ROWS), noun_of_rows(setting)
        if rows is None or noun is None:
            continue
        # The closest width counts: one for the same noun (`user_dim`), one in the same map, or one
        # anywhere in the config.
        width = by_noun.get(noun.removesuffix("s")) or by_map.get(setting.path[:-1])
        width = width or next(iter(by_map.values()), None)
        if width:
            tables.append(EmbeddingTable(name=noun, rows=rows, width=width))
            reader.note(setting, f"embedding table: {tables[-1]}")
    for setting in width_settings if tables else ():
        reader.note(setting, "width of the embedding tables")
    return tuple(tables)


def noun_of_rows(setting: Setting) -> str | None:
    """The noun for a table's rows (`users`) if the setting gives their number; None if it counts
    something else."""
    name = name_of(setting.path)
    parents = [word for word in setting.path[:-1] if isinstance(word, str)]
    if parents and parents[-1] in LISTS:
        return f"{parents[-1]}[{name}]"
    if name == "num_embeddings":
        # torch.nn.Embedding and torchrec use this name, in a map with the table's name.
        return parents[-1] if parents else "rows"
    key = key_of(setting.path)
    if key is None or key.role not in ("users", "items"):
        return None
    # The other words of the name, such as `n_movies` or `user_count`, only say that it counts.
    return re.sub(r"^(?:n|num)_|_(?:num|count)$", "", name)


def positive_number(reader: Reader, setting: Setting, most: int) -> int | None:
    """The whole number from 1 to `most` in a setting; None if the setting is anything else."""
    digits = (reader.text(setting) or "").replace("_", "")
    is_number = re.fullmatch(r"\d{1,13}", digits)
    return int(digits) if is_number and 1 <= int(digits) <= most else None
