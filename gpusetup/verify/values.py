"""The data types of verify: checks, outcomes, reports, and the exceptions that stop the program."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

PASSED, FAILED, SKIPPED, CRASHED = "passed", "failed", "skipped", "crashed"
Row = Dict[str, Any]
OTHER_ACCELERATORS = ("xpu", "mps")
"""torch's names of Intel's and of Apple's GPUs."""
HOST = "host"
"""The device of a result that is about no single device."""


class Stop(Exception):
    """Ends the program with a message, a hint and an exit code."""

    exit_code = 5

    def __init__(self, message: str, hint: Optional[str] = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class WrongQuestion(Stop):
    """Raised if the user's options make no sense here."""

    exit_code = 2


class ReportBlocked(Stop):
    """Raised if the report cannot be written or collected."""

    exit_code = 3


class Asked(NamedTuple):
    """The user's options for every check; the child gets them when it starts."""

    seed: int = 20_240_607
    """The seed of all random numbers that the checks compute with."""
    seconds: float = 60.0
    """How long a check such as `stress`, which lasts as long as the user likes, runs."""
    level: str = "quick"
    only: Tuple[str, ...] = ()
    """Names of checks, or CHECK/SAMPLE for one sample of a check; empty: all."""


STICKY = (
    "CUDA error",
    "CUDNN_STATUS_EXECUTION_FAILED",
    "CUBLAS_STATUS_EXECUTION_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR",
    "CUBLAS_STATUS_INTERNAL_ERROR",
    "Triton Error [CUDA]",
    "launch failure",
)
"""Words of the errors after which this process can no longer use the GPU; a new process can."""


def sticky(problem: BaseException) -> bool:
    """Whether the process can no longer compute on its device after this error.

    >>> sticky(RuntimeError("CUDA error: an illegal memory access was encountered"))
    True
    """
    message = str(problem)
    return any(words in message for words in STICKY)


class Job(NamedTuple):
    """The settings of the check that is running, in the process that computes."""

    asked: Asked = Asked()
    until: float = float("inf")
    """The time, as `time.monotonic` gives it, at which the check has to end."""
    tell: Callable[[Row], None] = lambda message: None
    """Sends a message to the parent."""


_NOW = [Job()]


def begin(**fields: Any) -> None:
    """Change settings for the next check."""
    _NOW[0] = _NOW[0]._replace(**fields)


def ask_for(options: Asked) -> None:
    """Set the options that `asked` returns."""
    begin(asked=options)


def asked() -> Asked:
    """The user's options."""
    return _NOW[0].asked


def working_on(place: str) -> None:
    """Report what a long check computes now; its time limit starts again with each report."""
    _NOW[0].tell({"at": place})


def seconds_left() -> float:
    """The seconds left for the whole check; checks with many questions stop at 0."""
    return _NOW[0].until - time.monotonic()


class Outcome(NamedTuple):
    """The outcome of one check. `value` and `limit` are in `unit`; `facts` are added to the
    report."""

    status: str
    detail: str
    value: Optional[float] = None
    limit: Optional[float] = None
    unit: Optional[str] = None
    hint: Optional[str] = None
    facts: Optional[Row] = None
    spent: bool = False
    """The process cannot compute on the device any more (a sticky CUDA error)."""


class Check(NamedTuple):
    """A row in the table of checks."""

    name: str
    run: str
    """`module:function` of this folder; the module is loaded in the child that computes. The
    function takes the device (`cuda:0`, `cpu`) or, on the host, what `--device` asks for."""
    on: Tuple[str, ...]
    """Where it runs: `host:WANTED` once, if `--device` asks for WANTED; `cpu` and `cuda` on each
    such device; `ranks:cpu` and `ranks:cuda` on the device of this rank, if several ranks were
    started."""
    least_gpus: int = 0
    """The number of GPUs that it needs; if torch sees fewer, the report has no row for it."""
    needs: Tuple[str, ...] = ()
    """Checks, on the same device or the host, without which this one says nothing."""
    limit_seconds: float = 300.0
    """After this long without an answer the process is killed and the check has crashed; a check
    that lasts `--seconds` gets them on top."""
    lasts: bool = False
    """Whether it runs for `--seconds`."""
    alone: bool = False
    """Whether it needs the machine's whole CPU, which the ranks of one machine share."""
    environment: Tuple[Tuple[str, str], ...] = ()
    """Variables that must be set before torch starts: the check gets a child of its own."""
    scratch: bool = False
    """Whether torch needs a writable temporary folder for it."""
    samples_seconds: float = 0.0
    """For a check that takes samples and names each: the limit for all of them together, while
    `limit_seconds` is the limit for one. 0: it takes no samples."""
    proves: str = ""
    """What is true if it passes."""
    means: str = ""
    """What a failure means for somebody who uses this device."""
    then: str = ""
    """The one next step after a failure, unless the outcome names a better one."""


class Result(NamedTuple):
    """An outcome with the name and device of its check."""

    name: str
    device: str
    outcome: Outcome
    seconds: float = 0.0
    means: Optional[str] = None
    """What it means for a user if the check did not pass."""


class Report(NamedTuple):
    """The results of a run, with what was requested and what is known of the devices."""

    wanted: str
    """What `--device` asked for."""
    strict: bool
    facts: Row
    results: Tuple[Result, ...]


def figure(value: float) -> str:
    """A number as text: with two significant digits, or as a whole number from 100 to below a
    million.

    >>> figure(0.25), figure(54.3), figure(691.7), figure(1e9)
    ('0.25', '54', '692', '1e+09')
    """
    is_whole = 100 <= value < 1e6
    return f"{value:.0f}" if is_whole else f"{value:.2g}"


def kind(device: str) -> str:
    """The kind of a device without its index, e.g. `cuda` for `cuda:1`.

    >>> kind("cuda:1")
    'cuda'
    """
    return device.partition(":")[0]


def good(result: Result, strict: bool) -> bool:
    """Whether a result counts as passed: it passed, or was skipped without `--strict`."""
    status = result.outcome.status
    if status == SKIPPED:
        return not strict
    return status == PASSED


def verdict(report: Report) -> str:
    """`passed` or `failed`. Skipped checks only count as failures under `--strict`, or if no check
    passed."""
    statuses = {result.outcome.status for result in report.results}
    # A run in which nothing passed has shown nothing.
    if PASSED not in statuses:
        return FAILED
    all_good = all(good(result, report.strict) for result in report.results)
    return PASSED if all_good else FAILED
