"""What the page of a finding says, as blocks that Markdown and HTML show alike.

The texts are the record's; the commands are what doctor prints on the machines of `finding_cases`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from finding_cases import Case, case_of_message, cases_of, machine_in_words, place_in_words
from finding_words import alternatives, capital, ended, shortened
from messages_searched import (
    SearchedMessage,
    headings_of,
    home_of,
    messages,
    messages_of,
    shared_by,
)

from gpusetup.causes.alike import RUN_AGAIN
from gpusetup.causes.layers import Layer
from gpusetup.causes.record import Cause
from gpusetup.diagnosis.diagnose import CHANGE_NOTHING_YET
from gpusetup.model.finding import Fix, Severity, command_lines
from gpusetup.model.shell import Lines
from gpusetup.render.doctor import evidence_line, needs, titled_alternatives, titled_look_ups
from gpusetup.render.screen import MARKS, Screen, marked
from gpusetup.report.read import read_bytes

OUTPUT_COLUMNS = 88
CONFUSIONS = "Not to be confused with"
"""The heading of what looks like the finding, which a symptom's first sentence refers to."""
LONGEST_EXAMPLE = 170
"""Longer lines of a record's examples are logs, and make no title."""
EVIDENCE_SHOWN = 3
PACKAGE_MANAGERS = r"\b(?:apt|dnf|yum|zypper|pacman)\b"
"""Their package names differ between distributions."""


class Heading(NamedTuple):
    """A heading; `is_message` if it is what a program prints."""

    level: int
    text: str
    is_message: bool = False


class Text(NamedTuple):
    """A paragraph with code between backticks; ids of findings in it become links."""

    text: str


class Bullets(NamedTuple):
    """Paragraphs that stand side by side."""

    texts: tuple[str, ...]


class Code(NamedTuple):
    """Commands to paste, or the output of one."""

    lines: tuple[str, ...]
    language: str


Block = Heading | Text | Bullets | Code


def blocks(record: Cause) -> Iterator[Block]:
    """The whole page, from its title to the next step."""
    cases = cases_of(record)
    yield from _meaning(record)
    yield from _check(record, cases)
    yield from _fix(record, cases)
    yield from _reason(record, cases)
    yield from _confusions(record)
    yield from _other_messages(record, cases)
    yield from _short_way(record, cases)


# --- title and meaning ----------------------------------------------------------------------------


def title_of(record: Cause) -> Heading:
    """The message that people search for, else one of the record's examples, else its name."""
    searched = headings_of(record.id)
    if searched:
        return Heading(1, searched[0], is_message=True)
    if example := _telling_line(record):
        return Heading(1, example, is_message=True)
    return Heading(1, capital(record.name))


def _telling_line(record: Cause) -> str:
    """The first line of the record's examples that alone shows the finding; "" if none does."""
    searched = {message.line for message in messages()}
    for line in (line.strip() for text in record.examples for line in text.splitlines()):
        # Without a colon it is somebody's sentence, and not what a program prints.
        is_a_program_message = ": " in line and len(line) <= LONGEST_EXAMPLE
        if line in searched or not is_a_program_message:
            continue
        if any(event.kind in record.kinds for event in read_bytes(line.encode()).events):
            return line
    return ""


NOT_NVIDIAS = (
    "The GPU is not from NVIDIA, so neither NVIDIA's driver nor a CUDA build of torch helps."
)
"""What a finding about an AMD, Intel or Apple GPU means for the reader."""
LAYER_MEANS = {
    Layer.UNFINISHED: "Until the installation is finished, doctor cannot judge the environment.",
    Layer.NO_GPU: "CUDA needs an NVIDIA GPU, so another PyTorch build for CUDA does not help.",
    Layer.PLATFORM: "Neither another version of pip nor another driver helps, because PyTorch "
    "publishes no wheel for the system.",
    Layer.PROCESS: "A setting or a file on this system gets in the way, so your GPU and your "
    "driver may be fine.",
    Layer.BOUNDARY: "The problem is between the host and the container, pod or WSL, so "
    "reinstalling PyTorch does not help.",
    Layer.HARDWARE: "The GPU or its connection to the computer fails, so reinstalling PyTorch "
    "does not help.",
    Layer.DRIVER: "The problem is below PyTorch, in the NVIDIA driver or its setup, so "
    "reinstalling PyTorch does not help.",
    Layer.READINESS: "The driver is installed, but CUDA cannot start on it, so reinstalling "
    "PyTorch rarely helps.",
    Layer.INSTALL: "The installation fails before anything uses the GPU, so you don't need "
    "another driver.",
    Layer.WHEEL: "The GPU itself is fine, but the installed PyTorch does not work on this machine.",
    Layer.LIBRARIES: "The program fails on a library or a kernel that it loads, so the GPU and the "
    "driver are usually fine.",
    Layer.RUNNING: "The program fails while it runs, so PyTorch and the driver are usually fine.",
    Layer.LOSSES: "Your program works, but it may be slower than it could be.",
}
"""What a cause of each layer means for the reader: where to look, and what does not help."""
NOT_ABOUT_SPEED = ("conda-missing", "launcher-deprecated")
"""Warnings among the losses of speed that cost none."""
SYMPTOM_MEANS = "This finding is only a symptom: it shows what failed, but not why."
SEVERITY_MEANS = {
    Severity.WARNING: "This is only a warning, so your program may still run.",
    Severity.NOTE: "This finding alone does not mean that your GPU setup is broken.",
}


def _meaning(record: Cause) -> Iterator[Block]:
    title = title_of(record)
    yield title
    name = "" if title.text == capital(record.name) else ended(capital(record.name))
    yield Text(f"{name} {_consequence(record)}".strip())
    if record.kind_of:
        yield Text(f"doctor reports this finding as a case of {record.kind_of}.")


def _consequence(record: Cause) -> str:
    """What the finding means for the reader, in a sentence."""
    if record.symptom and record.alike:
        return f'{SYMPTOM_MEANS} The section "{CONFUSIONS}" lists the usual causes.'
    if record.symptom:
        return SYMPTOM_MEANS
    if record.id == "ok":
        return "doctor prints this if it finds no problem."
    layer = record.place[0] if record.place else None
    if layer is Layer.NO_GPU and record.id != "no-nvidia-gpu":
        return NOT_NVIDIAS
    if layer and record.id not in NOT_ABOUT_SPEED:
        return LAYER_MEANS[layer]
    return SEVERITY_MEANS.get(record.severity, "")


# --- the check ------------------------------------------------------------------------------------


def _check(record: Cause, cases: tuple[Case, ...]) -> Iterator[Block]:
    """One command that shows whether the reader has this problem, and what it prints."""
    yield Heading(2, "Check that this is your problem")
    if record.check:
        yield Code((record.check.command,), "sh")
        yield Text("You have this problem if the command prints something like:")
        yield Code(tuple(record.check.prints.splitlines()), "text")
    elif cases:
        yield from _doctors_check(record, cases[0])
    else:
        yield Code(("gpusetup doctor",), "sh")
        yield Text(f"You have this problem if the output names `{record.id}`.")
    if record.proven_by:
        yield Text(f"What proves it: {ended(record.proven_by)}")


def decided_by_a_log(case: Case) -> bool:
    """Whether a program's output shows the finding, and not the machine's own facts."""
    return case.is_a_text or bool(case.machine.events)


def _doctors_check(record: Cause, case: Case) -> Iterator[Block]:
    """What doctor prints: about the machine if facts decide, else about the reader's log."""
    is_a_log = decided_by_a_log(case)
    if is_a_log:
        yield Text("Save your program's output in `error.txt`, then let doctor read it:")
        yield Code(("gpusetup doctor --report error.txt",), "sh")
    else:
        yield Text("On the machine, run doctor in the environment of your program:")
        yield Code(("gpusetup doctor",), "sh")
    yield Text("You have this problem if the output contains:")
    finding = case.finding
    # A machine composed for the tests has events without a text: their name is no evidence.
    quotes = [quote for quote in finding.evidence if quote.text not in (*record.kinds, record.id)]
    evidence = quotes[: 1 if is_a_log else EVIDENCE_SHOWN]
    # Of a log only the message counts: the other readings are those of our example machine.
    verdict = marked(MARKS[finding.severity], record.id, finding.title)
    screen = Screen((verdict, *map(evidence_line, evidence)))
    shown = screen.shown(width=OUTPUT_COLUMNS, colour=False)
    yield Code(tuple(line.rstrip() for line in shown.splitlines()), "text")


# --- the fix --------------------------------------------------------------------------------------


def _fix(record: Cause, cases: tuple[Case, ...]) -> Iterator[Block]:
    yield Heading(2, "How to fix it")
    shown = Shown()
    sections = [(case, list(_solution(case, shown))) for case in cases]
    # A system that adds neither a sentence nor a command needs no heading.
    sections = [(case, solution) for case, solution in sections if solution]
    for case, solution in sections:
        if len(sections) > 1:
            yield Heading(3, place_in_words(case))
        yield from solution
    if not sections and record.text:
        yield Text(ended(record.text))
    if has_commands(cases):
        return
    usual_commands = commands_of_record(record)
    if usual_commands:
        yield Code(usual_commands, "sh")
    else:
        reason = record.no_command or "what to change depends on your program."
        yield Text(f"There is no command to paste here, because {reason}")


class Shown:
    """The sentences and the commands that a page has already."""

    def __init__(self) -> None:
        self.sentences: set[str] = set()
        self.commands: set[Lines] = set()
        self.lines: set[str] = set()

    def has(self, sentence: str) -> bool:
        """Whether the page has a sentence already, or one that begins with it and goes on."""
        start = sentence.rstrip(".")
        return any(shown.startswith(start) for shown in self.sentences)


def _solution(case: Case, shown: Shown) -> Iterator[Block]:
    """What doctor says to do in a case, without what the page has already."""
    new_sentences = [text for text in _sentences(case.fix) if not shown.has(text)]
    # It speaks of an output that a page does not have, so the page takes the record's own words.
    if ended(CHANGE_NOTHING_YET) in new_sentences:
        new_sentences.remove(ended(CHANGE_NOTHING_YET))
    shown.sentences.update(new_sentences)
    if new_sentences:
        yield Text(" ".join(new_sentences))
    lines = command_lines(case.fix)
    typed = {str(line) for line in lines}
    # Another system often needs only a look-up that the page shows already.
    only_looks_up = not case.fix.commands and not case.fix.alternatives
    if lines not in shown.commands and not (only_looks_up and typed <= shown.lines):
        shown.commands.add(lines)
        shown.lines |= typed
        yield from _commands(case)


def _sentences(fix: Fix) -> Iterator[str]:
    """What a fix says and needs, sentence by sentence."""
    sentence = ""
    for part in re.split(r"(?<=[.!?)])\s+(?=[A-Z`(]|cu\d)", ended(_for_any_driver(fix))):
        sentence = f"{sentence} {part}".strip()
        # A remark in parentheses may have sentences of its own: it stays whole.
        if sentence.count("(") == sentence.count(")") and sentence.endswith((".", "!", "?", ".)")):
            yield sentence
            sentence = ""
    if sentence:
        yield sentence
    if needed := needs(fix):
        yield ended(needed.lstrip(". "))


def _for_any_driver(fix: Fix) -> str:
    """A fix's text for a reader whose driver is not the example's.

    >>> _for_any_driver(Fix(text="Install cu130. cu130 needs driver 580 or newer (found: 570.8)."))
    'Install cu130. cu130 needs driver 580 or newer (`nvidia-smi` shows yours).'
    """
    text = re.sub(r"\(found: [^)]*\)", "(`nvidia-smi` shows yours)", fix.text)
    # Without a backend in the commands or before, the sentence has nothing to refer to.
    needed = re.search(r"\.? (cu\d+) needs NVIDIA driver [^.]*(?:\.\d[^.]*)*$", text)
    if needed is None:
        return text
    others = (text[: needed.start()], *(str(line) for line in command_lines(fix)))
    return text if any(needed[1] in other for other in others) else text[: needed.start()]


def commands_of_record(record: Cause) -> tuple[str, ...]:
    """The record's own commands, if they are the same on every machine."""
    commands = record.commands if isinstance(record.commands, tuple) else ()
    return tuple(line for line in (*commands, *record.look) if "{" not in line)


def has_commands(cases: tuple[Case, ...]) -> bool:
    """Whether doctor gives the reader something to paste in any case."""
    return any(command_lines(case.fix) for case in cases)


def _commands(case: Case) -> Iterator[Block]:
    """The commands of one machine, with what to change on another."""
    fix = case.fix
    if not command_lines(fix):
        return
    example = _example_in_words(case)
    look_ups = tuple(titled_look_ups(fix))
    first = [row for row in look_ups if row[0].startswith("Check first")]
    later = [row for row in look_ups if row not in first]
    yield from _titled_blocks(case, first)
    if example and fix.commands:
        yield Text(f"For example, {example}:")
    elif fix.commands and first:
        yield Text("Then run:")
    yield from _block(case, fix.commands)
    yield from _titled_blocks(case, (*titled_alternatives(fix), *later))
    if changes := " ".join(_changes_elsewhere(case, fix)):
        yield Text(changes)


def _titled_blocks(case: Case, rows: Iterable[tuple[str, Lines]]) -> Iterator[Block]:
    """Blocks of commands, each below a sentence that introduces it."""
    for title, lines in rows:
        yield Text(title if lines else ended(title))
        yield from _block(case, lines)


def _example_in_words(case: Case) -> str:
    """The machine for which the commands are, as far as they depend on it; "" if they do not."""
    lines = "\n".join(command_lines(case.fix))
    python = case.machine.python.executable
    names_a_version = re.search(r"==\d|\+cu\d|cuda-\d|CUDA.v\d|nvidia-driver|toolkit=\d", lines)
    if names_a_version or (python and python in lines):
        return _other_cuda(lines, machine_in_words(case.machine)) or machine_in_words(case.machine)
    if re.search(PACKAGE_MANAGERS, lines) and case.machine.os.name:
        return f"on {case.machine.os.name}"
    return ""


def _other_cuda(lines: str, machine: str) -> str:
    """The condition for commands that name the CUDA version of a message instead of the machine's.

    >>> _other_cuda("export CUDA_HOME=/usr/local/cuda-12.4", "with torch 2.14.1+cu130")
    'if torch was built for CUDA 12.4'
    >>> _other_cuda("export CUDA_HOME=/usr/local/cuda-13.0", "with torch 2.14.1+cu130")
    ''
    """
    named = re.search(r"(?:cuda-|CUDA.v)(\d+\.\d+)", lines)
    torchs = re.search(r"\+cu(\d+)(\d)", machine)
    if named is None or torchs is None or named[1] == f"{torchs[1]}.{torchs[2]}":
        return ""
    return f"if torch was built for CUDA {named[1]}"


def _block(case: Case, lines: Lines) -> Iterator[Block]:
    if lines:
        yield Code(lines, "powershell" if case.machine.os.family == "windows" else "sh")


def _changes_elsewhere(case: Case, fix: Fix) -> Iterator[str]:
    """What the reader replaces in the commands of an example machine."""
    lines = "\n".join(command_lines(fix))
    python = case.machine.python.executable
    if python and python in lines:
        yield f"Replace `{python}` with the Python of your environment."
    if re.search(r"torch==|--torch\b|\+cu\d", lines):
        yield (
            "Another GPU, driver or Python may need a different build. "
            "Run `gpusetup resolve` to see the build for your machine."
        )
    elif re.search(rf"{PACKAGE_MANAGERS}.*(?:nvidia-driver|cuda-toolkit)", lines):
        yield (
            "The package has a different name on another distribution or for another driver. "
            "Run `gpusetup doctor` to see the name for your system."
        )
    if re.search(r"\b(?:IMAGE|NAME|FILE|FOLDER|PID|POD|NODE|HOST|SCRIPT|PACKAGE)\b", lines):
        yield "Replace the words in capitals with your own names."


# --- why, and what it is not ----------------------------------------------------------------------


def _reason(record: Cause, cases: tuple[Case, ...]) -> Iterator[Block]:
    reasons = dict.fromkeys(
        (record.means, *(case.finding.detail for case in cases if not case.machine.events))
    )
    texts = [text for text in reasons if text]
    if not texts:
        return
    yield Heading(2, "Why it happens")
    # The case of one system repeats most of the record's reason: the longest says all.
    yield Text(ended(record.means or max(texts, key=len)))
    if record.explains:
        *others, last = record.explains[:4]
        shown = f"{', '.join(others)} and {last}" if others else last
        yield Text(f"Fix this problem first, because doctor may also report {shown} until you do.")


def _confusions(record: Cause) -> Iterator[Block]:
    """Findings that look like this one, with the command that tells them apart."""
    sentences = [ended(record.not_when)] if record.not_when else []
    for command, ids in record.alike.items():
        purpose = f"distinguish this problem from {alternatives(ids)}" if ids else "find the cause"
        sentences.append(f"To {purpose}, run {_in_words(command)}.")
    for message in shared_by(record.id):
        other = home_of(message.line)
        beside = " ".join(message.beside.split())
        sentences.append(
            f"The message `{message.line}` usually means {other}. The same message means "
            f"{record.id} if your output also shows `{shortened(beside)}`."
        )
    for message in _shared_messages(record):
        beside = shortened(" ".join(message.beside.split()))
        sentences.append(
            f"The message `{message.line}` means {message.finding} if your output also shows "
            f"`{beside}`."
        )
    if sentences:
        yield Heading(2, CONFUSIONS)
        yield Bullets(tuple(sentences))


def _in_words(command: str) -> str:
    """A command within a sentence, with its remark.

    >>> _in_words("nvidia-smi  # on the host"), _in_words(f"export A=1  {RUN_AGAIN}")
    ('`nvidia-smi` on the host', '`export A=1`, start the same program again, and read its output')
    >>> _in_words("free -m  # while it runs: which grows?")
    '`free -m` (while it runs: which grows?)'
    """
    line, _, remark = command.partition("  # ")
    if not remark:
        return f"`{line}`"
    if remark == RUN_AGAIN.removeprefix("# "):
        return f"`{line}`, start the same program again, and read its output"
    names_only_a_place = re.fullmatch(r"(?:in|on) [^:,]+", remark)
    return f"`{line}` {remark}" if names_only_a_place else f"`{line}` ({remark})"


def _shared_messages(record: Cause) -> tuple[SearchedMessage, ...]:
    """This page's messages with which another finding is reported, one for each finding."""
    lines = headings_of(record.id)
    rows = (row for row in messages() if row.line in lines and row.finding != record.id)
    return tuple({row.finding: row for row in reversed(tuple(rows))}.values())


def _other_messages(record: Cause, cases: tuple[Case, ...]) -> Iterator[Block]:
    others = headings_of(record.id)[1:]
    if not others:
        return
    yield Heading(2, "Other messages of the same problem")
    yield Text(
        "The check and the fix above also apply to these messages, unless a message has its own "
        "fix below."
    )
    shown = Shown()
    for case in cases:
        shown.sentences.update(_sentences(case.fix))
        shown.commands.add(command_lines(case.fix))
    for line in others:
        yield Heading(3, line, is_message=True)
        if case_of_it := _case_of_line(record, line):
            yield from _solution(case_of_it, shown)


def _cases_of_other_messages(record: Cause) -> tuple[Case, ...]:
    """The cases of the messages that have a section of their own."""
    cases = (_case_of_line(record, line) for line in headings_of(record.id)[1:])
    return tuple(case for case in cases if case)


def _case_of_line(record: Cause, line: str) -> Case | None:
    """The finding where a program printed this line, one of the finding's messages."""
    message = next(row for row in messages_of(record.id) if row.line == line)
    return case_of_message(record, message)


# --- the next step --------------------------------------------------------------------------------


def _short_way(record: Cause, cases: tuple[Case, ...]) -> Iterator[Block]:
    yield Heading(2, "The short way")
    yield Text("To get the commands for your own machine instead of an example, run doctor there:")
    yield Code(("gpusetup doctor",), "sh")
    reads_a_log = not record.check and cases and decided_by_a_log(cases[0])
    if not reads_a_log:
        yield Text(
            "If you only have a log, pass it to doctor: `gpusetup doctor --report error.txt`."
        )
    all_cases = (*cases, *_cases_of_other_messages(record))
    has_a_fix = has_commands(all_cases) or commands_of_record(record)
    if has_a_fix and not record.symptom:
        yield Text(
            "**Next step:** apply the fix above, then run `gpusetup verify`, which tests that "
            "PyTorch computes correctly on your GPU."
        )
    else:
        yield Text("**Next step:** run `gpusetup doctor` and follow its instructions.")
