"""`doctor --report`: reading somebody's text, of a long one what tells most."""

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

MIB = 1 << 20
WHOLE = MIB
"""Bytes of a text that are read in full; of a longer one its beginning, end, and what matters."""
HEAD = MIB // 2
END = MIB // 4
"""Least of the end that is read: from there on to twice as much."""
KEPT = MIB // 4
"""How much of the middle of a long log is kept."""
BLOCK = MIB // 4
SAME_KEPT = 3
TELLING = (
    rb"(?i:error|fail|warn|cuda|nvrm|xid|nvidia|torch|gpu|nccl|dll|driver|python|glibc|killed"
    rb"|version)"
)
STDIN = "-"


class Sifted(NamedTuple):
    """What is read of a text, and how long it is."""

    raw: bytes
    size: int


def snapshot_of(name: str | bytes) -> Snapshot:
    """The machine that a report shows: itself, a file, or `-` for standard input."""
    text = _sifted_by_name(name)
    snapshot = _read(text.raw)
    if len(text.raw) == text.size:
        return snapshot
    from gpusetup.causes.running import REPORT_CUT

    read, size = (f"{count / MIB:.1f} MiB" for count in (len(text.raw), text.size))
    cut = Event(kind=REPORT_CUT.id, values={"size": size, "read": read}, source="report")
    return replace(snapshot, events=(*snapshot.events, cut))


def _sifted_by_name(name: str | bytes) -> Sifted:
    if isinstance(name, bytes):
        return sifted(io.BytesIO(name))
    if name == STDIN:
        return _sifted_alone(sys.stdin.buffer)
    try:
        with open(name, "rb") as stream:  # noqa: PTH123
            if named_file.is_endless(stream):
                raise BadInput(f"{name} is a device, and a text is meant")
            return _sifted_alone(stream)
    except OSError as problem:
        if named_file.is_folder(name):
            raise BadInput(f"{name} is a folder, and a text is meant") from problem
        hint = "a text is read from standard input: `gpusetup doctor --report -`, then paste it"
        pasted = re.search(r"\s", name) and not re.search(r"\.\w{2,4}$", name)
        raise BadInput(
            f"{name} cannot be read: {problem.strerror}", hint=hint if pasted else None
        ) from problem


def _sifted_alone(stream: BinaryIO) -> Sifted:
    """Where it is a terminal, somebody pastes, and nothing is drawn meanwhile."""
    with CLOCK.still() if stream.isatty() else nullcontext():
        return sifted(stream)


def sifted(stream: BinaryIO) -> Sifted:
    """All of a short text; of a long one the first part, the telling lines, and the last part. Of a
    long one in UTF-16, whose lines no byte ends, the beginning."""
    from gpusetup.report.cleaning.decode import is_wide

    head = stream.read(WHOLE + 1)
    if len(head) <= WHOLE:
        return Sifted(head, len(head))
    if is_wide(head):
        more = sum(map(len, iter(lambda: stream.read(BLOCK), b"")))
        return Sifted(head[:WHOLE], len(head) + more)
    cut = head.rfind(b"\n", 0, HEAD) + 1 or HEAD
    parts, rest, size, room = [head[:cut]], head[cut:], len(head), KEPT
    seen: dict[bytes, int] = {}
    while block := stream.read(BLOCK):
        size, rest = size + len(block), rest + block
        if len(rest) < END + BLOCK:
            continue
        cut = rest.rfind(b"\n", 0, len(rest) - END) + 1 or len(rest) - END
        told = b"".join(telling(rest[:cut], seen))[:room]
        parts.append(told)
        room, rest = room - len(told), rest[cut:]
    return Sifted(b"".join((*parts, rest)), size)


def telling(text: bytes, seen: dict[bytes, int]) -> list[bytes]:
    """The lines that may say something; what differs in numbers only is kept three times."""
    kept, tells = [], re.compile(TELLING)
    for line in text.split(b"\n"):
        if not tells.search(line, 0, 2000):
            continue
        shape = re.sub(rb"[0-9]+", b"", line[:200])
        seen[shape] = seen.get(shape, 0) + 1
        if seen[shape] <= SAME_KEPT:
            kept.append(line[:4000] + b"\n")
    if len(seen) > 50_000:
        seen.clear()
    return kept


@lru_cache(maxsize=1)
def _read(raw: bytes) -> Snapshot:
    """The machine of a text; the page asks for one several times, as JSON, as text, as a reply."""
    from gpusetup.report.read import read_bytes

    snapshot = read_bytes(raw)
    if has_words(raw):
        return snapshot
    from gpusetup.causes.running import REPORT_EMPTY

    empty = Event(kind=REPORT_EMPTY.id, source="report")
    return replace(snapshot, events=(*snapshot.events, empty))


COLOURS = r"\x1b\[[0-9;?]*[A-Za-z]"


def has_words(raw: bytes) -> bool:
    """Whether a letter or a digit stands in a text, beside the codes of a terminal.

    >>> has_words(b"a"), has_words(b" > ```"), has_words(b"\\x1b[0m"), has_words(b"")
    (True, False, False, False)
    """
    from gpusetup.report.cleaning.decode import decode

    parts = (decode(part) for part in (raw[:4096], raw) if part)
    return any(re.search(r"[^\W_]", re.sub(COLOURS, "", text)) for text in parts)
