"""Whose config it is, for what changes a batch brings along. Pure.

A trainer counts its steps in micro-batches (each call of the loader) or in updates (each step of
the optimizer); what is counted in updates means the same after another split of one batch.
"""

from __future__ import annotations

from gpusetup.configs.config import Config
from gpusetup.configs.keys import Key, Loop, key_of, of_a_loader, table
from gpusetup.configs.settings import Setting, name_of, names_in
from gpusetup.model.frozen import replace
from gpusetup.plan.trainers import trainer_of

NO_LOADER = "ray"
"""Its `num_workers` are processes of their own, as Dask's are."""


def trainer_in(config: Config) -> Loop | None:
    """The trainer that a config is written for; None for a loop of one's own."""
    names, known = names_in(config.settings), trainer_of(config)
    if known and not names.isdisjoint(table().batches[known].split()):
        return Loop(name=known, steps="updates")
    return next((row for row in table().loops if not names.isdisjoint(row.names.split())), None)


def meant(config: Config) -> tuple[tuple[Setting, Key], ...]:
    """Every setting that a key's row means, as this config's trainer means it."""
    trainer, names = trainer_in(config), names_in(config.settings)
    other = next(row for row in table().loops if row.name == NO_LOADER)
    alone = names.isdisjoint(other.names.split())
    found = []
    for one in config.settings:
        key = key_of(one.path) if one.kind != "map" else None
        if key is None:
            continue
        if trainer and trainer.batch and name_of(one.path) == trainer.batch:
            key = Key(names=trainer.batch, role="batch", source=trainer.source)
        if key.role in ("workers", "pin") and not of_a_loader(one.path, alone=alone):
            key = replace(key, role="not a loader")
        found.append((one, key))
    return tuple(found)
