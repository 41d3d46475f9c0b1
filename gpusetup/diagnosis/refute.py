"""Which causes a fact rules out. This is the only place that removes a finding again.

A message usually means one cause, and a reading in the same text may deny it: torch's list has the
GPU's architecture, the driver is newer than the program needs, the missing file is there. A record
names such facts (`refuted_by`). A refuted cause is never given: what the message means then takes
its place, or nothing does, and the answer asks.
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
    """A cause that took a refuted one's place -> the command whose output tells more."""


def refute(context: RuleContext, findings: Iterable[Finding]) -> Remaining:
    """The findings without those that a fact contradicts, each replaced by the remaining
    possibility."""
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
    """The first refutation in a finding's record that applies, and the fact in a sentence."""
    # A note claims no cause, unless it says what a program failed at.
    if finding.severity is Severity.NOTE and not RECORDS[finding.id].failure:
        return None, ""
    for refutation in RECORDS[finding.id].refuted_by:
        if fact := refutation.fact(context):
            return refutation, fact
    return None, ""


def _what_is_left(
    context: RuleContext, refuted: Finding, refutation: Refutation, fact: str
) -> Finding:
    """The remaining cause for the same message, with the message and the fact as evidence."""
    record = RECORDS[refuted.id]
    # The messages of the remaining cause go first: their values fill its title.
    messages = events(context, *RECORDS[refutation.then].kinds)
    if not messages:
        messages = (*events(context, *record.kinds), *cuda_errors(context, *record.codes))
    # A check may have found it without a message; then the fact is all there is to say.
    shown = messages or (Event(kind="refuted", text=fact),)
    remaining = finding_of(context, refutation.then, shown, fact=fact)
    evidence = (*refuted.evidence, Evidence(source="this rules out " + refuted.id, text=fact))
    return replace(remaining, severity=refuted.severity, evidence=evidence)
