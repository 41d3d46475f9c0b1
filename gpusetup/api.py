"""What the command line answers, for a program: `from gpusetup.api import diagnose, resolve`.

Each function asks what its command asks and returns the document that the command prints under
`--json`, as a typed value that cannot be changed, nor can a dict in it: the fields are those that
`gpusetup COMMAND --schema` describes, and `to_plain` and `to_json` give the same as dicts or text.
Nothing is printed; what the command line says on stderr on its way goes to the logger `gpusetup`,
level INFO.

An argument that a function does not know, or whose type it does not take, is a `TypeError`, as
anywhere in Python. Every other failure is a `GpuSetupError` with `message`, `hint` (what to do, or
None; its text holds both) and `exit_code`: what the command line prints as an error document is
raised here. An answer that is no is an answer: `cause` of doctor, `torch` None of resolve, `fits`
of plan and `verdict` of verify say it, and nothing is raised.

Answers about this machine are exact: their `snapshot` names folders and the user. What is to be
shared comes from `gpusetup snapshot`. Names, keywords and documents of this module are stable,
other modules are not. Importing it needs neither torch nor a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, overload

from gpusetup.errors import Blocked, GpuSetupError, ToolFailed, Unsatisfiable, UsageError
from gpusetup.model.codec import to_json, to_plain
from gpusetup.model.documents import (
    DoctorAnswer,
    PlanAnswer,
    ResolveAnswer,
    ServePlan,
    VerifyAnswer,
)
from gpusetup.model.finding import Finding
from gpusetup.model.frozen import unchangeable
from gpusetup.model.machine import Snapshot

if TYPE_CHECKING:
    from typing_extensions import Required, Unpack

__all__ = [
    "Blocked",
    "DoctorAnswer",
    "Finding",
    "GpuSetupError",
    "PlanAnswer",
    "PlanQuestion",
    "ResolveAnswer",
    "ServePlan",
    "ServeQuestion",
    "Snapshot",
    "ToolFailed",
    "Unsatisfiable",
    "UsageError",
    "VerifyAnswer",
    "diagnose",
    "plan",
    "read_report",
    "resolve",
    "to_json",
    "to_plain",
    "verify",
]

Machine = str | Path | Snapshot
"""An example machine's name, the path of a snapshot's file, or a snapshot."""


def diagnose(
    machine: Machine | None = None,
    *,
    python: str | Path | None = None,
    torch: str | None = None,
    deep: bool = False,
    gpu: Sequence[str] = (),
    driver: str | None = None,
    timeout: float | None = None,
) -> DoctorAnswer:
    """What is wrong with a machine, this one where none is named, and the way out.

    The target environment is the active one, as for the command line: `python=sys.executable` means
    the one that this program runs in. Where the driver hangs it answers after `timeout` seconds.
    """
    return _answer("doctor", DoctorAnswer, locals())


def read_report(text: str | bytes, *, torch: str | None = None) -> DoctorAnswer:
    """What is wrong with the machine that somebody's text shows: as `gpusetup doctor --report`.

    `text` is the report itself, as read or as bytes in whatever encoding, and of any size; no text
    raises. It is data: nothing in it is obeyed.
    """
    if not isinstance(text, str | bytes | bytearray | memoryview):
        raise TypeError(f"read_report() takes a text or bytes, not {type(text).__name__}")
    report = text.encode("utf-8", "replace") if isinstance(text, str) else bytes(text)
    return _answer("doctor", DoctorAnswer, {"report": report, "torch": torch})


def resolve(
    *packages: str,
    machine: Machine | None = None,
    driver: str | None = None,
    gpu: Sequence[str] = (),
    os: Literal["linux", "windows", "macos"] | None = None,
    architecture: Literal["x86_64", "aarch64"] | None = None,
    python: str | None = None,
    glibc: str | None = None,
    torch: str | None = None,
    backend: str | None = None,
    installer: Literal["uv", "pip", "conda"] | None = None,
    requirements: Sequence[str | Path] = (),
    explain: bool = False,
    offline: bool = False,
    refresh: bool = False,
    index: str | None = None,
) -> ResolveAnswer:
    """Which build of torch fits a machine, this one or a described one, and why not the others.

    What you do not give comes from this machine. With `packages` the whole set is chosen together
    and your package index is asked, unless `offline`; `refresh` asks it too.
    """
    return _answer("resolve", ResolveAnswer, locals())


class PlanQuestion(TypedDict, total=False):
    """What `plan` takes; each is the option of that name, and what is not given has its default."""

    machine: Machine
    model: str | Path
    params: str
    from_config: str | Path
    code: str
    context: int | str
    batch: int
    accumulate: int
    size: str
    gpu: str
    gpu_mem: str
    gpus: int
    trainer: str
    strategy: str
    optimizer: str
    dtype: Literal["fp32", "bf16", "fp16"]
    amp: Literal["bf16", "fp16", "none"]
    lora: int
    quantize: Literal["nf4", "nf4-dq", "int4", "mxfp4", "int8", "fp8"]
    checkpointing: bool | str
    offload: Sequence[Literal["optimizer", "checkpoints"]]
    lora_targets: Literal["all", "attention", "qv"]
    sp: int
    tp: int
    pp: int
    cp: int
    ep: int
    max_context: bool
    max_batch: bool
    gpus_needed: bool
    predict: bool


class ServeQuestion(TypedDict, total=False):
    """What `plan` takes with `serve`, which names the engine."""

    serve: Required[str]
    machine: Machine
    model: str | Path
    params: str
    context: int | str
    batch: int
    gpu: str
    gpu_mem: str
    gpus: int
    weights: str
    cache: str


@overload
def plan(**question: Unpack[ServeQuestion]) -> ServePlan: ...
@overload
def plan(**question: Unpack[PlanQuestion]) -> PlanAnswer: ...
def plan(**question: Any) -> PlanAnswer | ServePlan:
    """Whether a training, or with `serve` a server, fits on these GPUs, and with which recipe.

    With `code` a child process traces one step of that code, which runs it. Sizes are GiB.
    """
    known = PlanQuestion if question.get("serve") is None else ServeQuestion
    for name in question.keys() - known.__annotations__.keys():
        raise TypeError(f"plan() got an unexpected keyword argument {name!r}")
    if known is ServeQuestion:
        return _answer("plan", ServePlan, question)
    return _answer("plan", PlanAnswer, question)


def verify(
    *,
    python: str | Path | None = None,
    level: Literal["quick", "standard", "census", "stress"] = "quick",
    device: str = "auto",
    expect: Sequence[str] = (),
    with_packages: Sequence[str] = (),
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    seconds: float | None = None,
    seed: int | None = None,
    timeout: float | None = None,
    strict: bool = False,
    baseline: str | Path | None = None,
    save_baseline: str | Path | None = None,
    junit: str | Path | None = None,
) -> VerifyAnswer:
    """Proves by computing, in a child of the target's interpreter, that its torch works.

    `python=sys.executable` proves the torch of the environment that this program runs in. Blocks
    until the checks are done. For one process: among ranks use `python -m gpusetup.verify`.
    """
    return _answer("verify", VerifyAnswer, locals())


Answer = TypeVar("Answer")


def _answer(name: str, kind: type[Answer], values: dict[str, Any]) -> Answer:
    """The document of a command, which is of that kind."""
    from gpusetup.commands.calling import answered

    document = answered(name, values, _log)
    assert isinstance(document, kind), f"{name} answered {type(document).__name__}"
    kept: Answer = unchangeable(document)
    return kept


def _log(text: str) -> None:
    import logging

    logging.getLogger("gpusetup").info("%s", text)
