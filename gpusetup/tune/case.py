"""A config on a machine: what the rules look at, and what they answer with. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from gpusetup.configs.config import Config, Edit, added_line, replacement
from gpusetup.configs.keys import Key, Loop, belongs_to_loader, key_of, key_table
from gpusetup.configs.settings import (
    Setting,
    dotted,
    name_of,
    names_in,
    value_of,
)
from gpusetup.configs.trainer import trainer_of
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Snapshot, visible_gpus
from gpusetup.plan.place import Place, System, place_of
from gpusetup.tune.answer import TuneChange


class Facts(Frozen):
    """The facts of a machine that the rules ask for."""

    gpu: str | None = None
    gpus: int = 0
    memory_bytes: int | None = None
    """Of the smallest visible GPU."""
    capability: tuple[int, int] | None = None
    cores: int | None = None
    ram_bytes: int | None = None
    shm_bytes: int | None = None
    family: str | None = None
    wsl: bool = False
    jetson: bool = False

    @property
    def card(self) -> Place | None:
        """The smallest GPU, as `plan` asks for it."""
        if not self.memory_bytes:
            return None
        system: System = "windows" if self.family != "linux" else "wsl" if self.wsl else "linux"
        return replace(place_of(self.gpu, self.memory_bytes), count=self.gpus, system=system)


class Measured(Frozen):
    """What was measured on this machine."""

    batch_size: int | None = None
    """The largest (or fastest) batch on one GPU that ran."""
    is_faster: Mapping[str, bool] = {}
    """Whether `amp` and `compile` were faster; absent: not measured."""
    interrupted: bool = False
    """Whether measuring was interrupted: then only what was measured is written."""


class Proposed(Frozen):
    """One change, and the edit of the text that makes it."""

    change: TuneChange
    edit: Edit


class Proposal(Frozen):
    changes: tuple[TuneChange, ...] = ()
    edits: tuple[Edit, ...] = ()
    words: tuple[str, ...] = ()
    cannot_fit: str | None = None
    """What to say first: not even one sample of the model fits on this card."""


MEASURED = "measured on this machine"
KeyedSetting = tuple[Setting, Key]


class DoesNotFit(str):
    """Why the run as the config has it is too large for this card: nothing is proposed then."""


Suggestion = Proposed | str


def facts_of(snapshot: Snapshot) -> Facts:
    """The machine's facts, over the GPUs that a program would see."""
    gpus = visible_gpus(snapshot)
    capabilities = [gpu.compute_capability for gpu in gpus if gpu.compute_capability]
    memory = snapshot.memory
    ram = [size for size in (memory.available_bytes, memory.cgroup_limit_bytes) if size]
    return Facts(
        gpu=gpus[0].name if gpus else None,
        gpus=len(gpus),
        memory_bytes=min(filter(None, (gpu.memory_total_bytes for gpu in gpus)), default=None),
        capability=min(((one.major, one.minor) for one in capabilities), default=None),
        cores=snapshot.cpu.usable_cores or snapshot.cpu.logical_cores,
        ram_bytes=min(ram, default=memory.total_bytes),
        shm_bytes=memory.shm_total_bytes,
        family=snapshot.os.family,
        wsl=bool(snapshot.os.wsl),
        jetson=snapshot.os.jetson is not None,
    )


class Case(Frozen):
    """A config, read, on a machine."""

    config: Config
    facts: Facts
    measured: Measured
    keyed: tuple[KeyedSetting, ...]
    tuned: Config | None = None
    """The config once everything but its batch is changed."""
    fixed_by: str | None = None
    """Why another file holds the batch and the precision too, as a sentence."""

    def with_role(self, *roles: str) -> list[Setting]:
        return [setting for setting, key in self.keyed if key.role in roles]

    def with_name(self, *names: str) -> Iterator[Setting]:
        return (one for one in self.config.settings if name_of(one.path) in names)


def config_word(case: Case) -> str:
    """The config's file as a command names it."""
    return shlex.quote(case.config.name)


def label(setting: Setting) -> str:
    return f"{dotted(setting.path)} (line {setting.line})"


class Why(Frozen):
    """A reason for a value, and where it comes from."""

    reason: str
    source: str


def change_value(case: Case, setting: Setting, value: str, why: Why) -> Iterator[Suggestion]:
    """The change of one setting, or words if its place does not allow it."""
    edit = replacement(case.config, setting, value)
    if edit is None:
        odd = (
            "used in several places through a YAML anchor"
            if setting.shared
            else "not a plain value"
        )
        yield f"{label(setting)} is {odd}: set it to {value} by hand; {why.reason}"
    elif edit.value != setting.text:
        yield _proposed(edit, setting, value, why)


def _proposed(edit: Edit, at: Setting, value: str, why: Why) -> Proposed:
    added = edit.start == edit.end
    return Proposed(
        edit=edit,
        change=TuneChange(
            key=dotted(edit.path),
            line=at.line,
            before=None if added else value_of(at),
            after=int(value) if value.isdigit() else value == "true" or value,
            reason=why.reason,
            source=why.source,
            added=added,
        ),
    )


def add_key(case: Case, role: str, value: str, why: Why) -> list[Suggestion]:
    """A missing key, where the config is of a family that is known to read it."""
    rows = [] if case.with_role(role) else [row for row in key_table().added if row.role == role]
    for row in rows:
        for setting in case.with_name(row.beside):
            known = not row.needs or any(case.with_name(*row.needs.split()))
            if not known or key_of(setting.path) is None or setting.path[-1] != row.beside:
                continue  # also of `--batch-size`, whose neighbours are spelled in another way
            if edit := added_line(case.config, setting, row.name, value):
                return [_proposed(edit, setting, value, replace(why, source=row.source))]
    return []


def not_a_number(setting: Setting) -> str:
    alias = setting.kind == "alias" or setting.shared
    text = "shared through an anchor" if alias else setting.text or f"a {setting.kind}"
    return f"{label(setting)} is {text}, not a plain number, so it stays as it is"


# --- whose config it is -------------------------------------------------------------------------

# A trainer counts its steps in micro-batches (each call of the loader) or in updates (each step of
# the optimizer); what is counted in updates means the same after another split of one batch.

RAY = "ray"
"""The row of trainers whose `num_workers` are no loader's (Ray, Dask)."""


def trainer_in(config: Config) -> Loop | None:
    """The trainer that a config is written for; None for a loop of one's own."""
    names, known = names_in(config.settings), trainer_of(config)
    if known and not names.isdisjoint(key_table().batches[known].split()):
        return Loop(name=known, steps="updates")
    return next((row for row in key_table().loops if not names.isdisjoint(row.names.split())), None)


def known_settings(config: Config) -> tuple[tuple[Setting, Key], ...]:
    """Every setting that a key's row means, as this config's trainer means it."""
    trainer, names = trainer_in(config), names_in(config.settings)
    ray = next(row for row in key_table().loops if row.name == RAY)
    without_ray = names.isdisjoint(ray.names.split())
    keyed = []
    for one in config.settings:
        key = key_of(one.path) if one.kind != "map" else None
        if key is None:
            continue
        if trainer and trainer.batch and name_of(one.path) == trainer.batch:
            key = Key(names=trainer.batch, role="batch", source=trainer.source)
        if key.role in ("workers", "pin") and not belongs_to_loader(one.path, without_ray):
            key = replace(key, role="not a loader")
        keyed.append((one, key))
    return tuple(keyed)
