"""`doctor --report`: reading somebody's text, of a long one its beginning and its end."""

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
from gpusetup.render.clock import CLOCK
from gpusetup.report.cleaning import decode
from gpusetup.report.read import read_bytes

MIB = 1 << 20
WHOLE = MIB
"""Bytes of a text that are read in full; of a longer one the beginning and the end."""
HALF = WHOLE // 2
STDIN = "-"
COLOURS = r"\x1b\[[0-9;?]*[A-Za-z]"


class Sifted(NamedTuple):
    """What is read of a text, and how long it is."""

    raw: bytes
    size: int


def snapshot_of(name: str | bytes) -> Snapshot:
    """The machine that a report shows: itself, a file, or `-` for standard input."""
    text = sifted(io.BytesIO(name)) if isinstance(name, bytes) else _sifted_by_name(name)
    snapshot = _read(text.raw)
    if len(text.raw) == text.size:
        return snapshot
    read, size = (f"{count / MIB:.1f} MiB" for count in (len(text.raw), text.size))
    return _with(snapshot, Event(kind="report-cut", values={"size": size, "read": read}))


def _with(snapshot: Snapshot, event: Event) -> Snapshot:
    return replace(snapshot, events=(*snapshot.events, replace(event, source="report")))


def _sifted_by_name(name: str) -> Sifted:
    try:
        opened = nullcontext(sys.stdin.buffer) if name == STDIN else open(name, "rb")  # noqa: PTH123, SIM115
        with opened as stream:
            if named_file.is_endless(stream):
                raise BadInput(f"{name} is a device, not a text")
            # In a terminal somebody pastes, and nothing is drawn meanwhile.
            if stream.isatty():
                CLOCK.end()
            return sifted(stream)
    except OSError as problem:
        hint = "to paste a text: `gpusetup doctor --report -`"
        raise BadInput(f"{name} cannot be read: {problem.strerror}", hint=hint) from problem


def sifted(stream: BinaryIO) -> Sifted:
    """All of a short text; of a long one the first half of what is read, and the last one."""
    head = stream.read(WHOLE + 1)
    if len(head) <= WHOLE:
        return Sifted(head, len(head))
    size, end = len(head), head
    while more := stream.read(WHOLE):
        size, end = size + len(more), (end + more)[-HALF:]
    return Sifted(head[:HALF] + end[-HALF:], size)


@lru_cache(maxsize=1)
def _read(raw: bytes) -> Snapshot:
    """The machine of a text; the page asks for one several times, as JSON, as text, as a reply."""
    snapshot = read_bytes(raw)
    if has_words(raw):
        return snapshot
    return _with(snapshot, Event(kind="report-empty"))


def has_words(raw: bytes) -> bool:
    """Whether a text contains a letter or a digit, apart from the codes of a terminal.

    >>> has_words(b"a"), has_words(b" > ```"), has_words(b"\\x1b[0m"), has_words(b"")
    (True, False, False, False)
    """
    return re.search(r"[^\W_]", re.sub(COLOURS, "", decode(raw))) is not None
