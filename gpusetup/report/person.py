"""What a person says in sentences of their own: read in the prose of a text, never in its logs."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate
from typing import NamedTuple

from gpusetup.evidence.wording import is_program_output
from gpusetup.messages.people import ROWS
from gpusetup.messages.row import Row
from gpusetup.messages.search import Text
from gpusetup.model.machine import Event
from gpusetup.model.patterns import in_any_case, lazy, lowered
from gpusetup.report.facts import GUESS, Claim, Facts

CHARACTERS_READ = 12_000
"""Characters of prose that are read: a complaint stands at the beginning of a post, or at its end."""
PRINTED = lazy(
    r"^\s*(?:File \"|Traceback|at \w|\||\+-|\$ |>>> |>> |# |\(\w+\) .*[$#] |\d{4}-\d\d-\d\d|\[\d|[A-Z]:\\|/|\w+[=:]\S|-+$|\.{3}|\w+Error\b|\w+Warning\b)"
    r"|^\s*(?:import|from|def|class|return|print|pip3?|conda|sudo|apt|docker|python\S*|nvidia-smi|git|export|cd)\b \S+(?: \S+)?$"
)
"""How a line begins that a program printed, or that was typed."""
LETTER = re.compile(r"[^\W\d_]")
WIDE = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")
LETTERS_OF_PROSE, WIDE_LETTERS_OF_PROSE = 0.55, 0.3
"""The share of letters in a line of prose: lines of logs have more digits and signs (measured over the
labelled reports: 0.5 separates them)."""
WORDS_OF_PROSE, WIDE_OF_PROSE = 3, 4


def is_prose(line: str) -> bool:
    """Whether a line is a sentence of a person, as far as its form tells.

    >>> is_prose("My card stays at 0 % all day."), is_prose("2.6.0+cu124 True"), is_prose("显卡认不出来")
    (True, False, True)
    """
    bare = line.strip()
    if not bare or PRINTED.search(line):
        return False
    share = len(LETTER.findall(bare)) / len(bare.replace(" ", ""))
    # Chinese, Japanese and Korean say as much in a third of the letters.
    if len(WIDE.findall(bare)) >= WIDE_OF_PROSE:
        return share >= WIDE_LETTERS_OF_PROSE
    return share >= LETTERS_OF_PROSE and len(bare.split()) >= WORDS_OF_PROSE


class Prose(NamedTuple):
    """The paragraphs of a text that a person wrote, a line each."""

    words: str
    starts: tuple[int, ...]
    """Where each paragraph begins in `words`."""
    lines: tuple[int, ...]
    """The number of each paragraph's first line in the text (from 1)."""
    own_lines: tuple[int, ...]
    """The numbers of all lines of prose."""

    def line_at(self, place: int) -> int:
        return self.lines[max(bisect_right(self.starts, place) - 1, 0)]


def prose_of(text: Text) -> Prose:
    """All prose of a text, as far as it is read."""
    paragraphs: list[str] = []
    lines: list[int] = []
    own_lines: list[int] = []
    follows, characters = False, 0
    for number, line in enumerate(text.lines, 1):
        if not is_prose(line):
            follows = False
            continue
        own_lines.append(number)
        words = " ".join(line.split())
        characters += len(words)
        if characters > CHARACTERS_READ:
            break
        if follows:
            paragraphs[-1] = f"{paragraphs[-1]} {words}"
        else:
            paragraphs.append(words)
            lines.append(number)
        follows = True
    starts = accumulate((len(paragraph) + 1 for paragraph in paragraphs), initial=0)
    return Prose("\n".join(paragraphs), tuple(starts)[: len(lines)], tuple(lines), tuple(own_lines))


SENTENCES = "report.sentences"
"""The subject of the reading that names the lines in which only a person speaks."""


def sentences(text: Text, prose: Prose) -> Claim | None:
    """The lines of a text in which a person speaks and no program is quoted."""
    numbers = [
        str(number) for number in prose.own_lines if not is_program_output(text.lines[number - 1])
    ]
    return Claim(SENTENCES, " ".join(numbers), "report") if numbers else None


def person(text: Text) -> Facts:
    """What the person says of the GPU, of what was tried, and of the machine: each thing once."""
    prose = prose_of(text)
    if own_lines := sentences(text, prose):
        yield own_lines
    low = lowered(prose.words)
    known: set[tuple[str, str]] = set()
    for row in ROWS if low else ():
        subject = (row.kind, row.values.get("what", ""))
        if subject in known or not any(letters in low for letters in row.letters):
            continue
        match = _meant(prose.words, row)
        if match is None:
            continue
        known.add(subject)
        named = {name: value for name, value in match.groupdict().items() if value}
        values = {**row.values, **named}
        source = f"report, line {prose.line_at(match.start())}"
        if row.kind == "python-bound":
            yield Claim("python.version", values["python"], source, GUESS)
        yield Event(kind=row.kind, values=values, source=source, text=match[0][:SHOWN])


def _meant(words: str, row: Row) -> re.Match[str] | None:
    """Where the words say it, unless their own sentence makes a condition or a wish of them."""
    for match in in_any_case(row.pattern).finditer(words):
        sentence_start = max(words.rfind(end, 0, match.start()) for end in SENTENCE_ENDS) + 1
        sentence_end = min(match.end() + BEHIND, len(words))
        sentence = words[sentence_start:sentence_end]
        if not (row.unless and in_any_case(row.unless).search(sentence)):
            return match
    return None


SENTENCE_ENDS = (". ", "! ", "? ", "\n", "。")
BEHIND, SHOWN = 30, 200
"""Characters behind the words that may still change their meaning; characters of a quote."""
