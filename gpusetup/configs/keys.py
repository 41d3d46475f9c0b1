"""What the keys and values of training configs mean, with their synonyms, from
`data/plan/keys.json`.

A row of `keys` has names as they stand in a config, their role, and whose they are. `under` narrows
names that are common elsewhere (`compile`, `workers`); a row with a narrower `under` comes first.
`added`: next to which key a missing one may be written, by a trainer that is known to read it.
`loops`: trainers by names that only their configs have, and what their steps count. `batches`:
`plan`'s trainers, all of which count updates, by the names of their batch. `words`: what the values
of some roles mean, as transformers, accelerate, Lightning, DeepSpeed, bitsandbytes, torchao, NeMo,
torchtune, litgpt, LLaMA-Factory and verl spell them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from gpusetup.configs.settings import key_name, words_of
from gpusetup.model.codec import from_json
from gpusetup.model.frozen import Frozen

ROWS = Path(__file__).resolve().parents[1] / "data" / "plan" / "keys.json"


class Key(Frozen):
    """Names of a config key that share a role, and the source that documents them."""

    role: str
    names: str
    source: str = ""
    under: str = ""
    """One of these words is the key of a map that it stands in; "" anywhere."""
    directly: bool = False
    """Whether that map is the one it stands in: `model.name`, but not `model.optim.name`."""
    written: bool = True
    """False if the program derives other things from it: then only words."""
    plan: bool = False
    """Whether only `plan` asks for it: it says what memory takes, and `tune` never writes it."""


class Added(Frozen):
    """A key that may be added to a config on a new line, and where."""

    beside: str
    """The key below which it is written."""
    role: str
    name: str
    source: str
    needs: str = ""
    """One of these names in the config shows the trainer that reads it; "" if `beside` does."""


class Loop(Frozen):
    """A trainer, the key names that only its configs have, and what its step counts refer to."""

    name: str
    names: str = ""
    steps: Literal["updates", "unknown"] = "unknown"
    """What a name counts that is in none of the next two: updates of the weights, or micro-batches
    for all that is known."""
    micro: str = ""
    """Names of whole numbers that count micro-batches."""
    updates: str = ""
    batch: str = ""
    """A name that is its batch on one GPU, and something else in other trainers."""
    source: str = ""


class KeyTable(Frozen):
    keys: tuple[Key, ...]
    added: tuple[Added, ...]
    loops: tuple[Loop, ...]
    batches: Mapping[str, str]
    words: Mapping[str, Mapping[str, Any]]
    """Kind -> text in small letters and digits -> what it means."""


@lru_cache(maxsize=1)
def key_table() -> KeyTable:
    """The table of keys, trainers and values, read from the package's data."""
    text = ROWS.read_bytes()
    return from_json(text, KeyTable, what=ROWS.name)


OTHER_PHASES = frozenset((
    "val", "valid", "validate", "validation", "eval", "evaluation", "evaluator", "test", "testing",
    "predict", "prediction", "infer", "inference", "explorer", "generation", "sampling", "serve",
    "serving", "evaluators", "evaluations", "evals", "tests",
))  # fmt: skip
"""A key under one of these words (`val_dataloader`, `cfg.eval`) says nothing about training."""
TRAINING = frozenset(("train", "training", "trainer"))
"""Words that make it a key of the training all the same (`train_test_loader`)."""
NOT_LOADER_MAPS = frozenset((
    "offload_optimizer", "offload_param", "zero_optimization", "aio", "autotuning", "elasticity",
    "flops_profiler", "rollout", "vllm", "ray_init", "preprocessing", "tokenization",
))  # fmt: skip
"""Maps in which a loader's names mean something else (`offload_optimizer.pin_memory`)."""


@lru_cache(maxsize=1)
def _keys_by_name() -> Mapping[str, list[Key]]:
    """Key name -> the rows that contain it, in the table's order."""
    rows: dict[str, list[Key]] = {}
    for row in key_table().keys:
        # The first row that suits counts, so the order stays.
        for name in row.names.split():
            rows_of_name = rows.setdefault(name, [])
            rows_of_name.append(row)
    return rows


def key_of(path: Iterable[str | int]) -> Key | None:
    """The known key at this path of names and list indices in a config; None if it does not affect
    the training.

    >>> key_of(("trainer", "precision")).role, key_of(("buffer", "batch_size")).role
    ('precision', 'rollout-batch')
    >>> key_of(("val_loader", "batch_size")) is None
    True
    >>> key_of(("model", "name")).role, key_of(("model", "optim", "name")) is None
    ('named-model', True)
    """
    words = [key_name(word) for word in path if isinstance(word, str)]
    if not words:
        return None
    *maps, name = words
    if any(map(is_other_phase, maps)):
        return None
    for row in _keys_by_name().get(name, ()):
        nearby_maps = maps[-1:] if row.directly else maps
        # A row with `under` only applies inside of these maps; the next row may apply here.
        if row.under and not _has_word(row.under, nearby_maps):
            continue
        is_no_loaders = not NOT_LOADER_MAPS.isdisjoint(maps)
        if row.role in LOADER_ROLES and is_no_loaders:
            return None
        return row
    return None


def _has_word(words: str, maps: Sequence[str]) -> bool:
    """Whether one of the space-separated words is among the keys of the maps."""
    possible = set(words.split())
    common = possible.intersection(maps)
    return bool(common)


LOADER_ROLES = ("batch", "workers", "pin", "persistent", "prefetch")


def is_other_phase(word: str) -> bool:
    """Whether a key belongs to a phase other than training, such as validation.

    >>> [is_other_phase(key) for key in ("val_dataloader", "validation_ds", "evalLoader")]
    [True, True, True]
    >>> is_other_phase("train_eval_loader"), is_other_phase("value_network")
    (False, False)
    """
    words = words_of(word)
    if words.isdisjoint(OTHER_PHASES):
        return False
    # `train_test_loader` is the training's all the same.
    return words.isdisjoint(TRAINING)


# --- a loader's workers ---------------------------------------------------------------------------

SHARED_NAMES = frozenset(("num_workers", "workers", "n_workers", "pin_memory"))
"""Names that a loader shares with Ray, Dask and others, whose workers are other processes."""
LOADER_MAPS = frozenset((
    "data", "dataset", "datasets", "dataloader", "dataloaders", "datamodule", "loader", "loaders",
    "ds", "input", "inputs", "iterator",
))  # fmt: skip
"""Maps under which they are the loader's."""
NEUTRAL_WORDS = TRAINING | frozenset((
    "arg", "args", "arguments", "base", "cfg", "common", "conf", "config", "configs", "default",
    "defaults", "exp", "experiment", "general", "hparams", "hyperparameters", "hyperparams",
    "init", "kwargs", "main", "optimization", "options", "opts", "parameters", "params", "run",
    "self", "settings", "system",
))  # fmt: skip
"""Words of a map that say nothing about what stands in it."""


def belongs_to_loader(path: Iterable[str | int], without_ray: bool = True) -> bool:
    """Whether a worker setting is about a data loader, rather than about Ray's or other worker
    processes.

    >>> [belongs_to_loader((name, "num_workers")) for name in ("train_loader", "training")]
    [True, True]
    >>> [belongs_to_loader((name, "workers")) for name in ("scaling_config", "data_parallel")]
    [False, False]
    """
    *maps, name = [word for word in path if isinstance(word, str)]
    if name not in SHARED_NAMES:
        return True
    meaningful_maps: list[set[str]] = []
    for map_name in maps:
        words = words_of(map_name) - NEUTRAL_WORDS
        if words:
            meaningful_maps.append(words)
    for words in meaningful_maps:
        if words <= LOADER_MAPS:
            return True
    # Under a map with a meaning they are that map's own workers.
    return without_ray and not meaningful_maps


# --- what values mean -----------------------------------------------------------------------------


def meaning(kind: str, text: str) -> Any:
    """What a text means for a kind of key, regardless of case, dashes and module names; None if it
    is not in the table.

    >>> meaning("optimizer", "bitsandbytes.optim.PagedAdamW8bit"), meaning("dtype", "auto")
    ('paged-adamw8bit', None)
    >>> meaning("strategy", "FULL_SHARD"), meaning("precision", "bf16-mixed")
    ('fsdp1', ['fp32', 'bf16'])
    """
    # What stands before the last point is a module.
    _, _, last_name = text.lower().rpartition(".")
    letters = re.sub(r"[^a-z0-9]", "", last_name)
    meanings = key_table().words[kind]
    return meanings.get(letters)


def optimizer_named(text: str) -> str:
    """The name that plan uses for an optimizer which other programs call differently; an unknown
    name is returned unchanged.

    >>> optimizer_named("adamw_torch_fused"), optimizer_named("adamw8bit")
    ('adamw', 'adamw8bit')
    """
    name = meaning("optimizer", text)
    # A name that no table has is refused later, with those that there are.
    if name is None:
        return text
    return str(name)


def strategy_named(text: str) -> str:
    """The name that plan uses for a strategy which FSDP or DeepSpeed call differently.

    >>> strategy_named("FULL_SHARD"), strategy_named("zero-3"), strategy_named("ddp")
    ('fsdp1', 'zero3', 'ddp')
    """
    name = meaning("strategy", text)
    if name is not None:
        return str(name)
    return text.lower().replace("_", "-")
