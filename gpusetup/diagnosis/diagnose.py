"""The diagnosis of one machine: all findings, the root cause among them, and the build that
fits."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from gpusetup.causes.alike import ON_THE_BUS
from gpusetup.causes.layers import Layer
from gpusetup.causes.record import RECORDS
from gpusetup.choose.choice import Choice
from gpusetup.diagnosis.asks import command_that_decides, is_answered, is_of_another_maker
from gpusetup.diagnosis.case import build_case
from gpusetup.diagnosis.certainty import is_proven
from gpusetup.diagnosis.fit import facts_read, fits_together
from gpusetup.diagnosis.ok import may_be_ok, proof, ran_to_its_end
from gpusetup.diagnosis.pasting import fit_for_pasting
from gpusetup.diagnosis.platforms import fit_to_lent_machine, fit_to_system
from gpusetup.diagnosis.precedence import order_of, root_of, unexplained, with_explanations
from gpusetup.diagnosis.program import failure_without_cause, fit_to_program, stage_of
from gpusetup.diagnosis.refute import Remaining, refute
from gpusetup.diagnosis.rules import RULE_FILES, findings_of, rules_of
from gpusetup.evidence.context import Rule, RuleContext, has_nvidia, is_report
from gpusetup.fixes import needs
from gpusetup.model.documents import CauseCheck, Fit, ReadFact, ResolveAnswer
from gpusetup.model.finding import (
    Alternative,
    Finding,
    Need,
    RuledOut,
    Severity,
    map_blocks,
    unique_evidence,
)
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Snapshot

if TYPE_CHECKING:
    from gpusetup.catalog.builds import Catalog
    from gpusetup.model.finding import Stage

OK, UNKNOWN = "ok", "unknown"
Sureness = Literal["certain", "likely"]
SEVERITIES = list(Severity)


class Diagnosis(Frozen):
    cause: str
    """The id of the root cause or of the program's failure; `ok` or `unknown` if there is none."""
    findings: tuple[Finding, ...]
    """All findings, the root first, then by severity. A consequence has the id of the finding that
    explains it."""
    choice: Choice
    """The build of torch that `install` would choose, and the newest build."""
    snapshot: Snapshot
    """The machine that was judged, completed with facts from the catalog."""
    answer: ResolveAnswer
    """The choice as a document, with the commands of every installer."""
    proof: str | None = None
    """What proves `ok`, in one line."""
    confidence: Sureness | None = None
    """Like `certainty`, but also `likely` if another error remains unexplained."""
    certainty: Sureness | None = None
    """`certain` if the text proves the cause and nothing remains open; None if there is no cause.
    """
    check: CauseCheck | None = None
    """How to check a cause that is only likely."""
    facts: tuple[ReadFact, ...] = ()
    """What was read."""
    fit: tuple[Fit, ...] = ()
    """Whether what was read fits together."""
    other_causes: tuple[str, ...] = ()
    """The errors that the root does not explain."""
    ruled_out: tuple[RuledOut, ...] = ()
    """Causes that a message suggests but a reading rules out."""
    next_reading: str | None = None
    """The command whose output would decide between the possible causes."""
    symptom: str | None = None
    """The id of the finding that describes a symptom without its cause."""
    program: str | None = None
    """The program that the text is about."""
    stage: Stage | None = None
    """At what it failed."""


def diagnose(
    snapshot: Snapshot,
    catalog: Catalog,
    choice: Choice | None = None,
    *,
    other_host: bool = False,
    rules: Iterable[Rule] | None = None,
) -> Diagnosis:
    """Diagnose one machine. `choice` is the torch chosen for the machine; if it is None, a build is
    chosen.

    The steps: collect the findings of the rules, remove those that a reading refutes, fit each fix
    to the program and the machine, mark findings that others explain, choose the root, and choose
    the command that decides.
    """
    context, answer = build_case(snapshot, catalog, choice, other_host=other_host)
    remaining = refute(context, collect(context, rules))
    # After a fact refutes two findings, the same cause may remain for both.
    possible = one_per_id(remaining.findings)
    findings = with_explanations(tuple(with_fitting_fix(context, one) for one in possible))
    fits = fits_together(context)
    root = root_of(findings)
    main = root or failure_without_cause(context, findings)
    if main is not root and ran_to_its_end(context):
        # An error line did not stop anything if the program went on after it.
        main = None
    # On a probed machine every reading was taken, so a symptom is the cause itself.
    symptom = main if main and is_report(context) and RECORDS[main.id].symptom else None
    cause = cause_of(context, main, symptom, fits)
    others = unexplained(findings, root)
    asks_first = asked_first(context, remaining, root, cause)
    is_open = cause == UNKNOWN
    is_caused = main is not None and cause not in (OK, UNKNOWN)
    # A cause that took a refuted one's place was not shown by a message of its own.
    replaces_another = main is not None and main.id in remaining.asks
    certain = main is not None and is_proven(context, main) and not replaces_another
    # On a probed machine, an error that the root does not explain leaves the answer open.
    certain = certain and (is_report(context) or not others)
    reading = None
    if is_report(context) and cause != OK and (asks_first or not (is_caused and certain)):
        reading = command_that_decides(context, main, asks_first, is_open=is_open)
    if is_open and is_report(context):
        findings = tuple(map(without_changes, findings))
    marked_findings = []
    for finding in findings:
        if main is not None and finding.id == main.id:
            finding = replace(finding, root=root is not None and main.id == root.id)
            if reading is not None and finding.fix is not None:
                # Only one command should be run first.
                finding = replace(finding, fix=replace(finding.fix, looks=()))
        elif finding.fix and root and _installs(root) and _installs(finding) - _installs(root):
            # With two installations, people would have to choose between them.
            finding = replace(finding, fix=replace(finding.fix, commands=()))
        marked_findings.append(finding)
    return Diagnosis(
        cause=cause,
        proof=proof(context, fits) if cause == OK else None,
        symptom=symptom.id if symptom else None,
        program=context.snapshot.failing.program,
        stage=stage_of(context, root),
        findings=tuple(sorted(marked_findings, key=_display_order)),
        choice=context.choice,
        snapshot=context.snapshot,
        answer=answer,
        # An error that the root does not explain leaves the answer less sure as a whole.
        confidence=sureness(certain and not others) if root and is_caused else None,
        certainty=sureness(certain) if is_caused else None,
        check=check_of(context, main) if is_caused and not certain else None,
        facts=facts_read(context),
        fit=fits,
        other_causes=other_causes(context, main, others, cause) if not certain else (),
        ruled_out=remaining.ruled_out,
        next_reading=reading,
    )


# --- the steps ------------------------------------------------------------------------------------


def collect(context: RuleContext, rules: Iterable[Rule] | None = None) -> tuple[Finding, ...]:
    """All findings of the rules, one for each id."""
    if rules is None:
        rules = rules_of(RULE_FILES)
    findings = findings_of(context, rules)
    return one_per_id(findings)


def _installs(finding: Finding) -> set[str]:
    """The commands of a finding that install torch."""
    commands = finding.fix.commands if finding.fix else ()
    return {line for line in commands if line.startswith("gpusetup install")}


def unread_needs(finding: Finding | None) -> tuple[Need, ...]:
    """The facts that a finding's commands need and that the text does not show."""
    if finding is None or finding.fix is None:
        return ()
    unread = [need for need in finding.fix.needs if need.state == "unread"]
    return tuple(need for need in unread if need.reading)


def asked_first(
    context: RuleContext, remaining: Remaining, root: Finding | None, cause: str
) -> str | None:
    """The command of a refutation whose cause is the answer, or of a fact that the root's commands
    need and that was not read; None if there is neither."""
    if root and root.id in remaining.asks:
        return remaining.asks[root.id]
    # No other cause replaced the refuted one, so only its own command remains.
    if cause == UNKNOWN and "" in remaining.asks:
        return remaining.asks[""]
    unread = unread_needs(root)
    if unread:
        return unread[0].reading
    # Before anything is installed for an NVIDIA GPU, see whether there is one.
    place = RECORDS[root.id].place if root else None
    installs = root is not None and root.fix is not None and root.fix.needs_root
    if installs and place and place[0] is Layer.DRIVER and has_nvidia(context) is None:
        return ON_THE_BUS
    return None


def other_causes(
    context: RuleContext, main: Finding | None, others: list[Finding], cause: str
) -> tuple[str, ...]:
    """The errors that the root does not explain, and the causes that have the same message."""
    ids = [error.id for error in others]
    alike: tuple[str, ...] = ()
    # The causes of NVIDIA's messages are none on another maker's GPU.
    if main and is_report(context) and not is_of_another_maker(context):
        alike = next(iter(RECORDS[main.id].alike.values()), ())
    for id in alike:
        if id in RECORDS and not any(rules_out(context) for rules_out in RECORDS[id].impossible):
            ids.append(id)
    known = (cause, main.id if main else "")
    return tuple(dict.fromkeys(id for id in ids if id not in known))


def check_of(context: RuleContext, cause: Finding | None) -> CauseCheck | None:
    """How to check a likely cause, from its record; None if the text already shows the output."""
    check = RECORDS[cause.id].check if cause else None
    if check is None or not is_report(context) or is_answered(context, check.command):
        return None
    return CauseCheck(command=check.command, prints=check.prints)


def cause_of(
    context: RuleContext, main: Finding | None, symptom: Finding | None, fits: tuple[Fit, ...]
) -> str:
    """The cause that the answer names: the id of the main finding, `ok`, or `unknown` for a failure
    whose cause is open."""
    if main is None:
        return OK if may_be_ok(context, fits) else UNKNOWN
    if symptom:
        return UNKNOWN
    if is_report(context) and RECORDS[main.id].kind_of:
        return RECORDS[main.id].kind_of
    return main.id


def with_fitting_fix(context: RuleContext, finding: Finding) -> Finding:
    """The finding with a fix for this program and this machine, as far as they are known."""
    for fit in (fit_to_program, fit_to_system, fit_to_lent_machine, fit_to_what_was_read):
        finding = fit(context, finding)
    return fit_for_pasting(context, finding)


CHANGES_SOMETHING = re.compile(
    r"gpusetup install\b|\b(?:pip3?|conda|mamba|apt(?:-get)?|dnf|pacman|zypper|winget) (?:-\S+ )*"
    r"(?:un|re)?install\b|\buv (?:add|sync)\b|\bpacman -S"
)
"""A pattern for commands that install or remove something."""
CHANGE_NOTHING_YET = "Change nothing yet: the output of the command above shows which cause it is"


def without_changes(finding: Finding) -> Finding:
    """The finding without commands that change what is installed, because its cause is unknown."""
    fix = finding.fix
    if fix is None:
        return finding

    def unless_it_changes(block: Alternative) -> Alternative | None:
        """The commands; None if one of them changes the installed packages."""
        changes = any(map(CHANGES_SOMETHING.search, block.commands))
        return None if changes else block

    harmless = map_blocks(fix, unless_it_changes)
    waits_for_a_reading = any(need.state == "unread" for need in fix.needs)
    if harmless == fix and not waits_for_a_reading:
        return finding
    return replace(finding, fix=replace(harmless, text=CHANGE_NOTHING_YET))


def fit_to_what_was_read(context: RuleContext, finding: Finding) -> Finding:
    """The finding with only those commands whose needs are all known to be met."""
    fix = finding.fix
    return finding if fix is None else replace(finding, fix=needs.judge(context, fix))


def one_per_id(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """One finding for each id, the most severe one; the evidence of the others is added to it."""
    by_id: dict[str, Finding] = {}
    for finding in sorted(findings, key=_gravity):
        gravest = by_id.setdefault(finding.id, finding)
        if gravest is not finding:
            evidence = unique_evidence((*gravest.evidence, *finding.evidence))
            by_id[finding.id] = replace(gravest, evidence=evidence)
    return tuple(by_id.values())


def _gravity(finding: Finding) -> int:
    """The rank of a severity: 0 for the most severe."""
    return SEVERITIES.index(finding.severity)


def _display_order(finding: Finding) -> tuple[bool, int, tuple[int, int, str]]:
    """The key for the display: the root first, then by severity, then in the order of the
    records."""
    is_beside_the_root = not finding.root
    return (is_beside_the_root, _gravity(finding), order_of(finding))


def sureness(is_proven: bool) -> Sureness:
    """`certain` if the cause is proven, otherwise `likely`."""
    return "certain" if is_proven else "likely"
