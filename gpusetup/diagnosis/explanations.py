"""The explanation of each finding: what it means, how to check for it, and what to do.

`gpusetup doctor --explain ID` prints one of these rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.causes.record import RECORDS, Cause
from gpusetup.diagnosis.precedence import consequences
from gpusetup.errors import UsageError
from gpusetup.model.finding import Severity

if TYPE_CHECKING:
    from gpusetup.model.documents import KnownFinding


RULE_BROKEN = Cause(
    id="rule-broken",
    severity=Severity.NOTE,
    title="a rule of gpusetup broke",
    means="This is a bug in gpusetup. The other findings are still valid.",
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
        text="Run `gpusetup doctor` on the machine itself, or post the output of `gpusetup "
        "snapshot`",
    ),
)
"""The answers that doctor gives if no finding is the root."""


def records() -> tuple[Cause, ...]:
    """All records in the order of precedence, then by id; the verdicts come last."""
    from gpusetup.causes.table import CAUSES

    known = sorted((*CAUSES, RULE_BROKEN), key=lambda record: record.order)
    return (*known, *VERDICTS)


def record(id: str) -> Cause:
    """The record with an id. Raises UsageError with similar ids if there is none."""
    known = records()
    id = next((row.id for row in known if id in row.formerly), id)
    ids = [row.id for row in known]
    if id in ids:
        return RECORDS[id]
    import difflib

    near = difflib.get_close_matches(id, ids, 3, 0.4)
    hint = f"similar ids are {', '.join(near)}" if near else None
    raise UsageError(f"There is no finding {id!r}", hint=hint)


def known_finding(row: Cause) -> KnownFinding:
    """A record in the form of the public document."""
    from gpusetup.model.documents import KnownFinding

    return KnownFinding(
        id=row.id,
        title=row.name,
        means=row.means,
        check=row.check.command if row.check else "",
        prints=row.check.prints if row.check else "",
        way_out=row.text.removesuffix(". "),
        explains=consequences(row),
    )
