"""Runs a failed check again: the same in a new process, and once in float64. A failure that does
not repeat is "not repeatable", which points at memory, heat or overclocking."""

from __future__ import annotations

from typing import Any

from .child import ChildTask
from .values import (
    CRASHED,
    FAILED,
    HOST,
    NO_ANSWER,
    NOT_REPEATABLE,
    PASSED,
    WRONG,
    Check,
    Outcome,
    Row,
    problem_of,
)

ADVICE = (
    "the device was wrong once and right afterwards: run it again with `--level stress`; look for "
    "ECC and Xid in `dmesg`, watch temperature and power with `gpusetup monitor`, and undo any "
    "overclocking"
)


def should_try_again(check: Check, device: str, answer: Row) -> bool:
    """Whether the answer is a failure of such a kind that a second try shows more."""
    # A check of the host does not compute, and one among ranks needs the other ranks.
    if device == HOST or device.endswith(" ranks"):
        return False
    # A check under load has repeated its computation already.
    if check.lasts:
        return False
    outcome = Outcome(**answer["outcome"])
    # A device that hangs would take the whole limit once more.
    return outcome.status in (FAILED, CRASHED) and not outcome.detail.startswith(NO_ANSWER)


def try_again(child: Any, task: ChildTask, first: Row) -> Row:
    """The answer for a check whose first answer was a failure, with the seconds of all tries."""
    # The second try gets a new process, because a fault may have damaged this one.
    child.end()
    second = child.run(task)
    outcome = Outcome(**second["outcome"])
    seconds = first["seconds"] + second["seconds"]
    if outcome.status == PASSED:
        detail = f"failed once, and passed in a new process: {first['outcome']['detail']}"
        # The facts of the check are those of the try that passed.
        failed = outcome._replace(status=FAILED, detail=detail, problem=NOT_REPEATABLE, hint=ADVICE)
        return {"outcome": failed._asdict(), "seconds": seconds}
    if task.check.in_float64 and problem_of(outcome) == WRONG:
        third = child.run(task._replace(in_float64=True))
        seconds += third["seconds"]
        meaning = "it fails in float64 too: the device computes wrong numbers"
        if third["outcome"]["status"] == PASSED:
            meaning = "it is right in float64: the kernels of its other formats are wrong"
        outcome = outcome._replace(detail=f"{outcome.detail} ({meaning})")
    return {"outcome": outcome._asdict(), "seconds": seconds}
