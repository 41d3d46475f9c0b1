"""The diagnosis of one machine: all findings, the root cause among them, and the fitting build."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from gpusetup.catalog.builds import Catalog, completed_from_catalog
from gpusetup.causes.layers import Layer
from gpusetup.causes.record import RECORDS
from gpusetup.choose.choice import Choice
from gpusetup.choose.choose import choose
from gpusetup.choose.coming import offer_of
from gpusetup.choose.commands import answer_of, shown_installer
from gpusetup.choose.host import host_of
from gpusetup.choose.installed import changed_with_torch
from gpusetup.choose.wish import Wish
from gpusetup.diagnosis.asks import command_that_decides, is_answered
from gpusetup.diagnosis.explanations import RULE_BROKEN
from gpusetup.diagnosis.fit import facts_read, fits_together, may_be_ok, proof
from gpusetup.diagnosis.fitting import with_fitting_fix
from gpusetup.diagnosis.precedence import order_of, root_of, unexplained, with_explanations
from gpusetup.diagnosis.refute import Remaining, refute
from gpusetup.evidence.checks import PCI_GPUS
from gpusetup.evidence.context import (
    Rule,
    RuleContext,
    events,
    has_nvidia,
    is_report,
    line_of,
    lines_of_a_person,
)
from gpusetup.evidence.wording import is_program_output
from gpusetup.findings import (
    container,
    cuda,
    driver,
    environment,
    gpu_faults,
    kernels,
    message_rules,
    other_makers,
    running,
    wheels,
)
from gpusetup.model.documents import CauseCheck, DoctorAnswer, Fit, ResolveAnswer
from gpusetup.model.finding import Finding, Findings, Severity, unique_evidence
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot

OK, UNKNOWN = "ok", "unknown"
SEVERITIES = list(Severity)


def diagnose(
    snapshot: Snapshot,
    catalog: Catalog,
    choice: Choice | None = None,
    *,
    other_host: bool = False,
    project_words: tuple[str, ...] = (),
    rules: Iterable[Rule] | None = None,
) -> DoctorAnswer:
    """Diagnose one machine. `choice` is the torch chosen for the machine, by default the one that
    fits; `rules` are by default all of them; the other options are those of `RuleContext`.

    The steps: collect the findings of the rules, remove those that a reading refutes, fit each fix
    to the program and the machine, mark findings that others explain, choose the root, and choose
    the command that decides.
    """
    context, resolution = build_case(snapshot, catalog, choice)
    context = replace(context, other_host=other_host, project_words=project_words)
    is_text = is_report(context)
    collected = findings_of(context, RULES if rules is None else rules)
    remaining = refute(context, one_per_id(collected))
    # After a fact refutes two findings, the same cause may remain for both.
    possible = one_per_id(remaining.findings)
    findings = with_explanations(tuple(with_fitting_fix(context, one) for one in possible))
    fits = fits_together(context)
    root = root_of(findings)
    main = root or failure_without_cause(context, findings)
    cause = cause_of(context, main, fits)
    is_caused = main is not None and cause != UNKNOWN
    others = unexplained(findings, root)
    certain = main is not None and is_certain(context, main, remaining, others)
    sure: Literal["certain", "likely"] = "certain" if certain else "likely"
    # An error that the root does not explain leaves the answer less sure as a whole.
    confidence = "likely" if others else sure
    first = command_asked_first(context, remaining, root, cause)
    reading = None
    # A cause that is certain needs no reading, unless `first` belongs before its fix.
    if is_text and cause != OK and (first or not (is_caused and certain)):
        reading = command_that_decides(context, main, first, is_open=cause == UNKNOWN)
    shown = [_with_one_first_step(finding, root, main, reading) for finding in findings]
    return DoctorAnswer(
        cause=cause,
        proof=proof(context, fits) if cause == OK else None,
        symptom=main.id if main and cause == UNKNOWN else None,
        program=context.snapshot.failing.program,
        stage=context.snapshot.failing.stage,
        # The root first, then by severity, then in the order of the records.
        findings=tuple(sorted(shown, key=lambda one: (not one.root, _gravity(one), order_of(one)))),
        resolution=resolution,
        newest=offer_of(context.choice, context.snapshot),
        snapshot=context.snapshot,
        catalog_as_of=catalog.as_of,
        confidence=confidence if root and is_caused else None,
        certainty=sure if is_caused else None,
        check=check_of(context, main) if main and is_caused and is_text and not certain else None,
        facts=facts_read(context),
        fit=fits,
        other_causes=() if certain else tuple(error.id for error in others if error is not main),
        ruled_out=remaining.ruled_out,
        next_reading=reading,
    )


# --- the rules ------------------------------------------------------------------------------------

# `precedence` decides which finding is the root. If two rules make a finding with the same id and
# severity, the first one's title is kept, so rules that read device nodes come before those that
# read NVML's codes.
DRIVER_RULES: tuple[Rule, ...] = (*driver.RULES, *kernels.RULES, *cuda.RULES, *gpu_faults.RULES)
"""Rules about a driver and its GPUs."""
RULES: tuple[Rule, ...] = (
    *message_rules.RULES,
    *container.RULES,
    *other_makers.RULES,
    *environment.RULES,
    *DRIVER_RULES,
    *running.RULES,
    *wheels.RULES,
)


def findings_of(context: RuleContext, rules: Iterable[Rule]) -> Findings:
    """The findings of the rules. If a rule crashes, the others run; the crash is a finding."""
    for rule in rules:
        try:
            yield from tuple(rule(context))
        except Exception as problem:
            title = f"The rule {rule.__name__} broke: {type(problem).__name__}: {problem}"
            yield RULE_BROKEN.found(title, detail=RULE_BROKEN.means)


# --- the input ------------------------------------------------------------------------------------


def build_case(
    snapshot: Snapshot, catalog: Catalog, choice: Choice | None
) -> tuple[RuleContext, ResolveAnswer]:
    """The input of the rules, and the choice as a document. If `choice` is None, a build is chosen
    for the machine."""
    machine = completed_from_catalog(snapshot, catalog)
    installer = shown_installer(machine)
    if choice is None:
        host = host_of(machine, catalog)
        # In a conda environment, prefer a build that conda can install.
        choice = choose(Wish(installer="conda" if installer == "conda" else "auto"), host, catalog)
        if choice.build is None:
            choice = choose(Wish(), host, catalog)
    answer = answer_of(choice, machine, changed_with_torch(machine, choice.build))
    context = RuleContext(
        snapshot=machine,
        catalog=catalog,
        choice=choice,
        commands=answer.commands,
        installer=installer,
    )
    return context, answer


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


def failure_without_cause(context: RuleContext, findings: tuple[Finding, ...]) -> Finding | None:
    """What a program failed at, for a text without an error finding; None if there is none."""
    if not is_report(context):
        return None
    # `own` marks a failure that nothing in the text connects with the GPU stack (see
    # report.timeline). Any other `program-failed` may have a cause that the text does not show.
    is_own = any(event.values.get("own") for event in events(context, "program-failed"))
    failures = [
        finding
        for finding in findings
        if RECORDS[finding.id].failure and (finding.id != "program-failed" or is_own)
    ]
    return min(failures, key=lambda finding: RECORDS[finding.id].failure, default=None)


def cause_of(context: RuleContext, main: Finding | None, fits: tuple[Fit, ...]) -> str:
    """The cause that the answer names: the main finding's id, `ok` if nothing fails, or `unknown`
    if a failure's cause is open."""
    if main is None:
        return OK if may_be_ok(context, fits) else UNKNOWN
    # On a probed machine every reading was taken, so nothing behind a symptom is left to find.
    return UNKNOWN if is_report(context) and RECORDS[main.id].symptom else main.id


# --- how sure it is -------------------------------------------------------------------------------


def is_certain(
    context: RuleContext, main: Finding, remaining: Remaining, others: list[Finding]
) -> bool:
    """Whether the main finding is proven to be the cause. `others`: the errors that the root does
    not explain."""
    # A cause that took a refuted one's place was not shown by a message of its own.
    if main.id in remaining.asks:
        return False
    # On a probed machine, an error that the root does not explain leaves the answer open.
    return is_proven(context, main) and (is_report(context) or not others)


def is_proven(context: RuleContext, cause: Finding) -> bool:
    """Whether the text proves the cause; always on a probed machine, where everything was read.

    It does if the cause's record names a proof that the text contains (`certain_if`: a message that
    states the cause, or two values that do not fit together), and a program printed it. "It falls
    off the bus" is a person's conclusion, but a line of the kernel log is a fact.
    """
    if not is_report(context):
        return True
    own_lines = lines_of_a_person(context)
    numbered = [(line_of(quote.source), quote.text) for quote in cause.evidence]
    # Evidence without a line number, such as a fact of the catalog, is no quote.
    quotes = [(line, text) for line, text in numbered if line]
    only_a_person_says_it = bool(quotes) and all(
        line in own_lines and not is_program_output(text) for line, text in quotes
    )
    holds = RECORDS[cause.id].certain_if
    return holds is not None and bool(holds(context)) and not only_a_person_says_it


def check_of(context: RuleContext, likely: Finding) -> CauseCheck | None:
    """How to check for a likely cause; None if its record has no check, or if the text already
    shows what the check would print."""
    check = RECORDS[likely.id].check
    if check is None or is_answered(context, check.command):
        return None
    return CauseCheck(command=check.command, prints=check.prints)


def command_asked_first(
    context: RuleContext, remaining: Remaining, root: Finding | None, cause: str
) -> str | None:
    """The command to run before the root's fix: it tells more about a cause that replaced a refuted
    one, or reads a fact that the fix's commands need; None if there is neither."""
    if root and root.id in remaining.asks:
        return remaining.asks[root.id]
    # "" stands for no cause: nothing replaced the refuted one.
    if cause == UNKNOWN and "" in remaining.asks:
        return remaining.asks[""]
    if root is None or root.fix is None:
        return None
    for need in root.fix.needs:
        if need.state == "unread" and need.reading:
            return need.reading
    # Before anything is installed for an NVIDIA GPU, see whether there is one.
    is_for_a_driver = root.fix.needs_root and RECORDS[root.id].layer is Layer.DRIVER
    return PCI_GPUS if is_for_a_driver and has_nvidia(context) is None else None


# --- the fixes ------------------------------------------------------------------------------------


def _with_one_first_step(
    finding: Finding, root: Finding | None, main: Finding | None, reading: str | None
) -> Finding:
    """The finding, marked if it is the root, without commands that compete with what the answer
    asks to run first (`reading`, then the root's commands).

    `main` is the finding that the answer is about: the root, or else a failure without a cause."""
    is_main = finding is main
    finding = replace(finding, root=finding is root)
    fix = finding.fix
    if fix is None:
        return finding
    if is_main:
        # The reading stands for the fix's own looks, which show less.
        return replace(finding, fix=replace(fix, looks=())) if reading else finding
    # With two different installations, people would have to choose between them.
    of_root = root.fix.commands if root and root.fix else ()
    others = [line for line in fix.commands if line not in of_root]
    if installs(of_root) and installs(others):
        return replace(finding, fix=replace(fix, commands=()))
    return finding


def installs(commands: Iterable[str]) -> bool:
    """Whether one of the commands installs packages with gpusetup."""
    return any(line.startswith("gpusetup install") for line in commands)
