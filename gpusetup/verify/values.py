"""The plain values of verify: what a check is, what it answers, what stops the program."""

from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

PASSED, FAILED, SKIPPED, CRASHED = "passed", "failed", "skipped", "crashed"
HOST = "host"
"""Where a check stands that is about no single device."""


class Stop(Exception):
    """Ends the program with a sentence, a way out and an exit code."""

    exit_code = 5

    def __init__(self, message: str, hint: Optional[str] = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class WrongQuestion(Stop):
    """What was asked makes no sense here."""

    exit_code = 2


class Blocked(Stop):
    """The report cannot be written."""

    exit_code = 3


class Outcome(NamedTuple):
    """What one check found. `value` and `limit` share `unit`; `facts` go into the report."""

    status: str
    detail: str
    value: Optional[float] = None
    limit: Optional[float] = None
    unit: Optional[str] = None
    hint: Optional[str] = None
    facts: Optional[Dict[str, Any]] = None
    spent: bool = False
    """The process cannot compute on the device any more (a sticky CUDA error)."""


class Check(NamedTuple):
    """A row of the table of checks."""

    name: str
    run: Callable[[str], Outcome]
    """Takes the device (`cuda:0`, `cpu`) or, on the host, what `--device` asks for."""
    on: Tuple[str, ...]
    """`host:WANTED` (once, where `--device` asks for that), `cpu`, `cuda` (on each device)."""
    needs: Tuple[str, ...] = ()
    """Checks, on the same device or the host, without which this one says nothing."""
    limit_seconds: float = 300.0
    """After this long without an answer the process is killed and the check has crashed."""


class Result(NamedTuple):
    """An outcome with its place in the report."""

    name: str
    device: str
    outcome: Outcome
    seconds: float = 0.0


class Report(NamedTuple):
    """Everything that was asked and found."""

    wanted: str
    """What `--device` asked for."""
    strict: bool
    facts: Dict[str, Any]
    results: Tuple[Result, ...]


def kind(device: str) -> str:
    """The kind of a device: of `cuda:1`, `cuda`.

    >>> kind("cuda:1")
    'cuda'
    """
    return device.partition(":")[0]


def good(result: Result, strict: bool) -> bool:
    """Whether a result leaves the verdict at passed."""
    return result.outcome.status == PASSED or (result.outcome.status == SKIPPED and not strict)


def verdict(report: Report) -> str:
    """`passed` or `failed`; a skip is no failure unless `--strict` was given."""
    return PASSED if all(good(each, report.strict) for each in report.results) else FAILED
