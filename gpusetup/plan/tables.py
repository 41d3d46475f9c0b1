"""Embedding tables that are trained in addition to a model, such as one for users and one for
items.

A recommender's tables are often larger than its network. Like other trained weights, they need
gradients and optimizer states.
"""

from __future__ import annotations

import re

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
    digits = re.sub(r"[_,]", "", rows)
    table = EmbeddingTable(name=name or "", rows=int(digits), width=int(width))
    if not 1 <= table.rows <= LARGEST_ROWS or not 1 <= table.width <= LARGEST_WIDTH:
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
    widths: dict[Path, int] = {}
    by_name: dict[str, int] = {}
    for setting in reader.config.settings:
        name = name_of(setting.path)
        width = positive_number(reader, setting, LARGEST_WIDTH)
        if width and (name in WIDTH_NAMES or name.endswith("dim")):
            widths[setting.path] = width
            by_name.setdefault(name, width)
    shared_width = next((by_name[name] for name in WIDTH_NAMES if name in by_name), None)
    tables: list[EmbeddingTable] = []
    for setting in reader.config.settings:
        rows = positive_number(reader, setting, LARGEST_ROWS)
        noun = noun_of_rows(setting)
        if rows is None or noun is None:
            continue
        # The closest width counts: one for the same noun (`user_dim`), one in the same map, or one
        # anywhere in the config.
        singular = noun.removesuffix("s")
        own = (f"{word}{end}" for word in (noun, singular) for end in ("_dim", "_embedding_dim"))
        beside = ((*setting.path[:-1], name) for name in (*WIDTH_NAMES, "dim"))
        width = next((by_name[name] for name in own if name in by_name), None)
        width = width or next((widths[path] for path in beside if path in widths), shared_width)
        if width:
            table = EmbeddingTable(name=noun, rows=rows, width=width)
            tables.append(table)
            reader.note(setting, f"embedding table: {table}")
    for setting in reader.config.settings if tables else ():
        if name_of(setting.path) in WIDTH_NAMES:
            reader.note(setting, "width of the embedding tables")
    return tuple(tables)


def noun_of_rows(setting: Setting) -> str | None:
    """The noun for a table's rows (`users`) if the setting gives their number; None if it counts
    something else."""
    name = name_of(setting.path)
    parents = [word for word in setting.path[:-1] if isinstance(word, str)]
    parent = parents[-1] if parents else "rows"
    if parent in LISTS:
        return f"{parent}[{name}]"
    if name == "num_embeddings":
        # torch.nn.Embedding and torchrec use this name.
        return parent
    key = key_of(setting.path)
    hit = COUNT_NAME.fullmatch(name)
    if hit is None or (key is not None and key.role not in ("users", "items")):
        return None
    noun = str(hit[1] or hit[2])
    return noun if NO_ROWS.isdisjoint(noun.split("_")) else None


def positive_number(reader: Reader, setting: Setting, most: int) -> int | None:
    """The whole number from 1 to `most` in a setting; None if the setting is anything else."""
    digits = (reader.text(setting) or "").replace("_", "")
    if not re.fullmatch(r"\d{1,13}", digits):
        return None
    return int(digits) if 1 <= int(digits) <= most else None
