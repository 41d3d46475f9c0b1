"""The program that a text is about, and the step at which it failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.causes.record import RECORDS
from gpusetup.evidence.context import events, is_report
from gpusetup.evidence.places import is_beside_torch
from gpusetup.model.finding import Finding

if TYPE_CHECKING:
    from gpusetup.evidence.context import RuleContext
    from gpusetup.messages.programs import Program


def program_of(context: RuleContext) -> Program | None:
    """The program of a text. Its table is loaded only if the text is about a program."""
    name = context.snapshot.failing.program
    is_unnamed = name is None and is_beside_torch(context)
    if name is None and not is_unnamed:
        return None
    from gpusetup.messages.programs import BY_NAME, UNNAMED

    return UNNAMED if name is None else BY_NAME.get(name)


def failure_without_cause(context: RuleContext, findings: tuple[Finding, ...]) -> Finding | None:
    """The finding of what a program failed at, for a text without an error finding."""
    # `own` marks a failure that nothing in the text connects with the GPU stack (see
    # report.timeline).
    is_own = any(event.values.get("own") for event in events(context, "program-failed"))
    failed = (
        finding
        for finding in findings
        if RECORDS[finding.id].failure
        # More failed than the display of an image.
        and not any("Graphics Exception: " in evidence.text for evidence in finding.evidence)
        and (finding.id != "program-failed" or is_own)
    )
    first = min(failed, key=lambda finding: RECORDS[finding.id].failure, default=None)
    return first if is_report(context) else None
