"""A config together with the facts about its machine, in the form that the rules need. Pure
functions."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress

from gpusetup.catalog.builds import completed_from_catalog
from gpusetup.catalog.file import load_catalog
from gpusetup.configs.config import Config, Edit, added_line, replacement
from gpusetup.configs.keys import Key, belongs_to_loader, key_of, key_table
from gpusetup.configs.settings import (
    Setting,
    dotted,
    name_of,
    names_in,
    switch_value,
    unquoted,
    value_of,
)
from gpusetup.errors import UsageError
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Snapshot, visible_gpus
from gpusetup.model.versions import Capability
from gpusetup.plan.place import Place, count_in_name, named_gpu, place_of_machine
from gpusetup.tune.answer import TuneChange


class Facts(Frozen):
    """The facts about a machine that the rules use, for the GPUs that a program sees."""

    gpu: str | None = None
    """The name of the GPU with the least memory."""
    gpus: int = 0
    where: str = ""
    """The end of a sentence about measuring, if the user named a GPU: where to measure."""
    card: Place | None = None
    """The GPUs in the form that `plan` needs; None if there is none or its memory is unknown."""
    cores: int | None = None
    ram_bytes: int | None = None
    family: str | None = None

    @property
    def capability(self) -> Capability | None:
        """The lowest compute capability of the GPUs; None if unknown."""
        return self.card.capability if self.card else None

    @property
    def memory_bytes(self) -> int | None:
        """The memory of the smallest GPU; None if unknown."""
        return int(self.card.total_bytes) if self.card else None


def facts_of(snapshot: Snapshot) -> Facts:
    """The facts that a snapshot of a machine gives, completed from the catalog of GPUs."""
    snapshot = completed_from_catalog(snapshot, load_catalog())
    gpus, card = visible_gpus(snapshot), None
    # If the memory size is unknown, the advice that does not need it is still right.
    with suppress(UsageError):
        card = place_of_machine(snapshot) if gpus else None
    memory = snapshot.memory
    ram_limits = [size for size in (memory.available_bytes, memory.cgroup_limit_bytes) if size]
    return Facts(
        gpu=card.gpu if card else next((gpu.name for gpu in gpus), None),
        gpus=len(gpus),
        card=card,
        cores=snapshot.cpu.usable_cores or snapshot.cpu.logical_cores,
        ram_bytes=min(ram_limits, default=memory.total_bytes),
        family=snapshot.os.family,
    )


def with_card(facts: Facts, text: str) -> Facts:
    """The facts with the NVIDIA GPUs that the text names (`RTX 4090`, `8x H100`) instead of the
    machine's own; UsageError if the catalog has no such card."""
    count, name = count_in_name(text)
    card = replace(named_gpu(name, load_catalog().gpus), count=count or 1)
    where = " on a machine with this GPU"
    return replace(facts, gpu=card.gpu, gpus=count or 1, card=card, where=where)


class Measured(Frozen):
    """The results of measurements on this machine."""

    batch_size: int | None = None
    """The largest batch on one GPU that ran; for the table, the fastest."""
    is_faster: Mapping[str, bool] = {}
    """Name of a change (`amp`, `workers`, `compile`) -> whether it was faster; without an entry if
    it was not measured."""


MEASURED = "measured on this machine"


class Proposed(Frozen):
    """A proposed change of a setting, and the text edit that makes it."""

    change: TuneChange
    edit: Edit


Suggestion = Proposed | str
"""What a rule yields; a text is advice that is only printed."""


class Proposal(Frozen):
    changes: tuple[TuneChange, ...] = ()
    edits: tuple[Edit, ...] = ()
    words: tuple[str, ...] = ()
    cannot_fit: str | None = None


class ConfigCase(Frozen):
    """A config, the facts about the machine, and what was measured there."""

    config: Config
    facts: Facts
    measured: Measured
    keyed: tuple[tuple[Setting, Key], ...]
    """The settings that `tune` knows, each with its key's meaning."""
    tuned: Config | None = None
    """The config after all changes except those of the batch."""
    fixed_by: str | None = None
    """Why another file also sets the batch and the precision; None if none does."""

    @property
    def file(self) -> str:
        """The config's file name, quoted as a command-line argument."""
        return shlex.quote(self.config.name)

    def with_role(self, *roles: str) -> list[Setting]:
        """The settings with one of these roles, in the file's order."""
        return [setting for setting, key in self.keyed if key.role in roles]

    def with_name(self, *names: str) -> Iterator[Setting]:
        """The settings with one of these key names, in the file's order."""
        return (setting for setting in self.config.settings if name_of(setting.path) in names)


def label(setting: Setting) -> str:
    """A setting's name with its line for messages: `training.lr (line 7)`."""
    return f"{dotted(setting.path)} (line {setting.line})"


def change_value(
    case: ConfigCase, setting: Setting, value: str, reason: str, source: str
) -> Iterator[Suggestion]:
    """The change that sets a setting to a value, a sentence if that is impossible, or nothing if it
    already has this value."""
    edit = replacement(case.config, setting, value)
    if edit is None:
        yield f"{label(setting)} cannot be replaced alone: set it to {value} by hand; {reason}"
    elif edit.value != setting.text:
        yield _proposed(edit, setting, value, reason, source)


def add_key(case: ConfigCase, role: str, value: str, reason: str) -> list[Suggestion]:
    """The change that adds a missing key, if the config's trainer is known to read it; otherwise
    []."""
    rows = [] if case.with_role(role) else [row for row in key_table().added if row.role == role]
    for row in rows:
        # These names in the config show that its trainer reads the key.
        if row.needs and not any(case.with_name(*row.needs.split())):
            continue
        for setting in case.with_name(row.below):
            # At another place in the config the name may mean something else.
            if key_of(setting.path) is None:
                continue
            edit = added_line(case.config, setting, row.name, value)
            if edit is not None:
                return [_proposed(edit, setting, value, reason, row.source)]
    return []


def _proposed(edit: Edit, setting: Setting, value: str, reason: str, source: str) -> Proposed:
    """An edit with its reason; `setting` is the one that changes, or below which a line is
    added."""
    # An added line replaces no characters, and its text is more than the value.
    is_added = edit.start == edit.end
    new_text = value if is_added else edit.text
    change = TuneChange(
        key=dotted(edit.path),
        line=setting.line,
        before=None if is_added else value_of(setting),
        after=value_of(replace(setting, text=new_text)),
        reason=reason,
        source=source,
        added=is_added,
    )
    return Proposed(edit=edit, change=change)


LONGEST_VALUE = 200
"""The number of characters of a value to look at; a longer value is a text."""
LONGEST_SHOWN = 40
"""The number of characters of a value to repeat in a message."""
BATCH_NORM = re.compile(
    r"(?i)^(?:(?:sync_?)?bn(?:[123]d)?|(?:sync_?)?batch_?norm\w*|(?:wide_?|se_?)?resne[tx]t?\w*"
    r"|efficientnet\w*|tf_efficientnet\w*|mobilenet\w*|regnet\w*|densenet\w*|vgg\d+_bn"
    r"|(?:\w*_)?conformer|yolo\w*|inception\w*|mnasnet\w*|shufflenet\w*|hrnet\w*)$"
)
"""Matches values that name BatchNorm or a model that contains it."""
BATCH_NORM_SWITCH = re.compile(r"(?i)(?:use_?)?(?:batch_?norm|bn)")


def names_batch_norm(setting: Setting) -> bool:
    """Whether a setting switches on BatchNorm, or names a model that contains it."""
    if setting.kind != "scalar":
        return False
    if BATCH_NORM_SWITCH.fullmatch(name_of(setting.path)) and switch_value(setting):
        return True
    text = unquoted(setting.text)[:LONGEST_VALUE]
    # The model's name may be the last part (`torchvision.models.resnet50`) or the first
    # (`yolo11n.pt`).
    return any(map(BATCH_NORM.match, (text.rpartition(".")[2], text.partition(".")[0])))


COUNTS_ALL_GPUS = (
    "zero_optimization", "train_micro_batch_size_per_gpu", "micro_batch_size",
    "per_device_train_batch_size", "train_micro_batch_size",
)  # fmt: skip
"""Names that show that `train_batch_size` counts all GPUs together, as in DeepSpeed, NeMo and
Megatron."""


def known_settings(config: Config) -> tuple[tuple[Setting, Key], ...]:
    """The settings whose keys are in the table, each with its key's meaning in this config, which
    may differ from the table's."""
    names = names_in(config.settings)
    counts_all_gpus = not names.isdisjoint(COUNTS_ALL_GPUS)
    without_ray = names.isdisjoint(key_table().ray["names"].split())
    keyed = []
    for setting in config.settings:
        # Skip maps, which have no value.
        key = key_of(setting.path) if setting.kind != "map" else None
        if key is None:
            continue
        is_train_batch = name_of(setting.path) == "train_batch_size" and key.role == "total"
        # In a user's own training loop, this is the loader's batch, which is mentioned but not
        # changed.
        if is_train_batch and not counts_all_gpus:
            key = replace(key, role="batch", written=False)
        is_of_loader = belongs_to_loader(setting.path, without_ray)
        # No rule asks for this role, so the setting is left alone.
        if key.role in ("workers", "pin") and not is_of_loader:
            key = replace(key, role="not a loader")
        keyed.append((setting, key))
    return tuple(keyed)
