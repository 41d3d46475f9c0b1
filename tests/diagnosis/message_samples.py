"""Texts of programs with the kinds of events that they show: all of them, and no other.

A cause's own stand in its record. Those of facts, of several kinds, and of none, stand in
`tests/messages/*.txt`, one sample a line: the kinds (`-` for none), ` | `, the text; `\\n`, `\\t`
and `\\\\` mean in it what they mean in a string. A text that comes near a row's letters and is of
another kind is the row's neighbour.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gpusetup.causes.table import CAUSES, FACTS

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


def _sample(line: str) -> Sample:
    kinds, bar, text = line.partition(" | ")
    assert bar, line
    unescaped = re.sub(r"\\[nt\\]", lambda found: ESCAPES[found.group()], text)
    return Sample(kinds=frozenset(kinds.split()) - {"-"}, text=unescaped)
