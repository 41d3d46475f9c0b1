"""Doctor's answer as a screen (what is wrong, what shows it, what to do, then the rest), and as a
reply for a thread: the screen in one block of code, in which nothing acts as Markdown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gpusetup.causes.record import RECORDS
from gpusetup.model.finding import Evidence, Finding, Fix, Severity, command_lines
from gpusetup.model.machine import Gpu, Snapshot
from gpusetup.model.units import GIB
from gpusetup.render.screen import (
    BUT,
    DIM,
    MARKS,
    OK,
    WARNING,
    Row,
    Screen,
    command,
    facts,
    heading,
    marked,
    plain,
    section,
)
from gpusetup.render.topology import links_line

if TYPE_CHECKING:
    from gpusetup.model.builds import Offer
    from gpusetup.model.documents import DoctorAnswer, KnownFinding, ResolveAnswer
    from gpusetup.model.shell import Line

EVIDENCE_SHOWN = 6
DOUBTS_SHOWN = 2


def doctor_screen(answer: DoctorAnswer) -> Screen:
    """What is wrong, what shows it, what to do; then the rest, and the machine."""
    root = answering(answer)
    others = [one for one in answer.findings if one is not root]
    full = in_full(root, answer.snapshot) if root else ()
    also = section("Also found", (line for finding in others for line in in_short(finding)))
    machine = section("This machine", facts(machine_facts(answer)))
    return Screen((*verdict(answer, root), *full, *also, *machine, *by_hand(answer, root)))


NOT_BY_INSTALL = (
    "`gpusetup install` changes torch and its companions only, so run the commands above yourself. "
    "Then run `gpusetup doctor` again."
)
BY_INSTALL = re.compile(r"gpusetup install\b")


def by_hand(answer: DoctorAnswer, root: Finding | None) -> Iterator[Row]:
    """The last line about this machine, if `gpusetup install` does not do what the answer says."""
    if answer.snapshot.origin == "report" or root is None or root.fix is None:
        return
    commands = root.fix.commands
    if commands and not any(BY_INSTALL.match(line) for line in commands):
        yield Row("")
        yield Row(NOT_BY_INSTALL)


def answering(answer: DoctorAnswer) -> Finding | None:
    """What the answer is about: the root, else the warning that is the whole answer."""
    root = next((finding for finding in answer.findings if finding.root), None)
    told = answer.symptom if answer.cause == "unknown" else answer.cause
    return root or next((one for one in answer.findings if told in _names(one)), None)


def _names(finding: Finding) -> tuple[str, str]:
    """The finding's id, and the shared cause of which it is a case."""
    record = RECORDS.get(finding.id)
    return finding.id, record.kind_of if record else ""


# --- the verdict ---------------------------------------------------------------------------------


def verdict(answer: DoctorAnswer, root: Finding | None) -> Iterator[Row]:
    if answer.cause == "unknown":
        yield marked(("?", WARNING), "unknown", unknown_of(answer))
    elif root is not None:
        # What is the answer without being a root failed outside the GPU's stack: it failed.
        mark = MARKS[root.severity if root.root else Severity.ERROR]
        is_a_case = root.id not in (answer.cause, answer.symptom)
        yield marked(mark, answer.cause, f"{root.title} ({root.id})" if is_a_case else root.title)
    else:
        mark = OK if answer.cause == "ok" else BUT
        yield marked(mark, answer.cause, answer.proof or "nothing to fix")
    yield from left_open(answer, root)


def left_open(answer: DoctorAnswer, root: Finding | None) -> Iterator[Row]:
    """What else it could be, what is ruled out, and the one output that decides."""
    for cause in answer.ruled_out:
        yield Row(f"  Not {cause.id}: {cause.because}.", hang=2)
    if answer.doubts:
        yield Row(f"  Likely, not certain: {'; '.join(answer.doubts[:DOUBTS_SHOWN])}.", hang=2)
    also = "" if answer.cause == "unknown" else "also "
    others = ", ".join(answer.other_causes)
    could = f"It could {also}be {others}. " if others else ""
    fix = root.fix if root and answer.cause != "unknown" else None
    unread = [need.what for need in (fix.needs if fix else ()) if need.state == "unread"]
    why = f"Which {unread[0]} is there decides what to do, and is not shown. " if unread else ""
    if answer.next_reading:
        yield Row(f"  {could}{why}To find out, run:", hang=2)
        yield command(answer.next_reading, 4)
    elif could and answer.snapshot.origin == "report":
        yield Row(f"  {could.strip()}", hang=2)


def unknown_of(answer: DoctorAnswer) -> str:
    """What is said if no cause was found."""
    seen = answering(answer)
    if any(one.id == "report-empty" for one in answer.findings):
        return "the text is empty"
    if seen is not None:
        return f"{seen.title}; why is not shown"
    if answer.snapshot.origin != "report":
        return "gpusetup found no error, but nothing shows that torch works on the GPU"
    if answer.next_reading:
        return "the text does not show what is wrong"
    return (
        "the text shows no failure of a GPU or its software; post the whole error, the command "
        "and the versions"
    )


def in_full(finding: Finding, machine: Snapshot) -> Iterator[str]:
    """A finding with its evidence and its way out."""
    if finding.detail:
        yield from ("", Row(f"  {finding.detail}", hang=2))
    if finding.evidence:
        yield from ("", *map(evidence_line, finding.evidence[:EVIDENCE_SHOWN]))
    if finding.fix:
        yield from section("What to do", way_out(finding.fix, _of_its_target(machine, finding.fix)))


TARGET_FIRST = (
    "Do this in the environment of the program that failed (activate it, or call its own Python), "
    "never in the system's Python"
)
UNDONE_BY_UV = (
    "The next `uv sync` removes what `uv pip` installs: add it to the project (`uv add`), or from "
    "now on run the program by `uv run --no-sync`"
)
CHANGES_PACKAGES = (
    r"gpusetup install(?!.* --(?:python|venv|project)\b)|(?:python\d? -m |uv )?pip3? (?:un)?install"
    r"|(?:conda|mamba) (?:un)?install"
)
"""How a line begins that changes the packages of whatever environment it is typed in."""


def _of_its_target(machine: Snapshot, fix: Fix) -> str:
    """What is said before lines that change packages, if a text does not show of which Python, or
    shows a project of uv's."""
    python, lines = machine.python, command_lines(fix)
    if python.manager == "uv project":
        return UNDONE_BY_UV if any(line.startswith("uv pip install") for line in lines) else ""
    known = python.executable or machine.torch.location or machine.container.kind
    if machine.origin != "report" or known:
        return ""
    return TARGET_FIRST if any(re.match(CHANGES_PACKAGES, line) for line in lines) else ""


def evidence_line(one: Evidence) -> Row:
    """What was seen, and who said so."""
    return Row(f"  {one.text}", (f"  ({one.source})" if one.source else "", DIM), hang=4)


def way_out(fix: Fix, before: str = "") -> Iterator[str]:
    """What is to be done; `before` its commands, a sentence."""
    yield Row(f"  {fix.text}{needs(fix)}", hang=2)
    if before:
        yield from ("", Row(f"  {before}", hang=2))
    if fix.commands:
        yield from ("", *(command(line, 4) for line in fix.commands))
    for title, commands in (*ways_beside(fix), *looks_of(fix)):
        yield from ("", Row(f"  {title}", hang=2), *(command(line, 4) for line in commands))


def ways_beside(fix: Fix) -> Iterator[tuple[str, tuple[Line, ...]]]:
    """The other ways, each with its title; the first is the way where none stands before it.

    >>> from gpusetup.model.finding import Alternative
    >>> here = Alternative(title="on the host", commands=())
    >>> [title for title, _ in ways_beside(Fix(text="", alternatives=(here, here)))]
    ['On the host', 'Or on the host']
    """
    for number, other in enumerate(fix.alternatives):
        first = number == 0 and not fix.commands
        title = sentence(other.title) if first else f"Or {other.title}"
        yield f"{title}:" if other.commands else title, other.commands


def sentence(title: str) -> str:
    """A title as the beginning of a sentence.

    >>> sentence("read the counters")
    'Read the counters'
    """
    return title[:1].upper() + title[1:]


def looks_of(fix: Fix) -> Iterator[tuple[str, tuple[Line, ...]]]:
    yield from ((f"{sentence(look.title)}:", look.commands) for look in fix.looks)


def needs(fix: Fix) -> str:
    """
    >>> needs(Fix(text="", needs_root=True, needs_reboot=True))
    ' (needs administrator rights and a reboot)'
    """
    words = ["administrator rights"] * fix.needs_root + ["a reboot"] * fix.needs_reboot
    return f" (needs {' and '.join(words)})" if words else ""


def in_short(finding: Finding) -> Iterator[Row]:
    """One of the other findings: a line, and what to do."""
    fix, by = finding.fix, finding.explained_by
    because = f" (because of {by})" if by else ""
    yield marked(MARKS[finding.severity], finding.id, f"{finding.title}{because}", indent=2)
    if fix and not by:
        yield Row("    ", (fix.text + needs(fix), DIM), hang=4)
        yield from (command(line, 6) for line in fix.commands)


# --- the machine ---------------------------------------------------------------------------------


def machine_facts(answer: DoctorAnswer) -> dict[str, str | None]:
    """What was read, a line each; what is not known says so."""
    machine = answer.snapshot
    os, driver, python, kind = machine.os, machine.driver, machine.python, machine.container.kind
    gpus = Counter(map(gpu_line, machine.gpus or ()))
    chosen = f" (from {python.chosen_by})" if python.chosen_by else ""
    told: dict[str, str | None] = {
        "system": joined(os.name or os.family, os.machine, os.libc),
        "driver": joined(driver.version, driver.cuda and f"CUDA {driver.cuda}"),
        "GPU": "; ".join(f"{count} x {one}" if count > 1 else one for one, count in gpus.items())
        or ("unknown" if machine.gpus is None else "none of NVIDIA"),
        "links": links_line(machine),
        "torch": torch_line(machine),
        "Python": joined(python.version, python.manager),
        "environment": f"{python.executable or 'unknown'}{chosen}",
        "container": None if kind == "none" else kind,
    }
    if machine.origin != "report" or machine.gpus or driver.version:
        told["recommended"] = recommended_line(answer.resolution)
        told["newest"] = newest_line(answer.newest, answer.resolution)
    return {**told, "catalog": answer.catalog_as_of}


def joined(*parts: str | None) -> str:
    return ", ".join(part for part in parts if part) or "unknown"


def gpu_line(gpu: Gpu) -> str:
    """
    >>> gpu_line(Gpu(name="NVIDIA L4", memory_total_bytes=24 << 30, visible=False))
    'NVIDIA L4, 24.0 GiB, hidden'
    """
    size = f"{gpu.memory_total_bytes / GIB:.1f} GiB" if gpu.memory_total_bytes else None
    sm = gpu.compute_capability.sm if gpu.compute_capability else None
    return joined(gpu.name, size, sm, "lost" if gpu.lost else "hidden" * (gpu.visible is False))


def torch_line(machine: Snapshot) -> str:
    torch = machine.torch
    if torch.installed is False:
        return "not installed"
    backend = None if "+" in (torch.version or "") else torch.backend
    return joined(torch.version, backend, torch.installer and f"installed by {torch.installer}")


def recommended_line(chosen: ResolveAnswer | None) -> str:
    """The build that the resolver chose, or why none."""
    if chosen is not None and chosen.torch:
        family = (("torchvision", chosen.torchvision), ("torchaudio", chosen.torchaudio))
        return joined(built(chosen), *(f"{name} {one}" for name, one in family if one))
    advice = chosen.advice if chosen else None
    if advice is None:
        return "no build"
    return f"no build; {advice.change} {advice.to} gives {advice.gives}"


def built(build: ResolveAnswer | Offer) -> str:
    """A build in words, with the least driver that serves it."""
    needs = f" (driver {build.driver_floor} or newer)" if build.driver_floor else ""
    return f"torch {build.torch} from {build.backend}{needs}"


def newest_line(newest: Offer | None, chosen: ResolveAnswer | None) -> str | None:
    """The newest that fits, in one line, where it is another than the one prescribed."""
    if newest is None or chosen is None or chosen.torch in (None, newest.torch):
        return None
    return f"{built(newest)}: `gpusetup install --upgrade`"


# --- what is known of a finding -------------------------------------------------------------------


def explained(row: KnownFinding) -> Screen:
    """One finding in full."""
    told = {
        "Proven by": row.proven_by,
        "Looks alike": row.not_when,
        "What to do": row.way_out,
        "Explains": ", ".join(row.explains),
    }
    why = (f"  {row.means}", "") if row.means else ()
    return Screen((heading(f"{row.id}: {row.title}"), "", *why, *facts(told)))


# --- a reply for a thread -------------------------------------------------------------------------

COLUMNS = 100
WHAT_IT_IS = (
    "`gpusetup` reads what a machine or a text shows and installs the torch that fits. It is on no "
    "package index yet: `pip install .` in a clone of its repository installs it. All other "
    "commands above work without it."
)
NEXT = (
    "If it still fails, post the whole error and the output of `gpusetup snapshot`, or of "
    "`python -m torch.utils.collect_env` and `nvidia-smi`."
)


def fenced(lines: Iterable[str], language: str = "") -> list[str]:
    """A code block whose fence is longer than any run of backticks in it.

    >>> fenced(["a ``` b"])
    ['````', 'a ``` b', '````']
    """
    text = plain("\n".join(lines))
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 0)
    return [fence + language, text, fence]


def doctor_markdown(answer: DoctorAnswer) -> str:
    """The cause, all that the screen says of it, and what to report if that does not help."""
    screen = doctor_screen(answer).shown(width=COLUMNS, colour=False)
    block = fenced(screen.splitlines(), "text")
    return "\n".join((f"**{answer.cause}**", "", *block, "", WHAT_IT_IS, "", NEXT, ""))
