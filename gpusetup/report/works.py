"""What shows that a GPU computes: a device that a program names, a speed, a training that goes on.

A failure that somebody names comes before all of that, in whatever words: that a part works is then
no answer. Only two things outrank it: a person's later word that the failure is mended, and a
program that goes on after the line in which it complained.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpusetup.messages import working
from gpusetup.messages.alternatives import Alternatives, has_any
from gpusetup.messages.search import Text
from gpusetup.model.machine import Event
from gpusetup.model.patterns import lazy, lowered
from gpusetup.report.failures import ALIGNED_LABEL, TABLE_STARTS
from gpusetup.report.person import is_prose, prose_of

LINES_READ, CHARACTERS_READ = 2_000, 60_000
"""Of the beginning of a text: people's posts are shorter (the labelled ones: 99 % below)."""
SENTENCE_END = lazy(r"(?<=[?!])|(?<=\.)\s+(?=\S)|\n")
SHOWN = 160
"""Characters of a quote."""
PRINTED_FIRST = lazy(
    r"\s*(?:[\d\[(]|(?:ERROR|Error|FATAL|CRITICAL|WARN(?:ING)?|INFO|DEBUG)\b[\]:])"
)
"""How a line begins that a program printed, although it has the words of a sentence."""
EXCEPTION = lazy(r"(?m)^\s*Traceback \(most recent|^\s*[\w.]{0,60}(?:Error|Exception): ")
"""The head of a traceback, or its last line."""
ON_A_DEVICE = lazy(r"device='cuda:\d|\bcuda:\d\b|\.to\(['\"]cuda|\.cuda\(\)")
"""A tensor on the GPU, or the call that puts it there."""


class Lines(NamedTuple):
    """The lines of a text by what they say, each by its number (from 0)."""

    complaints: tuple[int, ...]
    """Lines in which a person names a failure."""
    errors: tuple[int, ...]
    """Lines in which a program does."""
    slow: tuple[int, ...]
    """Lines that call it slow."""


def works(text: Text) -> Iterator[Event]:
    """Devices, speeds and trainings on a GPU, and what is asked about them.

    >>> from gpusetup.report.cleaning import text_of
    >>> [event.kind for event in works(text_of("42 tokens per second on my RTX 4080. Normal?"))]
    ['names-no-failure', 'gpu-speed', 'asks-about']
    >>> complaint = "My RTX 4080 makes 42 tokens per second, normal? Then it crashes"
    >>> [event.kind for event in works(text_of(complaint))]
    ['names-failure']
    """
    lines = _lines_read(text)
    flat = "\n".join(lines)
    on_cpu = working.ON_CPU.search(flat)
    if on_cpu and working.A_GPU.search(flat):
        yield _event("names-failure", flat, on_cpu)
        return
    classified = _classify(lines)
    in_use = tuple(_in_use(flat))
    mended = _last_match(working.SOLVED, flat)
    if mended and _is_mended(lines, classified):
        yield _event("works-there", flat, mended)
    elif not _goes_on(lines, classified, in_use):
        named = (*classified.complaints, *classified.slow)
        if named:
            first = named[0]
            source = f"report, line {first + 1}"
            yield Event(kind="names-failure", source=source, text=lines[first].strip()[:SHOWN])
            yield from _taken_all_the_same(flat, in_use)
        return
    if not classified.complaints and not classified.errors:
        yield Event(kind="names-no-failure", source="report")
    topic = _topic_of_person(prose_of(text).words)
    for form, match in in_use:
        yield _event("gpu-in-use", flat, match, form=form)
    yield from _said_to_work(flat, topic, is_shown=bool(in_use))
    if topic:
        name, words = topic
        yield Event(kind="asks-about", values={"topic": name}, source="report", text=words)


def _taken_all_the_same(flat: str, in_use: Sequence[Shown]) -> Iterator[Event]:
    """The device and the speed that a program shows, where somebody complains of something."""
    for form, match in in_use:
        if form == "device":
            yield _event("device-taken", flat, match)
    speed = working.SPEED.search(flat)
    if speed:
        yield _event("speed-named", flat, speed)


def _lines_read(text: Text) -> Sequence[str]:
    kept: list[str] = []
    room = CHARACTERS_READ
    for line in text.lines[:LINES_READ]:
        room -= len(line)
        if room < 0:
            break
        kept.append(line)
    return kept


def _classify(lines: Sequence[str]) -> Lines:
    """Where a person and where a program names a failure, notices aside."""
    low = lowered("\n".join(lines))
    failures, worries, slowness = (
        forms.possible_in(low) for forms in (working.FAILURE, working.WORRY, working.SLOW)
    )
    complaints: list[int] = []
    errors: list[int] = []
    slow: list[int] = []
    for number, line in enumerate(lines):
        if line.lstrip().startswith(TABLE_STARTS):
            continue
        label = ALIGNED_LABEL.match(line)
        line = line[label.end() :] if label else line
        # Most lines name no failure at all: their notices need not be taken out.
        if not (has_any(failures, line) or has_any(worries, line) or has_any(slowness, line)):
            continue
        without_notices = working.NOTICES.sub(" ", working.PRINTED_LABELS.sub(" ", line))
        if has_any(slowness, without_notices):
            slow.append(number)
        fails = has_any(failures, without_notices)
        if fails or has_any(worries, without_notices):
            is_of_a_person = is_prose(line) and not PRINTED_FIRST.match(line)
            # A program's line has such words of its own progress.
            if is_of_a_person:
                complaints.append(number)
            elif fails:
                errors.append(number)
    return Lines(tuple(complaints), tuple(errors), tuple(slow))


def _is_mended(lines: Sequence[str], classified: Lines) -> bool:
    """Whether somebody says that it works now, and names no failure after that."""
    words = [number for number, line in enumerate(lines) if _says_mended(line)]
    if not words or classified.slow:
        return False
    later = (
        number for number in (*classified.complaints, *classified.errors) if number > words[-1]
    )
    in_contrast = working.CONTRAST.search(" ".join(lines[words[-1] :]))
    return not any(later) and not in_contrast


def _says_mended(line: str) -> bool:
    """Whether a line says that it works now, and names no failure behind these words."""
    match = working.SOLVED.search(line)
    return bool(match and not working.FAILURE.search(line[match.end() :]))


def _goes_on(lines: Sequence[str], classified: Lines, in_use: Sequence[Shown]) -> bool:
    """Whether no failure is named that what the text shows does not deny."""
    flat = "\n".join(lines)
    last_shown = max((_line_of(flat, match.end()) for _, match in in_use), default=-1)
    for number in classified.complaints:
        # A program that prints the name of its GPU sees it, whatever somebody concludes.
        denied = last_shown >= 0 and working.NOT_SEEN.search(lines[number])
        if not denied or working.FAILURE.search(working.NOT_SEEN.sub(" ", lines[number])):
            return False
    # A log's line of error is outranked by what follows it; an exception never is: people put the
    # traceback before the head of the log as often as behind it.
    if max(classified.errors, default=-1) > last_shown or EXCEPTION.search(flat):
        return False
    # Who calls it slow may run on the CPU, unless the text shows what the GPU does.
    at_work = any(form not in ("available", "found") for form, _ in in_use)
    return not classified.slow or at_work or _computes_on_a_gpu(flat)


def _computes_on_a_gpu(flat: str) -> bool:
    on_a_gpu = working.A_GPU.search(flat)
    of_its_work = working.SPEED.search(flat) or working.TOPICS["loader"].search(flat)
    return bool(on_a_gpu and of_its_work)


Shown = tuple[str, re.Match[str]]
"""What a line shows (its form's name), and where it stands."""


def _in_use(flat: str) -> Iterator[Shown]:
    """Lines that only a program prints which has its GPU: the last of each form."""
    on_a_gpu = working.A_GPU.search(flat)
    forms = (
        ("device", working.DEVICE_SHOWN, True),
        ("found", working.FOUND_SHOWN, True),
        # A server and a training run on a CPU too.
        ("training", working.TRAINING_SHOWN, on_a_gpu),
        ("server", working.SERVER_SHOWN, on_a_gpu),
        ("available", working.AVAILABLE_SHOWN, True),
        ("tensor", ON_A_DEVICE, working.TOPICS["result"].search(flat)),
    )
    for name, form, counts in forms:
        match = _last_match(form, flat) if counts else None
        if match:
            yield name, match


def _said_to_work(flat: str, topic: tuple[str, str] | None, *, is_shown: bool) -> Iterator[Event]:
    """A speed, a training that goes on, and a person's plain word."""
    on_a_gpu = working.A_GPU.search(flat)
    for kind, form in (("gpu-speed", working.SPEED), ("gpu-trains", working.TRAINS_WELL)):
        match = form.search(flat) if on_a_gpu else None
        if match:
            yield _event(kind, flat, match)
    word = working.WORKS_THERE.search(flat)
    # That one thing works introduces the one that does not; games run on any driver.
    introduces = working.CONTRAST.search(flat) and not (is_shown or (on_a_gpu and topic))
    if word and not introduces and not working.OUTSIDE.search(flat):
        yield _event("works-there", flat, word)


def _topic_of_person(words: str) -> tuple[str, str] | None:
    """What somebody asks about, with the words that show it: a question before any other line."""
    asked = [
        line for line in SENTENCE_END.split(words) if "?" in line or working.WONDERS.search(line)
    ]
    of_a_question = _topic(" ".join(asked), tuple(working.TOPICS))
    # "Is that normal?" asks about what the other sentences say. Programs print their memory too, in
    # lines that read like sentences.
    if of_a_question and of_a_question[0] != "normal":
        return of_a_question
    others = ("result", "first run", "compile", "loader", "warnings", "speed", "normal")
    return _topic(words, others) or of_a_question


def _topic(words: str, topics: Sequence[str]) -> tuple[str, str] | None:
    for topic in topics:
        match = working.TOPICS[topic].search(words)
        if match:
            return topic, match[0][:SHOWN]
    return None


def _last_match(form: re.Pattern[str] | Alternatives, flat: str) -> re.Match[str] | None:
    if isinstance(form, Alternatives):
        return form.last_in(flat)
    last = None
    for match in form.finditer(flat):
        last = match
    return last


def _line_of(flat: str, place: int) -> int:
    return flat.count("\n", 0, place)


def _event(kind: str, flat: str, match: re.Match[str], **values: str) -> Event:
    source = f"report, line {_line_of(flat, match.start()) + 1}"
    return Event(kind=kind, values=values, source=source, text=_sentence(flat, match))


def _sentence(flat: str, match: re.Match[str]) -> str:
    """The words and what stands around them on their line."""
    first = flat.rfind("\n", 0, match.start()) + 1
    last = flat.find("\n", match.end())
    line = " ".join(flat[first : last if last >= 0 else len(flat)].split())
    # What stands before the words in a long line is the log's own prefix.
    return line if len(line) <= SHOWN else " ".join(flat[match.start() : last].split())[:SHOWN]
