"""Texts of programs with the kinds of events that they show: all of them, and no other.

A cause's own stand in its record. Those of facts, of several kinds, and of none, stand in
`tests/messages/*.txt`, one sample a line: the kinds (`-` for none), ` | `, the text; `\\n`, `\\t`
and `\\\\` mean in it what they mean in a string. A text that comes near a row's letters and is of
another kind is the row's neighbour.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from report_messages import MESSAGES
from test_kernel_log import LINES

from gpusetup.causes.table import CAUSES, FACTS
from gpusetup.messages.row import MessageRow
from gpusetup.messages.search import Text, matches
from gpusetup.report.cleaning import text_of

FOLDER = Path(__file__).parents[1] / "messages"
ESCAPES = {"\\n": "\n", "\\t": "\t", "\\\\": "\\"}


class Sample(NamedTuple):
    """One text, and what is read from it."""

    kinds: frozenset[str]
    text: str


def samples() -> tuple[Sample, ...]:
    lines = (
        line
        for path in sorted(FOLDER.glob("*.txt"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    )
    return (*map(_sample, lines), *_of_causes())


def _of_causes() -> Iterator[Sample]:
    for cause in CAUSES:
        examples = filter(None, (row.example for row in cause.rows))
        yield from (Sample(frozenset({cause.id}), text) for text in examples)
    yield from (Sample(frozenset({row.kind}), row.example) for row in FACTS if row.example)


def is_plain(row: MessageRow) -> bool:
    """Whether each form of a message is letters alone: it is its own sample."""
    return {*row.pattern.replace("\\", "").lower().split("|")} <= {*row.letters}


def _sample(line: str) -> Sample:
    kinds, bar, text = line.partition(" | ")
    assert bar, line
    unescaped = re.sub(r"\\[nt\\]", lambda found: ESCAPES[found.group()], text)
    return Sample(kinds=frozenset(kinds.split()) - {"-"}, text=unescaped)


@cache
def _read() -> tuple[tuple[Sample, Text], ...]:
    return tuple((sample, text_of(sample.text)) for sample in samples())


@cache
def _texts() -> tuple[Text, ...]:
    others = dict.fromkeys((*(text for _, text in MESSAGES), *LINES))
    return (*(text for _, text in _read()), *map(text_of, others))


def matching(row: MessageRow) -> Iterator[str]:
    """The different texts that have a row's message, as they are found."""
    seen = set()
    for text in _texts():
        if (
            any(letters in text.low for letters in row.letters)
            and text.flat not in seen
            and any(True for _ in matches(text, row))
        ):
            seen.add(text.flat)
            yield text.flat
