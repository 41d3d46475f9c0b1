"""Embedding tables beside a model: users, items, categories, each with its rows and their width.

A recommender's tables are often larger than its network. They are weights like all others: trained,
they have gradients and the optimizer's states too.
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
"""Beyond these a number is a slip of the finger."""


class Table(Frozen):
    """One embedding table."""

    name: str
    """What its rows are: `users`."""
    rows: int
    width: int

    @property
    def parameters(self) -> int:
        return self.rows * self.width

    def __str__(self) -> str:
        """
        >>> str(Table(name="users", rows=6040, width=64))
        'users 6,040 x 64'
        """
        return f"{self.name} {self.rows:,} x {self.width:,}".lstrip()


def table_named(text: str) -> Table:
    """A table as an option says it: `20000000x64`, or with a name, `users=20000000x64`.

    >>> table_named("users=20_000_000x64").parameters
    1280000000
    """
    hit = re.fullmatch(r"(?:([\w-]{1,40})=)?([\d_,]{1,16})\s*[xX*]\s*(\d{1,7})", text.strip())
    digits = re.sub(r"[_,]", "", hit[2]) if hit else ""
    if hit is None or not digits:
        raise UsageError(
            f"{text!r} is no embedding table", hint="rows x width: `--embedding users=6040x64`"
        )
    table = Table(name=hit[1] or "", rows=int(digits), width=int(hit[3]))
    if not (1 <= table.rows <= LARGEST_ROWS and 1 <= table.width <= LARGEST_WIDTH):
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
"""Keys with the width of a row, as recommenders' configs name it."""
COUNT_NAME = re.compile(
    r"(?:n|num|number_of)_([a-z_]+)|([a-z_]+?)_(?:num|count|cardinality|vocab_size|num_embeddings)"
)
"""`n_users`, `num_items`, `user_count`, `category_cardinality`: the noun is what the rows are."""
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
"""Words of what a config counts and keeps no table of: layers, steps, samples, machines. A language
model's own vocabulary is counted with the model."""
LISTS = frozenset((
    "num_embeddings_per_feature", "cardinalities", "cat_cardinalities", "categorical_cardinalities",
    "field_dims", "embedding_sizes", "feature_cardinalities",
))  # fmt: skip
"""Keys of a list with the rows of each table (torchrec's DLRM, FuxiCTR, tabular models)."""


def tables_in(reader: Reader) -> tuple[Table, ...]:
    """The tables that a config describes; each setting that says one is marked as read."""
    widths: dict[str, int] = {}
    for setting in reader.config.settings:
        name = name_of(setting.path)
        width = positive_number(reader, setting, LARGEST_WIDTH)
        if width and (name in WIDTH_NAMES or name.endswith(("_dim", "_embedding_size"))):
            widths.setdefault(name, width)
    shared_width = next((widths[name] for name in WIDTH_NAMES if name in widths), None)
    tables: list[Table] = []
    for setting in reader.config.settings:
        rows = positive_number(reader, setting, LARGEST_ROWS)
        what = what_rows_are(setting) if rows else None
        if rows is None or what is None:
            continue
        width = width_of(what, widths) or sibling_width(reader, setting) or shared_width
        if width:
            table = Table(name=what, rows=rows, width=width)
            tables.append(table)
            reader.note(setting, f"embedding table: {table}")
    if tables:
        note_widths(reader)
    return tuple(tables)


def what_rows_are(setting: Setting) -> str | None:
    """The noun of a setting that counts the rows of a table; None if it counts something else."""
    name = name_of(setting.path)
    parents = [word for word in setting.path[:-1] if isinstance(word, str)]
    if parents and parents[-1] in LISTS:  # an item of a list of tables
        return f"{parents[-1]}[{name}]"
    if name == "num_embeddings":  # torch.nn.Embedding's and torchrec's own word
        return parents[-1] if parents else "rows"
    key = key_of(setting.path)
    has_other_role = key is not None and key.role not in ("users", "items")
    counted = COUNT_NAME.fullmatch(name)
    if counted is None or has_other_role:
        return None
    noun = str(counted[1] or counted[2])
    return None if NO_ROWS & set(noun.split("_")) else noun


def width_of(noun: str, widths: dict[str, int]) -> int | None:
    """The width that is named after the rows: `user_dim`, `user_embedding_dim` for `users`."""
    singular = noun.removesuffix("s")
    for ending in ("_dim", "_embedding_dim", "_emb_dim", "_embed_dim", "_embedding_size"):
        for word in (noun, singular):
            if f"{word}{ending}" in widths:
                return widths[f"{word}{ending}"]
    return None


def sibling_width(reader: Reader, setting: Setting) -> int | None:
    """The width that stands in the same map, which may have a short name beside its rows."""
    is_own_map = name_of(setting.path) == "num_embeddings"
    for name in (*WIDTH_NAMES, "dim") if is_own_map else WIDTH_NAMES:
        path: Path = (*setting.path[:-1], name)
        sibling = reader.by_path.get(path)
        if sibling is not None:
            return positive_number(reader, sibling, LARGEST_WIDTH)
    return None


def note_widths(reader: Reader) -> None:
    """Mark the widths of rows as read."""
    for setting in widths_in(reader):
        reader.note(setting, "width of the embedding tables")


def widths_in(reader: Reader) -> Iterator[Setting]:
    for setting in reader.config.settings:
        if name_of(setting.path) in WIDTH_NAMES:
            yield setting


def positive_number(reader: Reader, setting: Setting, most: int) -> int | None:
    """A whole number from 1 to `most`; None for anything else."""
    text = (reader.text(setting) or "").replace("_", "")
    if not re.fullmatch(r"\d{1,13}", text):
        return None
    value = int(text)
    return value if 1 <= value <= most else None
