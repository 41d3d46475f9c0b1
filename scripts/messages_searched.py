"""The messages that people search for (`web/messages.json`), and the finding that each shows."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

MESSAGES = Path(__file__).resolve().parent.parent / "web" / "messages.json"
MOST_SEARCHED = (
    "torch-cpu-build",
    "torch-sees-no-gpu",
    "no-kernel-image",
    "arch-too-new-for-wheel",
    "arch-too-old-for-wheel",
    "driver-too-old",
    "driver-missing",
    "driver-not-loaded",
    "nvml-mismatch",
    "container-toolkit-missing",
    "container-no-gpu",
    "cuda-unknown-error",
    "out-of-memory",
    "shm-too-small",
    "cuda-program-error",
    "torch-missing",
    "cuda-lib-missing",
    "extension-abi-mismatch",
    "torchvision-mismatch",
    "cuda-toolkit-missing",
)
"""The findings whose messages people search most: their records are polished by hand."""


class SearchedMessage(NamedTuple):
    """A message as a program prints it, and the finding that it shows."""

    finding: str
    message: str
    beside: str = ""
    """What else stood in the text, if the message alone does not decide."""

    @property
    def text(self) -> str:
        """The whole text."""
        return f"{self.message}\n{self.beside}".rstrip("\n")

    @property
    def line(self) -> str:
        """The message on one line."""
        return " ".join(self.message.split())


@cache
def messages() -> tuple[SearchedMessage, ...]:
    """Every row, in the file's order."""
    rows = json.loads(MESSAGES.read_text(encoding="utf-8"))
    return tuple(SearchedMessage(**row) for row in rows)


def messages_of(id: str) -> tuple[SearchedMessage, ...]:
    """The rows of one finding."""
    return tuple(row for row in messages() if row.finding == id)


@cache
def home_of(line: str) -> str:
    """The finding on whose page a message is a heading: the one it shows without further words.

    Several findings may share a message; then the words beside it decide, and only one page has it
    as a heading, so that a search leads to the usual cause.
    """
    rows = [row for row in messages() if row.line == line]
    alone = [row for row in rows if not row.beside]
    return (alone or rows)[0].finding


def headings_of(id: str) -> tuple[str, ...]:
    """The messages whose home is this finding, each once."""
    lines = dict.fromkeys(row.line for row in messages_of(id))
    return tuple(line for line in lines if home_of(line) == id)


def shared_by(id: str) -> tuple[SearchedMessage, ...]:
    """Its messages that are headings of another finding's page."""
    return tuple(row for row in messages_of(id) if home_of(row.line) != id)
