"""The explanation of each finding: what it means, how to check for it, and what to do.

`gpusetup doctor --explain ID` prints one of these rows.
"""

from __future__ import annotations

from difflib import get_close_matches

from gpusetup.causes.record import RECORDS, Cause
from gpusetup.causes.table import CAUSES
from gpusetup.diagnosis.precedence import consequences
from gpusetup.errors import UsageError
from gpusetup.model.documents import KnownFinding
from gpusetup.model.finding import Severity

RULE_BROKEN = Cause(
    id="rule-broken",
    severity=Severity.NOTE,
    title="one of gpusetup's own checks failed with an error",
    means="This is a bug in gpusetup. The other results are still valid.",
    text="Open an issue with the output of `gpusetup snapshot`",
)

VERDICTS = (
    Cause(
        id="ok",
        severity=Severity.NOTE,
        title="nothing to fix for CUDA",
        means="The driver, the GPU and torch work together. If a program still fails, the cause "
        "lies elsewhere.",
        text="Nothing to do",
    ),
    Cause(
        id="unknown",
        severity=Severity.NOTE,
        title="not enough information to tell what is wrong",
        means="gpusetup found no error, but nothing shows that the GPU, the driver and torch work.",
        text="Run `gpusetup doctor` on the machine, or post the output of `gpusetup snapshot`",
    ),
)
"""The answers that doctor gives if no finding is the root."""


def records() -> tuple[Cause, ...]:
    """All records in the order of precedence, then by id; the verdicts come last."""
    ordered = sorted((*CAUSES, RULE_BROKEN), key=lambda record: record.order)
    return (*ordered, *VERDICTS)


def record(id: str) -> Cause:
    """The record with this id, or that had it in an earlier release. Raises UsageError with similar
    ids if there is none."""
    for row in records():
        if id == row.id or id in row.formerly:
            return row
    # A cutoff below difflib's 0.6, because people often type only one word of an id.
    near = get_close_matches(id, RECORDS, cutoff=0.4)
    hint = f"similar ids are {', '.join(near)}" if near else None
    raise UsageError(f"There is no finding {id!r}", hint=hint)


def known_finding(row: Cause) -> KnownFinding:
    """A record in the form of the public document."""
    return KnownFinding(
        id=row.id,
        title=row.name,
        means=row.means,
        check=row.check.command if row.check else "",
        prints=row.check.prints if row.check else "",
        # Some records' texts are only the beginning of a fix, and end with ". ".
        way_out=row.text.removesuffix(". "),
        explains=consequences(row),
    )
