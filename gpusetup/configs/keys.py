"""What the keys and values of training configs mean, with their synonyms, from
`data/plan/keys.json`.

The file has the parts `keys`, `added`, `ray`, `batches` and `words`. A row of `keys` has the
names of a setting in configs, their role and the source. `under` limits names that are common
elsewhere (`compile`, `workers`) to certain maps; rows with a narrower `under` come first. `added`
lists keys that may be added to a config, the key below which each is written, and names that show
that its trainer reads it. `ray` lists names that only configs of Ray and Dask have. `batches` lists
the trainers that `plan` knows, all of which count updates, with the names of their batch. `words`
gives the meaning of values for some roles.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpusetup.configs.config import Config
from gpusetup.configs.settings import EMPTY, FALSE, names_in, unquoted, words_of
from gpusetup.model.codec import from_json
from gpusetup.model.frozen import Frozen

ROWS = Path(__file__).resolve().parents[1] / "data" / "plan" / "keys.json"
COSTLESS = ROWS.with_name("costless_keys.json")


class Key(Frozen):
    """Names of a config key that share a role, and the source that documents them."""

    role: str
    names: str
    source: str = ""
    under: str = ""
    """The key must be inside a map with one of these names; "" allows any place."""
    directly: bool = False
    """Whether the key must be directly inside that map: `model.name`, but not
    `model.optim.name`."""
    written: bool = True
    """Whether `tune` may change the key; False if the trainer derives other settings from the key,
    so that `tune` only gives advice."""
    plan: bool = False
    """Whether only `plan` uses the key, to estimate memory; `tune` ignores it."""


class Added(Frozen):
    """A key that may be added to a config on a new line, and where."""

    below: str
    """The existing key below which the new key is written."""
    role: str
    name: str
    source: str
    needs: str = ""
    """Names which show that the config's trainer reads the key; one of them is enough. "" if
    `below` already shows it."""


class KeyTable(Frozen):
    keys: tuple[Key, ...]
    added: tuple[Added, ...]
    ray: Mapping[str, str]
    batches: Mapping[str, str]
    words: Mapping[str, Mapping[str, Any]]
    """Kind of value -> its text in lower-case letters and digits -> its meaning."""


@lru_cache(maxsize=1)
def key_table() -> KeyTable:
    """The table of keys, trainers and values, read from the package's data."""
    return from_json(ROWS.read_bytes(), KeyTable, what=ROWS.name)


OTHER_PHASES = frozenset((
    "val", "valid", "validate", "validation", "eval", "evaluation", "evaluator", "test", "testing",
    "predict", "prediction", "infer", "inference", "explorer", "generation", "sampling", "serve",
    "serving", "evaluators", "evaluations", "evals", "tests",
))  # fmt: skip
"""A key in a map with one of these words (`val_dataloader`, `cfg.eval`) is not about training."""
TRAINING = frozenset(("train", "training", "trainer"))
"""Words which show that a map is about training after all (`train_test_loader`)."""
NOT_LOADER_MAPS = frozenset((
    "offload_optimizer", "offload_param", "zero_optimization", "aio", "autotuning", "elasticity",
    "flops_profiler", "rollout", "vllm", "ray_init", "preprocessing", "tokenization",
))  # fmt: skip
"""Maps in which names of loader settings mean something else (`offload_optimizer.pin_memory`)."""

LOADER_ROLES = ("batch", "workers", "pin", "persistent", "prefetch")


@lru_cache(maxsize=1)
def _keys_by_name() -> Mapping[str, list[Key]]:
    """Key name -> the rows that contain it, in the table's order."""
    rows: dict[str, list[Key]] = {}
    for row in key_table().keys:
        for name in row.names.split():
            rows.setdefault(name, []).append(row)
    return rows


def key_of(path: Iterable[str | int]) -> Key | None:
    """The known key at this path of names and list indices in a config; None if the key is unknown
    or does not affect the training.

    >>> key_of(("trainer", "precision")).role, key_of(("buffer", "batch_size")).role
    ('precision', 'rollout-batch')
    >>> key_of(("val_loader", "batch_size")) is None
    True
    >>> key_of(("model", "name")).role, key_of(("model", "optim", "name")) is None
    ('named-model', True)
    """
    words = [word for word in path if isinstance(word, str)]
    if not words or any(map(is_other_phase, words[:-1])):
        return None
    *maps, name = words
    for row in _keys_by_name().get(name, ()):
        # A row with `under` only applies inside these maps; a later row may still apply.
        nearby_maps = maps[-1:] if row.directly else maps
        if row.under and set(row.under.split()).isdisjoint(nearby_maps):
            continue
        is_in_other_map = not NOT_LOADER_MAPS.isdisjoint(maps)
        return None if row.role in LOADER_ROLES and is_in_other_map else row
    return None


def is_other_phase(word: str) -> bool:
    """Whether a key belongs to a phase other than training, such as validation.

    >>> [is_other_phase(key) for key in ("val_dataloader", "validation_ds", "evalLoader")]
    [True, True, True]
    >>> is_other_phase("train_eval_loader"), is_other_phase("value_network")
    (False, False)
    """
    words = words_of(word)
    # `train_test_loader` still belongs to training.
    return not words.isdisjoint(OTHER_PHASES) and words.isdisjoint(TRAINING)


# --- a loader's workers ---------------------------------------------------------------------------

SHARED_NAMES = frozenset(("num_workers", "workers", "n_workers", "pin_memory"))
"""Names that data loaders share with Ray, Dask and others, whose workers are other processes."""
LOADER_MAPS = frozenset((
    "data", "dataset", "datasets", "dataloader", "dataloaders", "datamodule", "loader", "loaders",
    "ds", "input", "inputs", "iterator",
))  # fmt: skip
"""Words of maps in which these names belong to a data loader."""
NEUTRAL_WORDS = TRAINING | frozenset((
    "arg", "args", "arguments", "base", "cfg", "common", "conf", "config", "configs", "default",
    "defaults", "exp", "experiment", "general", "hparams", "hyperparameters", "hyperparams",
    "init", "kwargs", "main", "optimization", "options", "opts", "parameters", "params", "run",
    "self", "settings", "system",
))  # fmt: skip
"""Words in a map's name that say nothing about what the map contains."""


def belongs_to_loader(path: Iterable[str | int], without_ray: bool = True) -> bool:
    """Whether a worker setting is about a data loader, rather than about Ray's or other worker
    processes. `without_ray`: whether the config has no names that only Ray or Dask have.

    >>> [belongs_to_loader((name, "num_workers")) for name in ("train_loader", "training")]
    [True, True]
    >>> [belongs_to_loader((name, "workers")) for name in ("scaling_config", "data_parallel")]
    [False, False]
    """
    *maps, name = [word for word in path if isinstance(word, str)]
    if name not in SHARED_NAMES:
        return True
    words = [words_of(map_name) - NEUTRAL_WORDS for map_name in maps]
    meaningful = [words_of_map for words_of_map in words if words_of_map]
    if not meaningful:
        return without_ray
    # In maps with only other meaningful names, the workers are not a loader's.
    return any(words_of_map <= LOADER_MAPS for words_of_map in meaningful)


def meaning(kind: str, text: str) -> Any:
    """What a text means for a kind of key, regardless of case, dashes and module names; None if it
    is not in the table.

    >>> meaning("optimizer", "bitsandbytes.optim.PagedAdamW8bit"), meaning("dtype", "auto")
    ('paged-adamw8bit', None)
    >>> meaning("strategy", "FULL_SHARD"), meaning("precision", "bf16-mixed")
    ('fsdp1', ['fp32', 'bf16'])
    """
    # The part before the last dot is a module name.
    letters = re.sub(r"[^a-z0-9]", "", text.lower().rpartition(".")[2])
    return key_table().words[kind].get(letters)


def name_in_plan(kind: str) -> Callable[[str], str]:
    """A function from the name that other programs use for an optimizer or a strategy to that of
    plan. It returns an unknown name unchanged, so that the error can list the known ones.

    >>> name_in_plan("optimizer")("adamw_torch_fused"), name_in_plan("optimizer")("adamw8bit")
    ('adamw', 'adamw8bit')
    >>> name_in_plan("strategy")("FULL_SHARD"), name_in_plan("strategy")("zero-3")
    ('fsdp1', 'zero3')
    """
    return lambda text: str(meaning(kind, text) or text)


@lru_cache(maxsize=1)
def costless_keys() -> Mapping[str, frozenset[str]]:
    """The keys that need no GPU memory, from the package's data.

    `roles` (as in `keys.json`); `purposes`: words that, at the start of a key, tell its purpose
    whatever follows (`save_adapter_weights_only`); `maps`, whose keys never need GPU memory; full
    `names` of keys; and `words` that do not refer to GPU memory. Words that sometimes do are left
    out: `model`, `reward`, `quant`, `bits`, `generations`, `expert`, `ema`, `lora`, `size`.
    """
    table = from_json(COSTLESS.read_bytes(), dict[str, Any], what=COSTLESS.name)
    return {
        field: frozenset(" ".join(table[field]).split())
        for field in ("roles", "purposes", "maps", "names", "words")
    }


OFF = frozenset((*FALSE, *EMPTY, "0", "0.0", "none", "no", "disabled", "-1"))
"""Values that switch a key off."""


def is_switched_off(text: str) -> bool:
    """Whether a value switches its key off, such as `false`, `0` or `none`."""
    return text.strip().strip("'\"").lower() in OFF


def takes_no_memory(path: Sequence[str | int]) -> bool:
    """Whether a key is known not to need GPU memory: every word of its name is harmless
    (`output_dir`, `logging_steps`), or it is in a map about data, logging or the like. If plan does
    not understand a key and this function does not know it either, the plan is not certain.

    >>> takes_no_memory(("output_dir",)), takes_no_memory(("data", "frames"))
    (True, True)
    >>> takes_no_memory(("reward_model_path",)), takes_no_memory(("use_galore",))
    (False, False)
    """
    parts = [part for part in path if isinstance(part, str)]
    # Evaluation has a separate batch and no gradients.
    if not parts or any(map(is_other_phase, parts)):
        return True
    *maps, name = (part.lower().replace("-", "_").lstrip("_") for part in parts)
    costless = costless_keys()
    if name in costless["names"] or not costless["maps"].isdisjoint(maps):
        return True
    key = key_of(path)
    if key is not None and key.role in costless["roles"]:
        return True
    if name.partition("_")[0] in costless["purposes"]:
        return True
    # A name without words, such as a number, does not show what the key is for.
    words = words_of(name)
    return bool(words) and words <= costless["words"]


TRAINER_KEYS = (
    ("trinity", "trainer_type trainer_config algorithm_type explorer max_prompt_tokens "
                "max_response_tokens"),
    ("verl", "actor_rollout_ref"),
    ("trinity", "use_dynamic_bsz"),
    ("llama-factory", "finetuning_type cutoff_len"),
    ("axolotl", "base_model sequence_len"),
    ("unsloth", "use_gradient_checkpointing use_rslora"),
    ("litgpt", "checkpoint_dir lora_query lora_mlp"),
    ("hf", "do_train mlm_probability preprocessing_num_workers dataset_config_name "
           "max_train_samples max_source_length validation_split_percentage"),
    ("trl", "use_peft packing dataset_text_field assistant_only_loss completion_only_loss "
            "dataset_train_split dataset_test_split num_generations num_ppo_epochs"),
    ("hf", "per_device_train_batch_size train_micro_batch_size_per_gpu zero_optimization "
           "model_name_or_path"),
)  # fmt: skip
"""The trainers in the order in which they are tried, each with names that only this trainer reads;
one of them is enough to recognise it. Common names, such as `max_length` and `dataset_name`, occur
in configs of many trainers. transformers comes last, because the others build on it; the keys that
only its own example scripts read come before TRL's. Trinity-RFT trains with verl, so its configs
also have verl's keys."""


def trainer_of(config: Config) -> str | None:
    """The name of the config's trainer as in `plan --trainer`; None if no known trainer is
    recognised.

    >>> from gpusetup.configs.config import read_config
    >>> trainer_of(read_config(b"model_name_or_path: bert-base-uncased", "c.yaml"))
    'hf'
    >>> trainer_of(read_config(b"model: Qwen/Qwen3-4B\\npacking: true", "c.yaml"))
    'trl'
    """
    # torchtune names the class of each component, such as `torchtune.models.llama3`.
    if any(
        setting.path[-1:] == ("_component_",) and unquoted(setting.text).startswith("torchtune.")
        for setting in config.settings
    ):
        return "torchtune"
    names = names_in(config.settings)
    return next((trainer for trainer, own in TRAINER_KEYS if names.intersection(own.split())), None)
