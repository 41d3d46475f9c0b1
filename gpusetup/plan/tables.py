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
LISTS = frozenset((
    "num_embeddings_per_feature", "cardinalities", "cat_cardinalities", "categorical_cardinalities",
    "field_dims", "embedding_sizes", "feature_cardinalities",
))  # fmt: skip
"""Keys of lists that give the number of rows of each table (torchrec's DLRM, FuxiCTR, tabular
models)."""


def tables_in(reader: Reader) -> tuple[EmbeddingTable, ...]:
    """The embedding tables that a config describes: of users and of items (by their role), and
    torch's `num_embeddings`, alone or in a list. Their settings are recorded as read."""
    widths: dict[Path, int] = {}
    by_name: dict[str, int] = {}
    for setting in reader.config.settings:
        name = name_of(setting.path)
        width = positive_number(reader, setting, LARGEST_WIDTH)
        if width and (name in WIDTH_NAMES or name.endswith("dim")):
            widths[setting.path] = width
            by_name.setdefault(name, width)
    shared = [by_name[name] for name in WIDTH_NAMES if name in by_name]
    tables: list[EmbeddingTable] = []
    for setting in reader.config.settings:
        rows = positive_number(reader, setting, LARGEST_ROWS)
        noun = noun_of_rows(setting)
        if rows is None or noun is None:
            continue
        # The closest width counts: one for the same noun (`user_dim`), one in the same map, or one
        # anywhere in the config.
        words = (noun, noun.removesuffix("s"))
        own = [f"{word}{end}" for word in words for end in ("_dim", "_embedding_dim")]
        beside = [(*setting.path[:-1], name) for name in (*WIDTH_NAMES, "dim")]
        possible = [by_name.get(name) for name in own] + [widths.get(path) for path in beside]
        width = next(filter(None, (*possible, *shared)), None)
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
