"""Embedding tables that are trained in addition to a model, such as one for users and one for
items.

A recommender's tables are often larger than its network. Like other trained weights, they need
gradients and optimizer states.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.configs.keys import key_of
from gpusetup.configs.settings import Path, Setting, name_of
from gpusetup.errors import UsageError
from gpusetup.model.frozen import Frozen
from gpusetup.plan.config_reader import Reader

LARGEST_ROWS, LARGEST_WIDTH = 10**12, 10**6
"""The largest plausible values; anything above is a typo."""


class EmbeddingTable(Frozen):
    """An embedding table with its number of rows and its width."""

    name: str
    """A noun for the rows: `users`."""
    rows: int
    width: int

    @property
    def parameters(self) -> int:
        """The number of weights in the table."""
        return self.rows * self.width

    def __str__(self) -> str:
        """The table's name and size.

        >>> str(EmbeddingTable(name="users", rows=6040, width=64))
        'users 6,040 x 64'
        """
        size = f"{self.rows:,} x {self.width:,}"
        # A table from an option may have no name.
        return f"{self.name} {size}".lstrip()


TABLE = re.compile(r"(?:([\w-]{1,40})=)?(\d[\d_,]{0,15})\s*[xX*]\s*(\d{1,7})")


def table_named(text: str) -> EmbeddingTable:
    """The embedding table in an option's text: `20000000x64`, or with a name, `users=20000000x64`.

    >>> table_named("users=20_000_000x64").parameters
    1280000000
    """
    hit = TABLE.fullmatch(text.strip())
    if hit is None:
        raise UsageError(
            f"{text!r} is not an embedding table",
            hint="rows x width: `--embedding users=6040x64`",
        )
    name, rows, width = hit.groups()
    # Remove separators between thousands.
    digits = re.sub(r"[_,]", "", rows)
    table = EmbeddingTable(name=name or "", rows=int(digits), width=int(width))
    has_rows = 1 <= table.rows <= LARGEST_ROWS
    has_width = 1 <= table.width <= LARGEST_WIDTH
    if not has_rows or not has_width:
        raise UsageError(
            f"`--embedding {text}` is out of range",
            hint=f"up to {LARGEST_ROWS:,} rows of {LARGEST_WIDTH:,}",
        )
    return table


# --- in a config ----------------------------------------------------------------------------------

WIDTH_NAMES = (
    "embedding_dim", "embed_dim", "emb_dim", "embedding_size", "emb_size", "embed_size",
    "embedding_dims", "latent_dim", "latent_dims", "n_factors", "num_factors",
)  # fmt: skip
"""Keys that give the width of a row in the configs of recommenders."""
COUNT_NAME = re.compile(
    r"(?:n|num|number_of)_([a-z_]+)|([a-z_]+?)_(?:num|count|cardinality|vocab_size|num_embeddings)"
)
"""Keys with a number of rows, such as `n_users`, `num_items`, `user_count` and
`category_cardinality`. Each key contains a noun for the rows."""
NO_ROWS = frozenset((
    "accumulate", "accumulation", "anchors", "attention", "batch", "batches", "beams", "bins",
    "blocks", "channels", "checkpoints", "class", "classes", "cpu", "cpus", "decoder", "dim",
    "dims", "encoder", "envs", "epoch", "epochs", "examples", "experts", "features", "filters",
    "folds", "frames", "generations", "gpu", "gpus", "groups", "head", "heads", "hidden", "images",
    "inputs", "interactions", "iterations", "iters", "kernels", "kv", "labels", "layer", "layers",
    "levels", "local", "neg", "negatives", "neighbors", "nodes", "outputs", "parameters", "params",
    "patches", "points", "positions", "processes", "prompts", "queries", "query", "ranks",
    "ratings", "records", "rollouts", "rows", "runs", "samples", "seeds", "servers", "shards",
    "splits", "stages", "states", "steps", "test", "threads", "timesteps", "tokens", "train",
    "trials", "units", "val", "vocab", "warmup", "words", "workers",
))  # fmt: skip
"""Nouns that configs count without having a table for them: layers, steps, samples, machines. A
language model's vocabulary is already counted with the model."""
LISTS = frozenset((
    "num_embeddings_per_feature", "cardinalities", "cat_cardinalities", "categorical_cardinalities",
    "field_dims", "embedding_sizes", "feature_cardinalities",
))  # fmt: skip
"""Keys of lists that give the number of rows of each table (torchrec's DLRM, FuxiCTR, tabular
models)."""


def tables_in(reader: Reader) -> tuple[EmbeddingTable, ...]:
    """The embedding tables that a config describes; their settings are recorded as read."""
    widths = widths_by_name(reader)
    shared_width = next((widths[name] for name in WIDTH_NAMES if name in widths), None)
    tables: list[EmbeddingTable] = []
    for setting in reader.config.settings:
        rows = positive_number(reader, setting, LARGEST_ROWS)
        noun = noun_of_rows(setting)
        if rows is None or noun is None:
            continue
        # Take the closest width: first the width for the same noun, then one in the same map, then
        # one anywhere in the config.
        width = width_of(noun, widths) or sibling_width(reader, setting) or shared_width
        if width:
            table = EmbeddingTable(name=noun, rows=rows, width=width)
            tables.append(table)
            reader.note(setting, f"embedding table: {table}")
    if tables:
        note_widths(reader)
    return tuple(tables)


def widths_by_name(reader: Reader) -> dict[str, int]:
    """Key of a setting -> the table width that it sets."""
    widths: dict[str, int] = {}
    for setting in reader.config.settings:
        name = name_of(setting.path)
        is_width = name in WIDTH_NAMES or name.endswith(("_dim", "_embedding_size"))
        width = positive_number(reader, setting, LARGEST_WIDTH)
        if is_width and width:
            # If a key occurs several times, the first one counts.
            widths.setdefault(name, width)
    return widths


def noun_of_rows(setting: Setting) -> str | None:
    """The noun for a table's rows (`users`) if the setting gives their number; None if it counts
    something else."""
    name = name_of(setting.path)
    parents = [word for word in setting.path[:-1] if isinstance(word, str)]
    parent = parents[-1] if parents else None
    if parent in LISTS:
        return f"{parent}[{name}]"
    if name == "num_embeddings":
        # torch.nn.Embedding and torchrec use this name.
        return parent or "rows"
    key = key_of(setting.path)
    if key is not None and key.role not in ("users", "items"):
        return None
    hit = COUNT_NAME.fullmatch(name)
    if hit is None:
        return None
    noun = str(hit[1] or hit[2])
    counts_no_rows = not NO_ROWS.isdisjoint(noun.split("_"))
    return None if counts_no_rows else noun


def width_of(noun: str, widths: dict[str, int]) -> int | None:
    """The width in a key that is named after the rows (`user_dim` for `users`); None if there is no
    such key."""
    singular = noun.removesuffix("s")
    for ending in ("_dim", "_embedding_dim", "_emb_dim", "_embed_dim", "_embedding_size"):
        for word in (noun, singular):
            name = f"{word}{ending}"
            if name in widths:
                return widths[name]
    return None


def sibling_width(reader: Reader, setting: Setting) -> int | None:
    """The width that is set in the same map as the number of rows; None if there is none."""
    names: tuple[str, ...] = WIDTH_NAMES
    if name_of(setting.path) == "num_embeddings":
        # The map describes a single table, so `dim` is that table's width.
        names = (*WIDTH_NAMES, "dim")
    for name in names:
        path: Path = (*setting.path[:-1], name)
        sibling = reader.by_path.get(path)
        if sibling is not None:
            return positive_number(reader, sibling, LARGEST_WIDTH)
    return None


def note_widths(reader: Reader) -> None:
    """Record that the settings with widths of embedding tables were read."""
    for setting in widths_in(reader):
        reader.note(setting, "width of the embedding tables")


def widths_in(reader: Reader) -> Iterator[Setting]:
    for setting in reader.config.settings:
        if name_of(setting.path) in WIDTH_NAMES:
            yield setting


def positive_number(reader: Reader, setting: Setting, most: int) -> int | None:
    """The whole number from 1 to `most` in a setting; None if the setting is anything else."""
    text = reader.text(setting) or ""
    digits = text.replace("_", "")
    if not re.fullmatch(r"\d{1,13}", digits):
        return None
    value = int(digits)
    return value if 1 <= value <= most else None
