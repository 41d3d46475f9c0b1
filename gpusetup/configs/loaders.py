"""Whether a name that many programs have (`num_workers`) is a data loader's. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from gpusetup.configs.keys import TRAINING
from gpusetup.configs.settings import words_of

ANY_PROGRAMS = frozenset(("num_workers", "workers", "n_workers", "pin_memory"))
"""Names that a loader shares with Ray, Dask and others, whose workers are other processes."""
LOADERS = frozenset((
    "data", "dataset", "datasets", "dataloader", "dataloaders", "datamodule", "loader", "loaders",
    "ds", "input", "inputs", "iterator",
))  # fmt: skip
"""Maps under which they are the loader's."""
NEUTRAL = TRAINING | frozenset((
    "arg", "args", "arguments", "base", "cfg", "common", "conf", "config", "configs", "default",
    "defaults", "exp", "experiment", "general", "hparams", "hyperparameters", "hyperparams",
    "init", "kwargs", "main", "optimization", "options", "opts", "parameters", "params", "run",
    "self", "settings", "system",
))  # fmt: skip
"""Words of a map that say nothing about what stands in it."""


def of_a_loader(path: Iterable[str | int], *, alone: bool = True) -> bool:
    """Whether workers that stand there are a loader's: below one, or `alone` in no map with a
    meaning.

    >>> of_a_loader(("train_loader", "num_workers")), of_a_loader(("training", "num_workers"))
    (True, True)
    >>> of_a_loader(("scaling_config", "num_workers")), of_a_loader(("data_parallel", "workers"))
    (False, False)
    """
    words = [word for word in path if isinstance(word, str)]
    if words[-1] not in ANY_PROGRAMS:
        return True
    parents = [words_of(word) - NEUTRAL for word in words[:-1]]
    return (alone and not any(parents)) or any(parent and parent <= LOADERS for parent in parents)
