"""The commands as Python functions, which your own program can call. For example:
`from gpusetup.api import diagnose, resolve`.

Each function returns the document that its command prints with `--json`, as a typed value that you
cannot change. `gpusetup COMMAND --schema` describes the fields. `to_plain` turns the value into
dicts, and `to_json` turns it into text. The functions print nothing. The messages that the command
line writes to stderr go to the logger `gpusetup` with the level INFO.

An unknown argument, or one of the wrong type, raises `TypeError`. Every other failure raises a
`GpuSetupError` with `message`, `hint` (what to do, or None) and `exit_code`. `str(error)` contains
the message and the hint. A negative answer raises no error. To see whether an answer is negative,
read `cause` of a `DoctorAnswer`, `torch` (None) of a `ResolveAnswer`, `fits` of a plan, or
`verdict` of a `VerifyAnswer`.

Answers about this machine are not anonymous, because their `snapshot` contains the names of folders
and of the user. To share a snapshot, use `gpusetup snapshot`. The names, keywords and documents of
this module are stable. Other modules may change at any time. You need neither torch nor a GPU to
import this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from gpusetup.errors import Blocked, GpuSetupError, ToolFailed, Unsatisfiable, UsageError
from gpusetup.model.codec import to_json, to_plain
from gpusetup.model.documents import (
    DoctorAnswer,
    PlanAnswer,
    ResolveAnswer,
    VerifyAnswer,
)
from gpusetup.model.finding import Finding
from gpusetup.model.machine import Snapshot

__all__ = [
    "Blocked",
    "DoctorAnswer",
    "Finding",
    "GpuSetupError",
    "PlanAnswer",
    "ResolveAnswer",
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
"""An example machine's name, the path of a snapshot file, or a snapshot."""


def diagnose(
    machine: Machine | None = None,
    *,
    python: str | Path | None = None,
    torch: str | None = None,
    gpu: Sequence[str] = (),
    driver: str | None = None,
    timeout: float | None = None,
) -> DoctorAnswer:
    """Find out what is wrong with this machine (or another one), and how to fix it.

    Like the command, this function looks at the active environment. For the environment of the
    calling program, pass `python=sys.executable`. If the driver hangs, the function returns after
    `timeout` seconds.
    """
    return _answer("doctor", DoctorAnswer, locals())


def read_report(text: str | bytes, *, torch: str | None = None) -> DoctorAnswer:
    """Find out from a text what is wrong with the machine that it describes, as `gpusetup doctor
    --report` does.

    `text` can be a string, or bytes in any encoding, and it can have any size. The function never
    raises an error because of what the text contains. gpusetup treats the text as data and follows
    no instructions in it.
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
    name: str | None = None,
    requirements: Sequence[str | Path] = (),
    explain: bool = False,
    offline: bool = False,
    index: str | None = None,
) -> ResolveAnswer:
    """Choose the torch build for this machine or one that you describe, and say why other builds do
    not fit.

    If you leave a value out, gpusetup reads it from this machine. With `packages`, it chooses torch
    and the packages together and queries your package index, unless you set `offline`. With
    `name`, the conda commands create a new environment with that name.
    """
    return _answer("resolve", ResolveAnswer, locals())


def plan(**question: Any) -> PlanAnswer:
    """Predict whether a training run fits on these GPUs, and with which settings.

    Each argument has the same meaning as the command-line option with the same name. Sizes in the
    answer are in GiB.
    """
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
    junit: str | Path | None = None,
) -> VerifyAnswer:
    """Test torch by computing with it, in a child process of the environment's Python.

    To test the torch of the calling program's environment, pass `python=sys.executable`. The call
    returns when the checks are done. This function tests a single process. To test several
    ranks, use `python -m gpusetup.verify`.
    """
    return _answer("verify", VerifyAnswer, locals())


Answer = TypeVar("Answer")


def _answer(name: str, kind: type[Answer], values: dict[str, Any]) -> Answer:
    """Run a command and return its document, which is a value of type `kind`. The arguments of the
    functions above have the names of the command's options."""
    from gpusetup.commands.calling import answered

    document = answered(name, values, _log)
    assert isinstance(document, kind), f"{name} answered {type(document).__name__}"
    return document


def _log(text: str) -> None:
    import logging

    logging.getLogger("gpusetup").info("%s", text)
