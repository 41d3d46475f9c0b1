"""The commands as Python functions, which your own program can call: `from gpusetup.api import
diagnose, resolve`. The page docs/reference/api.md describes them.

Each function returns the document that its command prints with `--json`, as a typed value that you
cannot change. The functions print nothing; the messages that the command line writes to stderr go
to the logger `gpusetup` with the level INFO. An unknown argument, or one of the wrong type, raises
`TypeError`. Every other failure raises a `GpuSetupError` with `message`, `hint` and `exit_code`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from gpusetup.errors import Blocked, GpuSetupError, ToolFailed, Unsatisfiable, UsageError
from gpusetup.model.codec import to_json, to_plain
from gpusetup.model.documents import DoctorAnswer, PlanAnswer, ResolveAnswer, VerifyAnswer
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


def diagnose(machine: Machine | None = None, **options: Any) -> DoctorAnswer:
    """Find out what is wrong with this machine (or another one), and how to fix it.

    The options are `python`, `torch`, `gpu`, `driver` and `timeout` of `gpusetup doctor`. Like the
    command, this function looks at the active environment. For the environment of the calling
    program, pass `python=sys.executable`.
    """
    return _answer("doctor", DoctorAnswer, {"machine": machine, **options})


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


def resolve(*packages: str, machine: Machine | None = None, **options: Any) -> ResolveAnswer:
    """Choose the torch build for this machine or one that you describe, and say why other builds do
    not fit. With `packages`, choose torch and the packages together.

    Each option has the name of the command's, but `--machine` is `architecture` and `-r` is
    `requirements`. If you leave a value out, gpusetup reads it from this machine.
    """
    return _answer("resolve", ResolveAnswer, {"packages": packages, "machine": machine, **options})


def plan(**question: Any) -> PlanAnswer:
    """Predict whether a training run fits on these GPUs, and with which settings.

    Each argument has the same meaning as the command-line option with the same name. Sizes in the
    answer are in GiB.
    """
    return _answer("plan", PlanAnswer, question)


def verify(**options: Any) -> VerifyAnswer:
    """Test torch by computing with it, in a child process of the environment's Python.

    Each option has the name of the command's. To test the torch of the calling program's
    environment, pass `python=sys.executable`. This function tests a single process. To test several
    ranks, use `python -m gpusetup.verify`.
    """
    return _answer("verify", VerifyAnswer, options)


Answer = TypeVar("Answer")


def _answer(name: str, kind: type[Answer], values: dict[str, Any]) -> Answer:
    """Run a command and return its document, which is a value of type `kind`. The arguments of the
    functions above have the names of the command's options."""
    from gpusetup.commands.calling import answered  # here, because it loads the command line

    document = answered(name, values)
    assert isinstance(document, kind), f"{name} answered {type(document).__name__}"
    return document
