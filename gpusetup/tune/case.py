"""A config on a machine: what the rules look at, and what they answer with. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpusetup.configs.config import Config, Edit, addition, change
from gpusetup.configs.keys import ADDED, AXOLOTL, HUGGING_FACE, Key
from gpusetup.configs.settings import Setting, in_words, name_of, said, spelled_like, whole
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Snapshot, visible_gpus
from gpusetup.tune.presets import SMALL, SMALL_MOST, Preset, preset_for
from gpusetup.tune.trainers import trainer_in


class Facts(Frozen):
    """What of the machine matters here."""

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


class Option(Frozen):
    """What the user asked for, and what was measured here."""

    grow: bool = False
    measured: int | None = None
    """The largest (or fastest) batch on one GPU that ran here."""
    workers: int | None = None
    """The number of loader workers that was measured to be the fastest."""
    compile: bool | None = None
    amp: bool | None = None
    """Whether they were measured to be faster; None: nobody measured."""
    interrupted: bool = False
    """Whether measuring was: then nothing else is written."""
    batchnorm: bool = False
    """Whether BatchNorm may see other pieces of the batch."""
    no_gain: frozenset[str] = frozenset()
    """What `--benchmark` measured to bring nothing here: `amp`, `workers`, `compile`."""
    fixed_beside: str | None = None
    """Why another file holds the batch and the precision too, as a sentence."""


class Proposed(Frozen):
    """One change, with why and where that comes from."""

    edit: Edit
    key: str
    line: int
    before: int | float | bool | str | None
    after: int | float | bool | str | None
    reason: str
    source: str


class Proposal(Frozen):
    changes: tuple[Proposed, ...] = ()
    words: tuple[str, ...] = ()
    found: int = 0
    """How many settings were understood; 0: there is nothing here that we know."""
    cannot_fit: str | None = None
    """What to say first: not even one sample of the model fits on this card."""


MEASURED = "measured on this machine"
Found = tuple[Setting, Key]
CALLED = ("model", "model_type", "type", "arch", "architecture", "cell", "rnn_type", "name")
"""Keys whose value says what kind of model it is."""
Part = Proposed | str
HF_BATCH = "per_device_train_batch_size"
"""TrainingArguments have it; diffusers' scripts and veRL share only the names of its loader."""


def facts_of(snapshot: Snapshot) -> Facts:
    """The machine's facts, over the GPUs that a program would see."""
    gpus = visible_gpus(snapshot)
    sizes = [gpu.memory_total_bytes for gpu in gpus if gpu.memory_total_bytes]
    capabilities = [
        (gpu.compute_capability.major, gpu.compute_capability.minor)
        for gpu in gpus
        if gpu.compute_capability
    ]
    memory = snapshot.memory
    ram = [size for size in (memory.available_bytes, memory.cgroup_limit_bytes) if size]
    return Facts(
        gpu=gpus[0].name if gpus else None,
        gpus=len(gpus),
        memory_bytes=min(sizes, default=None),
        capability=min(capabilities, default=None),
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
    option: Option
    found: tuple[Found, ...]
    changed: Config | None = None
    """The config once everything but its batch is changed."""

    def having(self, *roles: str) -> Iterator[Found]:
        return ((setting, key) for setting, key in self.found if key.role in roles)

    def names(self) -> frozenset[str]:
        """The names of the settings, and what the model is called."""
        settings = [one for one in self.config.settings if one.path]
        called = {one.text.strip("'\"").lower() for one in settings if name_of(one.path) in CALLED}
        return frozenset(name_of(one.path) for one in settings) | called

    def preset(self) -> Preset | None:
        wide = {
            name_of(one.path)
            for one in self.config.settings
            if name_of(one.path) in SMALL and (whole(one) or 0) > SMALL_MOST
        }
        names = self.names()
        return preset_for(self.facts.memory_bytes, names - set(SMALL) if wide else names)


def written_over(
    case: Case, setting: Setting, value: str, reason: str, source: str
) -> Iterator[Part]:
    """The change of one setting, or words where its place does not allow it."""
    edit = change(case.config, setting, value)
    if edit is None:
        why = "used in several places through an anchor" if setting.shared else "not a plain value"
        yield f"{in_words(setting.path)} (line {setting.line}) is {why}: {value} by hand; {reason}"
    elif edit.value != setting.text:
        yield proposed(edit, setting, said(setting), value, reason, source)


def proposed(
    edit: Edit, at: Setting, before: object, value: str, reason: str, source: str
) -> Proposed:
    after: object = int(value) if value.isdigit() else {"true": True, "false": False}.get(value)
    return Proposed(
        edit=edit,
        key=in_words(edit.path),
        line=at.line,
        before=before,  # type: ignore[arg-type]
        after=value if after is None else after,  # type: ignore[arg-type]
        reason=reason,
        source=source,
    )


def added_key(case: Case, role: str, value: str, reason: str) -> Iterator[Part]:
    """A missing key, where the config is of a family that is known to read it."""
    if any(True for _ in case.having(role)):
        return
    trainer = trainer_in(case.config)
    for beside, missing, name, source in ADDED:
        if source == AXOLOTL and (trainer is None or trainer.name != "axolotl"):
            continue
        if source == HUGGING_FACE and HF_BATCH not in case.names():
            continue
        for setting, _ in case.found:
            if missing == role and name_of(setting.path) == beside:
                spelled = spelled_like(name, str(setting.path[-1]))
                edit = addition(case.config, setting, spelled, value)
                if edit is not None:
                    yield proposed(edit, setting, None, value, reason, source)
                    return


def no_number(setting: Setting) -> str:
    place = f"{in_words(setting.path)} (line {setting.line})"
    if setting.kind == "list":
        return f"{place} is a list, one for each stage: left as it is"
    if setting.kind == "alias" or setting.shared:
        return f"{place} is shared through an anchor: left as it is"
    if setting.text in ("auto", '"auto"', "'auto'"):
        return f"{place} is auto: the trainer fills it in, left as it is"
    if setting.text.startswith(('"', "'")):
        return f"{place} is text ({setting.text}), not a number: left as it is"
    return f"{place} is {setting.text or 'empty'}, not a plain number: left as it is"


def edits(changes: Sequence[Proposed]) -> tuple[Edit, ...]:
    return tuple(one.edit for one in changes)
