"""The judgement: all findings about one machine, which is the root, and the build that fits.

`diagnose` is a pure function. A rule that breaks becomes one line of the report.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

from gpusetup.diagnosis.doubt import certainty_of, doubt_about, other_causes
from gpusetup.diagnosis.failing import named_instead, of_the_program, stage_of
from gpusetup.diagnosis.lent import on_a_lent_machine
from gpusetup.diagnosis.next_reading import asked_first, reading_here, without_a_second
from gpusetup.diagnosis.ok import may_be_ok
from gpusetup.diagnosis.pasted import pasted
from gpusetup.diagnosis.precedence import explanation, is_loss, place_of
from gpusetup.diagnosis.proof import computed, proof
from gpusetup.diagnosis.rules import rules_for
from gpusetup.diagnosis.system import (
    in_either_shell,
    is_of_one_shell,
    on_this_system,
    on_windows,
)
from gpusetup.diagnosis.training import of_a_training
from gpusetup.evidence.context import Rule, RuleContext
from gpusetup.evidence.wording import once
from gpusetup.findings.record import RECORDS, Cause
from gpusetup.model.finding import Finding, Severity
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Snapshot
from gpusetup.model.resolution import Request, Resolution

if TYPE_CHECKING:
    from gpusetup.catalog.builds import Catalog
    from gpusetup.model.documents import ResolveAnswer
    from gpusetup.model.failing import Stage
    from gpusetup.resolver.least import Decision


OK = "ok"
UNKNOWN = "unknown"


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
    confidence: Literal["certain", "likely"] | None = None
    """`likely` where an error stands beside the root that it does not explain."""
    certainty: Literal["certain", "likely"] | None = None
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
    chosen = rules_for(snapshot) if rules is None else rules
    findings = judged_by(chosen, context)
    symptom = symptom_of(context, findings)
    findings = with_its_cause(context, findings, symptom)
    root = root_of(findings)
    named = named_by(context, findings, root, symptom)
    about = symptom or root
    doubt = doubt_about(context, about)
    others = other_causes(context, about, findings, doubt, named.cause)
    unproven = named.cause == OK and context.snapshot.origin == "report" and not computed(context)
    undecided = named.basis == "inferred" or named.cause == UNKNOWN or unproven
    reading = reading_here(context, doubt, undecided=undecided)
    marked = (
        without_a_second(
            asked_first(context, replace(f, root=f is root), others, reading),
            reading,
            undecided=undecided,
        )
        if f is root or f is about
        else f
        for f in findings
    )
    sure = None if named.basis == "only seen" else root
    inferred = named.basis == "inferred"
    return Diagnosis(
        cause=named.cause,
        proof=named.proof,
        symptom=symptom.id if symptom else None,
        program=context.snapshot.failing.program,
        stage=stage_of(context, root),
        findings=tuple(sorted(marked, key=_reading_order)),
        resolution=context.resolution,
        decision=context.decision,
        snapshot=context.snapshot,
        answer=answer,
        confidence=confidence_in(sure, findings, inferred=inferred),
        certainty=certainty_of(sure, others, inferred=inferred),
        other_causes=others,
        next_reading=reading,
    )


class Named(Frozen):
    """What the answer is called, and from what."""

    cause: str
    basis: Literal["shown", "inferred", "only seen"] = "shown"
    """`only seen`: what happened is shown, and not why."""
    proof: str | None = None
    """What shows that nothing is wrong here, where nothing is."""


def named_by(
    context: RuleContext,
    findings: tuple[Finding, ...],
    root: Finding | None,
    symptom: Finding | None,
) -> Named:
    """The root; else, if no error is there, what a program failed at, or `ok`; else unknown."""
    broken = any(finding.severity is Severity.ERROR for finding in findings)
    name, seen = root.id if root else UNKNOWN, None
    if root is None and not broken:
        of_a_text = context.snapshot.origin == "report"
        failed = named_instead(context, findings) if of_a_text else None
        if failed is not None:
            name = failed
        elif may_be_ok(context):
            name, seen = OK, proof(context)
    if symptom is not None and name == symptom.id:
        return Named(cause=UNKNOWN, basis="only seen")
    return Named(
        cause=shared_name(context, name), basis="inferred" if symptom else "shown", proof=seen
    )


def judged_by(rules: Iterable[Rule], context: RuleContext) -> tuple[Finding, ...]:
    """What the rules find, each once, with a way out for this program and this machine: for both
    shells where a text does not tell its system."""
    every = tuple(rules)
    own = tuple(_with_ways(every, context))
    if not any(is_of_one_shell(context, one) for one in own):
        return linked(unique(own))
    there = {one.id: one for one in _with_ways(every, on_windows(context))}
    return linked(unique(in_either_shell(context, one, there.get(one.id)) for one in own))


def _with_ways(rules: Iterable[Rule], context: RuleContext) -> Iterator[Finding]:
    own = (of_the_program(context, finding) for finding in found(rules, context))
    trained = (of_a_training(context, finding) for finding in own)
    there = (on_this_system(context, finding) for finding in trained)
    here = (on_a_lent_machine(context, finding) for finding in there)
    yield from (pasted(context, finding) for finding in here)


def symptom_of(context: RuleContext, findings: tuple[Finding, ...]) -> Finding | None:
    """What a text is about, where that says what was seen and not why.

    No order: a live machine was asked all there is to ask, and its answer names where that ended.
    """
    if context.snapshot.origin != "report":
        return None
    root, healthy = root_of(findings), named_instead(context, findings)
    shown = root or next((one for one in findings if one.id == healthy), None)
    return shown if shown and RECORDS[shown.id].symptom else None


def with_its_cause(
    context: RuleContext, findings: tuple[Finding, ...], symptom: Finding | None
) -> tuple[Finding, ...]:
    """The findings, with the likely cause of the symptom where the text shows one."""
    if symptom is None:
        return findings
    from gpusetup.diagnosis.symptoms import cause_behind

    cause = cause_behind(context, symptom)
    if cause is None:
        return findings
    behind = on_a_lent_machine(context, on_this_system(context, cause))
    others = (one for one in findings if one is not symptom and one.id != behind.id)
    return (behind, replace(symptom, explained_by=behind.id), *others)


def shared_name(context: RuleContext, id: str) -> str:
    """The cause of which a finding is a case, else its own name: a machine that is read itself
    shows the case, a text mostly the cause alone."""
    if context.snapshot.origin != "report":
        return id
    record = RECORDS.get(id)
    return (record.kind_of if record else "") or id


def confidence_in(
    root: Finding | None, findings: tuple[Finding, ...], *, inferred: bool = False
) -> Literal["certain", "likely"] | None:
    """How sure the root is: the text itself shows it, and nothing else that is wrong stands beside
    it unexplained."""
    if root is None:
        return None
    if inferred:
        return "likely"
    others = (f for f in findings if f is not root and f.severity is Severity.ERROR)
    alone = all(other.explained_by is not None for other in others)
    return "certain" if alone else "likely"


def build_case(
    snapshot: Snapshot, catalog: Catalog, request: Request | None, *, other_host: bool = False
) -> tuple[RuleContext, ResolveAnswer]:
    """What the rules are given, and the resolution as a document."""
    from gpusetup.catalog.builds import with_catalog
    from gpusetup.diagnosis.decided import decided

    machine = with_catalog(snapshot, catalog)
    asked, decision, answer = decided(machine, catalog, request)
    context = RuleContext(
        snapshot=machine,
        catalog=catalog,
        resolution=decision.resolution,
        decision=decision,
        commands=answer.commands,
        installer=installer_of(machine),
        request=asked,
        other_host=other_host,
    )
    return context, answer


# --- the findings -------------------------------------------------------------------------------


def found(rules: Iterable[Rule], context: RuleContext) -> Iterator[Finding]:
    """All findings. A rule that breaks must not take the report with it: it becomes a line."""
    for rule in rules:
        try:
            findings = tuple(rule(context))
        except Exception as problem:
            findings = (_of_a_broken(rule, problem),)
        yield from findings


RULE_BROKEN = Cause(
    id="rule-broken",
    severity=Severity.NOTE,
    title="a rule of gpusetup broke",
    means="A fault of ours; the other findings stand.",
    proven_by="An exception in a rule",
    way_out="Report it",
    source="gpusetup",
)


def _of_a_broken(rule: Rule, problem: Exception) -> Finding:
    title = f"The rule {rule.__name__} broke: {type(problem).__name__}: {problem}"
    detail = "This is a fault of gpusetup. The other findings stand; please report it."
    return RULE_BROKEN.found(title, detail=detail)


def unique(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """One finding an id, the gravest first seen; the evidence of the others is kept with it."""
    kept: dict[str, Finding] = {}
    for finding in sorted(findings, key=lambda f: _GRAVITY[f.severity]):
        first = kept.get(finding.id)
        if first is None:
            kept[finding.id] = finding
            continue
        kept[finding.id] = replace(first, evidence=once((*first.evidence, *finding.evidence)))
    return tuple(kept.values())


def linked(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Each finding with the first other one, in the order of precedence, that explains it."""
    errors = {finding.id for finding in findings if finding.severity is Severity.ERROR}
    return tuple(_as_consequence(one, explanation(one.id, errors)) for one in findings)


def _as_consequence(finding: Finding, of: str | None) -> Finding:
    """A finding with what explains it: then its own commands are not what mends it."""
    fix = finding.fix
    if of and fix:
        fix = replace(fix, commands=(), alternatives=())
    return replace(finding, explained_by=of, fix=fix)


def root_of(findings: tuple[Finding, ...]) -> Finding | None:
    """The first unexplained error in the order of precedence, else the first loss of speed."""
    errors = [f for f in findings if f.severity is Severity.ERROR and f.explained_by is None]
    losses = [f for f in findings if f.severity is Severity.WARNING and is_loss(f.id)]
    return min(errors or losses, key=lambda finding: place_of(finding.id), default=None)


_GRAVITY = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


def _reading_order(finding: Finding) -> tuple[bool, int, tuple[int, int, str]]:
    return (not finding.root, _GRAVITY[finding.severity], place_of(finding.id))


def installer_of(machine: Snapshot) -> str:
    """Who changes this environment: what installed torch, else what made it, else what is there."""
    installed = (machine.torch.installer or "").lower()
    if machine.python.manager == "uv project" and installed != "conda":
        return "uv"
    if installed in ("uv", "pip", "conda"):
        return installed
    # No order: a text shows who was at work; a wheel's label is of no conda package.
    if machine.origin == "report" and machine.failing.program == "uv":
        return "uv"
    # conda's torch has no label: over pip's, and over what no text shows, it would be a mixture.
    unlabelled = machine.torch.version and "+" not in machine.torch.version
    if machine.origin == "report" and machine.python.manager == "conda" and not unlabelled:
        return "pip"
    if machine.python.manager in ("uv", "conda"):
        return machine.python.manager
    return "uv" if machine.python.has_pip is False else "pip"
