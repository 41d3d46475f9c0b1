"""Which causes a fact rules out. This is the only place that removes a finding again.

A message usually means one cause, but a reading in the same text may rule it out: torch's list
contains the GPU's architecture, the driver is new enough, or the missing file exists. A record
lists such facts (`refuted_by`). A refuted cause is never the answer. The remaining cause of the
message replaces it; if there is none, the answer asks for a command.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gpusetup.causes.record import RECORDS, Refutation
from gpusetup.evidence.context import RuleContext, cuda_errors, events
from gpusetup.findings.message_rules import finding as finding_of
from gpusetup.model.finding import Evidence, Finding, RuledOut, Severity
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event


class Remaining(NamedTuple):
    """The findings that no fact contradicts, and the causes that were ruled out."""

    findings: tuple[Finding, ...]
    ruled_out: tuple[RuledOut, ...]
    asks: dict[str, str]
    """A cause that replaced a refuted one ("" if none did) -> the command that tells more."""


def refute(context: RuleContext, findings: Iterable[Finding]) -> Remaining:
    """The findings; each that a fact contradicts is replaced by the remaining cause, if any."""
    remaining: list[Finding] = []
    ruled_out: list[RuledOut] = []
    asks: dict[str, str] = {}
    for finding in findings:
        refutation, fact = refutation_of(context, finding)
        if refutation is None:
            remaining.append(finding)
            continue
        ruled_out.append(RuledOut(id=finding.id, because=fact))
        if refutation.then:
            remaining.append(_what_is_left(context, finding, refutation, fact))
        if refutation.asks:
            asks[refutation.then] = refutation.asks
    return Remaining(tuple(remaining), tuple(ruled_out), asks)


def refutation_of(context: RuleContext, finding: Finding) -> tuple[Refutation | None, str]:
    """The first refutation in a finding's record that applies, and the fact in a sentence; None
    and "" if no fact contradicts the finding."""
    record = RECORDS[finding.id]
    # A note claims no cause, unless it says what a program failed at.
    if finding.severity is Severity.NOTE and not record.failure:
        return None, ""
    for refutation in record.refuted_by:
        if fact := refutation.fact(context):
            return refutation, fact
    return None, ""


def _what_is_left(
    context: RuleContext, refuted: Finding, refutation: Refutation, fact: str
) -> Finding:
    """The remaining cause for the same message, with the message and the fact as evidence."""
    record = RECORDS[refuted.id]
    # The values in the messages fill the title, so those of the remaining cause come first. A check
    # may have made the finding without a message; then the fact is the only evidence.
    messages = (
        events(context, *RECORDS[refutation.then].kinds)
        or (*events(context, *record.kinds), *cuda_errors(context, *record.codes))
        or (Event(kind="refuted", text=fact),)
    )
    remaining = finding_of(context, refutation.then, messages, fact=fact)
    evidence = (*refuted.evidence, Evidence(source="this rules out " + refuted.id, text=fact))
    return replace(remaining, severity=refuted.severity, evidence=evidence)
