"""Reads what a person says in their own sentences. Logs are left out."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from gpusetup.evidence.wording import is_program_output
from gpusetup.messages.people import ROWS
from gpusetup.messages.row import MessageRow
from gpusetup.messages.search import Text, line_source
from gpusetup.model.machine import Event
from gpusetup.model.patterns import in_any_case, lazy, lowered
from gpusetup.report import fields
from gpusetup.report.facts import GUESS, Claim, Facts

CHARACTERS_READ = 12_000
"""The most characters of prose that are read. What a person writes in a post is shorter."""
# A traceback, a table, a prompt, a time, `name=value`, a folder, or a typed command.
PRINTED = lazy(
    r"^\s*(?:File \"|Traceback|at \w|\||\+-|\$ |>>> |>> |# |\(\w+\) .*[$#] |\d{4}-\d\d-\d\d|\[\d|[A-Z]:\\|/|\w+[=:]\S|-+$|\.{3}|\w+Error\b|\w+Warning\b)"
    r"|^\s*(?:import|from|def|class|return|print|pip3?|conda|sudo|apt|docker|python\S*|nvidia-smi|git|export|cd)\b \S+(?: \S+)?$"
)
"""The beginning of a line that a program printed, or that somebody typed into a shell."""
LETTER = re.compile(r"[^\W\d_]")
# Japanese syllables, Chinese characters, Korean syllables.
WIDE = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")
LETTERS_OF_PROSE, WIDE_LETTERS_OF_PROSE = 0.55, 0.3
"""The smallest share of letters in a line of prose, and the smallest in a line with Chinese,
Japanese or Korean letters.

Log lines have more digits and punctuation. Measured on the labelled reports, a share of about 0.5
separates the two.
"""
WORDS_OF_PROSE, WIDE_OF_PROSE = 3, 4
"""The fewest words in a line of prose, and the fewest Chinese, Japanese or Korean letters. Shorter
lines are labels."""


def is_prose(line: str) -> bool:
    """Whether a line looks like a sentence that a person wrote.

    >>> is_prose("My card stays at 0 % all day."), is_prose("2.6.0+cu124 True"), is_prose("显卡认不出来")
    (True, False, True)
    """
    sentence = line.strip()
    if not sentence or PRINTED.search(line):
        return False
    characters = len(sentence.replace(" ", ""))
    letter_share = len(LETTER.findall(sentence)) / characters
    # Chinese, Japanese and Korean need only about a third of the letters for the same sentence.
    if len(WIDE.findall(sentence)) >= WIDE_OF_PROSE:
        return letter_share >= WIDE_LETTERS_OF_PROSE
    has_words = len(sentence.split()) >= WORDS_OF_PROSE
    return has_words and letter_share >= LETTERS_OF_PROSE


FENCE = "```"
"""The line that begins and ends a code block in Markdown."""
OUTPUT_SHARE = 1 / 3
"""A code block is a program's output if at least this share of its lines was not written by a
person. Some people put a whole letter in a code block."""


def fenced_output(lines: Sequence[str]) -> frozenset[int]:
    """The numbers (from 1) of lines in fenced blocks that hold a program's output.

    So a program's sentence, such as "Unable to open /dev/kfd", is not mistaken for a person's.
    """
    output_lines: set[int] = set()
    block: list[int] = []
    is_open = False
    for number, line in enumerate(lines, 1):
        if not line.strip().startswith(FENCE):
            block.append(number)
            continue
        # A code block that is never closed does not count.
        if is_open and block:
            printed = [other for other in block if _is_printed(lines[other - 1])]
            if len(printed) >= OUTPUT_SHARE * len(block):
                output_lines.update(block)
        is_open = not is_open
        block = []
    return frozenset(output_lines)


def _is_printed(line: str) -> bool:
    """Whether a program printed a line: it is not a sentence, or has parts that only programs
    print."""
    return not is_prose(line) or is_program_output(line)


class Prose(NamedTuple):
    """The paragraphs that a person wrote, one per line."""

    words: str
    starts: tuple[int, ...]
    """Where each paragraph begins in `words`."""
    first_lines: tuple[int, ...]
    """The number of each paragraph's first line in the text (from 1)."""
    all_lines: tuple[int, ...]
    """The numbers of all lines of prose."""

    def line_at(self, position: int) -> int:
        """The number of the first line of the paragraph that contains this position in `words`."""
        paragraphs_begun = bisect_right(self.starts, position)
        paragraph = max(paragraphs_begun - 1, 0)
        return self.first_lines[paragraph]


ENDS_IN_COLON = lazy(r"\w(?:Error|Exception|Warning): *$")
"""The end of a line with an exception whose message begins in the next line."""
INDENTATION = "    "


def prose_of(text: Text) -> Prose:
    """All prose in a text, up to `CHARACTERS_READ` characters."""
    paragraphs: list[str] = []
    first_lines: list[int] = []
    all_lines: list[int] = []
    is_in_paragraph = False
    characters = 0
    printed = fenced_output(text.lines) | text.logged
    is_in_message = False
    for number, line in enumerate(text.lines, 1):
        # The message continues in indented lines, which may be whole sentences.
        is_in_message = ENDS_IN_COLON.search(line) is not None or (
            is_in_message and line.startswith(INDENTATION)
        )
        if number in printed or is_in_message or not is_prose(line):
            is_in_paragraph = False
            continue
        all_lines.append(number)
        words = " ".join(line.split())
        characters += len(words)
        if characters > CHARACTERS_READ:
            break
        # Consecutive lines are joined to one paragraph, so that a wrapped sentence stays in one
        # piece.
        if is_in_paragraph:
            paragraphs[-1] = f"{paragraphs[-1]} {words}"
        else:
            paragraphs.append(words)
            first_lines.append(number)
        is_in_paragraph = True
    return Prose(
        words="\n".join(paragraphs),
        starts=_starts(paragraphs),
        first_lines=tuple(first_lines),
        all_lines=tuple(all_lines),
    )


def _starts(paragraphs: list[str]) -> tuple[int, ...]:
    """The position at which each paragraph begins after all are joined with line breaks."""
    lengths = [len(paragraph) + 1 for paragraph in paragraphs]
    ends = tuple(accumulate(lengths, initial=0))
    return ends[: len(paragraphs)]


def sentences(text: Text, prose: Prose) -> Claim | None:
    """A claim with the numbers of the lines that a person wrote without quoting a program; None if
    there are none."""
    numbers = []
    for number in prose.all_lines:
        line = text.lines[number - 1]
        if not is_program_output(line):
            numbers.append(str(number))
    if not numbers:
        return None
    return Claim(fields.SENTENCES, " ".join(numbers), "report")


def person(text: Text) -> Facts:
    """What the person says about the GPU, the machine and their own attempts, each thing once."""
    prose = prose_of(text)
    own_sentences = sentences(text, prose)
    if own_sentences:
        yield own_sentences
    low = lowered(prose.words)
    if not low:
        return
    already_said: set[tuple[str, str]] = set()
    for row in ROWS:
        # Several rows may be different wordings of the same thing.
        thing = (row.kind, row.values.get("what", ""))
        if thing in already_said:
            continue
        # A substring search is much faster than the pattern, and most texts contain none of the
        # strings.
        if not any(letters in low for letters in row.letters):
            continue
        match = _first_assertion(prose.words, row)
        if match is None:
            continue
        already_said.add(thing)
        values = {**row.values, **_named_values(match)}
        source = line_source(prose.line_at(match.start()))
        if row.kind == "python-bound":
            yield Claim(fields.PYTHON_VERSION, values["python"], source, GUESS)
        quote = match[0][:SHOWN_CHARACTERS]
        yield Event(kind=row.kind, values=values, source=source, text=quote)


def _named_values(match: re.Match[str]) -> Mapping[str, str]:
    """The named groups of a match and their values, without empty values."""
    values: dict[str, str] = {}
    for name, value in match.groupdict().items():
        if value:
            values[name] = value
    return values


def _first_assertion(words: str, row: MessageRow) -> re.Match[str] | None:
    """The first match that states a fact; None if there is none. Matches in a condition or a wish
    do not count."""
    for match in in_any_case(row.pattern).finditer(words):
        if not row.unless:
            return match
        sentence_end = min(match.end() + CHARACTERS_BEHIND, len(words))
        sentence = words[_sentence_start(words, match.start()) : sentence_end]
        if not in_any_case(row.unless).search(sentence):
            return match
    return None


def _sentence_start(words: str, position: int) -> int:
    """The position at which the sentence around `position` begins."""
    last_end = -1
    for sentence_end in SENTENCE_ENDS:
        end = words.rfind(sentence_end, 0, position)
        last_end = max(last_end, end)
    return last_end + 1


SENTENCE_ENDS = (". ", "! ", "? ", "\n", "。")
CHARACTERS_BEHIND = 30
"""The number of characters after a match that may still change its meaning."""
SHOWN_CHARACTERS = 200
"""Characters of a quote."""
