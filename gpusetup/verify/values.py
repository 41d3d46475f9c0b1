"""The data types of verify: checks, outcomes, reports, and the exceptions that stop the program."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional, Tuple

PASSED, FAILED, SKIPPED, CRASHED = "passed", "failed", "skipped", "crashed"
Row = Dict[str, Any]
OTHER_ACCELERATORS = ("xpu", "mps")
"""torch's names for Intel's and Apple's GPUs."""
WRONG, UNABLE, SLOW = "wrong results", "cannot run", "slow"
NOT_REPEATABLE, NOT_ASKED, DIFFERS = "not repeatable", "not asked", "differs"
UNEXPECTED = "not as expected"
"""What a result shows, if it is not simply right: wrong results; an error, a crash or a missing
part; too slow; a failure that a second try did not show; skipped; an operator of the census that
gives something else than the CPU, which is no failure; an `--expect` that is not met."""
NO_ANSWER = "no answer"
"""How the detail of a check begins that its time limit ended."""
HOST = "host"
"""The device of a result that does not belong to a single device."""


class Stop(Exception):
    """Ends the program with a message, a hint and an exit code."""

    exit_code = 5

    def __init__(self, message: str, hint: Optional[str] = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class WrongQuestion(Stop):
    """Raised if the user's options cannot be used here."""

    exit_code = 2


class ReportBlocked(Stop):
    """Raised if the report cannot be written or collected."""

    exit_code = 3


class RunOptions(NamedTuple):
    """The user's options that checks read; the worker gets them when it starts."""

    seed: int = 20_240_607
    """The seed for all random numbers that the checks compute with."""
    seconds: float = 60.0
    """How many seconds a check runs if its length is for the user to choose, as for `stress`."""
    level: str = "quick"
    in_float64: bool = False
    """Whether checks of fractions compute in float64, as in the last try after a failure."""
    only: Tuple[str, ...] = ()
    """Names of checks; empty means all."""


STICKY = (
    "CUDA error",
    "CUDNN_STATUS_EXECUTION_FAILED",
    "CUBLAS_STATUS_EXECUTION_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR",
    "CUBLAS_STATUS_INTERNAL_ERROR",
    "Triton Error [CUDA]",
    "launch failure",
)
"""After these errors this process can no longer use the GPU, but a new one can."""


def sticky(problem: BaseException) -> bool:
    """Whether the process can no longer compute on its device after this error."""
    return any(words in str(problem) for words in STICKY)


_NOW: Row = {"options": RunOptions(), "tell": lambda message: None}
"""Of the process that computes: the user's options, and what sends a message to the parent."""


def set_for_checks(**fields: Any) -> None:
    """Set `options` or `tell`, as in `_NOW`, for the checks that follow."""
    _NOW.update(fields)


def run_options() -> RunOptions:
    """The user's options for this run."""
    options: RunOptions = _NOW["options"]
    return options


def working_on(place: str) -> None:
    """Report what a long check is computing. Each report restarts its time limit."""
    _NOW["tell"]({"at": place})


class Outcome(NamedTuple):
    """The outcome of one check. `facts` are added to the report."""

    status: str
    detail: str
    value: Optional[float] = None
    limit: Optional[float] = None
    unit: Optional[str] = None
    hint: Optional[str] = None
    facts: Optional[Row] = None
    problem: Optional[str] = None
    """What the outcome shows (WRONG, UNABLE, SLOW, NOT_REPEATABLE, NOT_ASKED, DIFFERS); None if it
    passed, and the default of its status if a check does not say."""
    spent: bool = False
    """Whether the process can no longer compute on the device (after a sticky CUDA error)."""


class Check(NamedTuple):
    """A row in the table of checks."""

    name: str
    run: str
    """`module:function` in this folder; the child that computes loads the module. The function gets
    the device (`cuda:0`, `cpu`) or, for a check of the host, the value of `--device`."""
    on: Tuple[str, ...]
    """Where the check runs: `host:WANTED` once, if `--device` is WANTED; `cpu` and `cuda` on each
    such device; `ranks:cpu` and `ranks:cuda` on this rank's device, if there are several ranks."""
    least_gpus: int = 0
    """With fewer GPUs, the check does not appear in the report."""
    needs: Tuple[str, ...] = ()
    """Checks, on the same device or the host, without which this one shows nothing."""
    limit_seconds: float = 300.0
    """After this long without an answer or a message, the process is killed and the check counts as
    crashed. A check that runs for `--seconds` gets that time in addition."""
    lasts: bool = False
    """Whether the check runs for the number of seconds given with `--seconds`."""
    environment: Tuple[Tuple[str, str], ...] = ()
    """Variables that must be set before torch starts, so the check gets a new child process."""
    in_float64: bool = False
    """Whether a failed check runs once in float64 too, which tells a wrong kernel from rounding."""
    proves: str = ""
    """What is true if the check passes."""
    means: str = ""
    """What a failure means for the user of this device."""
    then: str = ""
    """The one next step after a failure; empty if each outcome of the check contains its own."""


class Result(NamedTuple):
    """An outcome with the name and device of its check."""

    name: str
    device: str
    outcome: Outcome
    seconds: float = 0.0
    means: Optional[str] = None
    """If the check did not pass, what that means for the user."""


class Report(NamedTuple):
    """The results of a run, with what was requested and what is known about the devices."""

    wanted: str
    """The value of `--device`."""
    strict: bool
    facts: Row
    results: Tuple[Result, ...]


def figure(value: float) -> str:
    """A number as text with two significant digits, or as a whole number from 100 to below a
    million.

    >>> figure(0.25), figure(54.3), figure(691.7), figure(1e9)
    ('0.25', '54', '692', '1e+09')
    """
    return f"{value:.0f}" if 100 <= value < 1e6 else f"{value:.2g}"


def kind(device: str) -> str:
    """The kind of a device without its index, e.g. `cuda` for `cuda:1`."""
    return device.partition(":")[0]


def problem_of(outcome: Outcome) -> Optional[str]:
    """What an outcome shows; None if it is simply right."""
    by_status = {FAILED: UNABLE, CRASHED: UNABLE, SKIPPED: NOT_ASKED}
    return outcome.problem or by_status.get(outcome.status)


def verdict(report: Report) -> str:
    """`passed` or `failed`; skipped checks fail under `--strict`, or if none passed."""
    statuses = {result.outcome.status for result in report.results}
    allowed = {PASSED} if report.strict else {PASSED, SKIPPED}
    return PASSED if PASSED in statuses and statuses <= allowed else FAILED
