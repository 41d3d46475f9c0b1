"""Finds who manages the environment in a text: a container image, a project's tool, or a program
that includes its own Python.

These are facts, not failures. `fixes.owners` uses them to decide how that torch may be changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.messages.owners import ROWS
from gpusetup.messages.row import MessageRow
from gpusetup.messages.search import Text
from gpusetup.model.machine import Event
from gpusetup.model.patterns import in_any_case, lazy
from gpusetup.report.facts import CHARACTERS_READ, SHOWN_CHARACTERS, Facts


def owners(text: Text) -> Facts:
    """The owner of torch's environment.

    >>> from gpusetup.report.cleaning import text_of
    >>> [event.values for event in owners(text_of("docker run vllm/vllm-openai:v0.8.5 --model x"))]
    [{'name': 'vllm/vllm-openai:v0.8.5', 'owner': 'image'}]
    """
    flat = text.flat[:CHARACTERS_READ]
    for row in ROWS:
        if text.has_any(row.letters):
            yield from _owner_of_row(text, flat, row)


# `stable-diffusion-webui\models\Lora`, a folder that other programs also read.
FOLDER_OF_DATA = lazy(
    r"[^\s\"'<>|*?:;,]{0,120}?[\\/](?:models?|loras?|checkpoints|embeddings|outputs?)\b", re.I
)
"""The rest of a path that leads to a program's data and not into its environment."""


def _owner_of_row(text: Text, flat: str, row: MessageRow) -> Iterator[Event]:
    """The first place that names the owner and is not a folder of data."""
    for match in in_any_case(row.pattern).finditer(flat):
        if FOLDER_OF_DATA.match(flat, match.end()):
            continue
        if not (row.unless and in_any_case(row.unless).search(text.shown(*match.span()))):
            yield _event(text, row.kind, match, {"name": "", **row.values, **match.groupdict()})
        return


def _event(text: Text, kind: str, match: re.Match[str], values: dict[str, str]) -> Event:
    """An event for a match, with the text that it quotes."""
    start, end = match.span()
    quote = text.shown(start, end)[:SHOWN_CHARACTERS]
    return Event(kind=kind, values=values, source=text.source(start), text=quote)
