"""`doctor --report`: reading somebody's text, of a long one what tells most."""

from __future__ import annotations

import io
import re
import sys
from collections import Counter, deque
from contextlib import nullcontext
from functools import lru_cache
from itertools import chain
from typing import BinaryIO, NamedTuple

from gpusetup import named_file
from gpusetup.errors import BadInput
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Snapshot
from gpusetup.render.clock import CLOCK
from gpusetup.report.cleaning import decode, is_wide
from gpusetup.report.read import read_bytes

MIB = 1 << 20
WHOLE = MIB
"""Bytes of a text that are read in full; of a longer one its beginning, end, and what matters."""
HEAD = MIB // 2
END = MIB // 4
KEPT = MIB // 4
"""How much of the middle of a long log is kept."""
LONGEST_LINE = 4000
SAME_KEPT = 3
"""Lines that differ in numbers only are kept so often."""
TELLING = (
    rb"(?i:error|fail|warn|cuda|nvrm|xid|nvidia|torch|gpu|nccl|dll|driver|python|glibc|killed"
    rb"|version)"
)
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
    """All of a short text; of a long one the first part, the telling lines, and the last part. Of a
    long one in UTF-16, whose lines no byte ends, the beginning."""
    head = stream.read(WHOLE + 1)
    if len(head) <= WHOLE:
        return Sifted(head, len(head))
    size, held, room = HEAD, 0, KEPT
    kept, end, seen = [head[:HEAD]], deque[bytes](), Counter[bytes]()
    for line in chain(io.BytesIO(head[HEAD:]), iter(lambda: stream.readline(LONGEST_LINE), b"")):
        size, held = size + len(line), held + len(line)
        end.append(line)
        while held > END:
            old = end.popleft()
            held -= len(old)
            shape = re.sub(rb"[0-9]+", b"", old[:200])
            if room > 0 and seen[shape] < SAME_KEPT and re.search(TELLING, old):
                seen[shape] += 1
                kept.append(old[:LONGEST_LINE])
                room -= len(kept[-1])
    return Sifted(head[:WHOLE] if is_wide(head) else b"".join((*kept, *end)), size)


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
