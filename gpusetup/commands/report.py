"""`gpusetup doctor --report`: reads a text from a user. If it is longer than 1 MiB, only the first
and last half MiB are read."""

from __future__ import annotations

import io
import re
import sys
from contextlib import nullcontext
from functools import lru_cache
from typing import BinaryIO, NamedTuple

from gpusetup import named_file
from gpusetup.errors import BadInput
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Snapshot
from gpusetup.report.cleaning import decode
from gpusetup.report.read import read_bytes

MIB = 1 << 20
WHOLE = MIB
"""How many bytes of a text are read. From a longer text, only the beginning and the end are
read."""
HALF = WHOLE // 2
STDIN = "-"
COLOURS = r"\x1b\[[0-9;?]*[A-Za-z]"


class Sifted(NamedTuple):
    """The part of a text that was kept, and the size in bytes of the whole text."""

    raw: bytes
    size: int


def snapshot_of(name: str | bytes) -> Snapshot:
    """Read the machine that a report describes.

    `name` is a snapshot file, a report file, or `-` for standard input. Bytes are the report
    itself.
    """
    text = sifted(io.BytesIO(name)) if isinstance(name, bytes) else _sifted_by_name(name)
    snapshot = _read(text.raw)
    if len(text.raw) == text.size:
        return snapshot
    whole, read = (f"{size / MIB:.1f} MiB" for size in (text.size, len(text.raw)))
    return _with_event(snapshot, "report-cut", size=whole, read=read)


def _with_event(snapshot: Snapshot, kind: str, **values: str) -> Snapshot:
    """The snapshot with an event of this kind about the text."""
    event = Event(kind=kind, values=values, source="report")
    return replace(snapshot, events=(*snapshot.events, event))


def _sifted_by_name(name: str) -> Sifted:
    """The part of a file (or standard input) that is read. Raises BadInput if it cannot be read."""
    try:
        # Standard input stays open afterwards.
        opened = nullcontext(sys.stdin.buffer) if name == STDIN else open(name, "rb")  # noqa: PTH123, SIM115
        with opened as stream:
            if named_file.is_endless(stream):
                raise BadInput(f"{name} is a device, not a text")
            return sifted(stream)
    except OSError as problem:
        hint = "to paste a text: `gpusetup doctor --report -`"
        raise BadInput(f"{name} cannot be read: {problem.strerror}", hint=hint) from problem


def sifted(stream: BinaryIO) -> Sifted:
    """The whole text, or its beginning and end if it is longer than 1 MiB."""
    head = stream.read(WHOLE + 1)
    if len(head) <= WHOLE:
        return Sifted(head, len(head))
    size = len(head)
    tail = head
    while block := stream.read(WHOLE):
        size += len(block)
        tail = (tail + block)[-HALF:]
    return Sifted(head[:HALF] + tail[-HALF:], size)


@lru_cache(maxsize=1)
def _read(raw: bytes) -> Snapshot:
    """The machine that a text shows. It is cached, because the web page asks for it several
    times."""
    snapshot = read_bytes(raw)
    if has_words(raw):
        return snapshot
    return _with_event(snapshot, "report-empty")


def has_words(raw: bytes) -> bool:
    """Whether a text contains a letter or digit, apart from terminal codes.

    >>> has_words(b"a"), has_words(b" > ```"), has_words(b"\\x1b[0m"), has_words(b"")
    (True, False, False, False)
    """
    text = re.sub(COLOURS, "", decode(raw))
    letter_or_digit = r"[^\W_]"
    return re.search(letter_or_digit, text) is not None
