"""Whether an issue's author reports a failure of their own machine, or speaks of an error.

Who asks for a feature, mends a page, quotes a manual or tells of others names errors too. Pure:
title, text and what a reader took for evidence give the answer; without a sign it is no report.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from triage_words import ELSEWHERE, FAILS, HELP, MINE, TITLE

from gpusetup.causes.table import ROWS
from gpusetup.messages.row import found_in
from gpusetup.messages.search import text_of

LIVE = re.compile(
    r"(?m)^[ \t]*(?:Traceback \(most recent call last\)|File \".+\", line \d+|[$] \S|>>> |PS [A-Z]:"
    r"|[A-Z]:\\.*>|(?:\([\w.-]{1,40}\) ?)?[\w.-]{1,60}@[\w.-]{1,60}[: ]|\+[-=]{9,}|\|[=]{9,})"
    r"|\b\d\d:\d\d:\d\d\b|^\[ *\d+\.\d+\] "
)
"""What a program prints while it runs, and no manual."""
BLOCK = re.compile(r"(?ms)^[ \t]*(`{3,8}|~{3,8})[^\n]*\n.*?(?:^[ \t]*\1[`~]*[ \t]*$|\Z)")
TABLE_OF_WORDS = re.compile(r"(?m)^[ \t]*\|.*\|[ \t]*\n[ \t]*\|[ :|-]+\|[ \t]*(?:\n[ \t]*\|.*)*")
"""Markdown's, which a person wrote."""
PRINTED = re.compile(
    r"\s{4}|\s*(?:Traceback |File \"|\[|\||\+[-=]|[$>] |>>>|PS |\d{2,}|[\w./\\-]+@|#"
    r"|\S+(?:Error|Exception|Warning)\b|(?:INFO|WARN\w*|ERROR)\b)"
)
"""How a line begins that nobody wrote."""
FEW_WORDS = 8
"""Of a text that is output, and next to nothing else."""
MOST_PROSE = 20_000


START = 24
"""Letters of a message by which its line is found."""
MOST_WORDS = 3
"""A log's prefix has fewer words of prose before the message."""
RAISED = re.compile(r"(\S+ ){0,2}[\w.]*(Error|Exception|Warning|ERROR|WARNING)\b")
NAMED = re.compile(
    r"\b[\w.]{0,80}(?:Error|Exception|Warning)\b|\b(?:CUDA|HIP|cuDNN|NCCL) (?:error|out of)"
    r"|NVRM:|NVIDIA-SMI has"
)
"""How programs begin what they say."""


def is_own(title: str, written: str, evidence: Iterable[str]) -> bool:
    """Whether the author reports a failure, and on a machine that is at hand.

    >>> block = "```\\nCUDA error\\n```"
    >>> is_own("No GPU", f"When I run it I get\\n{block}", ["CUDA error"])
    True
    >>> is_own("FAQ", f"I read in the FAQ that\\n{block}\\nmeans this. Is it so?", ["CUDA error"])
    False
    """
    starts = starts_of(evidence)
    prose = "\n".join(prose_of(written, starts))[:MOST_PROSE]
    said = f"{title}\n{prose}"
    if MINE.search(said):
        return True
    if ELSEWHERE.search(said) or TITLE.match(title):
        return False
    fails = FAILS.search(prose) or HELP.search(title)
    return bool(LIVE.search(written) or fails) or len(prose.split()) < FEW_WORDS


def is_output(text: str, evidence: Iterable[str]) -> bool:
    """Whether a message stands as a program prints it: in a block, or at a line's beginning.

    >>> is_output("It says:\\nNVRM: Xid (PCI:1): 79", ["NVRM: Xid (PCI:1): 79"])
    True
    >>> is_output("What does it mean to see NVRM: Xid 79?", ["NVRM: Xid 79"])
    False
    """
    starts = starts_of(evidence)
    blocks = words_of("\n".join(found.group() for found in BLOCK.finditer(text)))
    if LIVE.search(text) or any(start in blocks for start in starts):
        return True
    lines = tuple(map(words_of, BLOCK.sub("\n", text).splitlines()))
    with_it = [line for line in lines if any(start in line for start in starts)]
    tables = " ".join(words_of(found.group()) for found in TABLE_OF_WORDS.finditer(text))
    return not with_it or not all(is_sentence(line) or line in tables for line in with_it)


def is_sentence(line: str) -> bool:
    """Whether a message is named in a line, and not printed: words of prose stand before it.

    >>> is_sentence("Jun 3 11:22 node kernel: NVRM: Xid (PCI:1): 79, pid=5")
    False
    >>> is_sentence("What does it mean when people see NVRM: Xid (PCI:1): 79")
    True
    >>> is_sentence("NVRM: Xid `79`")
    True
    """
    before = line[: begin_of_message(line) or 0]
    words = re.findall(r"(?<![\w/.:-])[a-z]{2,}(?![\w/.:=-])", before)
    return ("`" in line and not RAISED.match(line)) or len(words) >= MOST_WORDS


def begin_of_message(line: str) -> int | None:
    """Where in a line the first message of a program begins."""
    found = [one.start() for one in (NAMED.search(line),) if one]
    said = text_of([line])
    for row in ROWS:
        for offset, window in said.near(*row.letters):
            found += [offset + start for start, _, _ in found_in(window, row)]
    return min(found, default=None)


def prose_of(text: str, starts: Iterable[str]) -> Iterator[str]:
    """The sentences of a text, without what a program printed.

    >>> list(prose_of("Hello,\\n```\\nlog\\n```\\nValueError: 5\\nIt is NVRM: 5", ["NVRM: 5"]))
    ['Hello,', 'It is NVRM: 5']
    """
    for line in BLOCK.sub("\n", text).splitlines():
        if (words := words_of(line)) and is_prose(line, words, starts):
            yield words


def is_prose(line: str, words: str, starts: Iterable[str]) -> bool:
    """Whether somebody wrote a line: one with a message in it, where words stand before that."""
    if PRINTED.match(line):
        return is_sentence(words)
    return begin_of_message(words) != 0 or not any(start in words for start in starts)


def starts_of(evidence: Iterable[str]) -> frozenset[str]:
    return frozenset(begin(one) for one in evidence if one.strip())


def begin(text: str) -> str:
    return words_of(text)[:START]


def words_of(text: str) -> str:
    """
    >>> words_of(" a  b\\n c")
    'a b c'
    """
    return " ".join(text.split())
