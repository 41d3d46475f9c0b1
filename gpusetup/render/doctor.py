"""Doctor's result as a screen for the terminal: what is wrong, what shows this, and what to do,
followed by everything else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpusetup.fixes.needs import CHANGES_PACKAGES
from gpusetup.model.finding import Finding, Fix, Severity, command_lines
from gpusetup.model.machine import Snapshot
from gpusetup.model.shell import own_line
from gpusetup.render.machine import machine_facts
from gpusetup.render.screen import (
    BUT,
    DIM,
    MARKS,
    OK,
    WARNING,
    Screen,
    ScreenLine,
    command,
    facts,
    heading,
    marked,
    section,
)

if TYPE_CHECKING:
    from gpusetup.model.documents import DoctorAnswer, KnownFinding

MOST_ENVIRONMENTS = 5
"""More than these would push everything else off the screen; `--json` lists all."""
NOT_BY_INSTALL = (
    "Run the commands above yourself (`gpusetup install` does not run them){where}, then run "
    "`gpusetup doctor` again."
)
EVIDENCE_SHOWN = 6
"""More lines than this would push the fix off the screen; `--json` contains all of them."""


def doctor_screen(answer: DoctorAnswer, recorded: str | None = None) -> Screen:
    """The screen of doctor's result: the cause with its evidence and fix, then other findings and
    facts about the machine. `recorded` names the file if it is about a recorded machine."""
    root = main_finding(answer)
    lines: list[str] = []
    if answer.project is not None:
        mark = OK if answer.project.meets else BUT
        lines += [marked(mark, "this folder", f": {answer.project.sentence}"), ""]
    lines += verdict(answer, root)
    if root is not None:
        lines += in_full(root, answer.snapshot)

    others: list[str] = []
    for finding in answer.findings:
        if finding is not root:
            others += in_short(finding)
    lines += section("Also found", others)
    lines += section("What the text shows, and whether it fits", _fits(answer, root))
    title = f"The recorded machine ({recorded})" if recorded else "This machine"
    lines += section(title, facts(machine_facts(answer)))
    environments: list[str] = []
    for environment in answer.other_environments[:MOST_ENVIRONMENTS]:
        line = own_line("gpusetup", "doctor", "--python", environment.prefix)
        environments += [f"  torch {environment.torch}:", command(line, indent=4)]
    lines += section("Other environments have torch", environments)
    # The reader of a report cannot run commands on the machine that it is from.
    fixes_here = root.fix.commands if root and root.fix and not is_report(answer) else ()
    if fixes_here and not any(line.startswith("gpusetup install") for line in fixes_here):
        where = " on the recorded machine" if recorded else ""
        lines += ["", NOT_BY_INSTALL.format(where=where)]
    return Screen(lines)


def _fits(answer: DoctorAnswer, root: Finding | None) -> Iterator[str]:
    """Yields whether the facts of a report fit together: nothing for `ok`, whose verdict says it
    already, only what does not fit for a known cause, and everything if the cause is open. Yields
    nothing for a machine, whose facts the screen lists below."""
    if not is_report(answer) or answer.cause == "ok":
        return
    is_open = root is None or answer.cause == "unknown"
    for fit in answer.fit:
        if not fit.fits:
            yield marked(BUT, "does not fit", f": {fit.sentence}", indent=2)
        elif is_open:
            yield marked(OK, "fits", f": {fit.sentence}", indent=2)


def is_report(answer: DoctorAnswer) -> bool:
    """Whether the answer is about a text, and not about a machine that was read."""
    return answer.snapshot.origin == "report"


def main_finding(answer: DoctorAnswer) -> Finding | None:
    """The finding that the result is about: the cause or, if that is unknown, the symptom; None if
    there is neither."""
    named = answer.symptom if answer.cause == "unknown" else answer.cause
    return next((finding for finding in answer.findings if finding.id == named), None)


# --- the verdict ---------------------------------------------------------------------------------


def verdict(answer: DoctorAnswer, root: Finding | None) -> Iterator[ScreenLine]:
    """Yields the line with the cause, or that it is unknown or that all is well, followed by lines
    about what is uncertain. `root` is the `main_finding`."""
    if answer.cause == "unknown":
        yield marked(("?", WARNING), "unknown", f": {unknown_of(answer)}")
    elif root is not None:
        # A finding that is not a root cause names a failure outside the GPU's software, which is an
        # error whatever the finding's own severity.
        severity = root.severity if root.root else Severity.ERROR
        yield marked(MARKS[severity], answer.cause, f": {root.title}")
    else:
        mark = OK if answer.cause == "ok" else BUT
        yield marked(mark, answer.cause, f": {answer.proof or 'nothing to fix'}")
    yield from left_open(answer, root)


def left_open(answer: DoctorAnswer, root: Finding | None) -> Iterator[ScreenLine]:
    """Yields lines about causes that are ruled out, the check of a likely cause or the other
    possible causes, and the command whose output decides."""
    # If everything works, nobody asks about causes.
    if answer.cause != "ok":
        for cause in answer.ruled_out:
            yield ScreenLine(f"  Not {cause.id}: {cause.because}.", hang=2)

    check, reading = answer.check, answer.next_reading
    others = ", ".join(answer.other_causes) if is_report(answer) else ""
    if check is not None:
        yield ScreenLine("  Likely, not certain. To check it, run:", hang=2)
        yield command(check.command, 4)
        if check.prints:
            printed = "; ".join(check.prints.splitlines())
            yield ScreenLine(
                f"  If this is the cause, the output is, for example: {printed}", hang=2
            )
    elif answer.certainty == "likely":
        also = f": it could also be {others}" if others else ""
        yield ScreenLine(f"  Likely, not certain{also}.", hang=2)
    elif others and answer.cause == "unknown":
        yield ScreenLine(f"  It could be {others}.", hang=2)

    # The check's command is already on the screen.
    is_shown = check is not None and reading == check.command
    if reading and not is_shown:
        yield ScreenLine(f"  {_what_is_unread(answer, root)}To find out, run:", hang=2)
        yield command(reading, 4)


def _what_is_unread(answer: DoctorAnswer, root: Finding | None) -> str:
    """A sentence with the first fact that the fix depends on and that the text does not show; ""
    if there is none, or if the cause is unknown."""
    # For an unknown cause, the command finds the cause and not a fact for the fix.
    if root is None or root.fix is None or answer.cause == "unknown":
        return ""
    for need in root.fix.needs:
        if need.state == "unread":
            return (
                f"What to do depends on the installed {need.what}, which the text does not show. "
            )
    return ""


def unknown_of(answer: DoctorAnswer) -> str:
    """The sentence for a result that names no cause."""
    if any(finding.id == "report-empty" for finding in answer.findings):
        return "the text is empty"
    symptom = main_finding(answer)
    if symptom is not None:
        return f"{symptom.title}; the cause is still unknown"
    if not is_report(answer):
        return "gpusetup found no error, but nothing shows that torch works on the GPU"
    misfits = [fit.sentence for fit in answer.fit if not fit.fits]
    if misfits:
        return f"the facts in the text do not fit together: {misfits[0]}"
    events = {event.kind for event in answer.snapshot.events}
    if answer.stage or "program-failed" in events:
        step = f"the step `{answer.stage}`" if answer.stage else "this step"
        return f"{step} failed; the cause is still unknown"
    if answer.facts or events:
        return "the text contains no error message that gpusetup knows"
    return "the text shows no GPU, driver or torch, and no error that gpusetup knows"


def in_full(finding: Finding, machine: Snapshot) -> Iterator[str]:
    """Yields the lines of a finding with its explanation, evidence and fix."""
    if finding.detail:
        yield from ("", ScreenLine(f"  {finding.detail}", hang=2))
    if finding.evidence:
        yield ""
        for evidence in finding.evidence[:EVIDENCE_SHOWN]:
            source = f"  ({evidence.source})" if evidence.source else ""
            yield ScreenLine(f"  {evidence.text}", (source, DIM), hang=4)
    if finding.fix:
        yield from section("What to do", fix_lines(finding.fix, machine))


TARGET_FIRST = (
    "Do this in the environment of the program that failed (activate it, or pass its Python to "
    "gpusetup: `--python PATH`), never in the system's Python"
)


def _needs_environment(fix: Fix, machine: Snapshot) -> bool:
    """Whether a fix changes packages, and nothing shows the environment that it must run in."""
    # A snapshot was taken in the environment that it describes, and `uv sync` finds a project's.
    if machine.origin != "report" or machine.python.manager == "uv project":
        return False
    if machine.python.executable or machine.torch.location or machine.container.kind:
        return False
    # The lines of a notebook begin with `!` and run in its own environment.
    return any(re.match(rf"(?!!)(?:{CHANGES_PACKAGES})", line) for line in command_lines(fix))


def fix_lines(fix: Fix, machine: Snapshot) -> Iterator[str]:
    """The lines of a fix: its sentence, a warning and commands, then the alternatives, and the
    commands that show more and change nothing (`looks`)."""
    yield ScreenLine(f"  {fix.text}{rights_sentence(fix)}", hang=2)
    if _needs_environment(fix, machine):
        yield from ("", ScreenLine(f"  {TARGET_FIRST}", hang=2))
    if fix.commands:
        yield ""
        yield from (command(line, 4) for line in fix.commands)
    for number, block in enumerate((*fix.alternatives, *fix.looks)):
        title = block.title
        # An alternative without commands is a remark about the commands above: "to keep the change
        # for longer than this shell, ...". Only a second way to fix it begins with "or".
        is_alternative = number < len(fix.alternatives) and bool(block.commands)
        if is_alternative and (number or fix.commands):
            title = f"or {title}"
        yield ""
        colon = ":" if block.commands else ""
        yield ScreenLine(f"  {title[:1].upper()}{title[1:]}{colon}", hang=2)
        yield from (command(line, 4) for line in block.commands)


def rights_sentence(fix: Fix) -> str:
    """A sentence behind a fix's text if the fix needs administrator rights or a reboot; otherwise
    "".

    >>> rights_sentence(Fix(text="", needs_root=True, needs_reboot=True))
    '. This fix needs administrator rights and a reboot'
    """
    needed = {"administrator rights": fix.needs_root, "a reboot": fix.needs_reboot}
    words = [word for word, is_needed in needed.items() if is_needed]
    return f". This fix needs {' and '.join(words)}" if words else ""


def in_short(finding: Finding) -> Iterator[ScreenLine]:
    """Yields a line about a finding other than the cause, followed by its fix unless another
    finding explains it."""
    title = finding.title
    if finding.explained_by:
        title += f" (caused by {finding.explained_by})"
    yield marked(MARKS[finding.severity], finding.id, f": {title}", indent=2)

    # If another finding explains this one, the fix for that finding is enough.
    fix = finding.fix
    if fix is not None and not finding.explained_by:
        yield ScreenLine("    ", (fix.text + rights_sentence(fix), DIM), hang=4)
        yield from (command(line, 6) for line in fix.commands)


# --- the explanation of a finding -----------------------------------------------------------------


def explained(finding: KnownFinding) -> Screen:
    """The screen of `doctor --explain`: everything that gpusetup knows about one id."""
    lines: list[str] = [heading(f"{finding.id}: {finding.title}"), ""]
    if finding.means:
        lines += [f"  {finding.means}", ""]
    lines += facts(
        {
            "Check it with": finding.check,
            "Example output": finding.prints,
            "What to do": finding.way_out,
            "Can cause": ", ".join(finding.explains),
        }
    )
    return Screen(lines)
