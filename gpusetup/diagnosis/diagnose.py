"""All findings about one machine, which one is the root, and the build that fits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from gpusetup.causes.record import RECORDS
from gpusetup.diagnosis.ok import computed, may_be_ok, proof
from gpusetup.diagnosis.open_causes import (
    likely_cause,
    open_causes,
    reading_command,
    with_reading_first,
)
from gpusetup.diagnosis.pasting import fit_for_pasting
from gpusetup.diagnosis.platforms import fit_to_lent_machine, fit_to_system
from gpusetup.diagnosis.precedence import order_of, root_of, unexplained, with_explanations
from gpusetup.diagnosis.program import failure_without_cause, fit_to_program, stage_of
from gpusetup.diagnosis.request import build_case
from gpusetup.diagnosis.rules import RULE_FILES, findings_of, rules_of
from gpusetup.evidence.context import Rule, RuleContext, is_report
from gpusetup.model.finding import Finding, Severity, unique_evidence
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Request, Resolution

if TYPE_CHECKING:
    from gpusetup.catalog.builds import Catalog
    from gpusetup.model.documents import ResolveAnswer
    from gpusetup.model.finding import Stage
    from gpusetup.resolver.least import Decision

OK, UNKNOWN = "ok", "unknown"
Sureness = Literal["certain", "likely"]
SEVERITIES = list(Severity)


class Diagnosis(Frozen):
    cause: str
    """The id of the root cause, of what a program of a text failed at, `ok`, or `unknown`."""
    findings: tuple[Finding, ...]
    """The root first, then by severity; a consequence names what explains it."""
    resolution: Resolution
    decision: Decision | None = None
    """How that was decided, and the newest beside it."""
    snapshot: Snapshot
    """What was judged: the machine, completed from the catalog."""
    answer: ResolveAnswer
    """The resolution as a document, with the commands of every installer."""
    proof: str | None = None
    """What `ok` rests on: what was seen, in one line."""
    confidence: Sureness | None = None
    """`likely` if there is another error that the root does not explain."""
    certainty: Sureness | None = None
    """`likely` if another cause is left open; None without a root."""
    other_causes: tuple[str, ...] = ()
    """What is left open beside the root, the likelier first."""
    next_reading: str | None = None
    """The command whose answer would decide."""
    symptom: str | None = None
    """The finding that says what a text shows, and not why."""
    program: str | None = None
    """The program that somebody's text is about."""
    stage: Stage | None = None
    """At what it failed."""


def diagnose(
    snapshot: Snapshot,
    catalog: Catalog,
    request: Request | None = None,
    *,
    other_host: bool = False,
    rules: Iterable[Rule] | None = None,
) -> Diagnosis:
    """Judge one machine. `request` is what the person asked for; else what the machine shows."""
    context, answer = build_case(snapshot, catalog, request, other_host=other_host)
    seen = findings_of(context, rules_of(RULE_FILES) if rules is None else rules)
    findings = with_explanations(one_per_id(with_fitting_fix(context, finding) for finding in seen))
    main = root_of(findings) or failure_without_cause(context, findings)
    # A live machine was asked all there is to ask: its answer names where that ended.
    symptom = main if main and is_report(context) and RECORDS[main.id].symptom else None
    if symptom and (likely := likely_cause(context, symptom)):
        likely = fit_to_lent_machine(context, fit_to_system(context, likely))
        others = (
            finding for finding in findings if finding is not symptom and finding.id != likely.id
        )
        findings = (likely, replace(symptom, explained_by=likely.id), *others)
    root = root_of(findings)
    cause = cause_of(context, root or main, symptom)
    inferred = symptom is not None and cause != UNKNOWN
    unexplained_errors = unexplained(findings, root)
    other_causes, reading = open_causes(context, symptom or root, unexplained_errors, cause)
    unproven = cause == OK and is_report(context) and not computed(context)
    undecided = inferred or cause == UNKNOWN or unproven
    next_reading = reading_command(context, reading, undecided=undecided)
    marked = (
        with_reading_first(context, replace(finding, root=finding is root), next_reading)
        if finding in (root, symptom)
        else finding
        for finding in findings
    )
    has_root = root is not None and cause != UNKNOWN
    return Diagnosis(
        cause=cause,
        proof=proof(context) if cause == OK else None,
        symptom=symptom.id if symptom else None,
        program=context.snapshot.failing.program,
        stage=stage_of(context, root),
        findings=tuple(sorted(marked, key=_display_order)),
        resolution=context.resolution,
        decision=context.decision,
        snapshot=context.snapshot,
        answer=answer,
        confidence=sureness(inferred or bool(unexplained_errors)) if has_root else None,
        certainty=sureness(inferred or bool(other_causes)) if has_root else None,
        other_causes=other_causes,
        next_reading=next_reading,
    )


def cause_of(context: RuleContext, main: Finding | None, symptom: Finding | None) -> str:
    """The cause that the main finding names: its kind in a report, or that a symptom has none."""
    if main is None:
        return OK if may_be_ok(context) else UNKNOWN
    if symptom and main.id == symptom.id:
        return UNKNOWN
    return (is_report(context) and RECORDS[main.id].kind_of) or main.id


def with_fitting_fix(context: RuleContext, finding: Finding) -> Finding:
    """The finding with a way out for this program and this machine."""
    for fit in (fit_to_program, fit_to_system, fit_to_lent_machine, fit_for_pasting):
        finding = fit(context, finding)
    return finding


def one_per_id(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """One finding an id, the gravest first seen; the evidence of the others is kept with it."""
    kept: dict[str, Finding] = {}
    for finding in sorted(findings, key=lambda one: SEVERITIES.index(one.severity)):
        first = kept.setdefault(finding.id, finding)
        if first is not finding:
            kept[finding.id] = replace(
                first, evidence=unique_evidence((*first.evidence, *finding.evidence))
            )
    return tuple(kept.values())


def _display_order(finding: Finding) -> tuple[bool, int, tuple[int, int, str]]:
    return (not finding.root, SEVERITIES.index(finding.severity), order_of(finding))


def sureness(doubt: bool) -> Sureness:
    return "likely" if doubt else "certain"
