"""`gpusetup doctor --report`: reads a text from a user. If it is longer than 1 MiB, only the first
and last half MiB are read."""

from __future__ import annotations

import io
import re
import sys
from contextlib import nullcontext
from typing import BinaryIO

from gpusetup.errors import BadInput
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Event, Snapshot
from gpusetup.model.units import MIB
from gpusetup.report.cleaning import decode
from gpusetup.report.read import read_bytes

READ_BYTES = MIB
"""How much of a text is read: of a longer one, the beginning and the end."""
MOST_BYTES = 1 << 30
"""Where the search for the end of a text stops, because a device such as /dev/zero has none."""


def snapshot_of(name: str | bytes) -> Snapshot:
    """The machine that a report describes: the text of a file, of standard input (`-`), or, as
    bytes, the report itself. Raises BadInput if the file cannot be read."""
    if isinstance(name, bytes):
        raw, size = beginning_and_end(io.BytesIO(name))
    else:
        try:
            # Standard input stays open afterwards.
            opened = nullcontext(sys.stdin.buffer) if name == "-" else open(name, "rb")  # noqa: PTH123, SIM115
            with opened as stream:
                raw, size = beginning_and_end(stream)
        except OSError as problem:
            hint = "to paste a text: `gpusetup doctor --report -`"
            raise BadInput(f"{name} cannot be read: {problem.strerror}", hint=hint) from problem
    snapshot = read_bytes(raw)
    # A text with nothing but terminal codes (`ESC[0m`) and punctuation says nothing.
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", decode(raw))
    if not re.search(r"[^\W_]", text):
        return _with_event(snapshot, "report-empty")
    if len(raw) < size:
        whole, part = f"{size / MIB:.1f} MiB", f"{len(raw) / MIB:.1f} MiB"
        return _with_event(snapshot, "report-cut", size=whole, read=part)
    return snapshot


def _with_event(snapshot: Snapshot, kind: str, **values: str) -> Snapshot:
    event = Event(kind=kind, values=values, source="report")
    return replace(snapshot, events=(*snapshot.events, event))


def beginning_and_end(stream: BinaryIO) -> tuple[bytes, int]:
    """The text and its size in bytes. A text that is longer than 1 MiB is cut to its first and its
    last half MiB."""
    head = stream.read(READ_BYTES + 1)
    if len(head) <= READ_BYTES:
        return head, len(head)
    half = READ_BYTES // 2
    size, tail = len(head), head[-half:]
    while size < MOST_BYTES and (block := stream.read(READ_BYTES)):
        size += len(block)
        tail = (tail + block)[-half:]
    return head[:half] + tail, size
