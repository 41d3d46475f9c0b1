"""Somebody's text, of whatever kind, becomes a snapshot. Pure; never raises on any input."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.causes.table import ROWS
from gpusetup.messages.search import Text, events_of
from gpusetup.model.machine import Event, Snapshot
from gpusetup.model.patterns import lazy
from gpusetup.report import (
    cuda_errors,
    failures,
    gpus,
    installers,
    machine_tools,
    nvidia_smi,
    sayings,
    surroundings,
)
from gpusetup.report.cleaning import decode, is_binary, text_of
from gpusetup.report.facts import Facts, Reader
from gpusetup.report.merge import merged

NOT_HERE = lazy(
    r"\b(?:I|we)(?: have|'ve)? (?:read|heard)\b.{0,60}?\b(?:forum|reddit|post|thread|article|blog|somewhere)"
    r"|\b(?:forum|reddit|post|thread|article|blog)\b[^.]{0,40}?\b(?:says?|said|claims?|suggests?)\b"
    r"|n(?:o|')?t (?:see|find|get|have) (?:it|that|this|any|one|such)\b.{0,30}?\b(?:dmesg|logs?|journal\w*)\b",
    re.I,
)
"""A message that somebody quotes and has not."""


def messages(text: Text) -> Iterator[Event]:
    yield from (one for one in events_of(text, ROWS) if not NOT_HERE.search(one.text or ""))


READERS: tuple[Reader, ...] = (
    machine_tools.collect_env,
    nvidia_smi.nvidia_smi,
    sayings.sayings,
    gpus.gpus,
    machine_tools.machine_tools,
    installers.packages,
    installers.wanted,
    surroundings.paths,
    surroundings.surroundings,
    gpus.capabilities,
    cuda_errors.cuda_errors,
    messages,
    failures.failures,
    failures.complaints,
    failures.failing,
)
"""One reader a format; each takes the whole text and gives what it finds."""


def read_report(text: str) -> Snapshot:
    """The machine that a text shows.

    >>> read_report("RuntimeError: Found no NVIDIA driver on your system.").events[0].kind
    'no-nvidia-driver'
    """
    return merged(facts(text_of(text)))


def facts(text: Text) -> Facts:
    for reader in READERS:
        yield from reader(text)


def read_bytes(raw: bytes) -> Snapshot:
    """The same for bytes in any encoding; a picture or an archive shows nothing."""
    return Snapshot(origin="report") if is_binary(raw) else read_report(decode(raw))
