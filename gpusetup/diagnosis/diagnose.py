"""The diagnosis of one machine: all findings, the root cause among them, and the build that
fits."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, NamedTuple

from gpusetup.causes.layers import Layer
from gpusetup.causes.record import RECORDS
from gpusetup.choose.choice import Choice
from gpusetup.diagnosis.answers import plain_answer
from gpusetup.diagnosis.case import build_case
from gpusetup.diagnosis.certainty import Doubt, doubts
from gpusetup.diagnosis.ok import is_proven, may_be_ok, proof
from gpusetup.diagnosis.open_causes import (
    likely_cause,
    open_causes,
    reading_command,
    with_reading_first,
)
from gpusetup.diagnosis.pasting import fit_for_pasting
from gpusetup.diagnosis.platforms import (
    fit_to_lent_machine,
    fit_to_rocm,
    fit_to_script_variables,
    fit_to_system,
)
from gpusetup.diagnosis.precedence import order_of, root_of, unexplained, with_explanations
from gpusetup.diagnosis.program import failure_without_cause, fit_to_program, stage_of
from gpusetup.diagnosis.refute import Remaining, refute
from gpusetup.diagnosis.rules import RULE_FILES, findings_of, rules_of
from gpusetup.diagnosis.working_stack import shows_a_working_gpu
from gpusetup.evidence.context import Rule, RuleContext, events, is_report
from gpusetup.fixes import needs
from gpusetup.model.finding import (
    Alternative,
    Finding,
    Need,
    RuledOut,
    Severity,
    command_lines,
    map_blocks,
    unique_evidence,
)
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Snapshot

if TYPE_CHECKING:
    from gpusetup.catalog.builds import Catalog
    from gpusetup.model.documents import ResolveAnswer
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
    doubts: tuple[str, ...] = ()
    """Sentences that state why the cause in a text is only likely."""
    other_causes: tuple[str, ...] = ()
    """The causes that remain possible in addition to the root, the likeliest first."""
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
    to the program and the machine, mark findings that others explain, choose the root, infer the
    cause behind a symptom, and choose the command that decides.
    """
    context, answer = build_case(snapshot, catalog, choice, other_host=other_host)
    collected = collect(context, rules)
    remaining = refute(context, collected)
    if plain_answer(context):
        remaining = without_makers(remaining)
    # After a fact refutes two findings, the same cause may remain for both.
    possible = one_per_id(remaining.findings)
    fitting = tuple(with_fitting_fix(context, finding) for finding in possible)
    explained = with_explanations(without_nvidias(context, fitting))
    main = choose_root(context, explained)
    symptom = main if main and is_unexplained_symptom(context, main) else None
    findings = infer_cause(context, explained, symptom)
    root = root_of(findings)
    cause = cause_of(context, root or main, symptom)
    verdict = Verdict(findings, root, symptom, cause)
    is_caused = main is not None and cause not in (OK, UNKNOWN)
    reasons = doubts(context, root or main) if is_caused else ()
    question = choose_question(context, verdict, remaining)
    question = with_question_of(context, reasons, question)
    if cause == UNKNOWN and is_report(context):
        findings = tuple(map(without_changes, findings))
        root, symptom = (same_finding(finding, findings) for finding in (root, symptom))
    findings = one_installation(findings, root)
    marked_findings = []
    for finding in findings:
        if finding in (root, symptom):
            with_mark = replace(finding, root=finding is root)
            finding = with_reading_first(context, with_mark, question.reading)
        marked_findings.append(finding)
    has_root = root is not None and cause != UNKNOWN
    open_question = question.inferred or bool(question.other_causes) or bool(reasons)
    # An error that the root does not explain is also a reason for doubt.
    doubted = open_question or bool(question.unexplained)
    return Diagnosis(
        cause=cause,
        proof=proof(context) if cause == OK else None,
        symptom=symptom.id if symptom else None,
        program=context.snapshot.failing.program,
        stage=stage_of(context, root),
        findings=tuple(sorted(marked_findings, key=_display_order)),
        choice=context.choice,
        snapshot=context.snapshot,
        answer=answer,
        confidence=sureness(doubted) if has_root else None,
        certainty=sureness(open_question) if has_root or is_caused else None,
        doubts=tuple(reason.sentence for reason in reasons),
        other_causes=question.other_causes,
        ruled_out=remaining.ruled_out,
        next_reading=question.reading,
    )


# --- the steps ------------------------------------------------------------------------------------


def collect(context: RuleContext, rules: Iterable[Rule] | None = None) -> tuple[Finding, ...]:
    """All findings of the rules, one for each id."""
    if rules is None:
        rules = rules_of(RULE_FILES)
    findings = findings_of(context, rules)
    return one_per_id(findings)


OTHER_MAKERS = ("amd-gpu", "intel-gpu", "apple-silicon")
OF_NVIDIAS_STACK = (Layer.BOUNDARY, Layer.HARDWARE, Layer.DRIVER, Layer.READINESS)


def without_nvidias(context: RuleContext, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings without those about NVIDIA's stack, if the text is about another maker's GPU.

    Fixes for NVIDIA's driver, container tools and GPUs have no effect there.
    """
    errors = [finding.id for finding in findings if finding.severity is Severity.ERROR]
    is_of_another_maker = not set(errors).isdisjoint(OTHER_MAKERS)
    if not is_of_another_maker or not is_report(context):
        return findings

    def is_of_nvidia(finding: Finding) -> bool:
        """Whether the finding is about NVIDIA's driver or CUDA."""
        place = RECORDS[finding.id].place
        return place is not None and place[0] in OF_NVIDIAS_STACK

    return tuple(finding for finding in findings if not is_of_nvidia(finding))


def without_makers(remaining: Remaining) -> Remaining:
    """The findings without those about the GPU's maker, because a person who only asks whether
    torch runs on the GPU has no failure."""
    ids = (*OTHER_MAKERS, "no-nvidia-gpu")
    findings = tuple(finding for finding in remaining.findings if finding.id not in ids)
    return remaining._replace(findings=findings, ruled_out=())


def choose_root(context: RuleContext, findings: tuple[Finding, ...]) -> Finding | None:
    """The root cause, or the program's failure if the text shows no cause."""
    root = root_of(findings) or failure_without_cause(context, findings)
    # An error line did not stop anything if the program went on after it. And if a program names
    # the GPU, a message that no GPU was found does not count.
    goes_on = is_report(context) and shows_a_working_gpu(context)
    if root and root.id in ("program-failed", "gpu-unused") and goes_on:
        return None
    return root


def is_unexplained_symptom(context: RuleContext, main: Finding) -> bool:
    """Whether a finding in a text says what happened, but not why.

    On a probed machine every reading has been taken, so doctor names the symptom itself as the
    cause.
    """
    return is_report(context) and RECORDS[main.id].symptom


def infer_cause(
    context: RuleContext, findings: tuple[Finding, ...], symptom: Finding | None
) -> tuple[Finding, ...]:
    """The findings, with the likely cause of a symptom first if one is likely enough."""
    if symptom is None:
        return findings
    likely = likely_cause(context, symptom)
    if likely is None:
        return findings
    likely = fit_to_system(context, likely)
    likely = fit_to_lent_machine(context, likely)
    remaining = []
    for finding in findings:
        if finding is not symptom and finding.id != likely.id:
            remaining.append(finding)
    return (likely, replace(symptom, explained_by=likely.id), *remaining)


class Verdict(NamedTuple):
    """The decisions made before the question is chosen."""

    findings: tuple[Finding, ...]
    root: Finding | None
    symptom: Finding | None
    cause: str


class OpenQuestion(NamedTuple):
    """The causes that remain possible, and the command that decides between them."""

    other_causes: tuple[str, ...]
    reading: str | None
    inferred: bool
    """Whether the cause was inferred from a symptom, or took a refuted one's place."""
    unexplained: list[Finding]
    """The errors that the root does not explain."""


def choose_question(context: RuleContext, verdict: Verdict, remaining: Remaining) -> OpenQuestion:
    """The causes that remain possible, and a command whose output would decide between them."""
    root, symptom, cause = verdict.root, verdict.symptom, verdict.cause
    unexplained_errors = unexplained(verdict.findings, root)
    other_causes, reading = open_causes(context, symptom or root, unexplained_errors, cause)
    unproven = cause == OK and is_report(context) and not is_proven(context)
    inferred = symptom is not None and cause != UNKNOWN
    if root and root.id in remaining.asks:
        inferred, reading = True, remaining.asks[root.id]
    elif cause == UNKNOWN and "" in remaining.asks:
        # No other cause replaced the refuted one, so only its own command remains.
        reading = remaining.asks[""]
    elif unread := unread_needs(root):
        # The cause is known, but the commands of its fix need facts that are not.
        reading = unread[0].reading
    undecided = inferred or cause == UNKNOWN or unproven
    command = reading_command(context, reading, undecided=undecided)
    return OpenQuestion(other_causes, command, inferred, unexplained_errors)


def with_question_of(
    context: RuleContext, reasons: tuple[Doubt, ...], question: OpenQuestion
) -> OpenQuestion:
    """The question; if there is none, the one that settles a doubt."""
    if question.reading:
        return question
    for doubt in reasons:
        if doubt.asks:
            command = reading_command(context, doubt.asks, undecided=False)
            return question._replace(reading=command)
    return question


def unread_needs(finding: Finding | None) -> tuple[Need, ...]:
    """The facts that a finding's commands need and that the text does not show."""
    if finding is None or finding.fix is None:
        return ()
    unread = [need for need in finding.fix.needs if need.state == "unread"]
    return tuple(need for need in unread if need.reading)


def cause_of(context: RuleContext, main: Finding | None, symptom: Finding | None) -> str:
    """The cause that the answer names: the id of the main finding, `ok`, or `unknown` for a symptom
    without a cause."""
    if main is None:
        return OK if may_be_ok(context) else UNKNOWN
    if symptom and main.id == symptom.id:
        # A GPU that waits for its input works correctly.
        works = main.id == "input-bound" and events(context, "names-no-failure")
        return OK if works else UNKNOWN
    if is_report(context) and RECORDS[main.id].kind_of:
        return RECORDS[main.id].kind_of
    return main.id


def with_fitting_fix(context: RuleContext, finding: Finding) -> Finding:
    """The finding with a fix for this program and this machine, as far as they are known."""
    for fit in (
        fit_to_program,
        fit_to_rocm,
        fit_to_system,
        fit_to_lent_machine,
        fit_to_what_was_read,
        fit_to_script_variables,
    ):
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


INSTALLATION = re.compile(r"^!?gpusetup install\b")


def one_installation(findings: tuple[Finding, ...], root: Finding | None) -> tuple[Finding, ...]:
    """The findings with at most one command that installs torch: the root's, if it has one.

    With two different commands, people would have to choose between them.
    """
    if root is None:
        return findings
    installation_of_root = installations_in(command_lines(root.fix))
    if not installation_of_root:
        return findings

    def unless_it_installs(block: Alternative) -> Alternative | None:
        """The commands; None if they install another torch than the root's fix."""
        other_installations = installations_in(block.commands) - installation_of_root
        return None if other_installations else block

    fitting = []
    for finding in findings:
        if finding is not root and finding.fix is not None:
            finding = replace(finding, fix=map_blocks(finding.fix, unless_it_installs))
        fitting.append(finding)
    return tuple(fitting)


def installations_in(commands: Iterable[str]) -> set[str]:
    """The lines that install torch with `gpusetup install`."""
    return {line for line in commands if INSTALLATION.match(line)}


def same_finding(finding: Finding | None, findings: tuple[Finding, ...]) -> Finding | None:
    """The finding with the same id in its present form."""
    if finding is None:
        return None
    for candidate in findings:
        if candidate.id == finding.id:
            return candidate
    return None


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


def sureness(doubt: bool) -> Sureness:
    """`likely` if there is a doubt, otherwise `certain`."""
    return "likely" if doubt else "certain"
