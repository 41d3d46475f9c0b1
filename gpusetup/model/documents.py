"""The types of the JSON documents that each command prints.

`gpusetup COMMAND --schema` prints JSON schemas that are made from these types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from gpusetup.model.builds import Advice, Fallback, JointPackage, Offer, Rejection, Served
from gpusetup.model.finding import Finding, RuledOut, Stage
from gpusetup.model.frozen import Amount, Flag, Frozen, Number, Text
from gpusetup.model.machine import Snapshot

Verdict = Literal[
    "good",
    "input-starved",
    "launch-bound",
    "communication-bound",
    "memory-bound",
    "memory-tight",
    "throttled",
    "idle",
    "uneven",
    "bursty",
    "cpu-bound",
    "faulty",
]
"""What `gpusetup monitor` says of a run or a GPU."""


class ErrorAnswer(Frozen):
    schema: Literal["gpusetup.error/1"] = "gpusetup.error/1"
    message: str
    hint: Text = None
    exit: int


class ResolveAnswer(Frozen):
    """The answer of `resolve`, which is also the `resolution` in doctor's answer."""

    schema: Literal["gpusetup.resolve/1"] = "gpusetup.resolve/1"
    torch: Text
    """The recommended torch version; null if nothing fits."""
    torchvision: Text = None
    """The torchvision version that matches this torch."""
    torchaudio: Text = None
    """The torchaudio version that matches this torch."""
    backend: Text = None
    """The backend of the recommended build, such as `cu124` or `cpu`."""
    index_url: Text = None
    """The index that has the recommended build."""
    python: Text = None
    """The Python version that the answer is for."""
    driver_floor: Text = None
    """The oldest driver that can run this build."""
    served: tuple[Served, ...] = ()
    """How the build supports each GPU: with a kernel or with PTX."""
    fallbacks: tuple[Fallback, ...] = ()
    """Other builds of the same torch, if an index lacks the recommended one."""
    rejections: tuple[Rejection, ...] = ()
    """Builds that do not fit, each with the reason."""
    advice: Advice | None = None
    """If nothing fits: the one change that would help most."""
    commands: Mapping[str, tuple[tuple[str, ...], ...]] = {}
    """Maps each installer (`uv`, `pip`, `conda`) to the commands that install the build."""
    notes: tuple[str, ...] = ()
    """More sentences that the user should read."""
    newest: Offer | None = None
    """The newest build that fits, offered next to the build that the fields above describe. Null if
    nothing fits or if a PACKAGE was given. Also null in doctor's answer, which has a separate
    field `newest`."""
    packages: tuple[JointPackage, ...] = ()
    """If a PACKAGE was given: the set of packages that work together, with their versions."""
    catalog_as_of: str = ""
    """The date of gpusetup's catalog of torch builds."""


class ProjectAnswer(Frozen):
    """What the project in the current folder asks for."""

    file: str
    """The file that says it."""
    asks: str
    """Its requirements for torch and its companions, such as `torch==2.6.0+cu124`."""
    meets: Flag = None
    """Whether the environment's torch meets them; null if torch is not installed."""
    sentence: str
    """All this in one line, with the command that installs what is missing."""


class OtherEnvironment(Frozen):
    """Another environment on this machine that has torch."""

    prefix: str
    torch: str


class ReadFact(Frozen):
    """One fact that doctor read."""

    name: str
    """`system`, `container`, `GPU`, `driver`, `torch`, `installer`, `Python`, `program` or `failing
    step`."""
    value: str
    source: str = ""
    """The line of a text, or the tool; empty if several places show it."""


class Fit(Frozen):
    """Whether facts that were read fit together."""

    sentence: str
    fits: bool


class CauseCheck(Frozen):
    """How to check a likely cause before changing anything."""

    command: str
    """A command that changes nothing."""
    prints: str = ""
    """What it prints, on an example machine, if this is the cause."""


class DoctorAnswer(Frozen):
    schema: Literal["gpusetup.doctor/1"] = "gpusetup.doctor/1"
    cause: str
    """The id of the root cause, or `ok`, or `unknown`."""
    confidence: Literal["certain", "likely"] | None = None
    """Like `certainty`, but also `likely` if another error remains unexplained; null if there is no
    root cause."""
    proof: Text = None
    """If the cause is `ok`: one line that says what doctor checked. Otherwise null."""
    certainty: Literal["certain", "likely"] | None = None
    """`certain` if the text proves the cause and leaves nothing open, otherwise `likely`; null for
    `ok` and `unknown`."""
    other_causes: tuple[str, ...] = ()
    """If the cause is open or only likely: the ids of other causes with the same message, and of
    errors that the root cause does not explain."""
    ruled_out: tuple[RuledOut, ...] = ()
    """Causes that a message suggests but that another fact contradicts, each with that fact."""
    next_reading: Text = None
    """A command whose output would show which of the possible causes is the right one."""
    check: CauseCheck | None = None
    """If the cause in a report is only likely: how to check it; null if it is certain."""
    facts: tuple[ReadFact, ...] = ()
    """What doctor read, each fact with its line or source."""
    fit: tuple[Fit, ...] = ()
    """Whether these facts fit together, by gpusetup's catalog; empty if no two were read that could
    contradict each other."""
    symptom: Text = None
    """The id of the finding that shows what failed in a report, but not why. `cause` gives the
    reason, unless it is `unknown`."""
    program: Text = None
    """The program that a report is about; null if the text shows none."""
    stage: Stage | None = None
    """The stage at which the program failed; null if the text does not show it."""
    findings: tuple[Finding, ...]
    """Everything that doctor found, including the root cause."""
    resolution: ResolveAnswer | None
    """What `install` would do: the smallest change that fixes the machine."""
    newest: Offer | None = None
    """The newest build that fits; null if none fits."""
    project: ProjectAnswer | None = None
    """What the project in the current folder asks for; null if it names no torch."""
    other_environments: tuple[OtherEnvironment, ...] = ()
    """If the examined environment has no torch: those on this machine that have one."""
    snapshot: Snapshot
    """The machine that doctor examined."""
    catalog_as_of: str
    """The date of gpusetup's catalog of torch builds."""


class KnownFinding(Frozen):
    """A finding's record, with its id."""

    id: str
    title: str
    means: str
    check: str = ""
    """A command that shows whether this is the problem, without gpusetup; "" if there is none."""
    prints: str = ""
    """What that command prints on an example machine with this problem."""
    way_out: str
    explains: tuple[str, ...]
    """The findings that are consequences of this one if both are found."""


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
    """The JSON document of verify for the environment."""
    why: Text = None
    """Why this torch is installed or kept."""
    newest: Offer | None = None
    """The newest build that fits, which `--upgrade` would install, if it is newer than the result.
    """
    lines: tuple[str, ...] = ()
    """With `--project`: the lines to add to the project file."""
    notes: tuple[str, ...] = ()
    """What the user should know about the plan, such as lines of a file that were not read."""


class CheckAnswer(Frozen):
    """One check of verify. The folder `verify/` does not import this package, so this type repeats
    the fields that verify prints."""

    name: str
    device: str
    status: Literal["passed", "failed", "skipped", "crashed"]
    detail: str = ""
    value: Amount = None
    limit: Amount = None
    unit: Text = None
    seconds: Amount = None
    hint: Text = None
    """The next step, if the check did not pass."""
    means: Text = None
    """What a failure of this check means for the user of the device."""
    problem: Text = None
    """`wrong results`, `cannot run`, `slow`, `not repeatable` (it failed once, and passed in a new
    process), `not asked` (skipped), `not as expected` (`--expect`) or `differs` (an operator of the
    census, which is no failure); null if the check passed."""


class VerifyAnswer(Frozen):
    schema: Literal["gpusetup.verify/1"] = "gpusetup.verify/1"
    verdict: Literal["passed", "failed"]
    """`passed` if all checks passed or were skipped; with `--strict`, no check may be skipped."""
    torch: Text
    """The version of the tested torch."""
    cuda: Text
    """The CUDA version that the tested torch was built with; null for other builds."""
    python: str
    """The version of the Python that ran the checks."""
    devices: tuple[Mapping[str, Any], ...]
    """The tested devices, with their properties."""
    checks: tuple[CheckAnswer, ...]
    """The results of the checks, in the order in which they ran."""
    seed: Number = None
    """The seed of all random numbers. The same seed gives the same numbers again."""
    problem: Text = None
    """The worst problem of the checks that did not pass; null if the verdict is `passed`."""


Confidence = Literal["measured", "clear", "close"]


class PlanMemory(Frozen):
    """The memory of the GPU that needs the most, in GiB by purpose; `capacity` is the memory that
    CUDA lets a program use."""

    states: float
    checkpoints: float
    logits: float
    fragmentation: float
    other: float
    total: float
    capacity: float
    host: float = 0.0
    """The host memory that offloading needs, in GiB."""
    allocated: float = 0.0
    """The value that `torch.cuda.max_memory_allocated` would return."""
    reserved: float = 0.0
    """The value that `torch.cuda.max_memory_reserved` would return; together with CUDA's own
    memory, it decides whether the job fits."""
    other_gpus: float = 0.0
    """With DataParallel, the memory of each GPU except the first; all other figures are for the
    first."""


class Help(Frozen):
    """One change that makes a job need less memory."""

    step: str
    kind: Literal["recipe", "setting", "job"] = "setting"
    """`recipe`: the next recipe. `setting`: a setting of the same training. `job`: another kind of
    training."""
    saves_gib: float
    """How many GiB the change saves on one GPU, compared with the shown recipe or, if none fits,
    with the one that lacks the least."""
    recipe: Text
    """The recipe with which the job then fits; null if the change is not enough on its own."""
    confidence: Confidence | None = None
    """How sure it is that a job that does not fit then fits; null if the change is not enough."""


class Way(Frozen):
    """One way to train on one GPU, with checkpointing and without offload."""

    name: str
    """`full`, `LoRA` or `QLoRA`, each with its additional savings."""
    fits: bool
    """Whether one sequence of full length fits."""
    total_gib: float
    """The memory for one sequence of full length."""
    batch: Number
    """The largest batch of sequences of that length; null if none fits."""
    context: Number
    """The longest sequence that fits, up to the model's own limit; null if none fits."""


class ConfigKey(Frozen):
    """One setting in a config and its meaning, which is empty if the setting was not understood."""

    key: str
    line: int
    value: str
    meaning: str


class ConfigRead(Frozen):
    """What `plan --from-config` understood in the file, and what it assumed."""

    file: str
    trainer: Text
    """The trainer that the config is for; null for a plain loop."""
    read: tuple[ConfigKey, ...]
    assumed: tuple[str, ...]
    """What was assumed because the file does not define it."""
    not_understood: tuple[ConfigKey, ...]


class FewerGpus(Frozen):
    """A smaller number of GPUs that works better than all of them."""

    gpus: int
    recipe: str
    confidence: Confidence
    """How far you can rely on it that the job fits there."""
    context: int
    """The longest context, if the user asked for it."""
    reason: str
    """A sentence that says why fewer GPUs work better."""
    environment: Mapping[str, str]
    """The environment variable that makes only these GPUs visible."""


class TrainerSettings(Frozen):
    """A plan as settings for one trainer, ready to paste."""

    trainer: str
    title: str
    """Where to paste the text."""
    text: str
    """The keys for the trainer's config, or the flags for its command."""
    missing: tuple[str, ...] = ()
    """What the plan moves off the GPU, or splits, without a key in the text for it."""


class PlanCell(Frozen):
    """One plan: its recipe (or `-`), and everything that belongs to it."""

    fits: bool
    """Whether the job fits with the recipe."""
    recipe: str
    """The memory settings with which the job fits, such as `Env + SP=2`; `-` if none fits."""
    basis: Literal["measured", "predicted"]
    """Whether the numbers were measured or predicted by the memory model."""
    confidence: Confidence
    """How far you can rely on the answer."""
    near_percent: int = 3
    """The confidence is `close` if the estimate is within this percentage of the limit."""
    close_because: Text = None
    """Why the confidence is `close`, in words; null for any other confidence."""
    memory_gib: PlanMemory
    """The memory that each part needs on the GPU that needs the most."""
    margin_percent: float
    """How much of the GPU's memory stays free; if negative, how much is missing."""
    env: Mapping[str, str] = {}
    """The environment variables to set before Python starts."""
    settings: Mapping[str, Any] = {}
    """The settings of the recipe under plan's own names; empty if nothing fits."""
    trainer_settings: TrainerSettings | None = None
    """The settings under the names of your trainer, if you named one or if the config shows it."""
    helps: tuple[Help, ...] = ()
    """If the job fits: what to do if memory runs out anyway, with the recipes in the order in which
    to try them. If it does not fit: what would help, starting with changes that are enough on their
    own."""
    better: FewerGpus | None = None
    """A smaller number of GPUs, if the job runs better on them than on all GPUs."""
    ways: tuple[Way, ...] = ()
    """If you ask about one GPU and name no method: how much memory full training, LoRA and QLoRA
    need."""
    uncounted: tuple[str, ...] = ()
    """What may need memory but was not counted, such as unknown keys of the config or models of
    unknown size. If the list is not empty and the job fits, the confidence is at most `close`."""
    assumed: tuple[str, ...] = ()
    """What plan assumed because it was not given, each with the option that changes it."""
    advice: tuple[str, ...] = ()
    """Sentences with more advice about this job."""
    model: str
    """The name of the model."""
    parameters: int
    """The number of parameters."""
    active_parameters: int
    """The number of parameters that process one token (mixture of experts)."""
    gpu: str
    """The name of the GPU."""
    gpus: int
    """The number of GPUs that train."""
    context: int
    """Tokens per sequence."""
    batch: Number = None
    """Sequences in a batch, over all GPUs; null if batches fill a token budget."""
    strategy: str = "fsdp"
    """How the GPUs share the work, such as `fsdp` or `ddp`."""
    solved: Literal["context", "batch", "gpus"] | None = None
    """The value that plan was asked to find (`--max-context`, `--max-batch`, `--gpus-needed`)."""
    config: ConfigRead | None = None
    """What plan read in your training config (`--from-config`)."""
    error: Text = None
    """Why plan could not answer a row of `--cells`. If `error` is set, ignore the row's other
    fields."""


class PlanAnswer(PlanCell, tag="gpusetup.plan/1", tag_field="schema"):  # type: ignore[call-arg]
    """The answer of `plan` for one job."""


class PlanCellsAnswer(Frozen):
    schema: Literal["gpusetup.plan-cells/1"] = "gpusetup.plan-cells/1"
    cells: tuple[PlanCell, ...]
