"""Reads a text of any kind as a snapshot, reader by reader. Pure; never raises on any input."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.causes.table import ROWS
from gpusetup.messages.search import Text, events_of
from gpusetup.model.machine import Event, Snapshot
from gpusetup.model.patterns import lazy
from gpusetup.report import (
    bare_answer,
    cuda_errors,
    environment,
    failures,
    field_patterns,
    files,
    gpus,
    hardware,
    installers,
    launches,
    nvidia_smi,
    outcomes,
    owners,
    paths,
    person,
    questions,
    runs,
    works,
)
from gpusetup.report.cleaning import decode, is_binary, text_of
from gpusetup.report.facts import Facts, Reader
from gpusetup.report.merge import merge

NOT_HERE = lazy(
    r"(?i)\b(?:I|we)(?: have|'ve)? (?:read|heard)\b.{0,60}?\b(?:forum|reddit|post|thread|article|blog|somewhere)"
    r"|\b(?:forum|reddit|post|thread|article|blog)\b[^.]{0,40}?\b(?:says?|said|claims?|suggests?)\b"
    r"|n(?:o|')?t (?:see|find|get|have) (?:it|that|this|any|one|such)\b.{0,30}?\b(?:dmesg|logs?|journal\w*)\b",
)
"""A message that somebody quotes and has not."""


def messages(text: Text) -> Iterator[Event]:
    yield from (one for one in events_of(text, ROWS) if not NOT_HERE.search(one.text or ""))


READERS: tuple[Reader, ...] = (
    hardware.collect_env,
    nvidia_smi.nvidia_smi,
    field_patterns.field_claims,
    gpus.gpus,
    hardware.pci_devices_and_nodes,
    installers.packages,
    installers.request_claims,
    paths.paths,
    environment.environment,
    gpus.capability_warnings,
    cuda_errors.cuda_errors,
    messages,
    bare_answer.bare_answer,
    launches.old_launches,
    person.person,
    questions.questions,
    files.files,
    owners.owners,
    runs.runs,
    works.works,
    outcomes.outcomes,
    failures.failures,
    failures.complaints,
    failures.failing_program,
)
"""One reader a format; each takes the whole text and gives what it finds."""


def read_report(text: str) -> Snapshot:
    """The machine that a text shows.

    >>> read_report("RuntimeError: Found no NVIDIA driver on your system.").events[0].kind
    'no-nvidia-driver'
    """
    return merge(facts(text_of(text)))


def facts(text: Text) -> Facts:
    for reader in READERS:
        yield from reader(text)


def read_bytes(raw: bytes) -> Snapshot:
    """The same for bytes in any encoding; a picture or an archive shows nothing."""
    return Snapshot(origin="report") if is_binary(raw) else read_report(decode(raw))
