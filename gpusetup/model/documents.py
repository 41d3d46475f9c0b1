"""The public JSON documents of each command, as types.

`gpusetup COMMAND --schema` prints the JSON schemas made from these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from gpusetup.model.builds import (
    Advice,
    Fallback,
    HeldBack,
    JointPackage,
    Offer,
    Rejection,
    Served,
)
from gpusetup.model.finding import Finding, RuledOut, Stage
from gpusetup.model.frozen import Amount, Frozen, Number, Text
from gpusetup.model.machine import Snapshot


class ErrorAnswer(Frozen):
    schema: Literal["gpusetup.error/1"] = "gpusetup.error/1"
    message: str
    hint: Text = None
    exit: int


class ResolveAnswer(Frozen):
    """The answer of `resolve`, and the `resolution` of doctor. `torch` is null if nothing fits."""

    schema: Literal["gpusetup.resolve/1"] = "gpusetup.resolve/1"
    torch: Text
    torchvision: Text = None
    torchaudio: Text = None
    backend: Text = None
    index_url: Text = None
    python: Text = None
    driver_floor: Text = None
    served: tuple[Served, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    advice: Advice | None = None
    commands: Mapping[str, tuple[tuple[str, ...], ...]] = {}
    notes: tuple[str, ...] = ()
    newest: Offer | None = None
    """The newest build, next to the least change; null if nothing fits, with PACKAGE, and in
    doctor's answer, which has it next to `resolution`."""
    packages: tuple[JointPackage, ...] = ()
    """With PACKAGE: the whole set."""
    held_back: tuple[HeldBack, ...] = ()
    live: bool = False
    """Whether the index was asked for this build just now: the dated table does not know it."""
    asked_index: Text = None
    """The page of torch's index that was asked (`--refresh`); null if only the table answered."""
    catalog_as_of: str = ""


class DoctorAnswer(Frozen):
    schema: Literal["gpusetup.doctor/1"] = "gpusetup.doctor/1"
    cause: str
    """The id of the root cause, or `ok`, or `unknown`."""
    confidence: Literal["certain", "likely"] | None = None
    """How sure the root is; null where there is none."""
    proof: Text = None
    """What `ok` rests on: what was seen, in one line; null where the cause is another."""
    certainty: Literal["certain", "likely"] | None = None
    """`certain` where a text proves its cause and nothing is open, else `likely`; null for `ok`
    and `unknown`."""
    doubts: tuple[str, ...] = ()
    """Why the cause of a report is only likely, in sentences; empty where it is certain."""
    other_causes: tuple[str, ...] = ()
    """Ids of what may be the cause instead, the likelier first."""
    ruled_out: tuple[RuledOut, ...] = ()
    """Causes that a message suggests and that a reading denies, with the reading."""
    next_reading: Text = None
    """One command whose answer would decide between them."""
    symptom: Text = None
    """The finding that says what a report shows, but not why: its cause is `cause`, if that is
    not `unknown`."""
    program: Text = None
    """The program that a report is about; null where none is shown."""
    stage: Stage | None = None
    """At what it failed; null where that is not shown."""
    findings: tuple[Finding, ...]
    resolution: ResolveAnswer | None
    """What `install` would do: the least change that cures the machine."""
    newest: Offer | None = None
    """The newest that fits, which `install --upgrade` would take; null where nothing fits."""
    snapshot: Snapshot
    catalog_as_of: str


class KnownFinding(Frozen):
    """What is known about one finding: the record with its id."""

    id: str
    title: str
    means: str
    proven_by: str
    not_when: str
    """What looks alike and is another finding, or none."""
    way_out: str
    explains: tuple[str, ...]
    """The findings that are its consequences where both are there."""


class FindingAnswer(Frozen):
    """The answer of `doctor --explain ID`."""

    schema: Literal["gpusetup.finding/1"] = "gpusetup.finding/1"
    finding: KnownFinding


class DoneStep(Frozen):
    argv: tuple[str, ...]
    seconds: Amount = None
    exit: Number = None


class InstallAnswer(Frozen):
    schema: Literal["gpusetup.install/1"] = "gpusetup.install/1"
    state: Literal["installed", "unchanged", "restored", "planned"]
    target: str
    before: Mapping[str, str]
    after: Mapping[str, str]
    steps: tuple[DoneStep, ...]
    verdict: Mapping[str, Any] | None = None
    """The verify document of the target."""
    receipt: Text = None
    why: Text = None
    """Why this torch comes, or stays."""
    newest: Offer | None = None
    """The newest that fits, which `--upgrade` takes, where it is newer than what is there then."""
    lines: tuple[str, ...] = ()
    """With `--project`: what to add to the project file."""


class CheckAnswer(Frozen):
    """One check of verify. The folder `verify/` is independent, so this type mirrors what it
    prints."""

    name: str
    device: str
    status: Literal["passed", "failed", "skipped", "crashed"]
    detail: str = ""
    value: Amount = None
    limit: Amount = None
    unit: Text = None
    seconds: Amount = None
    hint: Text = None
    """The one next step, where the check did not pass."""
    means: Text = None
    """What a failure means for somebody who uses the device."""


class VerifyAnswer(Frozen):
    schema: Literal["gpusetup.verify/1"] = "gpusetup.verify/1"
    verdict: Literal["passed", "failed"]
    torch: Text
    cuda: Text
    python: str
    devices: tuple[Mapping[str, Any], ...]
    checks: tuple[CheckAnswer, ...]
    seed: Number = None
    """Of all numbers that were computed with; the same seed repeats each of them."""


class PlanMemory(Frozen):
    """The memory of the GPU that needs most, in GiB by purpose; `capacity` is what CUDA lets a
    program use."""

    states: float
    checkpoints: float
    logits: float
    fragmentation: float
    other: float
    total: float
    capacity: float
    host: float = 0.0
    """GiB of the machine's own memory that Offload needs."""
    allocated: float = 0.0
    """What `torch.cuda.max_memory_allocated` would say."""
    reserved: float = 0.0
    """What `torch.cuda.max_memory_reserved` would say; with CUDA's own memory it decides."""
    other_gpus: float = 0.0
    """Under DataParallel what each GPU but the first takes; all other figures are the first's."""


class Help(Frozen):
    """One change that makes a job need less memory."""

    step: str
    kind: Literal["recipe", "setting", "job"] = "setting"
    """A further step of the recipe, a setting of the same training, or another training."""
    saves_gib: float
    """Of one GPU, against the recipe that is shown, or lacks least."""
    recipe: Text
    """With which it fits then; null: it is not enough alone."""


class Way(Frozen):
    """One way to train on one GPU, with checkpointing and without offload."""

    name: str
    """`full`, `LoRA`, `QLoRA`, and each with what saves more."""
    fits: bool
    """One sequence of the whole length."""
    total_gib: float
    """What that takes."""
    batch: Number
    """The largest batch of that length; null if none fits."""
    context: Number
    """The longest sequence, at most the model's own; null if none fits."""


class CodePlan(Frozen):
    """The result of tracing one step of the user's code (`plan --code`)."""

    torch: str
    phases_gib: Mapping[str, float]
    """`forward`, `backward`, `optimizer` -> the most that stands at once on a GPU."""
    largest_batch: Number
    """Samples a step on all GPUs together; null where memory does not grow with the batch."""


class ConfigKey(Frozen):
    """One setting of a config, and what it means; no meaning if it was not understood."""

    key: str
    line: int
    value: str
    meaning: str


class ConfigRead(Frozen):
    """What `plan --from-config` read from the file."""

    file: str
    trainer: Text
    """The trainer that it is written for; null: a plain loop."""
    read: tuple[ConfigKey, ...]
    assumed: tuple[str, ...]
    """What was taken where the file says nothing."""
    not_understood: tuple[ConfigKey, ...]


class FewerGpus(Frozen):
    """A smaller number of GPUs that works better than all of them."""

    gpus: int
    recipe: str
    context: int
    """The longest, if that was looked for."""
    without_offload: bool
    """Whether all of the GPUs would need offload, and these do not."""
    reason: str
    """One sentence."""
    environment: Mapping[str, str]
    """The variable that shows a program only these GPUs."""


class Speed(Frozen):
    """How much faster several GPUs are than one of them."""

    gpus: int
    times_low: float
    """If nothing is sent while the GPUs compute."""
    times_high: float
    """If all is sent while they compute."""
    exchanged_gib: float
    """What one GPU sends in a micro-step."""
    sending_seconds: float
    computing_seconds: Amount
    """Of a micro-step at the share of the peak that published runs reach; null: no peak known."""
    link: str


class TrainerSettings(Frozen):
    """A plan as settings for one trainer, to paste unchanged."""

    trainer: str
    title: str
    """Where the text goes."""
    text: str
    """Its config's keys, or the flags of its command."""
    missing: tuple[str, ...] = ()
    """Settings of the plan that the text does not say: the trainer has no key for them here."""


class SmallestGpu(Frozen):
    """The smallest card that is enough for a job, even if the estimate is too low."""

    memory_gb: float
    names: tuple[str, ...]
    """Some cards with so much memory."""
    margin_percent: int
    """By how much the job may need more than was estimated."""
    recipe: str
    """What is set on that card."""


class PlanCell(Frozen):
    """One plan: the recipe, or `-`, and everything that belongs to it."""

    fits: bool
    recipe: str
    basis: Literal["measured", "predicted"]
    confidence: Literal["measured", "clear", "close"]
    near_percent: int = 3
    """How near the limit an answer is close."""
    memory_gib: PlanMemory
    margin_percent: float
    env: Mapping[str, str] = {}
    settings: Mapping[str, Any] = {}
    trainer_settings: TrainerSettings | None = None
    """The same in the words of the trainer that was named, or whose config was read."""
    helps: tuple[Help, ...] = ()
    """If it fits: what to do if memory runs out all the same, recipes in the order to try. If not:
    what would help, first what is enough alone."""
    better: FewerGpus | None = None
    """Fewer of the GPUs, where they do better than all."""
    speed: Speed | None = None
    """What the other GPUs bring, where one would do."""
    ways: tuple[Way, ...] = ()
    """Full training, LoRA and QLoRA, if you ask about one GPU and do not choose one."""
    uncounted: tuple[str, ...] = ()
    """What may take memory and is not counted: unread keys of the config, models of unknown size.
    If there is any, a plan that fits is at most `close`."""
    advice: tuple[str, ...] = ()
    model: str
    parameters: int
    active_parameters: int
    gpu: str
    gpus: int
    context: int
    batch: Number = None
    strategy: str = "fsdp"
    source: str = ""
    """Where the answer comes from, in a sentence."""
    solved: Literal["context", "batch", "gpus"] | None = None
    """Which of the three was asked for and is the answer."""
    smallest_gpu: SmallestGpu | None = None
    """The smallest card that is enough without offload, on as many GPUs; None if none is."""
    code: CodePlan | None = None
    config: ConfigRead | None = None
    error: Text = None
    """Why a row of `--cells` could not be answered; nothing else in its cell counts then."""


class PlanAnswer(PlanCell, tag="gpusetup.plan/1", tag_field="schema"):  # type: ignore[call-arg]
    """A plan as a separate document."""


class PlanCellsAnswer(Frozen):
    schema: Literal["gpusetup.plan-cells/1"] = "gpusetup.plan-cells/1"
    cells: tuple[PlanCell, ...]


class ServePlan(Frozen):
    """The result of `plan --serve`. Sizes are per GPU."""

    schema: Literal["gpusetup.plan-serve/1"] = "gpusetup.plan-serve/1"
    fits: bool
    uncounted: tuple[str, ...] = ()
    """Why a server that fits may not start: a shape that is not known, an older version."""
    model: str
    parameters: int
    engine: str
    gpu: str
    gpus: int
    """GPUs that share every layer."""
    weights: str
    cache: str
    context: int
    sequences: int
    weights_gib: float
    cache_gib: float
    """Of that many requests of the whole context."""
    pass_gib: float
    free_gib: float
    """What is left for more of the cache; negative: what lacks."""
    capacity_gib: float
    token_kib: float
    largest_context: int
    largest_sequences: int
    command: Text = None
    notes: tuple[str, ...] = ()
