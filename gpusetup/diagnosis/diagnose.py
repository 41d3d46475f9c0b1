"""The judgement: all findings about one machine, which is the root, and the build that fits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from gpusetup.causes.record import RECORDS
from gpusetup.diagnosis.doubt import asked_first, cause_behind, left_open, reading_here
from gpusetup.diagnosis.failing import failure_of, of_the_program, stage_of
from gpusetup.diagnosis.ok import computed, may_be_ok, proof
from gpusetup.diagnosis.pasted import pasted
from gpusetup.diagnosis.precedence import linked, place_of, root_of, unexplained
from gpusetup.diagnosis.request import build_case
from gpusetup.diagnosis.rules import FILES, found, rules_of
from gpusetup.diagnosis.system import on_a_lent_machine, on_this_system
from gpusetup.evidence.context import Rule, RuleContext, is_report
from gpusetup.model.finding import Finding, Severity, once
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
GRAVITY = list(Severity)


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
    """`likely` where an error stands beside the root that it does not explain."""
    certainty: Sureness | None = None
    """`likely` where another cause is left open; None without a root."""
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
    seen = found(context, rules_of(FILES) if rules is None else rules)
    findings = linked(merged(fitted(context, one) for one in seen))
    shown = root_of(findings) or failure_of(context, findings)
    # A live machine was asked all there is to ask: its answer names where that ended.
    symptom = shown if shown and is_report(context) and RECORDS[shown.id].symptom else None
    if symptom and (behind := cause_behind(context, symptom)):
        behind = on_a_lent_machine(context, on_this_system(context, behind))
        others = (one for one in findings if one is not symptom and one.id != behind.id)
        findings = (behind, replace(symptom, explained_by=behind.id), *others)
    root = root_of(findings)
    named = root or shown
    if named is None:
        cause = OK if may_be_ok(context) else UNKNOWN
    elif symptom and named.id == symptom.id:
        cause = UNKNOWN
    else:
        cause = (is_report(context) and RECORDS[named.id].kind_of) or named.id
    inferred = symptom is not None and cause != UNKNOWN
    beside = unexplained(findings, root)
    other_causes, asks = left_open(context, symptom or root, beside, cause)
    unproven = cause == OK and is_report(context) and not computed(context)
    undecided = inferred or cause == UNKNOWN or unproven
    reading = reading_here(context, asks, undecided=undecided)
    marked = (
        asked_first(context, replace(one, root=one is root), reading)
        if one in (root, symptom)
        else one
        for one in findings
    )
    sure = root if cause != UNKNOWN else None
    return Diagnosis(
        cause=cause,
        proof=proof(context) if cause == OK else None,
        symptom=symptom.id if symptom else None,
        program=context.snapshot.failing.program,
        stage=stage_of(context, root),
        findings=tuple(sorted(marked, key=_reading_order)),
        resolution=context.resolution,
        decision=context.decision,
        snapshot=context.snapshot,
        answer=answer,
        confidence=sureness(sure, doubt=inferred or bool(beside)),
        certainty=sureness(sure, doubt=inferred or bool(other_causes)),
        other_causes=other_causes,
        next_reading=reading,
    )


def fitted(context: RuleContext, finding: Finding) -> Finding:
    """The finding with a way out for this program and this machine."""
    for way in (of_the_program, on_this_system, on_a_lent_machine, pasted):
        finding = way(context, finding)
    return finding


def merged(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """One finding an id, the gravest first seen; the evidence of the others is kept with it."""
    kept: dict[str, Finding] = {}
    for finding in sorted(findings, key=lambda one: GRAVITY.index(one.severity)):
        first = kept.setdefault(finding.id, finding)
        if first is not finding:
            kept[finding.id] = replace(first, evidence=once((*first.evidence, *finding.evidence)))
    return tuple(kept.values())


def _reading_order(finding: Finding) -> tuple[bool, int, tuple[int, int, str]]:
    return (not finding.root, GRAVITY.index(finding.severity), place_of(finding))


def sureness(root: Finding | None, *, doubt: bool) -> Sureness | None:
    return None if root is None else "likely" if doubt else "certain"
